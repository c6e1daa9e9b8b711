#include "runtime/stage_kernels.h"

namespace cellc {

LaneKernel StageKernels::compile(const CellGraph& cell) {
  LaneKernel kernel = LaneKernel::compile(cell, stage_.lane, options_);
  compile_ms_ += kernel.compile_ms();
  caches_.push_back(kernel.cache());
  return kernel;
}

const LaneKernel& StageKernels::step() {
  if (!step_) step_ = std::make_unique<LaneKernel>(compile(stage_.lanes));
  return *step_;
}

const StageKernels::Carrying& StageKernels::carriers() {
  if (!carriers_) {
    CarrierCell cell = with_carriers(stage_.lanes, stage_.lane, scannable_);
    LaneKernel kernel = compile(cell.cell);
    carriers_ = std::make_unique<Carrying>(Carrying{std::move(cell), std::move(kernel)});
  }
  return *carriers_;
}

const StageKernels::Newton& StageKernels::newton() {
  if (!newton_) {
    NewtonCell cell = linearised(stage_.lanes, stage_.lane);
    LaneKernel kernel = compile(cell.cell);
    newton_ = std::make_unique<Newton>(Newton{std::move(cell), std::move(kernel)});
  }
  return *newton_;
}

const StageKernels::Carrying& StageKernels::newton_carriers() {
  if (!newton_carriers_) {
    CarrierCell cell = with_carriers(newton().cell.cell, stage_.lane, Scannable::Affine);
    LaneKernel kernel = compile(cell.cell);
    newton_carriers_ = std::make_unique<Carrying>(Carrying{std::move(cell), std::move(kernel)});
  }
  return *newton_carriers_;
}

const StageKernels::Newton& StageKernels::guess() {
  if (!guess_) {
    NewtonCell cell = evaluated(stage_.lanes);
    LaneKernel kernel = compile(cell.cell);
    guess_ = std::make_unique<Newton>(Newton{std::move(cell), std::move(kernel)});
  }
  return *guess_;
}

const StageKernels::Residual& StageKernels::residual() {
  if (!residual_) {
    ResidualCell cell = cellc::residual(stage_.lanes, stage_.lane);
    LaneKernel kernel = compile(cell.cell);
    residual_ = std::make_unique<Residual>(Residual{std::move(cell), std::move(kernel)});
  }
  return *residual_;
}

}  // namespace cellc
