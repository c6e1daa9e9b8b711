// Shipped gradients for GPUs: the tables that `cellc build --backward` prints, as they stand in memory, on the
// emulator, against the adjoint step after step in f64, whose sums share no code with the kernels'.
#include "runtime/cuda/ship/aot_backward.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "compiler/front_end.h"
#include "compiler/plan/call_directions.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/data/bind.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/sum_axes.h"
#include "tests/emulator/emulator.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct TestCell {
  const char* name;
  const char* text;
};
const TestCell kCells[] = {
    {"gru", R"(cell gru[d] {
  state h[d] = 0.5
  input xz[d], xr[d], xc[d]
  param az[d], ar[d], ac[d]
  z = sigmoid(az*h + xz)
  r = sigmoid(ar*h + xr)
  c = tanh(ac*(r*h) + xc)
  h' = (1 - z)*h + z*c
})"},
    {"linear", R"(cell linear[d] {
  state h[d]
  input a[d] in (0.5, 0.99), x[d], still[d]
  param unused[d]
  h' = a*h + x + stop_gradient(still)
  out y[d] = h'*x
})"},
    {"dense", R"(cell dense[d, m] {
  state h[d]
  input x[m]
  param W[d,m], U[d,d], b[d], scale = 0.5
  h' = tanh(W@x + 0.3*(U@h) + 0.2*(h@U) + scale*b)
  out y[m] = h'@W
})"},
    {"heads", R"(cell heads[k, d, n=2] {
  state h[k,d,n]
  input u[k,d], B[k,n], C[n]
  param A[k,n] in (0.1, 0.9), D[d], P[d,n]
  h' = A*h + B*u + 0.1*P
  out y[k,d] = sum[n](C*h') + D*u
})"},
    {"stages", R"(cell stages[d] {
  state a[d], b[d]
  input x[d]
  param p, q[d] = 0.7
  a' = 0.9*a + p*x
  b' = q*b + relu(a')*x
  out y = sum[d](b)
})"},
};

void sum_plainly(const StepSum& sum) {
  const SumAxes axes = sum_axes(sum);
  const std::int64_t rows = sum.left.shape()[0];
  const std::int64_t left_row = rows ? sum.left.count() / rows : 0,
                     right_row = rows && sum.right ? sum.right->count() / rows : 0;
  std::vector<AxisStrides> all;
  for (const auto* part : {&axes.shared, &axes.left, &axes.right, &axes.summed, &axes.repeated})
    all.insert(all.end(), part->begin(), part->end());
  for (std::int64_t row = 0; row < rows; ++row)
    each_position(all, [&](std::int64_t l, std::int64_t r, std::int64_t into) {
      const double term = sum.left.get(row * left_row + l) * (sum.right ? sum.right->get(row * right_row + r) : 1.0);
      sum.into.set(into, sum.into.get(into) + term);
    });
}

/// A run, and cotangents of all that it writes.
struct Drawn {
  BoundRun run;
  Cotangents cotangents;
};

Drawn draw(const CellGraph& cell, const std::vector<std::int64_t>& offsets, bool reverse, std::int64_t channels,
           Dtype dtype) {
  Drawn all;
  BoundRun& run = all.run;
  run.offsets = offsets;
  run.reverse = reverse;
  std::int64_t length = channels - 2;
  for (const AxisId a : cell.header) run.sizes[a] = cell.graph.axis(a).fixed.value_or(length += 2);
  run.histories.resize(cell.symbols.size());
  const std::int64_t rows = offsets.back(), sequences = static_cast<std::int64_t>(offsets.size()) - 1;
  std::uint64_t seed = 1;
  const auto drawn = [&](std::vector<std::int64_t> before, const std::vector<AxisId>& axes, double low, double high,
                         Dtype of) {
    for (const std::int64_t n : lengths(cell, run, axes)) before.push_back(n);
    Array array(of, before);
    fill_uniform(array, ++seed, "x", low, high);
    return convert(array, Dtype::F64);
  };
  for (const Symbol& symbol : cell.symbols) {
    std::vector<std::int64_t> first;
    if (symbol.kind == SymbolKind::Input) first = {rows};
    if (symbol.kind == SymbolKind::State) first = {sequences};
    run.symbols.push_back(drawn(first, symbol.axes, symbol.range ? symbol.range->low : -1,
                                symbol.range ? symbol.range->high : 1,
                                symbol.kind == SymbolKind::Input ? dtype : arithmetic_of(dtype)));
  }
  for (const StateUpdate& u : cell.updates) {
    all.cotangents.states.push_back(drawn({rows}, cell.symbol_of(u).axes, -1, 1, dtype));
    all.cotangents.finals.push_back(drawn({sequences}, cell.symbol_of(u).axes, -1, 1, arithmetic_of(dtype)));
  }
  for (const Out& out : cell.outs) all.cotangents.outs.push_back(drawn({rows}, out.index, -1, 1, dtype));
  return all;
}

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
  };

  /// By field: what was written, as rows without gaps. Arrays without a shape are not given.
  std::vector<Array> run(const CellGraph& cell, const Drawn& drawn, const RunOutput& forward, const Options& options) {
    const CallLayout& layout = backward_.layout();
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
      const std::int64_t n = entries(f), gap = f.is_rows() ? options.gap : 0;
      const Dtype type = f.is_storage() ? dtype_ : arithmetic_of(dtype_);
      const std::int64_t parts = f.is_rows() ? rows : f.kind == FieldKind::Param ? 1 : sequences;
      Array spread(type, {parts * (n + gap)});
      if (f.is_written()) {
        for (std::int64_t k = 0; k < spread.count(); ++k) spread.set(k, 77);
      } else {
        const Array& given = read(cell, directed_.fields[i], drawn, forward);
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
  static const Array& read(const CellGraph& cell, const DirectedField& field, const Drawn& drawn,
                           const RunOutput& forward) {
    static const Array none;
    const auto id = static_cast<std::size_t>(field.of.id);
    const auto of = [](const std::vector<Array>& list, std::size_t i) -> const Array& {
      return i < list.size() ? list[i] : none;
    };
    std::size_t update = 0;
    while (update < cell.updates.size() && cell.updates[update].symbol != field.of.id) ++update;
    if (field.of.kind == FieldKind::Out) return of(drawn.cotangents.outs, id);
    if (field.of.kind == FieldKind::Final) return of(drawn.cotangents.finals, update);
    if (field.of.kind == FieldKind::State)
      return of(field.quantity == Quantity::Cotangent ? drawn.cotangents.states : forward.states, update);
    return drawn.run.symbols[id];
  }

  Gpu& gpu_;
  const AotBackward& backward_;
  const Dtype dtype_;
  AotOnDevice device_;
  const DirectedCall directed_;
};

class ShippedGradients : public testing::TestWithParam<std::size_t> {};

TEST_P(ShippedGradients, AreThoseOfTheAdjointStepByStep) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", kCells[GetParam()].text));
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
    struct Shape {
      std::vector<std::int64_t> offsets;
      bool reverse;
      std::int64_t channels, gap = 0;
      bool some = false;  ///< a result without a cotangent
    };
    for (const Shape& shape : {Shape{{0, 37, 74}, false, 3}, Shape{{0, 0, 5, 5, 70}, true, 5, 2},
                               Shape{{0, 31, 63, 96, 193}, false, 3}, Shape{{0, 1}, true, 3}, Shape{{0, 0}, false, 3},
                               Shape{{0, 600}, false, 32, 0, true}, Shape{{0, 33, 66, 99}, true, 3, 1}}) {
      if (shape.channels > 5 && cell.header.size() > 1) continue;  // many lanes, and no more to see
      Drawn drawn = draw(cell, shape.offsets, shape.reverse, shape.channels, dtype);
      if (shape.some) drawn.cotangents.states[0] = Array();
      RunOutput output = reference_run(cell, drawn.run);
      for (Array& rows : output.states) rows = convert(convert(rows, dtype), Dtype::F64);
      const AdjointRun adjoint(cell, results_with(drawn.cotangents));
      const BoundRun bound = adjoint.bind(drawn.run, output, drawn.cotangents, Dtype::F64);
      const Gradients expected = adjoint.gather(drawn.run, bound, reference_run(adjoint.cell(), bound), sum_plainly);
      bool even = true;
      for (std::size_t s = 1; s + 1 < shape.offsets.size(); ++s)
        even = even && shape.offsets[s + 1] - shape.offsets[s] == shape.offsets[1];
      BackwardOnDevice::Options how;
      how.gap = shape.gap;
      how.packed = !even;
      const std::vector<Array> found = program.run(cell, drawn, output, how);
      how.less_memory = true;
      const std::vector<Array> again = program.run(cell, drawn, output, how);
      // One of them alone, as packed sequences where they need not be.
      const auto gradients = std::count_if(backward.layout().fields.begin(), backward.layout().fields.end(),
                                           [](const CallField& f) { return f.is_written(); });
      how.packed = true;
      how.only = alone++ % static_cast<int>(gradients);
      const std::vector<Array> one = program.run(cell, drawn, output, how);
      for (std::size_t f = 0; f < found.size(); ++f) {
        const CallField& field = backward.layout().fields[f];
        if (!field.is_written()) continue;
        const Array& want = expected.symbols[static_cast<std::size_t>(field.id)];
        ASSERT_EQ(found[f].count(), want.count()) << field.member;
        double size = 0;
        for (std::int64_t i = 0; i < want.count(); ++i) size = std::max(size, std::abs(want.get(i)));
        for (std::int64_t i = 0; i < want.count(); ++i) {
          ASSERT_NEAR(found[f].get(i), want.get(i), (dtype == Dtype::F64 ? 1e-11 : 3e-5) * (size + 1e-30))
              << field.member << "[" << i << "], " << to_string(dtype) << ", "
              << fmt::format("{}", shape.offsets.back()) << " rows, gap " << shape.gap;
          ASSERT_EQ(found[f].get(i), again[f].get(i)) << field.member << ": other bits the second time";
          if (one[f].shape().empty()) continue;
          ASSERT_NEAR(one[f].get(i), want.get(i), (dtype == Dtype::F64 ? 1e-11 : 3e-5) * (size + 1e-30))
              << field.member << " alone";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, ShippedGradients, testing::Range(std::size_t{0}, std::size(kCells)),
                         [](const auto& info) { return kCells[info.param].name; });

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
  const Drawn drawn = draw(cell, {0, 97, 194}, false, 32, Dtype::F32);
  RunOutput output = reference_run(cell, drawn.run);
  for (Array& rows : output.states) rows = convert(convert(rows, Dtype::F32), Dtype::F64);
  const std::vector<Array> found = program.run(cell, drawn, output, {});
  const AdjointRun adjoint(cell, results_with(drawn.cotangents));
  BackwardOnGpu of_a_run(alike, cell, adjoint, Dtype::F32);
  SolveReport report;
  SolveOptions options = as_shipped();
  options.solver = Strategy::Sequential;
  const Gradients want = of_a_run.run(drawn.run, output, drawn.cotangents, options, report);
  for (std::size_t f = 0; f < found.size(); ++f) {
    const CallField& field = backward.layout().fields[f];
    if (!field.is_written() || field.kind != FieldKind::Start) continue;
    for (std::int64_t i = 0; i < found[f].count(); ++i)
      EXPECT_EQ(found[f].get(i), want.symbols[static_cast<std::size_t>(field.id)].get(i)) << i;
  }
}

TEST(ShippedGradientsOf, LagsAreRefused) {
  const AnalysedCell analysed = analyse_text(
      SourceText("test.cell", "cell late[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + lag(x, 1)\n}\n"));
  ShipRequest request;
  request.prefix = "late";
  const std::unique_ptr<Gpu> gpu = open_emulator({});
  request.card = gpu->facts();
  const AotCell forward(analysed.cell, analysed.structure, request);
  try {
    const AotBackward backward(analysed.cell, forward, request);
    ADD_FAILURE() << "was built";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("reads x at a lag"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("build it for a CPU"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace cellc
