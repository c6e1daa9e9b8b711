// Row kernels on the device under test: every example and every awkward cell against the oracle, in every storage
// type; the cells that stages are cut into against the reference; windows of time, views, allocations.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <bit>
#include <cmath>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/lower.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/evaluate/reference.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/against_oracle.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/nests_on_device.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

using oracle::Example;

class Rows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { example_ = &oracle::example_named(GetParam()); }
  const Example* example_ = nullptr;
};

/// Small lengths, then one axis beyond a warp.
std::vector<std::vector<std::int64_t>> axis_choices(std::size_t axes) {
  std::vector<std::vector<std::int64_t>> choices{{3, 5, 2, 7}};
  if (axes >= 1) choices.push_back({37, 3, 5, 2});
  if (axes >= 2) choices.push_back({3, 37, 5, 2});
  return choices;
}

TEST_P(Rows, AgreesWithOracle) {
  std::int64_t compared = 0;
  const std::vector<Dtype> dtypes = turns::Turn().of(std::vector{Dtype::F32, Dtype::F64});
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(example_->source, example_->tree, tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(91);
    std::uint64_t schedule = 0;
    for (const Dtype dtype : dtypes) {
      Device device = open_device(4, 1);
      NestProgram program = NestProgram::compile(*device.gpu, graph, structure, dtype, {.source = &example_->source});
      // As little memory for hoisted products as makes windows of a few steps.
      NestProgram windows =
          NestProgram::compile(*device.gpu, graph, structure, dtype, {.source = &example_->source, .chunk_bytes = 1});
      for (const auto& lengths : axis_choices(tree.axes.size())) {
        for (const bool reverse : {false, true}) {
          Trial::Options options{.dtype = dtype, .sizes = oracle::axis_lengths(cell, lengths), .steps = 17};
          options.starts_given = lengths[0] == 3;
          options.reverse = reverse;
          options.step_by_step = example_->amplifies.count(tree.name) > 0;
          const Trial trial(graph, cell, example_->ranges, random, options);
          const auto once = [&](NestProgram& with, const std::vector<std::int64_t>& steps, bool packed) {
            device.reorder(schedule++);
            const Binding binding = trial.bound(steps, packed, 1);
            return trial.verify(binding.run, run_on_device(*device.gpu, with, graph, binding.run, dtype), steps);
          };
          const std::string label =
              fmt::format("{} axes {} {} {} reverse {}", to_string(dtype), lengths[0], lengths[1], lengths[2], reverse);
          if (!reverse) {
            for (const std::int64_t steps : {0, 1, 2})
              ASSERT_EQ(once(program, {steps, steps}, false), "") << label << " T " << steps;
            ASSERT_EQ(once(program, {}, false), "") << label << " B 0";
          }
          ASSERT_EQ(once(program, {17, 17, 17}, false), "") << label;
          ASSERT_EQ(once(program, {5, 0, 17}, true), "") << label << " packed";
          ASSERT_EQ(once(windows, {5, 0, 3}, true), "") << label << " packed, in windows";
          compared += trial.compared();
        }
      }
    }
  }
  EXPECT_GE(compared, 150 * static_cast<std::int64_t>(dtypes.size())) << "numbers compared";
}

INSTANTIATE_TEST_SUITE_P(Examples, Rows, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(4, "Examples/Rows");

// What runs before and after the stages and computes f of a trajectory: cells without states.
using StatelessNests = Rows;

TEST_P(StatelessNests, AgreesWithReference) {
  int cells = 0;
  Device device = open_device();  // 6 steps, twice
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(example_->source, example_->tree, tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const StagedCell staged = split_stages(graph, structure);
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(92);
    const auto check = [&](const DerivedCell& stateless, const char* what) {
      if (stateless.cell.outs.empty()) return;
      ++cells;
      SCOPED_TRACE(what);
      const NestOptions with{.source = &example_->source};
      NestProgram program = NestProgram::compile(*device.gpu, stateless.cell, Structure{}, Dtype::F64, with);
      for (const bool reverse : {false, true}) {
        Trial::Options options{.dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell, {3, 37, 5, 2}), .steps = 6};
        options.starts_given = true;
        options.reverse = reverse;
        const Trial trial(graph, cell, example_->ranges, random, options);
        BoundRun whole = trial.bound({2, 0, 6}, true, 1).run;
        const RunOutput truth = reference_run(graph, whole);
        // Values of earlier derived cells are any numbers here: both sides read the same.
        BoundRun run{
            .sizes = whole.sizes, .symbols = {}, .histories = {}, .offsets = whole.offsets, .reverse = reverse};
        for (std::size_t s = 0; s < stateless.sources.size(); ++s) {
          const ArraySource source = stateless.sources[s];
          const Symbol& symbol = stateless.cell.symbols[s];
          if (source.kind == ArraySource::Kind::Symbol) {
            const int line_of = graph.symbols[static_cast<std::size_t>(source.id)].line_of;
            Array rows = whole.symbols[source.id];
            for (std::size_t u = 0; u < graph.updates.size(); ++u)
              if (graph.updates[u].symbol == line_of) rows = truth.states[u];
            run.symbols.push_back(rows);
            run.histories.push_back(
                static_cast<std::size_t>(source.id) < whole.histories.size() ? whole.histories[source.id] : Array());
          } else if (source.kind == ArraySource::Kind::Trajectory || source.kind == ArraySource::Kind::Remade) {
            const Array& start = whole.symbols[graph.updates[source.id].symbol];
            std::vector<std::int64_t> shape = start.shape();
            shape.insert(shape.begin() + 1, 1);
            run.symbols.push_back(truth.states[source.id]);
            run.histories.push_back(start.with_shape(shape));
          } else {
            std::vector<std::int64_t> shape = lengths(stateless.cell, run, symbol.axes);
            if (symbol.kind == SymbolKind::Input) shape.insert(shape.begin(), run.offsets.back());
            Array any(Dtype::F64, shape);
            for (std::int64_t i = 0; i < any.count(); ++i) any.set(i, random.uniform(-1, 1));
            run.symbols.push_back(any);
            run.histories.push_back({});
          }
        }
        if (std::string_view(what) == "once") run.offsets = {0, 1};
        const RunOutput want = reference_run(stateless.cell, run);
        const RunOutput got = run_on_device(*device.gpu, program, stateless.cell, run, Dtype::F64, with);
        const Deviation deviation = compare(stateless.cell, run, got, want);
        ASSERT_LE(deviation.error, 1e-12)
            << deviation.array << " sequence " << deviation.sequence << " step " << deviation.step;
      }
    };
    for (const StageCells& stage : staged.stages) {
      check(stage.once, "once");
      check(stage.before, "before");
    }
    check(staged.after, "after");
    check(staged.step, "step");
  }
  EXPECT_GE(cells, 1);
}

INSTANTIATE_TEST_SUITE_P(Examples, StatelessNests, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(3, "Examples/StatelessNests");

// 16-bit storage: a cell of every kind of stage and of every way to store, none that amplifies.
using NarrowRows = Rows;

TEST_P(NarrowRows, AgreesWithOracle) {
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(example_->source, example_->tree, tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(93);
    for (const Dtype dtype : {Dtype::F16, Dtype::BF16}) {
      Device device = open_device(4, 1);
      for (const char wide : {0, 1}) {
        NestOptions with{.source = &example_->source};
        if (wide) {
          with.wide_inputs.assign(graph.symbols.size(), 1);
          with.wide_histories.assign(graph.symbols.size(), 1);
          with.wide_states.assign(graph.updates.size(), 1);
          with.wide_outs.assign(graph.outs.size(), 1);
        }
        NestProgram program = NestProgram::compile(*device.gpu, graph, structure, dtype, with);
        with.chunk_bytes = 1;
        NestProgram windows = NestProgram::compile(*device.gpu, graph, structure, dtype, with);
        Trial::Options options{.dtype = dtype, .sizes = oracle::axis_lengths(cell, {37, 3, 5, 2}), .steps = 17};
        options.starts_given = true;
        if (on_card()) options.narrow_tolerance = 1e-4;  // tanh.approx there
        const Trial trial(graph, cell, example_->ranges, random, options);
        for (NestProgram* p : {&program, &windows}) {
          const Binding binding = trial.bound({5, 0, 17}, true, 1);
          const RunOutput output = run_on_device(*device.gpu, *p, graph, binding.run, dtype, with);
          ASSERT_EQ(trial.verify(binding.run, output, {5, 0, 17}), "") << to_string(dtype) << " wide " << int(wide);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, NarrowRows,
                         testing::Values("01_para_gru", "02_para_lstm", "04_lstm", "09_gilr_lstm", "10_min_gru",
                                         "13_s6", "18_delta_net", "26_ind_rnn", "32_ln_state", "33_m2rnn", "34_narx3",
                                         "37_biquad2t", "39_kalman1", "x02_ln_lstm", "x04_gru_d", "x07_mixture",
                                         "x10_mamba", "x16_biquad1", "e_mamba_mixer", "d_mlstm_heads", "dense", "lags"),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(4, "Examples/NarrowRows");

// Random cells, step by step from what was written: CELLC_SEED=N CELLC_CELLS=1 runs one again.
TEST(RandomNests, AgreeWithOracle) {
  const generate::Seeds seeds(12, turns::Turn().part(3));
  std::int64_t compared = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string text = generate::random_cell(seed);
    const SourceText source("random.cell", text);
    const File file = oracle::parse_or_throw(source);
    Diagnostics diagnostics;
    CellGraph graph = *lower(file, file.cells[0], diagnostics);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(file, file.cells[0].name);
    Device device = open_device();  // 9 steps, once
    device.reorder(seed);
    oracle::Random random(seed);
    Trial::Options options{.dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell, {3, 4, 2}), .steps = 9};
    options.starts_given = options.step_by_step = options.skip_jumps = true;
    options.reverse = random.chance(0.3);
    options.f64_tolerance = 1e-11;
    const Trial trial(graph, cell, {}, random, options);
    const NestOptions with{.source = &source, .chunk_bytes = random.chance(0.5) ? 1 : 0};
    NestProgram program = NestProgram::compile(*device.gpu, graph, structure, Dtype::F64, with);
    const std::vector<std::int64_t> lengths{9, 0, 4};
    const BoundRun run = trial.bound(lengths, true, 1).run;
    ASSERT_EQ(trial.verify(run, run_on_device(*device.gpu, program, graph, run, Dtype::F64, with), lengths), "")
        << "CELLC_SEED=" << seed << " CELLC_CELLS=1\n"
        << text;
    compared += trial.compared();
  }
  EXPECT_GE(compared, 10) << "numbers compared";
}

struct Lstm {
  const Example& example = oracle::example_named("04_lstm");
  CellGraph graph = graph_of(example.source, example.tree, example.tree.cells[0]);
  Structure structure = analyse(graph, differentiate(graph));
  oracle::Cell cell{example.tree, example.tree.cells[0].name};
  Trial trial(std::int64_t steps, std::int64_t d, std::int64_t m) const {
    oracle::Random random(94);
    Trial::Options options{.sizes = oracle::axis_lengths(cell, {d, m}), .steps = steps};
    options.starts_given = true;
    return Trial(graph, cell, example.ranges, random, options);
  }
};

TEST(NestRun, AllocatesNothingAndWaitsForNothingWhenRepeated) {
  const Lstm lstm;
  const Trial trial = lstm.trial(9, 5, 3);
  const BoundRun run = trial.bound({9, 4, 9}, true, 1).run;
  const auto gpu = open_emulator();
  NestProgram program = NestProgram::compile(*gpu, lstm.graph, lstm.structure, Dtype::F32);
  run_on_device(*gpu, program, lstm.graph, run, Dtype::F32);
  const Emulator::Counts first = gpu->counts();
  run_on_device(*gpu, program, lstm.graph, run, Dtype::F32);
  const Emulator::Counts second = gpu->counts();
  // What run_on_device itself allocates and copies is the same both times; the program adds nothing.
  const std::int64_t arrays =
      1 + static_cast<std::int64_t>(lstm.graph.symbols.size() + 2 * lstm.graph.updates.size() + lstm.graph.outs.size());
  const std::int64_t copies = static_cast<std::int64_t>(2 * lstm.graph.updates.size() + lstm.graph.outs.size());
  EXPECT_EQ(second.allocations - first.allocations, arrays);
  EXPECT_EQ(second.synchronisations - first.synchronisations, copies);
}

// Bits of a sequence depend neither on the batch that it is in nor on windows of time.
TEST(NestRun, BitsDependOnTheSequenceAlone) {
  const Lstm lstm;
  const Trial trial = lstm.trial(150, 37, 70);
  const auto gpu = open_emulator();
  NestProgram program = NestProgram::compile(*gpu, lstm.graph, lstm.structure, Dtype::F32);
  // Four chunks of 37 numbers a row: windows of 64 steps of three sequences.
  NestProgram windows =
      NestProgram::compile(*gpu, lstm.graph, lstm.structure, Dtype::F32, {.chunk_bytes = 4 * 37 * 4 * 64 * 3});
  const BoundRun three = trial.bound({150, 20, 70}, true, 1).run, one = trial.bound({150}, true, 1).run;
  const RunOutput all = run_on_device(*gpu, program, lstm.graph, three, Dtype::F32);
  const RunOutput alone = run_on_device(*gpu, program, lstm.graph, one, Dtype::F32);
  const std::int64_t before = gpu->counts().launches;
  const RunOutput cut = run_on_device(*gpu, windows, lstm.graph, three, Dtype::F32);
  EXPECT_EQ(gpu->counts().launches - before, 3 * 5) << "three windows of four products and one kernel";
  // Room for 75 rows: the short sequences first, then the long one in two windows.
  NestProgram groups =
      NestProgram::compile(*gpu, lstm.graph, lstm.structure, Dtype::F32, {.chunk_bytes = 4 * 37 * 4 * 75});
  const BoundRun short_first = trial.bound({20, 50, 150}, true, 1).run;
  const std::int64_t before_groups = gpu->counts().launches;
  const RunOutput grouped = run_on_device(*gpu, groups, lstm.graph, short_first, Dtype::F32);
  EXPECT_EQ(gpu->counts().launches - before_groups, 3 * 5) << "a group and two windows";
  EXPECT_EQ(trial.verify(short_first, grouped, {20, 50, 150}), "");
  EXPECT_EQ(trial.verify(three, all, {150, 20, 70}), "");
  for (std::size_t s = 0; s < all.states.size(); ++s) {
    for (std::int64_t i = 0; i < all.states[s].count(); ++i) ASSERT_EQ(all.states[s].get(i), cut.states[s].get(i)) << i;
    for (std::int64_t i = 0; i < alone.states[s].count(); ++i)
      ASSERT_EQ(all.states[s].get(i), alone.states[s].get(i)) << i;
    for (std::int64_t i = 0; i < all.finals[s].count(); ++i) ASSERT_EQ(all.finals[s].get(i), cut.finals[s].get(i)) << i;
  }
}

// Offsets beyond 32 bits: rows that lie 2^32 and some entries apart, in memory that is only there where
// somebody touches it.
TEST(NestRun, ReachesRowsBeyondTwoToThe32) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 32) + 5, kRows = 4;
  constexpr std::size_t kBytes = (kRows - 1) * kStride * sizeof(float) + 4096;
  void* const far = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (far == MAP_FAILED) GTEST_SKIP() << "no 48 GiB of addresses";
  const SourceText source("far.cell",
                          "cell far[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + lag(x, 1) + sum[d](x)\n "
                          " out y = x + lag(x, 2)\n}\n");
  const File file = oracle::parse_or_throw(source);
  Diagnostics diagnostics;
  CellGraph graph = *lower(file, file.cells[0], diagnostics);
  const Structure structure = analyse(graph, differentiate(graph));
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (int i = 0; i < 3; ++i) static_cast<float*>(far)[r * kStride + i] = static_cast<float>(10 * r + i);
  }
  const auto gpu = open_emulator();
  NestProgram program = NestProgram::compile(*gpu, graph, structure, Dtype::F32);
  const std::int64_t offsets[] = {0, kRows};
  const GpuBuffer on_device(*gpu, sizeof offsets), past(*gpu, 24), h(*gpu, kRows * 12), last(*gpu, 12),
      y(*gpu, kRows * 12);
  gpu->copy_in(on_device.address(), offsets, sizeof offsets, 0);
  gpu->zero(past.address(), 24, 0);
  NestRun run;
  run.sizes[graph.header[0]] = 3;
  run.symbols.resize(2);
  run.symbols[1] = {std::bit_cast<GpuAddress>(far), kStride, past.address(), 2};
  run.states = {h.address()};
  run.finals = {last.address()};
  run.outs = {y.address()};
  run.offsets.assign(offsets, offsets + 2);
  run.device_offsets = on_device.address();
  program.run(run, 0);
  float states[kRows][3], outs[kRows][3];
  gpu->copy_out(states, h.address(), sizeof states, 0);
  gpu->copy_out(outs, y.address(), sizeof outs, 0);
  const auto x = [&](std::int64_t r, int i) { return r < 0 ? 0.0f : static_cast<float>(10 * r + i); };
  for (int i = 0; i < 3; ++i) {
    float state = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      state = 0.5f * state + x(r - 1, i) + (x(r, 0) + x(r, 1) + x(r, 2));
      EXPECT_EQ(states[r][i], state) << r << " " << i;
      EXPECT_EQ(outs[r][i], x(r, i) + x(r - 2, i)) << r << " " << i;
    }
  }
  // Without states rows are many to a kernel, whose places have more than 32 bits as well.
  CellGraph flat = graph;
  flat.updates.clear();
  NestProgram flat_program = NestProgram::compile(*gpu, flat, Structure{}, Dtype::F32);
  run.states.clear();
  run.finals.clear();
  gpu->zero(y.address(), kRows * 12, 0);
  flat_program.run(run, 0);
  gpu->copy_out(outs, y.address(), sizeof outs, 0);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(outs[r][i], x(r, i) + x(r - 2, i)) << r << " " << i;
  }
  munmap(far, kBytes);
}

/// How far the outs of a cell, which inputs alone are to feed, are from the reference where the kernels that follow its
/// stages make them.
double error_of_outs(const std::string& text, const std::vector<std::int64_t>& axes = {5, 3},
                     const std::vector<std::int64_t>& steps = {2, 0, 6}) {
  const SourceText source("outs.cell", text);
  const File file = oracle::parse_or_throw(source);
  CellGraph graph = graph_of(source, file, file.cells[0]);
  const CellGraph after = split_stages(graph, analyse(graph, differentiate(graph))).after.cell;
  Device device = open_device(1, 1);
  NestProgram program = NestProgram::compile(*device.gpu, after, Structure{}, Dtype::F64, {.source = &source});
  const oracle::Cell cell(file, file.cells[0].name);
  oracle::Random random(95);
  const Trial trial(graph, cell, {}, random,
                    {.dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell, axes), .steps = steps.back()});
  BoundRun run = trial.bound(steps, true, 1).run;
  std::vector<Array> symbols;
  for (const Symbol& s : after.symbols) {
    for (std::size_t i = 0; i < graph.symbols.size(); ++i)
      if (graph.symbols[i].name == s.name) symbols.push_back(run.symbols[i]);
  }
  run.symbols = std::move(symbols);
  run.histories.assign(after.symbols.size(), {});
  return compare(after, run, run_on_device(*device.gpu, program, after, run, Dtype::F64), reference_run(after, run))
      .error;
}

// A sum without axes that the same thread goes on with needs no memory. It had that of the first chunk.
TEST(NestRun, HandsOnASumWithoutAxes) {
  EXPECT_LE(error_of_outs("cell sum[k, d] {\n  state h\n  input x[k]\n  param W[d,k]\n  h' = 0.5*h + 1\n"
                          "  p = W@x\n  out y = sum[d](p)*2\n  out z[d] = p + 1\n}\n"),
            1e-12);
}

// What the emitted text itself declares is no name of a value.
TEST(NestRun, TakesNamesOfItsOwnText) {
  EXPECT_LE(error_of_outs("cell divide[p, q] {\n  state h\n  input term[p,q], none, here[p]\n  param terms[p,q]\n"
                          "  h' = 0.5*h + 1\n  divide = sum[q](terms*term*none)\n  out places = divide*here\n"
                          "  out tile[p,q] = divide*softmax[p](here)*term\n}\n"),
            1e-12);
}

// Who goes on with a sum has its thread, not that of a nest without one: another sum, of other threads, waits for what
// it has written.
TEST(NestRun, SumsWaitForWhatFollowedAnother) {
  EXPECT_LE(
      error_of_outs("cell two[k, m] {\n  state h\n  input x[k], z[m]\n  h' = 0.5*h + 1\n  s = sum[k](x)\n"
                    "  y = tanh(s)\n  v = sin(s)\n  d = y*sum[m](z)\n  out o = d + v\n  out e = sum[m](z*d)*y\n}\n",
                    {64, 3}, {129}),
      1e-12);
}

TEST(NestRun, SaysWhatIsMissing) {
  const Lstm lstm;
  const auto gpu = open_emulator();
  NestProgram program = NestProgram::compile(*gpu, lstm.graph, lstm.structure, Dtype::F32);
  NestRun run;
  for (const AxisId axis : lstm.graph.header) run.sizes[axis] = 3;
  run.symbols.resize(lstm.graph.symbols.size());
  run.states.resize(lstm.graph.updates.size());
  run.finals.resize(lstm.graph.updates.size());
  run.outs.resize(lstm.graph.outs.size());
  const auto message = [&] {
    try {
      program.run(run, 0);
    } catch (const RequestError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(), "a run needs the offsets of its sequences");
  run.offsets = {0, 2};
  EXPECT_EQ(message(), "the array of offsets is not given");
  run.device_offsets = 256;
  EXPECT_EQ(message(), "x is not given");
  run.sizes.clear();
  EXPECT_EQ(message(), "the length of axis d is not given");
  EXPECT_THROW(NestProgram::emit(lstm.graph, lstm.structure, Dtype::I64), RequestError);
}

// Every card compiles every kernel without a word.
class NestsUnderNvrtc : public WithNvrtc, public testing::WithParamInterface<std::string> {};

TEST_P(NestsUnderNvrtc, Compiles) {
  const Example& example = oracle::example_named(GetParam());
  // The architectures take turns: what differs between them is in the templates, which meet all three.
  const std::vector<std::pair<Dtype, const char*>> settings =
      turns::Turn().of(std::vector<std::pair<Dtype, const char*>>{
          {Dtype::F32, "sm_80"}, {Dtype::F64, "sm_90"}, {Dtype::F16, "sm_100"}, {Dtype::BF16, "sm_80"}});
  for (const Cell& tree : example.tree.cells) {
    CellGraph graph = graph_of(example.source, example.tree, tree);
    const Structure structure = analyse(graph, differentiate(graph));
    for (const auto& [dtype, architecture] : settings) {
      const GpuSource source = NestProgram::emit(graph, structure, dtype, {.source = &example.source});
      const CompiledKernels compiled = compile_cuda(quick(source), architecture);
      EXPECT_EQ(compiled.log, "") << tree.name << " " << to_string(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, NestsUnderNvrtc, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(6, "Examples/NestsUnderNvrtc");

}  // namespace
}  // namespace cellc
