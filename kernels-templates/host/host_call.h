/* One call of a shipped cell: what is given is checked, and every part of the cell is queued on a stream.
 * Nothing waits for the device and nothing is allocated. A call is gone through once to count the memory that
 * it needs, and once to run. */
#ifndef CELLC_HOST_CALL
#define CELLC_HOST_CALL

#include "kernels-templates/host/host_call_plan.h"

/* Parts of the cell ----------------------------------------------------------------------------------------
 */

static inline int cellc_is_made_again(const cellc_work* w, cellc_source source) {
  return source.kind == CELLC_FROM_REMADE && w->remade[source.id] != 0;
}

static inline cellc_nest_array cellc_array_of(const cellc_device_call* c, const cellc_work* w, cellc_source source) {
  cellc_nest_array a;
  switch (source.kind) {
    case CELLC_FROM_SYMBOL:
      return w->symbols[source.id];
    case CELLC_FROM_TRAJECTORY:
    case CELLC_FROM_REMADE:
      a = cellc_array_at(cellc_is_made_again(w, source) ? w->remade[source.id] : w->states[source.id].data);
      a.history = w->symbols[c->cell->updates[source.id]].data;
      a.history_depth = 1;
      return a;
    case CELLC_FROM_BEFORE:
      return cellc_array_at(w->before[source.id]);
    case CELLC_FROM_SUM:
      return cellc_array_at(w->sums[source.id]);
    case CELLC_FROM_OUT:
      return cellc_array_at(w->outs[source.id].data);
    default:
      return cellc_array_at(w->once[source.id]);
  }
}

static inline void cellc_run_derived(cellc_device_call* c, cellc_work* w, const cellc_derived* part, uint64_t* outs,
                                     int single) {
  int s;
  for (s = 0; s < part->source_count; ++s) w->part[s] = cellc_array_of(c, w, part->sources[s]);
  cellc_run_nests(c, part->rows, w->part, 0, 0, outs, single);
}

static inline void cellc_run_whole(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  uint64_t *states = w->addresses, *outs = w->addresses + cell->update_count;
  int u, o;
  for (u = 0; u < cell->update_count; ++u) states[u] = w->states[u].data;
  for (o = 0; o < cell->out_count; ++o) outs[o] = w->outs[o].data;
  cellc_run_nests(c, cell->whole.rows, w->symbols, states, w->finals, outs, 0);
}

static inline void cellc_bring_targets(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int u, o;
  for (u = 0; u < cell->update_count; ++u) {
    const int s = cell->updates[u];
    const int64_t n = cellc_entries(c, cell->symbols[s].axes);
    if (cellc_needs_no_rows(c, w, u)) {
      memset(w->states + u, 0, sizeof w->states[u]);
      w->states[u].step = n, w->states[u].sequence = c->steps * n;
    } else if (cell->symbols[s].lag_of < 0) {
      w->states[u] = cellc_target_rows(c, CELLC_FIELD_STATE, s, n, cellc_is_read_in_rows(c, w, s));
    } else {
      w->states[u] = cellc_own_rows(c, n);
    }
    w->finals[u] = cell->symbols[s].lag_of < 0 ? cellc_given(c, CELLC_FIELD_FINAL, s) : 0;
    if (!w->finals[u])
      w->finals[u] = cellc_take(c, cellc_times(cellc_times(c->sequences, n), cellc_type_bytes(cell->real)));
  }
  for (o = 0; o < cell->out_count && (c->outs_wanted || cell->whole.rows); ++o)
    w->outs[o] = cellc_target_rows(c, CELLC_FIELD_OUT, o, cellc_entries(c, cell->outs[o]), 1);
}

/* The number of a kernel; -1 where the stage was built without it. */
static inline int cellc_find_kernel(const cellc_lanes* part, const cellc_variant* v) {
  int k;
  for (k = 0; k < part->variant_count; ++k)
    if (memcmp(part->variants + k, v, sizeof *v) == 0) return part->first_kernel + k;
  return -1;
}

/* The nearest scan to one that the stage was built without. */
static inline int cellc_find_scan(const cellc_lanes* part, const cellc_facts* facts, cellc_variant* v) {
  int found, single;
  /* Where lengths are open there is one scan for whole warps of channels, and one for single channels. */
  for (single = 0; single < 2; ++single) {
    if (single) {
      if (v->channels > 1) v->copy = CELLC_EACH;
      v->channels = 1;
    } else {
      /* One kernel for both directions may be all there is. */
      cellc_variant other = *v;
      other.forward = 0;
      found = cellc_find_kernel(part, &other);
      if (found >= 0) {
        *v = other;
        return found;
      }
    }
    if (!cellc_scan_block(part->stage, facts, 0, v)) return -1;
    found = cellc_find_kernel(part, v);
    if (found >= 0) return found;
    v->forward = 0;
    found = cellc_find_kernel(part, v);
    if (found >= 0) return found;
  }
  return -1;
}

/* What a stage keeps from call to call, which begins as zeros: the most of all its kernels, by lengths alone. Marks,
 * which are zeros again after each call, lie behind what any of them leaves, and those of lanes that make outs, which
 * are numbers of calls, behind them: where this call's are is added to `marks`, if that is given. */
static inline int64_t cellc_kept_bytes(const cellc_device_call* c, const cellc_work* w, int number, uint64_t* marks) {
  /* Lanes with sums walk, and keep nothing. */
  const cellc_lanes* const forms[2] = {&c->cell->stages[number].plain, &c->cell->stages[number].making_outs};
  const cellc_stage* stage = forms[0]->stage;
  const int makes_outs = w->sum_parts[number] == CELLC_MAKES_OUTS;
  cellc_stage_run run;
  cellc_lane_axes axes;
  int64_t most = 0, most_marks[2] = {0, 0};
  int k, f;
  memset(&run, 0, sizeof run);
  run.lengths = c->lengths;
  run.sequences = c->sequences;
  run.length = c->steps;
  memset(&axes, 0, sizeof axes);
  axes.channels = 1;
  for (k = 0; k < stage->channels; ++k) axes.channels = cellc_times(axes.channels, c->lengths[stage->channel_axes[k]]);
  for (f = 0; f < 2 && forms[f]->stage; ++f)
    for (k = 0; k < forms[f]->variant_count; ++k) {
      const cellc_scratch bytes = cellc_scratch_bytes(forms[f]->stage, &run, &axes, w->plans + number,
                                                      forms[f]->variants + k, c->cell->control_bytes);
      most = cellc_most(most, cellc_align((int64_t)bytes.control) + (int64_t)(bytes.sent + bytes.words));
      most_marks[f] = cellc_most(most_marks[f], (int64_t)bytes.marks);
    }
  if (marks) *marks += (uint64_t)(cellc_align(most) + (makes_outs ? cellc_align(most_marks[0]) : 0));
  return cellc_align(most) + cellc_align(most_marks[0]) + cellc_align(most_marks[1]);
}

/* Memory for the sums of a stage, part after part, behind those of the stages before it. */
static inline void cellc_take_sums(cellc_device_call* c, const cellc_lanes* lanes, int parts, uint64_t* sums) {
  int s, p;
  for (s = 0; s < lanes->stage->sums; ++s) {
    const int64_t bytes =
        cellc_times(cellc_times(c->rows, cellc_entries(c, lanes->sums[s])), cellc_type_bytes(c->cell->real));
    const uint64_t at = cellc_take(c, cellc_times(bytes, parts));
    for (p = 0; p < parts; ++p) sums[s * parts + p] = at + (uint64_t)p * (uint64_t)bytes;
  }
}

/* `sums`: where its parts of sums begin. The run's pointers are those of `w`. */
static inline void cellc_describe_stage(const cellc_device_call* c, cellc_work* w, int number, const uint64_t* sums,
                                        cellc_stage_run* run) {
  const cellc_stage_part* part = c->cell->stages + number;
  const cellc_lanes* lanes = cellc_lanes_of(c, w, number);
  const cellc_stage* stage = lanes->stage;
  int s, i;
  memset(run, 0, sizeof *run);
  for (s = 0; s < stage->symbols; ++s) {
    const cellc_source source = lanes->sources[s];
    cellc_view* view = w->views + s;
    view->row = cellc_row_entries(stage, c->lengths, s);
    view->batch = view->row * c->steps;
    if (source.kind == CELLC_FROM_SUM) {
      view->data = sums[source.id * w->sum_parts[number]];
      run->part = c->rows * view->row;
    } else {
      view->data = cellc_array_of(c, w, source).data;
    }
    if (source.kind == CELLC_FROM_SYMBOL && c->cell->symbols[source.id].kind == CELLC_SYMBOL_INPUT)
      view->row = w->inputs[source.id].step, view->batch = w->inputs[source.id].sequence;
    if ((source.kind == CELLC_FROM_TRAJECTORY || source.kind == CELLC_FROM_REMADE) && !cellc_is_made_again(w, source))
      view->row = w->states[source.id].step, view->batch = w->states[source.id].sequence;
    if (source.kind == CELLC_FROM_OUT) view->row = w->outs[source.id].step, view->batch = w->outs[source.id].sequence;
    if (c->offsets) view->batch = 0;
  }
  run->lengths = c->lengths;
  run->views = w->views;
  run->starts = w->starts;
  run->finals = w->lasts;
  run->sequences = c->sequences;
  run->length = c->steps;
  run->uniform = !c->offsets;
  run->offsets = c->offsets ? c->device_offsets : 0;
  run->reverse = c->reverse;
  for (s = 0; part->states[s] >= 0; ++s) {
    w->starts[s] = w->symbols[c->cell->updates[part->states[s]]].data;
    w->lasts[s] = w->finals[part->states[s]];
  }
  /* Terms and outs start as nothing and end nowhere. */
  for (i = 0; i < stage->sums + stage->outs; ++i) w->starts[s + i] = w->lasts[s + i] = 0;
}

/* The kernel for a run, -1: there is none; and the variant and the plan that it is. */
static inline int cellc_kernel_for(const cellc_device_call* c, const cellc_lanes* lanes, const cellc_stage_run* run,
                                   const cellc_lane_axes* axes, cellc_plan* plan, cellc_variant* v) {
  const cellc_facts* facts = &c->device->facts;
  int found;
  *v = cellc_choose_variant(lanes->stage, facts, run, axes, plan);
  /* A scan that there is no room for would be one of segments, which make outs of steps that they make again. */
  if (v->kernel == CELLC_SEGMENTED && lanes->stage->outs) {
    *plan = cellc_sequential_plan();
    *v = cellc_choose_variant(lanes->stage, facts, run, axes, plan);
  }
  found = cellc_find_kernel(lanes, v);
  if (found < 0 && v->kernel == CELLC_SCAN) found = cellc_find_scan(lanes, facts, v);
  if (found >= 0) return found;
  *plan = cellc_sequential_plan();
  *v = cellc_choose_variant(lanes->stage, facts, run, axes, plan);
  found = cellc_find_kernel(lanes, v);
  if (found < 0) {
    /* The walk that takes any arrays. */
    const int sum_lanes = v->sum_lanes;
    *v = cellc_sequential_variant(lanes->stage, facts, 0, 0, 0, axes->channels, 0);
    v->sum_lanes = sum_lanes;
    found = cellc_find_kernel(lanes, v);
  }
  return found;
}

static inline void cellc_launch_kernel(cellc_device_call* c, cellc_work* w, const cellc_stage* stage,
                                       const cellc_stage_run* run, const cellc_lane_axes* axes, const cellc_plan* plan,
                                       const cellc_variant* v, const cellc_scratch* at, int found) {
  cellc_grid grid;
  int resident;
  if (c->counts || c->result) return;
  if (v->shared_bytes > c->device->facts.shared_per_block) {
    c->result = CELLC_SMALL_CARD;
    return;
  }
  resident = c->device->resident(c->device->self, found, cellc_stage_threads(stage, v), v->shared_bytes);
  grid = cellc_stage_grid(stage, &c->device->facts, run, axes, plan, v, resident);
  {
    const size_t size = cellc_stage_argument(stage, run, axes, plan, v, at, grid, c->cell->tolerance, 0, w->argument);
    c->result = c->device->launch(c->device->self, found, grid, v->shared_bytes, w->argument, size);
  }
}

/* Lanes that walk: they need no memory of their own. */
static inline void cellc_launch_walk(cellc_device_call* c, cellc_work* w, const cellc_lanes* lanes,
                                     const cellc_stage_run* run) {
  cellc_lane_axes axes = cellc_merge_axes(lanes->stage, run);
  cellc_plan plan = cellc_sequential_plan();
  cellc_variant v;
  cellc_scratch at;
  int found;
  if (c->counts || c->result || run->sequences * axes.channels == 0) return;
  found = cellc_kernel_for(c, lanes, run, &axes, &plan, &v);
  if (found < 0) {
    c->result = CELLC_NO_KERNEL;
    return;
  }
  memset(&at, 0, sizeof at);
  cellc_launch_kernel(c, w, lanes->stage, run, &axes, &plan, &v, &at, found);
}

/* What a scan with outs has marked. */
static inline void cellc_rewalk(cellc_device_call* c, cellc_work* w, const cellc_lanes* lanes, cellc_stage_run* run,
                                const cellc_lane_axes* axes, const cellc_variant* scan, const cellc_scratch* at) {
  const cellc_plan plan = cellc_sequential_plan();
  const cellc_variant v = cellc_rewalk_variant(lanes->stage, &c->device->facts, run, axes);
  const int found = cellc_find_kernel(lanes, &v);
  if (found < 0) {
    c->result = CELLC_NO_KERNEL;
    return;
  }
  run->part = cellc_scan_tiles(lanes->stage, run, scan) * scan->warps;
  run->scanned = scan;
  cellc_launch_kernel(c, w, lanes->stage, run, axes, &plan, &v, at, found);
}

static inline void cellc_run_stage(cellc_device_call* c, cellc_work* w, int number, const uint64_t* sums) {
  const cellc_lanes* lanes = cellc_lanes_of(c, w, number);
  const cellc_stage* stage = lanes->stage;
  cellc_stage_run run;
  cellc_lane_axes axes;
  cellc_plan plan = w->plans[number];
  cellc_variant v;
  cellc_scratch bytes, at;
  int k, found;
  cellc_describe_stage(c, w, number, sums, &run);
  if (cellc_long_channels(stage, c->lengths) > CELLC_CHANNEL_AXES) {
    c->result = CELLC_NO_KERNEL;
    return;
  }
  if (!c->result && !cellc_fits_lanes(stage, c->lengths)) {
    c->result = CELLC_TOO_WIDE;
    return;
  }
  axes = cellc_merge_axes(stage, &run);
  if (c->sequences * axes.channels == 0 || c->result) return;
  if (!c->arrays) {
    /* Whatever will be given: the most that any of the kernels would need. */
    int64_t most = 0;
    for (k = 0; k < lanes->variant_count; ++k) {
      bytes = cellc_scratch_bytes(stage, &run, &axes, &plan, lanes->variants + k, c->cell->control_bytes);
      most = cellc_most(
          most, cellc_align((int64_t)bytes.off) + cellc_align((int64_t)bytes.states) + cellc_align((int64_t)bytes.bad));
    }
    cellc_take(c, most);
    return;
  }
  found = cellc_kernel_for(c, lanes, &run, &axes, &plan, &v);
  if (found < 0) {
    c->result = CELLC_NO_KERNEL;
    return;
  }
  bytes = cellc_scratch_bytes(stage, &run, &axes, &plan, &v, c->cell->control_bytes);
  memset(&at, 0, sizeof at);
  if (v.kernel != CELLC_SEQUENTIAL) {
    at.control = c->kept;
    for (k = 0; k < number; ++k) at.control += (uint64_t)cellc_kept_bytes(c, w, k, 0);
    at.marks = at.control;
    at.sent = at.words = at.control + (uint64_t)cellc_align((int64_t)bytes.control);
    /* What the kernel does not need takes no room: of any arrays, as much is counted as the largest kernel needs. */
    if (bytes.off) at.off = cellc_take(c, (int64_t)bytes.off);
    if (bytes.states) at.states = cellc_take(c, (int64_t)bytes.states);
    if (bytes.bad) at.bad = cellc_take(c, (int64_t)bytes.bad);
    /* All of it: another kernel of the stage may come next. */
    {
      const int64_t kept = cellc_kept_bytes(c, w, number, &at.marks);
      if (!c->keep) cellc_zero(c, at.control, kept);
    }
  }
  cellc_launch_kernel(c, w, stage, &run, &axes, &plan, &v, &at, found);
  if (v.kernel == CELLC_SCAN && v.checks && stage->outs) cellc_rewalk(c, w, lanes, &run, &axes, &v, &at);
}

/* A scan rounds, and what later stages make of that may be any multiple of it: they read new values that follow from
 * the rows. Lanes that walk go over single steps, each from the states before it. */
static inline void cellc_remake(cellc_device_call* c, cellc_work* w, int number) {
  const cellc_stage_part* part = c->cell->stages + number;
  const cellc_stage* stage = part->plain.stage;
  cellc_stage_run run;
  int i, o, s;
  for (i = 0; i < part->remade_count; ++i) {
    const cellc_remade* pass = part->remade + i;
    for (o = 0; o < pass->made.out_count; ++o) {
      w->addresses[o] = cellc_take(c, cellc_times(cellc_times(c->rows, cellc_entries(c, pass->made.outs[o])),
                                                  cellc_type_bytes(c->cell->running)));
      if (i + 1 < part->remade_count) w->remade[pass->copies[o]] = w->addresses[o];
    }
    cellc_run_derived(c, w, &pass->made, w->addresses, 0);
  }
  cellc_describe_stage(c, w, number, 0, &run);
  for (s = 0; part->states[s] >= 0; ++s) {
    const int u = part->states[s];
    const int64_t n = cellc_entries(c, c->cell->symbols[c->cell->updates[u]].axes);
    w->starts[s] = w->addresses[s];
    w->lasts[s] = 0;
    w->views[s].data = 0;
    w->views[s].row = n;
    for (o = 0; part->remade_states[o] >= 0; ++o)
      if (part->remade_states[o] == u)
        w->views[s].data = w->remade[u] =
            cellc_take(c, cellc_times(cellc_times(c->rows, n), cellc_type_bytes(c->cell->running)));
  }
  for (s = 0; s < stage->symbols; ++s) w->views[s].batch = w->views[s].row;
  run.sequences = c->rows;
  run.length = 1;
  run.uniform = 1;
  run.offsets = 0;
  run.reverse = 0;
  cellc_launch_walk(c, w, &part->plain, &run);
}

static inline void cellc_run_stages(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  const cellc_derived* after = c->reduced ? &c->reduced->after : &cell->after;
  uint64_t* sums = w->sums;
  int k, o;
  for (k = 0; k < cell->update_count; ++k) w->remade[k] = 0;
  for (k = 0; k < cell->stage_count; ++k) {
    const cellc_lanes* lanes = cellc_lanes_of(c, w, k);
    for (o = 0; o < lanes->once.out_count; ++o)
      w->once[o] = cellc_take(c, cellc_times(cellc_entries(c, lanes->once.outs[o]), cellc_type_bytes(cell->real)));
    if (lanes->once.out_count) cellc_run_derived(c, w, &lanes->once, w->once, 1);
    for (o = 0; o < lanes->before.out_count; ++o)
      w->before[o] = cellc_take(c, cellc_times(cellc_times(c->rows, cellc_entries(c, lanes->before.outs[o])),
                                               cellc_type_bytes(cell->running)));
    if (lanes->before.out_count) cellc_run_derived(c, w, &lanes->before, w->before, 0);
    if (w->sum_parts[k] > 0) cellc_take_sums(c, lanes, w->sum_parts[k], sums);
    cellc_run_stage(c, w, k, sums);
    if (cell->stages[k].remade_count && cellc_is_remade(w->plans + k)) cellc_remake(c, w, k);
    if (w->sum_parts[k] > 0) sums += lanes->stage->sums * w->sum_parts[k];
  }
  for (o = 0; o < cell->out_count; ++o) w->addresses[o] = w->outs[o].data;
  if (after->rows && c->outs_wanted) cellc_run_derived(c, w, after, w->addresses, 0);
}

/* A call without steps ends where it starts. */
static inline void cellc_end_at_once(cellc_device_call* c, cellc_work* w) {
  int u;
  for (u = 0; u < c->cell->update_count; ++u) {
    const int64_t all = c->sequences * cellc_entries(c, c->cell->symbols[c->cell->updates[u]].axes);
    cellc_copy_entries(c, w->symbols[c->cell->updates[u]].data, c->cell->real, 0, 0, w->finals[u], c->cell->real, 0, 0,
                       1, 1, all);
  }
}

/* All of a call, after cellc_read_lengths. */
static inline void cellc_go_through(cellc_device_call* c, cellc_work* w) {
  if (c->rows > 0 && !c->cell->whole.rows) {
    /* First, so that it lies where the last call of the same lengths had it, whatever arrays either was given. */
    int64_t kept = 0;
    int k;
    cellc_plan_stages(c, w);
    for (k = 0; k < c->cell->stage_count; ++k) kept += cellc_kept_bytes(c, w, k, 0);
    c->kept = cellc_take(c, kept);
  }
  /* Only row kernels read offsets of sequences that are all as long: they are written where the first of them needs
   * them. */
  c->filled = c->device_offsets != 0;
  if (!c->filled) c->device_offsets = cellc_take(c, 8 * (c->sequences + 1));
  cellc_bring_params(c, w);
  cellc_bring_starts(c, w);
  cellc_bring_inputs(c, w);
  cellc_bring_targets(c, w);
  cellc_begin_lines(c, w);
  if (c->rows == 0)
    cellc_end_at_once(c, w);
  else if (c->cell->whole.rows)
    cellc_run_whole(c, w);
  else
    cellc_run_stages(c, w);
  cellc_deliver(c, w);
}

/* What plans are made by. Shared memory is that of the least card that kernels are built for, so that they
 * suit on every card; memory between phases is kept to 256 MiB. */
static inline cellc_facts cellc_facts_of(const cellc_cell* cell, int multiprocessors, int l2_bytes) {
  cellc_facts facts;
  facts.multiprocessors = multiprocessors;
  facts.shared_per_block = cell->shared_per_block;
  facts.shared_per_multiprocessor = cell->shared_per_multiprocessor;
  facts.memory_bytes = (int64_t)4 << 30;
  facts.l2_bytes = l2_bytes;
  facts.clusters = 0; /* host_driver.h and host_cudart.h launch without */
  return facts;
}

/* What is given, before anything is made of it. */
static inline int cellc_begin(cellc_device_call* c, const void* lengths, const void* arrays) {
  int o;
  c->arrays = (const unsigned char*)arrays;
  for (o = 0; arrays && o < c->cell->out_count; ++o)
    if (cellc_given(c, CELLC_FIELD_OUT, o)) c->outs_wanted = 1;
  c->result = cellc_read_lengths(c, lengths);
  return c->result;
}

static inline int cellc_count_bytes(cellc_device_call* c, cellc_work* w, const void* lengths, const void* arrays,
                                    int64_t* bytes) {
  if (!bytes) return CELLC_NO_BYTES;
  c->counts = 1;
  if (!cellc_begin(c, lengths, arrays)) {
    cellc_device_call other = *c;
    cellc_go_through(c, w);
    /* Of any arrays: with outs, whose stages may run in another form, and without. */
    other.outs_wanted = 1;
    if (!arrays && !c->result) {
      cellc_go_through(&other, w);
      c->used = cellc_most(c->used, other.used);
      c->result = other.result;
    }
  }
  if (!c->result) *bytes = c->used + 256;
  return c->result;
}

/* 0 where everything that is needed is given, on the device, and aligned to its entries: what is not would fault there.
 */
static inline int cellc_check_arrays(const cellc_device_call* c, uint64_t workspace, uint64_t status) {
  int f;
  for (f = 0; f < c->cell->outline.field_count; ++f) {
    const cellc_field* field = c->cell->outline.fields + f;
    const uint64_t given = (uint64_t)cellc_word(c->arrays, field->word);
    if (cellc_is_missing(field, (int64_t)given, c->rows)) return CELLC_MISSING_FIELD + f;
    if (given && !c->device->owns(c->device->self, given)) return CELLC_FOREIGN_FIELD + f;
    if (given % (uint64_t)cellc_type_bytes(cellc_is_stored(field) ? c->cell->storage : c->cell->real))
      return CELLC_UNALIGNED_FIELD + f;
  }
  if (!c->device->owns(c->device->self, workspace)) return CELLC_FOREIGN_WORKSPACE;
  if (status && !c->device->owns(c->device->self, status)) return CELLC_FOREIGN_STATUS;
  if (status % 4) return CELLC_UNALIGNED_STATUS;
  if (c->device_offsets % 8) return CELLC_UNALIGNED_OFFSETS;
  if (c->device_offsets && !c->device->owns(c->device->self, c->device_offsets)) return CELLC_FOREIGN_OFFSETS;
  return CELLC_DONE;
}

static inline int cellc_run_call(cellc_device_call* c, cellc_work* w, const void* lengths, const void* arrays,
                                 uint64_t workspace, int64_t workspace_bytes, uint64_t status) {
  cellc_device_call counted = *c;
  int64_t bytes = 0;
  int result;
  if (!lengths) return CELLC_NO_LENGTHS;
  if (!arrays) return CELLC_NO_ARRAYS;
  result = cellc_count_bytes(&counted, w, lengths, arrays, &bytes);
  if (result) return result;
  if (!workspace) return CELLC_NO_WORKSPACE;
  if (workspace_bytes < bytes) return CELLC_SMALL_WORKSPACE;
  if (!cellc_begin(c, lengths, arrays)) c->result = cellc_check_arrays(c, workspace, status);
  if (c->result) return c->result;
  c->base = (workspace + 255) / 256 * 256;
  cellc_go_through(c, w);
  /* Kernels walk, or compare and repair until every step is within the tolerance: there is no other end. */
  if (status) cellc_zero(c, status, 4 * c->sequences);
  return c->result;
}

#endif
