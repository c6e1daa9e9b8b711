// Whole sequences by the solver.
#include <algorithm>

#include "capi/call_settings.h"
#include "capi/gpu_call.h"
#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/kernel.h"
#include "capi/report.h"
#include "runtime/evaluate/reference.h"

namespace cellc::capi {
namespace {

/// A run by the solver on the caller's memory.
class ForwardCall {
 public:
  ForwardCall(CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
              const cellc_array* arrays)
      : kernel_(kernel), cell_(kernel.cell()), shape_(shape), arrays_(kernel, shape, expected, arrays) {}

  /// `status`: of all sequences, or null, as is the report.
  void operator()(std::int32_t* status, cellc_report* report) {
    const CallSettings* const settings = call_settings();
    if (settings && settings->verify) check_verifiable(report);
    Binding binding = arrays_.bound().binding;
    binding.run.wanted = arrays_.wanted();
    RunOutput reuse = outputs();
    SolveReport solved;
    const SolveOptions solve = settings && !settings->as_kernel ? settings->solve : kernel_.solve_for(binding);
    std::unique_ptr<Solver> solver = kernel_.take_solver();
    const RunOutput output = solver->run(binding.run, solve, solved, std::move(reuse));
    kernel_.give_solver(std::move(solver));
    fill_status(status, solved, shape_);
    if (report) fill(*report, solved, CallDirection::Forward, shape_, output.run_ms);
    if (settings && settings->verify)
      report->verified = compare(cell_, binding.run, output, reference_run(cell_, binding.run)).error;
    write(binding, output);
    converged = solved.converged || (solve.repair && !solve.fixed_iterations);
  }

  bool converged = false;

 private:
  /// The caller's memory to be written in place, where it can be. Finals are copied: they may be the starts.
  RunOutput outputs() const {
    RunOutput output;
    const auto rows = [&](FieldKind kind, int id) {
      const CallField* field = kernel_.layout.find(kind, id);
      if (!field) return Array();  // a lagged copy
      const auto i = static_cast<std::size_t>(field - kernel_.layout.fields.data());
      return arrays_.is_given(i) && arrays_.is_dense(i) ? arrays_.rows(i) : Array();
    };
    for (const StateUpdate& u : cell_.updates) output.states.push_back(rows(FieldKind::State, u.symbol));
    for (int o = 0; o < static_cast<int>(cell_.outs.size()); ++o) output.outs.push_back(rows(FieldKind::Out, o));
    return output;
  }

  void write(const Binding& binding, const RunOutput& output) const {
    const auto written = written_arrays(cell_, binding, output);
    for (std::size_t i = 0; i < kernel_.layout.fields.size(); ++i) {
      const CallField& field = kernel_.layout.fields[i];
      if (!field.is_written() || !arrays_.is_given(i)) continue;
      const auto found =
          std::find_if(written.begin(), written.end(), [&](const auto& w) { return w.first == field.file; });
      if (found == written.end()) throw std::logic_error("no result is called " + field.file);
      arrays_.put(i, found->second);
    }
  }

  CompiledCell& kernel_;
  const CellGraph& cell_;
  const Shape& shape_;
  const HostArrays arrays_;
};

cellc_status forward_on_cpu(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                            std::int32_t* statuses, cellc_report* report) {
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    CompiledCell& k = opened(kernel);
    const UseHostMemory memory(k.own_memory());
    check_report(report);
    const Shape found = read_shape(k, shape);
    const std::vector<Expected> expected = expected_arrays(k, found);
    status = check_arrays(found, expected, arrays, count);
    if (status != CELLC_OK) return;
    ForwardCall call(k, found, expected, arrays);
    call(statuses, report);
    if (report) find_non_finite(*report, k.forward, k.compile.dtype, found, arrays);
    if (!call.converged) status = failed(CELLC_NOT_CONVERGED, kNotAllConverged);
  });
  return outcome == CELLC_OK ? status : outcome;
}

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

cellc_status cellc_forward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                           cellc_report* report) {
  if (kernel && kernel->open && kernel->body->on_gpu)
    return cellc_forward_on(kernel, shape, arrays, count, nullptr, nullptr, report);
  return forward_on_cpu(kernel, shape, arrays, count, nullptr, report);
}

cellc_status cellc_forward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                              void* stream, int32_t* status, cellc_report* report) {
  if (kernel && kernel->open && !kernel->body->on_gpu && !stream)
    return forward_on_cpu(kernel, shape, arrays, count, status, report);
  cellc_status result = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    CompiledCell& k = opened(kernel);
    check_report(report);
    if (!k.on_gpu) throw Misuse(kNoStreams);
    const Shape found = read_shape(k, shape);
    const std::vector<Expected> expected = expected_arrays(k, found);
    result = check_arrays(found, expected, arrays, count);
    if (result != CELLC_OK) return;
    if (!run_on_gpu(k, nullptr, found, expected, arrays, stream, status, report))
      result = failed(CELLC_NOT_CONVERGED, kNotAllConverged);
  });
  return outcome == CELLC_OK ? result : outcome;
}

}  // extern "C"
