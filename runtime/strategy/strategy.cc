#include "runtime/strategy/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace cellc {

namespace {

using Facts = StrategyFacts;

constexpr StrategyFacts kRows[] = {
#define CELLC_STRATEGY(Name, name, cpu, gpu, ships, takes, pins, tries, iterates, meaning)                     \
  {Strategy::Name,      #name,         cpu != 0, gpu != 0, ships != 0, Facts::Takes::takes, Facts::Pins::pins, \
   Facts::Tries::tries, iterates != 0, meaning},
#include "runtime/strategy/strategies.def"
};

std::string with_or(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  return text;
}

}  // namespace

std::span<const StrategyFacts> strategies() { return kRows; }

const StrategyFacts& facts_of(Strategy strategy) {
  if (strategy == Strategy::Auto) throw std::logic_error("strategy: Auto has no row");
  // The enumerators are the rows, behind Auto.
  return kRows[static_cast<std::size_t>(strategy) - 1];
}

bool is_on_gpu(Strategy strategy) { return strategy == Strategy::Auto || facts_of(strategy).on_gpu; }

const char* to_string(Strategy strategy) { return strategy == Strategy::Auto ? "auto" : facts_of(strategy).name; }

std::optional<Strategy> strategy_named(const std::string& name) {
  if (name == to_string(Strategy::Auto)) return Strategy::Auto;
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Facts& f) { return name == f.name; });
  return row == std::end(kRows) ? std::nullopt : std::optional(row->strategy);
}

std::string strategy_names(std::vector<std::string> before) {
  for (const StrategyFacts& f : kRows) before.push_back(f.name);
  return with_or(before);
}

std::string shipped_strategy_names() {
  std::vector<std::string> names;
  for (const StrategyFacts& f : kRows)
    if (f.ships && f.strategy != Strategy::Sequential) names.push_back(f.name);
  return with_or(names);
}

std::string strategy_meanings() {
  std::string text;
  for (const StrategyFacts& f : kRows) text += fmt::format("  {:<12}{}\n", f.name, f.meaning);
  return text;
}

}  // namespace cellc
