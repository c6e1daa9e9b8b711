/* Blocks that multiply rows by a matrix through a ring of slots in shared memory (device/product_ring.cuh): what those
 * who launch them and count their memory know of them (host/host_tiles.h). */
#ifndef CELLC_ABI_WIDE_PRODUCTS
#define CELLC_ABI_WIDE_PRODUCTS

enum {
  CELLC_WIDE_TILE = 128,       /* rows of a block; columns that are prepared together */
  CELLC_WIDE_THREADS = 384,    /* of a block that multiplies */
  CELLC_WIDE_SLOTS = 8,        /* at most */
  CELLC_WIDE_HEAD_BYTES = 1536 /* shared memory before the first slot */
};

#endif
