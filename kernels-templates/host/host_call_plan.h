/* How one call of a shipped cell runs its stages: by which strategies, in which form of their lanes, and so which
 * states need no rows. The same decisions as a run's (runtime/cuda/launch/plan_execution.cc). */
#ifndef CELLC_HOST_CALL_PLAN
#define CELLC_HOST_CALL_PLAN

#include "kernels-templates/host/host_arrays.h"

static inline cellc_plan cellc_plan_of(const cellc_device_call* c, const cellc_stage_part* part, int64_t channels) {
  const int solver = c->cell->solver;
  if (solver == CELLC_SOLVER_SEQUENTIAL) return cellc_sequential_plan();
  if (solver == CELLC_MUST_AUTO)
    return cellc_choose_plan(&part->facts, &c->device->facts, c->sequences, channels, c->steps, 0);
  {
    cellc_plan plan = cellc_forced_plan(&part->facts, &c->device->facts, c->sequences, channels, c->steps,
                                        solver == CELLC_SCAN_ASKED ? CELLC_ASK_CARRIED : solver,
                                        solver == CELLC_ASK_SEGMENTED ? 8 : 50);
    if (solver == CELLC_SCAN_ASKED) plan.strategy = CELLC_SCAN;
    return plan;
  }
}

/* How stages are run, all of them before any: the outs are made from sums where lanes make those, and not where lanes
 * make them. The same decisions as a run's (runtime/cuda/launch/plan_execution.cc), on arrays that nobody looks at
 * afterwards. */
static inline void cellc_plan_stages(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int k, a, r, any = 0, any_sums;
  int64_t channels;
  for (k = 0; k < cell->stage_count; ++k) {
    const cellc_stage_part* part = cell->stages + k;
    const cellc_stage* stage = part->plain.stage;
    channels = 1;
    for (a = 0; a < stage->channels; ++a) channels = cellc_times(channels, c->lengths[stage->channel_axes[a]]);
    w->plans[k] = cellc_plan_of(c, part, channels);
    if (stage->repeats) cellc_repeat_plan(w->plans + k);
    if (k + 1 < cell->stage_count && !cellc_leaves_no_residual(&part->facts, stage->scans, w->plans + k))
      w->plans[k] = cellc_sequential_plan();
    /* More steps than lanes go over singly. */
    if (part->remade_count && c->rows >= (int64_t)1 << 31) w->plans[k] = cellc_sequential_plan();
    w->sum_parts[k] = 0;
    if (c->outs_wanted && part->summing.stage)
      w->sum_parts[k] = cellc_planned_sums(w->plans + k, cellc_lane_sums(part->summing.stage, c->lengths));
    any = any || w->sum_parts[k] > 0;
  }
  any_sums = any;
  for (k = 0; k < cell->stage_count && c->outs_wanted && !any_sums; ++k) {
    const cellc_stage_part* part = cell->stages + k;
    if (!part->making_outs.stage) continue;
    channels = 1;
    for (a = 0; a < part->plain.stage->channels; ++a)
      channels = cellc_times(channels, c->lengths[part->plain.stage->channel_axes[a]]);
    if (cellc_plans_outs(w->plans + k, &c->device->facts, part->plain.stage->scans && part->making_outs.stage->scans,
                         part->stands_alone, cellc_times(c->rows, channels)))
      w->sum_parts[k] = CELLC_MAKES_OUTS, any = 1;
  }
  c->reduced = 0;
  for (r = 0; r < cell->reduced_count && any && !c->reduced; ++r) {
    c->reduced = cell->reduced + r;
    for (k = 0; k < cell->stage_count && c->reduced; ++k)
      if (c->reduced->parts[k] != w->sum_parts[k]) c->reduced = 0;
  }
  /* What there is no code for is left to the outs. */
  for (k = 0; k < cell->stage_count && !c->reduced; ++k) w->sum_parts[k] = 0;
}

static inline const cellc_lanes* cellc_lanes_of(const cellc_device_call* c, const cellc_work* w, int stage) {
  const cellc_stage_part* part = c->cell->stages + stage;
  return w->sum_parts[stage] > 0                   ? &part->summing
         : w->sum_parts[stage] == CELLC_MAKES_OUTS ? &part->making_outs
                                                   : &part->plain;
}

static inline int cellc_reads_rows(const cellc_source* sources, int count, int update) {
  int s;
  for (s = 0; s < count; ++s)
    if ((sources[s].kind == CELLC_FROM_TRAJECTORY || sources[s].kind == CELLC_FROM_REMADE) && sources[s].id == update)
      return 1;
  return 0;
}

/* Lanes that walk or make outs, and whole steps, leave a state unwritten that the caller does not want, if nothing else
 * reads it. */
static inline int cellc_needs_no_rows(const cellc_device_call* c, const cellc_work* w, int update) {
  const cellc_cell* cell = c->cell;
  const cellc_derived* after = c->reduced ? &c->reduced->after : &cell->after;
  int k, s;
  if (!c->arrays || c->rows == 0 || cellc_given(c, CELLC_FIELD_STATE, cell->updates[update])) return 0;
  for (s = 0; s < cell->symbol_count; ++s)
    if (cell->symbols[s].line_of == cell->updates[update]) return 0;
  if (cell->whole.rows) return !cellc_reads_state_rows(cell->whole.rows, update);
  for (k = 0; k < cell->stage_count; ++k) {
    const cellc_lanes* lanes = cellc_lanes_of(c, w, k);
    int own = 0;
    for (s = 0; cell->stages[k].states[s] >= 0; ++s) own = own || cell->stages[k].states[s] == update;
    if (own ? w->plans[k].strategy != CELLC_SEQUENTIAL && w->sum_parts[k] != CELLC_MAKES_OUTS
            : cellc_reads_rows(lanes->sources, lanes->stage->symbols, update))
      return 0;
    if (cellc_reads_rows(lanes->before.sources, lanes->before.source_count, update)) return 0;
    if (own && cell->stages[k].remade_count && cellc_is_remade(w->plans + k)) return 0;
    for (s = 0; s < cell->stages[k].remade_count && cellc_is_remade(w->plans + k); ++s)
      if (cellc_reads_rows(cell->stages[k].remade[s].made.sources, cell->stages[k].remade[s].made.source_count, update))
        return 0;
  }
  return !c->outs_wanted || !cellc_reads_rows(after->sources, after->source_count, update);
}

#endif
