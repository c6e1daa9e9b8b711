/* How whole steps are run: a plan's phases over windows of time, the place of every buffer, the blocks of
 * every kernel. For runs of our own (runtime/cuda/launch/nest_program.cc) and for code that is shipped.
 *
 * Larger than most (the file): the same functions count the memory of a run and launch it, and what is shipped has them
 * as one text. */
#ifndef CELLC_HOST_NESTS
#define CELLC_HOST_NESTS

#include "kernels-templates/host/host_lanes.h"
#include "kernels-templates/host/host_tiles.h"
#include "kernels-templates/sequential/nest_frame.cuh"

enum {
  CELLC_NEST_THREADS = 512, /* of nests.cuh */
  CELLC_TERMS_OF_THREAD = 4,
  CELLC_TILE_PLACES = 8192, /* positions of a tile's widest nest: a block waits for memory once a nest */
  CELLC_TILE_BYTES =
      32 << 10, /* what passes between its nests, beyond one row: two blocks fit a multiprocessor of any card */
  CELLC_SHORTEST_WINDOW = 64, /* steps below which short launches cost more than their chunks save */
  CELLC_PART_POSITIONS = 128  /* positions of a part below which splitting a sequence further leaves threads idle */
};

#include "kernels-templates/abi/cell_outline.h"
#include "kernels-templates/abi/nest_slots.h"

typedef struct cellc_slot {
  int kind, id; /* NestSlot; of a length the header axis */
} cellc_slot;

typedef struct cellc_nest {
  cellc_dims axes, bound;
} cellc_nest;

typedef struct cellc_nest_kernel {
  int form, kernel; /* kernel: of the plan */
  int first_slot, slots;
  int first_nest, nests;                                /* those that it runs */
  int cluster, sequences, threads, shared_bytes, parts; /* CELLC_PERSISTENT: blocks of a cluster, what it runs side by
                                                           side, and the length of the split axis */
  int64_t exchange_bytes; /* of a group, whose blocks `cluster` counts then; 0: they are a cluster */
} cellc_nest_kernel;

enum { CELLC_OF_INPUT, CELLC_OF_STATE, CELLC_OF_OUT, CELLC_OF_CHUNK, CELLC_OF_PARAM, CELLC_OF_ONCE };

typedef struct cellc_product {
  int operand, operand_id, matrix, matrix_id, sum_last, batch_inside, chunk;
  int stored; /* the operand lies in 16 bits */
  cellc_dims batch, shared, rows, sums;
} cellc_product;

typedef struct cellc_phase {
  int is_product, index;
} cellc_phase;

/* A plan and its kernels. */
typedef struct cellc_nests {
  const int* axes;
  const cellc_slot* slots;
  const cellc_nest* nests;
  const cellc_nest_kernel* kernels;
  const cellc_product* products;
  const cellc_phase* phases;
  const cellc_dims* once; /* buffers */
  const cellc_dims* temps;
  const cellc_dims* chunks;
  const cellc_dims* symbol_axes; /* by symbol */
  const cellc_dims* state_axes;  /* by position */
  const int* state_symbol;       /* by position */
  int kernel_count, phase_count, once_count, temp_count, chunk_count;
  int once_kernel, split; /* of the plan, header axis; -1: none */
  int real_bytes;
  int first_kernel, product_kernel, stored_kernel; /* numbers that the device knows them by; of products: of rows of
                                                      arithmetic precision, and of rows that lie in 16 bits */
  /* Of products on tensor cores: shared memory of a stage for each row and column of a tile, and blocks that a
   * multiprocessor has registers for. 0: multiply-adds. */
  int product_row_bytes, product_blocks;
  const cellc_wide_products* wide;        /* null: products are not made by instructions of one card alone */
  const cellc_wide_products* wide_stored; /* the same of rows that lie in 16 bits */
} cellc_nests;

/* An array on the device. */
typedef struct cellc_nest_array {
  uint64_t data;
  int64_t row_stride; /* inputs: entries; -1: no gaps */
  uint64_t history;
  int64_t history_depth;
} cellc_nest_array;

typedef struct cellc_nest_run {
  const int64_t* lengths; /* by header axis */
  const cellc_nest_array* symbols;
  const uint64_t* states; /* by position */
  const uint64_t* finals;
  const uint64_t* outs;
  int64_t sequences, steps; /* steps: of each, where offsets is null */
  const int64_t* offsets;   /* [sequences + 1], of this machine; null: all are as long */
  uint64_t device_offsets;  /* the same numbers on the device, also where all are as long */
  int reverse;
  int64_t chunk_bytes; /* memory for what passes between phases; 0: a share of the card's */
  /* Of a cell without states, steps [begin, begin + window) of every sequence, and those that the device has counted
   * (NestFrame::steps_before); what is made once is there already. 0: all steps; below 0: only what windows of that
   * many find ready. */
  int64_t window, window_begin;
  uint64_t steps_before;
} cellc_nest_run;

/* A device that launches kernels by number. A result other than 0 ends the run and is handed on. */
typedef struct cellc_device {
  void* self;
  cellc_facts facts; /* shared memory: of the card that kernels are built for */
  int (*resident)(void* self, int kernel, int threads, int64_t shared_bytes); /* blocks of a multiprocessor */
  int (*launch)(void* self, int kernel, cellc_grid grid, int64_t shared_bytes, const void* argument, size_t bytes);
  int (*zero)(void* self, uint64_t address, int64_t bytes);
  int (*owns)(void* self, uint64_t address); /* whether kernels can reach it */
} cellc_device;

/* A run that is under way. Memory is counted first, then used: `fixed` bytes that do not depend on launches,
 * and behind them what blocks need that does not fit shared memory. */
typedef struct cellc_nest_work {
  const cellc_nests* rows;
  const cellc_nest_run* run;
  const cellc_device* device;
  int counts; /* nothing is launched */
  uint64_t base;
  int64_t fixed, scratch;
  uint64_t once, temps, scalars, chunks, prepared; /* addresses of the first of each */
  int64_t chunk_rows;
  int result;
} cellc_nest_work;

static inline int64_t cellc_align(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static inline int64_t cellc_nest_entries(const cellc_nest_work* w, cellc_dims dims) {
  int64_t n = 1;
  int i;
  for (i = 0; i < dims.count; ++i) n *= w->run->lengths[w->rows->axes[dims.first + i]];
  return n;
}

static inline int64_t cellc_row_of(const cellc_nest_run* run, int64_t sequence) {
  return run->offsets ? run->offsets[sequence] : sequence * run->steps;
}

/* The n-th of buffers that lie one behind another. */
static inline uint64_t cellc_buffer(const cellc_nest_work* w, uint64_t first, const cellc_dims* dims, int n,
                                    int64_t rows) {
  int i;
  for (i = 0; i < n; ++i) first += (uint64_t)cellc_align(rows * cellc_nest_entries(w, dims[i]) * w->rows->real_bytes);
  return first;
}

/* Positions that a nest gives threads to: threads_of_sum of nests.cuh, where terms are neighbours. */
static inline int64_t cellc_positions(const cellc_nest_work* w, const cellc_nest* nest, int form) {
  const int64_t least = form == CELLC_STEPS ? 1 : CELLC_TERMS_OF_THREAD;
  int64_t n = cellc_nest_entries(w, nest->axes), share = 1;
  if (nest->bound.count > 0) {
    const int64_t terms = cellc_nest_entries(w, nest->bound);
    while (share < 32 && share * least < terms) share *= 2;
  }
  return n * share;
}

static inline int64_t cellc_widest(const cellc_nest_work* w, const cellc_nest_kernel* k) {
  int64_t widest = 1;
  int n;
  for (n = 0; n < k->nests; ++n)
    widest = cellc_most(widest, cellc_positions(w, w->rows->nests + k->first_nest + n, k->form));
  return widest;
}

static inline int64_t cellc_local_entries(const cellc_nest_work* w, cellc_slot slot, int64_t part_length) {
  const cellc_nests* r = w->rows;
  int64_t n = 1;
  cellc_dims dims;
  int i;
  if (slot.kind == CELLC_LOCAL_SCALARS) return slot.id;
  dims = slot.kind == CELLC_LOCAL_TEMP ? r->temps[slot.id] : r->state_axes[slot.id];
  if (slot.kind == CELLC_LOCAL_STATE) n = 2;
  for (i = 0; i < dims.count; ++i) {
    const int axis = r->axes[dims.first + i];
    n *= part_length > 0 && axis == r->split ? part_length : w->run->lengths[axis];
  }
  return n;
}

/* Threads and memory of a kernel's blocks. */
typedef struct cellc_block {
  int64_t blocks, threads, shared_bytes, scratch_entries;
  int64_t part_length, rows;
  int64_t cluster;        /* blocks that are resident together; 0: none are */
  int64_t exchange_bytes; /* memory by which all blocks meet, zeros at first: they are resident together; 0: none do */
} cellc_block;

static inline int cellc_is_local(cellc_slot slot) { return slot.kind >= CELLC_LOCAL_TEMP; }

/* Where a block has slot `wanted`: shared memory for what is small, scratch (below 0) for what does not fit.
 * With wanted < 0, what all of them take. `rows` at a time: of Tile kernels. */
static inline int64_t cellc_local_place(const cellc_nest_work* w, const cellc_nest_kernel* k, int wanted,
                                        cellc_block* block) {
  const cellc_slot* slots = w->rows->slots + k->first_slot;
  const int64_t limit = w->device->facts.shared_per_block / w->rows->real_bytes;
  int64_t shared = 0, scratch = 0, below = -1, place = 0;
  int i, left = 0, after = -1;
  for (i = 0; i < k->slots; ++i) left += cellc_is_local(slots[i]);
  for (; left > 0; --left) {
    /* The smallest that is left; of equals, the first. */
    int next = -1;
    int64_t least = 0;
    for (i = 0; i < k->slots; ++i) {
      int64_t count;
      if (!cellc_is_local(slots[i])) continue;
      count = cellc_local_entries(w, slots[i], block->part_length) * block->rows;
      if (count < below || (count == below && i <= after)) continue;
      if (next < 0 || count < least) next = i, least = count;
    }
    below = least;
    after = next;
    if (shared + least <= limit) {
      place = shared;
      shared += least;
    } else {
      place = -1 - scratch;
      scratch += least;
    }
    if (next == wanted) return place;
  }
  block->shared_bytes = shared * w->rows->real_bytes;
  block->scratch_entries = scratch;
  return 0;
}

static inline uint64_t cellc_slot_value(const cellc_nest_work* w, const cellc_nest_kernel* k, int slot,
                                        cellc_block* block) {
  const cellc_nests* r = w->rows;
  const cellc_nest_run* run = w->run;
  const cellc_slot s = r->slots[k->first_slot + slot];
  switch (s.kind) {
    case CELLC_LENGTH:
      return (uint64_t)run->lengths[s.id];
    case CELLC_PARAM:
    case CELLC_INPUT:
      return run->symbols[s.id].data;
    case CELLC_START:
      return run->symbols[r->state_symbol[s.id]].data;
    case CELLC_INPUT_STRIDE: {
      const int64_t stride = run->symbols[s.id].row_stride;
      return (uint64_t)(stride < 0 ? cellc_nest_entries(w, r->symbol_axes[s.id]) : stride);
    }
    case CELLC_HISTORY:
      return run->symbols[s.id].history;
    case CELLC_HISTORY_DEPTH:
      return (uint64_t)run->symbols[s.id].history_depth;
    case CELLC_FINAL:
      return run->finals[s.id];
    case CELLC_STATE_ROW:
      return run->states[s.id];
    case CELLC_OUT:
      return run->outs[s.id];
    case CELLC_ONCE:
      return cellc_buffer(w, w->once, r->once, s.id, 1);
    case CELLC_CHUNK:
      return cellc_buffer(w, w->chunks, r->chunks, s.id, w->chunk_rows);
    default:
      break;
  }
  if (k->form != CELLC_FLAT) return (uint64_t)cellc_local_place(w, k, slot, block);
  return s.kind == CELLC_LOCAL_TEMP ? cellc_buffer(w, w->temps, r->temps, s.id, 1) : w->scalars;
}

static inline int64_t cellc_whole_warps(int64_t threads) {
  threads = cellc_least(cellc_most(threads, 1), CELLC_NEST_THREADS);
  return cellc_divide_up(threads, 32) * 32;
}

/* Entries of a row of the array that a slot stands for, of all of it where it has no rows, and from row to row of
 * inputs; 0 of none, and of outs, which are as long as the nests that write them. */
static inline int64_t cellc_slot_entries(const cellc_nest_work* w, cellc_slot s) {
  const cellc_nests* r = w->rows;
  switch (s.kind) {
    case CELLC_PARAM:
    case CELLC_INPUT:
      return cellc_nest_entries(w, r->symbol_axes[s.id]);
    case CELLC_INPUT_STRIDE:
      return w->run->symbols[s.id].row_stride; /* negative: that of rows side by side */
    case CELLC_HISTORY:
      return cellc_nest_entries(w, r->symbol_axes[s.id]) * w->run->sequences * w->run->symbols[s.id].history_depth;
    case CELLC_STATE_ROW:
      return cellc_nest_entries(w, r->state_axes[s.id]);
    case CELLC_ONCE:
      return cellc_nest_entries(w, r->once[s.id]);
    case CELLC_CHUNK:
      return cellc_nest_entries(w, r->chunks[s.id]);
    case CELLC_LOCAL_TEMP:
      return cellc_nest_entries(w, r->temps[s.id]);
    default:
      return 0;
  }
}

/* Whether numbers of 32 bits do for a kernel's rows and what is in them (NestFrame::narrow). */
static inline int cellc_is_narrow(const cellc_nest_work* w, const cellc_nest_kernel* k, const CELLC_FRAME* frame) {
  const int64_t most = (int64_t)1 << 30;
  int i;
  if (frame->window != 0 || frame->first_row + frame->rows >= most) return 0;
  for (i = 0; i < k->slots; ++i)
    if (cellc_slot_entries(w, w->rows->slots[k->first_slot + i]) >= most) return 0;
  for (i = 0; i < k->nests; ++i) {
    const cellc_nest* nest = w->rows->nests + k->first_nest + i;
    if (cellc_nest_entries(w, nest->axes) >= most || cellc_nest_entries(w, nest->bound) >= most) return 0;
  }
  return 1;
}

enum { CELLC_MOST_SLOTS = 4000 }; /* an argument has less than 32 KiB */

static inline void cellc_nest_launch(cellc_nest_work* w, int number, CELLC_FRAME frame, cellc_block* block) {
  const cellc_nest_kernel* k = w->rows->kernels + number;
  uint64_t values[sizeof(CELLC_FRAME) / 8 + CELLC_MOST_SLOTS];
  cellc_grid grid;
  int i;
  w->scratch = cellc_most(w->scratch, block->blocks * block->scratch_entries * w->rows->real_bytes);
  w->scratch = cellc_most(w->scratch, block->exchange_bytes);
  if (w->counts || w->result) return;
  if (block->exchange_bytes > 0) {
    const uint64_t exchange = w->base + (uint64_t)w->fixed;
    frame.scratch = (void*)(uintptr_t)exchange;
    w->result = w->device->zero(w->device->self, exchange, block->exchange_bytes);
    if (w->result) return;
  }
  if (block->scratch_entries > 0) {
    frame.scratch = (void*)(uintptr_t)(w->base + (uint64_t)w->fixed);
    frame.scratch_stride = block->scratch_entries;
  }
  frame.narrow = cellc_is_narrow(w, k, &frame);
  memcpy(values, &frame, sizeof frame);
  for (i = 0; i < k->slots; ++i) values[sizeof frame / 8 + (size_t)i] = cellc_slot_value(w, k, i, block);
  grid.blocks = (unsigned)block->blocks;
  grid.threads = (unsigned)block->threads;
  grid.cooperative = block->exchange_bytes > 0;
  grid.cluster = (unsigned)block->cluster;
  w->result = w->device->launch(w->device->self, w->rows->first_kernel + number, grid, block->shared_bytes, values,
                                sizeof frame + 8 * (size_t)k->slots);
}

static inline int64_t cellc_resident(const cellc_nest_work* w, int kernel, const cellc_block* block) {
  const int n = w->device->resident(w->device->self, kernel, (int)block->threads, block->shared_bytes);
  return (n > 0 ? n : 1) * (int64_t)w->device->facts.multiprocessors;
}

static inline void cellc_run_steps(cellc_nest_work* w, int number, CELLC_FRAME frame) {
  const cellc_nest_kernel* k = w->rows->kernels + number;
  int64_t widest = cellc_widest(w, k), jobs;
  cellc_block block;
  memset(&block, 0, sizeof block);
  frame.parts = 1;
  frame.part_length = 1;
  if (w->rows->split >= 0) {
    const int64_t lanes = w->run->lengths[w->rows->split];
    frame.part_length = cellc_most(1, lanes);
    if (lanes > 1) {
      const int64_t useful = cellc_divide_up(CELLC_PART_POSITIONS, cellc_most(1, widest / lanes));
      const int64_t wanted =
          cellc_divide_up(2 * (int64_t)w->device->facts.multiprocessors, cellc_most(1, frame.sequences));
      frame.part_length = cellc_least(cellc_most(cellc_divide_up(lanes, wanted), cellc_least(useful, lanes)), lanes);
      frame.parts = cellc_divide_up(lanes, frame.part_length);
      widest = widest / lanes * frame.part_length;
    }
    block.part_length = frame.part_length;
  }
  jobs = frame.sequences * frame.parts;
  if (jobs == 0) return;
  block.rows = 1;
  block.threads = cellc_whole_warps(widest);
  cellc_local_place(w, k, -1, &block);
  block.blocks = cellc_least(jobs, cellc_resident(w, w->rows->first_kernel + number, &block));
  cellc_nest_launch(w, number, frame, &block);
}

/* A cluster or group of blocks for some sequences, and each place of the split axis. Groups are launched as many at a
 * time as are resident together: a card that has less room than it says refuses the launch. */
static inline void cellc_run_persistent(cellc_nest_work* w, int number, CELLC_FRAME frame) {
  const cellc_nest_kernel* k = w->rows->kernels + number;
  const int64_t jobs = cellc_divide_up(frame.sequences, k->sequences) * k->parts;
  int64_t at_once;
  cellc_block block;
  memset(&block, 0, sizeof block);
  frame.parts = k->parts;
  frame.part_length = 1;
  block.threads = k->threads;
  block.shared_bytes = k->shared_bytes;
  if (k->exchange_bytes == 0) {
    block.cluster = k->cluster;
    block.blocks = jobs * k->cluster;
    if (jobs > 0) cellc_nest_launch(w, number, frame, &block);
    return;
  }
  at_once = cellc_most(1, cellc_resident(w, w->rows->first_kernel + number, &block) / k->cluster);
  for (frame.first_job = 0; frame.first_job < jobs && !w->result; frame.first_job += at_once) {
    const int64_t groups = cellc_least(at_once, jobs - frame.first_job);
    block.blocks = groups * k->cluster;
    block.exchange_bytes = groups * k->exchange_bytes;
    cellc_nest_launch(w, number, frame, &block);
  }
}

static inline void cellc_run_tiles(cellc_nest_work* w, int number, CELLC_FRAME frame) {
  const cellc_nest_kernel* k = w->rows->kernels + number;
  const int64_t widest = cellc_widest(w, k), each = cellc_most(1, frame.rows / w->device->facts.multiprocessors);
  cellc_block block;
  if (frame.rows == 0) return;
  memset(&block, 0, sizeof block);
  /* Rows enough to give every thread something, as long as every block finds some and they fit. */
  block.rows = cellc_least(cellc_most(CELLC_TILE_PLACES / widest, 1), each);
  cellc_local_place(w, k, -1, &block);
  while (block.rows > 1 && (block.scratch_entries > 0 || block.shared_bytes > CELLC_TILE_BYTES)) {
    block.rows /= 2;
    cellc_local_place(w, k, -1, &block);
  }
  block.threads = cellc_whole_warps(widest * block.rows);
  frame.tile_rows = block.rows;
  block.blocks =
      cellc_least(cellc_divide_up(frame.rows, block.rows), cellc_resident(w, w->rows->first_kernel + number, &block));
  cellc_nest_launch(w, number, frame, &block);
}

static inline void cellc_run_flat(cellc_nest_work* w, int number, CELLC_FRAME frame) {
  const cellc_nest_kernel* k = w->rows->kernels + number;
  const int64_t work = cellc_positions(w, w->rows->nests + k->first_nest, k->form) * frame.rows;
  int64_t resident;
  cellc_block block;
  if (work == 0) return;
  memset(&block, 0, sizeof block);
  block.threads = cellc_whole_warps(cellc_least(work, 256));
  block.blocks = cellc_divide_up(work, block.threads);
  /* A thread has four places under way, and finds the first of them once for all. Where that leaves half of the card
   * without a block, it has fewer. */
  resident = cellc_resident(w, w->rows->first_kernel + number, &block);
  block.blocks =
      cellc_least(cellc_most(cellc_divide_up(block.blocks, 4), cellc_least(block.blocks, resident / 2)), 4 * resident);
  cellc_nest_launch(w, number, frame, &block);
}

static inline void cellc_run_kernel(cellc_nest_work* w, int kernel, CELLC_FRAME frame) {
  int k;
  for (k = 0; k < w->rows->kernel_count && !w->result; ++k) {
    if (w->rows->kernels[k].kernel != kernel) continue;
    if (w->rows->kernels[k].form == CELLC_STEPS)
      cellc_run_steps(w, k, frame);
    else if (w->rows->kernels[k].form == CELLC_PERSISTENT)
      cellc_run_persistent(w, k, frame);
    else if (w->rows->kernels[k].form == CELLC_TILE)
      cellc_run_tiles(w, k, frame);
    else
      cellc_run_flat(w, k, frame);
  }
}

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
  a.result = (void*)(uintptr_t)cellc_buffer(w, w->chunks, r->chunks, p->chunk, w->chunk_rows);
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

/* Numbers of 30 bits by steps_each: with 2^s the next power of two, factor is 2^(30+s)/steps_each, rounded up. What
 * that is too large by, less than 1, adds less than row/2^(30+s), and so less than 1/steps_each, to the quotient. */
static inline void cellc_set_division(CELLC_FRAME* frame) {
  const int64_t d = frame->steps_each;
  int s = 0;
  frame->steps_factor = frame->steps_shift = 0;
  if (d <= 0 || d >= (int64_t)1 << 30) return;
  while (((int64_t)1 << s) < d) ++s;
  frame->steps_shift = 30 + s;
  frame->steps_factor = cellc_divide_up((int64_t)1 << frame->steps_shift, d);
}

/* All steps of `count` neighbouring sequences. */
static inline CELLC_FRAME cellc_whole_frame(const cellc_nest_work* w, int64_t first, int64_t count) {
  const cellc_nest_run* run = w->run;
  CELLC_FRAME frame;
  int64_t s, steps = run->steps;
  int even = 1;
  memset(&frame, 0, sizeof frame);
  if (run->offsets && run->sequences > 0) {
    steps = run->offsets[1] - run->offsets[0];
    for (s = 1; s < run->sequences && even; ++s) even = run->offsets[s + 1] - run->offsets[s] == steps;
  }
  frame.offsets = (const long long*)(uintptr_t)run->device_offsets;
  frame.first_sequence = first;
  frame.sequences = count;
  frame.first_row = cellc_row_of(run, first);
  frame.rows = cellc_row_of(run, first + count) - frame.first_row;
  frame.steps_each = even ? steps : 0;
  cellc_set_division(&frame);
  frame.direction = run->reverse ? -1 : 1;
  return frame;
}

static inline void cellc_run_window(cellc_nest_work* w, CELLC_FRAME frame) {
  int p;
  for (p = 0; p < w->rows->phase_count && !w->result; ++p) {
    const cellc_phase phase = w->rows->phases[p];
    if (phase.is_product)
      cellc_run_product(w, p, frame);
    else
      cellc_run_kernel(w, phase.index, frame);
  }
}

/* Windows of `steps` of neighbouring sequences. */
static inline void cellc_run_in_time(cellc_nest_work* w, int64_t first, int64_t count, int64_t steps) {
  int64_t end = 0, s, begin;
  for (s = first; s < first + count; ++s) end = cellc_most(end, cellc_row_of(w->run, s + 1) - cellc_row_of(w->run, s));
  for (begin = 0; begin < end && !w->result; begin += steps) {
    CELLC_FRAME frame = cellc_whole_frame(w, first, count);
    frame.window_begin = begin;
    frame.window = steps;
    frame.rows = count * steps;
    cellc_run_window(w, frame);
  }
}

static inline void cellc_nest_pass(cellc_nest_work* w) {
  const cellc_nests* r = w->rows;
  const cellc_nest_run* run = w->run;
  const int64_t rows = cellc_row_of(run, run->sequences);
  int64_t row_bytes = 0, most = INT64_MAX, steps, s, scalars = 0;
  int in_time, i, k;
  /* What is computed once, and its temps. */
  w->fixed = 0;
  w->once = w->base;
  w->fixed += (int64_t)(cellc_buffer(w, 0, r->once, r->once_count, 1));
  w->temps = w->base + (uint64_t)w->fixed;
  if (r->once_kernel >= 0) {
    w->fixed += (int64_t)(cellc_buffer(w, 0, r->temps, r->temp_count, 1));
    for (k = 0; k < r->kernel_count; ++k)
      for (i = 0; i < r->kernels[k].slots && r->kernels[k].kernel == r->once_kernel; ++i) {
        const cellc_slot slot = r->slots[r->kernels[k].first_slot + i];
        if (slot.kind == CELLC_LOCAL_SCALARS) scalars = cellc_most(scalars, slot.id);
      }
  }
  w->scalars = w->base + (uint64_t)w->fixed;
  w->fixed += cellc_align(scalars * r->real_bytes);
  /* All rows at once unless what passes between phases would take too much memory. */
  for (i = 0; i < r->chunk_count; ++i) row_bytes += cellc_nest_entries(w, r->chunks[i]) * r->real_bytes;
  if (row_bytes > 0) {
    int64_t budget = run->chunk_bytes;
    if (budget <= 0)
      budget = cellc_least(cellc_most(w->device->facts.memory_bytes / 16, (int64_t)64 << 20), (int64_t)2 << 30);
    most = cellc_most(1, budget / row_bytes);
  }
  in_time = run->sequences > 0 && most / run->sequences >= CELLC_SHORTEST_WINDOW;
  steps = rows <= most ? 0 : in_time ? most / run->sequences : most;
  w->chunk_rows = rows <= most ? rows : in_time ? steps * run->sequences : most;
  if (run->window != 0) w->chunk_rows = run->sequences * (run->window < 0 ? -run->window : run->window);
  w->chunks = w->base + (uint64_t)w->fixed;
  w->fixed += (int64_t)cellc_buffer(w, 0, r->chunks, r->chunk_count, w->chunk_rows);
  w->prepared = w->base + (uint64_t)w->fixed;
  w->fixed += cellc_prepare_matrices(w, r->phase_count, 0);
  if (r->once_kernel >= 0 && run->window <= 0) {
    CELLC_FRAME frame;
    memset(&frame, 0, sizeof frame);
    frame.rows = 1;
    cellc_run_kernel(w, r->once_kernel, frame);
  }
  if (run->sequences == 0) return;
  if (run->window <= 0) cellc_prepare_matrices(w, r->phase_count, 1);
  if (run->window != 0) {
    CELLC_FRAME frame = cellc_whole_frame(w, 0, run->sequences);
    frame.window = run->window < 0 ? -run->window : run->window;
    frame.window_begin = run->window_begin;
    frame.rows = run->sequences * frame.window;
    frame.steps_before = (const long long*)(uintptr_t)run->steps_before;
    if (run->window > 0 || w->counts) cellc_run_window(w, frame);
  } else if (rows <= most) {
    cellc_run_window(w, cellc_whole_frame(w, 0, run->sequences));
  } else if (in_time) {
    cellc_run_in_time(w, 0, run->sequences, steps);
  } else {
    for (s = 0; s < run->sequences && !w->result;) {
      int64_t end = s + 1;
      while (end < run->sequences && cellc_row_of(run, end + 1) - cellc_row_of(run, s) <= most) ++end;
      if (cellc_row_of(run, end) - cellc_row_of(run, s) <= most)
        cellc_run_window(w, cellc_whole_frame(w, s, end - s));
      else
        cellc_run_in_time(w, s, 1, most);
      s = end;
    }
  }
}

/* Bytes of device memory that a run needs; addresses of arrays do not matter. */
static inline int64_t cellc_nest_bytes(const cellc_nests* rows, const cellc_nest_run* run, const cellc_device* device) {
  cellc_nest_work w;
  memset(&w, 0, sizeof w);
  w.rows = rows;
  w.run = run;
  w.device = device;
  w.counts = 1;
  cellc_nest_pass(&w);
  return w.fixed + cellc_align(w.scratch);
}

/* Queues a run with that much memory at `base`; 0, or what a launch gave. */
static inline int cellc_nest_queue(const cellc_nests* rows, const cellc_nest_run* run, const cellc_device* device,
                                   uint64_t base) {
  cellc_nest_work w;
  memset(&w, 0, sizeof w);
  w.rows = rows;
  w.run = run;
  w.device = device;
  w.base = base;
  cellc_nest_pass(&w);
  return w.result;
}

#endif
