// Random cells whose stages run a lane a thread, with few rounds and no repair: the sequences that a run does
// not name are right to the tolerance at every step, and those that it names are off from the step on that it
// says. All of it follows from the seed. A failure prints the smallest cell that still fails and how to run
// it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='RandomUnrepaired.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/evaluate/check_step.h"
#include "tests/engines/lowered_cell.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/call_setting.h"

namespace cellc {
namespace {

constexpr double kTolerance = 1e-6;

struct Counts {
  int cells = 0, named = 0, silent = 0;
};

/// By step of one sequence: how far its rows are from what follows from the row before, over 1 + |s|, in f64.
std::vector<double> residuals(const CellGraph& cell, const BoundRun& run, const RunOutput& output,
                              std::size_t sequence) {
  const std::int64_t first = run.offsets[sequence], end = run.offsets[sequence + 1];
  std::vector<double> result;
  Step step(cell, run);
  for (std::int64_t t = 0; t < end - first; ++t) {
    const std::int64_t row = run.reverse ? end - 1 - t : first + t, before = run.reverse ? row + 1 : row - 1;
    States states;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Array& from = t == 0 ? run.symbols[static_cast<std::size_t>(cell.updates[u].symbol)] : output.states[u];
      const std::int64_t n = step.entries(static_cast<int>(u)),
                         at = (t == 0 ? static_cast<std::int64_t>(sequence) : before) * n;
      Values values;
      for (std::int64_t e = 0; e < n; ++e) values.push_back(from.get(at + e));
      states.push_back(std::move(values));
    }
    step.at(row);
    const States next = step(states);
    double worst = 0;
    for (std::size_t u = 0; u < next.size(); ++u)
      for (std::size_t e = 0; e < next[u].size(); ++e) {
        const double have = output.states[u].get(row * static_cast<std::int64_t>(next[u].size()) +
                                                 static_cast<std::int64_t>(e)),
                     want = next[u][e];
        const double far = std::fabs(have - want) / (1 + std::fabs(want));
        worst = std::max(worst, std::isnan(far) ? HUGE_VAL : far);
      }
    result.push_back(worst);
  }
  return result;
}

std::string failure(Device& device, const std::string& text, std::uint64_t seed, Counts* counts) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    if (cell.graph.updates.empty() || has_jumps(cell.graph)) return {};
    oracle::Random random(seed ^ 0x510e);
    const std::vector<std::int64_t> axes =
        random.chance(0.3) ? std::vector<std::int64_t>{32, 2, 2} : std::vector<std::int64_t>{3, 4, 2};
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F64, &source);
    std::vector<Forced> strategies = forced(solver, cell, sizes_of(cell, axes));
    if (strategies.size() == 2) return {};  // in rows: nothing iterates
    Trial::Options with{
        .dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 93, .sequences = 4};
    with.starts_given = with.step_by_step = true;
    with.reverse = random.chance(0.3);
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    const Binding binding = trial.bound({93, random.below(93), 0, 41}, true, 1);
    const std::int64_t segment = 8 * (1 + random.below(3)), burn_in = 8 * random.below(3);
    const int rounds = random.below(3);
    const bool fixed = random.chance(0.3);
    if (counts) ++counts->cells;
    for (auto& [strategy, options] : strategies) {
      if (strategy == Strategy::Auto || strategy == Strategy::Sequential) continue;
      if (options.plan.empty()) options.plan.assign(cell.structure.stages.size(), {strategy, 16, 0, "test"});
      for (StagePlan& plan : options.plan) {
        if (plan.strategy == Strategy::Sequential) continue;  // of a stage that does not admit it
        plan.segment = strategy == Strategy::Newton ? 1 : strategy == Strategy::Relaxation ? 0 : segment;
        plan.burn_in = strategy == Strategy::Segmented ? burn_in : 0;
      }
      options.tolerance = kTolerance;
      options.repair = false;
      if (fixed)
        options.fixed_iterations = rounds;
      else
        options.max_iterations = rounds;
      device.reorder(seed);
      const std::string how =
          fmt::format("{}, {} channels, segments of {}, run-up {}, {} {}rounds{}", to_string(strategy), axes[0],
                      segment, burn_in, rounds, fixed ? "fixed " : "", with.reverse ? ", reversed" : "");
      // Of a call nobody sees the rows of lagged copies, which may be what was off.
      const bool lags = std::any_of(cell.graph.symbols.begin(), cell.graph.symbols.end(),
                                    [](const Symbol& symbol) { return symbol.lag_of >= 0; });
      const auto wrong = [&](const RunOutput& output, const std::vector<int>& statuses,
                             const SolveReport* report) -> std::string {
        for (std::size_t s = 0; s < 4; ++s) {
          const std::vector<double> far = residuals(cell.graph, binding.run, output, s);
          const auto off = std::find_if(far.begin(), far.end(), [](double r) { return !(r <= kTolerance * 1.001); });
          if (off != far.end() && !statuses[s])
            return fmt::format("sequence {} is not named, but step {} is off by {}", s, off - far.begin(), *off);
          if (counts) ++(statuses[s] ? counts->named : counts->silent);
          if (!statuses[s] || (lags && !report)) continue;
          if (far.empty() || !(*std::max_element(far.begin(), far.end()) > kTolerance * 0.999))
            return fmt::format("sequence {} is named, but right", s);
          if (!report) continue;
          for (const Unconverged& u : report->unconverged)
            if (u.sequence == static_cast<std::int64_t>(s) && off - far.begin() < u.first_bad_step)
              return fmt::format("sequence {} is named from step {} on, but step {} is off by {}", s, u.first_bad_step,
                                 off - far.begin(), *off);
        }
        return {};
      };
      SolveReport report;
      const RunOutput output = solver.run(binding.run, options, report);
      std::vector<int> named(4);
      for (const Unconverged& u : report.unconverged) named[static_cast<std::size_t>(u.sequence)] = 1;
      if (const std::string why = wrong(output, named, &report); !why.empty())
        return fmt::format("run: {}: {}", how, why);
      if (strategy == Strategy::Relaxation) continue;  // of runs alone
      CallArrays arrays(*device.gpu, cell.graph, binding, Dtype::F64, {});
      Calls calls(*device.gpu, cell, &source, Dtype::F64, arrays.shape(), options);
      calls.pool.run(arrays.arrays(), 0, arrays.status(), nullptr);
      if (const std::string why = wrong(arrays.read(binding), arrays.statuses(), nullptr); !why.empty())
        return fmt::format("call: {}: {}", how, why);
    }
    return {};
  });
}

TEST(RandomUnrepaired, SequencesThatAreNotNamedAreRight) {
  Device device = open_device();
  const generate::Seeds seeds(12);
  Counts counts;
  generate::try_seeds(
      seeds, generate::random_cell,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return failure(device, text, seed, again ? nullptr : &counts);
      },
      "test_gpu --gtest_filter='RandomUnrepaired.*'", [](const std::string& why) { ADD_FAILURE() << why; });
  fmt::print("{} cells, {} sequences named, {} not\n", counts.cells, counts.named, counts.silent);
  if (seeds.count_given || seeds.first_given) return;
  EXPECT_GE(counts.named, 1);
  EXPECT_GE(counts.silent, 1);
}

}  // namespace
}  // namespace cellc
