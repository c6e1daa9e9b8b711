#pragma once
// Decides how a cell is run on a GPU, and gives that as a value: which passes there are, in which order, by which
// strategy, in which storage, and why. Pure: the same request gives the same plan. It compiles nothing and asks no
// device. Runs, prepared calls, `inspect` and ahead-of-time cells read their decisions here, so that they agree.
//
// Follows split_stages and fuse_reductions. Precedes every kernel: StageProgram and NestProgram run what is said here.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/pipeline.h"
#include "runtime/cuda/launch/choose_cuda_plan.h"
#include "runtime/cuda/launch/choose_persistent.h"
#include "runtime/cuda/launch/choose_stepped.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/data/array.h"
#include "runtime/strategy/choose_strategy.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// What a pass runs. Reductions over rows, steps whose nests exchange values between thread blocks, and exchanges
/// between devices will be further kinds.
enum class PassKind {
  Once,     ///< values of params that a stage needs, one row of them
  Before,   ///< what a stage reads of other channels and steps, for all rows
  Stage,    ///< the lanes of a stage, by its strategy
  Remade,   ///< new values of a stage that was scanned, from the rows before, as later stages read them
  Relaxed,  ///< a stage by waveform relaxation, with solvers of its own; waits for the device
  Stepped,  ///< a stage whose every step is some kernels
  After,    ///< outs, once all states are known
  Whole,    ///< every step of the whole cell as nests, where a stage couples too much for one thread
};

struct Pass {
  PassKind kind = PassKind::Stage;
  int stage = -1;      ///< of Once, Before and Stage
  bool fused = false;  ///< lanes also make the sums that follow (fused_reductions.h); of After: those sums are there
  bool with_outs = false;  ///< lanes also make outs (fused_outs.h); of After: those are there
  Dtype storage = Dtype::F32;
  int part = 0;  ///< of Remade: which of StageCells::remade; behind all of them the lanes over single steps
  bool operator==(const Pass&) const = default;
};
/// "before the stage {h}"; `cell` and `staged` are those of the plan.
std::string to_string(const Pass& pass, const CellGraph& cell, const StagedCell& staged);

/// What is known of a stage before any of its kernels is compiled for a device.
struct StageFacts {
  std::optional<std::string> refusal;  ///< why no thread can hold its lanes
  bool mixes = false;  ///< it has mixing terms, so that it can be relaxed; known where that is asked for
  StageShape shape;
  int sum_parts = 0;  ///< parts of each sum that its lanes would make, run sequentially; 0: it has no such sums
  bool shares_gradients = false;  ///< those sums are all gradients of what lanes share, along both ends of the channels
  bool two_passes = false;        ///< lanes that make those sums have the map over a segment, too
  bool makes_outs = false;        ///< its lanes can make some outs, run sequentially or by a scan
  bool makes_sum_outs = false;    ///< and all that are sums of theirs, run sequentially, with what their steps share
  bool stands_alone = false;      ///< those are all outs of the cell, and no kernel stands before its lanes
  bool scans_in_one_pass = false;
};

/// `summing`, `making_outs`: the stage with its sums, or with outs, or null. `longest`: steps of the longest sequence.
StageFacts facts_of(StageProgram& program, StageProgram* summing, const std::map<AxisId, std::int64_t>& sizes,
                    std::int64_t sequences, std::int64_t longest, std::int64_t rows,
                    StageProgram* making_outs = nullptr);

struct ExecutionRequest {
  const CellGraph& cell;
  const Structure& structure;
  const StagedCell& staged;
  Dtype dtype = Dtype::F32;
  std::vector<StageFacts> stages{};
  GpuFacts card{};
  SolveOptions solve{};
  std::vector<Observed> observed{};  ///< by stage, of earlier calls of this shape; empty: none
  std::int64_t rows = 0, longest = 0;
  bool repeats = false;      ///< calls are to have the same bits each time
  bool rounds_rows = false;  ///< of lane_storage()
  /// All arrays are the caller's and nobody looks at whole steps afterwards: a stage that later ones read then leaves
  /// no residual, or they read its new values as they were made again.
  bool on_device = false;
  bool is_adjoint = false;  ///< gradients, which nothing is promised of step by step
  bool may_wait = false;    ///< of `on_device`: whoever runs it waits, and may look at iterations
  /// Why no stage is relaxed any more; empty: they may be.
  std::string unrelaxed{};
  /// Iterations that stages which go step by step may be relaxed for without being asked to; 0: none.
  int relaxation_worth = 0;
  /// Kernels that live through all steps, where the cell runs step by step; or why there are none.
  PersistentChoice persistent{{}, "what is shipped knows no lengths"};
  /// Of the stages that no thread can hold, whether kernels a step take less than walks of blocks; without a reason
  /// nobody has looked.
  SteppedChoice stepped{};
};

struct ExecutionPlan {
  Dtype storage = Dtype::F32;              ///< of rows between the passes
  bool runs_stepwise = false;              ///< one pass, PassKind::Whole
  std::string stepwise_reason;             ///< which stage is why, and why
  std::vector<PersistentCode> persistent;  ///< Whole: kernels that live through all steps
  std::vector<CudaPlan> stages;            ///< by stage; with reasons
  int relaxation_worth = 0;                ///< iterations after which the cell goes step by step; 0: it was asked for
  std::vector<int> sum_parts;              ///< by stage: parts of each sum that its lanes make; 0: they make none
  std::vector<bool> makes_outs;            ///< by stage: its lanes make outs
  std::vector<bool> remakes;               ///< by stage: its new values are made again
  bool walks_alone = false;                ///< one walk from inputs to outs, in 16 bits: it makes outs wanted or not
  std::int64_t rows = 0;

  bool relaxes(std::size_t stage) const { return stages[stage].plan.strategy == Strategy::Relaxation; }
  bool relaxes_any() const;
  bool steps(std::size_t stage) const { return stages[stage].plan.strategy == Strategy::Stepped; }
  bool steps_any() const;
  /// Not by solvers or kernels of its own.
  bool runs_in_lanes(std::size_t stage) const { return !runs_stepwise && !relaxes(stage) && !steps(stage); }
  bool fuses(std::size_t stage, bool outs_wanted) const { return outs_wanted && sum_parts[stage] > 0; }
  bool fuses_any(bool outs_wanted) const;
  bool makes_outs_of(std::size_t stage, bool outs_wanted) const {
    return (outs_wanted || walks_alone) && makes_outs[stage];
  }
  /// In the order in which they run. `outs_wanted`: outs are made (callers may leave them out after planning).
  /// `with_outs`: by stage; empty where no lanes make outs. `left`: whether there are outs that no lanes make.
  std::vector<Pass> passes(const StagedCell& staged, const std::vector<std::optional<FusedStage>>& fused,
                           bool outs_wanted, const std::vector<std::optional<StageCells>>& with_outs = {},
                           bool left = true) const;
};

/// Whether lanes that make outs make all of the cell's, from what callers give.
bool stands_alone(const CellGraph& cell, const StageCells& with_outs);
/// Of a cell of one stage, whose facts are there: what follows from that for them.
void stand_alone(ExecutionRequest& request, const StageCells& with_outs);
/// Whether what `auto` chooses for the stage goes over each step once, so that its lanes make their outs whatever the
/// shape: a scan in a single pass, or a walk. Not for data of which scans have been seen to walk much: those are cut,
/// and rows are f32 from then on.
bool is_never_cut(const Stage& stage, const StageFacts& facts);

/// Updates of a stage whose new values later stages read as they were made again, but for copies that lag.
std::vector<int> remade_values(const CellGraph& cell, const StagedCell& staged, std::size_t stage);

/// Storage of rows on a device if the cell is run in lanes, and not by one stage that makes all outs: 16 bits where
/// nothing but the stage itself reads what it writes. What a second stage or an out would read was rounded, so they get
/// arithmetic precision, but where `rounds_rows` allows that: what passes between passes is then rounded like factors
/// of products are, and each pass follows from the rows that the one before it has written.
Dtype lane_storage(const CellGraph& cell, const StagedCell& staged, Dtype dtype, bool rounds_rows = false);
/// Whether products that multiply so allow it.
bool rounds_rows(ProductFactors factors, Dtype dtype);

/// Why the cell runs step by step, all of it as nests: the first stage whose lanes no thread can hold. Empty: it does
/// not. `relaxes`: stages that mix are relaxed.
std::string stepwise_reason(const CellGraph& cell, const StagedCell& staged, const std::vector<StageFacts>& stages,
                            bool relaxes = false);

/// Why a stage cannot be run by a strategy on a GPU; nothing: it can.
std::optional<std::string> refusal(const ExecutionRequest& request, std::size_t stage, Strategy strategy);

/// Throws SolverError where a forced or pinned strategy is refused, with the reason.
ExecutionPlan plan_execution(const ExecutionRequest& request);

}  // namespace cellc
