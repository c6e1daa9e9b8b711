#pragma once
// The names of the strategies and the facts about each that callers read: strategies.def as C++.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cellc {

/// Auto is a request to choose: a plan never names it.
enum class Strategy : std::uint8_t {
  Auto,
#define CELLC_STRATEGY(Name, ...) Name,
#include "runtime/strategy/strategies.def"
};

/// The columns of strategies.def.
struct StrategyFacts {
  enum class Takes : std::uint8_t { EveryStage, SomeStages };
  enum class Pins : std::uint8_t { Nothing, Segment, SegmentAndBurnIn };
  enum class Tries : std::uint8_t { Nothing, Once, Lengths };

  Strategy strategy;
  const char* name;
  bool on_cpu, on_gpu, ships;
  Takes takes;
  Pins pins;
  Tries tries;
  bool iterates;
  const char* meaning;
};

/// All rows in order, without Auto.
std::span<const StrategyFacts> strategies();
/// Of a strategy that is not Auto.
const StrategyFacts& facts_of(Strategy strategy);
/// Whether a GPU has it; Auto finds one that it has.
bool is_on_gpu(Strategy strategy);

const char* to_string(Strategy strategy);
std::optional<Strategy> strategy_named(const std::string& name);

/// "auto, sequential, … or relaxation", for help texts and messages; `before`: what may stand in their place.
std::string strategy_names(std::vector<std::string> before = {"auto"});
/// The same of those that code for GPUs is built with, but for the sequential one.
std::string shipped_strategy_names();
/// A line for each: its name and what it means.
std::string strategy_meanings();

}  // namespace cellc
