/* How a product of rows and a matrix of params is cut into tiles (device/product.cuh, device/product_tensor.cuh). */
#ifndef CELLC_HOST_TILES
#define CELLC_HOST_TILES

#include "kernels-templates/abi/wide_products.h"
#include "kernels-templates/host/host_stage.h"
#include "kernels-templates/sequential/nest_frame.cuh"

#ifdef __cplusplus
#define CELLC_FRAME cellc::NestFrame
#define CELLC_PRODUCT cellc::ProductArguments
#else
#define CELLC_FRAME struct NestFrame
#define CELLC_PRODUCT struct ProductArguments
#endif

enum {
  CELLC_PRODUCT_THREADS = 256, /* of a block */
  CELLC_PRODUCT_TILE = 64      /* rows and columns, and twice as many of f32, where they are enough */
};

/* Rows and columns of a product's tiles: large ones where there are enough of them for the card. How many they are. */
static inline int64_t cellc_choose_tiles(CELLC_PRODUCT* a, int real_bytes, int on_tensor_cores,
                                         int64_t multiprocessors) {
  const int64_t small = CELLC_PRODUCT_TILE, large = 2 * small;
  int64_t tiles = 0;
  int i;
  for (i = 0; i < 3; ++i) {
    if (i == 1 && !on_tensor_cores) continue;
    a->tile = i < 2 ? large : small;
    a->tile_columns = i < 1 ? large : small;
    tiles = cellc_divide_up(a->width, a->tile_columns) * cellc_divide_up(a->frame.rows, a->tile) * a->batch;
    if (real_bytes == 4 && tiles >= multiprocessors && (i == 1 || a->width > small)) break;
  }
  return tiles;
}

/* Stages of a tile in shared memory: as many as leave room for the blocks beside it, 2 to 4. */
static inline int64_t cellc_product_stages(const CELLC_PRODUCT* a, int64_t row_bytes, int64_t blocks,
                                           int64_t shared_per_block, int64_t* bytes) {
  const int64_t stage = (a->tile + a->tile_columns) * row_bytes;
  int64_t stages;
  *bytes = 0;
  if (stage == 0) return 0;
  stages = shared_per_block / blocks / stage;
  stages = stages < 2 ? 2 : stages > 4 ? 4 : stages;
  *bytes = stages * stage;
  return stages;
}

/* The kernels of device/product_wgmma.cuh, or of device/product_stored.cuh: for cards of sm_90 alone, and runs of our
 * own. */
typedef struct cellc_wide_products {
  int prepare, multiply;      /* numbers that the device knows them by */
  int slot_bytes, head_bytes; /* shared memory of a slot of the ring, and before the first */
  int matrix_bytes;           /* memory of the prepared matrix for it, 128 columns */
  int terms;                  /* of a slot */
  int columns;                /* of a tile */
  int neighbours;             /* entries of a row that a copy brings */
  int always;                 /* also where it does not pay */
} cellc_wide_products;

enum {
  /* The matrix is made ready in every run, as params may have changed: of 1024 by 1024 that takes 8 us, where 4096 rows
   * win 38 us of 16-bit factors and 106 of 3xTF32. Of 64 columns of 1024 terms it takes 3 to 6, where 16384 rows win 9
   * to 34. */
  CELLC_WIDE_ROWS = 4096,
  CELLC_WIDE_COLUMNS = 16,
  CELLC_WIDE_TERMS = 64,
  CELLC_WIDE_PRODUCTS = 1 << 28 /* of a row's term and a matrix's entry */
};

static inline int64_t cellc_wide_tiles(const CELLC_PRODUCT* a, int64_t rows) {
  return cellc_divide_up(a->width, CELLC_WIDE_TILE) * cellc_divide_up(rows, CELLC_WIDE_TILE) * a->batch;
}

/* Whether a product of so many rows at a time runs by them. They make any; these pay. With much fewer tiles than
 * multiprocessors mma.sync has smaller ones. Where `operand_stride` or `depth` is no whole copy, numbers come from
 * memory one at a time, which has not been measured. The operand's address says nothing here: when memory is counted it
 * need not be known. */
static inline int cellc_is_wide(const cellc_wide_products* wide, const CELLC_PRODUCT* a, int64_t rows,
                                int64_t multiprocessors) {
  if (!wide || rows <= 0 || a->width <= 0 || a->batch <= 0) return 0;
  if (wide->always) return 1;
  return rows >= CELLC_WIDE_ROWS && a->width >= CELLC_WIDE_COLUMNS && a->depth >= CELLC_WIDE_TERMS &&
         ((a->operand_stride | a->depth) & (wide->neighbours - 1)) == 0 &&
         8 * cellc_wide_tiles(a, rows) >= 7 * multiprocessors &&
         rows * a->batch >= CELLC_WIDE_PRODUCTS / (a->width * a->depth);
}

/* Memory of the matrix as those kernels read it. */
static inline int64_t cellc_prepared_bytes(const cellc_wide_products* wide, const CELLC_PRODUCT* a) {
  return a->batch / a->shared * cellc_divide_up(a->width, CELLC_WIDE_TILE) * cellc_divide_up(a->depth, wide->terms) *
         wide->matrix_bytes;
}

/* Says so much of a product by them as follows from its size; returns the tiles. A block has a multiprocessor for
 * itself, and goes on from tile to tile, what comes next being on its way. */
static inline int64_t cellc_shape_wide(const cellc_wide_products* wide, CELLC_PRODUCT* a, int64_t shared_per_block,
                                       int64_t* bytes) {
  const int64_t fit = (shared_per_block - wide->head_bytes) / wide->slot_bytes;
  a->tile = CELLC_WIDE_TILE;
  a->tile_columns = wide->columns;
  a->stages = cellc_most(2, cellc_least(fit, CELLC_WIDE_SLOTS));
  *bytes = wide->head_bytes + a->stages * wide->slot_bytes;
  return cellc_divide_up(a->width, a->tile_columns) * cellc_divide_up(a->frame.rows, a->tile) * a->batch;
}

#endif
