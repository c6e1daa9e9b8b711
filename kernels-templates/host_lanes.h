/* How a stage is launched a lane a thread: which kernel suits a run, how much scratch memory it needs, what
 * its argument holds. One text for runs of our own (runtime/cuda/stage_program.cc) and for code that is
 * shipped, where the build puts it as it stands: so it is C99 that C++ compiles too, it allocates nothing and
 * keeps nothing. */
#ifndef CELLC_HOST_LANES
#define CELLC_HOST_LANES

#include <stdint.h>
#include <string.h>

enum { CELLC_WARP = 32, CELLC_STAGES_AHEAD = 3, CELLC_CHANNEL_AXES = 4 };

/* What planning asks of a card. */
typedef struct cellc_facts {
  int multiprocessors;
  int64_t shared_per_block; /* bytes, where a kernel opts in */
  int64_t shared_per_multiprocessor;
  int64_t memory_bytes;
  int64_t l2_bytes; /* 0: not known */
  int clusters;     /* whether launches may have clusters of blocks */
} cellc_facts;

typedef struct cellc_entry {
  int symbol, entry; /* of the symbol's own entries, those along no channel */
} cellc_entry;

/* A stage whose lanes are compiled (Step and Carried of lanes.cuh). */
typedef struct cellc_stage {
  int symbols, channels;    /* symbols of the lane cell, states first; channel axes */
  const int* channel_axes;  /* by channel: header axis */
  const int* places;        /* by symbol: the first of its places below; then one past the last */
  const int* place_channel; /* by place: channel, or -1 */
  const int* place_axis;    /* by place: header axis */
  const int* is_param;      /* by symbol */
  int step_states, step_inputs, step_params;
  int carried_states, carried_inputs, carried_params;
  const cellc_entry* entries; /* of those six lists, one after another */
  int map_numbers;            /* that tell a map over any number of steps */
  int has_carriers, scans;
  int warps, stage_steps; /* of a block; that a warp stages at once */
  int storage_bytes, real_bytes;
} cellc_stage;

enum { CELLC_SEQUENTIAL, CELLC_SEGMENTED, CELLC_SCAN };
enum { CELLC_EACH, CELLC_ROWS, CELLC_TIME }; /* ScanCopy of scan_piece.cuh */

/* How a stage is to be run. */
typedef struct cellc_plan {
  int strategy; /* CELLC_SEQUENTIAL, _SEGMENTED, or _SCAN where that is possible */
  int64_t segment, burn_in;
  int learns, carries, rounds, fixed, eager, repairs;
  int64_t piece; /* steps that a block of a scan takes at most; 0: as many as suit the card */
} cellc_plan;

/* A kernel among those that a stage may have. */
typedef struct cellc_variant {
  int kernel, rows, lockstep, width;
  int copy, channels, steps, warps,
      blocks; /* of a scan: of a block, a thread, a block; blocks of a multiprocessor */
  int buffers,
      forward; /* of a scan: pieces that a block holds at once (scan_stream.cuh), 0: one; time runs forward */
  int cluster, whole; /* of a scan: blocks that have a sequence's pieces together (scan_cluster.cuh), 0: they are drawn;
                         whether all those are of one length and all groups of channels full */
  int shared_bytes;
} cellc_variant;

typedef struct cellc_view {
  uint64_t data;
  int64_t batch, row; /* entries from sequence to sequence and from step to step */
} cellc_view;

typedef struct cellc_stage_run {
  const int64_t* lengths;  /* by header axis */
  const cellc_view* views; /* by symbol */
  const int64_t* strides;  /* by place, entries; null: row-major without gaps */
  const uint64_t* starts;  /* by state: [sequences, a...] */
  const uint64_t* finals;
  int64_t sequences, length; /* length: of the longest sequence */
  int uniform, reverse;
  uint64_t offsets; /* where sequences are packed, else 0 */
} cellc_stage_run;

/* Channel axes that are left where those are merged that every array has as one. */
typedef struct cellc_lane_axes {
  int64_t channels;
  int axes;
  int64_t size[CELLC_CHANNEL_AXES];
  int channel[CELLC_CHANNEL_AXES]; /* whose strides it has */
} cellc_lane_axes;

/* Scratch memory of a stage, in bytes, and then where it is. */
typedef struct cellc_scratch {
  uint64_t control, sent, off, states, bad; /* of segments */
  uint64_t words;                           /* of a scan; its control is `control` */
} cellc_scratch;

typedef struct cellc_grid {
  unsigned blocks, threads;
  int cooperative;
  int cyclic;       /* Segmented of segments.cuh */
  unsigned cluster; /* blocks that are resident together; 0: none are */
} cellc_grid;

static inline int64_t cellc_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t cellc_most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t cellc_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Shapes ------------------------------------------------------------------------------------------------- */

static inline int64_t cellc_place_stride(const cellc_stage* stage, const cellc_stage_run* run, int symbol,
                                         int place) {
  int p;
  int64_t stride = 1;
  if (run->strides) return run->strides[place];
  for (p = stage->places[symbol + 1] - 1; p > place; --p) stride *= run->lengths[stage->place_axis[p]];
  return stride;
}

static inline int64_t cellc_channel_stride(const cellc_stage* stage, const cellc_stage_run* run, int symbol,
                                           int channel) {
  int p;
  int64_t stride = 0;
  for (p = stage->places[symbol]; p < stage->places[symbol + 1]; ++p)
    if (stage->place_channel[p] == channel) stride += cellc_place_stride(stage, run, symbol, p);
  return stride;
}

/* Where an entry lies beside the lane's own place. */
static inline int64_t cellc_entry_offset(const cellc_stage* stage, const cellc_stage_run* run,
                                         cellc_entry e) {
  int p;
  int64_t rest = e.entry, offset = 0;
  for (p = stage->places[e.symbol + 1] - 1; p >= stage->places[e.symbol]; --p) {
    const int64_t length = run->lengths[stage->place_axis[p]];
    if (stage->place_channel[p] >= 0 || length == 0) continue;
    offset += rest % length * cellc_place_stride(stage, run, e.symbol, p);
    rest /= length;
  }
  return offset;
}

static inline int64_t cellc_row_entries(const cellc_stage* stage, const int64_t* lengths, int symbol) {
  int p;
  int64_t n = 1;
  for (p = stage->places[symbol]; p < stage->places[symbol + 1]; ++p) n *= lengths[stage->place_axis[p]];
  return n;
}

/* Channels that are not 1 long: more than CELLC_CHANNEL_AXES of them cannot be run. */
static inline int cellc_long_channels(const cellc_stage* stage, const int64_t* lengths) {
  int c, n = 0;
  for (c = 0; c < stage->channels; ++c) n += lengths[stage->channel_axes[c]] != 1;
  return n;
}

static inline cellc_lane_axes cellc_merge_axes(const cellc_stage* stage, const cellc_stage_run* run) {
  cellc_lane_axes result;
  int c, s, a;
  memset(&result, 0, sizeof result);
  result.channels = 1;
  for (c = 0; c < stage->channels; ++c) result.channels *= run->lengths[stage->channel_axes[c]];
  /* From the innermost on: an axis joins the one inside it where all arrays step over both as over one. */
  for (c = stage->channels - 1; c >= 0; --c) {
    const int64_t length = run->lengths[stage->channel_axes[c]];
    int joins = result.axes > 0;
    if (length == 1) continue;
    for (s = 0; s < stage->symbols && joins; ++s)
      joins = cellc_channel_stride(stage, run, s, c) ==
              cellc_channel_stride(stage, run, s, result.channel[0]) * result.size[0];
    if (joins) {
      result.size[0] *= length;
    } else if (result.axes < CELLC_CHANNEL_AXES) {
      for (a = result.axes++; a > 0; --a)
        result.size[a] = result.size[a - 1], result.channel[a] = result.channel[a - 1];
      result.size[0] = length;
      result.channel[0] = c;
    }
  }
  return result;
}

/* From a channel to its neighbour, of one axis; 0 where the array has no channels. */
static inline int64_t cellc_inner_stride(const cellc_stage* stage, const cellc_stage_run* run,
                                         const cellc_lane_axes* axes, int symbol) {
  return axes->axes ? cellc_channel_stride(stage, run, symbol, axes->channel[axes->axes - 1]) : 0;
}

/* Which kernel ------------------------------------------------------------------------------------------- */

/* What scan_piece.cuh holds of inputs, by warp: slots, and entries that keep parts apart. */
static inline int64_t cellc_scan_slots(const cellc_stage* stage, const cellc_variant* v) {
  return cellc_most(cellc_most(1, stage->step_inputs), v->channels < CELLC_WARP ? stage->step_states : 0);
}
static inline int64_t cellc_slot_bytes(const cellc_stage* stage, const cellc_variant* v, int64_t steps) {
  const int64_t size = stage->storage_bytes, parts = CELLC_WARP / v->channels;
  const int64_t pad = parts == 1 || v->channels < 16 / size ? 0 : v->channels;
  return parts * (steps * v->channels + pad) * size;
}

/* How many steps and warps a block of a scan has for its loader and channels; 0 where none would fit. */
static inline int cellc_scan_block(const cellc_stage* stage, const cellc_facts* facts, int64_t piece,
                                   cellc_variant* v) {
  enum { WARPS = 8, STEPS = 32 }; /* docs/notes/device-scan.md */
  const int64_t real = stage->real_bytes, parts = CELLC_WARP / v->channels;
  int blocks;
  int64_t room, bytes;
  /* scan_shared_bytes of scan_piece.cuh. */
#define CELLC_SCAN_BYTES                                                           \
  (v->warps * (cellc_scan_slots(stage, v) * cellc_slot_bytes(stage, v, v->steps) + \
               v->channels * (2 * stage->map_numbers * real + 4)) +                \
   v->channels * stage->step_states * real + 8)
#define CELLC_SCAN_PIECE ((int64_t)v->warps * parts * v->steps)
  /* What a thread keeps in registers says how many blocks a multiprocessor holds without spilling. */
  blocks = stage->map_numbers * real <= 16 ? 3 : stage->map_numbers * real <= 64 ? 2 : 1;
  room = cellc_least(facts->shared_per_multiprocessor / blocks - 1024, facts->shared_per_block);
  v->buffers = 0;
  v->warps = WARPS;
  v->steps = STEPS;
  while (v->steps > 8 && CELLC_SCAN_BYTES > room) v->steps -= 8;
  while (v->warps > 1 && (CELLC_SCAN_BYTES > room || (piece > 0 && CELLC_SCAN_PIECE > piece))) v->warps /= 2;
  while (v->steps > 8 && piece > 0 && CELLC_SCAN_PIECE > piece) v->steps -= 8;
  bytes = CELLC_SCAN_BYTES;
#undef CELLC_SCAN_BYTES
#undef CELLC_SCAN_PIECE
  if (bytes > facts->shared_per_block) return 0;
  v->blocks = blocks * WARPS / v->warps;
  v->shared_bytes = (int)bytes;
  return 1;
}

/* The same where the pieces of few channels stream through a block; 0 where that does not suit the stage.
 * Pieces are as long as two blocks of a multiprocessor can hold three of each: the longer, the fewer wait for
 * each other. */
static inline int cellc_stream_block(const cellc_stage* stage, const cellc_facts* facts, cellc_variant* v) {
  enum {
    WARPS = 7,
    BUFFERS = 3,
    CHANNELS = 8,
    MAP = 32
  }; /* MAP: bytes of a map that a thread holds several of */
  const int64_t size = stage->storage_bytes, real = stage->real_bytes;
  const int64_t room = cellc_least(facts->shared_per_multiprocessor / 2 - 1024, facts->shared_per_block);
  int64_t bytes = 0;
  int chunks;
  if (v->channels > CHANNELS || stage->map_numbers * real > MAP) return 0;
  /* Along time a thread's part is an odd number of 16 bytes, so that no two threads of a warp read from one
   * bank. */
  for (chunks = 13; chunks >= 5; chunks -= 2) {
    v->steps = v->copy == CELLC_TIME ? chunks * 16 / (int)(size * v->channels) : 8 * ((chunks - 1) / 2);
    for (v->warps = WARPS;; --v->warps) { /* stream_shared_bytes of scan_stream.cuh */
      bytes = 320 +
              v->warps * (BUFFERS * (cellc_scan_slots(stage, v) * cellc_slot_bytes(stage, v, v->steps) + 8) +
                          v->channels * 2 * stage->map_numbers * real) +
              v->channels * stage->step_states * real;
      if (v->warps == 1 || bytes <= room) break;
    }
    if (v->warps == WARPS) break;
  }
  if (v->warps == 1) return 0;
  v->buffers = BUFFERS;
  v->blocks = 2;
  v->shared_bytes = (int)bytes;
  return 1;
}

static inline int64_t cellc_scan_piece(const cellc_variant* v);

/* The same where all pieces of a sequence are on the card at once, in the registers of one cluster of blocks; 0 where they do
 * not fit. The fewer steps a thread has, the more threads load at the same time. */
static inline int cellc_cluster_block(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                      const cellc_lane_axes* axes, cellc_variant* v) {
  enum { WARPS = 4, CLUSTER = 16, STEPS = 32, NUMBERS = 64, REGISTERS = 65536, OTHERS = 24, MAP = 32 };
  const int64_t words = stage->real_bytes / 4, chains = cellc_divide_up(axes->channels, v->channels) * run->sequences;
  int more; /* steps of a thread, and then twice the threads */
  if (!facts->clusters || stage->map_numbers * stage->real_bytes > MAP) return 0;
  for (more = 8; more <= 2 * STEPS; more *= 2) {
    int64_t piece, numbers, registers;
    v->steps = more < STEPS ? more : STEPS;
    v->warps = more <= STEPS ? WARPS : 2 * WARPS;
    piece = cellc_scan_piece(v);
    numbers = v->steps * cellc_most(1, stage->step_inputs) * words;
    registers = (numbers + OTHERS + 4 * stage->map_numbers * words + 7) / 8 * 8;
    if (numbers > NUMBERS) return 0;
    if (piece * CLUSTER < run->length) continue;
    for (v->cluster = 1; piece * v->cluster < run->length; v->cluster *= 2) {
    }
    v->blocks = (int)(REGISTERS / (registers * v->warps * CELLC_WARP));
    v->whole = run->uniform && run->length % piece == 0 && axes->channels % v->channels == 0;
    /* cluster_shared_bytes of scan_cluster.cuh. */
    v->shared_bytes = (int)(16 + (v->warps + v->cluster) * stage->map_numbers * v->channels * stage->real_bytes);
    /* The blocks of a cluster share a part of the card, so that not all places are taken. */
    if (8 * chains * v->cluster <= 7 * (int64_t)v->blocks * facts->multiprocessors) return 1;
  }
  return 0;
}

/* Blocks of a stream that carry states from piece to piece, of a channel of a chain each. */
static inline int64_t cellc_stream_carriers(int64_t chains, const cellc_variant* v) {
  return chains * v->channels;
}

/* Which loader and how many channels a block of a scan has, and from them the rest; 0 where no block would
 * fit. */
static inline int cellc_scan_variant(const cellc_stage* stage, const cellc_facts* facts,
                                     const cellc_stage_run* run, const cellc_lane_axes* axes, int64_t piece,
                                     cellc_variant* v) {
  enum { STREAM_ROUNDS = 10 }; /* pieces of a multiprocessor from which a stream pays */
  const int64_t size = stage->storage_bytes, channels = axes->channels;
  int64_t chains;
  /* Rows of neighbours in memory, 16 bytes at a time; or steps that are, where all inputs are aligned alike.
   */
  int rows = axes->axes <= 1, time = stage->step_inputs > 0, most = 1, i, a;
  int span = time && rows && (channels & (channels - 1)) == 0 && channels * size < 16;
  const cellc_entry* inputs = stage->entries + stage->step_states;
  int64_t aligned[2 + CELLC_CHANNEL_AXES]; /* places modulo 16 bytes that all inputs must share */
  int near = axes->axes <= 1; /* whether channels are neighbours in memory */
  cellc_variant stream, cluster;
  for (i = 0; i < stage->step_inputs; ++i) {
    const cellc_view* view = run->views + inputs[i].symbol;
    const int64_t entry = cellc_entry_offset(stage, run, inputs[i]);
    const int inner = channels == 1 || cellc_inner_stride(stage, run, axes, inputs[i].symbol) == 1;
    int64_t at[2 + CELLC_CHANNEL_AXES];
    near = near && inner;
    rows = rows && inner && view->data % 16 == 0 && view->row * size % 16 == 0 &&
           view->batch * size % 16 == 0 && entry * size % 16 == 0;
    at[0] = (int64_t)(view->data % 16) + entry * size;
    at[1] = view->batch * size;
    time = time && view->row == 1;
    /* Neighbours in memory as if steps and channels were one axis. */
    span = span && view->row == channels && inner && at[0] % (channels * size) == 0 &&
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
  v->channels = most;
  while (rows && channels % v->channels != 0) v->channels /= 2;
  if (time || span) {
    v->copy = CELLC_TIME;
    v->channels = time ? 1 : most;
  } else if (rows && v->channels * size >= 16) {
    v->copy = CELLC_ROWS;
  } else {
    v->copy = CELLC_EACH;
    v->channels = most;
  }
  cluster = stream = *v;
  chains = cellc_divide_up(channels, v->channels) * run->sequences;
  /* Sectors of memory are 32 bytes. */
  if (piece == 0 && near && v->copy != CELLC_TIME && v->channels * size >= 32 &&
      cellc_cluster_block(stage, facts, run, axes, &cluster)) {
    *v = cluster;
    return 1;
  }
  /* Fewer pieces end sooner without the run-up of a stream. */
  if (piece == 0 && cellc_stream_block(stage, facts, &stream) &&
      run->length / cellc_scan_piece(&stream) * chains >= STREAM_ROUNDS * (int64_t)facts->multiprocessors &&
      cellc_stream_carriers(chains, &stream) <= 1 + facts->multiprocessors / 16) {
    *v = stream;
    return 1;
  }
  return cellc_scan_block(stage, facts, piece, v);
}

/* Steps of a piece, which is what one block takes. */
static inline int64_t cellc_scan_piece(const cellc_variant* v) {
  return (int64_t)v->warps * (CELLC_WARP / v->channels) * v->steps;
}

static inline int64_t cellc_segments(const cellc_stage_run* run, const cellc_plan* plan) {
  return plan->strategy != CELLC_SEQUENTIAL && plan->segment > 0 && run->length > 0
             ? cellc_divide_up(run->length, plan->segment)
             : 0;
}

/* Which walk: `whole` says that channels are neighbours in every array and rows aligned; segments 0: none. */
static inline cellc_variant cellc_walk_variant(const cellc_stage* stage, const cellc_facts* facts, int whole,
                                               int uniform, int64_t chains, int64_t channels,
                                               int64_t segments) {
  cellc_variant v;
  /* Two channels a thread make whole lines of memory of a warp's rows and halve the instructions, where there
   * are lanes enough for a warp on every scheduler. */
  const int plenty = chains * cellc_most(1, segments) >= 2 * 128 * (int64_t)facts->multiprocessors * 9 / 10;
  int64_t tile, tiles, blocks, inputs;
  memset(&v, 0, sizeof v);
  v.kernel = segments ? CELLC_SEGMENTED : CELLC_SEQUENTIAL;
  v.width = stage->storage_bytes == 2 && whole && plenty && channels % (2 * CELLC_WARP) == 0 ? 2 : 1;
  tile = CELLC_WARP * v.width;
  tiles = cellc_divide_up(chains * cellc_most(1, segments), tile);
  blocks = cellc_divide_up(tiles, stage->warps);
  v.rows = whole && channels % tile == 0;
  /* The warps of a block stay together where they walk one row to its end and memory is the limit. */
  v.lockstep =
      !segments && v.rows && uniform && tiles % stage->warps == 0 && blocks >= 3 * facts->multiprocessors / 2;
  inputs = cellc_most(1, stage->step_inputs);
  if (segments) inputs = cellc_most(inputs, stage->carried_inputs);
  v.shared_bytes = (int)(stage->warps * CELLC_STAGES_AHEAD * stage->stage_steps * inputs * CELLC_WARP *
                         v.width * stage->storage_bytes);
  return v;
}

/* The kernel that a run takes. */
static inline cellc_variant cellc_choose_variant(const cellc_stage* stage, const cellc_facts* facts,
                                                 const cellc_stage_run* run, const cellc_lane_axes* axes,
                                                 const cellc_plan* plan) {
  const int64_t size = stage->storage_bytes, chains = run->sequences * axes->channels;
  int neighbours = axes->axes <= 1, aligned = 1, i, n;
  cellc_variant v;
  /* Tickets of a scan are numbers of 32 bits. */
  if (plan->strategy == CELLC_SCAN && stage->scans && run->length > 0 &&
      cellc_scan_variant(stage, facts, run, axes, plan->piece, &v) &&
      chains * (run->length / cellc_scan_piece(&v) + 2) < (int64_t)1 << 31)
    return v;
  /* Rows of neighbouring channels, sixteen bytes at a time, where every array's memory allows it. */
  for (i = 0; i < stage->step_states + stage->step_inputs; ++i) {
    const int symbol = stage->entries[i].symbol;
    const cellc_view* view = run->views + symbol;
    cellc_entry e;
    int64_t own = 1;
    neighbours = neighbours && (axes->channels == 1 || cellc_inner_stride(stage, run, axes, symbol) == 1);
    aligned = aligned && view->data % 16 == 0 && view->row * size % 16 == 0 && view->batch * size % 16 == 0;
    for (n = stage->places[symbol]; n < stage->places[symbol + 1]; ++n)
      if (stage->place_channel[n] < 0) own *= run->lengths[stage->place_axis[n]];
    e.symbol = symbol;
    for (e.entry = 0; e.entry < own && aligned; ++e.entry)
      aligned = cellc_entry_offset(stage, run, e) * size % 16 == 0;
  }
  return cellc_walk_variant(stage, facts, neighbours && aligned, run->uniform, chains,
                            axes->channels, cellc_segments(run, plan));
}

/* The launch --------------------------------------------------------------------------------------------- */

/* Pieces of a sequence that a scan cuts it into, and groups of its channels. */
static inline int64_t cellc_scan_pieces(const cellc_stage* stage, const cellc_stage_run* run,
                                        const cellc_variant* v) {
  /* Along time the first piece begins at a multiple of 16 bytes, before step 0. */
  const int64_t early = v->copy == CELLC_TIME ? 16 / ((int64_t)stage->storage_bytes * v->channels) - 1 : 0;
  return cellc_divide_up(run->length + early, cellc_scan_piece(v));
}
static inline int64_t cellc_scan_chains(const cellc_stage_run* run, const cellc_lane_axes* axes,
                                        const cellc_variant* v) {
  return run->sequences * cellc_divide_up(axes->channels, v->channels);
}

/* Bytes of each part. control, sent and words begin as zeros, together; what they hold afterwards serves the
 * next run. */
static inline cellc_scratch cellc_scratch_bytes(const cellc_stage* stage, const cellc_stage_run* run,
                                                const cellc_lane_axes* axes, const cellc_plan* plan,
                                                const cellc_variant* v, int64_t control_bytes) {
  cellc_scratch s;
  memset(&s, 0, sizeof s);
  if (v->kernel == CELLC_SCAN) {
    const int64_t halves = stage->real_bytes / 4, words = (stage->step_states + stage->map_numbers) * halves;
    s.control = 16;
    if (v->cluster) return s;
    s.words = (uint64_t)(cellc_scan_chains(run, axes, v) * cellc_scan_pieces(stage, run, v) * words *
                         v->channels * 8);
  } else if (v->kernel == CELLC_SEGMENTED) {
    const int64_t count = run->sequences * axes->channels * cellc_segments(run, plan);
    const int64_t carriers = stage->carried_states - stage->step_states;
    /* Of one state and its carrier more runs than the last are kept: Runs of segments.cuh. */
    const int64_t entries = 3 * stage->step_states + carriers + (stage->step_states == 1 && carriers == 1 ? 12 : 0);
    s.control = (uint64_t)control_bytes;
    s.sent = (uint64_t)(stage->step_states * (count * stage->real_bytes / 4) * 8);
    s.off = (uint64_t)(count * 4);
    s.states = (uint64_t)(entries * count * stage->real_bytes);
    if (!plan->repairs) s.bad = (uint64_t)(run->sequences * 12);
  }
  return s;
}

/* One more warp draws the tickets of a stream. */
static inline int cellc_stage_threads(const cellc_stage* stage, const cellc_variant* v) {
  return (v->kernel == CELLC_SCAN ? v->warps + (v->buffers > 0) : stage->warps) * CELLC_WARP;
}

/* Whether a run reads and writes a little more than the second-level cache holds. If every line is treated alike, each has
 * been replaced by the time that the next run, or whoever comes after what has written the inputs, asks for it; with half as
 * much again, a third of them could be there. On an H200 (8, 512, 1024) and (1, 65536, 64) take 5 and 6 % less time; twice as
 * much (134 MB) takes 5 % more. */
static inline int cellc_is_cyclic(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                  const cellc_lane_axes* axes) {
  const double bytes = (double)run->sequences * (double)run->length * (double)axes->channels *
                       (stage->step_inputs + stage->step_states) * stage->storage_bytes;
  return 2 * bytes > (double)facts->l2_bytes && 2 * bytes < 3 * (double)facts->l2_bytes;
}

/* `resident`: blocks of the kernel that a multiprocessor holds. */
static inline cellc_grid cellc_stage_grid(const cellc_stage* stage, const cellc_facts* facts,
                                          const cellc_stage_run* run, const cellc_lane_axes* axes,
                                          const cellc_plan* plan, const cellc_variant* v, int resident) {
  const int64_t at_once = (int64_t)(resident > 0 ? resident : 1) * facts->multiprocessors;
  cellc_grid grid;
  memset(&grid, 0, sizeof grid);
  grid.threads = (unsigned)cellc_stage_threads(stage, v);
  if (v->kernel == CELLC_SCAN) {
    const int64_t chains = cellc_scan_chains(run, axes, v), pieces = chains * cellc_scan_pieces(stage, run, v);
    const int64_t carriers = v->buffers ? cellc_stream_carriers(chains, v) : 0;
    if (v->cluster) {
      grid.blocks = (unsigned)(chains * v->cluster);
      grid.cluster = (unsigned)v->cluster;
      return grid;
    }
    grid.blocks = (unsigned)cellc_most(carriers + 1, cellc_least(carriers + pieces, at_once));
    grid.cooperative = carriers > 0;
  } else {
    const int64_t count = run->sequences * axes->channels * cellc_most(1, cellc_segments(run, plan));
    const int64_t blocks = cellc_divide_up(cellc_divide_up(count, CELLC_WARP * v->width), stage->warps);
    grid.blocks = (unsigned)blocks;
    if (v->kernel == CELLC_SEGMENTED) {
      /* All blocks at once: they wait for each other. */
      grid.blocks = (unsigned)cellc_least(blocks, at_once);
      grid.cooperative = 1;
      grid.cyclic = cellc_is_cyclic(stage, facts, run, axes);
    }
  }
  return grid;
}

/* A kernel's argument, field after field, with the padding that C++ puts between them. */
typedef struct cellc_argument {
  unsigned char* bytes;
  size_t size;
} cellc_argument;
static inline void cellc_put(cellc_argument* a, const void* value, size_t size) {
  while (a->size % size) a->bytes[a->size++] = 0;
  memcpy(a->bytes + a->size, value, size);
  a->size += size;
}
static inline void cellc_put64(cellc_argument* a, int64_t value) { cellc_put(a, &value, 8); }
static inline void cellc_put32(cellc_argument* a, int64_t value) {
  const int32_t number = (int32_t)value;
  cellc_put(a, &number, 4);
}
static inline void cellc_end(cellc_argument* a) {
  while (a->size % 8) a->bytes[a->size++] = 0;
}

/* The argument of the kernel (Lanes, Segmented or Scan), in room that is enough for it; its size. */
static inline size_t cellc_stage_argument(const cellc_stage* stage, const cellc_stage_run* run,
                                          const cellc_lane_axes* axes, const cellc_plan* plan,
                                          const cellc_variant* v, const cellc_scratch* at, cellc_grid grid,
                                          double tolerance, void* room) {
  const int64_t segments = v->kernel == CELLC_SEGMENTED ? cellc_segments(run, plan) : 0;
  const cellc_entry* e = stage->entries;
  cellc_argument out;
  int s, a, list, i;
  const int lists[6] = {stage->step_states,    stage->step_inputs,    stage->step_params,
                        stage->carried_states, stage->carried_inputs, stage->carried_params};
  out.bytes = (unsigned char*)room;
  out.size = 0;
  for (s = 0; s < stage->symbols; ++s) {
    cellc_put64(&out, (int64_t)run->views[s].data);
    cellc_put64(&out, stage->is_param[s] ? 0 : run->views[s].batch);
    cellc_put64(&out, stage->is_param[s] ? 0 : run->views[s].row);
    for (a = 0; a < CELLC_CHANNEL_AXES; ++a)
      cellc_put64(&out, a < axes->axes ? cellc_channel_stride(stage, run, s, axes->channel[a]) : 0);
  }
  /* Starts and finals lie row-major without gaps, whatever the rows do. */
  for (i = 0; i < stage->step_states; ++i) cellc_put64(&out, (int64_t)run->starts[e[i].symbol]);
  for (i = 0; i < stage->step_states; ++i) cellc_put64(&out, (int64_t)run->finals[e[i].symbol]);
  for (i = 0; i < stage->step_states; ++i)
    cellc_put64(&out, cellc_row_entries(stage, run->lengths, e[i].symbol));
  for (list = 0; list < 6; ++list) {
    for (i = 0; i < lists[list]; ++i, ++e)
      cellc_put32(&out, e->symbol < stage->symbols ? cellc_entry_offset(stage, run, *e) : 0);
    if (lists[list] == 0) cellc_put32(&out, 0);
  }
  cellc_put64(&out, axes->channels);
  cellc_put32(&out, axes->axes);
  for (a = 0; a < CELLC_CHANNEL_AXES; ++a) cellc_put32(&out, a < axes->axes ? axes->size[a] : 1);
  cellc_put32(&out, run->sequences);
  cellc_put64(&out, run->length);
  cellc_put64(&out, (int64_t)run->offsets);
  cellc_put32(&out, run->reverse);
  cellc_put64(&out, segments ? plan->segment : cellc_most(1, run->length));
  cellc_put32(&out, segments ? segments : 1);
  cellc_end(&out);
  if (v->kernel == CELLC_SCAN) {
    const int64_t chains = cellc_scan_chains(run, axes, v);
    cellc_put64(&out, (int64_t)at->control);
    cellc_put64(&out, (int64_t)at->words);
    cellc_put32(&out, cellc_scan_pieces(stage, run, v));
    cellc_put32(&out, cellc_divide_up(axes->channels, v->channels));
    cellc_put32(&out, v->buffers ? cellc_stream_carriers(chains, v) : 0);
    cellc_put32(&out, grid.blocks / chains + 1);
    cellc_end(&out);
  } else if (v->kernel == CELLC_SEGMENTED) {
    const int64_t lanes = run->sequences * axes->channels * segments;
    cellc_put64(&out, (int64_t)at->control);
    cellc_put64(&out, (int64_t)at->sent);
    cellc_put64(&out, (int64_t)at->off);
    for (i = 0; i < 4; ++i)
      cellc_put64(&out, (int64_t)at->states + i * stage->step_states * lanes * stage->real_bytes);
    cellc_put64(&out, (int64_t)at->states +
                          (2 * stage->step_states + stage->carried_states) * lanes * stage->real_bytes);
    if (stage->real_bytes == 8) {
      cellc_put(&out, &tolerance, 8);
    } else {
      const float narrow = (float)tolerance;
      cellc_put(&out, &narrow, 4);
    }
    cellc_put32(&out, plan->burn_in);
    cellc_put32(&out, plan->rounds);
    cellc_put32(&out, plan->fixed);
    cellc_put32(&out, plan->eager);
    cellc_put32(&out, plan->repairs);
    cellc_put64(&out, (int64_t)at->bad);
    cellc_put64(&out, (int64_t)at->bad + run->sequences * 8);
    cellc_put32(&out, plan->learns ? -1 : plan->carries ? 1 : 0);
    cellc_put32(&out, grid.cyclic);
    cellc_end(&out);
  }
  return out.size;
}

#endif
