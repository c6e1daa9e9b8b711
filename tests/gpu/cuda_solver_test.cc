// Whole cells on a device by every strategy that they admit, in every storage type, against the oracle: the
// same tests on the emulator and, where CELLC_TEST_DEVICE=gpu asks for it, on a card. What is written must
// agree with the oracle, what is reported with what was asked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/front_end.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// By index, so that a cell is looked up, not searched.
using CudaStrategies = testing::TestWithParam<std::size_t>;
using CudaNarrowStrategies = CudaStrategies;

std::vector<Setting> wide_settings_of(std::size_t cell) {
  return wide_settings(extent(), matrix_cells()[cell].file->name);
}

/// Cells that run in 16 bits: none that amplifies what rounding leaves, and none with delay lines, which bring what was
/// rounded when it was written where the oracle carries it along; on the emulator every second.
std::vector<std::size_t> narrow_cells() {
  std::vector<std::size_t> cells;
  for (std::size_t i = 0; i < matrix_cells().size(); i += extent() == Extent::Usual ? 2 : 1)
    if (matrix_cells()[i].file->name != "delay_lines" &&
        !matrix_cells()[i].file->amplifies.count(matrix_cells()[i].tree->name))
      cells.push_back(i);
  return cells;
}

/// On the emulator one setting a cell, in turn: what storage changes is in the templates, which meet all of
/// them.
std::vector<Setting> narrow_settings_of(std::size_t cell) {
  std::vector<Setting> settings = narrow_settings(extent(), matrix_cells()[cell].file->name);
  if (extent() == Extent::Usual) settings = {settings[cell / 2 % settings.size()]};
  return settings;
}

void expect_agreement(const MatrixCell& cell, const std::vector<Setting>& settings) {
  Device device = open_device();
  std::int64_t runs = 0;
  EXPECT_EQ(run_matrix(device, cell, settings, runs), "");
  EXPECT_EQ(runs, planned_runs(*device.gpu, cell, settings));
}

/// A run in turns makes one setting of a cell, by every strategy that the cell admits.
TEST_P(CudaStrategies, AgreeWithOracle) {
  expect_agreement(matrix_cells()[GetParam()], turns::Turn().of(wide_settings_of(GetParam())));
}
TEST_P(CudaNarrowStrategies, AgreeWithOracle) {
  expect_agreement(matrix_cells()[GetParam()], narrow_settings_of(GetParam()));
}

std::string name_of(const testing::TestParamInfo<std::size_t>& info) { return matrix_cells()[info.param].name; }
INSTANTIATE_TEST_SUITE_P(Examples, CudaStrategies, testing::Range<std::size_t>(0, matrix_cells().size()), name_of);
CELLC_ONE_IN(4, "Examples/CudaStrategies");
INSTANTIATE_TEST_SUITE_P(Examples, CudaNarrowStrategies, testing::ValuesIn(narrow_cells()), name_of);
CELLC_ONE_IN(4, "Examples/CudaNarrowStrategies");

// What the matrix amounts to. Each test above makes as many runs as are counted here; a cell that comes to
// refuse a strategy, and a setting or a length that is lost, show. More runs than that: write the new figures
// down.
TEST(CudaMatrix, HasNoFewerRunsThanItHad) {
  Device device = open_device();
  std::int64_t wide = 0, narrow = 0;
  for (std::size_t i = 0; i < matrix_cells().size(); ++i)
    wide += planned_runs(*device.gpu, matrix_cells()[i], wide_settings_of(i));
  for (const std::size_t i : narrow_cells())
    narrow += planned_runs(*device.gpu, matrix_cells()[i], narrow_settings_of(i));
  struct Committed {
    std::int64_t wide, narrow;
  };
  const std::map<Extent, Committed> committed = {
      {Extent::Small, {4106, 2254}}, {Extent::Usual, {12148, 552}}, {Extent::Long, {21578, 11529}}};
  EXPECT_GE(wide, committed.at(extent()).wide);
  EXPECT_GE(narrow, committed.at(extent()).narrow);
  fmt::print("{} runs in f32 and f64, {} in 16 bits\n", wide, narrow);
}

/// A linear stage in a single pass: one channel along time, rows of 32, and what fits neither; pieces that
/// wait for each other, and the same scratch from call to call.
TEST(CudaScan, PiecesAreThoseOfThePlan) {
  Device device = open_device();
  const oracle::Example& file = oracle::example_named("08_gilr");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  ASSERT_EQ(cell.structure.stages.size(), 1u);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
    oracle::Random random(17);
    for (const std::int64_t channels : {64, 37, 1}) {
      Trial::Options with{
          .dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 2, 2}), .steps = 700};
      with.starts_given = true;
      with.f64_tolerance = 1e-11;
      const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
      for (const std::vector<std::int64_t>& lengths :
           std::vector<std::vector<std::int64_t>>{{700, 700, 700}, {130, 0, 700}}) {
        const Binding binding = trial.bound(lengths, lengths[0] != lengths[2], 1);
        for (const std::int64_t segment : {64, 0}) {
          SolveOptions options;
          options.solver = Strategy::Scan;
          if (segment) options.plan.push_back({Strategy::Scan, segment, 0, "test"});
          SolveReport report;
          const RunOutput output = solver.run(binding.run, options, report);
          SCOPED_TRACE(fmt::format("{} channels, {}, segment {}", channels, to_string(dtype), segment));
          ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
          EXPECT_TRUE(report.converged);
          EXPECT_EQ(report.stages[0].misses, 0);
          EXPECT_EQ(report.stages[0].max_residual, 0);
          // One channel shares a warp with nobody: 32 threads of 8 steps at least.
          if (segment) {
            EXPECT_EQ(report.stages[0].plan.segment, channels == 1 ? 256 : 64);
          } else if (dtype == Dtype::F32) {
            // A card holds all of it at once, in pieces of four warps.
            EXPECT_EQ(report.stages[0].plan.segment, channels == 1 ? 8192 : device.emulator ? 256 : 64);
          }
        }
      }
    }
  }
}

/// Short sequences are on the card as a whole, a cluster of blocks for each group of channels: whole pieces and groups,
/// and others.
TEST(CudaScan, ShortSequencesAreOnTheCardAsAWhole) {
  const oracle::Example& file = oracle::example_named("08_gilr");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  Device device = open_device(48);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
    oracle::Random random(19);
    for (const std::int64_t channels : {64, 37}) {
      Trial::Options with{
          .dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 2, 2}), .steps = 512};
      with.starts_given = true;
      with.f64_tolerance = 1e-11;
      const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
      for (const std::vector<std::int64_t>& lengths :
           std::vector<std::vector<std::int64_t>>{{512, 512, 512}, {130, 0, 512}}) {
        const bool packed = lengths[0] != lengths[2];
        const Binding binding = trial.bound(lengths, packed, 1);
        SolveOptions options;
        options.solver = Strategy::Scan;
        SolveReport report;
        const RunOutput output = solver.run(binding.run, options, report);
        SCOPED_TRACE(fmt::format("{} channels, {}, {}", channels, to_string(dtype), packed ? "packed" : "alike"));
        ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
        EXPECT_TRUE(report.converged);
        EXPECT_EQ(report.stages[0].plan.segment, 4 * 8);  // four warps of eight steps: what says that it was a cluster
      }
    }
  }
}

/// Long sequences of few channels stream through the blocks: along time, by rows, and entry by entry.
using ScanStreams = testing::TestWithParam<std::pair<Dtype, std::int64_t>>;

TEST_P(ScanStreams, OfFewChannelsAndManySteps) {
  const auto [dtype, channels] = GetParam();
  const oracle::Example& file = oracle::example_named("08_gilr");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  // Ten pieces a multiprocessor, and at most one transition for 16 of them and one more. The oracle takes seconds for
  // what four of them need.
  Device device = open_device(channels == 1 ? 1 : 48);
  if (!device.emulator && (channels == 3 || dtype != Dtype::F32))
    GTEST_SKIP() << "a card needs a million steps to stream, and the oracle seconds for each";
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
  oracle::Random random(18);
  // 4480 steps a piece of one channel; 16 bits hold twice as many, 64 half.
  const std::int64_t steps = 10 * device.gpu->facts().multiprocessors * 9600 / channels + 1237;
  Trial::Options with{.dtype = dtype,
                      .sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 2, 2}),
                      .steps = static_cast<int>(steps)};
  with.starts_given = true;
  with.f64_tolerance = 1e-11;
  const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
  for (const bool packed : {false, true}) {
    // Three sequences want as many transitions for each channel; scan_test.cc packs streams.
    if (packed && channels > 1) continue;
    const std::vector<std::int64_t> lengths =
        packed ? std::vector<std::int64_t>{17, 0, steps} : std::vector<std::int64_t>{steps};
    const Binding binding = trial.bound(lengths, packed, 1);
    SolveOptions options;
    options.solver = Strategy::Scan;
    SolveReport report;
    const RunOutput output = solver.run(binding.run, options, report);
    SCOPED_TRACE(packed ? "packed" : "one sequence");
    ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
    EXPECT_TRUE(report.converged);
    if (packed) continue;
    // What says that it was a stream: pieces of seven warps, or by rows of three.
    const std::int64_t steps_of_a_thread = channels == 1   ? 5 * 16 / static_cast<std::int64_t>(size_of(dtype))
                                           : channels == 2 ? 18
                                           : channels == 3 ? 16
                                                           : 48;
    const std::int64_t parts = 32 / (channels == 3 ? 2 : channels);
    EXPECT_EQ(report.stages[0].plan.segment, (channels < 4 ? 7 : 3) * parts * steps_of_a_thread);
  }
}

INSTANTIATE_TEST_SUITE_P(CudaScan, ScanStreams,
                         testing::Values(std::pair{Dtype::F32, 1}, std::pair{Dtype::F32, 2}, std::pair{Dtype::F32, 3},
                                         std::pair{Dtype::F32, 4}, std::pair{Dtype::F32, 8}, std::pair{Dtype::F64, 1},
                                         std::pair{Dtype::BF16, 1}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(info.param.first), info.param.second);
                         });
CELLC_ONE_IN(4, "CudaScan/ScanStreams");

/// Kernels of lanes are told in 32 bits how far a channel's entries lie apart; where that is not enough whole steps are
/// run.
TEST(CudaLanes, EntriesTooFarApartAreRunInRows) {
  const AnalysedCell cell = analyse_text(SourceText("wide.cell", R"(cell wide[n, d, e] {
  state h[n,d,e]
  input x[d,e]
  param a[n,n]
  h' = tanh(a@h + x)
}
)"));
  Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  const auto refusal = [&](std::int64_t n, std::int64_t d, std::int64_t e) {
    BoundRun run;
    run.sizes = {{cell.cell.header[0], n}, {cell.cell.header[1], d}, {cell.cell.header[2], e}};
    return solver.refusal(0, Strategy::Segmented, run).value_or("");
  };
  EXPECT_EQ(refusal(2, 1 << 30, 1), "");
  EXPECT_NE(refusal(3, 1 << 30, 1).find("more than 2^31 numbers apart"), std::string::npos) << refusal(3, 1 << 30, 1);
  EXPECT_NE(refusal(1, std::int64_t{1} << 31, 2).find("more than 2^31 numbers apart"), std::string::npos)
      << "a place along an axis";
}

/// A later stage makes more of what an earlier one leaves. Where nothing is repaired, sequences in which that is too
/// much are told, also if the earlier stage itself was off in another one.
TEST(CudaUnrepaired, SequencesThatAreNotNamedAreRight) {
  const AnalysedCell cell = analyse_text(SourceText("sharp.cell", R"(cell sharp[d] {
  state h[d], g[d]
  input x[d]
  a = tanh(h + x)
  h' = a
  g' = sin(1000*a)
}
)"));
  Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F64, &cell.source);
  const std::int64_t steps = 400;
  SolveOptions options;
  options.solver = Strategy::Segmented;
  options.tolerance = 1e-6;
  options.repair = false;
  int named = 0;
  for (const double push :
       {0.08, 0.1, 0.12, 0.14}) {  // the further from 0, the sooner forgotten; the first sequence forgets slowly
    BoundRun run;
    run.sizes[cell.cell.header[0]] = 1;
    run.offsets = {0, steps, 2 * steps};
    run.symbols = {Array(Dtype::F64, {2, 1}), Array(Dtype::F64, {2, 1}), Array(Dtype::F64, {2 * steps, 1})};
    for (std::int64_t t = 0; t < 2 * steps; ++t)
      run.symbols[2].set(t, (t < steps ? 0 : push) + 0.02 * std::sin(1.7 * static_cast<double>(t)));
    SolveReport report;
    const RunOutput output = solver.run(run, options, report);
    double worst = 0;
    for (std::int64_t t = steps; t < 2 * steps; ++t) {
      const double a = std::tanh((t > steps ? output.states[0].get(t - 1) : 0) + run.symbols[2].get(t)),
                   g = std::sin(1000 * a);
      worst = std::max({worst, std::abs(output.states[0].get(t) - a) / (1 + std::abs(a)),
                        std::abs(output.states[1].get(t) - g) / (1 + std::abs(g))});
    }
    bool names_second = false;
    for (const Unconverged& u : report.unconverged) names_second = names_second || u.sequence == 1;
    EXPECT_EQ(names_second, worst > 1e-6) << "push " << push << ", a residual of " << worst;
    named += names_second && report.unconverged.size() == 2;
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace cellc
