#pragma once
// What is derived of a cell, each by its own function, on demand: making all of it would cost more than any run needs.
//
//   split_stages    stages of lanes, and what is computed before, beside and after them    stage_cells.h
//   fuse_reductions       a stage whose lanes make sums of what they have just computed          fused_reductions.h
//   with_reduced_outs      the outs, where lanes made their sums
//   fuse_outs       a stage whose lanes make outs of their channels                          fused_outs.h
//   fuse_sum_outs   a stage whose lanes make outs that are sums of theirs, and what their steps share fused_sum_outs.h
//   without_outs    the outs that are left then
//   relax           a stage with its mixing terms taken from the last iterate              relaxed_cell.h
//   step_of         one step of a stage, for kernels of its own                          stepped_cell.h
//   with_transition   a lane with the map from its start to where it is                      transition_cell.h
//   linearised      a lane about a given trajectory, for Newton per step                   newton_cell.h
//   evaluated       its first guess
//   residual        how far a trajectory is from its own steps
//   defaults_of     starts and defaults that the cell computes                             default_cells.h
//   adjoint_of      gradients of the whole cell, as a cell that runs in reverse              adjoint_cell.h
//   tangent_of      the derivative of a run in one direction, as a cell                      tangent_cell.h
//   block_of        so few steps that delay lines bring nothing that they write             block_cell.h
//   sequences_of    a cell whose sequences lie side by side                                 sequences_cell.h
//   scalar_lane     a lane's step as scalars, and which of them are made once              scalarize.h,
//   loop_invariants.h
//
// Each is announced, made, verified and timed by one helper, so that none of this can be left out: code is emitted only
// of graphs that are what graphs should be. A derived cell that is not is a fault of ours: std::logic_error, which says
// which derivation made it. Follows structure; precedes plan and the emitters.
#include <optional>
#include <string>
#include <vector>

#include "compiler/derive/adjoint_cell.h"
#include "compiler/derive/block_cell.h"
#include "compiler/derive/default_cells.h"
#include "compiler/derive/derive_hooks.h"
#include "compiler/derive/fused_outs.h"
#include "compiler/derive/fused_reductions.h"
#include "compiler/derive/fused_sum_outs.h"
#include "compiler/derive/loop_invariants.h"
#include "compiler/derive/newton_cell.h"
#include "compiler/derive/relaxed_cell.h"
#include "compiler/derive/scalarize.h"
#include "compiler/derive/sequences_cell.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/derive/stepped_cell.h"
#include "compiler/derive/tangent_cell.h"
#include "compiler/derive/transition_cell.h"

namespace cellc {

StagedCell split_stages(const CellGraph& cell, const Structure& structure, const DeriveHooks& hooks = {});

/// nullopt where there is no such sum. All of a stage's sums run along the same channels. `of_gradient`: the stage is
/// an adjoint's, whose lanes may read the step before, also make sums along the outermost channels, and outs as
/// fuse_outs.
std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage, const DeriveHooks& hooks = {},
                                          const std::optional<AccumulatedOuts>& of_gradient = std::nullopt);

/// `after`, with sums that are there: every part is an input, ArraySource::Sum with its number among all parts.
/// `made`: outs that are there, too, and are left out.
DerivedCell with_reduced_outs(const DerivedCell& after, const std::vector<PartialSum>& sums,
                              const DeriveHooks& hooks = {}, const std::vector<int>& made = {});

/// The stage with those outs that its lanes can make; nullopt where there are none.
std::optional<StageCells> fuse_outs(const StagedCell& staged, int stage, const AccumulatedOuts& accumulated = {},
                                    const DeriveHooks& hooks = {});

/// A stage with a walk of its own from inputs to outs: each out that follows it is a sum of what lanes have just
/// computed, and lanes make what takes long and lacks the innermost channels themselves. nullopt where there are none.
std::optional<StageCells> fuse_sum_outs(const CellGraph& cell, const Structure& structure, int stage,
                                        const DeriveHooks& hooks = {});

/// `after` without outs that lanes make; sinks say which are left.
DerivedCell without_outs(const DerivedCell& after, const std::vector<int>& made, const DeriveHooks& hooks = {});

/// nullopt: the stage has no mixing terms.
std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage,
                                 const DeriveHooks& hooks = {});

SteppedCell step_of(const CellGraph& cell, const Structure& structure, int stage, const DeriveHooks& hooks = {});

/// `lanes`: of StageCells, or linearised. `kind` No means: not scannable, so Newton's transitions. Throws
/// std::logic_error where `lanes` is not of that kind.
TransitionCell with_transition(const DerivedCell& lanes, AxisId lane, Scannable kind, const DeriveHooks& hooks = {});

DerivedCell linearised(const DerivedCell& lanes, AxisId lane, const DeriveHooks& hooks = {});
DerivedCell evaluated(const DerivedCell& lanes, const DeriveHooks& hooks = {});
DerivedCell residual(const DerivedCell& lanes, AxisId lane, const DeriveHooks& hooks = {});

/// The declared starts or defaults of these symbols, which have one, as outs.
DerivedCell defaults_of(const CellGraph& cell, const std::vector<int>& symbols, Role role,
                        const DeriveHooks& hooks = {});

/// Gradients of the whole cell, from cotangents of the results that `of` names.
AdjointCell adjoint_of(const CellGraph& cell, const AdjointOf& of = {}, const DeriveHooks& hooks = {});

/// The derivative of a run by the symbols that `of` names, in one direction.
DerivedCell tangent_of(const CellGraph& cell, const TangentOf& of = {}, const DeriveHooks& hooks = {});

/// Of a cell with delay lines.
BlockCell block_of(const CellGraph& cell, const DeriveHooks& hooks = {});

/// nullopt: its steps sum something up, read an input along an axis of lags, or wait for a delay line.
/// `any_order`: by out, whether what it sums up may be added up in another order; empty: no out.
std::optional<SequencesCell> sequences_of(const CellGraph& cell, const std::vector<bool>& any_order = {},
                                          const DeriveHooks& hooks = {});

struct ScalarLane {
  ScalarizedCell scalars;
  LoopInvariants held;
};
/// `cell`: a lane cell, or one derived of it. Throws ScalarizedTooLong where it is longer than `options` allow;
/// std::invalid_argument for a missing length; std::logic_error where it is no lane cell.
ScalarLane scalar_lane(const CellGraph& cell, AxisId lane, const ScalarizeOptions& options,
                       const DeriveHooks& hooks = {});

/// One of all that is derived of a cell.
struct NumberedCell {
  int stage = -1;  ///< -1: of the whole cell
  DerivedCell derived;
};

/// All derived cells of a cell, in order: by stage, then what follows all stages. For people; runs make what they need.
std::vector<NumberedCell> derive(const CellGraph& cell, const Structure& structure, const DeriveHooks& hooks = {});

/// `inspect --stage derive`: each with its graph, and a line for each of its arrays. `whole`: what they are derived of.
std::string print_derived(const CellGraph& whole, const std::vector<NumberedCell>& all);

/// The longest circle of states of which derive makes transitions: there is one a pair.
inline constexpr int kMostDerivedStates = 16;

}  // namespace cellc
