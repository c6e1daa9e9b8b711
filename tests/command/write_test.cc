// `run --write`: the results that are named, and no others, neither on the disk nor in memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

const char* kLagged = R"(cell narx[d] {
  state h[d], c[d]
  input x[d]
  h' = tanh(0.5*h + 0.25*lag(h, 2) + x - 0.5*lag(x, 3))
  c' = 0.9*c + h'
  out y = c'*h
}
)";

/// A matrix for each head, as layers of linear attention have: a state of 4096 numbers for an out of 64.
const char* kAttention = R"(cell attention[heads, v, k] {
  state S[heads, v, k]
  input key[heads, k] in (-0.3, 0.3), val[heads, v], query[heads, k], alpha[heads, k] in (0.5, 1)
  S' = alpha*S + (val - sum[k](alpha*S*key))*key
  out o[heads, v] = S'@query
}
)";

double wave(std::int64_t i) { return std::sin(0.7 * static_cast<double>(i)); }

class CommandWrite : public CommandTest {
 protected:
  json run(const std::string& file, const std::string& wanted, const std::string& out,
           std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"run",   file,      "--json",   "--device", "cpu",
                                          "--out", path(out), "--random", "1",        "--dim",
                                          "d=3",   "--batch", "2",        "--length", "700"};
    if (!wanted.empty()) arguments.insert(arguments.end(), {"--write", wanted});
    arguments.insert(arguments.end(), more.begin(), more.end());
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
};

TEST_F(CommandWrite, WhatIsNamedAndNothingElse) {
  const std::string cell = write("narx.cell", kLagged);
  const std::vector<std::string> all = {"c.final.npy", "c.npy",     "h.final.npy", "h.lag.npy",
                                        "h.npy",       "x.lag.npy", "y.npy"};
  run(cell, "", "all");
  run(cell, "all", "named");
  EXPECT_EQ(listing("all"), all);
  EXPECT_EQ(listing("named"), all);
  const json report = run(cell, "y,h.final", "some", {"--verify"});
  EXPECT_EQ(listing("some"), (std::vector<std::string>{"h.final.npy", "y.npy"}));
  EXPECT_EQ(report["arrays"].size(), 2u);
  EXPECT_LT(report["verify"]["max_error"], 1e-5);
  run(cell, "c", "other", {"--write", "h.lag"});
  EXPECT_EQ(listing("other"), (std::vector<std::string>{"c.npy", "h.lag.npy"}));
  for (const char* name : {"some/y.npy", "some/h.final.npy", "other/c.npy", "other/h.lag.npy"})
    expect_same(name, "all" + std::string(name).substr(std::string(name).find('/')));
}

// A delay line reads the rows of a state that nobody wants: they are there, and not written.
TEST_F(CommandWrite, RowsThatADelayLineReads) {
  const std::string cell = write("echo.cell",
                                 "cell echo[d] {\n  state h[d], c[d]\n  input x[d]\n"
                                 "  h' = tanh(x - 0.5*lag(h, 40))\n  c' = 0.9*c + lag(h', 33)\n  out y = c'*h\n}\n");
  run(cell, "", "all");
  for (const auto& [wanted, files] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{{"y", {"y.npy"}},
                                                                     {"c.final,h.lag", {"c.final.npy", "h.lag.npy"}},
                                                                     {"h.final", {"h.final.npy"}},
                                                                     {"h,y", {"h.npy", "y.npy"}}}) {
    run(cell, wanted, wanted);
    EXPECT_EQ(listing(wanted), files);
    for (const std::string& file : files) expect_same(wanted + "/" + file, "all/" + file);
  }
}

TEST_F(CommandWrite, ARunThatIsResumedEqualsTheWhole) {
  const std::string cell = write("narx.cell", kLagged);
  array("x.npy", {1, 700, 3}, wave);
  const Array whole = load("x.npy");
  for (const auto& [name, begin, end] : {std::tuple{"first.npy", 0, 301}, std::tuple{"second.npy", 301, 700}}) {
    Array part(Dtype::F32, {1, end - begin, 3});
    for (std::int64_t i = 0; i < part.count(); ++i) part.set(i, whole.get(begin * 3 + i));
    save(name, part);
  }
  const auto go = [&](const std::string& x, const std::string& wanted, const std::string& out,
                      std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", cell,      "--input", "x=" + x, "--device",
                                          "cpu", "--write", wanted,    "--out",  path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = cellc(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  };
  go("x.npy", "y,h.final,c.final", "whole", {});
  go("first.npy", "h.final,c.final,h.lag,x.lag", "a", {});
  go("second.npy", "y,h.final,c.final", "b",
     {"--state", "h=" + path("a/h.final.npy"), "--state", "c=" + path("a/c.final.npy"), "--state",
      "h.lag=" + path("a/h.lag.npy"), "--input", "x.lag=" + path("a/x.lag.npy")});
  expect_same("whole/h.final.npy", "b/h.final.npy");
  expect_same("whole/c.final.npy", "b/c.final.npy");
  const Array all = load("whole/y.npy"), rest = load("b/y.npy");
  for (std::int64_t i = 0; i < rest.count(); ++i) ASSERT_EQ(all.get(301 * 3 + i), rest.get(i)) << i;
}

TEST_F(CommandWrite, NamesThatThereAreNot) {
  const std::string cell = write("narx.cell", kLagged);
  const Outcome outcome = cellc({"run", cell, "--random", "1", "--length", "9", "--write", "y,g.final"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_HAS(outcome.err, "nothing that a run of narx writes is called 'g.final'");
  EXPECT_HAS(outcome.err, "there are h, h.final, h.lag, c, c.final, x.lag, y");
}

// What gradients read must have been written, and the message says what that is.
TEST_F(CommandWrite, GradientsNeedTheStates) {
  const std::string cell = write("narx.cell", kLagged);
  array("g.npy", {1, 20, 3}, wave);
  array("x.npy", {1, 20, 3}, wave);
  const std::vector<std::string> ask = {"run", cell, "--input", "x=x.npy", "--device", "cpu", "--cotangent", "y=g.npy"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = ask;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cellc(arguments);
  };
  const Outcome refused = with({"--write", "y"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_HAS(refused.err, "gradients read every step of h, c");
  EXPECT_HAS(refused.err, "keep h, c, or use --recompute");
  EXPECT_HAS(with({"--write", "y,c"}).err, "keep h");
  ASSERT_EQ(with({"--out", path("all")}).status, 0);
  ASSERT_EQ(with({"--write", "h,c", "--out", path("some")}).status, 0);
  expect_same("all/grad.x.npy", "some/grad.x.npy");
  ASSERT_EQ(with({"--write", "y", "--recompute", "--out", path("again")}).status, 0);
  ASSERT_EQ(with({"--recompute", "--out", path("recomputed")}).status, 0);
  expect_same("again/grad.x.npy", "recomputed/grad.x.npy");
  const Outcome tangent =
      cellc({"run", cell, "--input", "x=x.npy", "--device", "cpu", "--tangent", "x=g.npy", "--write", "y"});
  EXPECT_EQ(tangent.status, 2);
  EXPECT_HAS(tangent.err, "tangents read every step of h");
}

// Strategies that look at what they wrote have a trajectory all the same, and say so.
TEST_F(CommandWrite, APlanSaysWhatStaysInMemory) {
  const std::string cell = write("narx.cell", kLagged);
  const auto reason = [&](const char* solver) {
    return run(cell, "y", "out", {"--solver", solver})["plan"]["reason"].get<std::string>();
  };
  EXPECT_HAS(reason("newton"), "every step is in memory");
  EXPECT_EQ(reason("sequential").find("in memory"), std::string::npos) << reason("sequential");
}

// A gigabyte and a half of address space: the states of the whole sequence take two.
TEST_F(CommandWrite, NoMemoryForWhatIsNotWanted) {
  const std::string cell = write("attention.cell", kAttention);
  ProcessOptions scarce;
  scarce.memory_limit = std::int64_t{3} << 29;
  const std::vector<std::string> ask = {"run",     cell,    "--random", "1",     "--device", "cpu",      "--dim",
                                        "heads=8", "--dim", "v=64",     "--dim", "k=64",     "--length", "16384"};
  std::vector<std::string> some = ask;
  some.insert(some.end(), {"--write", "o,S.final", "--out", path("some")});
  const Outcome outcome = cellc(some, scarce);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(listing("some"), (std::vector<std::string>{"S.final.npy", "o.npy"}));
  const Outcome all = cellc(ask, scarce);
  EXPECT_EQ(all.status, 4) << "else the limit shows nothing";
}

}  // namespace
}  // namespace cellc
