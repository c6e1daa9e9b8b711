/* Sums over steps of a shipped backward call: gradients of params (gradient/step_sums.cuh, shipped_sums.cuh). */
#ifndef CELLC_HOST_SUMS
#define CELLC_HOST_SUMS

#include "kernels-templates/host/host_call.h"

enum { CELLC_SUM_LOOPS = 8, CELLC_SUM_TABLES = 11 };
enum { CELLC_COLUMNS = 32, CELLC_SUM_TILE = 64, CELLC_SUM_DEPTH = 16, CELLC_SUM_PITCH = 68 };

/* An array that a sum reads: an input of the adjoint, or one of its outs. */
typedef struct cellc_factor {
  int is_out, number; /* number -1: there is none */
} cellc_factor;

/* Of a param's gradient, left and right the loops that their axes are, in their order; loops as header axes. The lists
 * are parts of cellc_backward::axes. */
typedef struct cellc_step_sum {
  int field; /* the gradient */
  cellc_factor left, right;
  cellc_dims loops, of_gradient, of_left, of_right;
} cellc_step_sum;

/* The arguments of the kernels. */
typedef struct cellc_step_sums {
  uint64_t left, right, partial, into;
  int64_t assigns;
  int64_t rows, left_row, right_row;
  int64_t m, n, batch, summed, parts, repeated;
  uint64_t m_left, m_right, m_into, n_right, n_into, batch_left, batch_right, batch_into, summed_left, summed_right,
      repeated_into;
  int64_t tile, stages, left_runs, right_runs;
} cellc_step_sums;
typedef struct cellc_sums_in_a_row {
  cellc_step_sums sums;
  int64_t across, groups;
} cellc_sums_in_a_row;
typedef struct cellc_offset_table {
  uint64_t to;
  int64_t entries, axes;
  int64_t length[CELLC_SUM_LOOPS], stride[CELLC_SUM_LOOPS];
} cellc_offset_table;
typedef struct cellc_offset_tables {
  cellc_offset_table table[CELLC_SUM_TABLES];
} cellc_offset_tables;

/* Kernels by number. */
typedef struct cellc_gradient_kernels {
  int earlier, tables, columns, products, finish;
  int later_rows, later_history, past; /* of cells that read lags */
} cellc_gradient_kernels;

/* Loops of one kind. */
typedef struct cellc_loops {
  int count;
  int64_t length[CELLC_SUM_LOOPS], left[CELLC_SUM_LOOPS], right[CELLC_SUM_LOOPS], into[CELLC_SUM_LOOPS];
} cellc_loops;

static inline int64_t cellc_loop_positions(const cellc_loops* loops) {
  int64_t n = 1;
  int i;
  for (i = 0; i < loops->count; ++i) n *= loops->length[i];
  return n;
}

/* Entries from index to index along a loop in an array; -1: it has no such axis. */
static inline int64_t cellc_loop_stride(const int* axes, cellc_dims of, const int64_t* length, int loop) {
  int64_t stride = 1;
  int i;
  for (i = of.count - 1; i >= 0; --i) {
    if (axes[of.first + i] == loop) return stride;
    stride *= length[axes[of.first + i]];
  }
  return -1;
}

static inline void cellc_add_loop(cellc_loops* to, int64_t length, int64_t left, int64_t right, int64_t into) {
  const int i = to->count++;
  to->length[i] = length;
  to->left[i] = left < 0 ? 0 : left;
  to->right[i] = right < 0 ? 0 : right;
  to->into[i] = into < 0 ? 0 : into;
}

/* A table's memory, and what is to be written there. */
static inline uint64_t cellc_table_of(cellc_device_call* c, cellc_offset_tables* tables, int* used,
                                      const cellc_loops* loops, const int64_t* strides) {
  cellc_offset_table* t = tables->table + (*used)++;
  int i;
  t->entries = cellc_loop_positions(loops);
  t->axes = loops->count;
  for (i = 0; i < loops->count; ++i) t->length[i] = loops->length[i], t->stride[i] = strides[i];
  t->to = cellc_take(c, cellc_times(t->entries, 8));
  return t->to;
}

static inline void cellc_launch_sum(cellc_device_call* c, const cellc_device* device, int kernel, int64_t blocks,
                                    int64_t shared, const void* argument, size_t bytes) {
  cellc_grid grid;
  memset(&grid, 0, sizeof grid);
  grid.threads = 256;
  grid.blocks = (unsigned)blocks;
  if (!c->counts && !c->result && blocks > 0)
    c->result = device->launch(device->self, kernel, grid, shared, argument, bytes);
}

/* Work for each of `count` threads. */
static inline int64_t cellc_each_blocks(const cellc_device* device, int64_t count) {
  return cellc_least(cellc_divide_up(count, 256), 16 * (int64_t)device->facts.multiprocessors);
}

/* Adds to `into`, or `assigns` it. As runtime/cuda/launch/step_sums.cc does, with the same parts. */
static inline void cellc_sum_steps(cellc_device_call* c, const cellc_device* device,
                                   const cellc_gradient_kernels* kernels, const int* axes, const cellc_step_sum* sum,
                                   uint64_t left, uint64_t right, uint64_t into, int assigns) {
  const int64_t real = cellc_type_bytes(c->cell->real);
  cellc_loops shared, lefts, rights, summed, repeated, m;
  cellc_offset_tables tables;
  cellc_sums_in_a_row p;
  cellc_step_sums* s = &p.sums;
  int64_t length[CELLC_SUM_LOOPS], wanted, blocks, most = 0;
  int i, used = 0, product;
  memset(&shared, 0, sizeof shared);
  lefts = rights = summed = repeated = m = shared;
  memset(&tables, 0, sizeof tables);
  memset(&p, 0, sizeof p);
  for (i = 0; i < sum->loops.count; ++i) length[i] = c->lengths[axes[sum->loops.first + i]];
  s->left_row = s->right_row = 1;
  for (i = 0; i < sum->of_left.count; ++i) s->left_row *= length[axes[sum->of_left.first + i]];
  for (i = 0; i < sum->of_right.count; ++i) s->right_row *= length[axes[sum->of_right.first + i]];
  for (i = 0; i < sum->loops.count; ++i) {
    const int64_t of_left = cellc_loop_stride(axes, sum->of_left, length, i),
                  of_right = cellc_loop_stride(axes, sum->of_right, length, i),
                  of_into = cellc_loop_stride(axes, sum->of_gradient, length, i);
    cellc_loops* kind = of_into < 0                     ? &summed
                        : of_left >= 0 && of_right >= 0 ? &shared
                        : of_left >= 0                  ? &lefts
                        : of_right >= 0                 ? &rights
                                                        : &repeated;
    cellc_add_loop(kind, length[i], of_left, of_right, of_into);
  }
  product = sum->right.number >= 0 && lefts.count > 0 && rights.count > 0;
  if (product) {
    m = lefts;
  } else {
    const cellc_loops* kinds[3];
    int k;
    kinds[0] = &shared, kinds[1] = &lefts, kinds[2] = &rights;
    for (k = 0; k < 3; ++k)
      for (i = 0; i < kinds[k]->count; ++i)
        cellc_add_loop(&m, kinds[k]->length[i], kinds[k]->left[i], kinds[k]->right[i], kinds[k]->into[i]);
    rights.count = shared.count = 0;
  }
  s->left = left, s->right = right, s->into = into;
  s->assigns = assigns;
  s->rows = c->rows;
  s->m = cellc_loop_positions(&m), s->n = cellc_loop_positions(&rights), s->batch = cellc_loop_positions(&shared);
  s->summed = cellc_loop_positions(&summed), s->repeated = cellc_loop_positions(&repeated);
  s->m_left = cellc_table_of(c, &tables, &used, &m, m.left);
  s->m_right = cellc_table_of(c, &tables, &used, &m, m.right);
  s->m_into = cellc_table_of(c, &tables, &used, &m, m.into);
  s->n_right = cellc_table_of(c, &tables, &used, &rights, rights.right);
  s->n_into = cellc_table_of(c, &tables, &used, &rights, rights.into);
  s->batch_left = cellc_table_of(c, &tables, &used, &shared, shared.left);
  s->batch_right = cellc_table_of(c, &tables, &used, &shared, shared.right);
  s->batch_into = cellc_table_of(c, &tables, &used, &shared, shared.into);
  s->summed_left = cellc_table_of(c, &tables, &used, &summed, summed.left);
  s->summed_right = cellc_table_of(c, &tables, &used, &summed, summed.right);
  s->repeated_into = cellc_table_of(c, &tables, &used, &repeated, repeated.into);
  p.groups = cellc_least(s->batch, 65535);
  s->tile = product ? CELLC_SUM_TILE : CELLC_COLUMNS;
  p.across = product ? cellc_divide_up(s->m, s->tile) * cellc_divide_up(s->n, s->tile) : cellc_divide_up(s->m, s->tile);
  blocks = cellc_most(1, p.across * s->batch);
  wanted = cellc_divide_up(8 * (int64_t)device->facts.multiprocessors, blocks);
  s->parts = cellc_most(1, cellc_least(cellc_least(wanted, s->rows / 256), 512));
  s->partial = cellc_take(c, cellc_times(cellc_times(s->parts * s->batch, cellc_times(s->m, s->n)), real));
  for (i = 0; i < used; ++i) most = cellc_most(most, tables.table[i].entries);
  if (s->batch * s->m * s->n == 0 || s->repeated == 0) return;
  cellc_launch_sum(c, device, kernels->tables, cellc_each_blocks(device, most), 0, &tables, sizeof tables);
  if (product)
    cellc_launch_sum(c, device, kernels->products, p.across * p.groups * s->parts,
                     2 * CELLC_SUM_DEPTH * CELLC_SUM_PITCH * real, &p, sizeof p);
  else
    cellc_launch_sum(c, device, kernels->columns, p.across * s->parts, 256 * real, &p, sizeof p);
  if (product || s->parts > 1)
    cellc_launch_sum(c, device, kernels->finish, cellc_each_blocks(device, s->batch * s->m * s->n), 0, s, sizeof *s);
}

#endif
