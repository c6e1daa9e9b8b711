/* Rows of other steps in a shipped backward call: what the adjoint reads of earlier ones, what gradients get of later
 * ones, and what was before the first (gradient/shipped_shifts.cuh). */
#ifndef CELLC_HOST_SHIFTS
#define CELLC_HOST_SHIFTS

#include "kernels-templates/host/host_gradients.h"

/* Arguments of the kernels. */
typedef struct cellc_shifted_rows {
  uint64_t offsets;
  int64_t run_rows, sequences, length, reverse;
  uint64_t rows, others;
  int64_t sequence, step, type;
  uint64_t start, history;
  int64_t entries, back, along, depth, is_state, first;
} cellc_shifted_rows;

static inline cellc_shifted_rows cellc_shifted_in(const cellc_device_call* c) {
  cellc_shifted_rows p;
  memset(&p, 0, sizeof p);
  p.offsets = c->offsets ? c->device_offsets : 0;
  p.run_rows = c->rows, p.sequences = c->sequences, p.length = c->offsets ? 0 : c->steps, p.reverse = c->reverse;
  p.type = c->cell->real;
  p.along = 1;
  return p;
}
static inline void cellc_launch_shift(cellc_backward_call* b, int kernel, int64_t work, const cellc_shifted_rows* p) {
  cellc_launch_sum(&b->call, b->device, kernel, cellc_each_blocks(b->device, work), 0, p, sizeof *p);
}
static inline int64_t cellc_length_of(const cellc_backward_call* b, int axis) {
  return axis < 0 ? 1 : b->call.lengths[axis];
}
/* Steps of the history that is a field of the call. */
static inline int64_t cellc_field_depth(const cellc_backward_call* b, int field) {
  return field < 0 ? 0 : cellc_depth(&b->call, b->of->fields[field].id);
}

/* The rows that the adjoint reads, brought to the workspace. */
static inline cellc_rows_view cellc_earlier_rows(cellc_backward_call* b, const cellc_adjoint_input* input) {
  cellc_dims axes = input->axes;
  cellc_shifted_rows p = cellc_shifted_in(&b->call);
  cellc_rows_view from, to = cellc_dense_rows(b, cellc_backward_entries(b, axes));
  axes.count -= input->along >= 0;
  p.entries = cellc_backward_entries(b, axes);
  p.along = cellc_length_of(b, input->along);
  from = cellc_backward_rows(b, input->field, p.entries);
  p.rows = to.data;
  p.others = from.data, p.sequence = from.sequence, p.step = from.step;
  if (input->stored) p.type = b->call.cell->storage;
  p.start = cellc_backward_given(b, input->start);
  p.history = cellc_backward_given(b, input->history);
  p.depth = cellc_field_depth(b, input->history);
  p.back = input->back, p.is_state = input->is_state;
  cellc_launch_shift(b, b->of->kernels.earlier, p.run_rows * p.entries * p.along, &p);
  return to;
}

/* After sums, which may read gradients as the adjoint left them. */
static inline void cellc_add_later(cellc_backward_call* b) {
  int l;
  for (l = 0; l < b->of->later_count && !b->call.counts; ++l) {
    const cellc_later_rows* later = b->of->later + l;
    cellc_shifted_rows p = cellc_shifted_in(&b->call);
    cellc_rows_view to;
    p.entries = cellc_backward_entries(b, later->axes);
    p.along = cellc_length_of(b, later->along);
    p.back = later->back;
    p.rows = b->outs[later->out];
    to = cellc_backward_rows(b, later->field, p.entries);
    p.others = to.data, p.sequence = to.sequence, p.step = to.step;
    p.history = cellc_backward_given(b, later->history);
    p.depth = cellc_field_depth(b, later->history);
    if (p.others) cellc_launch_shift(b, b->of->kernels.later_rows, p.run_rows * p.entries, &p);
    if (p.history && p.run_rows > 0)
      cellc_launch_shift(b, b->of->kernels.later_history, p.sequences * p.depth * p.entries, &p);
  }
}

/* Bytes of a row of all sequences. */
static inline int64_t cellc_past_bytes(const cellc_backward_call* b, const cellc_past_state* past) {
  return cellc_times(cellc_times(b->call.sequences, cellc_backward_entries(b, past->axes)),
                     cellc_type_bytes(b->call.cell->real));
}

static inline void cellc_place_past(cellc_backward_call* b) {
  cellc_device_call* c = &b->call;
  const int real = c->cell->real;
  int i;
  for (i = 0; i < b->of->past_count; ++i) {
    const cellc_past_state* past = b->of->past + i;
    const int64_t n = cellc_backward_entries(b, past->axes);
    const int wanted = cellc_is_wanted(b, past->history) || cellc_is_wanted(b, past->start);
    b->past[i] = 0;
    if (past->is_line) {
      /* The adjoint reads its rows, wanted or not. */
      const cellc_rows_view rows = cellc_dense_rows(b, n);
      cellc_put_rows(b, past->end_word, &rows);
      b->past[i] = rows.data;
      continue;
    }
    if (cellc_is_wanted(b, past->cotangent)) {
      const uint64_t from = cellc_backward_given(b, past->cotangent), at = cellc_take(c, cellc_past_bytes(b, past));
      cellc_copy_entries(c, from + (uint64_t)((past->lag - 1) * n * cellc_type_bytes(real)), real,
                         cellc_field_depth(b, past->cotangent) * n, 0, at, real, n, 0, c->sequences, 1, n);
      b->words[past->start_word] = at;
    }
    if (wanted) b->words[past->end_word] = b->past[i] = cellc_take(c, cellc_past_bytes(b, past));
  }
}

/* After the adjoint, which has written the gradients of starts. */
static inline void cellc_deliver_past(cellc_backward_call* b) {
  cellc_device_call* c = &b->call;
  const int real = c->cell->real;
  int i;
  for (i = 0; i < b->of->past_count && !c->counts; ++i) {
    const cellc_past_state* past = b->of->past + i;
    const uint64_t history = cellc_backward_given(b, past->history), start = cellc_backward_given(b, past->start);
    const int has_past = cellc_backward_given(b, past->value) != 0;
    const int64_t depth = cellc_field_depth(b, past->history);
    cellc_shifted_rows p = cellc_shifted_in(c);
    p.entries = cellc_backward_entries(b, past->axes);
    p.rows = b->past[i], p.start = start;
    if (!past->is_line) {
      if (history)
        cellc_copy_entries(c, p.rows, real, p.entries, 0,
                           history + (uint64_t)((past->lag - 1) * p.entries * cellc_type_bytes(real)), real,
                           depth * p.entries, 0, c->sequences, 1, p.entries);
      p.offsets = 0, p.length = 1, p.back = 1;
      if (start && !has_past) cellc_launch_shift(b, b->of->kernels.past, p.sequences * p.entries, &p);
      continue;
    }
    if (c->rows == 0) continue;
    p.back = past->lag;
    p.first = has_past ? past->lag - 1 : 0;
    if (start) cellc_launch_shift(b, b->of->kernels.past, p.sequences * p.entries, &p);
    /* The row before the first step is the start; the one before that begins the history. */
    p.back = past->lag - 1;
    p.history = history, p.depth = depth;
    if (history) cellc_launch_shift(b, b->of->kernels.later_history, p.sequences * depth * p.entries, &p);
  }
}

#endif
