// The promise does not depend on units: data of a homogeneous cell that are scaled by a power of two give the answer
// scaled, by every strategy, to the bit.
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/errors.h"
#include "tests/engines/homogeneous.h"

namespace cellc {
namespace {

class Scaled : public testing::TestWithParam<Homogeneous> {
 protected:
  AnalysedCell front = analyse_text(SourceText("homogeneous.cell", GetParam().text));
};

TEST_P(Scaled, ByPowersOfTwo) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16})
    for (const StrategyFacts& facts : strategies()) {
      if (!facts.on_cpu) continue;
      SCOPED_TRACE(std::string(to_string(facts.strategy)) + ", " + to_string(dtype));
      SolveOptions options;
      options.solver = facts.strategy;
      std::vector<RunOutput> outputs;
      std::vector<SolveReport> reports(3);
      // So that numbers of the type stay normal.
      const std::vector<int> powers = dtype == Dtype::F16 ? std::vector<int>{0, -2, 9} : std::vector<int>{0, -30, 30};
      HomogeneousShape shape{{6000}};
      if (size_of(dtype) == 2) shape.least = 0.25;
      for (std::size_t k = 0; k < powers.size(); ++k) {
        Solver solver(front.cell, front.structure, {.dtype = dtype});
        const BoundRun data = homogeneous_run(front.cell, dtype, powers[k], shape);
        if (solver.refusal(0, facts.strategy, data)) break;
        outputs.push_back(solver.run(data, options, reports[k]));
        EXPECT_TRUE(reports[k].converged);
      }
      for (std::size_t k = 1; k < outputs.size(); ++k) {
        EXPECT_EQ(reports[k].max_residual, reports[0].max_residual) << powers[k];
        EXPECT_EQ(reports[k].repaired, reports[0].repaired) << powers[k];
        ASSERT_EQ(not_scaled(outputs[0], outputs[k], powers[k]), "");
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cells, Scaled, testing::ValuesIn(homogeneous_cells()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
