// `tune`: what it finds is kept, and `run` says that it follows it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

class CommandTune : public CommandTest {
 protected:
  json tune(std::vector<std::string> more = {}, const std::string& length = "3000") const {
    std::vector<std::string> arguments = {"tune",   example("01_para_gru.cell"),
                                          "--json", "--device",
                                          "cpu",    "--threads",
                                          "1",      "--length",
                                          length,   "--dim",
                                          "d=2",    "--repeats",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return json::parse(outcome.out, nullptr, false);
  }
  std::string reason(std::vector<std::string> more = {}, const std::string& length = "3000") const {
    std::vector<std::string> arguments = {"run",    example("01_para_gru.cell"),
                                          "--json", "--device",
                                          "cpu",    "--threads",
                                          "1",      "--length",
                                          length,   "--dim",
                                          "d=2",    "--random",
                                          "9",      "--verify"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json object = json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(object["converged"], true);
    EXPECT_LT(object["verify"]["max_error"], 1e-5);
    return object["plan"]["reason"];
  }
};

TEST_F(CommandTune, RunFollowsWhatWasMeasured) {
  EXPECT_EQ(reason().find("cellc tune"), std::string::npos);
  const json found = tune();
  EXPECT_EQ(found["range"], "2 to 3 lanes of 2048 to 4095 steps");
  EXPECT_EQ(found["kept"], true);
  EXPECT_TRUE(std::filesystem::exists(found["file"].get<std::string>()));
  EXPECT_GE(found["trials"].size(), 10u);
  EXPECT_LE(found["ms"], found["planner_ms"]);
  for (const json& t : found["trials"]) EXPECT_GT(t["ms"], 0.0);
  EXPECT_HAS(reason(), "cellc tune");
  // The whole range, and nothing beyond it.
  EXPECT_HAS(reason({}, "2048"), "cellc tune");
  EXPECT_EQ(reason({}, "4096").find("cellc tune"), std::string::npos);
  // Who asks for something gets that.
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{{"--solver", "sequential"},
                                                                                     {"--dtype", "f64"},
                                                                                     {"--tolerance", "1e-5"},
                                                                                     {"--no-repair"},
                                                                                     {"--cpu", "x86-64-v3"}})
    EXPECT_EQ(reason(asked).find("cellc tune"), std::string::npos) << asked[0];
  EXPECT_EQ(reason({"--cache-dir", ""}).find("cellc tune"), std::string::npos);
}

// Gradients have a plan of their own, for cotangents of the same results; which plan a run took stands in its JSON.
TEST_F(CommandTune, GradientsFollowWhatWasMeasured) {
  const std::string cotangent = "h=" + array(
                                           "c.npy", {1, 3000, 2}, [](std::int64_t) { return 1.0; }, Dtype::F32);
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run",    example("01_para_gru.cell"),
                                          "--json", "--device",
                                          "cpu",    "--threads",
                                          "1",      "--batch",
                                          "1",      "--length",
                                          "3000",   "--dim",
                                          "d=2",    "--random",
                                          "9",      "--verify"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json backward = json::parse(outcome.out, nullptr, false)["backward"];
    EXPECT_LT(backward["verify"]["max_error"], 1e-5);
    return backward["plan"];
  };
  EXPECT_EQ(plan({"--cotangent", cotangent})["reason"].get<std::string>().find("cellc tune"), std::string::npos);
  const json found = tune()["backward"];
  EXPECT_EQ(found["kept"], true);
  EXPECT_GE(found["trials"].size(), 5u);
  EXPECT_LE(found["ms"], found["planner_ms"]);
  const json taken = plan({"--cotangent", cotangent});
  EXPECT_HAS(taken["reason"].get<std::string>(), "cellc tune");
  if (!found["planner"].get<bool>()) {
    EXPECT_EQ(taken["stages"][0]["solver"], found["plan"]["stages"][0]["solver"]);
    EXPECT_EQ(taken["stages"][0]["segment"], found["plan"]["stages"][0]["segment"]);
  }
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{
           {"--backward-solver", "sequential"}, {"--no-repair"}, {"--tolerance", "1e-5"}}) {
    std::vector<std::string> more = {"--cotangent", cotangent};
    more.insert(more.end(), asked.begin(), asked.end());
    EXPECT_EQ(plan(more)["reason"].get<std::string>().find("cellc tune"), std::string::npos) << asked[0];
  }
}

TEST_F(CommandTune, ADamagedFileIsIgnoredAndReplaced) {
  const std::string file = tune()["file"];
  write("cache/" + std::filesystem::path(file).filename().string(), "damaged");
  EXPECT_EQ(reason().find("cellc tune"), std::string::npos);
  EXPECT_EQ(tune()["file"], file);
  EXPECT_HAS(reason(), "cellc tune");
}

TEST_F(CommandTune, ACacheThatCannotBeWrittenIsNoError) {
  for (const char* directory : {"", "/proc/none"}) {
    const json found = tune({"--cache-dir", directory}, "100");
    EXPECT_EQ(found["kept"], false);
    EXPECT_EQ(found.contains("file"), false);
  }
  const Outcome text = cellc({"tune", example("01_para_gru.cell"), "--device", "cpu", "--cache-dir", "", "--length",
                              "64", "--dim", "d=2", "--repeats", "1"});
  EXPECT_EQ(text.status, 0);
  EXPECT_HAS(text.out, "not kept: there is no cache directory");
  EXPECT_HAS(text.out, "planner ");
}

TEST_F(CommandTune, ThePlanCanBePinned) {
  const json found = tune();
  write("plan.json", found.dump());
  EXPECT_HAS(reason({"--plan", "plan.json"}), "pinned by plan.json");
}

// Whoever asks for a solver and a plan of another would be left with one of them unawares.
TEST_F(CommandTune, APlanAndASolverMustAgree) {
  write("plan.json", R"({"stages": [{"solver": "segmented", "segment": 100, "burn_in": 20}]})");
  EXPECT_HAS(reason({"--plan", "plan.json", "--solver", "segmented"}), "pinned by plan.json");
  EXPECT_HAS(reason({"--plan", "plan.json", "--solver", "auto"}), "pinned by plan.json");
  for (const char* solver : {"newton", "sequential"}) {
    const Outcome outcome = cellc({"run", example("01_para_gru.cell"), "--random", "1", "--length", "300", "--dim",
                                   "d=2", "--plan", "plan.json", "--solver", solver});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_HAS(outcome.err,
               std::string("--solver ") + solver + ": plan.json says segmented; leave out --solver or --plan");
  }
}

TEST_F(CommandTune, Statuses) {
  EXPECT_EQ(cellc({"tune", example("01_para_gru.cell"), "--device", "tpu"}).status, 2);
  EXPECT_EQ(cellc({"tune", path("none.cell")}).status, 1);
  EXPECT_EQ(cellc({"tune", example("01_para_gru.cell"), "--solver", "scan"}).status, 2);
  ProcessOptions blind;
  blind.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  EXPECT_EQ(cellc({"tune", example("01_para_gru.cell"), "--device", "cuda"}, blind).status, 4);
}

}  // namespace
}  // namespace cellc
