// Derivatives of whole runs: tangents against central differences of the oracle, adjoints against tangents, and
// products with Hessians against differences of gradients, for every example, the cells of tests/cells and random ones.
// A failure of a random cell prints the smallest that still fails and how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='RandomGradients.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/syntax/parse.h"
#include "runtime/cpu/sum_over_steps.h"
#include "runtime/data/bind.h"
#include "tests/engines/gradient_trial.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

class GradientsOf : public testing::TestWithParam<std::string> {
 protected:
  template <typename Failure>
  GradientCounts each_cell(Failure&& failure) {
    turns::Turn turn;
    const std::vector<By> engines = turn.of(std::vector<By>{By::Reference, By::Solver});
    const oracle::Example& file = oracle::example_named(GetParam());
    GradientCounts counts;
    for (const Cell& tree : file.tree.cells)
      for (const By by : engines) {
        const LoweredCell cell(file.source, file.tree, tree);
        oracle::Random random(17);
        EXPECT_EQ(failure(cell, file.ranges, by, random, counts), "")
            << tree.name << (by == By::Solver ? ", by the solver" : ", by the reference");
      }
    RecordProperty("compared", static_cast<int>(counts.compared));
    RecordProperty("kinked", static_cast<int>(counts.kinked));
    return counts;
  }
};

TEST_P(GradientsOf, TangentsAreDifferences) { each_cell(tangent_failure); }
TEST_P(GradientsOf, AdjointsAreTransposes) { each_cell(dot_failure); }
TEST_P(GradientsOf, HessianProductsAreDifferences) { each_cell(hessian_failure); }

INSTANTIATE_TEST_SUITE_P(Examples, GradientsOf, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(3, "Examples/GradientsOf");

TEST(RandomGradients, AgreeWithDifferencesAndEachOther) {
  turns::Turn turn;
  const generate::Seeds seeds(240, turn.part(4));
  GradientCounts tangents, dots, hessians;
  const auto failure = [&](const std::string& text, std::uint64_t seed, bool again) {
    GradientCounts unused;
    return try_cell(text, [&](const SourceText&, const LoweredCell& cell) -> std::string {
      oracle::Random random(seed);
      const By by = seed % 8 == 0 ? By::Solver : By::Reference;
      if (std::string wrong = tangent_failure(cell, {}, by, random, again ? unused : tangents); !wrong.empty())
        return wrong;
      if (std::string wrong = dot_failure(cell, {}, by, random, again ? unused : dots); !wrong.empty()) return wrong;
      return seed % 4 == 0 ? hessian_failure(cell, {}, by, random, again ? unused : hessians) : std::string();
    });
  };
  const auto text_of = [](std::uint64_t seed) {
    return seed % 2 ? generate::random_cell(seed) : generate::random_cell_with_defaults(seed);
  };
  generate::try_seeds(seeds, text_of, failure, "test_engines --gtest_filter='RandomGradients.*'",
                      [](const std::string& what) { ADD_FAILURE() << what; });
  if (seeds.first_given || seeds.count_given) return;
  EXPECT_GE(dots.cells, static_cast<int>(seeds.count * 8 / 10));
  EXPECT_GE(tangents.compared, tangents.kinked) << "most of what is compared is smooth";
  EXPECT_GE(hessians.compared, hessians.kinked);
}

/// A start that bends: the second derivative flows through it too.
TEST(Gradients, HessianProductsFlowThroughStarts) {
  const SourceText source("starts.cell",
                          "cell starts[d] {\n  input x[d]\n  param p[d]\n  param q[d]\n"
                          "  state h[d] = tanh(p)*q*exp(0.3*p)\n  h' = tanh(q*lag(h,1) + x*h)\n  out y = h'*p\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  const RunCell run = run_by(By::Reference);
  const std::vector<double> p{0.3, -0.7}, v{1, 0.4};
  const auto binding_at = [&](double by) {
    BindRequest request;
    request.dtype = Dtype::F64;
    request.random_seed = 5;
    request.batch = 2;
    request.length = 4;
    request.threads = 1;
    Array array(Dtype::F64, {2});
    for (int i = 0; i < 2; ++i) array.set(i, p[static_cast<std::size_t>(i)] + by * v[static_cast<std::size_t>(i)]);
    request.params["p"] = {"test", array};
    request.dims["d"] = 2;
    return bind(cell.graph, request);
  };
  const auto number = static_cast<std::size_t>(cell.graph.find_symbol("p"));
  GivenSymbols given{std::vector<bool>(cell.graph.symbols.size()), std::vector<bool>(cell.graph.symbols.size())};
  given.symbols[number] = true;
  const auto cotangents_of = [&](const RunOutput& output) {
    Cotangents c;
    c.states.resize(cell.graph.updates.size());
    c.finals.resize(cell.graph.updates.size());
    c.outs = {convert(output.outs[0], Dtype::F64)};
    return c;
  };
  const auto gradient_at = [&](double by) {
    const BoundRun bound = binding_at(by).run;
    const RunOutput output = run(cell.graph, cell.structure, bound);
    const Cotangents cotangents = cotangents_of(output);
    const AdjointRun adjoint(cell.graph, results_with(cotangents));
    const BoundRun arrays = adjoint.bind(bound, output, cotangents, Dtype::F64);
    Gradients gradients =
        adjoint.gather(bound, arrays, run(adjoint.cell(), adjoint.structure(), arrays), sum_over_steps);
    through_defaults(cell.graph, bound, given, gradients);
    return gradients.symbols[number];
  };
  const BoundRun bound = binding_at(0).run;
  const RunOutput output = run(cell.graph, cell.structure, bound);
  Tangents direction(cell.graph);
  direction.symbols[number] = Array(Dtype::F64, {2});
  for (int i = 0; i < 2; ++i) direction.symbols[number].set(i, v[static_cast<std::size_t>(i)]);
  const HessianProduct found = hessian_vector_product(cell.graph, bound, output, given, cotangents_of(output),
                                                      direction, cotangents_of, Dtype::F64, run, sum_over_steps);
  const double reach = 1e-4;
  const Array plus = gradient_at(reach), minus = gradient_at(-reach);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(found.product.symbols[number].get(i), (plus.get(i) - minus.get(i)) / (2 * reach), 1e-6);
}

}  // namespace
}  // namespace cellc
