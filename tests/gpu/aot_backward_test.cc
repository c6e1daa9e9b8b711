// Shipped gradients for GPUs: the tables that `cellc build --backward` prints, as they stand in memory, on the
// emulator, against the adjoint step after step in f64, whose sums share no code with the kernels'.
#include "runtime/cuda/ship/aot_backward.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "compiler/front_end.h"
#include "compiler/plan/call_directions.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "tests/emulator/emulator.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/backward_trial.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// A backward call by the tables in memory.
class BackwardOnDevice {
 public:
  BackwardOnDevice(Gpu& gpu, const CellGraph& cell, const AotBackward& backward, Dtype dtype)
      : gpu_(gpu),
        backward_(backward),
        dtype_(dtype),
        device_(gpu, backward.adjoint()),
        directed_(directed_call(cell, call_layout(cell), CallDirection::Backward)) {
    device_.trusts = true;
  }

  struct Options {
    std::int64_t gap = 0;
    bool packed = false;
    bool less_memory = false;
    std::optional<int> only;  ///< the gradient that is wanted, by number; all of them
    bool no_history = false;  ///< of states
  };

  /// By field: what was written, as rows without gaps. Arrays without a shape are not given.
  std::vector<Array> run(const CellGraph& cell, const BackwardTrial& drawn, const Options& options) {
    const CallLayout& layout = backward_.layout();
    const RunOutput& forward = drawn.output;
    std::vector<GpuBuffer> kept;
    std::vector<std::uint64_t> lengths, words(static_cast<std::size_t>(layout.words));
    const std::vector<std::int64_t>& offsets = drawn.run.offsets;
    const std::int64_t sequences = static_cast<std::int64_t>(offsets.size()) - 1, rows = offsets.back();
    for (const AxisId a : layout.lengths) lengths.push_back(static_cast<std::uint64_t>(drawn.run.sizes.at(a)));
    lengths.push_back(static_cast<std::uint64_t>(sequences));
    lengths.push_back(options.packed ? 0 : static_cast<std::uint64_t>(rows / std::max<std::int64_t>(1, sequences)));
    lengths.push_back(options.packed ? reinterpret_cast<std::uint64_t>(offsets.data()) : 0);
    kept.emplace_back(gpu_, offsets.size() * 8);
    gpu_.copy_in(kept.back().address(), offsets.data(), offsets.size() * 8, 0);
    lengths.push_back(options.packed ? kept.back().address() : 0);
    lengths.push_back(drawn.run.reverse);
    lengths.push_back(0);
    const auto entries = [&](const CallField& f) {
      std::int64_t n = 1;
      for (const int a : f.axes) n *= drawn.run.sizes.at(cell.header[static_cast<std::size_t>(a)]);
      return n;
    };
    const auto depth = [&](const CallField& f) -> std::int64_t {
      std::vector<std::int64_t> sizes;
      for (const AxisId a : cell.header) sizes.push_back(drawn.run.sizes.at(a));
      return f.is_history() ? history_depth(f.reaches, sizes) : 1;
    };
    struct Written {
      std::size_t field;
      GpuAddress at;
      Array array;
    };
    std::vector<Written> written;
    int number = 0;
    for (std::size_t i = 0; i < layout.fields.size(); ++i) {
      const CallField& f = layout.fields[i];
      if (f.is_written() && options.only.value_or(number) != number++) continue;
      if (options.no_history && f.kind == FieldKind::StateHistory && !f.is_written()) continue;
      const std::int64_t n = entries(f), gap = f.is_rows() ? options.gap : 0;
      const Dtype type = f.is_storage() ? dtype_ : arithmetic_of(dtype_);
      const std::int64_t parts = f.is_rows() ? rows : f.kind == FieldKind::Param ? 1 : sequences * depth(f);
      Array spread(type, {parts * (n + gap)});
      if (f.is_written()) {
        for (std::int64_t k = 0; k < spread.count(); ++k) spread.set(k, 77);
      } else {
        const Array given = read(cell, directed_.fields[i], drawn, forward);
        if (given.shape().empty() && directed_.fields[i].quantity != Quantity::Value) continue;
        for (std::int64_t p = 0; p < parts; ++p)
          for (std::int64_t k = 0; k < n; ++k) spread.set(p * (n + gap) + k, given.get(p * n + k));
      }
      kept.emplace_back(gpu_, static_cast<std::size_t>(spread.count()) * size_of(type) + 16);
      if (spread.count() > 0)
        gpu_.copy_in(kept.back().address(), spread.data(), static_cast<std::size_t>(spread.count()) * size_of(type), 0);
      words[static_cast<std::size_t>(f.word)] = kept.back().address();
      if (f.is_rows() && gap) words[static_cast<std::size_t>(f.word) + 2] = static_cast<std::uint64_t>(n + gap);
      if (f.is_written()) written.push_back({i, kept.back().address(), spread});
    }
    std::int64_t bytes = 0, any = 0;
    EXPECT_EQ(device_.count_backward(backward_, lengths.data(), nullptr, &any), 0);
    EXPECT_EQ(device_.count_backward(backward_, lengths.data(), words.data(), &bytes), 0);
    EXPECT_LE(bytes, any) << "these arrays need more memory than any arrays";
    if (!options.less_memory) bytes = any;
    const GpuBuffer workspace(gpu_, static_cast<std::size_t>(bytes));
    EXPECT_EQ(device_.run_backward(backward_, lengths.data(), words.data(), workspace.address(), bytes), 0);
    std::vector<Array> result(layout.fields.size());
    for (Written& w : written) {
      const CallField& f = layout.fields[w.field];
      const std::int64_t n = entries(f), gap = f.is_rows() ? options.gap : 0;
      if (w.array.count() > 0)
        gpu_.copy_out(w.array.data(), w.at, static_cast<std::size_t>(w.array.count()) * size_of(w.array.dtype()), 0);
      const std::int64_t parts = n + gap > 0 ? w.array.count() / (n + gap) : 0;
      Array& packed = result[w.field] = Array(w.array.dtype(), {parts * n});
      for (std::int64_t p = 0; p < parts; ++p) {
        for (std::int64_t k = 0; k < n; ++k) packed.set(p * n + k, w.array.get(p * (n + gap) + k));
        for (std::int64_t k = n; k < n + gap; ++k) EXPECT_EQ(w.array.get(p * (n + gap) + k), 77) << f.member;
      }
    }
    return result;
  }

 private:
  static Array read(const CellGraph& cell, const DirectedField& field, const BackwardTrial& drawn,
                    const RunOutput& forward) {
    const auto id = static_cast<std::size_t>(field.of.id);
    const auto of = [](const std::vector<Array>& list, std::size_t i) { return i < list.size() ? list[i] : Array(); };
    const auto update_of = [&](int symbol) {
      std::size_t update = 0;
      while (update < cell.updates.size() && cell.updates[update].symbol != symbol) ++update;
      return update;
    };
    const std::size_t update = update_of(field.of.id);
    switch (field.of.kind) {
      case FieldKind::Out:
        return of(drawn.cotangents.outs, id);
      case FieldKind::Final:
        return of(drawn.cotangents.finals, update);
      case FieldKind::State:
        return of(field.quantity == Quantity::Cotangent ? drawn.cotangents.states : forward.states, update);
      case FieldKind::InputHistory:
        return drawn.run.histories[id];
      case FieldKind::StateHistory:
        return history(cell, drawn.run, field.of.id, drawn.run.symbols);
      case FieldKind::FinalStateHistory: {
        std::vector<Array> finals(cell.symbols.size());
        for (std::size_t s = 0; s < cell.symbols.size(); ++s)
          if (cell.symbols[s].lag_of == field.of.id)
            finals[s] = drawn.cotangents.finals[update_of(static_cast<int>(s))];
        return history(cell, drawn.run, field.of.id, finals);
      }
      default:
        return drawn.run.symbols[id];
    }
  }
  /// [sequences, depth, a…] of a state: what copies that lag have, and behind them the delay line.
  static Array history(const CellGraph& cell, const BoundRun& run, int state, const std::vector<Array>& copies) {
    const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
    std::int64_t depth = cell.symbols[static_cast<std::size_t>(state)].max_lag, entries = 0;
    const Array* behind = nullptr;
    std::vector<const Array*> of(static_cast<std::size_t>(depth));
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      if (symbol.lag_of == state && symbol.kind == SymbolKind::State) {
        if (static_cast<std::size_t>(symbol.lag) > of.size()) of.resize(static_cast<std::size_t>(symbol.lag));
        of[static_cast<std::size_t>(symbol.lag) - 1] = &copies[s];
      }
      if (symbol.line_of == state) behind = &run.histories[s];
    }
    if (behind) depth = behind->shape()[1] - 1;
    const Array& start = run.symbols[static_cast<std::size_t>(state)];
    if (sequences > 0) entries = start.count() / sequences;
    Array all(Dtype::F64, {sequences, depth, entries});
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t j = 0; j < depth; ++j)
        for (std::int64_t i = 0; i < entries; ++i) {
          const bool copied = static_cast<std::size_t>(j) < of.size() && of[static_cast<std::size_t>(j)];
          all.set((b * depth + j) * entries + i, copied ? of[static_cast<std::size_t>(j)]->get(b * entries + i)
                                                        : behind->get((b * (depth + 1) + j + 1) * entries + i));
        }
    return all;
  }

  Gpu& gpu_;
  const AotBackward& backward_;
  const Dtype dtype_;
  AotOnDevice device_;
  const DirectedCall directed_;
};

class ShippedGradients : public testing::TestWithParam<GradientCell> {};

TEST_P(ShippedGradients, AreThoseOfTheAdjointStepByStep) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", GetParam().text));
  const CellGraph& cell = analysed.cell;
  EmulatorOptions quick;
  quick.optimisation = 0;
  const std::unique_ptr<Gpu> gpu = open_emulator(quick);
  turns::Turn turn;
  int alone = 0;
  for (const Dtype dtype : turn.of(std::vector{Dtype::F32, Dtype::F64, Dtype::BF16})) {
    ShipRequest request;
    request.dtype = dtype;
    request.card = gpu->facts();
    request.prefix = "shipped";
    const AotCell forward(cell, analysed.structure, request);
    const AotBackward backward(cell, forward, request);
    BackwardOnDevice program(*gpu, cell, backward, dtype);
    struct Trial {
      GradientShape shape;
      std::int64_t gap = 0;
    };
    for (const auto& [shape, gap] :
         {Trial{{{0, 37, 74}, false, 3}}, Trial{{{0, 0, 5, 5, 70}, true, 5}, 2},
          Trial{{{0, 31, 63, 96, 193}, false, 3}}, Trial{{{0, 1}, true, 3}}, Trial{{{0, 0}, false, 3}},
          Trial{{{0, 600}, false, 32, false, true}}, Trial{{{0, 33, 66, 99}, true, 3}, 1}}) {
      if (shape.channels > 5 && cell.header.size() > 1) continue;  // many lanes, and no more to see
      const BackwardTrial trial(cell, shape, dtype);
      const Gradients expected = trial.expected(AdjointRun(cell, results_with(trial.cotangents)));
      bool even = true;
      for (std::size_t s = 1; s + 1 < shape.offsets.size(); ++s)
        even = even && shape.offsets[s + 1] - shape.offsets[s] == shape.offsets[1];
      BackwardOnDevice::Options how;
      how.gap = gap;
      how.packed = !even;
      const std::vector<Array> found = program.run(cell, trial, how);
      how.less_memory = true;
      const std::vector<Array> again = program.run(cell, trial, how);
      // One of them alone, as packed sequences where they need not be.
      const auto gradients = std::count_if(backward.layout().fields.begin(), backward.layout().fields.end(),
                                           [](const CallField& f) { return f.is_written(); });
      how.packed = true;
      how.only = alone++ % static_cast<int>(gradients);
      const std::vector<Array> one = program.run(cell, trial, how);
      for (std::size_t f = 0; f < found.size(); ++f) {
        const CallField& field = backward.layout().fields[f];
        if (!field.is_written()) continue;
        const auto id = static_cast<std::size_t>(field.id);
        const Array& want = field.is_history() ? expected.histories[id] : expected.symbols[id];
        const std::string what =
            fmt::format("{}, {}, {} rows, gap {}", field.member, to_string(dtype), shape.offsets.back(), gap);
        const double within = dtype == Dtype::F64 ? 1e-11 : 3e-5;
        expect_same(what, found[f], again[f], want, within);
        if (!one[f].shape().empty()) expect_same(what + ", alone", one[f], one[f], want, within);
      }
    }
  }
}

std::vector<GradientCell> shipped_cells() {
  std::vector<GradientCell> cells;
  for (const GradientCell& cell : gradient_cells())
    if (cell.shipped) cells.push_back(cell);
  return cells;
}
INSTANTIATE_TEST_SUITE_P(Cells, ShippedGradients, testing::ValuesIn(shipped_cells()),
                         [](const auto& info) { return std::string(info.param.name); });

/// A copy that lags and a delay line start as their state does where no history is given: the start has their
/// gradients.
TEST(ShippedGradientsOf, AStartHasWhatItsHistoryWouldHave) {
  const AnalysedCell analysed =
      analyse_text(SourceText("test.cell",
                              "cell echo[d] {\n  state h[d], g[d]\n  input x[d]\n  h' = 0.5*h - 0.2*lag(h, 3) + x\n"
                              "  g' = 0.3*g + 0.1*lag(g, 18)*h + 0.2*lag(g, 3)\n}\n"));
  const CellGraph& cell = analysed.cell;
  EmulatorOptions quick;
  quick.optimisation = 0;
  const std::unique_ptr<Gpu> gpu = open_emulator(quick);
  ShipRequest request;
  request.dtype = Dtype::F64;
  request.card = gpu->facts();
  request.prefix = "shipped";
  const AotCell forward(cell, analysed.structure, request);
  const AotBackward backward(cell, forward, request);
  BackwardOnDevice program(*gpu, cell, backward, Dtype::F64);
  for (const std::int64_t length : {0, 1, 2, 17, 19, 40})
    for (const bool reverse : {false, true}) {
      const BackwardTrial trial(cell, {{0, length, 2 * length}, reverse, 3, true}, Dtype::F64);
      const Gradients expected = trial.expected(AdjointRun(cell, results_with(trial.cotangents)));
      BackwardOnDevice::Options how;
      how.no_history = true;
      const std::vector<Array> found = program.run(cell, trial, how);
      for (std::size_t f = 0; f < found.size(); ++f) {
        const CallField& field = backward.layout().fields[f];
        if (!field.is_written()) continue;
        const auto id = static_cast<std::size_t>(field.id);
        Array want = field.is_history() ? expected.histories[id] : expected.symbols[id];
        if (field.kind == FieldKind::Start) {
          const Array& past = expected.histories[id];
          const std::int64_t depth = past.shape()[1], n = want.count() / 2;
          for (std::int64_t i = 0; i < past.count(); ++i) {
            const std::int64_t to = i / (depth * n) * n + i % n;
            want.set(to, want.get(to) + past.get(i));
          }
        }
        expect_same(fmt::format("{}, {} steps", field.member, length), found[f], found[f], want, 1e-12);
      }
    }
}

/// Factors of f16 would lose what is far below the least normal number of that type: nothing scales it there.
TEST(ShippedGradientsOf, F16KeepsSmallCotangents) {
  const AnalysedCell analysed = analyse_text(SourceText(
      "test.cell", "cell c[d, m=24] {\n  state h[d]\n  input x[m]\n  param W[d,m]\n  h' = 0.5*h + W@x\n}\n"));
  EmulatorOptions quick;
  quick.optimisation = 0;
  const auto gpu = open_emulator(quick);
  BackwardTrial trial(analysed.cell, {{0, 21}, false, 16}, Dtype::F16);
  for (auto* arrays : {&trial.cotangents.states, &trial.cotangents.finals})
    for (Array& a : *arrays) {
      Array small(Dtype::F32, a.shape());
      for (std::int64_t i = 0; i < a.count(); ++i) small.set(i, a.get(i) * 0x1p-30);
      a = small;
    }
  std::vector<Array> found[2];
  for (int exact = 0; exact < 2; ++exact) {
    ShipRequest request;
    request.card = gpu->facts();
    request.prefix = "shipped";
    request.dtype = Dtype::F16;
    request.factors = exact ? ProductFactors::Real : ProductFactors::F16;
    const AotCell forward(analysed.cell, analysed.structure, request);
    const AotBackward backward(analysed.cell, forward, request);
    BackwardOnDevice program(*gpu, analysed.cell, backward, Dtype::F16);
    found[exact] = program.run(analysed.cell, trial, {});
  }
  for (std::size_t f = 0; f < found[0].size(); ++f)
    for (std::int64_t i = 0; i < found[0][f].count(); ++i)
      ASSERT_NEAR(found[0][f].get(i), found[1][f].get(i), 0x1p-30 * 0.02);
}

/// Tiles of an adjoint's scan wait for the state before them, as a run's do.
TEST(ShippedGradientsOf, AnyOrderOfBlocksHaveTheSameBits) {
  // Factors near 1: maps over a tile are not the same whatever they start from.
  const AnalysedCell analysed = analyse_text(
      SourceText("test.cell", "cell near[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = (1 - 0.0001*a*a)*h + x\n}\n"));
  EmulatorOptions quick;
  quick.optimisation = 0;
  const auto gpu = open_emulator(quick);
  ShipRequest request;
  request.card = gpu->facts();
  request.prefix = "shipped";
  const AotCell forward(analysed.cell, analysed.structure, request);
  const AotBackward backward(analysed.cell, forward, request);
  BackwardOnDevice program(*gpu, analysed.cell, backward, Dtype::F32);
  const BackwardTrial trial(analysed.cell, {{0, 6500}, false, 4}, Dtype::F32);
  const std::vector<Array> first = program.run(analysed.cell, trial, {});
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    gpu->set_seed(seed);
    const std::vector<Array> again = program.run(analysed.cell, trial, {});
    for (std::size_t f = 0; f < first.size(); ++f)
      for (std::int64_t i = 0; i < first[f].count(); ++i)
        ASSERT_EQ(first[f].get(i), again[f].get(i)) << backward.layout().fields[f].member << ", seed " << seed;
  }
}

/// What the adjoint leaves for the start has the bits of a run with the same plan, where lanes that make outs besides,
/// as a run's do, compute the same numbers.
TEST(ShippedGradientsOf, AStartHaveTheBitsOfARun) {
  const AnalysedCell analysed =
      analyse_text(SourceText("test.cell", "cell plain[d] {\n  state h[d]\n  input x[d]\n  h' = 0.7*h + x\n}\n"));
  const CellGraph& cell = analysed.cell;
  EmulatorOptions quick;
  quick.optimisation = 0;
  const std::unique_ptr<Gpu> gpu = open_emulator(quick);
  WithoutClusters alike(*gpu);
  ShipRequest request;
  request.card = gpu->facts();
  request.prefix = "shipped";
  request.solver = Strategy::Sequential;
  const AotCell forward(cell, analysed.structure, request);
  const AotBackward backward(cell, forward, request);
  BackwardOnDevice program(*gpu, cell, backward, Dtype::F32);
  const BackwardTrial trial(cell, {{0, 97, 194}, false, 32}, Dtype::F32);
  const std::vector<Array> found = program.run(cell, trial, {});
  const AdjointRun adjoint(cell, results_with(trial.cotangents));
  BackwardOnGpu of_a_run(alike, cell, adjoint, Dtype::F32);
  SolveReport report;
  SolveOptions options = as_shipped();
  options.solver = Strategy::Sequential;
  const Gradients want = of_a_run.run(trial.run, trial.output, trial.cotangents, options, report);
  for (std::size_t f = 0; f < found.size(); ++f) {
    const CallField& field = backward.layout().fields[f];
    if (!field.is_written() || field.kind != FieldKind::Start) continue;
    for (std::int64_t i = 0; i < found[f].count(); ++i)
      EXPECT_EQ(found[f].get(i), want.symbols[static_cast<std::size_t>(field.id)].get(i)) << i;
  }
}

}  // namespace
}  // namespace cellc
