// Random cells whose stages run a lane a thread: sequential, segmented, shooting, Newton and scan, each cut
// finely, against the oracle. Segments, run-up, rounds, precision and direction follow from the seed. A
// failure prints the smallest cell that still fails and how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='RandomLanes.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on; CELLC_TEST_DEVICE=gpu on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/engines/lowered_cell.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Counts {
  int cells = 0;  ///< with stages that run a lane a thread
  std::map<Strategy, int> runs;
  std::int64_t compared = 0, skipped = 0;
};

/// Why the cell fails ("segmented: …"), or empty: also for one that runs as row kernels. "invalid: …" of a
/// text that is no valid cell.
std::string failure(Device& device, const std::string& text, std::uint64_t seed, Counts* counts) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    if (cell.graph.updates.empty()) return {};
    oracle::Random random(seed ^ 0x6a09);
    const Dtype dtype = random.chance(0.7) ? Dtype::F64 : Dtype::F32;
    const std::vector<std::int64_t> axes =
        random.chance(0.3) ? std::vector<std::int64_t>{32, 2, 2} : std::vector<std::int64_t>{3, 4, 2};
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
    std::vector<Forced> strategies = forced(solver, cell, sizes_of(cell, axes));
    if (strategies.size() == 2) return {};  // auto and sequential: in rows, which RandomNests is for
    Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 45, .sequences = 3};
    with.starts_given = with.step_by_step = with.skip_jumps = true;
    with.reverse = random.chance(0.3);
    with.f64_tolerance = 1e-11;
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    const std::vector<std::int64_t> lengths{45, random.below(45), 13};
    const BoundRun run = trial.bound(lengths, true, 1).run;
    const std::int64_t segment = 1 + random.below(24), burn_in = 8 * random.below(3);
    const int rounds = 1 + random.below(8);
    if (counts) ++counts->cells;
    for (auto& [strategy, options] : strategies) {
      const bool cuts = strategy != Strategy::Auto && strategy != Strategy::Sequential;
      if (cuts && options.plan.empty()) options.plan.assign(cell.structure.stages.size(), {strategy, 16, 0, "test"});
      for (StagePlan& plan : options.plan) {
        if (plan.strategy == Strategy::Sequential) continue;  // of a stage that does not admit it
        plan.segment = strategy == Strategy::Newton ? 1 : strategy == Strategy::Relaxation ? 0 : segment;
        plan.burn_in = strategy == Strategy::Segmented ? burn_in : 0;
      }
      options.tolerance = dtype == Dtype::F64 ? 1e-13 : 1e-6;
      options.max_iterations = rounds;
      device.reorder(seed);
      spoil(device, solver, cell.graph, run, options);
      SolveReport report;
      std::string wrong = trial.verify(run, solver.run(run, options, report), lengths);
      if (wrong.empty() && !report.converged) wrong = "reported as not converged";
      if (counts) ++counts->runs[strategy];
      if (!wrong.empty())
        return fmt::format("{}: {}, {} channels, segments of {}, run-up {}, {} rounds{}: {}", to_string(strategy),
                           to_string(dtype), axes[0], segment, burn_in, rounds, with.reverse ? ", reversed" : "",
                           wrong);
    }
    if (counts) counts->compared += trial.compared(), counts->skipped += trial.skipped();
    return {};
  });
}

TEST(RandomLanes, AgreeWithOracle) {
  Device device = open_device();
  const generate::Seeds seeds(8, turns::Turn().part(4));
  Counts counts;
  generate::try_seeds(
      seeds, generate::random_cell,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return failure(device, text, seed, again ? nullptr : &counts);
      },
      "test_gpu --gtest_filter='RandomLanes.*'", [](const std::string& why) { ADD_FAILURE() << why; });
  RecordProperty("cells", counts.cells);
  if (!seeds.whole) return;
  // The generator must not degenerate.
  EXPECT_GE(counts.cells, static_cast<int>(seeds.count / 2));
  EXPECT_GE(counts.runs[Strategy::Segmented], static_cast<int>(seeds.count / 2));
  EXPECT_GE(counts.runs[Strategy::Scan], 1);
  fmt::print("{} cells, {} runs by scans\n", counts.cells, counts.runs[Strategy::Scan]);
  EXPECT_LE(counts.skipped, counts.compared / 100) << "numbers left out at jumps";
}

}  // namespace
}  // namespace cellc
