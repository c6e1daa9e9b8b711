#pragma once
// Gradients on a CPU: the adjoint cell through the solver, params' sums through the BLAS.
#include "runtime/cpu/solve.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// Compiled once, run often. `adjoint` must outlive it.
class BackwardOnCpu {
 public:
  BackwardOnCpu(const AdjointRun& adjoint, const CompileOptions& options);

  /// After a forward run of `forward` that wrote `output`. Throws as Solver::run does.
  Gradients run(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                const SolveOptions& options, SolveReport& report);

  /// Why stage `stage` of the adjoint does not admit `strategy` at the sizes of the last run; nullopt where it does.
  std::optional<std::string> refusal(int stage, Strategy strategy) { return solver_.refusal(stage, strategy, bound_); }
  Solver& solver() { return solver_; }              ///< of the adjoint
  const BoundRun& bound() const { return bound_; }  ///< the adjoint's run of the last call
  double run_ms() const { return run_ms_; }         ///< of the last call, with sums over steps

 private:
  const AdjointRun& adjoint_;
  const Dtype arithmetic_;
  Solver solver_;
  double run_ms_ = 0;
  BoundRun bound_;  ///< memory of the last call, as the next
  RunOutput kept_;
};

}  // namespace cellc
