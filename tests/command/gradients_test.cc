// `run --cotangent`: which files are written, what they hold, what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

const char* kLeaky = R"(cell leaky[d] {
  state h[d] = h0
  input x[d]
  param a[d], h0[d] = 1
  h' = a*h + lag(x, 1)
  out y = 2*h'
}
)";

double one(std::int64_t) { return 1; }
double half(std::int64_t) { return 0.5; }
double wave(std::int64_t i) { return std::sin(0.7 * static_cast<double>(i)); }

class CommandGradients : public CommandTest {
 protected:
  /// run with inputs of [2, 4, 3], and what else is asked.
  Outcome run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run",
                                          write("leaky.cell", kLeaky),
                                          "--dtype",
                                          "f64",
                                          "--device",
                                          "cpu",
                                          "--json",
                                          "--input",
                                          "x=" + array("x.npy", {2, 4, 3}, wave, Dtype::F64),
                                          "--param",
                                          "a=0.5",
                                          "--out",
                                          path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cellc(arguments);
  }
  std::string ones(const std::string& name, const std::vector<std::int64_t>& shape) const {
    return array(name + ".npy", shape, one, Dtype::F64);
  }
};

TEST_F(CommandGradients, WritesAFileForEachArrayThatWasRead) {
  const Outcome outcome = run({"--cotangent", "h.final=" + ones("c", {2, 3})});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(listing("out"),
            (std::vector<std::string>{"grad.a.npy", "grad.h.initial.npy", "grad.h0.npy", "grad.x.lag.npy", "grad.x.npy",
                                      "h.final.npy", "h.npy", "x.lag.npy", "y.npy"}));
  const Array x = load("out/grad.x.npy"), start = load("out/grad.h.initial.npy"), h0 = load("out/grad.h0.npy"),
              lag = load("out/grad.x.lag.npy");
  EXPECT_EQ(x.shape(), (std::vector<std::int64_t>{2, 4, 3}));
  EXPECT_EQ(lag.shape(), (std::vector<std::int64_t>{2, 1, 3}));
  for (std::int64_t t = 0; t < 4; ++t) EXPECT_EQ(x.get(t * 3), t == 3 ? 0 : std::pow(0.5, 2 - t)) << t;
  EXPECT_EQ(lag.get(0), 0.125);
  EXPECT_EQ(start.get(0), 0.0625);
  EXPECT_EQ(h0.get(0), 2 * 0.0625);  // of two sequences
  const json report = json::parse(outcome.out);
  ASSERT_TRUE(report.contains("backward"));
  EXPECT_EQ(report["backward"]["converged"], true);
  EXPECT_EQ(report["backward"]["plan"]["stages"].size(), 1u);
  EXPECT_EQ(report["arrays"]["grad.x"], json({2, 4, 3}));
}

TEST_F(CommandGradients, SumsWhatAllResultsGive) {
  ASSERT_EQ(run({"--cotangent", "h.final=" + ones("c", {2, 3}), "--cotangent", "y=" + ones("cy", {2, 4, 3}),
                 "--cotangent", "h=" + ones("ch", {2, 4, 3})})
                .status,
            0);
  // 1 of the final, 3 a step: 3*(0.5 + 0.25 + 0.125 + 0.0625) + 0.0625.
  EXPECT_EQ(load("out/grad.h.initial.npy").get(0), 3 * 0.9375 + 0.0625);
}

// As inputs may be.
TEST_F(CommandGradients, WholeNumbersAreCotangentsToo) {
  const std::string whole = array(
      "whole.npy", {2, 4, 3}, [](std::int64_t i) { return double(i % 5 - 2); }, Dtype::I64);
  const std::string real = array(
      "real.npy", {2, 4, 3}, [](std::int64_t i) { return double(i % 5 - 2); }, Dtype::F64);
  ASSERT_EQ(run({"--cotangent", "h=" + whole}).status, 0);
  const Array x = load("out/grad.x.npy");
  ASSERT_EQ(run({"--cotangent", "h=" + real}).status, 0);
  const Array same = load("out/grad.x.npy");
  for (std::int64_t i = 0; i < x.count(); ++i) EXPECT_EQ(x.get(i), same.get(i)) << i;
}

TEST_F(CommandGradients, OfAStartThatIsGivenNoneFlowsOn) {
  ASSERT_EQ(run({"--cotangent", "h=" + ones("c", {2, 4, 3}), "--state", "h=" + ones("s", {2, 3})}).status, 0);
  EXPECT_EQ(load("out/grad.h0.npy").get(0), 0);
  EXPECT_EQ(load("out/grad.h.initial.npy").get(0), 0.9375);
}

TEST_F(CommandGradients, NoneAreWrittenUnlessAsked) {
  const Outcome outcome = run({});
  ASSERT_EQ(outcome.status, 0);
  for (const std::string& name : listing("out")) EXPECT_FALSE(name.starts_with("grad.")) << name;
  EXPECT_FALSE(json::parse(outcome.out).contains("backward"));
}

TEST_F(CommandGradients, VerifyComparesThem) {
  const Outcome outcome = run({"--cotangent", "h=" + ones("c", {2, 4, 3}), "--verify"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json verify = json::parse(outcome.out)["backward"]["verify"];
  EXPECT_LE(verify["max_error"].get<double>(), 1e-12);
  EXPECT_EQ(verify["reference"], "sequential f64");
}

TEST_F(CommandGradients, RecomputedOnesAreAboutWhatWasComputed) {
  const std::vector<std::string> given = {"--cotangent", "y=" + ones("c", {2, 4, 3}), "--verify"};
  const auto error = [&](std::vector<std::string> more) {
    more.insert(more.end(), given.begin(), given.end());
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json backward = json::parse(outcome.out, nullptr, false)["backward"];
    EXPECT_EQ(backward["recomputed_segment"], 64);
    return backward["verify"]["max_error"].get<double>();
  };
  EXPECT_LE(error({"--recompute"}), 1e-12);
  const json plain = json::parse(run(given).out, nullptr, false)["backward"];
  EXPECT_FALSE(plain.contains("recomputed_segment"));
  const Outcome alone = run({"--recompute"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_HAS(alone.err, "only with --cotangent");
}

TEST_F(CommandGradients, OfDelayLinesAreTheSamePartByPart) {
  const std::string text = "cell echo {\n state h\n input x\n h' = x + 0.5*tanh(lag(h, 70)) - 0.25*lag(h, 20)\n}\n";
  for (const char* backwards : {"--json", "--reverse"}) {
    const Outcome outcome = cellc({"run", write("echo.cell", text), "--json", backwards, "--dtype", "f64", "--device",
                                   "cpu", "--input", "x=" + array("x.npy", {2, 200}, wave, Dtype::F64), "--cotangent",
                                   "h.final=" + ones("c", {2}), "--recompute", "--verify", "--out", path("out")});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json backward = json::parse(outcome.out)["backward"];
    EXPECT_EQ(backward["recomputed_segment"], 64);
    EXPECT_LE(backward["verify"]["max_error"].get<double>(), 1e-12);
  }
}

TEST_F(CommandGradients, EveryStrategyIsTakenOrRefused) {
  for (const char* solver : {"auto", "sequential", "segmented", "shooting", "newton", "scan"}) {
    ASSERT_EQ(run({"--cotangent", "h=" + ones("c", {2, 4, 3}), "--backward-solver", solver}).status, 0) << solver;
    EXPECT_EQ(load("out/grad.h.initial.npy").get(0), 0.9375) << solver;
  }
  const Outcome outcome = run({"--cotangent", "h=" + ones("c", {2, 4, 3}), "--backward-solver", "magic"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_HAS(outcome.err, "magic");
}

TEST_F(CommandGradients, ErrorsNameWhatIsWrong) {
  const std::string good = "h=" + ones("c", {2, 4, 3});
  struct Wrong {
    std::vector<std::string> arguments;
    int status;
    std::vector<std::string> said;
  };
  for (const Wrong& w : std::vector<Wrong>{
           {{"--cotangent", "hh=" + ones("c", {2, 4, 3})}, 1, {"no state or out 'hh'", "it writes h, h.final, y"}},
           {{"--cotangent", "x=" + ones("c", {2, 4, 3})}, 1, {"no state or out 'x'"}},
           {{"--cotangent", "h=" + ones("short", {2, 3, 3})}, 1, {"[2, 3, 3]", "[2, 4, 3]"}},
           {{"--cotangent", "h.final=" + ones("c", {2, 4, 3})}, 1, {"h.final", "[2, 3]"}},
           {{"--cotangent", good, "--cotangent", good}, 2, {"twice"}},
           {{"--cotangent", "h=" + path("missing.npy")}, 1, {"missing.npy"}},
           {{"--cotangent", "h"}, 2, {"--cotangent"}},
       }) {
    const Outcome outcome = run(w.arguments);
    EXPECT_EQ(outcome.status, w.status) << outcome.err;
    for (const std::string& part : w.said) EXPECT_HAS(outcome.err, part);
  }
}

TEST_F(CommandGradients, NoneAfterARunThatDidNotConverge) {
  const std::string file =
      write("logistic.cell", "cell logistic[d] {\n  state h[d] = 0.3\n  input r[d]\n  h' = r*h*(1 - h)\n}\n");
  const std::string r = array(
      "r.npy", {1, 400, 2}, [](std::int64_t) { return 3.9; }, Dtype::F64);
  const Outcome outcome = cellc({"run", file, "--dtype", "f64", "--device", "cpu", "--input", "r=" + r, "--solver",
                                 "newton", "--fixed-iterations", "1", "--cotangent",
                                 "h=" + array("c.npy", {1, 400, 2}, half, Dtype::F64), "--out", path("out")});
  EXPECT_NE(outcome.status, 0);
  EXPECT_HAS(outcome.err, "did not converge, so there are no gradients");
  for (const std::string& name : listing("out")) EXPECT_FALSE(name.starts_with("grad.")) << name;
}

TEST_F(CommandGradients, PackedAndReversedRunsToo) {
  Array offsets(Dtype::I64, {4});
  const std::int64_t ends[] = {0, 3, 3, 4};
  std::copy(ends, ends + 4, static_cast<std::int64_t*>(offsets.data()));
  const std::string file = write("sum.cell", "cell total {\n  state h\n  input x\n  h' = 0.5*h + x\n}\n");
  ASSERT_EQ(cellc({"run", file, "--dtype", "f64", "--device", "cpu", "--reverse", "--offsets", save("o.npy", offsets),
                   "--input", "x=" + array("x.npy", {4}, wave, Dtype::F64), "--cotangent",
                   "h.final=" + array("c.npy", {3}, one, Dtype::F64), "--out", path("out")})
                .status,
            0);
  const Array x = load("out/grad.x.npy"), start = load("out/grad.h.initial.npy");
  const double want[] = {1, 0.5, 0.25, 1}, starts[] = {0.125, 1, 0.5};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(x.get(i), want[i]) << i;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(start.get(i), starts[i]) << i;
}

}  // namespace
}  // namespace cellc
