// Backward calls of shipped code whose sequences lie side by side in vectors, against the same calls one sequence after
// another: rows, starts and histories have the same bits, and gradients of params, which lanes add up in another order,
// those of a sum in f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "runtime/evaluate/reference.h"
#include "tests/gradients/shipped_call.h"
#include "tests/gradients/text_cell.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Batch {
  std::vector<std::int64_t> lengths;
  bool packed = false, reverse = false;
  std::int64_t gap = 0;
  double without = 0;  ///< how often a result has no cotangent
};

/// Lengths that have nothing to do with each other, some of them 0 and one long.
std::vector<std::int64_t> ragged(std::size_t sequences) {
  std::vector<std::int64_t> lengths;
  std::uint32_t seed = 1;
  for (std::size_t s = 0; s < sequences; ++s) {
    seed = seed * 1664525u + 1013904223u;
    lengths.push_back(s % 5 == 3 ? 0 : s == 4 ? 500 : seed >> 25);
  }
  return lengths;
}

std::vector<Batch> batches() {
  const auto equal = [](std::size_t sequences, std::int64_t length) {
    return std::vector<std::int64_t>(sequences, length);
  };
  return {{equal(16, 257), false, false, 0, 0},
          {equal(67, 70), false, true, 2, 0.4},
          {ragged(90), true, false, 0, 0},
          {ragged(75), true, true, 3, 0.4}};
}

const char* const kCells[] = {
    // Each of several entries, which a step mixes; gradients of params with and without its axis.
    "cell gates[d] {\n  state c[d], h[d]\n  input x[d], u[d]\n  param a[d], b, w in (0.2, 0.9)\n"
    "  c' = sigmoid(a*h + x)*c + tanh(b*u)\n  h' = tanh(c')*w\n  out y = h'*u + a\n}\n",
    // What steps read of others, with histories: of an input by two lags, of a state's copies.
    "cell echo[d] {\n  state h[d]\n  input x[d]\n  param a in (-0.5, 0.5), b in (-0.4, 0.4)\n"
    "  h' = a*h + b*lag(h, 2) + x*lag(x, 1) - 0.3*lag(x, 3)\n}\n",
    // An input that nothing depends on, and a param that nothing reads.
    "cell still[d] {\n  state h[d]\n  input x[d], u[d]\n  param a, unused[d]\n"
    "  h' = 0.5*h + a*stop_gradient(x) + tanh(u)\n}\n",
};

class SideBySideBackward : public testing::TestWithParam<int> {};

TEST_P(SideBySideBackward, IsOneSequenceAfterAnother) {
  const TextCell text(kCells[GetParam()]);
  const CellGraph& cell = text.cell.graph;
  turns::Turn turn;
  const std::vector<Dtype> dtypes = turn.of(std::vector{Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16});
  const std::vector<const char*> machines = turn.of(std::vector<const char*>{"x86-64-v2", "x86-64-v3", "native"});
  for (const Dtype dtype : dtypes)
    for (const char* machine : machines)
      for (const std::int64_t channels : turn.of(std::vector<std::int64_t>{1, 2})) {
        CompileOptions compile;
        compile.dtype = dtype;
        compile.cpu = machine;
        compile.own_products = true;
        const CompiledDriver driver = compile_backward_driver(cell, compile, true);
        for (const Batch& batch : batches()) {
          SCOPED_TRACE(fmt::format("{} {} on '{}': {} sequences, {} channels, reverse={} packed={} gap={}", cell.name,
                                   to_string(dtype), machine, batch.lengths.size(), channels, batch.reverse,
                                   batch.packed, batch.gap));
          oracle::Random random(7);
          GradientTrial::Options options;
          options.sizes = oracle::axis_lengths(text.cell.oracle, {channels});
          options.lengths = batch.lengths;
          options.packed = batch.packed;
          options.reverse = batch.reverse;
          options.defaults_given = true;
          options.without = batch.without;
          options.dtype = dtype;
          const GradientTrial trial(cell, text.cell.oracle, {}, random, options);
          const Binding binding = trial.bound(dtype);
          RunOutput forward = reference_run(cell, trial.bound(Dtype::F64).run);
          for (Array& rows : forward.states) rows = convert(rows, dtype);
          const Cotangents cotangents = trial.cotangents(binding);
          const auto gradients = [&](bool side_by_side) {
            ShippedCall call(cell, driver, binding, batch.gap);
            call.give(forward, cotangents);
            call.want();
            const std::int64_t room = call.room(side_by_side ? -1 : 1);
            EXPECT_EQ(room > call.room(1), side_by_side && may_lie_side_by_side(cell, {channels}, binding.batch,
                                                                                binding.run.offsets.back()));
            EXPECT_EQ(call.run_in(room), 0);
            return call.gradients();
          };
          const NamedArrays plain = gradients(false), lanes = gradients(true);
          ASSERT_EQ(plain.size(), lanes.size());
          for (std::size_t a = 0; a < plain.size(); ++a) {
            const auto& [name, want] = plain[a];
            const Array& found = lanes[a].second;
            const std::string of = name.substr(name.find('.') + 1);
            bool of_param = false;
            for (const Symbol& s : cell.symbols) of_param = of_param || (s.kind == SymbolKind::Param && s.name == of);
            double most = 0;
            for (std::int64_t i = 0; i < want.count(); ++i) most = std::max(most, std::abs(want.get(i)));
            // Sums in f64 of terms about as large as these, of which several channels of a step are added up before,
            // in the numbers of the call: 5,000 roundings to f32.
            const double near = (1 + most) * (dtype == Dtype::F64 ? 1e-12 : channels > 1 ? 4e-6 : 2e-7);
            for (std::int64_t i = 0; i < want.count(); ++i) {
              const double x = found.get(i), y = want.get(i);
              ASSERT_TRUE(of_param ? std::abs(x - y) <= near
                                   : std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y))
                  << name << " " << i << ": " << x << ", one after another " << y;
            }
          }
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Cells, SideBySideBackward, testing::Range(0, static_cast<int>(std::size(kCells))));

TEST(SideBySideBackwardOf, StepsThatAreElementwise) {
  const auto may = [](const std::string& text) { return has_side_by_side(TextCell(text).cell.graph, true); };
  // Of several channels a param without their axis sums up products of each step.
  EXPECT_TRUE(may("cell a[d] {\n state h[d]\n input x[d]\n param w\n h' = tanh(w*h + lag(x, 2))\n}\n"));
  // The gradient of h is a sum.
  EXPECT_FALSE(may("cell a[d] {\n state h\n input x\n param w[d]\n h' = tanh(h + x)\n out y = h*w\n}\n"));
  EXPECT_FALSE(may("cell a[d] {\n state h[d]\n input x\n h' = x + h\n}\n"));
  EXPECT_FALSE(may("cell a {\n state h\n input x\n h' = x + 0.5*lag(h, 900)\n}\n"));
}

}  // namespace
}  // namespace cellc
