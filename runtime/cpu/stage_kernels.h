#pragma once
// The compiled cells of one stage; each is compiled when a strategy first requests it.
#include <memory>

#include "compiler/derive/newton_cell.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/derive/transition_cell.h"
#include "runtime/cpu/lane_kernel.h"

namespace cellc {

class StageKernels {
 public:
  StageKernels(const StageCells& stage, Scannable scannable, const CompileOptions& options)
      : stage_(stage), scannable_(scannable), options_(options) {}

  struct Carrying {
    TransitionCell cell;
    LaneKernel kernel;
  };
  struct Newton {
    NewtonCell cell;
    LaneKernel kernel;
  };
  struct Residual {
    ResidualCell cell;
    LaneKernel kernel;
  };

  const LaneKernel& step();       ///< the lane cell
  const Carrying& transitions();  ///< of the exact composition where the stage has one, else affine
  const Newton& newton();
  const Carrying& newton_transitions();
  const Newton& guess();
  const Residual& residual();
  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  LaneKernel compile(const CellGraph& cell);

  const StageCells& stage_;
  const Scannable scannable_;
  const CompileOptions options_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
  std::unique_ptr<LaneKernel> step_;
  std::unique_ptr<Carrying> transitions_, newton_transitions_;
  std::unique_ptr<Newton> newton_, guess_;
  std::unique_ptr<Residual> residual_;
};

}  // namespace cellc
