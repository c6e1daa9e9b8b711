#include "tests/gradients/text_cell.h"

#include "runtime/cpu/backward_on_cpu.h"

namespace cellc {

GivenArray given(const std::vector<std::int64_t>& shape, const std::vector<double>& values, Dtype dtype) {
  Array array(dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
  return {"test", array};
}

std::map<std::string, Array> run_backward(const CellGraph& cell, const Structure& structure, const BindRequest& request,
                                          const std::map<std::string, GivenArray>& cotangents,
                                          const SolveOptions& backward) {
  const Binding binding = bind(cell, request);
  const CompileOptions options{.dtype = binding.dtype};
  SolveReport report;
  const RunOutput output = Solver(cell, structure, options).run(binding.run, {}, report);
  const Cotangents bound = bind_cotangents(cell, binding, cotangents);
  const AdjointRun adjoint(cell, results_with(bound));
  Gradients gradients = BackwardOnCpu(adjoint, options).run(binding.run, output, bound, backward, report);
  through_defaults(cell, binding.run, given_symbols(cell, request, binding), gradients);
  std::map<std::string, Array> all;
  for (const auto& [name, array] : gradient_arrays(cell, binding, gradients)) all[name] = array;
  for (const auto& [name, array] : written_arrays(cell, binding, output)) all[name] = array;
  return all;
}

}  // namespace cellc
