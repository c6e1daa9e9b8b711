// The backward call of shipped code against the plain sweep, which shares no derivative and no sum with it: every cell,
// rows with gaps, packed and reversed sequences, lengths around the blocks of steps that a call is made of, arrays that
// are not given.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>

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
      const Array array = read(directed_.fields[i], forward, cotangents);
      const bool given = directed_.fields[i].quantity == Quantity::Value || !array.shape().empty();
      if (given) place(f, spread(f, convert(array, f.is_storage() ? binding_.dtype : arithmetic_of(binding_.dtype))));
    }
  }
  void want() {
    for (const CallField& f : driver_.module.layout.fields) {
      if (!f.is_written()) continue;
      const std::int64_t count = f.is_rows() ? run().offsets.back() * (entries(f) + gap_) : whole(f);
      Array array(arithmetic_of(binding_.dtype), {count});
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
      const char* suffix = field->kind == FieldKind::Start ? ".initial" : field->is_history() ? ".lag" : "";
      all.emplace_back("grad." + name + suffix, packed(*field, *array));
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
    return entries(f) * (f.traits().layout == FieldLayout::Once ? 1 : binding_.batch) * depth(f);
  }
  std::int64_t depth(const CallField& f) const {
    if (!f.is_history()) return 1;
    std::vector<std::int64_t> lengths;
    for (const AxisId a : cell_.header) lengths.push_back(run().sizes.at(a));
    return history_depth(f.reaches, lengths);
  }
  /// [N, n, a…] of a state, from what `of` has of its copies that lag and, behind them, from its delay line; without a
  /// shape where `of` has nothing.
  Array history(const CallField& f, const std::function<const Array&(int symbol)>& of) const {
    const std::int64_t n = depth(f), size = entries(f);
    Array all(Dtype::F64, {binding_.batch, n, size});
    bool any = false;
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
      if (symbol.line_of == f.id && f.kind == FieldKind::StateHistory) {
        const Array& line = run().histories[static_cast<std::size_t>(s)];
        for (std::int64_t b = 0; b < binding_.batch; ++b)
          for (std::int64_t k = 0; k < n * size; ++k) all.set(b * n * size + k, line.get((b * (n + 1) + 1) * size + k));
        any = true;
      }
    }
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
      if (symbol.lag_of != f.id || of(s).shape().empty()) continue;
      for (std::int64_t b = 0; b < binding_.batch; ++b)
        for (std::int64_t k = 0; k < size; ++k) all.set((b * n + symbol.lag - 1) * size + k, of(s).get(b * size + k));
      any = true;
    }
    return any ? all : Array();
  }
  std::size_t update_of(int symbol) const {
    std::size_t update = 0;
    while (update < cell_.updates.size() && cell_.updates[update].symbol != symbol) ++update;
    return update;
  }
  Array read(const DirectedField& field, const RunOutput& forward, const Cotangents& cotangents) const {
    static const Array none;
    const auto id = static_cast<std::size_t>(field.of.id);
    const auto of = [](const std::vector<Array>& list, std::size_t i) -> const Array& {
      return i < list.size() ? list[i] : none;
    };
    if (field.of.kind == FieldKind::Out) return of(cotangents.outs, id);
    if (field.of.kind == FieldKind::InputHistory) return run().histories[id];
    if (field.of.kind == FieldKind::StateHistory)
      return history(field.of, [&](int s) -> const Array& { return run().symbols[static_cast<std::size_t>(s)]; });
    if (field.of.kind == FieldKind::FinalStateHistory)
      return history(field.of, [&](int s) -> const Array& { return of(cotangents.finals, update_of(s)); });
    const std::size_t update = update_of(field.of.id);
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
    if (f.is_history()) shape.push_back(depth(f));
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

/// Rows of 16 bits: the gradients of an f32 call on the same numbers, to the bit.
void expect_gradients_of_f32(const LoweredCell& cell, const oracle::Ranges& ranges, const CompiledDriver& of_narrow,
                             const CompiledDriver& of_f32, Dtype dtype, const Shape& shape) {
  oracle::Random random(11);
  GradientTrial::Options options;
  options.sizes = oracle::axis_lengths(cell.oracle, shape.axes);
  options.lengths = shape.lengths;
  options.packed = shape.packed;
  options.reverse = shape.reverse;
  options.defaults_given = true;
  options.without = shape.without;
  options.dtype = dtype;
  const GradientTrial trial(cell.graph, cell.oracle, ranges, random, options);
  const Binding plain = trial.bound(Dtype::F64);
  RunOutput forward = reference_run(cell.graph, plain.run);
  for (Array& rows : forward.states) rows = convert(rows, dtype);
  std::vector<NamedArrays> found;
  for (const Dtype of : {dtype, Dtype::F32}) {
    const Binding binding = trial.bound(of);
    ShippedCall call(cell.graph, of == dtype ? of_narrow : of_f32, binding, shape.gap);
    call.give(forward, trial.cotangents(plain));
    call.want();
    ASSERT_EQ(call(), 0);
    found.push_back(call.gradients());
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  for (std::size_t a = 0; a < found[0].size(); ++a) {
    const Array &narrow = found[0][a].second, &wide = found[1][a].second;
    ASSERT_EQ(narrow.shape(), wide.shape());
    for (std::int64_t i = 0; i < narrow.count(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(narrow.get(i)), std::bit_cast<std::uint64_t>(wide.get(i)))
          << found[0][a].first << " " << i << ": " << narrow.get(i) << ", " << wide.get(i);
  }
}

class ShippedBackward : public testing::TestWithParam<OneCell> {};

TEST_P(ShippedBackward, IsThePlainSweep) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector{Dtype::F64, Dtype::F32})) {
    CompileOptions compile;
    compile.dtype = dtype;
    const CompiledDriver driver = compile_backward_driver(cell.graph, compile);
    for (const Shape& shape :
         {Shape{{34, 34}, {3, 2, 3, 2}, false, false, 0, 0}, Shape{{5, 0, 1, 33}, {2, 3, 4, 2}, true, true, 0.4, 3},
          Shape{{1}, {1, 1, 1, 1}, false, true, 0, 2}, Shape{{0, 0}, {3, 2, 2, 2}, false, false, 0, 0}})
      expect_gradients(cell, file->ranges, driver, dtype, shape);
  }
}

class ShippedNarrowBackward : public testing::TestWithParam<OneCell> {};

TEST_P(ShippedNarrowBackward, IsThatOfTheSameNumbersInF32) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector{Dtype::F16, Dtype::BF16})) {
    CompileOptions compile;
    const CompiledDriver of_f32 = compile_backward_driver(cell.graph, compile);
    compile.dtype = dtype;
    const CompiledDriver driver = compile_backward_driver(cell.graph, compile);
    for (const Shape& shape :
         {Shape{{34, 34}, {3, 2, 3, 2}, false, false, 0, 0}, Shape{{5, 0, 1, 33}, {2, 3, 4, 2}, true, true, 0.4, 3}})
      expect_gradients_of_f32(cell, file->ranges, driver, of_f32, dtype, shape);
  }
}

// A copy that lags and a delay line start as their state does where no history is given: the start has their gradients.
TEST(ShippedBackwardOf, AStartHasWhatItsHistoryWouldHave) {
  const TextCell text(
      "cell echo[d] {\n  state h[d], g[d]\n  input x[d]\n  h' = 0.5*h - 0.2*lag(h, 3) + x\n"
      "  g' = 0.3*g + 0.1*lag(g, 18) + h\n}\n");
  const CompiledDriver driver = compile_backward_driver(text.cell.graph, {.dtype = Dtype::F64});
  oracle::Random random(5);
  for (const std::int64_t length : {0, 1, 2, 17, 19, 40}) {
    GradientTrial::Options options;
    options.sizes = {{"d", 3}};
    options.lengths = {length, length};
    options.starts_given = false;
    const GradientTrial trial(text.cell.graph, text.cell.oracle, {}, random, options);
    const Binding binding = trial.bound(Dtype::F64);
    ShippedCall call(text.cell.graph, driver, binding, 0);
    call.give(reference_run(text.cell.graph, binding.run), trial.cotangents(binding));
    call.want();
    for (const CallField& f : driver.module.layout.fields)
      if (f.kind == FieldKind::StateHistory && !f.is_written()) call.forget(f);
    ASSERT_EQ(call(), 0);
    for (const auto& [name, array] : trial.swept())
      for (const auto& [own, found] : call.gradients()) {
        if (own != name || name.find(".lag") != std::string::npos) continue;
        ASSERT_EQ(found.count(), array.count());
        for (std::int64_t i = 0; i < array.count(); ++i)
          EXPECT_NEAR(found.get(i), array.get(i), 1e-12) << name << ", " << length << " steps";
      }
  }
}

TEST(ShippedBackwardOf, AnInputThatNothingDependsOnIsZeros) {
  const TextCell text("cell still[d] {\n  state h[d]\n  input x[d], u[d]\n  h' = 0.5*h + stop_gradient(x) + u\n}\n");
  const CompiledDriver driver = compile_backward_driver(text.cell.graph, {.dtype = Dtype::F64});
  for (const std::int64_t gap : {0, 2})
    expect_gradients(text.cell, {}, driver, Dtype::F64, {{34, 3}, {3}, true, gap > 0, 0, gap});
}

CELLC_ONE_IN(12, "Cells/ShippedNarrowBackward");
INSTANTIATE_TEST_SUITE_P(Cells, ShippedNarrowBackward, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });
CELLC_ONE_IN(3, "Cells/ShippedBackward");
INSTANTIATE_TEST_SUITE_P(Cells, ShippedBackward, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });

}  // namespace
}  // namespace cellc
