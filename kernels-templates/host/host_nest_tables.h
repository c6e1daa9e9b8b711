/* Whole steps as tables: a plan's kernels, products and phases, a run of them, the device; and where buffers lie. */
#ifndef CELLC_HOST_NEST_TABLES
#define CELLC_HOST_NEST_TABLES

#include "kernels-templates/host/host_lanes.h"
#include "kernels-templates/host/host_tiles.h"
#include "kernels-templates/sequential/nest_frame.cuh"

/* Where a factor of a product lies. */
enum { CELLC_OF_INPUT, CELLC_OF_STATE, CELLC_OF_OUT, CELLC_OF_CHUNK, CELLC_OF_PARAM, CELLC_OF_ONCE };

/* After what includes the C library: they call memcpy. */
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

typedef struct cellc_product {
  int operand, operand_id, matrix, matrix_id, sum_last, batch_inside;
  int result, result_id; /* CELLC_OF_CHUNK or CELLC_OF_OUT */
  int stored;            /* the operand lies in 16 bits */
  int stores;            /* the result lies in 16 bits */
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

#endif
