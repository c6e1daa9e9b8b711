/* The tables of a backward call of a shipped cell, and its arrays: what host_shifts.h and host_backward.h stand on. */
#ifndef CELLC_HOST_GRADIENTS
#define CELLC_HOST_GRADIENTS

#include "kernels-templates/host/host_sums.h"

/* Rows that the adjoint reads. */
typedef struct cellc_adjoint_input {
  int field, word;    /* of the call; the word of the adjoint's own struct of arrays */
  int back, along;    /* read so many steps before; axis, the last of `axes`: as many of them as it is long, one step
                         further back each; -1: one. 0, -1: as they lie */
  int is_state;       /* one step before the first it has its start, and then its history */
  int start, history; /* fields; -1: none */
  int is_factor;      /* a sum reads it: without gaps */
  int stored;         /* in the numbers that the caller's rows are stored in */
  cellc_dims axes;
} cellc_adjoint_input;
/* Rows that it writes: of the gradient `field`, or -1. */
typedef struct cellc_adjoint_out {
  int field, word, is_factor;
  cellc_dims axes;
} cellc_adjoint_out;
/* An out that is added to what the steps read `back` steps before: fields of that gradient and of its history's. */
typedef struct cellc_later_rows {
  int out, field, history;
  int back, along;
  cellc_dims axes; /* of the gradient */
} cellc_later_rows;
/* A state of the adjoint that belongs to what was before the first step: a copy that lags, whose own start and final
 * are parts of histories; or what is under way through a delay line, whose last rows are. */
typedef struct cellc_past_state {
  int is_line, lag;
  int cotangent;             /* field of a copy's final history, or -1 */
  int start, history, value; /* fields: gradients of start and history, the history itself */
  int start_word, end_word;  /* of the adjoint's struct: the start, the final; of a line the rows */
  cellc_dims axes;
} cellc_past_state;
/* Other arrays, which are handed on as they are. */
typedef struct cellc_adjoint_array {
  int field, word;
} cellc_adjoint_array;
/* A gradient that begins as zeros, or is nothing else: of a param, rows, or a history. */
typedef struct cellc_zero_gradient {
  int field;
  int by_sum; /* the first sum writes all of it, where there are steps */
  cellc_dims axes;
} cellc_zero_gradient;

typedef struct cellc_backward {
  const cellc_cell *whole, *adjoint;
  const cellc_field* fields;
  const int* axes; /* of the dims here */
  const cellc_adjoint_input* inputs;
  const cellc_adjoint_out* outs;
  const cellc_later_rows* later;
  const cellc_past_state* past;
  const cellc_adjoint_array* arrays;
  const cellc_zero_gradient* zeros;
  const cellc_step_sum* sums;
  int field_count, input_count, out_count, later_count, past_count, array_count, zero_count, sum_count;
  int words; /* of the adjoint's struct of arrays */
  cellc_gradient_kernels kernels;
} cellc_backward;

typedef struct cellc_backward_call {
  const cellc_backward* of;
  cellc_cell shell;           /* the whole cell, with the fields of the call */
  cellc_device_call call;     /* on `shell`: lengths, memory, copies */
  const cellc_device* device; /* whose kernels are the adjoint's, for all of the call */
  cellc_work* work;           /* of the adjoint */
  uint64_t *words, *inputs, *outs,
      *past; /* room: the adjoint's struct of arrays; addresses of factors, of past states */
  uint64_t lengths[CELLC_MOST_AXES + 6];
  uint64_t status;
} cellc_backward_call;

static inline int64_t cellc_backward_entries(const cellc_backward_call* b, cellc_dims axes) {
  int64_t n = 1;
  int i;
  for (i = 0; i < axes.count; ++i) n = cellc_times(n, b->call.lengths[b->of->axes[axes.first + i]]);
  return n;
}
static inline uint64_t cellc_backward_given(const cellc_backward_call* b, int field) {
  return b->call.arrays && field >= 0 ? (uint64_t)cellc_word(b->call.arrays, b->of->fields[field].word) : 0;
}
/* Of any arrays: whatever there is. */
static inline int cellc_is_wanted(const cellc_backward_call* b, int field) {
  return field >= 0 && (!b->call.arrays || cellc_backward_given(b, field));
}
static inline cellc_rows_view cellc_backward_rows(const cellc_backward_call* b, int field, int64_t entries) {
  cellc_rows_view v;
  cellc_strides strides = {0, 0};
  v.data = cellc_backward_given(b, field);
  v.direct = 1;
  if (v.data) {
    strides.sequence = cellc_word(b->call.arrays, b->of->fields[field].word + 1);
    strides.step = cellc_word(b->call.arrays, b->of->fields[field].word + 2);
  }
  strides = cellc_strides_of(strides, entries, b->call.steps, b->call.packed);
  v.sequence = strides.sequence, v.step = strides.step;
  return v;
}
static inline cellc_rows_view cellc_dense_rows(cellc_backward_call* b, int64_t entries) {
  cellc_rows_view v;
  v.data = cellc_take(&b->call, cellc_times(cellc_times(b->call.rows, entries), cellc_type_bytes(b->call.cell->real)));
  v.step = entries, v.sequence = b->call.steps * entries;
  v.direct = 0;
  return v;
}
static inline int cellc_is_dense(const cellc_backward_call* b, const cellc_rows_view* v, int64_t entries) {
  return v->step == entries && (b->call.packed || b->call.sequences < 2 || v->sequence == b->call.steps * entries);
}
static inline void cellc_put_rows(cellc_backward_call* b, int word, const cellc_rows_view* v) {
  b->words[word] = v->data;
  b->words[word + 1] = (uint64_t)v->sequence;
  b->words[word + 2] = (uint64_t)v->step;
}

#endif
