#pragma once
// A run whose states nobody wants: whether rows of them can be left out, and how a stage then runs. What is written has
// the bits that it has in a full run.
#include <functional>
#include <optional>

#include "runtime/cpu/cell_programs.h"
#include "runtime/cpu/cpu_strategy.h"

namespace cellc {

/// Whether any out is wanted.
bool wants_outs(const CellGraph& cell, const Wanted& wanted);

/// Whether lanes may do without rows of states: nobody wants them, and no other stage reads them. Where they lag, the
/// steps behind a boundary are looked at, too, so there they are kept.
bool may_leave_out_rows(const CellGraph& cell, const Structure& structure, const BoundRun& run);

/// Whether lanes that each run a whole sequence may make the outs beside rows of states, instead of a walk over these
/// rows once they are all there.
bool lanes_make_outs(const CellGraph& cell, const Structure& structure, const BoundRun& run);

/// Trajectories for all states, those of `reuse` where they fit.
RunArrays run_arrays(const CellGraph& cell, const BoundRun& run, Dtype arithmetic, RunOutput& reuse);
/// As a run has them, but trajectories have no memory.
RunArrays arrays_without_rows(const CellGraph& cell, const BoundRun& run, Dtype arithmetic);

/// The only stage of a cell by lanes that make the outs. `data`: its arrays for these lanes.
/// nullopt: lanes cannot, or a boundary missed; then the stage has to be run with rows.
struct RunWithoutRows {
  StageOutcome outcome;
  RunOutput output;
};
std::optional<RunWithoutRows> run_without_rows(CellPrograms& programs, StageToSolve& stage,
                                               const std::function<StageData(const StageCells&)>& data);

}  // namespace cellc
