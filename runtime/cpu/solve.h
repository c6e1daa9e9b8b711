#pragma once
// A cell over whole sequences by parallel strategies, stage after stage, with answers that are
// checked: the parallel counterpart of Program.
#include <memory>

#include "compiler/derive/stage_cells.h"
#include "runtime/cpu/engine.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class Solver {
 public:
  /// Compiles nothing yet: kernels are made when a run first needs them.
  Solver(const CellGraph& cell, const Structure& structure, const CompileOptions& options);
  ~Solver();
  Solver(Solver&&) noexcept;

  /// Runs and checks. Throws RequestError, DeviceError, SolverError.
  /// Arrays of `reuse` are written again where they fit, as Program::run does.
  RunOutput run(const BoundRun& run, const SolveOptions& options, SolveReport& report, RunOutput reuse = {});

  /// Why stage `stage` does not admit `strategy` at these sizes; nullopt where it does.
  std::optional<std::string> refusal(int stage, Strategy strategy, const BoundRun& run);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
