#include "runtime/cpu/stage_kernels.h"

#include <chrono>

namespace cellc {

namespace {

/// Adds the time of its scope, derivation included.
class Clock {
 public:
  explicit Clock(double& ms) : ms_(ms) {}
  ~Clock() { ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& ms_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

LaneKernel StageKernels::compile(const CellGraph& cell) {
  LaneKernel kernel = LaneKernel::compile(cell, stage_.lane, options_);
  caches_.push_back(kernel.cache());
  return kernel;
}

std::unique_ptr<StageKernels::Compiled> StageKernels::compiled(DerivedCell cell) {
  LaneKernel kernel = compile(cell.cell);
  return std::make_unique<Compiled>(Compiled{std::move(cell), std::move(kernel)});
}

const LaneKernel& StageKernels::step() {
  if (!step_) {
    const Clock clock(compile_ms_);
    step_ = std::make_unique<LaneKernel>(compile(stage_.lanes.cell));
  }
  return *step_;
}

const StageKernels::Carrying& StageKernels::transitions() {
  if (!transitions_) {
    const Clock clock(compile_ms_);
    TransitionCell cell = with_transition(stage_.lanes, stage_.lane, scannable_, options_.derive);
    LaneKernel kernel = compile(cell.cell);
    // Clip and Möbius maps are left alone: their numbers count by their ratios, however small.
    if (cell.kind == Scannable::Affine) kernel.flush_to_zero();
    transitions_ = std::make_unique<Carrying>(Carrying{std::move(cell), std::move(kernel)});
  }
  return *transitions_;
}

const StageKernels::Compiled& StageKernels::newton() {
  if (!newton_) {
    const Clock clock(compile_ms_);
    newton_ = compiled(linearised(stage_.lanes, stage_.lane, options_.derive));
  }
  return *newton_;
}

const StageKernels::Carrying& StageKernels::newton_transitions() {
  if (!newton_transitions_) {
    const DerivedCell& system = newton().cell;
    const Clock clock(compile_ms_);
    TransitionCell cell = with_transition(system, stage_.lane, Scannable::Affine, options_.derive);
    LaneKernel kernel = compile(cell.cell);
    kernel.flush_to_zero();
    newton_transitions_ = std::make_unique<Carrying>(Carrying{std::move(cell), std::move(kernel)});
  }
  return *newton_transitions_;
}

const StageKernels::Compiled& StageKernels::guess() {
  if (!guess_) {
    const Clock clock(compile_ms_);
    guess_ = compiled(evaluated(stage_.lanes, options_.derive));
  }
  return *guess_;
}

const StageKernels::Compiled& StageKernels::residual() {
  if (!residual_) {
    const Clock clock(compile_ms_);
    residual_ = compiled(cellc::residual(stage_.lanes, stage_.lane, options_.derive));
  }
  return *residual_;
}

}  // namespace cellc
