#include "runtime/cuda/launch/cuda_solver.h"

#include <algorithm>
#include <chrono>

#include "runtime/cuda/launch/cuda_solver_impl.h"

namespace cellc {

CudaSolver::CudaSolver(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                       const SourceText* source, const DeriveHooks& derive,
                       const std::optional<AccumulatedOuts>& outs_in_lanes)
    : impl_(std::make_unique<Impl>(gpu, cell, structure, dtype, source, derive, outs_in_lanes)) {}
CudaSolver::~CudaSolver() = default;
void CudaSolver::repeat_bits() { impl_->repeats_bits = true; }
CudaSolver::CudaSolver(CudaSolver&&) noexcept = default;

void CudaSolver::upload(const BoundRun& run, const SolveOptions& options) {
  impl_->on_device = false;
  impl_->unrelaxed.clear();
  impl_->upload(run, options);
}
void CudaSolver::prepare(const BoundRun& shape, const SolveOptions& options, bool waits, const std::string& unrelaxed) {
  impl_->on_device = true;
  impl_->may_wait = waits;
  impl_->unrelaxed = unrelaxed;
  impl_->upload(shape, options);
}
void CudaSolver::place_all(const DeviceArrays& arrays) {
  impl_->arrays.placed = arrays;
  // A walk that makes outs has less before it than one that does not.
  if (impl_->outs_wanted != arrays.outs_wanted) impl_->reserved = false;
  impl_->outs_wanted = arrays.outs_wanted;
  // How many parts of a sum a scan leaves follows from where its inputs lie, too.
  if (impl_->outs_in_lanes) impl_->reserved = false;
  impl_->reserve_written();
}
Dtype CudaSolver::storage() const { return impl_->running; }
bool CudaSolver::any_strides(int symbol) const { return impl_->any_strides(symbol); }
bool CudaSolver::shifts(int symbol) const { return impl_->shifts(symbol); }
bool CudaSolver::overlaps_starts() const { return impl_->overlaps_starts(); }
std::vector<GpuAddress> CudaSolver::first_bad_steps() const { return impl_->first_bad_steps(); }
bool CudaSolver::runs_stepwise() const { return impl_->execution.runs_stepwise || impl_->execution.steps_any(); }
bool CudaSolver::is_stored_as_planned() const { return impl_->execution.storage == impl_->running; }
bool CudaSolver::relaxes() const { return impl_->execution.relaxes_any(); }
bool CudaSolver::replan(const SolveOptions& options) { return impl_->replan(options); }
void CudaSolver::place(int symbol, GpuAddress data, std::int64_t row_stride) {
  impl_->arrays.placed.inputs[symbol] = {data, impl_->arrays.uniform ? row_stride * impl_->arrays.longest : 0,
                                         row_stride};
}
GpuAddress CudaSolver::trajectory(int update) const { return impl_->arrays.trajectory_of(update).data; }
PlacedRows CudaSolver::written_rows(int update) const { return impl_->arrays.trajectory_of(update); }
GpuAddress CudaSolver::final_state(int update) const {
  return impl_->arrays.final_of(static_cast<std::size_t>(update));
}
void CudaSolver::launch(GpuStream stream) { impl_->launch(stream); }
bool CudaSolver::adds_up(int out) const { return impl_->adds_up(out); }
CudaSolver::Parts CudaSolver::parts_of(int out) const {
  const auto& a = impl_->arrays.accumulated(out);
  return {a.buffer.address(), a.parts};
}
void CudaSolver::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
RunOutput CudaSolver::download(GpuStream stream) { return impl_->arrays.download(impl_->dtype, impl_->wanted, stream); }

void CudaSolver::look_at_whole_steps(SolveReport& report, GpuStream stream) {
  if (impl_->execution.relaxes_any() && impl_->unchecked(report)) impl_->check_whole_steps(report, stream);
}

std::optional<std::string> CudaSolver::refusal(int stage, Strategy strategy, const BoundRun& run, bool waits) {
  impl_->may_wait = waits;
  impl_->arrays.bound.sizes = run.sizes;
  if (impl_->stages.empty()) impl_->use_storage(impl_->dtype);
  impl_->asked_of_refusal = strategy == Strategy::Relaxation;
  const auto why = cellc::refusal(impl_->request(), static_cast<std::size_t>(stage), strategy);
  impl_->asked_of_refusal = false;
  return why;
}

RunOutput CudaSolver::run(const BoundRun& run, const SolveOptions& options, SolveReport& report) {
  impl_->unrelaxed.clear();
  impl_->on_device = false;
  impl_->runs_again = true;
  struct Ends {
    bool& flag;
    ~Ends() { flag = false; }
  } const ends{impl_->runs_again};
  std::chrono::steady_clock::time_point start;
  double compiled_before = 0;
  const auto make = [&] {
    impl_->upload(run, options);
    start = std::chrono::steady_clock::now();
    compiled_before = impl_->compiled_ms();
    impl_->launch(0);
    impl_->report(report, 0);
  };
  try {
    make();
  } catch (const MemoryError&) {
    // Nobody asked for iterations, which take several times as much as steps.
    if (impl_->execution.relaxation_worth == 0) throw;
    impl_->relaxations.drop();
    impl_->arrays.drop();
    impl_->given_up = impl_->unrelaxed = "; relaxation found no memory";
    make();
  }
  const bool repairs = options.repair && !options.fixed_iterations;
  const auto run_unrelaxed = [&](const std::string& why) {
    // What does not contract is not repaired: the cell runs from the first step on, and iterations, which take several
    // times as much memory, give theirs back.
    impl_->unrelaxed = why;
    impl_->relaxations.drop();
    impl_->arrays.drop();
    impl_->upload(run, options);
  };
  if (impl_->execution.relaxes_any() && !report.converged && repairs) {
    const bool asked = impl_->execution.relaxation_worth == 0;
    const std::int64_t bad = asked ? static_cast<std::int64_t>(report.unconverged.size()) : 0;
    if (!asked) impl_->given_up = impl_->why_given_up(report);
    run_unrelaxed(asked ? "; relaxation did not converge" : impl_->given_up);
    impl_->launch(0);
    impl_->report(report, 0);
    report.repaired = std::max(report.repaired, bad);
  }
  for (const char* why; (why = impl_->unchecked(report));) {
    impl_->check_whole_steps(report, 0);
    if (report.converged || !repairs) break;
    const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
    if (impl_->execution.relaxes_any())
      run_unrelaxed("; a later stage amplified what relaxation left");
    else
      impl_->replace_plans(why);
    impl_->launch(0);
    impl_->report(report, 0);
    report.repaired = std::max(report.repaired, bad);
  }
  impl_->gpu.synchronize(0);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RunOutput output = impl_->arrays.download(impl_->dtype, impl_->wanted, 0);
  if (impl_->arrays.rows > 0)
    say_what_stays(impl_->cell, impl_->structure, impl_->wanted, report,
                   [this](int u) { return impl_->arrays.trajectory_of(u).data != 0; });
  report.compile_ms = impl_->compiled_ms();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

}  // namespace cellc
