// The promise does not depend on units: data of a homogeneous cell that are scaled by a power of two give the answer
// scaled, by every strategy, to the bit. Long quiet stretches between peaks, where a residual is small beside 1 and
// large beside the signal.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/front_end.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/errors.h"
#include "tests/oracle/random.h"

namespace cellc {
namespace {

struct Homogeneous {
  const char* name;
  const char* text;  ///< inputs u scale with the states, inputs g do not
  friend void PrintTo(const Homogeneous& cell, std::ostream* out) { *out << cell.name; }
};

class Scaled : public testing::TestWithParam<Homogeneous> {
 protected:
  static constexpr std::int64_t kSteps = 6000, kChannels = 3;

  BoundRun run(Dtype dtype, int power) const {
    BoundRun run;
    run.sizes[front.cell.header[0]] = kChannels;
    run.offsets = {0, kSteps};
    run.threads = 1;
    oracle::Random random(11);
    for (const Symbol& symbol : front.cell.symbols) {
      const bool input = symbol.kind == SymbolKind::Input;
      Array array(dtype, {input ? kSteps : 1, kChannels});
      for (std::int64_t t = 0; input && t < kSteps; ++t)
        for (std::int64_t c = 0; c < kChannels; ++c) {
          const double value = random.uniform(0, 1);
          const bool quiet = t / 700 % 2 == 1;
          array.set(t * kChannels + c,
                    symbol.name == "u" ? std::ldexp(static_cast<float>(quiet ? 0.02 * value : value), power) : value);
        }
      run.symbols.push_back(array);
    }
    return run;
  }

  AnalysedCell front = analyse_text(SourceText("homogeneous.cell", GetParam().text));
};

TEST_P(Scaled, ByPowersOfTwo) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const StrategyFacts& facts : strategies()) {
      if (!facts.on_cpu) continue;
      SCOPED_TRACE(std::string(to_string(facts.strategy)) + ", " + to_string(dtype));
      SolveOptions options;
      options.solver = facts.strategy;
      std::vector<RunOutput> outputs;
      std::vector<SolveReport> reports(3);
      const std::vector<int> powers = {0, -30, 30};
      for (std::size_t k = 0; k < powers.size(); ++k) {
        Solver solver(front.cell, front.structure, {.dtype = dtype});
        const BoundRun data = run(dtype, powers[k]);
        if (solver.refusal(0, facts.strategy, data)) break;
        outputs.push_back(solver.run(data, options, reports[k]));
        EXPECT_TRUE(reports[k].converged);
      }
      for (std::size_t k = 1; k < outputs.size(); ++k) {
        EXPECT_EQ(reports[k].max_residual, reports[0].max_residual) << powers[k];
        EXPECT_EQ(reports[k].repaired, reports[0].repaired) << powers[k];
        for (std::size_t u = 0; u < outputs[k].states.size(); ++u)
          for (std::int64_t i = 0; i < outputs[k].states[u].count(); ++i)
            ASSERT_EQ(outputs[k].states[u].get(i), std::ldexp(outputs[0].states[u].get(i), powers[k])) << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cells, Scaled,
                         testing::Values(Homogeneous{"peak",
                                                     "cell peak[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = where(abs(u) > v, abs(u), v - 1e-3*v*g)\n}\n"},
                                         Homogeneous{"leaky",
                                                     "cell leaky[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = 0.99*v + g*u\n}\n"},
                                         Homogeneous{"clipped",
                                                     "cell clipped[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = min(max(0.95*v, 0.1*u), u + 0.2*v)\n}\n"},
                                         Homogeneous{
                                             "norm",
                                             "cell norm[d] {\n  state v[d], w[d]\n  input u[d], g[d]\n"
                                             "  v' = 0.9*sqrt(v^2 + 0.1*w^2) + 0.1*g*u\n  w' = 0.7*w + 0.2*v\n}\n"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
