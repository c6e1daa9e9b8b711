// The CUDA text of lane cells, compiled for the host: its step against the evaluator, its carriers
// against finite differences, for every example; names that are awkward in C++; values beyond numbers.
#include "compiler/emit_cuda_lane.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "compiler/evaluate.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/newton_cell.h"
#include "compiler/parse.h"
#include "tests/engines/host_code.h"
#include "tests/generate/random_cell.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/functions.h"
#include "tests/oracle/known_values.h"

namespace cellc {
namespace {

/// One emitted struct and the cell that it is of.
struct Emitted {
  std::string label;
  CellGraph cell;
  AxisId lane;
  std::map<AxisId, std::int64_t> sizes;
  oracle::Ranges ranges;
  CudaLaneCode code;
  std::optional<CarrierCell> carriers;
  int step = -1;  ///< of a carried cell: the index of the lane cell's own
};

struct Lowered {
  CellGraph cell;
  Structure structure;
};

Lowered lowered(const SourceText& source, const File& file, const Cell& tree) {
  Diagnostics diagnostics;
  std::optional<CellGraph> cell = lower(file, tree, diagnostics);
  if (!cell || !diagnostics.empty()) throw std::runtime_error(diagnostics.format(source));
  Lowered result{std::move(*cell), {}};
  result.structure = analyse(result.cell, differentiate(result.cell));
  return result;
}

CudaLaneOptions options_for(const Lowered& cell, const SourceText& source, const Emitted& e, Storage storage) {
  CudaLaneOptions options;
  options.storage = storage;
  options.sizes = e.sizes;
  options.source = &source;
  options.written = &cell.cell;
  return options;
}

/// All derived cells of all stages of one cell.
void emit_all(const SourceText& source, const File& file, const Cell& tree, const oracle::Ranges& ranges, Storage storage,
              std::vector<Emitted>& all) {
  const Lowered cell = lowered(source, file, tree);
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    const std::string label = fmt::format("{}: {}, stage {}", source.path(), tree.name, k + 1);
    const auto begin = [&](const char* what, const CellGraph& derived) {
      return Emitted{label + ", " + what, derived, stage.lane, sizes_to_show(stage.lanes, stage.lane), ranges, {}, {}, -1};
    };
    const auto add = [&](const char* what, const CellGraph& derived) {
      Emitted e = begin(what, derived);
      e.code = emit_cuda_lane(e.cell, e.lane, options_for(cell, source, e, storage));
      all.push_back(std::move(e));
      return static_cast<int>(all.size()) - 1;
    };
    const auto add_carried = [&](const char* what, const CarrierCell& carriers, int step) {
      Emitted e = begin(what, carriers.cell);
      e.carriers = carriers;
      e.step = step;
      CudaLaneOptions options = options_for(cell, source, e, storage);
      options.name = "Carried";
      e.code = emit_cuda_carried(carriers, e.lane, options);
      all.push_back(std::move(e));
    };
    const int step = add("step", stage.lanes);
    add_carried("carried", with_carriers(stage.lanes, stage.lane, cell.structure.stages[k].scannable), step);
    const NewtonCell newton = linearised(stage.lanes, stage.lane);
    const int linear = add("newton", newton.cell);
    add_carried("newton carried", with_carriers(newton.cell, stage.lane, Scannable::Affine), linear);
    add("guess", evaluated(stage.lanes).cell);
    add("residual", residual(stage.lanes, stage.lane).cell);
  }
}

constexpr const char* kHead = R"(#define CELLC_EMULATOR 1
#define CELLC_DEVICE inline
)";

std::string translation_unit(const std::vector<Emitted>& all, Storage storage, const std::string& before = "") {
  std::string text = before + kHead;
  text += storage == Storage::F64 ? "using Real = double;\n" : "using Real = float;\n";
  text += fmt::format("#include \"{}/kernels-templates/math.cuh\"\n", CELLC_SOURCE_DIR);
  std::string steps, rules;
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += fmt::format("namespace cell_{} {{\n{}}}\n", i, all[i].code.text);
    steps += fmt::format("  cell_{}::{}::step,\n", i, all[i].carriers ? "Carried" : "Step");
    rules += all[i].carriers ? fmt::format("  cell_{}::CarrierRule::carrier,\n", i) : "  nullptr,\n";
  }
  text += "using StepFunction = void (*)(const Real*, const Real*, const Real*, Real*, const Real* const*);\n";
  text += "extern \"C\" const StepFunction steps[] = {\n" + steps + "};\n";
  text += "extern \"C\" int (*const rules[])(int) = {\n" + rules + "};\n";
  return text;
}

// -w: what a cell computes in vain is not the emitter's fault. Nothing is contracted, as in the evaluator.
constexpr const char* kOptions = "-std=c++17 -O0 -w -ffp-contract=off";

/// Values of every symbol of a lane, entry by entry.
using Values = std::vector<std::vector<double>>;

template <typename Real>
struct Runner {
  using StepFunction = void (*)(const Real*, const Real*, const Real*, Real*, const Real* const*);
  Runner(const std::vector<Emitted>& all, Storage storage, const std::string& before = "",
         const std::string& options = kOptions)
      : code(translation_unit(all, storage, before), options), steps(code.symbol<const StepFunction>("steps")),
        rules(code.symbol<int (*const)(int)>("rules")) {}

  /// Entries of the states after one step.
  std::vector<double> step(int index, const Emitted& e, const Values& values) const {
    const auto gather = [&](const std::vector<SymbolEntry>& entries) {
      std::vector<Real> list;
      for (const SymbolEntry& at : entries) list.push_back(static_cast<Real>(values[at.symbol].at(at.entry)));
      list.push_back(0);
      return list;
    };
    const std::vector<Real> param = gather(e.code.params), input = gather(e.code.inputs), state = gather(e.code.states);
    std::vector<std::vector<Real>> uniforms;
    std::vector<const Real*> uniform;
    for (int u : e.code.uniform_arrays) uniforms.emplace_back(values[u].begin(), values[u].end());
    for (const auto& u : uniforms) uniform.push_back(u.data());
    std::vector<Real> next(state.size());
    steps[index](param.data(), input.data(), state.data(), next.data(), uniform.data());
    return {next.begin(), next.end() - 1};
  }

  HostCode code;
  const StepFunction* steps;
  int (*const* rules)(int);
};

Values draw(const Emitted& e, oracle::Random& random, bool f32) {
  Values values;
  for (std::size_t s = 0; s < e.cell.symbols.size(); ++s) {
    const Symbol& symbol = e.cell.symbols[s];
    Range range{-1, 1};
    if (symbol.range) range = *symbol.range;
    // "before.h" and "value.h" lie where h does.
    const std::string name = symbol.name.substr(symbol.name.rfind('.') + 1);
    if (const auto it = e.ranges.find(name); it != e.ranges.end()) range = it->second;
    auto& list = values.emplace_back();
    for (std::int64_t i = entries_of(e.cell, e.lane, static_cast<int>(s), e.sizes); i-- > 0;) {
      list.push_back(random.uniform(range.low, range.high));
      if (f32) list.back() = static_cast<float>(list.back());
    }
  }
  return values;
}

std::vector<double> reference(const Emitted& e, const Values& values) {
  Environment environment;
  environment.sizes = e.sizes;
  environment.sizes[e.lane] = 1;
  const Evaluator* sizes = nullptr;
  environment.read = [&](int symbol, const std::vector<std::int64_t>& position, int) {
    std::int64_t at = 0;
    const auto& axes = e.cell.symbols[symbol].axes;
    for (std::size_t p = 0; p < axes.size(); ++p)
      if (axes[p] != e.lane) at = at * sizes->length(axes[p]) + position[p];
    return values[symbol].at(at);
  };
  Evaluator evaluator(e.cell, environment);
  sizes = &evaluator;
  std::map<SymbolEntry, double> next;
  for (const StateUpdate& u : e.cell.updates) {
    const Tensor t = evaluator.value_over(u.value, e.cell.symbols[u.symbol].index);
    for (std::size_t i = 0; i < t.data.size(); ++i) next[{u.symbol, static_cast<std::int64_t>(i)}] = t.data[i];
  }
  std::vector<double> list;
  for (const SymbolEntry& s : e.code.states) list.push_back(next.at(s));
  return list;
}

bool near(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::fabs(got - want) <= tolerance * (1 + std::fabs(want));
}

std::vector<Emitted> all_emitted(Storage storage) {
  std::vector<Emitted> all;
  for (const oracle::Example& example : oracle::load_all_cells(CELLC_SOURCE_DIR))
    for (const Cell& tree : example.tree.cells) emit_all(example.source, example.tree, tree, example.ranges, storage, all);
  return all;
}

/// A state that the step leaves out for ever may start as anything else in the evaluator.
void clear_left_out(const Emitted& e, Values& values) {
  for (const StateUpdate& u : e.cell.updates)
    for (std::size_t i = 0; i < values[u.symbol].size(); ++i) {
      const SymbolEntry at{u.symbol, static_cast<std::int64_t>(i)};
      if (std::find(e.code.states.begin(), e.code.states.end(), at) == e.code.states.end()) values[u.symbol][i] = 0;
    }
}

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
      const std::vector<double> got = runner.step(static_cast<int>(i), all[i], values), want = reference(all[i], values);
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

TEST(CudaLane, StepsInF64) {
  expect_meaning(compare_steps<double>(all_emitted(Storage::F64), Storage::F64, 1e-12));
}
TEST(CudaLane, StepsInF32) { expect_meaning(compare_steps<float>(all_emitted(Storage::F32), Storage::F32, 1e-5)); }

// A failure names the seed; `CELLC_SEED=N CELLC_CELLS=1` runs it alone.
TEST(CudaLane, StepsOfRandomCells) {
  const char* first = std::getenv("CELLC_SEED");
  const char* cells = std::getenv("CELLC_CELLS");
  const std::uint64_t seed = first ? std::strtoull(first, nullptr, 10) : 1;
  const std::uint64_t count = cells ? std::strtoull(cells, nullptr, 10) : 40;
  std::vector<Emitted> all;
  std::int64_t too_long = 0;
  for (std::uint64_t s = seed; s < seed + count; ++s) {
    const SourceText source(fmt::format("seed {}", s), generate::random_cell(s));
    const File file = oracle::parse_or_throw(source);
    const std::size_t before = all.size();
    try {
      emit_all(source, file, file.cells.at(0), {}, Storage::F64, all);
    } catch (const ScalarCellTooLong&) {
      all.resize(before);
      ++too_long;
    }
  }
  const Compared c = compare_steps<double>(all, Storage::F64, 1e-10);
  expect_little_noise(c);
  if (!cells) {
    expect_meaning(c);
    EXPECT_LE(too_long, 8);
  }
}

// Carriers ---------------------------------------------------------------------------------------------

void identity(const Emitted& e, const std::function<int(int)>& rule, int n, std::vector<double>& state) {
  const double infinite = HUGE_VAL;
  for (int i = 0; i < n; ++i) {
    if (e.carriers->kind == Scannable::Affine) {
      for (int j = 0; j < n; ++j)
        if (rule(i * n + j) >= 0) state[rule(i * n + j)] = i == j;
      continue;
    }
    const double clip[4] = {1, 0, -infinite, infinite}, moebius[4] = {1, 0, 0, 1};
    for (int m = 0; m < 4; ++m) state[rule(4 * i + m)] = e.carriers->kind == Scannable::Clip ? clip[m] : moebius[m];
  }
}

TEST(CudaLane, CarriersAreTheMapOfTheStart) {
  const std::vector<Emitted> all = all_emitted(Storage::F64);
  const Runner<double> runner(all, Storage::F64);
  constexpr int kSteps = 4;
  std::int64_t affine = 0, zeros = 0, clips = 0, moebius = 0, kinks = 0;
  for (std::size_t index = 0; index < all.size(); ++index) {
    const Emitted& carried = all[index];
    if (!carried.carriers) continue;
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
        for (std::size_t i = 0; i < state.size(); ++i) rows[t][e.code.states[i].symbol][e.code.states[i].entry] = state[i];
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
      if (carried.carriers->kind != Scannable::Affine) {
        for (double by : {-0.5, 0.25, 0.75}) {
          const double x = start[j] + by, got = moved(by)[j];
          const double a = value(4 * j), b = value(4 * j + 1), c = value(4 * j + 2), d = value(4 * j + 3);
          const bool clip = carried.carriers->kind == Scannable::Clip;
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
  EXPECT_LT(kinks * 20, affine);
}

// What follows is one cell each ------------------------------------------------------------------------

std::vector<Emitted> emitted(const std::string& text, Storage storage) {
  const SourceText source("test.cell", text);
  const File file = oracle::parse_or_throw(source);
  std::vector<Emitted> all;
  emit_all(source, file, file.cells.at(0), {}, storage, all);
  return all;
}

const Emitted& named(const std::vector<Emitted>& all, const std::string& suffix) {
  for (const Emitted& e : all)
    if (e.label.ends_with(suffix)) return e;
  throw std::runtime_error("no " + suffix);
}

// A coupling that only entries show: each of a chain hears the one before it.
TEST(CudaLane, ZeroMaskIsByEntry) {
  const std::vector<Emitted> all = emitted(R"(cell chain[d, k = 3] {
  state S[d, k]
  input x[d]
  param a[d]
  S'[d,k] = a*S + x*(eye[k,1]*S[d,0] + eye[k,2]*S[d,1])
}
)", Storage::F64);
  const Emitted& carried = named(all, "1, carried");
  EXPECT_EQ(carried.code.states.size(), 3u + 6u) << carried.code.text;
  const Runner<double> runner(all, Storage::F64);
  const auto rule = runner.rules[&carried - all.data()];
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(rule(3 * i + j) >= 0, i >= j) << i << ", " << j;
}

// The headers bring in macros, the dialect some more (linux, unix).
TEST(CudaLane, AnyNameIsLegal) {
  const std::vector<Emitted> all = emitted(R"(cell awkward[d, k = 2] {
  state int[d], float[d], step[d], warpSize[d], next[d], Real[d], cellc[d], S[d,k]
  input uniform[d], threadIdx[d], NULL[d]
  param kStates[d], linux[d], entry, M_PI[k]
  double = int*float + uniform
  t1 = step*warpSize + threadIdx
  t1_2 = t1*double + NULL
  unix = t1*t1_2
  errno = unix*linux + kStates*entry
  I = sum[k](S*M_PI)
  EOF = 0.5*S + I
  param_ = tanh(errno)
  const = sigmoid(param_)
  INFINITY = const*param_
  __x = INFINITY + const
  x__y = __x*__x
  int' = double*0.1
  float' = t1
  step' = t1_2
  warpSize' = unix + errno
  next' = const*next
  Real' = x__y*Real
  cellc' = 0.3*cellc + INFINITY
  S' = 0.5*EOF
}
)", Storage::F64);
  const std::string headers =
      "#include <assert.h>\n#include <complex.h>\n#include <errno.h>\n#include <math.h>\n#include <stdio.h>\n"
      "#include <sys/sysmacros.h>\n#include <limits.h>\n#include <stdlib.h>\n";
  const Runner<double> runner(all, Storage::F64, headers, "-std=gnu++17 -O0 -Wall -Wno-unused-variable -Wno-unused-function -Werror -ffp-contract=off");
  for (std::size_t i = 0; i < all.size(); ++i) {
    oracle::Random random(3);
    Values values = draw(all[i], random, false);
    clear_left_out(all[i], values);
    const std::vector<double> got = runner.step(static_cast<int>(i), all[i], values), want = reference(all[i], values);
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(near(got[k], want[k], 1e-12)) << all[i].label << " " << k;
  }
  EXPECT_NE(named(all, "1, step").code.text.find("const Real double_ = "), std::string::npos);
}

TEST(CudaLane, CompilerErrorsPointAtTheCell) {
  std::vector<Emitted> all = emitted("cell c[d] {\n  state h[d]\n  input x[d]\n\n  z = sigmoid(h + x)\n\n  h' = z*h\n}\n", Storage::F64);
  std::string& text = all[0].code.text;
  const std::size_t at = text.find("cellc::scaled_sigmoid");
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, 21, "cellc::nothing");
  try {
    Runner<double> runner(all, Storage::F64);
    FAIL() << "compiled";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("test.cell:5:"), std::string::npos) << e.what();
  }
}

TEST(CudaLane, RefusesWhatIsTooLong) {
  const SourceText source("test.cell", "cell long[d, k = 64] {\n  state S[k,d]\n  param W[k,k]\n  S' = tanh(W@S)\n}\n");
  const File file = oracle::parse_or_throw(source);
  const Lowered cell = lowered(source, file, file.cells.at(0));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  const StageCells& stage = staged.stages.at(0);
  EXPECT_THROW(emit_cuda_lane(stage.lanes, stage.lane, {}), ScalarCellTooLong);
  CudaLaneOptions options;
  options.limit = 64 * 64 * 2 + 64;
  EXPECT_EQ(emit_cuda_lane(stage.lanes, stage.lane, options).operations, 64 * 64 * 2 + 64);
}

TEST(CudaLane, ALengthThatIsMissingIsNamed) {
  const SourceText source("test.cell", "cell c[d, k] {\n  state S[k,d]\n  param W[k,k]\n  S' = tanh(W@S)\n}\n");
  const File file = oracle::parse_or_throw(source);
  const Lowered cell = lowered(source, file, file.cells.at(0));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  try {
    emit_cuda_lane(staged.stages.at(0).lanes, staged.stages.at(0).lane, {});
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("axis 'k'"), std::string::npos) << e.what();
  }
}

// Functions -------------------------------------------------------------------------------------------

using Rows = std::map<std::string, std::vector<oracle::KnownValue>>;

/// NaN and infinities as they are, zeros with their sign, anything else to `tolerance`.
bool agrees(const std::string& f, double got, double want, double tolerance, bool f32) {
  const bool zero = got == 0 && want == 0;
  if (zero && (f == "min" || f == "max" || f == "clip")) return true;  // of equal zeros either may be given
  if (std::isnan(want)) return std::isnan(got);
  if (want == 0 || std::isinf(want)) return got == want && std::signbit(got) == std::signbit(want);
  // f32's sigmoid and tanh are good to an absolute 4e-7.
  const bool bounded = f32 && (f == "tanh" || f == "sigmoid");
  return std::fabs(got - want) <= tolerance * std::fabs(want) || (bounded && std::fabs(got - want) <= 4e-7);
}

/// One cell a function, its operands inputs, so that nothing is folded.
template <typename Real>
void compare_functions(const Rows& by_function, double tolerance) {
  constexpr bool f32 = sizeof(Real) == 4;
  const Storage storage = f32 ? Storage::F32 : Storage::F64;
  std::vector<Emitted> all;
  std::vector<std::string> functions;
  for (const auto& [f, rows] : by_function) {
    const std::size_t n = rows[0].args.size();
    const bool call = std::isalpha(static_cast<unsigned char>(f[0])) != 0;
    std::string list = "x0";
    for (std::size_t i = 1; i < n; ++i) list += ", x" + std::to_string(i);
    const std::string value = f == "neg" ? "-x0" : call ? f + "(" + list + ")" : "x0 " + f + " x1";
    const SourceText source("test.cell", "cell c[d] {\n  state s[d]\n  input " + [&] {
      std::string inputs = "x0[d]";
      for (std::size_t i = 1; i < n; ++i) inputs += ", x" + std::to_string(i) + "[d]";
      return inputs;
    }() + "\n  s' = where(s < 2, " + value + ", s)\n}\n");
    const File file = oracle::parse_or_throw(source);
    const Lowered cell = lowered(source, file, file.cells.at(0));
    const StagedCell staged = split_stages(cell.cell, cell.structure);
    Emitted e{f, staged.stages.at(0).lanes, staged.stages.at(0).lane, {}, {}, {}, {}, -1};
    e.code = emit_cuda_lane(e.cell, e.lane, options_for(cell, source, e, storage));
    all.push_back(std::move(e));
    functions.push_back(f);
  }
  std::int64_t compared = 0;
  const Runner<Real> runner(all, storage);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const oracle::KnownValue& known : by_function.at(functions[i])) {
      Values values(all[i].cell.symbols.size(), {0.0});
      bool exact = true;
      for (std::size_t s = 0; s < values.size(); ++s)
        if (const std::string& name = all[i].cell.symbols[s].name; name[0] == 'x') {
          values[s][0] = known.args.at(static_cast<std::size_t>(name[1] - '0'));
          exact &= std::isnan(values[s][0]) || static_cast<Real>(values[s][0]) == values[s][0];
        }
      const double got = runner.step(static_cast<int>(i), all[i], values)[0];
      // What f32 does not hold says nothing of f32.
      const double want = static_cast<Real>(known.value);
      if (!exact || (std::isfinite(known.value) && known.value != 0 && !std::isnormal(static_cast<Real>(want)))) continue;
      ++compared;
      EXPECT_TRUE(agrees(functions[i], got, want, tolerance, f32)) << oracle::to_string(known) << ": " << got << ", wanted " << want;
    }
  EXPECT_GT(compared, f32 ? 150 : 250);
}

/// Values that are known from mathematics and from IEEE 754.
Rows known_rows() {
  Rows rows;
  for (const oracle::KnownValue& known : oracle::known_values()) rows[known.f].push_back(known);
  EXPECT_GT(rows.size(), 28u);
  return rows;
}
TEST(CudaLane, KnownValuesInF64) { compare_functions<double>(known_rows(), 4e-15); }
TEST(CudaLane, KnownValuesInF32) { compare_functions<float>(known_rows(), 1.5e-6); }

/// Formulas of our own over their range, both signs, arguments that an f32 holds. Below -5 libm's
/// composition of gelu is the less accurate one.
Rows ranges_of_functions() {
  Rows rows;
  oracle::Random random(5);
  for (const char* f : {"sigmoid", "tanh", "silu", "gelu", "softplus", "rsqrt"})
    for (int i = 0; i < 4000; ++i) {
      double x = static_cast<float>(std::exp2(random.uniform(-20, 6.4)) * (random.chance(0.5) ? -1 : 1));
      if (std::string(f) == "gelu" && x < -5) x = -x;
      if (std::string(f) == "rsqrt") x = std::fabs(x);
      rows[f].push_back({f, {x}, *oracle::apply(f, {x})});
    }
  return rows;
}
TEST(CudaLane, FormulasInF64) { compare_functions<double>(ranges_of_functions(), 4e-15); }
TEST(CudaLane, FormulasInF32) { compare_functions<float>(ranges_of_functions(), 1.2e-6); }

}  // namespace
}  // namespace cellc
