/* How a product of rows and a matrix of params is cut into tiles (device/product.cuh, device/product_tensor.cuh). */
#ifndef CELLC_HOST_TILES
#define CELLC_HOST_TILES

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

#endif
