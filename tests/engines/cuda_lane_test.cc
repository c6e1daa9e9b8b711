// The CUDA text of lane cells, compiled for the host: its step against the evaluator, its transitions
// against finite differences, for every example and random cells.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/engines/cuda_lane_code.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"

namespace cellc {
namespace {

/// How far an entry of the emitted step's own result moves with data moved by a rounding or two: where
/// that is far, the step cancels (the derivative of a norm of two entries), and rounding is all that shows.
template <typename Real>
double noise(const Runner<Real>& runner, int index, const Emitted& e, const Values& values, std::size_t entry,
             oracle::Random& random) {
  const double here = runner.step(index, e, values)[entry];
  double most = 0;
  for (int trial = 0; trial < 8; ++trial) {
    Values moved = values;
    for (auto& list : moved)
      for (double& x : list) x *= 1 + random.uniform(-1, 1) * std::numeric_limits<Real>::epsilon();
    most = std::fmax(most, std::fabs(runner.step(index, e, moved)[entry] - here));
  }
  return most;
}

struct Compared {
  std::int64_t all = 0, numbers = 0, noisy = 0;
};

/// Every emitted step on a few random rows against the evaluator.
template <typename Real>
Compared compare_steps(const std::vector<Emitted>& all, Storage storage, double tolerance) {
  const Runner<Real> runner(all, storage);
  Compared compared;
  for (std::size_t i = 0; i < all.size(); ++i) {
    oracle::Random random(7 + i);
    for (int trial = 0; trial < 4; ++trial) {
      Values values = draw(all[i], random, storage != Storage::F64);
      clear_left_out(all[i], values);
      const std::vector<double> got = runner.step(static_cast<int>(i), all[i], values),
                                want = reference(all[i], values);
      EXPECT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        ++compared.all;
        compared.numbers += !std::isnan(want[k]);
        if (near(got[k], want[k], tolerance)) continue;
        if (std::fabs(got[k] - want[k]) <= 4 * noise(runner, static_cast<int>(i), all[i], values, k, random)) {
          ++compared.noisy;
          continue;
        }
        ADD_FAILURE() << all[i].label << ", state entry " << k << ": " << got[k] << ", wanted " << want[k];
        break;
      }
    }
  }
  return compared;
}

void expect_little_noise(const Compared& c) {
  testing::Test::RecordProperty("compared", std::to_string(c.all));
  testing::Test::RecordProperty("noisy", std::to_string(c.noisy));
  EXPECT_LE(c.noisy * 1000, c.all) << c.noisy << " of " << c.all << " entries";
}

void expect_meaning(const Compared& c) {
  EXPECT_GT(c.all, 5000);
  expect_little_noise(c);
  EXPECT_GT(c.numbers, c.all * 9 / 10) << "the data make too little sense";
}

TEST(CudaLane, StepsInF64) { expect_meaning(compare_steps<double>(all_emitted(Storage::F64), Storage::F64, 1e-12)); }
TEST(CudaLane, StepsInF32) { expect_meaning(compare_steps<float>(all_emitted(Storage::F32), Storage::F32, 1e-5)); }

// A failure names the seed; `CELLC_SEED=N CELLC_CELLS=1` runs it alone.
TEST(CudaLane, StepsOfRandomCells) {
  const generate::Seeds seeds(40);
  std::vector<Emitted> all;
  std::int64_t too_long = 0;
  for (std::uint64_t s = seeds.first; s < seeds.first + seeds.count; ++s) {
    const SourceText source(fmt::format("seed {}", s), generate::random_cell(s));
    const File file = oracle::parse_or_throw(source);
    const std::size_t before = all.size();
    try {
      emit_all(source, file, file.cells.at(0), {}, Storage::F64, all);
    } catch (const ScalarizedTooLong&) {
      all.resize(before);
      ++too_long;
    }
  }
  const Compared c = compare_steps<double>(all, Storage::F64, 1e-10);
  expect_little_noise(c);
  if (!seeds.count_given) {
    expect_meaning(c);
    EXPECT_LE(too_long, 8);
  }
}

// Transitions ---------------------------------------------------------------------------------------------

void identity(const Emitted& e, const std::function<int(int)>& rule, int n, std::vector<double>& state) {
  const double infinite = HUGE_VAL;
  const Scannable kind = e.transitions->kind;
  for (int i = 0; i < n; ++i) {
    if (is_semiring(kind)) {
      const double zero = kind == Scannable::MinPlus ? infinite : -infinite;
      for (int j = 0; j < n; ++j)
        if (rule(i * n + j) >= 0) state[rule(i * n + j)] = i == j ? 0 : zero;
      state[rule(n * n + i)] = zero;
      continue;
    }
    if (kind == Scannable::Affine) {
      for (int j = 0; j < n; ++j)
        if (rule(i * n + j) >= 0) state[rule(i * n + j)] = i == j;
      continue;
    }
    const double clip[4] = {1, 0, -infinite, infinite}, moebius[4] = {1, 0, 0, 1};
    for (int m = 0; m < 4; ++m) state[rule(4 * i + m)] = kind == Scannable::Clip ? clip[m] : moebius[m];
  }
}

TEST(CudaLane, CarriersAreTheMapOfTheStart) {
  const std::vector<Emitted> all = all_emitted(Storage::F64);
  const Runner<double> runner(all, Storage::F64);
  constexpr int kSteps = 4;
  std::int64_t affine = 0, zeros = 0, clips = 0, moebius = 0, semirings = 0, kinks = 0;
  for (std::size_t index = 0; index < all.size(); ++index) {
    const Emitted& carried = all[index];
    if (!carried.transitions) continue;
    const Emitted& step = all[carried.step];
    const int n = static_cast<int>(step.code.states.size());
    const auto rule = [&](int place) { return runner.rules[index](place); };
    oracle::Random random(101 + index);
    std::vector<Values> rows;  // by step: params and the start are those of the first
    for (int t = 0; t < kSteps; ++t) rows.push_back(draw(carried, random, false));
    for (int t = 1; t < kSteps; ++t)
      for (std::size_t s = 0; s < carried.cell.symbols.size(); ++s)
        if (carried.cell.symbols[s].kind == SymbolKind::Param) rows[t][s] = rows[0][s];
    const auto run = [&](int which, std::vector<double> state) {
      const Emitted& e = all[which];
      for (int t = 0; t < kSteps; ++t) {
        for (std::size_t i = 0; i < state.size(); ++i)
          rows[t][e.code.states[i].symbol][e.code.states[i].entry] = state[i];
        state = runner.step(which, e, rows[t]);
      }
      return state;
    };
    std::vector<double> start;
    for (const SymbolEntry& s : step.code.states) start.push_back(rows[0][s.symbol][s.entry]);
    std::vector<double> from(carried.code.states.size(), 0.0);
    std::copy(start.begin(), start.end(), from.begin());
    identity(carried, rule, n, from);
    const std::vector<double> end = run(static_cast<int>(index), from);
    const std::vector<double> alone = run(carried.step, start);
    for (int i = 0; i < n; ++i)
      ASSERT_TRUE(near(end[i], alone[i], 1e-11)) << carried.label << ": " << end[i] << " and " << alone[i];
    const auto value = [&](int place) { return end[rule(place)]; };
    for (int j = 0; j < n; ++j) {
      const auto moved = [&](double by) {
        std::vector<double> other = start;
        other[j] += by;
        return run(carried.step, other);
      };
      if (const Scannable kind = carried.transitions->kind; is_semiring(kind)) {
        for (double by : {-0.5, 0.25, 0.75}) {
          const std::vector<double> got = moved(by);
          for (int i = 0; i < n; ++i) {
            double most = value(n * n + i);
            for (int k = 0; k < n; ++k) {
              if (rule(i * n + k) < 0) continue;
              const double term = value(i * n + k) + start[k] + (k == j ? by : 0);
              const double top = std::fmax(most, term);
              most = kind == Scannable::MaxPlus   ? top
                     : kind == Scannable::MinPlus ? std::fmin(most, term)
                     : std::isinf(top)            ? top
                                                  : top + std::log(std::exp(most - top) + std::exp(term - top));
            }
            EXPECT_TRUE(near(most, got[i], 1e-9)) << carried.label << ", entry " << i << ": " << most << ", " << got[i];
          }
          ++semirings;
        }
        continue;
      }
      if (carried.transitions->kind != Scannable::Affine) {
        for (double by : {-0.5, 0.25, 0.75}) {
          const double x = start[j] + by, got = moved(by)[j];
          const double a = value(4 * j), b = value(4 * j + 1), c = value(4 * j + 2), d = value(4 * j + 3);
          const bool clip = carried.transitions->kind == Scannable::Clip;
          const double map = clip ? std::fmin(std::fmax(a * x + b, c), d) : (a * x + b) / (c * x + d);
          EXPECT_TRUE(near(map, got, 1e-9)) << carried.label << " by " << by << ": " << map << ", a run gives " << got;
          ++(clip ? clips : moebius);
        }
        continue;
      }
      constexpr double kBy = 1e-5;
      const std::vector<double> up = moved(kBy), down = moved(-kBy);
      for (int i = 0; i < n; ++i) {
        const double right = (up[i] - alone[i]) / kBy, left = (alone[i] - down[i]) / kBy;
        if (!(std::fabs(right - left) <= 1e-2 * (1 + std::fabs(right)))) {  // a kink, or no number
          ++kinks;
          continue;
        }
        const int place = rule(i * n + j);
        EXPECT_TRUE(near(place < 0 ? 0 : end[place], (right + left) / 2, 1e-6))
            << carried.label << ", entry " << i << " by start " << j << ": " << (place < 0 ? 0 : end[place])
            << ", differences give " << (right + left) / 2;
        ++(place < 0 ? zeros : affine);
      }
    }
  }
  EXPECT_GT(affine, 500);
  EXPECT_GT(zeros, 100);
  EXPECT_GE(clips, 9);
  EXPECT_GE(moebius, 9);
  EXPECT_GE(semirings, 9);
  EXPECT_LT(kinks * 20, affine);
}

}  // namespace
}  // namespace cellc
