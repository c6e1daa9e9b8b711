// The backward call of shipped code against the plain sweep, which shares no derivative and no sum with it: every cell,
// rows with gaps, packed and reversed sequences, lengths around the blocks of steps that a call is made of, arrays that
// are not given.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "compiler/plan/call_directions.h"
#include "runtime/build/compile_driver.h"
#include "runtime/evaluate/reference.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gradients/gradient_trial.h"
#include "tests/gradients/text_cell.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// A backward call, with memory for all gradients.
class ShippedCall {
 public:
  ShippedCall(const CellGraph& cell, const CompiledDriver& driver, const Binding& binding, std::int64_t gap)
      : cell_(cell),
        driver_(driver),
        binding_(binding),
        gap_(gap),
        directed_(directed_call(cell, call_layout(cell), CallDirection::Backward)) {
    const CallLayout& layout = driver.module.layout;
    for (const AxisId a : layout.lengths) lengths_.push_back(static_cast<std::uint64_t>(run().sizes.at(a)));
    lengths_.push_back(static_cast<std::uint64_t>(binding.batch));
    lengths_.push_back(binding.packed ? 0 : static_cast<std::uint64_t>(binding.length));
    lengths_.push_back(binding.packed ? std::bit_cast<std::uint64_t>(run().offsets.data()) : 0);
    lengths_.push_back(run().reverse);
    arrays_.assign(static_cast<std::size_t>(layout.words), 0);
  }

  void give(const RunOutput& forward, const Cotangents& cotangents) {
    for (std::size_t i = 0; i < directed_.fields.size(); ++i) {
      const CallField& f = driver_.module.layout.fields[i];
      if (f.is_written()) continue;
      const Array& array = read(directed_.fields[i], forward, cotangents);
      const bool given = directed_.fields[i].quantity == Quantity::Value || !array.shape().empty();
      if (given) place(f, spread(f, convert(array, binding_.dtype)));
    }
  }
  void want() {
    for (const CallField& f : driver_.module.layout.fields) {
      if (!f.is_written()) continue;
      const std::int64_t count = f.is_rows() ? run().offsets.back() * (entries(f) + gap_) : whole(f);
      Array array(binding_.dtype, {count});
      for (std::int64_t k = 0; k < count; ++k) array.set(k, 77);
      written_.emplace_back(&f, place(f, std::move(array)));
    }
  }
  void forget(const CallField& f) { arrays_[static_cast<std::size_t>(f.word)] = 0; }

  int operator()() {
    std::int64_t bytes = -1;
    if (const int failed = driver_.workspace(lengths_.data(), &bytes)) return failed;
    std::vector<std::byte> workspace(static_cast<std::size_t>(bytes) + 64, std::byte{0x5a});
    const int result = driver_.forward(lengths_.data(), arrays_.data(), workspace.data(), bytes, nullptr);
    for (std::size_t k = static_cast<std::size_t>(bytes); k < workspace.size(); ++k)
      EXPECT_EQ(workspace[k], std::byte{0x5a}) << "past the workspace";
    return result;
  }

  /// Under the names of gradient_arrays.
  NamedArrays gradients() const {
    NamedArrays all;
    for (const auto& [field, array] : written_) {
      const std::string& name = cell_.symbols[static_cast<std::size_t>(field->id)].name;
      all.emplace_back("grad." + name + (field->kind == FieldKind::Start ? ".initial" : ""), packed(*field, *array));
    }
    return all;
  }

 private:
  const BoundRun& run() const { return binding_.run; }
  std::int64_t entries(const CallField& f) const {
    std::int64_t n = 1;
    for (const int a : f.axes) n *= run().sizes.at(cell_.header[static_cast<std::size_t>(a)]);
    return n;
  }
  std::int64_t whole(const CallField& f) const {
    return entries(f) * (f.traits().layout == FieldLayout::Once ? 1 : binding_.batch);
  }
  const Array& read(const DirectedField& field, const RunOutput& forward, const Cotangents& cotangents) const {
    static const Array none;
    const auto id = static_cast<std::size_t>(field.of.id);
    const auto of = [](const std::vector<Array>& list, std::size_t i) -> const Array& {
      return i < list.size() ? list[i] : none;
    };
    if (field.of.kind == FieldKind::Out) return of(cotangents.outs, id);
    std::size_t update = 0;
    while (update < cell_.updates.size() && cell_.updates[update].symbol != field.of.id) ++update;
    if (field.of.kind == FieldKind::Final) return of(cotangents.finals, update);
    if (field.of.kind == FieldKind::State)
      return of(field.quantity == Quantity::Cotangent ? cotangents.states : forward.states, update);
    return run().symbols[id];
  }
  /// Rows with gaps between them, and back.
  Array spread(const CallField& f, const Array& from) const {
    if (!f.is_rows() || gap_ == 0) return from;
    const std::int64_t n = entries(f), rows = run().offsets.back();
    Array to(from.dtype(), {rows * (n + gap_)});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < n; ++k) to.set(r * (n + gap_) + k, from.get(r * n + k));
    return to;
  }
  Array packed(const CallField& f, const Array& from) const {
    const std::int64_t n = entries(f), gap = f.is_rows() ? gap_ : 0,
                       rows = f.is_rows() ? run().offsets.back()
                              : n         ? whole(f) / n
                                          : 0;
    std::vector<std::int64_t> shape;
    if (f.is_rows() && binding_.packed)
      shape = {rows};
    else if (f.is_rows())
      shape = {binding_.batch, binding_.length};
    else if (f.traits().layout != FieldLayout::Once)
      shape = {binding_.batch};
    for (const int a : f.axes) shape.push_back(run().sizes.at(cell_.header[static_cast<std::size_t>(a)]));
    Array to(from.dtype(), shape);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < n; ++k) to.set(r * n + k, from.get(r * (n + gap) + k));
      for (std::int64_t k = n; k < n + gap; ++k) EXPECT_EQ(from.get(r * (n + gap) + k), 77) << f.member << ": a gap";
    }
    return to;
  }
  const Array* place(const CallField& f, Array array) {
    held_.push_back(std::make_unique<Array>(std::move(array)));
    arrays_[static_cast<std::size_t>(f.word)] = std::bit_cast<std::uint64_t>(held_.back()->data());
    if (f.is_rows())
      arrays_[static_cast<std::size_t>(f.word) + 2] = static_cast<std::uint64_t>(gap_ ? entries(f) + gap_ : 0);
    return held_.back().get();
  }

  const CellGraph& cell_;
  const CompiledDriver& driver_;
  const Binding& binding_;
  std::int64_t gap_;
  DirectedCall directed_;
  std::vector<std::uint64_t> lengths_, arrays_;
  std::vector<std::unique_ptr<Array>> held_;
  std::vector<std::pair<const CallField*, const Array*>> written_;
};

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
};

std::vector<OneCell> cells() {
  std::vector<OneCell> list;
  for (const oracle::Example& file : oracle::all_cells())
    for (const Cell& tree : file.tree.cells) list.push_back({&file, &tree});
  return list;
}

bool has_lags(const CellGraph& cell) {
  for (NodeId id = 0; id < cell.graph.size(); ++id)
    if (const Node& n = cell.graph[id]; n.op == Op::Read && (n.lag != 0 || n.lag_axis != kNoAxis)) return true;
  for (const Symbol& s : cell.symbols)
    if (s.lag_of >= 0 || s.line_of >= 0) return true;
  return false;
}

struct Shape {
  std::vector<std::int64_t> lengths, axes;
  bool packed = false, reverse = false;
  double without = 0;  ///< how often a result has no cotangent
  std::int64_t gap = 0;
};

void expect_gradients(const LoweredCell& cell, const oracle::Ranges& ranges, const CompiledDriver& driver, Dtype dtype,
                      const Shape& shape) {
  oracle::Random random(7 + shape.lengths.size());
  GradientTrial::Options options;
  options.sizes = oracle::axis_lengths(cell.oracle, shape.axes);
  options.lengths = shape.lengths;
  options.packed = shape.packed;
  options.reverse = shape.reverse;
  options.defaults_given = true;
  options.without = shape.without;
  options.dtype = dtype;
  const GradientTrial trial(cell.graph, cell.oracle, ranges, random, options);
  const Binding binding = trial.bound(dtype);
  ShippedCall call(cell.graph, driver, binding, shape.gap);
  call.give(reference_run(cell.graph, binding.run), trial.cotangents(binding));
  call.want();
  ASSERT_EQ(call(), 0);
  const AdjointRun adjoint(cell.graph, results_with(trial.cotangents(binding)));
  const NamedArrays plain = trial.swept(), made = call.gradients();
  NamedArrays gradients;  // in the other's order
  for (const auto& [name, array] : plain)
    for (const auto& own : made)
      if (own.first == name) gradients.push_back(own);
  ASSERT_EQ(gradients.size(), made.size());
  ASSERT_EQ(gradients.size(), plain.size());
  EXPECT_LE(times_allowed(gradients, plain, dtype == Dtype::F64 ? 1e-11 : 2e-5,
                          trial.spread(adjoint, trial.reference(adjoint), dtype)),
            1)
      << cell.graph.name << ", " << fmt::format("{}", shape.lengths.size()) << " sequences, gap " << shape.gap;
}

class ShippedBackward : public testing::TestWithParam<OneCell> {};

TEST_P(ShippedBackward, IsThePlainSweep) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector{Dtype::F64, Dtype::F32})) {
    CompileOptions compile;
    compile.dtype = dtype;
    if (has_lags(cell.graph)) {
      EXPECT_THROW(compile_backward_driver(cell.graph, compile), std::invalid_argument);
      continue;
    }
    const CompiledDriver driver = compile_backward_driver(cell.graph, compile);
    for (const Shape& shape :
         {Shape{{34, 34}, {3, 2, 3, 2}, false, false, 0, 0}, Shape{{5, 0, 1, 33}, {2, 3, 4, 2}, true, true, 0.4, 3},
          Shape{{1}, {1, 1, 1, 1}, false, true, 0, 2}, Shape{{0, 0}, {3, 2, 2, 2}, false, false, 0, 0}})
      expect_gradients(cell, file->ranges, driver, dtype, shape);
  }
}

TEST(ShippedBackwardOf, AnInputThatNothingDependsOnIsZeros) {
  const TextCell text("cell still[d] {\n  state h[d]\n  input x[d], u[d]\n  h' = 0.5*h + stop_gradient(x) + u\n}\n");
  const CompiledDriver driver = compile_backward_driver(text.cell.graph, {.dtype = Dtype::F64});
  for (const std::int64_t gap : {0, 2})
    expect_gradients(text.cell, {}, driver, Dtype::F64, {{34, 3}, {3}, true, gap > 0, 0, gap});
}

CELLC_ONE_IN(3, "Cells/ShippedBackward");
INSTANTIATE_TEST_SUITE_P(Cells, ShippedBackward, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });

}  // namespace
}  // namespace cellc
