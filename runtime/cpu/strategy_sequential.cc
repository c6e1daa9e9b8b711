// Sequential: every lane of the stage runs its whole sequence, step after step, by the step code.
//
// Every stage has it. It saves nothing in time: its speed is that of the vectors that the lanes fill, so it is best
// where there are lanes enough. All other strategies are measured against it, and repair ends in it. A cell of which
// every stage is sequential does not come here: the fused kernel of the whole cell runs it (solve.cc).
#include "runtime/cpu/segment_sweep.h"

namespace cellc {

namespace {

class SequentialStrategy final : public CpuStrategy {
 public:
  std::optional<std::string> refusal(StagesOfRun&, int) const override { return std::nullopt; }

  StagePlan forced(StagesOfRun&, int, const SolveOptions&) const override {
    return {Strategy::Sequential, 0, 0, "asked for"};
  }

  StageOutcome run(StageToSolve& run) const override {
    return in_precision_of(run.data(), [&](auto number) {
      SegmentSweep<decltype(number)> sweep(run, 0);
      sweep.write(sweep.segments().all());
      return sweep.finish({});
    });
  }
};

}  // namespace

const CpuStrategy& sequential_on_cpu() {
  static const SequentialStrategy strategy;
  return strategy;
}

}  // namespace cellc
