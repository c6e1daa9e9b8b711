// `run`: values, shapes, what is written and what is refused.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness.h"
#include "runtime/data/npy.h"

namespace cellc {
namespace {

using nlohmann::json;
using Shape = std::vector<std::int64_t>;

const char* kLeaky = R"(cell leaky[d] {
  state h[d] = 1
  input x[d]
  param a[d]
  h' = a*h + x
  out y = 2*h'
}
)";

const char* kLagged = R"(cell narx[d] {
  state h[d]
  input x[d]
  h' = tanh(0.5*h + 0.25*lag(h, 2) + x - 0.5*lag(x, 3))
}
)";

double wave(std::int64_t i) { return std::sin(0.7 * static_cast<double>(i)); }
double half(std::int64_t) { return 0.5; }
double number(std::int64_t i) { return static_cast<double>(i); }

class CommandRun : public CommandTest {
 protected:
  /// cellc run FILE arguments… --out out, expected to succeed.
  json run(const std::string& file, std::vector<std::string> arguments, const std::string& out = "out") const {
    arguments.insert(arguments.begin(), {"run", file, "--json", "--out", path(out)});
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  void expect_same(const std::string& a, const std::string& b) const {
    const Array left = load(a), right = load(b);
    ASSERT_EQ(left.shape(), right.shape());
    EXPECT_EQ(std::memcmp(left.data(), right.data(), static_cast<std::size_t>(left.count()) * size_of(left.dtype())), 0)
        << a << " and " << b;
  }
  /// Rows [begin, end) of the second axis of a [B, T, …] array.
  Array steps(const Array& array, std::int64_t begin, std::int64_t end) const {
    Shape shape = array.shape();
    const std::int64_t whole = shape[1], tail = array.count() / (shape[0] * whole);
    shape[1] = end - begin;
    Array part(array.dtype(), shape);
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t i = 0; i < (end - begin) * tail; ++i)
        part.set(b * (end - begin) * tail + i, array.get((b * whole + begin) * tail + i));
    return part;
  }
};

TEST_F(CommandRun, ValuesAndShapes) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {2, 5, 3}, wave);
  array("a.npy", {3}, half);
  const json report = run(cell, {"--input", "x=x.npy", "--param", "a=a.npy", "--verify"});
  const Array h = load("out/h.npy"), y = load("out/y.npy"), last = load("out/h.final.npy");
  EXPECT_EQ(h.shape(), (Shape{2, 5, 3}));
  EXPECT_EQ(y.shape(), (Shape{2, 5, 3}));
  EXPECT_EQ(last.shape(), (Shape{2, 3}));
  for (int b = 0; b < 2; ++b)
    for (int c = 0; c < 3; ++c) {
      double state = 1;
      for (int t = 0; t < 5; ++t) {
        const int at = (b * 5 + t) * 3 + c;
        state = 0.5 * state + wave(at);
        EXPECT_NEAR(h.get(at), state, 1e-6);
        EXPECT_NEAR(y.get(at), 2 * state, 2e-6);
      }
      EXPECT_NEAR(last.get(b * 3 + c), state, 1e-6);
    }
  EXPECT_EQ(listing("out"), (std::vector<std::string>{"h.final.npy", "h.npy", "y.npy"}));
  for (const char* key :
       {"device", "dtype", "solver", "iterations", "plan", "converged", "max_residual", "error_estimate", "repaired",
        "unconverged", "compile_ms", "cache", "run_ms", "arrays", "verify"})
    EXPECT_TRUE(report.contains(key)) << key;
  EXPECT_EQ(report["arrays"]["h"], json({2, 5, 3}));
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["dtype"], "f32");
  EXPECT_EQ(report["cache"], "miss");
  EXPECT_LT(report["verify"]["max_error"], 1e-6);
  EXPECT_FALSE(report.contains("first_nonfinite"));
  const Outcome text = cellc({"run", cell, "--input", "x=x.npy", "--param", "a=0.5", "--verify"});
  EXPECT_HAS(text.out, "diagonal, N 1, linear");
  EXPECT_HAS(text.out, "largest error");
}

TEST_F(CommandRun, OneSequenceWithoutBatch) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {5, 3}, wave);
  run(cell, {"--input", "x=x.npy", "--param", "a=0.5"});
  EXPECT_EQ(load("out/h.npy").shape(), (Shape{5, 3}));
  EXPECT_EQ(load("out/h.final.npy").shape(), (Shape{1, 3}));
}

TEST_F(CommandRun, EmptyRunsAreValid) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("none.npy", {2, 0, 3}, wave);
  array("h0.npy", {2, 3}, number);
  run(cell, {"--input", "x=none.npy", "--param", "a=0.5", "--state", "h=h0.npy", "--verify"});
  EXPECT_EQ(load("out/h.npy").shape(), (Shape{2, 0, 3}));
  expect_same("out/h.final.npy", "h0.npy");
  array("nobody.npy", {0, 5, 3}, wave);
  run(cell, {"--input", "x=nobody.npy", "--param", "a=0.5", "--verify"});
  EXPECT_EQ(load("out/h.npy").shape(), (Shape{0, 5, 3}));
  EXPECT_EQ(load("out/h.final.npy").shape(), (Shape{0, 3}));
}

TEST_F(CommandRun, NotConvergedSaysWhereAndWhatHelps) {
  const std::string cell =
      write("steep.cell", "cell steep[d] {\n  state h[d] = 0.5\n  input x[d]\n  h' = tanh(3*h + x)\n}\n");
  array("x.npy", {2, 400, 3}, wave);
  const std::vector<std::string> command = {
      "run", cell,          "--input",  "x=x.npy", "--solver", "newton", "--max-iterations",
      "1",   "--no-repair", "--device", "cpu"};
  const Outcome text = cellc(command);
  EXPECT_EQ(text.status, 3);
  EXPECT_HAS(text.err, "cellc: error: not converged: ");
  EXPECT_HAS(text.err, " of 2 sequences");
  EXPECT_HAS(text.err, "leave out --no-repair");
  EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 1) << text.err;
  std::vector<std::string> as_json = command;
  as_json.push_back("--json");
  const Outcome outcome = cellc(as_json);
  EXPECT_EQ(outcome.status, 3);
  const json object = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.contains("error")) << outcome.out;
  EXPECT_HAS(object["error"].get<std::string>(), "not converged: ");
  EXPECT_FALSE(object["unconverged"].empty());
}

// Steps are named by their place in the arrays, whichever way time runs: two iterations make the first steps
// right, which are the last of a reversed sequence.
TEST_F(CommandRun, NamesStepsOfReversedRunsByTheirPlace) {
  const std::string cell = write("far.cell", "cell far {\n  state h\n  input x\n  h' = tanh(3*h + x)\n}\n");
  array("x.npy", {2, 40}, wave);
  std::vector<std::string> command = {
      "run", cell,      "--input", "x=x.npy",  "--solver", "newton", "--fixed-iterations",
      "2",   "--dtype", "f64",     "--device", "cpu",      "--json"};
  const json forth = json::parse(cellc(command).out);
  ASSERT_FALSE(forth["unconverged"].empty());
  Array flipped = load("x.npy");
  const Array x = load("x.npy");
  for (int i = 0; i < 80; ++i) flipped.set(i, x.get(i / 40 * 40 + 39 - i % 40));
  save("x.npy", flipped);
  command.push_back("--reverse");
  const json back = json::parse(cellc(command).out);
  ASSERT_EQ(back["unconverged"].size(), forth["unconverged"].size());
  for (std::size_t s = 0; s < forth["unconverged"].size(); ++s)
    EXPECT_EQ(back["unconverged"][s]["first_bad_step"].get<int>(),
              39 - forth["unconverged"][s]["first_bad_step"].get<int>());
  command.pop_back();
  command.pop_back();
  for (const char* last : {"--no-repair", "--reverse"}) command.push_back(last);
  command[6] = "--max-iterations";
  const Outcome text = cellc(command);
  EXPECT_EQ(text.status, 3);
  EXPECT_HAS(text.err, " back with a residual of ");
  save("x.npy", Array(Dtype::F32, {1, 9}));
  write("pole.cell", "cell pole {\n  state h = 1\n  input x\n  h' = 1/(h*x)\n}\n");
  const Outcome pole = cellc({"run", path("pole.cell"), "--input", "x=x.npy", "--reverse", "--device", "cpu"});
  EXPECT_EQ(pole.err, "cellc: warning: h is not finite from sequence 0, step 8 back\n");
}

// More iterations are no help to segments, of which each is run once.
TEST_F(CommandRun, NotConvergedInSegmentsSaysWhatHelpsThere) {
  const std::string cell =
      write("steep.cell", "cell steep[d] {\n  state h[d] = 0.5\n  input x[d]\n  h' = tanh(1.05*h + 0.01*x)\n}\n");
  array("x.npy", {2, 4000, 3}, wave);
  write("plan.json", R"({"stages": [{"solver": "segmented", "segment": 100, "burn_in": 1}]})");
  const Outcome segments =
      cellc({"run", cell, "--input", "x=x.npy", "--plan", "plan.json", "--no-repair", "--device", "cpu"});
  EXPECT_EQ(segments.status, 3);
  EXPECT_HAS(segments.err,
             "leave out --no-repair, or give it a larger --tolerance or --solver shooting, which iterates");
  EXPECT_EQ(segments.err.find("--max-iterations"), std::string::npos) << segments.err;
}

TEST_F(CommandRun, NumbersOfParamsAreInRange) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {2, 5, 3}, wave);
  const auto with = [&](const std::string& number, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {"run", cell, "--input", "x=x.npy", "--param", "a=" + number, "--device", "cpu"};
    command.insert(command.end(), more.begin(), more.end());
    return cellc(command);
  };
  for (const char* number : {"1e400", "-1e400"}) {
    const Outcome beyond = with(number);
    EXPECT_EQ(beyond.status, 2);
    EXPECT_HAS(beyond.err, std::string("--param a: the number ") + number + " is out of range");
  }
  const Outcome narrow = with("1e39");
  EXPECT_EQ(narrow.status, 2);
  EXPECT_HAS(narrow.err, "--param a: the number 1e+39 is out of the range of f32");
  EXPECT_EQ(with("1e38").status, 0);
  EXPECT_EQ(with("inf").status, 0);  // who writes it means it
}

TEST_F(CommandRun, LanesAreAxes) {
  const std::string cell =
      write("square.cell", "cell square[d] {\n  state P[d,d]\n  input x[d]\n  P'[i,j] = 0.5*P[i,j] + x[i]*x[j]\n}\n");
  const Outcome outcome = cellc({"run", cell, "--random", "1", "--length", "3", "--dim", "d=2"});
  EXPECT_HAS(outcome.out, "lanes d,d\n");
}

TEST_F(CommandRun, PackedSequences) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {7, 3}, wave);
  Array offsets(Dtype::I64, {4});
  const std::int64_t values[] = {0, 3, 3, 7};
  std::memcpy(offsets.data(), values, sizeof values);
  save("o.npy", offsets);
  run(cell, {"--input", "x=x.npy", "--param", "a=0.5", "--offsets", "o.npy", "--verify"});
  EXPECT_EQ(load("out/h.npy").shape(), (Shape{7, 3}));
  const Array h = load("out/h.npy"), last = load("out/h.final.npy");
  EXPECT_EQ(last.shape(), (Shape{3, 3}));
  EXPECT_NEAR(h.get(9), 0.5 + wave(9), 1e-6) << "the state starts anew with the third sequence";
  EXPECT_EQ(last.get(3), 1) << "an empty sequence ends as it started";
  EXPECT_EQ(last.get(8), h.get(20));
  const Outcome bad = cellc({"run", cell, "--input", "x=x.npy", "--param", "a=0.5", "--offsets", "x.npy"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_HAS(bad.err, "expected int64");
}

TEST_F(CommandRun, Reverse) {
  const std::string cell = write("lagged.cell", kLagged);
  array("x.npy", {1, 9, 2}, wave);
  const Array x = load("x.npy");
  Array flipped(Dtype::F32, {1, 9, 2});
  for (int t = 0; t < 9; ++t)
    for (int c = 0; c < 2; ++c) flipped.set(t * 2 + c, x.get((8 - t) * 2 + c));
  save("flipped.npy", flipped);
  run(cell, {"--input", "x=x.npy", "--reverse", "--verify"}, "back");
  run(cell, {"--input", "x=flipped.npy"}, "forth");
  const Array back = load("back/h.npy"), forth = load("forth/h.npy");
  for (int t = 0; t < 9; ++t)
    for (int c = 0; c < 2; ++c) EXPECT_EQ(back.get(t * 2 + c), forth.get((8 - t) * 2 + c));
  for (const char* name : {"h.final.npy", "h.lag.npy", "x.lag.npy"})
    expect_same(std::string("back/") + name, std::string("forth/") + name);
}

TEST_F(CommandRun, AResumedRunEqualsTheWhole) {
  const std::string cell = write("lagged.cell", kLagged);
  array("x.npy", {2, 11, 3}, wave);
  for (const char* dtype : {"f32", "f64", "f16", "bf16"}) {
    const std::vector<std::string> common = {"--dtype", dtype};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), common.begin(), common.end());
      return more;
    };
    run(cell, with({"--input", "x=x.npy"}), "whole");
    for (const std::int64_t cut : {1, 2, 5}) {
      const Array x = load("x.npy");
      save("x1.npy", steps(x, 0, cut));
      save("x2.npy", steps(x, cut, 11));
      run(cell, with({"--input", "x=x1.npy"}), "first");
      run(cell,
          with({"--input", "x=x2.npy", "--state", "h=first/h.final.npy", "--state", "h.lag=first/h.lag.npy", "--input",
                "x.lag=first/x.lag.npy"}),
          "second");
      for (const char* name : {"h.final.npy", "h.lag.npy", "x.lag.npy"})
        expect_same(std::string("whole/") + name, std::string("second/") + name);
      Array whole = load("whole/h.npy"), second = load("second/h.npy");
      if (std::string(dtype) == "bf16") {
        whole.reinterpret(Dtype::BF16);
        second.reinterpret(Dtype::BF16);
      }
      const Array rest = steps(whole, cut, 11);
      for (std::int64_t i = 0; i < rest.count(); ++i) ASSERT_EQ(rest.get(i), second.get(i)) << dtype << cut << " " << i;
    }
  }
}

TEST_F(CommandRun, SixteenBitStorage) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {1, 20, 4}, wave, Dtype::F16);
  array("a.npy", {4}, half, Dtype::F16);
  const json f16 = run(cell, {"--input", "x=x.npy", "--param", "a=a.npy", "--verify"});
  EXPECT_EQ(f16["dtype"], "f16");
  EXPECT_EQ(load("out/h.npy").dtype(), Dtype::F16);
  EXPECT_EQ(load("out/h.final.npy").dtype(), Dtype::F32);
  EXPECT_LT(f16["verify"]["max_error"], 1e-3);

  array("b.npy", {1, 20, 4}, wave, Dtype::BF16);
  const Outcome unclear = cellc({"run", cell, "--input", "x=b.npy", "--param", "a=0.5"});
  EXPECT_EQ(unclear.status, 1);
  EXPECT_HAS(unclear.err, "--dtype bf16");
  const json bf16 = run(cell, {"--input", "x=b.npy", "--param", "a=0.5", "--dtype", "bf16", "--verify"});
  EXPECT_EQ(bf16["dtype"], "bf16");
  EXPECT_EQ(load("out/h.npy").dtype(), Dtype::U16);
  EXPECT_LT(bf16["verify"]["max_error"], 8e-3);
  // The same bits as signed numbers, which is how some libraries hand them out.
  std::string bytes = npy_header(load("b.npy"));
  bytes.replace(bytes.find("<u2"), 3, "<i2");
  write("i.npy", bytes + std::string(static_cast<const char*>(load("b.npy").data()), 160));
  run(cell, {"--input", "x=i.npy", "--param", "a=0.5", "--dtype", "bf16"}, "signed");
  expect_same("signed/h.npy", "out/h.npy");
}

TEST_F(CommandRun, RandomDataIsReproducible) {
  const std::string cell = write("leaky.cell", kLeaky);
  const std::vector<std::string> same = {"--random", "3", "--dim", "d=5", "--batch", "2", "--length", "9"};
  const json report = run(cell, same, "one");
  EXPECT_EQ(report["random"], json({"a", "x"}));
  run(cell, same, "two");
  expect_same("one/h.npy", "two/h.npy");
  run(cell, {"--random", "4", "--dim", "d=5", "--batch", "2", "--length", "9"}, "three");
  EXPECT_NE(load("one/h.npy").get(0), load("three/h.npy").get(0));
}

TEST_F(CommandRun, ThreadsDoNotChangeBits) {
  const std::vector<std::string> same = {"--random", "3", "--dim", "d=130", "--batch", "3", "--length", "50"};
  for (const char* threads : {"1", "2", "5"}) {
    std::vector<std::string> arguments = same;
    arguments.insert(arguments.end(), {"--threads", threads});
    run(example("01_para_gru.cell"), arguments, threads);
  }
  expect_same("1/h.npy", "2/h.npy");
  expect_same("1/h.npy", "5/h.npy");
}

// In which order this kernel of OpenBLAS adds follows from a row's place in the call, so which rows share a call may
// not follow from the threads. Where there is another BLAS, or a processor that cannot run it, nothing is asked.
TEST_F(CommandRun, ThreadsDoNotChangeBitsOfProducts) {
  const std::string cell =
      write("mixed.cell",
            "cell mixed[d, m] {\n  state h[d]\n  input x[m]\n  param W[d,m], a[d]\n  h' = tanh(a*h + W@x)\n}\n");
  write("plan.json", R"({"stages": [{"solver": "segmented", "segment": 8, "burn_in": 4}]})");
  ProcessOptions haswell;
  haswell.environment = {{"OPENBLAS_CORETYPE", "Haswell"}};
  for (const char* length : {"10", "33", "100"})
    for (const bool reverse : {false, true})
      for (const std::vector<std::string>& solver :
           std::vector<std::vector<std::string>>{{"--solver", "sequential"}, {"--plan", "plan.json"}})
        for (const char* threads : {"1", "2", "3", "8"}) {
          SCOPED_TRACE(std::string(length) + " steps, " + solver[1] + ", " + threads + " threads" +
                       (reverse ? ", reversed" : ""));
          std::vector<std::string> arguments = {"run",     cell,    "--device",  "cpu",   "--random", "1",
                                                "--batch", "63",    "--length",  length,  "--dim",    "d=64",
                                                "--dim",   "m=300", "--threads", threads, "--out",    threads};
          arguments.insert(arguments.end(), solver.begin(), solver.end());
          if (reverse) arguments.push_back("--reverse");
          const Outcome outcome = cellc(arguments, haswell);
          ASSERT_EQ(outcome.status, 0) << outcome.err;
          expect_same("1/h.npy", std::string(threads) + "/h.npy");
        }
}

TEST_F(CommandRun, CellsWithoutInputsRunForALength) {
  const std::string lorenz = example("35_lorenz.cell");
  run(lorenz, {"--cell", "lorenz_rk4", "--length", "100", "--dtype", "f64", "--verify"});
  EXPECT_EQ(load("out/x.npy").shape(), (Shape{1, 100}));
  EXPECT_EQ(load("out/x.npy").dtype(), Dtype::F64);
  const Outcome none = cellc({"run", lorenz, "--cell", "lorenz_rk4"});
  EXPECT_EQ(none.status, 1);
  EXPECT_HAS(none.err, "--length");
}

TEST_F(CommandRun, LagsAlongAnAxisThatArraysSize) {
  const std::string cell =
      write("fir.cell",
            "cell fir[d, w] {\n  state h[d]\n  input x[d]\n  param k[d,w]\n  h' = sum[w](k*lag[w](x)) + "
            "0*h\n}\n");
  array("x.npy", {1, 6, 1}, number);
  array("k.npy", {1, 3}, number);
  const json report = run(cell, {"--input", "x=x.npy", "--param", "k=k.npy", "--verify"});
  EXPECT_EQ(report["arrays"]["x.lag"], json({1, 2, 1}));
  const Array h = load("out/h.npy");
  for (int t = 0; t < 6; ++t) EXPECT_NEAR(h.get(t), std::max(0, t - 1) + 2 * std::max(0, t - 2), 1e-6);
}

TEST_F(CommandRun, WhatIsNotFiniteIsReported) {
  const std::string cell = write("square.cell", "cell s {\n  state x = 10\n  input u\n  x' = x^2 + 0*u\n}\n");
  array("u.npy", {2, 12}, half);
  const json report = run(cell, {"--input", "u=u.npy", "--verify"});
  EXPECT_EQ(report["first_nonfinite"], json({{"state", "x"}, {"sequence", 0}, {"step", 5}}));
  const Outcome text = cellc({"run", cell, "--input", "u=u.npy"});
  EXPECT_EQ(text.err, "cellc: warning: x is not finite from sequence 0, step 5 on\n");
  EXPECT_EQ(text.out.find("not finite"), std::string::npos) << text.out;

  // An out may be no number where every state is one.
  const std::string pole = write("pole.cell", "cell p {\n  state x = 3\n  input u\n  x' = x - 1\n  out y = u/x\n}\n");
  EXPECT_EQ(run(pole, {"--input", "u=u.npy"})["first_nonfinite"], json({{"out", "y"}, {"sequence", 0}, {"step", 3}}));
  EXPECT_EQ(cellc({"run", pole, "--input", "u=u.npy"}).err,
            "cellc: warning: y is not finite from sequence 0, step 3 on\n");
}

TEST_F(CommandRun, VerifyTellsWhatOverflowed) {
  const std::string cell = write("square.cell", "cell s {\n  state x = 10\n  input u\n  x' = x^2 + 0*u\n}\n");
  array("u.npy", {1, 7}, half);
  const json report = run(cell, {"--input", "u=u.npy", "--verify"});
  EXPECT_TRUE(report["verify"]["max_error"].is_null());
  EXPECT_EQ(report["verify"]["step"], 5);
  EXPECT_LT(report["verify"]["max_finite_error"], 1e-5);
  const Outcome text = cellc({"run", cell, "--input", "u=u.npy", "--verify"});
  EXPECT_HAS(
      text.out,
      "from x (sequence 0, step 5) on: it is inf, and the sequential f64 reference has 1e+64, more than f32 can hold");
  EXPECT_EQ(text.out.find("largest error inf"), std::string::npos) << text.out;
  // Its square root is a number again, but what was lost is lost.
  const std::string root = write("root.cell", "cell s {\n  state x = 1e30\n  input u\n  x' = sqrt(x^2) + 0*u\n}\n");
  EXPECT_HAS(cellc({"run", root, "--input", "u=u.npy", "--verify"}).out, "left the numbers that f32 has");
}

TEST_F(CommandRun, WrongArraysAreStatus1AndNamed) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {2, 5, 3}, wave);
  array("x64.npy", {2, 5, 3}, wave, Dtype::F64);
  array("a.npy", {3}, half);
  array("a4.npy", {4}, half);
  write("text.npy", "this is no array");
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"--param", "a=a.npy"}, "cell leaky needs 1 more array: input x[B, T, d] (--input x=FILE.npy)"},
      {{"--input", "x=x.npy"}, "param a[d] (--param a=FILE.npy)"},
      {{"--input", "x=x.npy", "--param", "a=a4.npy"},
       "param a (a4.npy): axis d has length 4; expected 3, as input x (x.npy) has it"},
      {{"--input", "x=a.npy", "--param", "a=a.npy"}, "input x (a.npy) has the shape [3]; expected [B, T, d] or [T, d]"},
      {{"--input", "x=x.npy", "--param", "a=x.npy"}, "param a (x.npy) has the shape [2, 5, 3]; expected [d]"},
      {{"--input", "x=none.npy"}, "none.npy: cannot open: No such file or directory"},
      {{"--input", "x=text.npy"}, "text.npy: is not a .npy file"},
      {{"--input", "x=x64.npy", "--param", "a=a.npy"}, "is f32, but input x (x64.npy) is f64"},
      {{"--input", "z=x.npy", "--param", "a=a.npy"}, "cell leaky has no input 'z'"},
      {{"--input", "h=x.npy"}, "'h' is a state of cell leaky; give it with --state"},
      {{"--input", "x=x.npy", "--param", "a=a.npy", "--state", "h=x.npy"}, "expected [B, d]"},
      {{"--input", "x=x.npy", "--param", "a=a.npy", "--dim", "d=4"}, "expected 4, as --dim d=4 has it"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> arguments = {"run", cell, "--out", "out"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 1) << c.message;
    EXPECT_HAS(outcome.err, c.message);
    EXPECT_TRUE(listing("out").empty());
  }
  EXPECT_EQ(cellc({"run", cell, "--input", "x=x64.npy", "--param", "a=a.npy", "--dtype", "f32"}).status, 0);
}

TEST_F(CommandRun, AFullDiskLeavesNothing) {
  const std::string cell = write("leaky.cell", kLeaky);
  array("x.npy", {1, 5000, 3}, wave);
  ProcessOptions full;
  full.file_size_limit = 16384;
  const Outcome outcome =
      cellc({"run", cell, "--input", "x=x.npy", "--param", "a=0.5", "--out", "out", "--json"}, full);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "out/h.npy: cannot write: File too large");
  EXPECT_TRUE(json::parse(outcome.out, nullptr, false).contains("error"));
  EXPECT_TRUE(listing("out").empty());
  write("afile", "");
  EXPECT_EQ(cellc({"run", cell, "--input", "x=x.npy", "--param", "a=0.5", "--out", "afile/out"}).status, 4);
  EXPECT_EQ(cellc({"run", cell, "--input", "x=x.npy", "--param", "a=0.5", "--out", "/proc/none/such"}).status, 4);
}

TEST_F(CommandRun, MoreThanMemoryIsRefused) {
  const Outcome outcome = cellc({"run", example("01_para_gru.cell"), "--random", "1", "--dim", "d=1000000", "--length",
                                 "1000000000", "--batch", "1000"});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "of memory");
}

TEST_F(CommandRun, AnInterruptLeavesNothing) {
  ProcessOptions interrupt;
  interrupt.signal_after_ms = 300;
  for (const int signal : {SIGINT, SIGTERM}) {
    interrupt.signal = signal;
    // The reference takes far longer than the interrupt lets it.
    const Outcome outcome = cellc({"run", example("04_lstm.cell"), "--random", "1", "--dim", "d=64", "--dim", "m=64",
                                   "--length", "100000", "--verify", "--out", "out"},
                                  interrupt);
    EXPECT_EQ(outcome.status, 128 + signal);
    EXPECT_TRUE(listing("out").empty());
  }
}

TEST_F(CommandRun, EditedKernelsNeedAGpuAndAFile) {
  const std::string file = example("01_para_gru.cell");
  const std::vector<std::string> run = {"run", file, "--random", "1", "--length", "8", "--dim", "d=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return cellc(more);
  };
  const std::string kernel = write("edited.cu", "// para_gru.segmented.cu: as launched\nint x;\n");
  Outcome outcome = with({"--kernel", kernel, "--device", "cpu"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_HAS(outcome.err, "--kernel and --write-kernels are for a GPU; use --device cuda");
  outcome = with({"--kernel", kernel, "--write-kernels", path("other.cu")});
  EXPECT_EQ(outcome.status, 2);
  outcome = with({"--write-kernels", file});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_HAS(outcome.err, "is the cell file itself");
  outcome = with({"--kernel", path("missing.cu")});
  EXPECT_EQ(outcome.status, 1);
  outcome = with({"--kernel", write("empty.cu", "int x;\n")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.err, "empty.cu: holds no kernels; expected units under lines such as");
}

TEST_F(CommandRun, TellsWhenACardCannotBeUsed) {
  // A driver that finds a card, and no compiler for it.
  std::filesystem::copy_file(CELLC_FAKE_DRIVER, path("libcuda.so.1"));
  ProcessOptions options;
  options.environment = {{"LD_LIBRARY_PATH", path("")}, {"CELLC_NVRTC", path("nowhere")}};
  const std::vector<std::string> run = {
      "run", example("01_para_gru.cell"), "--random", "1", "--length", "8", "--dim", "d=2", "--json"};
  const Outcome outcome = cellc(run, options);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["device"], "cpu");
  EXPECT_HAS(outcome.err, "cellc: note: --device auto takes the CPU: Fake H1 has no compiler: CELLC_NVRTC=");
  std::vector<std::string> forced = run;
  forced.insert(forced.end(), {"--device", "cpu"});
  EXPECT_EQ(cellc(forced, options).err, "");
}
}  // namespace
}  // namespace cellc
