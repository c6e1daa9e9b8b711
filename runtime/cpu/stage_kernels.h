#pragma once
// The compiled cells of one stage; each is compiled when a strategy first requests it.
#include <memory>

#include "compiler/derive/pipeline.h"
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
  struct Compiled {
    DerivedCell cell;
    LaneKernel kernel;
  };

  const LaneKernel& step();       ///< the lane cell
  const Carrying& transitions();  ///< of the exact composition where the stage has one, else affine
  const Compiled& newton();
  const Carrying& newton_transitions();
  const Compiled& guess();
  const Compiled& residual();
  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  LaneKernel compile(const CellGraph& cell);
  std::unique_ptr<Compiled> compiled(DerivedCell cell);

  const StageCells& stage_;
  const Scannable scannable_;
  const CompileOptions options_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
  std::unique_ptr<LaneKernel> step_;
  std::unique_ptr<Carrying> transitions_, newton_transitions_;
  std::unique_ptr<Compiled> newton_, guess_, residual_;
};

}  // namespace cellc
