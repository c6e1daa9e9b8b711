// The backward call of shipped code against the plain sweep, which shares no derivative and no sum with it: every cell,
// rows with gaps, packed and reversed sequences, lengths around the blocks of steps that a call is made of, arrays that
// are not given.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "runtime/evaluate/reference.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gradients/shipped_call.h"
#include "tests/gradients/text_cell.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

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
