// `inspect` and `check`, and what is said of wrong cell files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/break_latex.h"
#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

class CommandInspect : public CommandTest {};

TEST_F(CommandInspect, EveryStageSaysSomething) {
  const std::string help = cellc({"inspect", "--help"}).out;
  EXPECT_HAS(help, "tree, graph, jacobian, structure, plan, lanes, derive, adjoint, tangent, llvm, asm, cuda, ptx");
  for (const char* stage : {"tree", "graph", "jacobian", "structure", "plan", "lanes", "derive", "adjoint", "tangent",
                            "llvm", "asm", "cuda"}) {
    const Outcome outcome = cellc({"inspect", example("02_para_lstm.cell"), "--stage", stage});
    EXPECT_EQ(outcome.status, 0) << stage << outcome.err;
    EXPECT_GT(outcome.out.size(), 40u) << stage;
    EXPECT_EQ(outcome.err, "") << stage;
  }
  EXPECT_HAS(cellc({"inspect", example("02_para_lstm.cell"), "--stage", "llvm", "--dtype", "f64"}).out, "double");
  EXPECT_EQ(cellc({"inspect", example("25_ltc.cell"), "--stage", "tree"}).status, 0) << "a tree is of a whole file";
}

// It has the cell's own structure, and reads a tangent of each input.
TEST_F(CommandInspect, TheTangentIsACellOfTheSameStructure) {
  const std::string text = cellc({"inspect", example("01_para_gru.cell"), "--stage", "tangent"}).out;
  for (const char* part : {"cell para_gru", "tangent.xz", "tangent.h", "linear", "diagonal"}) EXPECT_HAS(text, part);
}

TEST_F(CommandInspect, WholeUnitsForACard) {
  const std::string gru = example("01_para_gru.cell");
  const Outcome fragment = cellc({"inspect", gru, "--stage", "cuda"});
  EXPECT_EQ(fragment.out.find("__global__"), std::string::npos);
  const Outcome whole = cellc({"inspect", gru, "--stage", "cuda", "--whole"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  for (const char* part :
       {"stage {h}: segmented", "CELLC_STORAGE_F32", "#line 1 \"segmented.cuh\"", "__global__", "struct Step"})
    EXPECT_HAS(whole.out, part);
  EXPECT_HAS(cellc({"inspect", gru, "--stage", "cuda", "--whole", "--dtype", "bf16"}).out, "CELLC_STORAGE_BF16");
  // Every stage and what lies between; a dense cell as a whole.
  const Outcome stages = cellc({"inspect", example("17_mlstm.cell"), "--stage", "cuda", "--whole"});
  EXPECT_EQ(stages.status, 0) << stages.err;
  for (const char* part : {"stage {m}: ", "stage {C}: ", "stage {n}: ", ": outs"}) EXPECT_HAS(stages.out, part);
  const std::string dense = example("05_elman.cell");
  EXPECT_HAS(cellc({"inspect", dense, "--stage", "cuda", "--whole"}).out, "the whole cell step by step, as nests");
  EXPECT_HAS(cellc({"inspect", dense, "--stage", "cuda", "--whole", "--dim", "d=4"}).out, "stage {h}: segmented");
}

TEST_F(CommandInspect, PtxNeedsNvrtcAndSaysSo) {
  const std::string gru = example("01_para_gru.cell");
  ProcessOptions without;
  without.environment = {{"CELLC_NVRTC", path("nowhere")}};
  const Outcome none = cellc({"inspect", gru, "--stage", "ptx"}, without);
  EXPECT_EQ(none.status, 4);
  EXPECT_EQ(none.out, "");
  EXPECT_HAS(none.err, "CELLC_NVRTC=" + path("nowhere"));
  const Outcome ptx = cellc({"inspect", gru, "--stage", "ptx"});
  if (ptx.status == 4 && !std::getenv("CELLC_REQUIRE_NVRTC")) GTEST_SKIP() << ptx.err;
  ASSERT_EQ(ptx.status, 0) << ptx.err;
  EXPECT_HAS(ptx.out, ".target sm_90");
  EXPECT_HAS(ptx.out, ".entry cellc_kernel");
  EXPECT_HAS(cellc({"inspect", gru, "--stage", "ptx", "--arch", "sm_80"}).out, ".target sm_80");
}

TEST_F(CommandInspect, TextAndLatex) {
  const Outcome text = cellc({"inspect", example("02_para_lstm.cell")});
  EXPECT_HAS(text.out, "block-diagonal");
  const Outcome latex = cellc({"inspect", example("02_para_lstm.cell"), "--latex"});
  EXPECT_HAS(latex.out, "\\documentclass");
  EXPECT_HAS(latex.out, "\\end{document}");
  // TeX stops at a second superscript.
  const Outcome squares = cellc({"inspect", example("01_para_gru.cell"), "--latex"});
  EXPECT_HAS(squares.out, "{c^{(t)}}^{2}");
  EXPECT_EQ(squares.out.find("c^{(t)}^"), std::string::npos);
}

TEST_F(CommandInspect, LinesThatAreQuotedInPartSaySo) {
  // The quote ends within a letter of the comment.
  const std::string cell = write("long.cell", "cell long[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(0.5*h +   # " +
                                                  std::string(37, 'a') + "é\n    x)\n}\n");
  EXPECT_HAS(cellc({"inspect", cell}).out, "`h' = tanh(0.5*h +   # " + std::string(37, 'a') + "…`\n");
}

TEST_F(CommandInspect, JsonHasTheKeysOfTheContract) {
  const Outcome outcome = cellc({"inspect", example("04_lstm.cell"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json object = json::parse(outcome.out);
  for (const char* key : {"cell", "axes", "states", "inputs", "params", "outs", "structure", "stages", "linear",
                          "hoisted", "jacobian", "adjoint", "why", "flops_per_step"})
    EXPECT_TRUE(object.contains(key)) << key;
  for (const char* key : {"class", "block", "rank", "channel_axes", "mixed_axes", "mask", "coefficient_axes"}) {
    EXPECT_TRUE(object["structure"].contains(key)) << key;
    EXPECT_TRUE(object["stages"][0].contains(key)) << key;
  }
  for (const char* key : {"states", "linear", "time_invariant", "scannable", "inputs_from"})
    EXPECT_TRUE(object["stages"][0].contains(key)) << key;
  EXPECT_EQ(object["structure"]["class"], "dense");
  EXPECT_EQ(object["structure"]["block"], "2*d");
  EXPECT_EQ(object["structure"]["mask"], json({"dF", "dF"}));
  for (const char* key : {"row", "col", "text", "latex"}) EXPECT_TRUE(object["jacobian"][0].contains(key)) << key;
  for (const char* key : {"line", "column", "text"}) EXPECT_TRUE(object["why"][0].contains(key)) << key;
}

TEST_F(CommandInspect, DeclarationsAreTold) {
  const std::string cell = write("told.cell",
                                 "cell told[n=3, d] {\n  state h[d] = h0 in (-1, 1), v[n] = 0.5, s\n"
                                 "  input x[d] in (0, 2), y\n  param h0[d], a = 0.25 in (0, 1), W[n,n] = eye[n,n]\n"
                                 "  h' = a*h + x\n  v' = W@v\n  s' = s + y\n}\n");
  const std::string text = cellc({"inspect", cell}).out;
  for (const char* part : {"cell told[n=3, d]", "h[d] = h0 in (-1, 1)", "v[n] = 0.5, s", "x[d] in (0, 2), y",
                           "a = 0.25 in (0, 1)", "W[n,n] = eye["})
    EXPECT_HAS(text, part);
  const json object = json::parse(cellc({"inspect", cell, "--json"}).out);
  EXPECT_EQ(object["lengths"], json({{"n", 3}}));
  const json& d = object["declarations"];
  EXPECT_EQ(d[0]["start"], "h0");
  EXPECT_EQ(d[0]["range"], json({-1.0, 1.0}));
  EXPECT_EQ(d[1]["start"], "0.5");
  EXPECT_EQ(d[2]["start"], nullptr);
  EXPECT_FALSE(d[3].contains("start"));
  EXPECT_EQ(d[5]["default"], nullptr);
  EXPECT_EQ(d[6]["default"], "0.25");
}

TEST_F(CommandInspect, TheDocumentNamesEveryKeyOfTheJson) {
  std::ifstream file(std::string(CELLC_SOURCE_DIR) + "/docs/inspect-json.md");
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  ASSERT_NE(document, "");
  std::function<void(const json&)> walk = [&](const json& value) {
    if (!value.is_structured()) return;
    for (const auto& [key, inner] : value.items()) {
      if (value.is_object()) {
        EXPECT_HAS(document, "`" + key + "`");
        if (key == "lengths") continue;  // its keys are axes
      }
      walk(inner);
    }
  };
  for (const char* name :
       {"04_lstm.cell", "18_delta_net.cell", "43_peak_hold.cell", "39_kalman1.cell", "34_narx3.cell"})
    walk(json::parse(cellc({"inspect", example(name), "--json"}).out));
}

// Every formula of every example fits on its lines, and what is read is defined.
TEST_F(CommandInspect, LatexStaysOnThePage) {
  for (const auto& entry : std::filesystem::directory_iterator(std::string(CELLC_SOURCE_DIR) + "/dsl-examples")) {
    if (entry.path().extension() != ".cell") continue;
    const Outcome latex = cellc({"inspect", entry.path().string(), "--latex"});
    if (latex.status != 0) continue;  // of several cells one must be named
    std::istringstream lines(latex.out);
    std::string all;
    for (std::string line; std::getline(lines, line); all += line + "\n") {
      EXPECT_LE(latex_width(line), 90) << entry.path() << "\n" << line;
      const std::size_t equals = line.find(" =");
      const std::string right = equals == std::string::npos ? line : line.substr(equals);
      for (int i = 1; i <= 40; ++i) {
        const std::string part = "t_{" + std::to_string(i) + "}^{(t)}";
        if (right.find(part) == std::string::npos) continue;
        EXPECT_TRUE(all.find("\\[ " + part + " =") != std::string::npos ||
                    all.find("\n" + part + " =") != std::string::npos)
            << entry.path() << ": " << part << " is read before it is defined\n"
            << line;
      }
    }
  }
  EXPECT_HAS(cellc({"inspect", example("04_lstm.cell"), "--latex"}).out, "U_{f}");
}

TEST_F(CommandInspect, LatexHasPowersOfTen) {
  write("small.cell",
        "cell small[d] {\n  state h[d]\n  input x[d]\n  h' = 1e-05*h + 2.5e30*x - 1e20*x^2 + (-3e-07)*x^3\n}\n");
  const Outcome outcome = cellc({"inspect", "small.cell", "--latex"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_HAS(outcome.out, "10^{-5}\\, h");
  EXPECT_HAS(outcome.out, "2.5 \\cdot 10^{30}\\, x");
  EXPECT_HAS(outcome.out, "10^{20}\\, ");
  EXPECT_EQ(outcome.out.find("e-0"), std::string::npos) << outcome.out;
}

TEST_F(CommandInspect, OldArchitecturesAreRefusedByName) {
  for (const char* stage : {"ptx", "cuda"}) {
    const Outcome outcome = cellc({"inspect", example("01_para_gru.cell"), "--stage", stage, "--arch", "sm_75"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_HAS(outcome.err, "--arch sm_75: the kernels need sm_80 or newer");
  }
}

// Text for a compiler is UTF-8, whatever paths are.
TEST_F(CommandInspect, CudaOfAFileWhosePathIsNotUtf8) {
  for (const char* name : {"01_para_gru.cell", "03_gru.cell"}) {
    const std::string file = path("a\xff\xc3\xa4\".cell");
    std::filesystem::copy_file(example(name), file, std::filesystem::copy_options::overwrite_existing);
    const Outcome outcome = cellc({"inspect", file, "--stage", "cuda"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_HAS(outcome.out, "/a?\xc3\xa4\\\".cell\"\n");
    EXPECT_EQ(outcome.out.find('\xff'), std::string::npos);
    const Outcome compiled = cellc({"inspect", file, "--stage", "ptx"});
    EXPECT_TRUE(compiled.status == 0 || compiled.err.find("does not compile") == std::string::npos) << compiled.err;
  }
}

TEST_F(CommandInspect, WrongCellsSayWhereAndWhat) {
  const struct {
    const char* text;
    std::vector<const char*> expected;
  } cases[] = {
      {"cell c[d] {\n  state h[d]\n  input gate[d]\n  h' = tanh(gata + h)\n}\n",
       {":4:13: error: ", "'gata'", "'gate'"}},
      {"cell c[d, m] {\n  state h[d]\n  input x[m]\n  param U[d,d]\n  h' = U@x\n}\n", {":5:", "error: ", "'m'"}},
      {"cell c[d] {\n  state h[d]\n  h' = h\n  h' = 2*h\n}\n", {":4:3: error: ", "h'"}},
      {"cell c[d] {\n  state h[d], g[d]\n  h' = h\n}\n", {"error: ", "g"}},
      {"cell c[d] {\n  state h[d]\n  a = b + h\n  b = a\n  h' = a\n}\n", {":3:", "error: "}},
      {"cell c[d] {\n  state h[d]\n  h' = (h\n}\n", {":3:", "error: "}},
      {"", {"holds no cell"}},
  };
  for (const auto& c : cases) {
    const std::string file = write("bad.cell", c.text);
    const Outcome outcome = cellc({"inspect", file});
    EXPECT_EQ(outcome.status, 1) << c.text;
    for (const char* part : c.expected) EXPECT_HAS(outcome.err, part);
    EXPECT_HAS(outcome.err, "bad.cell");
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(cellc({"run", file, "--random", "1"}).status, 1);
    EXPECT_EQ(cellc({"check", file}).status, 1);
  }
}

TEST_F(CommandInspect, AllErrorsOfAFileAtOnce) {
  const std::string file = write("two.cell",
                                 "cell a[d] {\n  state h[d]\n  h' = nope1*h\n}\ncell b[d] {\n  state h[d]\n  h' = "
                                 "nope2*h\n}\n");
  const Outcome outcome = cellc({"inspect", file, "--cell", "a", "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.err, "nope1");
  EXPECT_HAS(outcome.err, "nope2");
  const json object = json::parse(outcome.out);
  ASSERT_EQ(object["diagnostics"].size(), 2u);
  EXPECT_EQ(object["diagnostics"][1]["line"], 7);
  EXPECT_EQ(object["diagnostics"][1]["column"], 8);
}

TEST_F(CommandInspect, UnreadableFiles) {
  EXPECT_HAS(cellc({"inspect", path("none.cell")}).err, "none.cell: cannot open: No such file");
  EXPECT_EQ(cellc({"inspect", path("")}).status, 1);
  const std::string large = write("large.cell", std::string(2 << 20, '#'));
  EXPECT_HAS(cellc({"inspect", large}).err, "is larger than");
  const std::string binary = write("binary.cell", std::string("cell \xff\xfe\0[d] {", 13));
  const Outcome outcome = cellc({"inspect", binary, "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(json::parse(outcome.out, nullptr, false).is_object()) << outcome.out;
}

TEST_F(CommandInspect, CheckPassesAndSaysWhatItTried) {
  for (const char* file : {"01_para_gru.cell", "18_delta_net.cell", "34_narx3.cell", "e_mamba_mixer.cell"}) {
    const Outcome outcome = cellc({"check", example(file), "--seed", "5"});
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_HAS(outcome.out, "seed 5");
    for (const char* strategy : {"sequential f32", "segmented f64", "shooting f32", "newton f64"})
      EXPECT_HAS(outcome.out, std::string(strategy) + ", each step against the f64 reference");
  }
  EXPECT_HAS(cellc({"check", example("08_gilr.cell")}).out, "scan f64, each step");
  EXPECT_HAS(cellc({"check", example("05_elman.cell")}).out, "relaxation f32, each step");
  // Its adjoint is linear, so that is scanned; the cell itself is not.
  const std::string gru = cellc({"check", example("01_para_gru.cell")}).out;
  EXPECT_HAS(gru, "gradients: scan f64, each step");
  EXPECT_EQ(gru.find("scan"), gru.rfind("scan"));
  const json object = json::parse(cellc({"check", example("43_peak_hold.cell"), "--json"}).out);
  EXPECT_EQ(object["passed"], true);
  bool clip = false;
  for (const auto& check : object["checks"]) {
    EXPECT_GT(check["tried"], 0) << check["what"];
    clip |= check["what"].get<std::string>().find("clipped") != std::string::npos;
  }
  EXPECT_TRUE(clip);
}

// Values that the reference has and f32 cannot hold say nothing of the kernels.
TEST_F(CommandInspect, CheckDoesNotCallOkWhatItCouldNotTry) {
  write("nowhere.cell", "cell n {\n  state h\n  input x\n  h' = 0.5*h + log(-1 - x^2)\n}\n");
  const Outcome text = cellc({"check", path("nowhere.cell")});
  EXPECT_EQ(text.status, 0);
  EXPECT_HAS(text.out, "  -      d h'/d h: nothing could be compared");
  EXPECT_HAS(text.out, "nothing is known, for want of numbers to compare");
  EXPECT_EQ(text.out.find(": 0 compared"), std::string::npos) << text.out;
  const json object = json::parse(cellc({"check", path("nowhere.cell"), "--json"}).out);
  EXPECT_EQ(object["checks"][0]["outcome"], "nothing compared");
}

TEST_F(CommandInspect, CheckSkipsWhatThePrecisionCannotHold) {
  for (const char* step : {"3*h^3 + x", "h*h + 2 + x", "exp(h) + x"}) {
    const std::string cell = write("large.cell", std::string("cell large[d] {\n  state h[d]\n  input x[d]\n  h' = ") +
                                                     step + "\n  out y = 1/h'\n}\n");
    const Outcome outcome = cellc({"check", cell});
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_HAS(outcome.out, "skipped");
  }
}

TEST_F(CommandInspect, TheTreeOfOneCell) {
  const std::string file = example("25_ltc.cell");
  const Outcome both = cellc({"inspect", file, "--stage", "tree"}),
                one = cellc({"inspect", file, "--stage", "tree", "--cell", "ltc"});
  EXPECT_EQ(one.status, 0);
  EXPECT_HAS(both.out, "cell lrc_ssm");
  EXPECT_HAS(one.out, "cell ltc");
  EXPECT_EQ(one.out.find("cell lrc_ssm"), std::string::npos);
}

}  // namespace
}  // namespace cellc
