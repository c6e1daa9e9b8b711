// `bench`: what it measures is not looked at, what it says of it is.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

class CommandBench : public CommandTest {
 protected:
  std::string gru = example("01_para_gru.cell");
};

TEST_F(CommandBench, EveryStrategyBesideTheFloor) {
  const Outcome outcome = cellc(
      {"bench", gru, "--json", "--length", "600", "--dim", "d=8", "--batch", "2", "--repeats", "1", "--device", "cpu"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json object = json::parse(outcome.out);
  EXPECT_EQ(object["cell"], "para_gru");
  EXPECT_EQ(object["batch"], 2);
  EXPECT_EQ(object["length"], 600);
  EXPECT_EQ(object["axes"]["d"], 8);
  EXPECT_EQ(object["read_bytes"], 3 * 2 * 600 * 8 * 4);
  EXPECT_EQ(object["written_bytes"], 2 * 600 * 8 * 4);
  ASSERT_EQ(object["devices"].size(), 1u);
  const json& cpu = object["devices"][0];
  EXPECT_EQ(cpu["device"], "cpu");
  EXPECT_GT(cpu["floor_ms"], 0.0);
  std::map<std::string, json> by_name;
  for (const json& s : cpu["strategies"]) by_name[s["solver"]] = s;
  EXPECT_EQ(by_name.size(), 9u);
  for (const char* runs : {"auto", "sequential", "segmented", "shooting", "newton"}) {
    for (const char* key : {"ms", "ratio", "gb_per_s", "ns_per_step_channel", "compile_ms"})
      EXPECT_GT(by_name[runs][key], 0.0) << runs << key;
    EXPECT_EQ(by_name[runs]["converged"], true) << runs;
    EXPECT_EQ(by_name[runs]["plan"]["stages"].size(), 1u) << runs;
  }
  EXPECT_HAS(by_name["scan"]["refused"].get<std::string>(), "neither linear");
  EXPECT_HAS(by_name["relaxation"]["refused"].get<std::string>(), "nothing to relax");

  // The adjoint reads three inputs, the state before the step and its cotangent, and gives three gradients; it is
  // linear.
  const json& backward = cpu["backward"];
  EXPECT_EQ(backward["read_bytes"], 5 * 2 * 600 * 8 * 4);
  EXPECT_EQ(backward["written_bytes"], 3 * 2 * 600 * 8 * 4);
  EXPECT_GT(backward["floor_ms"], 0.0);
  by_name.clear();
  for (const json& s : backward["strategies"]) by_name[s["solver"]] = s;
  for (const char* runs : {"auto", "sequential", "segmented", "shooting", "newton", "scan"}) {
    EXPECT_GT(by_name[runs]["ms"], 0.0) << runs;
    EXPECT_EQ(by_name[runs]["converged"], true) << runs;
  }
  const double ahead = cpu["strategies"][0]["ms"], behind = backward["strategies"][0]["ms"];
  EXPECT_EQ(cpu["strategies"][0]["solver"], "auto");
  EXPECT_DOUBLE_EQ(cpu["both"]["ms"].get<double>(), ahead + behind);
  EXPECT_GT(cpu["both"]["floor_ms"], 0.0);
}

TEST_F(CommandBench, TheTableForPeople) {
  const Outcome outcome = cellc({"bench", gru, "--length", "100", "--dim", "d=4", "--repeats", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"d=4, B=1, T=100", "x copy", "ns/step/ch", "the floor",
                           "refused: ", "cpu: ", "cuda: ", "forward", "backward", "both"})
    EXPECT_HAS(outcome.out, part);
}

TEST_F(CommandBench, SizesHaveDefaultsThatFit) {
  const json gru_sizes =
      json::parse(cellc({"bench", gru, "--json", "--repeats", "1", "--solver", "sequential", "--device", "cpu"}).out);
  EXPECT_EQ(gru_sizes["axes"]["d"], 256);
  EXPECT_EQ(gru_sizes["batch"], 1);
  EXPECT_EQ(gru_sizes["length"], 4096);
  // A matrix a step: 256 x 256 of them would be a gigabyte.
  const json mlstm = json::parse(cellc({"bench", example("17_mlstm.cell"), "--json", "--repeats", "1", "--solver",
                                        "sequential", "--device", "cpu"})
                                     .out);
  EXPECT_LE(mlstm["written_bytes"], 256 << 20);
  EXPECT_GE(mlstm["axes"]["k"], 16);
}

// A cell with outs is measured as a layer runs: of its states only the finals are wanted.
TEST_F(CommandBench, OfACellWithOutsTheseAreWritten) {
  const std::string cell = example("18_delta_net.cell");
  const std::vector<std::string> ask = {"bench", cell,        "--dim", "v=8",      "--dim",      "k=8",      "--length",
                                        "50",    "--repeats", "1",     "--solver", "sequential", "--device", "cpu"};
  std::vector<std::string> json_too = ask;
  json_too.push_back("--json");
  const json object = json::parse(cellc(json_too).out);
  EXPECT_EQ(object["written"], "outs and finals");
  EXPECT_EQ(object["written_bytes"], 50 * 8 * 4);
  EXPECT_HAS(cellc(ask).out, "of states only the finals are wanted");
  EXPECT_EQ(json::parse(cellc({"bench", gru, "--json", "--length", "50", "--dim", "d=4", "--repeats", "1", "--solver",
                               "sequential", "--device", "cpu"})
                            .out)["written"],
            "all");
}

// Others by name, as of `run`, and all of them.
TEST_F(CommandBench, WritesWhatIsNamed) {
  const auto bench = [&](const std::string& named, bool as_json) {
    std::vector<std::string> ask = {"bench",     example("18_delta_net.cell"),
                                    "--dim",     "v=8",
                                    "--dim",     "k=8",
                                    "--length",  "50",
                                    "--repeats", "1",
                                    "--solver",  "sequential",
                                    "--device",  "cpu",
                                    "--write",   named};
    if (as_json) ask.push_back("--json");
    return cellc(ask);
  };
  json object = json::parse(bench("all", true).out);
  EXPECT_EQ(object["written"], "all");
  EXPECT_EQ(object["written_bytes"], 50 * (8 + 8 * 8) * 4);
  EXPECT_HAS(bench("all", false).out, "MB out, written: all\n");
  object = json::parse(bench("S,S.final", true).out);
  EXPECT_EQ(object["written"], "S, S.final");
  EXPECT_EQ(object["written_bytes"], 50 * 8 * 8 * 4);
  EXPECT_HAS(bench("S,S.final", false).out, "MB out, written: S, S.final\n");
  const Outcome unknown = bench("z", false);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "--write: ");
  EXPECT_HAS(unknown.err, "'z'");
}

TEST_F(CommandBench, TakesArraysToo) {
  for (const char* name : {"xz", "xr", "xc"})
    array(
        std::string(name) + ".npy", {2, 50, 3}, [](std::int64_t i) { return 0.01 * static_cast<double>(i % 100); },
        Dtype::F64);
  const Outcome outcome = cellc({"bench", gru, "--json", "--input", "xz=xz.npy", "--input", "xr=xr.npy", "--input",
                                 "xc=xc.npy", "--repeats", "1", "--solver", "sequential", "--device", "cpu"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json object = json::parse(outcome.out);
  EXPECT_EQ(object["length"], 50);
  EXPECT_EQ(object["dtype"], "f64");
}

TEST_F(CommandBench, Statuses) {
  const struct {
    int status;
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {2, {"bench", gru, "--solver", "scan", "--device", "cpu"}, "--solver scan: the stage {h} is neither linear"},
      {2, {"bench", gru, "--solver", "magic"}, "expected all, auto"},
      {2, {"bench", gru, "--solver", "persistent"}, "persistent does not run on the CPU"},
      {2, {"bench", gru, "--solver", "stepped"}, "stepped does not run on the CPU"},
      {2, {"bench", gru, "--device", "tpu"}, "expected auto, cpu or cuda"},
      {2, {"bench", gru, "--repeats", "0"}, "--repeats"},
      {2, {"bench", gru, "--dim", "q=3"}, "has no axis 'q'"},
      {1, {"bench", path("none.cell")}, "cannot open"},
      {4, {"bench", gru, "--batch", "4000000000000", "--length", "4000000000000"}, "more than can be counted"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = cellc(c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.message;
    EXPECT_HAS(outcome.err, c.message);
    EXPECT_EQ(outcome.out, "");
  }
  ProcessOptions blind;
  blind.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const Outcome none = cellc({"bench", gru, "--device", "cuda", "--json"}, blind);
  EXPECT_EQ(none.status, 4);
  EXPECT_HAS(json::parse(none.out)["error"].get<std::string>(), "use --device cpu");
}

}  // namespace
}  // namespace cellc
