// Random data through calls that follow each other: what a call learned from one set of data must not spoil the next.
// Every row is held against a step in f64 from the row before it. A failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='RandomData.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on; CELLC_TEST_DEVICE=gpu on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/engines/known_recurrences.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// One recurrence, one shape, two sets of data, five calls. What went wrong, or empty.
std::string failure(std::uint64_t seed, std::map<Strategy, int>& runs) {
  oracle::Random random(seed ^ 0x7a7a), crowd(seed ^ 0xc07d);  // apart, so that a seed's data stay what they were
  const auto& all = known_recurrences();
  const KnownRecurrence& recurrence = all[static_cast<std::size_t>(random.below(static_cast<int>(all.size())))];
  const Dtype drawn = random.chance(0.85) ? Dtype::F32 : Dtype::F64;
  const Dtype dtype = drawn == Dtype::F32 && seed % 4 == 3 ? seed % 8 == 3 ? Dtype::BF16 : Dtype::F16 : drawn;
  const KnownShape shape = random_shape(random, 150000);
  const int cards[] = {1, 4, 33, 132}, processors = cards[random.below(4)];
  Device device = open_device(processors, 1);

  KnownRun known(recurrence, dtype, shape);
  CudaSolver solver(*device.gpu, known.cell().cell, known.cell().structure, dtype, &known.cell().source);
  const double asked = default_tolerance(dtype);
  // A step in f64 sees what the step code rounds as well, and a card's tanh and exp are its own.
  const double tolerance = asked + (dtype == Dtype::F64 ? 1e-13 : 5e-7);
  std::string nature = known.draw(random);
  for (int call = 0; call < 5; ++call) {
    if (call > 0 && random.chance(0.4)) nature = known.draw(random);
    SolveOptions options = random_options(random, recurrence);
    options.tolerance = asked;
    options.check_scans = (seed + static_cast<std::uint64_t>(call)) % 3 != 0;
    device.reorder(seed + static_cast<std::uint64_t>(call));
    device.crowd(crowd.chance(0.2) ? 1 + crowd.below(4) : 0);
    spoil(device, solver, known.cell().cell, known.run(), options);
    SolveReport report;
    const RunOutput output = solver.run(known.run(), options, report);
    if (!report.stages.empty()) ++runs[report.stages[0].plan.strategy];
    std::string wrong = known.wrong(output, tolerance);
    if (wrong.empty() && !report.converged) wrong = "reported as not converged";
    if (wrong.empty() && !(report.max_residual <= asked))
      wrong = fmt::format("reported a residual of {:.2e}", report.max_residual);
    // What a scan rounds it has to see itself; looking at whole steps afterwards comes on top.
    if (wrong.empty() && options.check_scans && !report.stages.empty() &&
        report.stages[0].plan.reason.find("composed maps") != std::string::npos)
      wrong = fmt::format("a scan left more than the tolerance: {}", report.stages[0].plan.reason);
    if (!wrong.empty())
      return fmt::format("{}, {}, {} ({}), {} processors, call {}, {} ({}): {}", recurrence.name, to_string(dtype),
                         shape.text(), nature, processors, call, text(options),
                         report.stages.empty() ? "no stage" : to_string(report.stages[0].plan.strategy), wrong);
  }
  return {};
}

TEST(RandomData, EveryRowFollowsFromTheOneBefore) {
  turns::Turn turn;
  const generate::Seeds given(6, turn.part(3));
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t i = 0; i < given.count; ++i) seeds.push_back(given.first + i);
  const bool usual = !given.count_given && !given.first_given;
  // Of what was found so: segments amid a stage (4), a lane that merges with the first row that it would write (1019),
  // a scan that rounds by more than the tolerance (2062), a row that is finite where infinity follows (7336), a
  // composed map that overflows where steps do not, in 16 bits (30251).
  if (usual)
    for (const std::uint64_t seed : turn.of(std::vector<std::uint64_t>{1019, 2062, 7336, 30251})) seeds.push_back(seed);
  std::map<Strategy, int> runs;
  for (const std::uint64_t seed : seeds) {
    const std::string why = failure(seed, runs);
    if (!why.empty())
      ADD_FAILURE() << why << "\n  CELLC_SEED=" << seed << " CELLC_CELLS=1 test_gpu --gtest_filter='RandomData.*'";
  }
  for (const auto& [strategy, count] : runs) fmt::print("{}: {} calls\n", to_string(strategy), count);
  if (!given.whole) return;
  for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Scan})
    EXPECT_GE(runs[strategy], 1);
}

// Blocks wait for each other, but not for such as find no room on the card: then one of them goes on alone, and the
// next call finds everything as any other would.
TEST(RandomData, SegmentsComeToAnEndOnACrowdedCard) {
  int alone = 0;
  for (const KnownRecurrence& recurrence : known_recurrences()) {
    if (recurrence.along_a_scan) continue;
    oracle::Random random(7);
    Device device = open_device(4, 1);
    KnownRun known(recurrence, Dtype::F32, {70, {900, 31, 700}});
    CudaSolver solver(*device.gpu, known.cell().cell, known.cell().structure, Dtype::F32, &known.cell().source);
    std::string nature = known.draw(random);
    for (int call = 0; call < 12; ++call) {
      if (call % 4 == 3) nature = known.draw(random);
      SolveOptions options;
      options.solver = call % 3 == 2 ? Strategy::Shooting : Strategy::Segmented;
      device.reorder(static_cast<std::uint64_t>(call % 5));
      device.crowd(call % 4 == 0 ? 0 : call % 4);
      spoil(device, solver, known.cell().cell, known.run(), options);
      SolveReport report;
      const RunOutput output = solver.run(known.run(), options, report);
      EXPECT_EQ(known.wrong(output, 1.5e-6), "") << recurrence.name << ", " << nature << ", call " << call;
      EXPECT_TRUE(report.converged);
      alone += call % 4 != 0 && report.stages[0].misses > 0;
    }
  }
  if (!on_card()) {
    EXPECT_GT(alone, 10);
  }
}

const KnownRecurrence& linear_recurrence() {
  for (const KnownRecurrence& one : known_recurrences())
    if (one.along_a_scan && one.states == 1) return one;
  throw std::runtime_error("no linear recurrence of one state");
}

// Chains that come from large states to small ones are walked where scans look at what they rounded, and then every row
// follows.
TEST(RandomData, ScansWalkWhereTheyLook) {
  const KnownRecurrence& linear = linear_recurrence();
  std::int64_t walked = 0;
  for (std::uint64_t seed = 0; seed < 40 && walked == 0; ++seed) {
    oracle::Random random(seed);
    Device device = open_device(4, 1);
    KnownRun known(linear, Dtype::F32, {37, {3000, 3000}});
    const std::string nature = known.draw(random);
    CudaSolver solver(*device.gpu, known.cell().cell, known.cell().structure, Dtype::F32, &known.cell().source);
    for (const bool looks : {false, true, false, true}) {  // they share what is kept from call to call
      SolveOptions options;
      options.solver = Strategy::Scan;
      options.check_scans = looks;
      solver.upload(known.run(), options);
      solver.launch(0);
      SolveReport report;
      solver.report(report, 0);
      if (looks) {
        walked = report.repaired;
        EXPECT_EQ(known.wrong(solver.download(0), 1.5e-6), "") << nature;
        // Of a call, however many there were since somebody asked.
        for (int call = 0; call < 5; ++call) solver.launch(0);
        solver.report(report, 0);
        EXPECT_LE(report.repaired, 2 * walked);
        // Prepared calls go another way from then on.
        options.solver = Strategy::Auto;
        EXPECT_EQ(solver.replan(options), 4 * walked > 2 * 37) << walked;
      } else {
        EXPECT_EQ(report.repaired, 0);
      }
    }
  }
  EXPECT_GT(walked, 0);
}

/// A row of a linear recurrence that does not follow from the row before it, over it and the largest row so far; what
/// of that may be the rounding of the step; and the same over it and the rows around it alone, which a scan may go by.
struct Residual {
  double far, noise, most;
};
Residual residual_of(const KnownRecurrence& linear, const BoundRun& run, const Array& rows, std::int64_t channels,
                     std::int64_t row, std::int64_t first, std::int64_t start, std::int64_t c, double& size) {
  const double h = row == first ? run.symbols[0].get(start) : rows.get((row - 1) * channels + c),
               x = run.symbols[1].get(row * channels + c), p = run.symbols[2].get(c);
  double to = 0;
  linear.step(&h, &x, &p, &to);
  const double got = rows.get(row * channels + c), off = std::abs(got - to),
               noise = 2e-7 * (std::abs(p * h) + std::abs(x));
  size = std::max(size, std::abs(to));
  const double scale = size + std::abs(to), own = std::abs(to) + (row == first ? 0 : std::abs(h));
  size = std::max(size, std::abs(got));
  return {off / scale, noise / scale, (off + noise) / own};
}

// Where nothing is to be repaired, a call says which sequences are off, from which step on, and by how much.
TEST(RandomData, ScansSayWhatTheyLeave) {
  const KnownRecurrence& linear = linear_recurrence();
  int told = 0, silent = 0;
  for (const std::int64_t channels : {37, 32, 8, 1}) {
    for (const std::int64_t length : {3000, 500}) {  // a cluster would hold the second, but has no place for saying so
      Device device = open_device(4, 1);
      KnownRun known(linear, Dtype::F32, {channels, {length, length}});
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        oracle::Random random(seed);
        const std::string nature = known.draw(random);
        const BoundRun& run = known.run();
        CudaSolver solver(*device.gpu, known.cell().cell, known.cell().structure, Dtype::F32, &known.cell().source);
        SolveOptions options;
        options.solver = Strategy::Scan;
        options.repair = false;
        solver.upload(run, options);
        solver.launch(0);
        SolveReport report;
        solver.report(report, 0);
        const Array rows = solver.download(0).states[0];
        SCOPED_TRACE(fmt::format("{} channels, {} steps, seed {}: {}", channels, length, seed, nature));
        std::size_t at = 0;
        for (std::int64_t s = 0; s < 2; ++s) {
          const bool says = at < report.unconverged.size() && report.unconverged[at].sequence == s;
          const std::int64_t first = s * length, bad = says ? report.unconverged[at].first_bad_step : length;
          double most = 0, left_open = 0, at_bad = 0, at_most = 0;
          std::vector<double> sizes(static_cast<std::size_t>(channels), 0);
          for (std::int64_t t = 0; t < length; ++t)
            for (std::int64_t c = 0; c < channels; ++c) {
              const Residual r = residual_of(linear, run, rows, channels, first + t, first, s * channels + c, c,
                                             sizes[static_cast<std::size_t>(c)]);
              if (!std::isfinite(r.far) || !std::isfinite(r.noise)) {  // what is infinite makes NaN of a composed map
                most = HUGE_VAL;
                continue;
              }
              if (t < bad) {
                EXPECT_LE(r.far, 1e-6 + r.noise) << "step " << t << ", channel " << c;
              }
              most = std::max(most, r.far);
              left_open = std::max(left_open, r.noise);
              at_most = std::max(at_most, r.most);
              if (t == bad) at_bad = std::max(at_bad, r.most);
            }
          if (!says) {
            ++silent;
            continue;
          }
          ++told;
          const Unconverged& u = report.unconverged[at++];
          if (!std::isfinite(most)) continue;
          EXPECT_GT(at_bad, 1e-6);
          EXPECT_GE(u.residual, most * (1 - 1e-6) - left_open);
          EXPECT_LE(u.residual, at_most * (1 + 1e-6));
        }
        EXPECT_EQ(at, report.unconverged.size());
        EXPECT_EQ(report.converged, report.unconverged.empty());
        EXPECT_EQ(report.repaired, 0);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(told, 5);
  EXPECT_GT(silent, 5);
}

TEST(RandomData, AotScansLook) {
  const KnownRecurrence& linear = linear_recurrence();
  for (const std::int64_t channels : {37, 32, 1}) {
    Device device = open_device(4, 1);
    Gpu& gpu = *device.gpu;
    KnownRun known(linear, Dtype::F32, {channels, {3000, 3000}});
    const AnalysedCell& cell = known.cell();
    ShipRequest request;
    request.solver = Strategy::Scan;
    request.card = gpu.facts();
    request.prefix = "shipped";
    const AotCell shipped(cell.cell, cell.structure, request);
    AotOnDevice program(gpu, shipped);
    bool needed = false;  // data with which looking finds something
    for (std::uint64_t seed = 0; seed < 40 && !needed; ++seed) {
      oracle::Random random(seed);
      const std::string nature = known.draw(random);
      CudaSolver solver(gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
      SolveOptions looking;
      looking.solver = Strategy::Scan;
      solver.upload(known.run(), looking);
      solver.launch(0);
      SolveReport report;
      solver.report(report, 0);
      needed = report.repaired > 0;
      Binding binding;
      binding.run = known.run();
      binding.batch = 2;
      binding.length = 3000;
      const std::map<std::string, Array> written = program.run(binding, Dtype::F32, {});
      RunOutput output;
      output.states.push_back(written.at("h0").with_shape({6000, channels}));
      output.finals.push_back(written.at("h0.final").with_shape({2, channels}));
      EXPECT_EQ(known.wrong(output, 1.5e-6), "") << nature << ", seed " << seed;
    }
    EXPECT_TRUE(needed) << channels;
  }
}

}  // namespace
}  // namespace cellc
