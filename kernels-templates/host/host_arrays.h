/* What a call of a shipped cell is given, and how its arrays reach the kernels and come back: lengths are
 * checked, memory is divided, defaults are filled in, rows are copied where kernels need them otherwise.
 * host_call.h has the rest of the call. */
#ifndef CELLC_HOST_ARRAYS
#define CELLC_HOST_ARRAYS

#include "kernels-templates/host/host_cell.h"

/* Arguments of call.cuh. */
typedef struct cellc_copy {
  uint64_t from, to;
  int64_t from_sequence, from_step, to_sequence, to_step; /* entries */
  int64_t sequences, steps, entries;
  int64_t from_type, to_type, through; /* through: a type that the value is rounded to on the way; -1: none */
  double number;                       /* where from is 0 */
} cellc_copy;
typedef struct cellc_fill_offsets {
  uint64_t to;
  int64_t sequences, steps;
} cellc_fill_offsets;
typedef struct cellc_last_steps {
  uint64_t rows, before, to, offsets;
  int64_t sequence, step; /* strides of the rows, entries */
  int64_t sequences, steps, depth, entries, bytes, reverse;
} cellc_last_steps;

typedef struct cellc_device_call {
  const cellc_cell* cell;
  const cellc_device* device;
  const unsigned char* arrays; /* null: memory enough for whatever is given */
  int counts, result;
  uint64_t base;
  int64_t used;
  int64_t lengths[CELLC_MOST_AXES];
  int64_t sequences, steps, rows; /* steps: of the longest */
  const int64_t* offsets;         /* null: all sequences are as long */
  uint64_t device_offsets;
  int filled;                   /* what stands there is the caller's, or queued */
  int packed, reverse, keep;    /* packed: the caller gave offsets, even where all are as long */
  int outs_wanted;              /* any of them: those that are not given are made in the workspace */
  const cellc_reduced* reduced; /* how they are made where lanes make sums or outs; null: of states */
  uint64_t kept;                /* what stages keep from call to call */
} cellc_device_call;

static inline int64_t cellc_entries(const cellc_device_call* c, cellc_dims dims) {
  return cellc_entries_of(&c->cell->outline, c->lengths, dims);
}

static inline int64_t cellc_type_bytes(int type) { return type == CELLC_F64 ? 8 : type == CELLC_F32 ? 4 : 2; }

/* Steps of an input's or state's history. */
static inline int64_t cellc_depth(const cellc_device_call* c, int symbol) {
  return cellc_depth_of(&c->cell->outline, c->lengths, c->cell->symbols[symbol].reaches);
}

/* Device memory of the workspace. */
static inline uint64_t cellc_take(cellc_device_call* c, int64_t bytes) {
  const uint64_t at = c->base + (uint64_t)c->used;
  c->used += cellc_align(bytes > 0 ? bytes : 1);
  if (c->used > (int64_t)1 << 60) c->used = (int64_t)1 << 60, c->result = CELLC_TOO_LARGE;
  return at;
}

static inline const cellc_field* cellc_find_field(const cellc_cell* cell, int kind, int id) {
  int f;
  for (f = 0; f < cell->outline.field_count; ++f)
    if (cell->outline.fields[f].kind == kind && cell->outline.fields[f].id == id) return cell->outline.fields + f;
  return 0;
}

/* What the caller gave; 0: nothing. */
static inline uint64_t cellc_given(const cellc_device_call* c, int kind, int id) {
  const cellc_field* f = cellc_find_field(c->cell, kind, id);
  return f && c->arrays ? (uint64_t)cellc_word(c->arrays, f->word) : 0;
}

/* What stands in the struct of lengths, checked. `from` may be null. */
static inline int cellc_read_lengths(cellc_device_call* c, const void* from) {
  const cellc_outline* outline = &c->cell->outline;
  cellc_extent e;
  int f;
  const int result = cellc_read_extent(outline, from, c->lengths, &e);
  if (result) return result < CELLC_SHORT_AXES ? result : CELLC_SHORT_AXIS;
  c->sequences = e.sequences, c->steps = e.steps, c->rows = e.rows;
  c->packed = e.offsets != 0;
  c->offsets = e.even ? 0 : e.offsets;
  c->device_offsets = c->packed ? (uint64_t)cellc_word(from, outline->first_word + 3) : 0;
  c->reverse = cellc_word(from, outline->first_word + 4) != 0;
  c->keep = cellc_word(from, outline->first_word + 5) != 0;
  if (c->packed && !c->device_offsets && c->sequences > 0) return CELLC_NO_DEVICE_OFFSETS;
  if (c->sequences >= (int64_t)1 << 31) return CELLC_TOO_LARGE;
  /* No array of the caller's has more bytes than can be counted: then places in it cannot be either. */
  for (f = 0; f < outline->field_count; ++f) {
    const cellc_field* field = outline->fields + f;
    const cellc_dims axes =
        field->kind == CELLC_FIELD_OUT ? c->cell->outs[field->id] : c->cell->symbols[field->id].axes;
    const int64_t entries = cellc_times(cellc_entries(c, axes), 8);
    const int is_history = field->kind == CELLC_FIELD_INPUT_HISTORY || field->kind == CELLC_FIELD_STATE_HISTORY ||
                           field->kind == CELLC_FIELD_FINAL_INPUT_HISTORY ||
                           field->kind == CELLC_FIELD_FINAL_STATE_HISTORY;
    int64_t rows = cellc_is_rows(field) ? c->rows : c->sequences;
    if (is_history) rows = cellc_times(rows, cellc_depth(c, field->id));
    if (field->kind == CELLC_FIELD_PARAM) rows = 1;
    if (cellc_times(rows, entries) >= CELLC_MOST_BYTES) return CELLC_TOO_LARGE;
  }
  return c->rows >= CELLC_MOST_BYTES ? CELLC_TOO_LARGE : CELLC_DONE;
}

/* Kernels of our own ------------------------------------------------------------------------------------- */

static inline void cellc_launch_small(cellc_device_call* c, int kernel, int64_t work, const void* argument,
                                      size_t bytes) {
  cellc_grid grid;
  if (c->counts || c->result || work == 0) return;
  grid.threads = 256;
  grid.blocks = (unsigned)cellc_least(cellc_divide_up(work, 256), 32 * (int64_t)c->device->facts.multiprocessors);
  grid.cooperative = 0;
  c->result = c->device->launch(c->device->self, kernel, grid, 0, argument, bytes);
}

/* Little is written by a kernel, which begins before what is ahead of it on the stream has ended and lets the next one
 * do so: 1 us where clearing memory takes 2.4 (H200). */
static inline void cellc_zero(cellc_device_call* c, uint64_t at, int64_t bytes) {
  if (bytes > (1 << 20) || (at | (uint64_t)bytes) % 4) {
    if (!c->counts && !c->result && bytes > 0) c->result = c->device->zero(c->device->self, at, bytes);
  } else {
    const int wide = (at | (uint64_t)bytes) % 8 == 0;
    cellc_copy zeros;
    memset(&zeros, 0, sizeof zeros);
    zeros.to = at, zeros.to_type = zeros.from_type = wide ? CELLC_F64 : CELLC_F32, zeros.through = -1;
    zeros.sequences = zeros.steps = 1, zeros.entries = bytes / (wide ? 8 : 4);
    cellc_launch_small(c, c->cell->copy_kernel, zeros.entries, &zeros, sizeof zeros);
  }
}

static inline void cellc_copy_entries(cellc_device_call* c, uint64_t from, int from_type, int64_t from_sequence,
                                      int64_t from_step, uint64_t to, int to_type, int64_t to_sequence, int64_t to_step,
                                      int64_t sequences, int64_t steps, int64_t entries) {
  cellc_copy copy;
  memset(&copy, 0, sizeof copy);
  copy.from = from, copy.from_type = from_type, copy.from_sequence = from_sequence, copy.from_step = from_step;
  copy.to = to, copy.to_type = to_type, copy.to_sequence = to_sequence, copy.to_step = to_step;
  copy.sequences = sequences, copy.steps = steps, copy.entries = entries;
  copy.through = -1;
  cellc_launch_small(c, c->cell->copy_kernel, sequences * steps * entries, &copy, sizeof copy);
}

/* Arrays ------------------------------------------------------------------------------------------------- */

/* Rows on the way to or from the caller. */
typedef struct cellc_rows_view {
  uint64_t data;
  int64_t sequence, step; /* strides, entries */
  int direct;             /* the caller's own memory */
} cellc_rows_view;

static inline cellc_rows_view cellc_callers_rows(const cellc_device_call* c, int kind, int id, int64_t entries) {
  cellc_rows_view v;
  const cellc_field* f = cellc_find_field(c->cell, kind, id);
  cellc_strides strides = {0, 0};
  v.data = 0;
  v.direct = 1;
  if (f && c->arrays) {
    v.data = (uint64_t)cellc_word(c->arrays, f->word);
    strides.sequence = cellc_word(c->arrays, f->word + 1);
    strides.step = cellc_word(c->arrays, f->word + 2);
  }
  strides = cellc_strides_of(strides, entries, c->steps, c->packed);
  v.sequence = strides.sequence, v.step = strides.step;
  return v;
}

/* Rows without gaps in the workspace. */
static inline cellc_rows_view cellc_own_rows(cellc_device_call* c, int64_t entries) {
  cellc_rows_view v;
  v.data = cellc_take(c, cellc_times(cellc_times(c->rows, entries), cellc_type_bytes(c->cell->running)));
  v.step = entries;
  v.sequence = c->steps * entries;
  v.direct = 0;
  return v;
}

static inline void cellc_copy_rows(cellc_device_call* c, const cellc_rows_view* from, int from_type,
                                   const cellc_rows_view* to, int to_type, int64_t entries) {
  /* Rows of packed sequences lie one behind another. */
  if (c->offsets)
    cellc_copy_entries(c, from->data, from_type, 0, from->step, to->data, to_type, 0, to->step, 1, c->rows, entries);
  else
    cellc_copy_entries(c, from->data, from_type, from->sequence, from->step, to->data, to_type, to->sequence, to->step,
                       c->sequences, c->steps, entries);
}

/* What a call works with, by symbol, position or out; room for them is the caller's. */
typedef struct cellc_work {
  cellc_nest_array* symbols; /* inputs, params, starts */
  cellc_rows_view* inputs;   /* by symbol */
  cellc_rows_view* states;   /* by position */
  cellc_rows_view* outs;
  uint64_t* finals;  /* by position */
  uint64_t* remade;  /* by position: new values that were made again; 0: they are read where the state's rows are */
  cellc_plan* plans; /* by stage */
  int* sum_parts;    /* by stage: of each sum that its lanes make, or CELLC_MAKES_OUTS; 0: they make none */
  uint64_t* sums;    /* parts of sums, as `after` numbers them */
  /* For one part of the cell. */
  cellc_nest_array* part;
  uint64_t* addresses; /* states, finals, outs of a part */
  uint64_t* before;    /* outs of the stage's parts */
  uint64_t* once;
  cellc_view* views;
  uint64_t* starts;
  uint64_t* lasts;
  uint64_t* argument;
} cellc_work;

static inline cellc_nest_array cellc_array_at(uint64_t data) {
  cellc_nest_array a;
  a.data = data;
  a.row_stride = -1;
  a.history = 0;
  a.history_depth = 0;
  return a;
}

static inline void cellc_run_nests(cellc_device_call* c, const cellc_nests* rows, const cellc_nest_array* symbols,
                                   const uint64_t* states, const uint64_t* finals, const uint64_t* outs, int single) {
  cellc_nest_run run;
  int64_t bytes;
  uint64_t at;
  memset(&run, 0, sizeof run);
  run.lengths = c->lengths;
  run.symbols = symbols;
  run.states = states;
  run.finals = finals;
  run.outs = outs;
  run.sequences = single ? 1 : c->sequences;
  run.steps = single ? 1 : c->steps;
  run.offsets = single ? 0 : c->offsets;
  run.device_offsets = c->device_offsets;
  run.reverse = c->reverse;
  if (!c->filled) {
    cellc_fill_offsets fill;
    fill.to = c->device_offsets;
    fill.sequences = c->sequences;
    fill.steps = c->steps;
    cellc_launch_small(c, c->cell->offsets_kernel, c->sequences + 1, &fill, sizeof fill);
    c->filled = 1;
  }
  if (c->result) return;
  bytes = cellc_nest_bytes(rows, &run, c->device);
  at = cellc_take(c, bytes);
  if (!c->counts && !c->result) c->result = cellc_nest_queue(rows, &run, c->device, at);
}

/* A cell of defaults or starts, in f64; where each out went. */
static inline void cellc_compute_defaults(cellc_device_call* c, cellc_work* w, const cellc_derived* of) {
  int s, o;
  for (s = 0; s < of->source_count; ++s) {
    const int symbol = of->sources[s].id;
    const int64_t n = cellc_entries(c, c->cell->symbols[symbol].axes);
    const uint64_t wide = cellc_take(c, cellc_times(n, 8));
    cellc_copy_entries(c, w->symbols[symbol].data, c->cell->real, 0, 0, wide, CELLC_F64, 0, 0, 1, 1, n);
    w->part[s] = cellc_array_at(wide);
  }
  for (o = 0; o < of->out_count; ++o) w->addresses[o] = cellc_take(c, cellc_times(cellc_entries(c, of->outs[o]), 8));
  cellc_run_nests(c, of->rows, w->part, 0, 0, w->addresses, 1);
}

/* A default where the caller gave nothing, for each of `times` sequences; `computed`: where it was. */
static inline uint64_t cellc_fill_default(cellc_device_call* c, int symbol, int64_t times, uint64_t computed) {
  const cellc_symbol* s = c->cell->symbols + symbol;
  const int64_t n = cellc_entries(c, s->axes);
  const uint64_t at = cellc_take(c, cellc_times(cellc_times(times, n), cellc_type_bytes(c->cell->real)));
  cellc_copy copy;
  memset(&copy, 0, sizeof copy);
  copy.to = at, copy.to_type = c->cell->real, copy.to_sequence = n;
  copy.sequences = times, copy.steps = 1, copy.entries = n;
  copy.from_type = CELLC_F64;
  copy.through = s->kind == CELLC_SYMBOL_PARAM && c->cell->storage >= CELLC_F16 ? c->cell->storage : -1;
  if (s->default_kind == CELLC_DEFAULT_COMPUTED) copy.from = computed;
  if (s->default_kind == CELLC_DEFAULT_NUMBER) memcpy(&copy.number, &s->number, 8);
  cellc_launch_small(c, c->cell->copy_kernel, times * n, &copy, sizeof copy);
  return at;
}

static inline void cellc_bring_params(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int s, absent = 0;
  for (s = 0; s < cell->symbol_count; ++s) {
    if (cell->symbols[s].kind != CELLC_SYMBOL_PARAM) continue;
    w->symbols[s] = cellc_array_at(cellc_given(c, CELLC_FIELD_PARAM, s));
    if (w->symbols[s].data) continue;
    if (cell->symbols[s].default_kind == CELLC_DEFAULT_COMPUTED)
      absent = 1;
    else if (cell->symbols[s].default_kind == CELLC_DEFAULT_NUMBER)
      w->symbols[s].data = cellc_fill_default(c, s, 1, 0);
  }
  if (!absent) return;
  cellc_compute_defaults(c, w, &cell->defaults);
  for (s = 0; s < cell->symbol_count; ++s)
    if (cell->symbols[s].kind == CELLC_SYMBOL_PARAM && !w->symbols[s].data &&
        cell->symbols[s].default_kind == CELLC_DEFAULT_COMPUTED)
      w->symbols[s].data = cellc_fill_default(c, s, 1, w->addresses[cell->symbols[s].default_out]);
}

static inline void cellc_bring_starts(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int s, absent = 0;
  for (s = 0; s < cell->symbol_count; ++s)
    absent =
        absent || (cell->symbols[s].kind == CELLC_SYMBOL_STATE && cell->symbols[s].lag_of < 0 &&
                   cell->symbols[s].default_kind == CELLC_DEFAULT_COMPUTED && !cellc_given(c, CELLC_FIELD_START, s));
  if (absent) cellc_compute_defaults(c, w, &cell->starts);
  for (s = 0; s < cell->symbol_count; ++s) {
    const cellc_symbol* symbol = cell->symbols + s;
    const int64_t n = cellc_entries(c, symbol->axes);
    uint64_t at;
    if (symbol->kind != CELLC_SYMBOL_STATE) continue;
    if (symbol->lag_of < 0) {
      at = cellc_given(c, CELLC_FIELD_START, s);
      if (!at) {
        at = cellc_fill_default(c, s, c->sequences,
                                symbol->default_kind == CELLC_DEFAULT_COMPUTED ? w->addresses[symbol->default_out] : 0);
      } else if (at == cellc_given(c, CELLC_FIELD_FINAL, s)) {
        /* Segments begin from starts while other sequences end. */
        const uint64_t own = cellc_take(c, cellc_times(cellc_times(c->sequences, n), cellc_type_bytes(cell->real)));
        cellc_copy_entries(c, at, cell->real, n, 0, own, cell->real, n, 0, c->sequences, 1, n);
        at = own;
      }
    } else {
      const uint64_t history = cellc_given(c, CELLC_FIELD_STATE_HISTORY, symbol->lag_of);
      const int64_t depth = cellc_depth(c, symbol->lag_of);
      at = w->symbols[symbol->lag_of].data;
      if (history || !c->arrays) {
        at = cellc_take(c, cellc_times(cellc_times(c->sequences, n), cellc_type_bytes(cell->real)));
        cellc_copy_entries(c, history + (uint64_t)((symbol->lag - 1) * n * cellc_type_bytes(cell->real)), cell->real,
                           depth * n, 0, at, cell->real, n, 0, c->sequences, 1, n);
      }
    }
    w->symbols[s] = cellc_array_at(at);
  }
}

/* Whether kernels take one of its rows after the other, whatever sequences they are of. Stages have their plans. */
static inline int cellc_is_read_in_rows(const cellc_device_call* c, const cellc_work* w, int symbol) {
  const int by = c->cell->symbols[symbol].read_by_nests;
  int k, remade = 0;
  for (k = 0; k < c->cell->stage_count && c->rows > 0; ++k)
    remade = remade || (c->cell->stages[k].remade_count && cellc_is_remade(w->plans + k));
  return by == 1 || (by == 2 && remade);
}

static inline void cellc_bring_inputs(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int s;
  for (s = 0; s < cell->symbol_count; ++s) {
    const cellc_symbol* symbol = cell->symbols + s;
    const int64_t n = cellc_entries(c, symbol->axes);
    cellc_rows_view given, used;
    if (symbol->kind != CELLC_SYMBOL_INPUT || symbol->line_of >= 0) continue;
    given = used = cellc_callers_rows(c, CELLC_FIELD_INPUT, s, n);
    /* Row kernels take any step between rows, but one after another, and upwards. */
    if (cell->running != cell->storage || !c->arrays ||
        (cellc_is_read_in_rows(c, w, s) &&
         (given.step < 0 || (c->sequences > 1 && given.sequence != c->steps * given.step)))) {
      used = cellc_own_rows(c, n);
      cellc_copy_rows(c, &given, cell->storage, &used, cell->running, n);
    }
    w->inputs[s] = used;
    w->symbols[s] = cellc_array_at(used.data);
    w->symbols[s].row_stride = used.step;
    if (symbol->reaches.count > 0) {
      const uint64_t history = cellc_given(c, CELLC_FIELD_INPUT_HISTORY, s);
      const int64_t depth = cellc_depth(c, s), all = cellc_times(cellc_times(c->sequences, depth), n);
      w->symbols[s].history = history;
      w->symbols[s].history_depth = depth;
      if (!history || cell->running != cell->storage) {
        w->symbols[s].history = cellc_take(c, cellc_times(all, cellc_type_bytes(cell->running)));
        if (history)
          cellc_copy_entries(c, history, cell->storage, 0, 0, w->symbols[s].history, cell->running, 0, 0, 1, 1, all);
        else
          cellc_zero(c, w->symbols[s].history, all * cellc_type_bytes(cell->running));
      }
    }
  }
}

/* A delay line as kernels read it: the rows that the run writes of its state, and before them the state's start, the
 * copies that lag behind it, and what its history says, or its start again. After targets are known. */
static inline void cellc_begin_lines(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int line, s, u;
  for (line = 0; line < cell->symbol_count; ++line) {
    const int of = cell->symbols[line].line_of;
    const int64_t n = cellc_entries(c, cell->symbols[line].axes), depth = cellc_depth(c, line);
    const int64_t bytes = cellc_type_bytes(cell->running);
    int64_t copies = 0;
    uint64_t to, history;
    if (of < 0) continue;
    for (u = 0; u < cell->update_count; ++u)
      if (cell->updates[u] == of) w->symbols[line] = cellc_array_at(w->states[u].data);
    to = cellc_take(c, cellc_times(cellc_times(cellc_times(c->sequences, depth), n), bytes));
    for (s = 0; s < cell->symbol_count; ++s) {
      const int copy = cell->symbols[s].lag_of == of;
      if (s != of && !copy) continue;
      copies += copy;
      cellc_copy_entries(c, w->symbols[s].data, cell->real, n, 0,
                         to + (uint64_t)((copy ? cell->symbols[s].lag : 0) * n * bytes), cell->running, depth * n, 0,
                         c->sequences, 1, n);
    }
    history = cellc_given(c, CELLC_FIELD_STATE_HISTORY, of);
    if (history)
      cellc_copy_entries(c, history + (uint64_t)(copies * n * cellc_type_bytes(cell->real)), cell->real,
                         (depth - 1) * n, n, to + (uint64_t)((copies + 1) * n * bytes), cell->running, depth * n, n,
                         c->sequences, depth - 1 - copies, n);
    else
      cellc_copy_entries(c, w->symbols[of].data, cell->real, n, 0, to + (uint64_t)((copies + 1) * n * bytes),
                         cell->running, depth * n, n, c->sequences, depth - 1 - copies, n);
    w->symbols[line].history = to;
    w->symbols[line].history_depth = depth;
  }
}

/* What copies that lag do not have of a state's history after the run. */
static inline void cellc_end_lines(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int line, s, u;
  for (line = 0; line < cell->symbol_count; ++line) {
    const int of = cell->symbols[line].line_of;
    const uint64_t to = of < 0 ? 0 : cellc_given(c, CELLC_FIELD_FINAL_STATE_HISTORY, of);
    const int64_t n = cellc_entries(c, cell->symbols[line].axes), depth = of < 0 ? 0 : cellc_depth(c, line);
    const int64_t bytes = cellc_type_bytes(cell->running);
    int64_t copies = 0;
    cellc_last_steps last;
    if (of < 0 || (c->arrays && !to)) continue;
    memset(&last, 0, sizeof last);
    last.to = cellc_take(c, cellc_times(cellc_times(cellc_times(c->sequences, depth), n), bytes));
    if (!to) continue;
    for (s = 0; s < cell->symbol_count; ++s) copies += cell->symbols[s].lag_of == of;
    for (u = 0; u < cell->update_count; ++u)
      if (cell->updates[u] == of)
        last.rows = w->states[u].data, last.sequence = w->states[u].sequence, last.step = w->states[u].step;
    last.before = w->symbols[line].history;
    last.offsets = c->offsets ? c->device_offsets : 0;
    last.sequences = c->sequences, last.steps = c->steps, last.depth = depth, last.entries = n;
    last.bytes = bytes, last.reverse = c->reverse;
    cellc_launch_small(c, cell->history_kernel, c->sequences * n, &last, sizeof last);
    cellc_copy_entries(c, last.to + (uint64_t)((copies + 1) * n * bytes), cell->running, depth * n, n,
                       to + (uint64_t)(copies * n * cellc_type_bytes(cell->real)), cell->real, (depth - 1) * n, n,
                       c->sequences, depth - 1 - copies, n);
  }
}

/* Where rows are written: the caller's memory where that is as kernels write it. */
static inline cellc_rows_view cellc_target_rows(cellc_device_call* c, int kind, int id, int64_t entries,
                                                int read_by_nests) {
  cellc_rows_view v = cellc_callers_rows(c, kind, id, entries);
  const int gapless = v.step == entries && (c->sequences <= 1 || v.sequence == c->steps * entries);
  if (!v.data || c->cell->running != c->cell->storage || (read_by_nests && !gapless)) v = cellc_own_rows(c, entries);
  return v;
}

/* What did not go to the caller's memory at once. */
static inline void cellc_deliver(cellc_device_call* c, cellc_work* w) {
  const cellc_cell* cell = c->cell;
  int f, u;
  cellc_end_lines(c, w);
  for (f = 0; f < cell->outline.field_count; ++f) {
    const cellc_field* field = cell->outline.fields + f;
    const uint64_t to = cellc_given(c, field->kind, field->id);
    if (!to) continue;
    if (field->kind == CELLC_FIELD_OUT) {
      const int64_t n = cellc_entries(c, cell->outs[field->id]);
      const cellc_rows_view target = cellc_callers_rows(c, field->kind, field->id, n);
      if (!w->outs[field->id].direct) cellc_copy_rows(c, w->outs + field->id, cell->running, &target, cell->storage, n);
    }
    if (field->kind == CELLC_FIELD_FINAL_INPUT_HISTORY) {
      const int64_t n = cellc_entries(c, cell->symbols[field->id].axes);
      const cellc_rows_view rows = cellc_callers_rows(c, CELLC_FIELD_INPUT, field->id, n);
      cellc_last_steps last;
      memset(&last, 0, sizeof last);
      last.rows = rows.data, last.sequence = rows.sequence, last.step = rows.step;
      last.before = cellc_given(c, CELLC_FIELD_INPUT_HISTORY, field->id);
      last.to = to;
      last.offsets = c->offsets ? c->device_offsets : 0;
      last.sequences = c->sequences, last.steps = c->steps, last.depth = cellc_depth(c, field->id), last.entries = n;
      last.bytes = cellc_type_bytes(cell->storage), last.reverse = c->reverse;
      cellc_launch_small(c, cell->history_kernel, c->sequences * n, &last, sizeof last);
    }
  }
  for (u = 0; u < cell->update_count; ++u) {
    const int s = cell->updates[u], parent = cell->symbols[s].lag_of;
    const int64_t n = cellc_entries(c, cell->symbols[s].axes);
    if (parent < 0) {
      const cellc_rows_view target = cellc_callers_rows(c, CELLC_FIELD_STATE, s, n);
      if (target.data && !w->states[u].direct)
        cellc_copy_rows(c, w->states + u, cell->running, &target, cell->storage, n);
    } else {
      const uint64_t to = cellc_given(c, CELLC_FIELD_FINAL_STATE_HISTORY, parent);
      const int64_t depth = cellc_depth(c, parent), at = (cell->symbols[s].lag - 1) * n * cellc_type_bytes(cell->real);
      if (to)
        cellc_copy_entries(c, w->finals[u], cell->real, n, 0, to + (uint64_t)at, cell->real, depth * n, 0, c->sequences,
                           1, n);
    }
  }
}

#endif
