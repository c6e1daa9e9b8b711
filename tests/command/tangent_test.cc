// `run --tangent`: values, names, shapes and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness.h"
#include "runtime/data/npy.h"

namespace cellc {
namespace {

using nlohmann::json;

const char* kSquares = R"(cell squares[d] {
  state h[d]
  input x[d]
  param a[d], w
  h' = a*lag(h, 1) + w*x^2
  out y = h'*w
}
)";

class CommandTangent : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    write("s.cell", kSquares);
    save("x.npy", filled({1, 3, 2}, 2));
    save("a.npy", filled({2}, 0.5));
    save("one.npy", filled({}, 1));
    save("h.npy", filled({1, 2}, 1));
  }
  static Array filled(const std::vector<std::int64_t>& shape, double value) {
    Array array(Dtype::F64, shape);
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, value);
    return array;
  }
  Outcome run(std::vector<std::string> more) const {
    std::vector<std::string> arguments{"run",     path("s.cell"),       "--input", "x=" + path("x.npy"),
                                       "--param", "a=" + path("a.npy"), "--param", "w=1",
                                       "--json",  "--device",           "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cellc(arguments);
  }
};

TEST_F(CommandTangent, MovesStatesFinalsAndOuts) {
  // h1 = 4w, h2 = 4w + …: with h before the first step at 0, h_t = 0.5 h_{t-2} + 4w.
  const Outcome outcome = run({"--tangent", "w=" + path("one.npy"), "--verify", "--out", path("out")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double states[] = {4, 4, 6};
  const Array h = load("out/tangent.h.npy"), y = load("out/tangent.y.npy"), last = load("out/tangent.h.final.npy");
  ASSERT_EQ(h.shape(), (std::vector<std::int64_t>{1, 3, 2}));
  ASSERT_EQ(last.shape(), (std::vector<std::int64_t>{1, 2}));
  for (std::int64_t t = 0; t < 3; ++t) {
    EXPECT_EQ(h.get(2 * t), states[t]);
    EXPECT_EQ(y.get(2 * t), 2 * states[t]) << "of h w";
  }
  EXPECT_EQ(last.get(1), 6);
  const json object = json::parse(outcome.out);
  EXPECT_TRUE(object["tangent"]["converged"].get<bool>());
  EXPECT_LE(object["tangent"]["verify"]["max_error"].get<double>(), 1e-12);
  EXPECT_TRUE(object["arrays"].contains("tangent.h.final"));
}

TEST_F(CommandTangent, OfAStartMovesTheHistoryThatIsNotGiven) {
  const Outcome outcome = run({"--tangent", "h.initial=" + path("h.npy"), "--out", path("out")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Array h = load("out/tangent.h.npy");
  EXPECT_EQ(h.get(0), 0.5) << "lag(h, 1) starts as h does";
  EXPECT_EQ(h.get(2), 0.5);
  EXPECT_EQ(h.get(4), 0.25);
}

TEST_F(CommandTangent, WhatFitsNothingIsStatus1) {
  const auto refused = [&](const std::string& tangent, const std::string& why) {
    const Outcome outcome = run({"--tangent", tangent});
    EXPECT_EQ(outcome.status, 1) << tangent;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused("x=" + path("h.npy"), "expected [1, 3, 2], that of what the run reads");
  refused("y=" + path("h.npy"), "has no input, param, state or history 'y'");
  refused("x.lag=" + path("h.npy"), "has no input, param, state or history 'x.lag'");
}

}  // namespace
}  // namespace cellc
