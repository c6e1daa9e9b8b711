#pragma once
// Chooses a strategy and its parameters from structure, shape and card facts, and gives the reason in words.
// It decides nothing that depends on the data: the kernels count their own misses (segmented.cuh), and
// `Observed` holds what earlier calls of the same shape saw.
#include <algorithm>

#include "compiler/analysis/structure.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

/// What the last calls of a stage at this shape took.
struct Observed {
  int calls = 0;            ///< with segments; the second starts from what the first one learned
  double segmented_ns = 0;  ///< a call that cut time into segments, all of it: the shorter of the last two
  double last_ns = 0;       ///< the last of them
  double sweep_ns = 0;      ///< its sweep
  std::int64_t sweep_steps = 0;
  bool measures_slope = false;  ///< its sweep carried derivatives along
  std::int64_t tails = 0;       ///< segments that it walked step by step in the end
  double walked = 0;            ///< of all segments
  double tail_ns = 0;
  bool forgot = false;     ///< none was walked, and in fewer rounds than lead from the first to the last
  double scan_walked = 0;  ///< shares of channels that the last scan walked where it rounded too much, of all channels
  int walks = 0;           ///< calls since that went another way, as the planner had said
  int patience =
      8;  ///< so many, before segments are tried again: data change, and a second call has nothing to compare with

  /// After a call with segments. Of calls on the same data now and then one takes a few rounds more: few lanes are off
  /// by just a tolerance, and which of them depends on who came first.
  void took(double ns) {
    segmented_ns = calls > 2 && last_ns > 0 ? std::min(last_ns, ns) : ns;
    last_ns = ns;
  }
  /// After a call that went another way than the shape says.
  void went_another_way() {
    if ((segmented_ns == 0 && scan_walked == 0) || ++walks < patience) return;
    walks = 0;
    patience = std::min(2 * patience, 1024);
    segmented_ns = last_ns = scan_walked = 0;
  }
};

CudaPlan choose_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, const Observed& seen);

/// The same for lanes that make sums and have the map over a segment: few of them walk segments in two passes. Other
/// plans are as they were.
void cut_sums(CudaPlan& plan, const Stage& stage, const StageShape& shape, const GpuFacts& gpu,
              const SolveOptions& options, const Observed& seen);

/// Rounds that segments are run again before what is left is walked: what is not settled by then mostly never is.
int most_rounds(const SolveOptions& options);

/// A forced strategy with its default parameters.
CudaPlan forced_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, Strategy strategy,
                          const SolveOptions& options);

/// The same, so that calls have the same bits each time (cellc_repeat_plan).
void repeat_bits(CudaPlan& plan);

/// Parameters of a strategy as a plan names them, in place of its own: segments (but those of one step) and run-ups in
/// whole stages, the next longer ones. What the report then says is what ran. Without a segment the strategy's own
/// parameters stay, but for rounds, of which there are as many as in the run whose plan it is. `longest`: steps of a
/// sequence at most.
void pin(CudaPlan& plan, const StagePlan& pinned, std::int64_t longest, const SolveOptions& options);

}  // namespace cellc
