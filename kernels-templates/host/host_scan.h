/* How a scan is cut: which kernel of scan.cuh, scan_stream.cuh and scan_cluster.cuh suits a run, how many channels,
 * steps and warps its blocks have, and how many tiles that makes. */
#ifndef CELLC_HOST_SCAN
#define CELLC_HOST_SCAN

#include "kernels-templates/host/host_stage.h"

/* Bytes of ScanControl (kernel_memory.h). */
enum { CELLC_SCAN_CONTROL = 40 };

/* What scan_tile.cuh holds of inputs, by warp: slots, and entries that keep parts apart. */
static inline int64_t cellc_scan_slots(const cellc_stage* stage, const cellc_variant* v) {
  return cellc_most(cellc_most(1, stage->step_inputs), v->channels < CELLC_WARP ? cellc_row_states(stage) : 0);
}
static inline int64_t cellc_slot_bytes(const cellc_stage* stage, const cellc_variant* v, int64_t steps) {
  const int64_t size = stage->storage_bytes, parts = CELLC_WARP / v->channels;
  const int64_t pad = parts == 1 || v->channels < 16 / size ? 0 : v->channels;
  return parts * (steps * v->channels + pad) * size;
}

/* What so many warps hold of the step after their own: kFollowingBytes of scan_tile.cuh. */
static inline int64_t cellc_following_bytes(const cellc_stage* stage, const cellc_variant* v, int64_t warps) {
  if (!v->checks) return 0;
  return warps * cellc_divide_up(stage->step_inputs * v->channels * stage->storage_bytes, 16) * 16;
}

/* How many steps and warps a block of a scan has for its loader and channels; 0 where none would fit. */
static inline int cellc_scan_block(const cellc_stage* stage, const cellc_facts* facts, int64_t tile, cellc_variant* v) {
  enum {
    WARPS = 8,
    STEPS = 32,
    LEAST = 24
  }; /* docs/notes/device-scan.md; of fewer steps each, half the warps are better */
  const int64_t real = stage->real_bytes, parts = CELLC_WARP / v->channels;
  int blocks;
  int64_t room, bytes;
  /* scan_shared_bytes of scan_tile.cuh. */
#define CELLC_SCAN_BYTES                                                           \
  (v->warps * (cellc_scan_slots(stage, v) * cellc_slot_bytes(stage, v, v->steps) + \
               v->channels * (2 * stage->map_numbers * real + 4)) +                \
   cellc_following_bytes(stage, v, v->channels < CELLC_WARP ? v->warps : 1) +      \
   v->channels * cellc_carried_states(stage) * real + (v->checks ? 12 : 8))
#define CELLC_SCAN_TILE ((int64_t)v->warps * parts * v->steps)
  /* What a thread keeps in registers says how many blocks a multiprocessor holds without spilling. */
  blocks = stage->map_numbers * real <= 16 ? 3 : stage->map_numbers * real <= 64 ? 2 : 1;
  room = cellc_least(facts->shared_per_multiprocessor / blocks - 1024, facts->shared_per_block);
  v->buffers = v->carry_channels = 0;
  v->warps = WARPS;
  v->steps = STEPS;
  while (v->steps > LEAST && CELLC_SCAN_BYTES > room) v->steps -= 8;
  if (CELLC_SCAN_BYTES > room) {
    v->warps = WARPS / 2;
    v->steps = STEPS;
  }
  while (v->steps > 8 && CELLC_SCAN_BYTES > room) v->steps -= 8;
  while (v->warps > 1 && (CELLC_SCAN_BYTES > room || (tile > 0 && CELLC_SCAN_TILE > tile))) v->warps /= 2;
  while (v->steps > 8 && tile > 0 && CELLC_SCAN_TILE > tile) v->steps -= 8;
  bytes = CELLC_SCAN_BYTES;
#undef CELLC_SCAN_BYTES
#undef CELLC_SCAN_TILE
  if (bytes > facts->shared_per_block) return 0;
  v->blocks = (int)cellc_least(blocks * WARPS / v->warps, facts->shared_per_multiprocessor / (bytes + 1024));
  v->shared_bytes = (int)bytes;
  return 1;
}

/* Blocks of a multiprocessor whose inputs may well be on their way at the same time. 128 KB of each keep memory busy,
 * and where all have more to do than that, more requests only disturb each other: (8, 2048, 1536) of f32 takes 0.077 ms
 * on an H200, and 0.079 with half as much again. Where chains are few, a third block has something to do while others
 * look back; where blocks have few warps, these are too few. What a block does is the same, and so are the bits. */
static inline int cellc_scan_crowd(const cellc_stage* stage, const cellc_facts* facts, const cellc_variant* v,
                                   int64_t chains) {
  enum { ENOUGH = 128 << 10, LEAST = 2, WARPS = 8, ANY = 32 };
  const int64_t bytes = v->warps * cellc_scan_slots(stage, v) * cellc_slot_bytes(stage, v, v->steps);
  return v->warps == WARPS && chains > facts->multiprocessors ? (int)cellc_most(LEAST, cellc_divide_up(ENOUGH, bytes))
                                                              : ANY;
}

/* The same where the tiles of few channels stream through a block; 0 where that does not suit the stage.
 * Tiles are as long as two blocks of a multiprocessor can hold three of each: the longer, the fewer wait for
 * each other. */
static inline int cellc_stream_block(const cellc_stage* stage, const cellc_facts* facts, cellc_variant* v) {
  enum {
    WARPS = 7,
    ROW_WARPS = 3,
    ROW_STEPS = 96,
    BUFFERS = 3,
    CARRIED = 4,
    MAP = 32
  }; /* MAP: bytes of a map that a thread holds several of */
  const int64_t size = stage->storage_bytes, real = stage->real_bytes;
  const int64_t room = cellc_least(facts->shared_per_multiprocessor / 2 - 1024, facts->shared_per_block);
  const int time = v->copy == CELLC_TIME, rows = v->copy == CELLC_CONTIGUOUS;
  /* Along time a thread's part is an odd number of 16 bytes, so that no two threads of a warp read from one
   * bank. By rows a block has few threads of many steps, whose maps are soon composed. */
  const int warps = rows ? ROW_WARPS : WARPS, most = time ? 13 : ROW_STEPS / 8, fewest = time ? 5 : 2,
            by = time ? 2 : 1;
  int64_t bytes = 0;
  int parts;
  if (stage->map_numbers * real > MAP) return 0;
  v->buffers = BUFFERS;
  v->carry_channels = v->channels < CARRIED ? v->channels : CARRIED;
  v->blocks = 2;
  for (parts = most; parts >= fewest; parts -= by) {
    v->steps = time ? parts * 16 / (int)(size * v->channels) : 8 * parts;
    for (v->warps = warps;; --v->warps) { /* stream_shared_bytes of scan_stream.cuh */
      bytes = 320 + cellc_following_bytes(stage, v, BUFFERS * v->warps) +
              v->warps * (BUFFERS * (cellc_scan_slots(stage, v) * cellc_slot_bytes(stage, v, v->steps) + 8) +
                          v->channels * (v->checks ? 4 : 2) * stage->map_numbers * real) +
              v->channels * cellc_carried_states(stage) * real + (v->checks ? 8 : 0);
      if (v->warps == 1 || bytes <= room) break;
    }
    if (v->warps == warps) break;
  }
  v->shared_bytes = (int)bytes;
  return v->warps > 1;
}

static inline int64_t cellc_scan_tile(const cellc_variant* v);

/* The same where all tiles of a sequence are on the card at once, in the registers of one cluster of blocks; 0 where
 * they do not fit. The fewer steps a thread has, the more threads load at the same time. */
static inline int cellc_cluster_block(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                      const cellc_lane_axes* axes, cellc_variant* v) {
  enum { WARPS = 4, CLUSTER = 16, STEPS = 32, NUMBERS = 64, REGISTERS = 65536, OTHERS = 24, MAP = 32 };
  const int64_t words = stage->real_bytes / 4, chains = cellc_divide_up(axes->channels, v->channels) * run->sequences;
  int more; /* steps of a thread, and then twice the threads */
  if (!facts->clusters || stage->map_numbers * stage->real_bytes > MAP) return 0;
  for (more = 8; more <= 2 * STEPS; more *= 2) {
    int64_t tile, numbers, registers;
    v->steps = more < STEPS ? more : STEPS;
    v->warps = more <= STEPS ? WARPS : 2 * WARPS;
    tile = cellc_scan_tile(v);
    numbers = v->steps * cellc_most(cellc_most(1, cellc_row_states(stage)), stage->step_inputs) * words;
    registers = (numbers + OTHERS + 4 * stage->map_numbers * words + 7) / 8 * 8;
    if (numbers > NUMBERS) return 0;
    if (tile * CLUSTER < run->length) continue;
    for (v->cluster = 1; tile * v->cluster < run->length; v->cluster *= 2) {
    }
    v->blocks = (int)(REGISTERS / (registers * v->warps * CELLC_WARP));
    v->whole = run->uniform && run->length % tile == 0 && axes->channels % v->channels == 0;
    /* cluster_shared_bytes of scan_cluster.cuh. */
    v->shared_bytes = (int)(16 + (v->warps + v->cluster) * stage->map_numbers * v->channels * stage->real_bytes +
                            v->warps * CELLC_WARP * stage->step_inputs * stage->storage_bytes);
    /* The blocks of a cluster share a part of the card, so that not all places are taken. */
    if (8 * chains * v->cluster <= 7 * (int64_t)v->blocks * facts->multiprocessors) return 1;
  }
  return 0;
}

/* Blocks of a stream that carry states from tile to tile, of some channels of a chain each. */
static inline int64_t cellc_stream_carry_blocks(int64_t chains, const cellc_variant* v) {
  return chains * (v->channels / v->carry_channels);
}

/* Whether a stream pays: enough tiles, and few carry blocks, which are lost to rows. Where few channels each would be
 * too many, a carry block takes all of a chain. */
static inline int cellc_streams(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                int64_t chains, cellc_variant* v) {
  enum {
    FEW = 8,
    ROUNDS = 10,
    MANY_ROUNDS = 64,
    CHAINS = 4,
    SERIAL = 32
  }; /* tiles of a multiprocessor; chains, unless along time */
  const int64_t most = 1 + facts->multiprocessors / 16;
  /* Fewer tiles end sooner without the run-up of a stream; but if each waited for the one before it, carry blocks,
   * which compose them in windows, would be far ahead after some dozens. */
  if (!(stage->repeats && run->length / cellc_scan_tile(v) >= SERIAL) &&
      run->length / cellc_scan_tile(v) * chains <
          (v->channels > FEW ? MANY_ROUNDS : ROUNDS) * (int64_t)facts->multiprocessors)
    return 0;
  if (cellc_stream_carry_blocks(chains, v) > most) v->carry_channels = v->channels;
  return cellc_stream_carry_blocks(chains, v) <= most && (v->copy == CELLC_TIME || chains <= CHAINS);
}

/* Which loader and how many channels a block of a scan has, and from them the rest; 0 where no block would
 * fit. */
static inline int cellc_scan_variant(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                     const cellc_lane_axes* axes, const cellc_plan* plan, cellc_variant* v) {
  const int64_t size = stage->storage_bytes, channels = axes->channels, tile = plan->tile;
  int64_t chains;
  /* Rows of neighbours in memory, 16 bytes at a time; or steps that are, where all inputs are aligned alike.
   */
  int rows = axes->axes <= 1, time = stage->step_inputs > 0, most = 1, i, a;
  int span = time && rows && (channels & (channels - 1)) == 0 && channels * size < 16;
  const cellc_entry* inputs = stage->entries + stage->step_states;
  int64_t aligned[2 + CELLC_CHANNEL_AXES]; /* places modulo 16 bytes that all inputs must share */
  int near = axes->axes <= 1;              /* whether channels are neighbours in memory */
  cellc_variant stream, cluster;
  for (i = 0; i < stage->step_inputs; ++i) {
    const cellc_view* view = run->views + inputs[i].symbol;
    const int64_t entry = cellc_entry_offset(stage, run, inputs[i]);
    const int inner = channels == 1 || cellc_inner_stride(stage, run, axes, inputs[i].symbol) == 1;
    int64_t at[2 + CELLC_CHANNEL_AXES];
    near = near && inner;
    rows = rows && inner && view->data % 16 == 0 && view->last % 16 == 0 && view->row * size % 16 == 0 &&
           view->batch * size % 16 == 0 && entry * size % 16 == 0;
    at[0] = (int64_t)(view->data % 16) + entry * size;
    at[1] = view->batch * size;
    time = time && view->row == 1 && !view->last; /* one step later nothing is aligned */
    /* Neighbours in memory as if steps and channels were one axis. */
    span = span && !view->last && view->row == channels && inner && at[0] % (channels * size) == 0 &&
           view->batch % channels == 0;
    for (a = 0; a < axes->axes; ++a)
      at[2 + a] = cellc_channel_stride(stage, run, inputs[i].symbol, axes->channel[a]) * size;
    for (a = 0; a < 2 + axes->axes; ++a) {
      at[a] = (at[a] % 16 + 16) % 16;
      if (i == 0) aligned[a] = at[a];
      if (at[a] != aligned[a]) time = span = 0;
    }
  }
  while (2 * most <= cellc_least(channels, CELLC_WARP)) most *= 2;
  memset(v, 0, sizeof *v);
  v->kernel = CELLC_SCAN;
  v->width = 1;
  v->forward = !run->reverse;
  v->checks = plan->checks;
  v->channels = most;
  while (rows && channels % v->channels != 0) v->channels /= 2;
  if (time || span) {
    v->copy = CELLC_TIME;
    v->channels = time ? 1 : most;
  } else if (rows && v->channels * size >= 16) {
    v->copy = CELLC_CONTIGUOUS;
  } else {
    v->copy = CELLC_EACH;
    v->channels = most;
  }
  cluster = stream = *v;
  chains = cellc_divide_up(channels, v->channels) * run->sequences;
  /* Sectors of memory are 32 bytes. */
  if (tile == 0 && (plan->repairs || !plan->checks) &&
      !(plan->checks && cellc_carried_states(stage) < stage->step_states) && near && v->copy != CELLC_TIME &&
      v->channels * size >= 32 && cellc_cluster_block(stage, facts, run, axes, &cluster)) {
    *v = cluster;
    return 1;
  }
  if (tile == 0 && cellc_stream_block(stage, facts, &stream) && cellc_streams(stage, facts, run, chains, &stream)) {
    *v = stream;
    return 1;
  }
  if (!cellc_scan_block(stage, facts, tile, v)) return 0;
  v->blocks = (int)cellc_least(v->blocks, cellc_scan_crowd(stage, facts, v, chains)); /* and more registers for each */
  return 1;
}

/* Steps of a tile, which is what one block takes. */
static inline int64_t cellc_scan_tile(const cellc_variant* v) {
  return (int64_t)v->warps * (CELLC_WARP / v->channels) * v->steps;
}

/* Tiles of a sequence that a scan cuts it into, and groups of its channels. */
static inline int64_t cellc_scan_tiles(const cellc_stage* stage, const cellc_stage_run* run, const cellc_variant* v) {
  /* Along time the first tile begins at a multiple of 16 bytes, before step 0. */
  const int64_t early = v->copy == CELLC_TIME ? 16 / ((int64_t)stage->storage_bytes * v->channels) - 1 : 0;
  return cellc_divide_up(run->length + early, cellc_scan_tile(v));
}
static inline int64_t cellc_scan_chains(const cellc_stage_run* run, const cellc_lane_axes* axes,
                                        const cellc_variant* v) {
  return run->sequences * cellc_divide_up(axes->channels, v->channels);
}

/* Bytes of what tiles publish, of a channel a word of 8 for every half of a number; a cluster publishes nothing. */
static inline int64_t cellc_scan_word_bytes(const cellc_stage* stage, const cellc_stage_run* run,
                                            const cellc_lane_axes* axes, const cellc_variant* v) {
  return v->cluster
             ? 0
             : cellc_scan_chains(run, axes, v) * cellc_scan_tiles(stage, run, v) *
                   (cellc_carried_states(stage) + stage->map_numbers) * (stage->real_bytes / 4) * v->channels * 8;
}
/* Bytes of what is marked for scan_repair.cuh or scan_rewalk.cuh: a word for each chain, and one for each channel of
 * each tile. */
static inline int64_t cellc_scan_mark_bytes(const cellc_stage* stage, const cellc_stage_run* run,
                                            const cellc_lane_axes* axes, const cellc_variant* v) {
  return !v->checks ? 0 : cellc_scan_chains(run, axes, v) * (1 + cellc_scan_tiles(stage, run, v) * v->channels) * 4;
}

#endif
