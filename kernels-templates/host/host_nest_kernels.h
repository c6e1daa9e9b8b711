/* Kernels of loop nests (sequential/nests.cuh, persistent/persistent.cuh): their blocks, what fits shared memory, their
 * arguments. A work that counts launches nothing: the same functions say what memory a run needs. */
#ifndef CELLC_HOST_NEST_KERNELS
#define CELLC_HOST_NEST_KERNELS

#include "kernels-templates/host/host_nest_tables.h"

enum {
  CELLC_NEST_THREADS = 512, /* of nests.cuh */
  CELLC_TERMS_OF_THREAD = 4,
  CELLC_TILE_PLACES = 8192, /* positions of a tile's widest nest: a block waits for memory once a nest */
  CELLC_TILE_BYTES =
      32 << 10, /* what passes between its nests, beyond one row: two blocks fit a multiprocessor of any card */
  CELLC_PART_POSITIONS = 128 /* positions of a part below which splitting a sequence further leaves threads idle */
};

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

#endif
