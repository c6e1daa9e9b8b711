/* A backward call of a shipped cell: a call of its adjoint, which is a cell too (host_call.h), between what brings the
 * adjoint's inputs and what sums over steps make of its outs. Queues and returns, as a forward call. */
#ifndef CELLC_HOST_BACKWARD
#define CELLC_HOST_BACKWARD

#include "kernels-templates/host/host_shifts.h"

static inline void cellc_bring_adjoint_input(cellc_backward_call* b, int number) {
  const cellc_adjoint_input* input = b->of->inputs + number;
  cellc_device_call* c = &b->call;
  const int64_t n = cellc_backward_entries(b, input->axes);
  const int type = input->stored ? c->cell->storage : c->cell->real;
  cellc_rows_view v;
  if (input->back > 0 || input->along >= 0) {
    v = cellc_earlier_rows(b, input);
  } else {
    v = cellc_backward_rows(b, input->field, n);
    if (!v.data && c->arrays && !b->of->fields[input->field].required) {
      v = cellc_dense_rows(b, n);
      cellc_zero(c, v.data, c->rows * n * cellc_type_bytes(c->cell->real));
    } else if (!c->arrays || type != c->cell->real || (input->is_factor && !cellc_is_dense(b, &v, n))) {
      const cellc_rows_view from = v;
      v = cellc_dense_rows(b, n);
      cellc_copy_rows(c, &from, type, &v, c->cell->real, n);
    }
  }
  b->inputs[number] = v.data;
  cellc_put_rows(b, input->word, &v);
}

/* Whether a sum that is wanted reads the out. */
static inline int cellc_is_summed(const cellc_backward_call* b, int out) {
  int s;
  for (s = 0; s < b->of->sum_count; ++s) {
    const cellc_step_sum* sum = b->of->sums + s;
    const int reads = (sum->left.is_out && sum->left.number == out) || (sum->right.is_out && sum->right.number == out);
    if (reads && cellc_is_wanted(b, sum->field)) return 1;
  }
  return 0;
}

/* Whether it is added to a gradient that is wanted. */
static inline int cellc_is_later(const cellc_backward_call* b, int out) {
  int l;
  for (l = 0; l < b->of->later_count; ++l) {
    const cellc_later_rows* later = b->of->later + l;
    if (later->out == out && (cellc_is_wanted(b, later->field) || cellc_is_wanted(b, later->history))) return 1;
  }
  return 0;
}

static inline void cellc_place_adjoint_outs(cellc_backward_call* b) {
  int o;
  for (o = 0; o < b->of->out_count; ++o) {
    const cellc_adjoint_out* out = b->of->outs + o;
    const int64_t n = cellc_backward_entries(b, out->axes);
    cellc_rows_view v = cellc_backward_rows(b, out->field, n);
    const int is_read = (out->is_factor && cellc_is_summed(b, o)) || cellc_is_later(b, o);
    if (is_read && (!v.data || !cellc_is_dense(b, &v, n))) v = cellc_dense_rows(b, n);
    b->outs[o] = v.data;
    cellc_put_rows(b, out->word, &v);
  }
}

/* Gradients that stood in the workspace, because a sum reads them without gaps. */
static inline void cellc_deliver_adjoint_outs(cellc_backward_call* b) {
  int o;
  for (o = 0; o < b->of->out_count; ++o) {
    const cellc_adjoint_out* out = b->of->outs + o;
    const int64_t n = cellc_backward_entries(b, out->axes);
    const cellc_rows_view to = cellc_backward_rows(b, out->field, n);
    cellc_rows_view from;
    if (!to.data || to.data == b->outs[o]) continue;
    from.data = b->outs[o], from.step = n, from.sequence = b->call.steps * n, from.direct = 0;
    cellc_copy_rows(&b->call, &from, b->call.cell->real, &to, b->call.cell->real, n);
  }
}

static inline void cellc_clear_gradients(cellc_backward_call* b) {
  int z;
  for (z = 0; z < b->of->zero_count; ++z) {
    const cellc_zero_gradient* zero = b->of->zeros + z;
    const int64_t n = cellc_backward_entries(b, zero->axes);
    const uint64_t at = cellc_backward_given(b, zero->field);
    if (!at || (zero->by_sum && b->call.rows > 0)) continue;
    if (cellc_is_rows(b->of->fields + zero->field)) {
      const cellc_rows_view to = cellc_backward_rows(b, zero->field, n);
      cellc_rows_view nothing;
      memset(&nothing, 0, sizeof nothing);
      cellc_copy_rows(&b->call, &nothing, CELLC_F64, &to, b->call.cell->real, n);
    } else {
      const int is_param = b->of->fields[zero->field].kind == CELLC_FIELD_PARAM;
      const int64_t times = is_param ? 1 : b->call.sequences * cellc_field_depth(b, zero->field);
      cellc_zero(&b->call, at, times * n * cellc_type_bytes(b->call.cell->real));
    }
  }
}

static inline void cellc_sum_gradients(cellc_backward_call* b) {
  int s, before = -1;
  for (s = 0; s < b->of->sum_count && (b->call.rows > 0 || !b->call.arrays); ++s) {
    const cellc_step_sum* sum = b->of->sums + s;
    const uint64_t into = cellc_backward_given(b, sum->field);
    int z, by_sum = 0;
    if (b->call.arrays && !into) continue;
    for (z = 0; z < b->of->zero_count; ++z)
      if (b->of->zeros[z].field == sum->field) by_sum = b->of->zeros[z].by_sum;
    cellc_sum_steps(&b->call, b->device, &b->of->kernels, b->of->axes, sum,
                    sum->left.is_out ? b->outs[sum->left.number] : b->inputs[sum->left.number],
                    sum->right.number < 0 ? 0
                    : sum->right.is_out   ? b->outs[sum->right.number]
                                          : b->inputs[sum->right.number],
                    into, by_sum && sum->field != before);
    before = sum->field;
  }
}

/* The adjoint's own call, in what is left of the workspace. */
static inline void cellc_call_adjoint(cellc_backward_call* b) {
  cellc_device_call* c = &b->call;
  const void* arrays = c->arrays ? b->words : 0;
  cellc_device_call inner, counted;
  int64_t bytes = 0;
  memset(&inner, 0, sizeof inner);
  inner.cell = b->of->adjoint;
  inner.device = b->device;
  counted = inner;
  if (c->result) return;
  c->result = cellc_count_bytes(&counted, b->work, b->lengths, arrays, &bytes);
  if (c->result) return;
  {
    const uint64_t at = cellc_take(c, bytes);
    if (!c->counts && !c->result) c->result = cellc_run_call(&inner, b->work, b->lengths, arrays, at, bytes, b->status);
  }
}

static inline void cellc_go_back(cellc_backward_call* b) {
  int i;
  memset(b->words, 0, 8 * (size_t)b->of->words);
  for (i = 0; i < b->of->array_count; ++i)
    b->words[b->of->arrays[i].word] = cellc_backward_given(b, b->of->arrays[i].field);
  for (i = 0; i < b->of->input_count; ++i) cellc_bring_adjoint_input(b, i);
  cellc_place_adjoint_outs(b);
  cellc_place_past(b);
  cellc_call_adjoint(b);
  cellc_clear_gradients(b);
  cellc_sum_gradients(b);
  cellc_deliver_adjoint_outs(b);
  cellc_add_later(b);
  cellc_deliver_past(b);
}

/* `b` has its tables, its devices and its room. */
static inline int cellc_begin_back(cellc_backward_call* b, const void* lengths, const void* arrays) {
  const cellc_outline* outline = &b->of->adjoint->outline;
  const int words = outline->first_word + 6;
  int result, i;
  b->shell = *b->of->whole;
  b->shell.outline.fields = b->of->fields;
  b->shell.outline.field_count = b->of->field_count;
  b->shell.copy_kernel = b->of->adjoint->copy_kernel;
  b->call.cell = &b->shell;
  b->call.device = b->device;
  b->call.arrays = (const unsigned char*)arrays;
  result = b->call.result = cellc_read_lengths(&b->call, lengths);
  if (result) return result;
  for (i = 0; i < words; ++i) b->lengths[i] = (uint64_t)cellc_word(lengths, i);
  b->lengths[outline->first_word + 4] = !b->lengths[outline->first_word + 4]; /* from the other end */
  b->lengths[outline->first_word + 5] = 0;
  return CELLC_DONE;
}

static inline int cellc_count_backward(cellc_backward_call* b, const void* lengths, const void* arrays,
                                       int64_t* bytes) {
  if (!bytes) return CELLC_NO_BYTES;
  b->call.counts = 1;
  if (!cellc_begin_back(b, lengths, arrays)) {
    b->call.base = 256; /* no address is null */
    cellc_go_back(b);
  }
  if (!b->call.result) *bytes = b->call.used + 256;
  return b->call.result;
}

static inline int cellc_run_backward(cellc_backward_call* b, const void* lengths, const void* arrays,
                                     uint64_t workspace, int64_t workspace_bytes, uint64_t status) {
  cellc_backward_call counted = *b;
  const int64_t real = cellc_type_bytes(b->of->whole->real);
  int64_t bytes = 0;
  int result, f;
  if (!lengths) return CELLC_NO_LENGTHS;
  if (!arrays) return CELLC_NO_ARRAYS;
  result = cellc_count_backward(&counted, lengths, arrays, &bytes);
  if (result) return result;
  if (!workspace) return CELLC_NO_WORKSPACE;
  if (workspace_bytes < bytes) return CELLC_SMALL_WORKSPACE;
  result = cellc_begin_back(b, lengths, arrays);
  if (!result) result = cellc_check_arrays(&b->call, workspace, status);
  if (result) return result;
  for (f = 0; f < b->of->zero_count; ++f)
    if (cellc_backward_given(b, b->of->zeros[f].field) % (uint64_t)real)
      return CELLC_UNALIGNED_FIELD + b->of->zeros[f].field;
  for (f = 0; f < b->of->out_count; ++f)
    if (cellc_backward_given(b, b->of->outs[f].field) % (uint64_t)real)
      return CELLC_UNALIGNED_FIELD + b->of->outs[f].field;
  b->status = status;
  b->call.base = (workspace + 255) / 256 * 256;
  cellc_go_back(b);
  return b->call.result;
}

#endif
