#include "tests/gradients/compare_gradients.h"

#include <fmt/format.h>

#include "runtime/cpu/sum_over_steps.h"
#include "tests/gradients/adjoint_strategies.h"

namespace cellc {

std::string GradientShape::text() const {
  return fmt::format(", lengths {}{}{}", fmt::join(lengths, " "), packed ? ", packed" : "",
                     reverse ? ", reversed" : "");
}

std::string wrong_gradients(const LoweredCell& cell, const oracle::Ranges& ranges, const GradientShape& shape,
                            std::uint64_t seed, GradientCounts* counts) {
  oracle::Random random(seed);
  GradientTrial::Options options;
  options.sizes = oracle::axis_lengths(cell.oracle, shape.axes);
  options.lengths = shape.lengths;
  options.packed = shape.packed;
  options.reverse = shape.reverse;
  options.starts_given = shape.axes[0] != 1;
  options.defaults_given = shape.packed;
  options.without = shape.entries == 3 ? 0.4 : 0;
  options.dtype = Dtype::F32;  // what both types hold
  GradientTrial trial(cell.graph, cell.oracle, ranges, random, options);
  const GradientTrial::Slopes slopes = trial.differences(shape.entries, random);
  if (counts) counts->slopes += static_cast<std::int64_t>(slopes.all.size()), counts->kinks += slopes.kinks;
  if (!counts && slopes.kinks * 3 > static_cast<std::int64_t>(slopes.all.size()) + 6)
    return fmt::format("too many: {} of {} slopes left out", slopes.kinks, slopes.kinks + slopes.all.size());
  const AdjointRun adjoint(cell.graph, results_with(trial.cotangents(trial.bound(Dtype::F64))));
  const NamedArrays plain = trial.reference(adjoint);
  if (std::string wrong = trial.compare(plain, slopes, 1e-6); !wrong.empty()) return "evaluated: " + wrong;
  const NamedArrays swept = trial.swept();
  if (std::string wrong = trial.compare(swept, slopes, 1e-6); !wrong.empty()) return "swept: " + wrong;
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    const NamedArrays spread = trial.spread(adjoint, plain, dtype);
    if (const double error = times_allowed(plain, swept, 1e-12, spread); !(error <= 1))
      return fmt::format("evaluated: {} times what is allowed off the swept", error);
    const Binding binding = trial.bound(dtype, 2);
    Solver solver(adjoint.cell(), adjoint.structure(), {.dtype = dtype});
    for (const AskedStrategy& asked : admitted_strategies(solver, adjoint, binding.run)) {
      SolveReport report;
      const NamedArrays found = trial.gradients(
          adjoint, binding, [&](const BoundRun& run) { return solver.run(run, asked.options, report); },
          sum_over_steps);
      if (counts) ++counts->runs;
      const std::string which = fmt::format("{} by {}: ", to_string(dtype), asked.name);
      if (!report.converged) return which + "reported as not converged";
      if (dtype == Dtype::F64)
        if (std::string wrong = trial.compare(found, slopes, 1e-6); !wrong.empty()) return which + wrong;
      const double error = times_allowed(found, plain, dtype == Dtype::F64 ? 1e-9 : 1e-4, spread);
      if (!(error <= 1)) return which + fmt::format("{} times what is allowed off the evaluated", error);
    }
  }
  return {};
}

}  // namespace cellc
