#pragma once
// The derivations as they are, unannounced and unverified: for pipeline.cc, which is the door to them, and for each
// other. The headers of the types say what each does.
#include "compiler/derive/adjoint_cell.h"
#include "compiler/derive/block_cell.h"
#include "compiler/derive/fused_outs.h"
#include "compiler/derive/fused_reductions.h"
#include "compiler/derive/lane_fusion.h"
#include "compiler/derive/loop_invariants.h"
#include "compiler/derive/relaxed_cell.h"
#include "compiler/derive/scalarize.h"
#include "compiler/derive/sequences_cell.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/derive/stepped_cell.h"
#include "compiler/derive/tangent_cell.h"
#include "compiler/derive/transition_cell.h"

namespace cellc::derivation {

/// `repeats_innermost`: what takes long and lacks the innermost channels alone is made by every lane along them.
StagedCell split_stages(const CellGraph& cell, const Structure& structure, bool repeats_innermost = false);
std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage,
                                          const std::optional<AccumulatedOuts>& of_gradient);
DerivedCell with_reduced_outs(const DerivedCell& after, const std::vector<PartialSum>& sums,
                              const std::vector<int>& made);
std::optional<StageCells> fuse_outs(const StagedCell& staged, int stage, const AccumulatedOuts& accumulated);
std::optional<StageCells> fuse_sum_outs(const CellGraph& cell, const Structure& structure, int stage);
/// The outs that lanes can make, behind the states that `to` has.
void add_outs(LaneFusion& lanes, const AccumulatedOuts& accumulated, StageCells& to);
DerivedCell without_outs(const DerivedCell& after, const std::vector<int>& made);
std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage);
SteppedCell step_of(const CellGraph& cell, const Structure& structure, int stage);
TransitionCell with_transition(const DerivedCell& lanes, AxisId lane, Scannable kind);
DerivedCell linearised(const DerivedCell& lanes, AxisId lane);
DerivedCell evaluated(const DerivedCell& lanes);
DerivedCell residual(const DerivedCell& lanes, AxisId lane);
BlockCell block_of(const CellGraph& cell);
std::optional<SequencesCell> sequences_of(const CellGraph& cell, const std::vector<bool>& any_order);
DerivedCell defaults_of(const CellGraph& cell, const std::vector<int>& symbols, Role role);
AdjointCell adjoint_of(const CellGraph& cell, const AdjointOf& of);
DerivedCell tangent_of(const CellGraph& cell, const TangentOf& of);
ScalarizedCell scalarize(const CellGraph& cell, AxisId lane, const ScalarizeOptions& options);

}  // namespace cellc::derivation
