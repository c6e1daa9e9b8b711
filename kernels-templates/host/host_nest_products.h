/* Products of rows and matrices between nests: their arguments, and by which kernels they run. */
#ifndef CELLC_HOST_NEST_PRODUCTS
#define CELLC_HOST_NEST_PRODUCTS

#include "kernels-templates/host/host_nest_kernels.h"

/* What does not depend on the window. */
static inline CELLC_PRODUCT cellc_product_arguments(const cellc_nest_work* w, const cellc_product* p) {
  const cellc_nests* r = w->rows;
  CELLC_PRODUCT a;
  uint64_t operand;
  memset(&a, 0, sizeof a);
  a.shared = cellc_nest_entries(w, p->shared);
  a.batch = cellc_nest_entries(w, p->batch);
  a.width = cellc_nest_entries(w, p->rows);
  a.depth = cellc_nest_entries(w, p->sums);
  a.matrix_apart = p->sum_last ? a.depth : a.width;
  a.matrix_batch = p->batch_inside ? a.matrix_apart : a.width * a.depth;
  if (p->batch_inside) a.matrix_apart *= a.batch;
  a.batch *= a.shared;
  a.operand_stride = a.batch * a.depth;
  if (p->operand == CELLC_OF_INPUT) {
    operand = w->run->symbols[p->operand_id].data;
    if (w->run->symbols[p->operand_id].row_stride >= 0) a.operand_stride = w->run->symbols[p->operand_id].row_stride;
  } else if (p->operand == CELLC_OF_STATE) {
    operand = w->run->states[p->operand_id];
  } else if (p->operand == CELLC_OF_OUT) {
    operand = w->run->outs[p->operand_id];
  } else {
    operand = cellc_buffer(w, w->chunks, r->chunks, p->operand_id, w->chunk_rows);
    a.operand_is_chunk = 1;
  }
  a.operand = (const void*)(uintptr_t)operand;
  a.matrix = (const void*)(uintptr_t)(p->matrix == CELLC_OF_PARAM ? w->run->symbols[p->matrix_id].data
                                                                  : cellc_buffer(w, w->once, r->once, p->matrix_id, 1));
  a.sum_last = p->sum_last;
  a.result_in_rows = p->result == CELLC_OF_OUT;
  a.result_is_stored = p->stores;
  a.result = (void*)(uintptr_t)(a.result_in_rows ? w->run->outs[p->result_id]
                                                 : cellc_buffer(w, w->chunks, r->chunks, p->result_id, w->chunk_rows));
  return a;
}

static inline void cellc_launch_product(cellc_nest_work* w, int kernel, int64_t blocks, const cellc_block* block,
                                        const CELLC_PRODUCT* a) {
  cellc_grid grid;
  if (blocks == 0 || w->counts || w->result) return;
  grid.blocks = (unsigned)blocks;
  grid.threads = (unsigned)block->threads;
  grid.cooperative = 0;
  grid.cluster = 0;
  w->result = w->device->launch(w->device->self, kernel, grid, block->shared_bytes, a, sizeof *a);
}

static inline const cellc_wide_products* cellc_wide_of(const cellc_nests* r, const cellc_product* p) {
  return p->stored ? r->wide_stored : r->wide;
}

/* The matrices of wide products, one behind another. What is wide is decided once a run, by the rows of its windows, so
 * that all of them have the same rounding. The bytes up to phase `end`; with `launches` they are filled. */
static inline int64_t cellc_prepare_matrices(cellc_nest_work* w, int end, int launches) {
  const cellc_nests* r = w->rows;
  const int64_t multiprocessors = w->device->facts.multiprocessors;
  int64_t before = 0;
  cellc_block block;
  int p;
  memset(&block, 0, sizeof block);
  block.threads = CELLC_PRODUCT_THREADS;
  for (p = 0; p < end; ++p) {
    const cellc_product* product = r->products + r->phases[p].index;
    const cellc_wide_products* wide;
    CELLC_PRODUCT a;
    int64_t bytes;
    if (!r->phases[p].is_product) continue;
    wide = cellc_wide_of(r, product);
    if (!wide) continue;
    a = cellc_product_arguments(w, product);
    if (!cellc_is_wide(wide, &a, w->chunk_rows, multiprocessors)) continue;
    bytes = cellc_prepared_bytes(wide, &a);
    a.prepared = (void*)(uintptr_t)(w->prepared + (uint64_t)before);
    if (launches)
      cellc_launch_product(w, wide->prepare,
                           cellc_least(cellc_divide_up(bytes, 16 * CELLC_PRODUCT_THREADS), 8 * multiprocessors), &block,
                           &a);
    before += cellc_align(bytes);
  }
  return before;
}

static inline void cellc_run_product(cellc_nest_work* w, int phase, CELLC_FRAME frame) {
  const cellc_nests* r = w->rows;
  const cellc_product* product = r->products + r->phases[phase].index;
  const cellc_wide_products* wide = cellc_wide_of(r, product);
  CELLC_PRODUCT a = cellc_product_arguments(w, product);
  cellc_block block;
  int64_t tiles;
  int kernel = product->stored ? r->stored_kernel : r->product_kernel;
  if (w->counts || w->result) return;
  memset(&block, 0, sizeof block);
  block.threads = CELLC_PRODUCT_THREADS;
  a.frame = frame;
  if (cellc_is_wide(wide, &a, w->chunk_rows, w->device->facts.multiprocessors)) {
    a.prepared = (void*)(uintptr_t)(w->prepared + (uint64_t)cellc_prepare_matrices(w, phase, 0));
    tiles = cellc_shape_wide(wide, &a, w->device->facts.shared_per_block, &block.shared_bytes);
    block.threads = CELLC_WIDE_THREADS;
    cellc_launch_product(w, wide->multiply, cellc_least(tiles, w->device->facts.multiprocessors), &block, &a);
  } else {
    tiles = cellc_choose_tiles(&a, r->real_bytes, r->product_row_bytes > 0, w->device->facts.multiprocessors);
    a.stages = cellc_product_stages(&a, r->product_row_bytes, r->product_blocks, w->device->facts.shared_per_block,
                                    &block.shared_bytes);
    if (tiles > 0)
      cellc_launch_product(w, kernel, cellc_least(tiles, 8 * cellc_resident(w, kernel, &block)), &block, &a);
  }
}

#endif
