#include "runtime/evaluate/bench_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "runtime/data/errors.h"

namespace cellc {

namespace {

/// Why a strategy is left out, by its first steps; nullopt: it is timed.
std::optional<std::string> hopeless(TimedCell& cell, const SolveOptions& asked, double best_ms) {
  constexpr double kSecond = 1000, kTimes = 30;
  // The first is timed, whatever it takes: there is nothing to compare it with.
  if (!(best_ms * kTimes < std::numeric_limits<double>::infinity())) return std::nullopt;
  const std::optional<double> ms = cell.foreseen_ms(asked);
  if (!ms || *ms < std::max(kSecond, kTimes * best_ms)) return std::nullopt;
  return fmt::format(
      "left out: by its first steps a call takes {:.2g} s or more, {:.2g} times the fastest so far; "
      "--solver {} times it",
      1e-3 * *ms, *ms / best_ms, to_string(asked.solver));
}

}  // namespace

Bench bench_cell(TimedCell& cell, int stages, const Traffic& traffic, std::vector<Strategy> strategies,
                 const SolveOptions& options, int calls, const std::function<void(const Bench&)>& told) {
  const bool all = strategies.empty();
  // `auto` comes first: what it learns from is then its own calls.
  if (strategies.empty()) {
    strategies.push_back(Strategy::Auto);
    for (const StrategyFacts& f : cellc::strategies()) strategies.push_back(f.strategy);
  }
  Bench bench;
  bench.floor_ms = cell.floor_ms(traffic, calls);
  if (told) told(bench);
  double best_ms = std::numeric_limits<double>::infinity();
  bool any = false;
  std::exception_ptr failed;
  for (const Strategy strategy : strategies) {
    BenchedStrategy result;
    result.strategy = strategy;
    for (int k = 0; k < stages && !result.refused; ++k) result.refused = cell.refusal(k, strategy);
    if (!result.refused) {
      SolveOptions asked = options;
      asked.solver = strategy;
      try {
        if (all) result.refused = hopeless(cell, asked, best_ms);
        if (!result.refused) {
          result.ms = cell.time(asked, calls, result.report);
          best_ms = std::min(best_ms, result.ms);
          any = true;
        }
      } catch (const SolverError& e) {
        result.refused = e.what();
      } catch (const MemoryError& e) {
        // One strategy may need more than there is. What else fails on a device is no refusal: it may be gone.
        result.refused = e.what();
        failed = std::current_exception();
      }
    }
    bench.strategies.push_back(std::move(result));
    if (told) told(bench);
  }
  if (failed && !any) std::rethrow_exception(failed);
  return bench;
}

}  // namespace cellc
