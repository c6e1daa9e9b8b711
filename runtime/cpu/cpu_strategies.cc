#include <fmt/format.h>

#include <stdexcept>

#include "runtime/cpu/cpu_strategy.h"

namespace cellc {

// Of strategies.def, the rows with a 1 for the CPU: defined in runtime/cpu/strategy_NAME.cc.
#define CELLC_DECLARE_0(name)
#define CELLC_DECLARE_1(name) const CpuStrategy& name##_on_cpu();
#define CELLC_STRATEGY(Name, name, cpu, ...) CELLC_DECLARE_##cpu(name)
#include "runtime/strategy/strategies.def"

const CpuStrategy& on_cpu(Strategy strategy) {
  switch (strategy) {
#define CELLC_CASE_0(Name, name) \
  case Strategy::Name:           \
    break;
#define CELLC_CASE_1(Name, name) \
  case Strategy::Name:           \
    return name##_on_cpu();
#define CELLC_STRATEGY(Name, name, cpu, ...) CELLC_CASE_##cpu(Name, name)
#include "runtime/strategy/strategies.def"
    case Strategy::Auto:
      break;
  }
  throw std::logic_error(fmt::format("solve: {} is no strategy of a CPU", to_string(strategy)));
}

std::optional<std::string> CpuStrategy::refusal(StagesOfRun& cell, int k) const {
  const std::int64_t block = cell.shape(k).block;
  if (block <= kLargestBlock) return std::nullopt;
  return fmt::format("the stage {} couples {} entries with each other, and blocks of more than {} are run sequentially",
                     cell.states(k), block, kLargestBlock);
}

std::optional<Offer> CpuStrategy::offer(const Stage&, const StageShape&) const { return std::nullopt; }
std::optional<Offer> CpuStrategy::offer(const StageShape&, const Forgetting&) const { return std::nullopt; }

namespace {

template <typename... Question>
std::vector<Offer> all_offers(const Question&... question) {
  std::vector<Offer> all;
  for (const StrategyFacts& f : strategies()) {
    if (!f.on_cpu) continue;
    if (std::optional<Offer> offer = on_cpu(f.strategy).offer(question...)) all.push_back(std::move(*offer));
  }
  return all;
}

}  // namespace

std::vector<Offer> offers(const Stage& stage, const StageShape& shape) { return all_offers(stage, shape); }
std::vector<Offer> offers(const StageShape& shape, const Forgetting& seen) { return all_offers(shape, seen); }

}  // namespace cellc
