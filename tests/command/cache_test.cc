// The cache of compiled code, as users and scripts meet it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

class CommandCache : public CommandTest {
 protected:
  /// A small run of an example; what it says of the cache.
  std::string run(std::vector<std::string> more = {}, const ProcessOptions& options = {}) const {
    std::vector<std::string> arguments = {
        "run", example("01_para_gru.cell"), "--json", "--random", "1", "--length", "8", "--dim", "d=8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = cellc(arguments, options);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return json::parse(outcome.out, nullptr, false).value("cache", "");
  }
  std::string bytes(const std::string& name) const {
    const Array array = load(name);
    return {static_cast<const char*>(array.data()), static_cast<std::size_t>(array.count()) * size_of(array.dtype())};
  }
};

TEST_F(CommandCache, TheSecondProcessCompilesNothing) {
  EXPECT_EQ(run({"--out", path("first")}), "miss");
  EXPECT_EQ(run({"--out", path("second")}), "hit");
  EXPECT_EQ(bytes("first/h.npy"), bytes("second/h.npy"));
  EXPECT_EQ(run({"--dtype", "f64"}), "miss");
  const Outcome text = cellc({"run", example("01_para_gru.cell"), "--random", "1", "--length", "100", "--dim", "d=65"});
  EXPECT_HAS(text.out, "(cache hit)");  // lengths are no part of the code
}

TEST_F(CommandCache, ItsDirectoryIsChosen) {
  EXPECT_EQ(run({"--cache-dir", path("mine")}), "miss");
  EXPECT_EQ(listing("mine").size(), 1u);
  EXPECT_TRUE(listing("cache").empty());
  EXPECT_EQ(run({"--cache-dir", path("mine")}), "hit");
  EXPECT_EQ(run({"--cache-dir", ""}), "off");
  ProcessOptions nowhere;
  nowhere.environment = {{"CELLC_CACHE_DIR", ""}};
  EXPECT_EQ(run({}, nowhere), "off");
  EXPECT_TRUE(listing("cache").empty());
}

TEST_F(CommandCache, EveryCommandThatCompilesUsesIt) {
  const std::string gru = example("01_para_gru.cell");
  EXPECT_EQ(cellc({"check", gru, "--cache-dir", path("mine")}).status, 0);
  const std::size_t kernels = listing("mine").size();
  EXPECT_GE(kernels, 8u) << "f64 and f32: the whole step, and what the strategies run";
  EXPECT_EQ(cellc({"check", gru, "--cache-dir", path("mine")}).status, 0);
  EXPECT_EQ(listing("mine").size(), kernels);
  EXPECT_EQ(run({"--cache-dir", path("mine")}), "hit");
  const Outcome compiled = cellc({"inspect", gru, "--stage", "asm", "--cache-dir", ""});
  const Outcome cached = cellc({"inspect", gru, "--stage", "asm", "--cache-dir", path("mine")});
  EXPECT_EQ(cached.status, 0);
  EXPECT_EQ(cached.out, compiled.out);
  EXPECT_EQ(listing("mine").size(), kernels);
}

TEST_F(CommandCache, NoStateOfItIsAnError) {
  write("file", "text");
  EXPECT_EQ(run({"--cache-dir", path("file")}), "off");
  EXPECT_EQ(run({"--cache-dir", "/proc/none"}), "off");
  ProcessOptions full;
  full.file_size_limit = 1000;
  EXPECT_EQ(run({}, full), "off");
  EXPECT_TRUE(listing("cache").empty());
  ASSERT_EQ(run(), "miss");
  ASSERT_EQ(listing("cache").size(), 1u);
  write("cache/" + listing("cache")[0], "damaged");
  EXPECT_EQ(run(), "miss");
  EXPECT_EQ(run(), "hit");
}

TEST_F(CommandCache, ManyProcessesAtOnce) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> states(8);
    std::vector<std::thread> threads;
    for (std::string& state : states) threads.emplace_back([&] { state = run(); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& state : states) EXPECT_TRUE(state == "hit" || state == "miss") << state;
    const std::vector<std::string> entries = listing("cache");
    ASSERT_EQ(entries.size(), 1u) << "one entry and no temporaries";
    EXPECT_EQ(run(), "hit");
    write("cache/" + entries[0], "damaged, so that the next round writes again");
  }
}

}  // namespace
}  // namespace cellc
