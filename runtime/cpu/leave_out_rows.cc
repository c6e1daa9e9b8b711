#include "runtime/cpu/leave_out_rows.h"

#include <algorithm>

#include "runtime/data/bind.h"
#include "runtime/data/call_shape.h"

namespace cellc {

bool wants_outs(const CellGraph& cell, const Wanted& wanted) {
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (wanted.out(o)) return true;
  return false;
}

bool may_leave_out_rows(const CellGraph& cell, const Structure& structure, const BoundRun& run) {
  if (structure.stages.size() != 1 || run.offsets.back() == 0) return false;
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    if (run.wanted.state(u) || cell.symbol_of(cell.updates[u]).lag_of >= 0) return false;
  return true;
}

bool lanes_make_outs(const CellGraph& cell, const Structure& structure, const BoundRun& run) {
  return structure.stages.size() == 1 && run.offsets.back() > 0 && wants_outs(cell, run.wanted) &&
         std::none_of(cell.updates.begin(), cell.updates.end(),
                      [&](const StateUpdate& u) { return cell.symbol_of(u).lag_of >= 0; });
}

RunArrays run_arrays(const CellGraph& cell, const BoundRun& run, Dtype arithmetic, RunOutput& reuse) {
  RunArrays arrays;
  arrays.cell = &cell;
  arrays.run = &run;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const auto shape = run_shape(FieldKind::State, cell, run, cell.symbols[cell.updates[u].symbol].axes);
    const bool fits = u < reuse.states.size() && reuse.states[u].dtype() == arithmetic &&
                      reuse.states[u].shape() == shape && reuse.states[u].is_sole_owner();
    arrays.trajectories.push_back(fits ? std::move(reuse.states[u]) : Array::uninitialised(arithmetic, shape));
  }
  return arrays;
}

RunArrays arrays_without_rows(const CellGraph& cell, const BoundRun& run, Dtype arithmetic) {
  RunArrays arrays;
  arrays.cell = &cell;
  arrays.run = &run;
  for (const StateUpdate& u : cell.updates)
    arrays.trajectories.push_back(
        Array::view(arithmetic, run_shape(FieldKind::State, cell, run, cell.symbol_of(u).axes), nullptr));
  return arrays;
}

std::optional<RunWithoutRows> run_without_rows(CellPrograms& programs, StageToSolve& stage,
                                               const std::function<StageData(const StageCells&)>& data) {
  if (stage.plan.strategy != Strategy::Segmented) return std::nullopt;
  const CellGraph& cell = programs.cell();
  RunArrays& arrays = stage.arrays;
  const BoundRun& run = *arrays.run;
  const bool any = wants_outs(cell, run.wanted);
  const CellPrograms::WithOuts* const with = any ? programs.with_outs(run.wanted) : nullptr;
  if (any && !with) return std::nullopt;
  for (std::size_t o = 0; o < cell.outs.size(); ++o) {
    const auto shape = run_shape(FieldKind::Out, cell, run, cell.outs[o].index);
    arrays.outs.push_back(run.wanted.out(o) ? Array::uninitialised(programs.arithmetic(), shape) : Array());
  }
  StageData lanes = data(with ? with->stage : programs.stages().stages[0]);
  StageOuts made{with ? *with->kernel : stage.kernels.step(), lanes};
  stage.outs = &made;
  RunWithoutRows found;
  found.outcome = on_cpu(stage.plan.strategy).run(stage);
  stage.outs = nullptr;
  if (found.outcome.finals.empty()) return std::nullopt;
  const std::vector<int>& states = programs.structure().stages[0].states;
  for (Array& a : arrays.outs)
    found.output.outs.push_back(a.shape().empty() ? std::move(a) : convert(a, programs.options().dtype));
  if (arrays.trajectories[0].data()) return found;  // they have what else there is
  found.output.states.resize(cell.updates.size());
  found.output.finals.resize(cell.updates.size());
  for (std::size_t i = 0; i < states.size(); ++i)
    if (const auto u = static_cast<std::size_t>(states[i]); run.wanted.final(u))
      found.output.finals[u] = std::move(found.outcome.finals[i]);
  return found;
}

}  // namespace cellc
