/* A stage whose lanes are compiled, a run of it and a card, as host_scan.h and host_lanes.h read them. One text for
 * runs of our own (runtime/cuda/launch/stage_program.cc) and for code that is shipped, where the build puts it as it
 * stands: so it is C99 that C++ compiles too, it allocates nothing and keeps nothing. */
#ifndef CELLC_HOST_STAGE
#define CELLC_HOST_STAGE

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

/* Nothing is promised of a gradient step by step, and what flows back passes zero again and again. Where composed maps
 * round by more than a tolerance beside such rows, a walk of them makes no gradient better: of h' = a*h + x, a of -2 to
 * 2, 391 of a million starts are off by more than one tolerance of 1e-6, 5 by more than 8, none by more than 30. A scan
 * that is off by orders of magnitude is still found. */
enum { CELLC_GRADIENT_SLACK = 16 };

/* A stage whose lanes are compiled (Step and StepWithTransition of lanes.cuh). */
typedef struct cellc_stage {
  int symbols, channels;    /* symbols of the lane cell, states first; channel axes */
  const int* channel_axes;  /* by channel: header axis */
  const int* places;        /* by symbol: the first of its places below; then one past the last */
  const int* place_channel; /* by place: channel, or -1 */
  const int* place_axis;    /* by place: header axis */
  const int* is_param;      /* by symbol */
  int step_states, step_inputs, step_params;
  int transition_states, transition_inputs, transition_params;
  const cellc_entry* entries; /* of those six lists, one after another */
  int map_numbers;            /* that tell a map over any number of steps */
  int has_transition, scans;
  int warps, stage_steps; /* of a block; that a warp stages at once */
  int storage_bytes, real_bytes;
  int sums, summed;        /* the last of its states are terms of sums over so many innermost channels (sums.cuh) */
  int bases;               /* before the terms as many of what a sum begins with, where sums are outs; else 0 */
  int repeats;             /* the same bits in every run, and nothing learned */
  int outs, accumulated;   /* others of the last are outs, which nobody reads; behind those, outs that are added up */
  int outer, outer_summed; /* the last of its sums run along so many outermost channels instead (outer_sums.cuh) */
  int outs_read_states;    /* some of them read a state as it was before the step (fused_outs.h) */
  int scan_slack; /* a scan's starts may be off by so many tolerances: CELLC_GRADIENT_SLACK of gradients, else 1 */
  int for_run;    /* kernels are compiled for the run that asks: variants may be of its lengths alone */
  int two_passes; /* of sums: lanes have the map over a segment, too, and walk segments twice (two_passes.cuh) */
} cellc_stage;

/* States that a step hands on to the next one, and those that are written at every step; the others follow. */
static inline int cellc_carried_states(const cellc_stage* stage) {
  return stage->step_states - stage->sums - stage->bases - stage->outs - stage->accumulated;
}
static inline int cellc_row_states(const cellc_stage* stage) {
  return stage->step_states - stage->sums - stage->bases - stage->accumulated;
}

enum { CELLC_SEQUENTIAL, CELLC_SEGMENTED, CELLC_SCAN };
enum { CELLC_PASS_ENDS = 1, CELLC_PASS_SUMS, CELLC_PASS_AGAIN }; /* kernels of two_passes.cuh, in their order */
enum { CELLC_EACH, CELLC_CONTIGUOUS, CELLC_TIME };               /* ScanCopy of scan_tile.cuh */

/* How a stage is to be run. */
typedef struct cellc_plan {
  int strategy; /* CELLC_SEQUENTIAL, _SEGMENTED, or _SCAN where that is possible */
  int64_t segment, burn_in;
  int learns, measures_slope, rounds, fixed, eager, repairs;
  int checks;     /* a scan looks at the starts that composed maps give (scan_repair.cuh) */
  int64_t tile;   /* steps that a block of a scan takes at most; 0: as many as suit the card */
  int two_passes; /* a scan over segments, in which lanes make sums (two_passes.cuh) */
} cellc_plan;

/* A kernel among those that a stage may have. */
typedef struct cellc_variant {
  int kernel, rows, lockstep, width;
  int copy, channels, steps, warps, blocks; /* of a scan: of a block, a thread, a block; blocks of a multiprocessor. Of
                                               a walk: steps that a warp stages at once */
  int buffers, carry_channels, forward;     /* of a scan: tiles that a block holds at once (scan_stream.cuh), 0: one;
                                        channels of     a transition; time runs forward */
  int cluster, whole; /* of a scan: blocks that have a sequence's tiles together (scan_cluster.cuh), 0: they are drawn;
                         whether all those are of one length and all groups of channels full */
  int checks;         /* of a scan: cellc_plan's */
  int shared_bytes;
  int sum_lanes; /* of a walk: lanes of a warp that a sum runs along */
  int broadcast; /* of a walk with sums and two lanes a thread: inputs, as bits, that have one number for both */
  int rewalks;   /* a walk of what a scan has marked (scan_rewalk.cuh) */
  int shifted;   /* inputs, as bits, whose row a step reads one step later (cellc_view) */
  int columns;   /* of a walk with sums: entries of each input in a step's memory (columns_of of sweep.cuh) */
  int kept;      /* of a walk with outer sums: entries of each of them */
  int unwritten; /* of a walk with sums, compiled for the run: nobody wants the rows of states */
  int pass;      /* of a walk of segments in two passes: which of CELLC_PASS_*; else 0 */
} cellc_variant;

typedef struct cellc_view {
  uint64_t data;
  int64_t batch, row; /* entries from sequence to sequence and from step to step */
  uint64_t last; /* not 0: step t reads the row of step t + 1, and the last one reads this, [sequences, a...]: what an
                    adjoint, whose time runs backwards, reads of the state before each step */
} cellc_view;

typedef struct cellc_stage_run {
  const int64_t* lengths;  /* by header axis */
  const cellc_view* views; /* by symbol */
  const int64_t* strides;  /* by place, entries; null: row-major without gaps */
  const uint64_t* starts;  /* by state: [sequences, a...] */
  const uint64_t* finals;
  int64_t sequences, length; /* length: of the longest sequence */
  int uniform, reverse;
  uint64_t offsets;   /* where sequences are packed, else 0 */
  int64_t part;       /* entries of a sum from one of its parts to the next; of a walk after a scan: parts a sequence */
  int64_t outer_part; /* the same of a sum over the outermost channels */
  const cellc_variant* scanned; /* by what scan, of a walk of what it has marked; else null */
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
  uint64_t words, marks;                    /* of a scan; its control is `control`; marks of one that checks */
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

static inline int64_t cellc_place_stride(const cellc_stage* stage, const cellc_stage_run* run, int symbol, int place) {
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
static inline int64_t cellc_entry_offset(const cellc_stage* stage, const cellc_stage_run* run, cellc_entry e) {
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

/* Whether the numbers of 32 bits that tell kernels where a lane's entries and channels lie are enough for them. */
static inline int cellc_fits_lanes(const cellc_stage* stage, const int64_t* lengths) {
  cellc_stage_run run;
  const int lists = stage->step_states + stage->step_inputs + stage->step_params + stage->transition_states +
                    stage->transition_inputs + stage->transition_params;
  int i;
  memset(&run, 0, sizeof run);
  run.lengths = lengths;
  for (i = 0; i < stage->channels; ++i)
    if (stage->channels > 1 && lengths[stage->channel_axes[i]] > INT32_MAX) return 0;
  for (i = 0; i < lists; ++i)
    if (stage->entries[i].symbol < stage->symbols && cellc_entry_offset(stage, &run, stage->entries[i]) > INT32_MAX)
      return 0;
  return 1;
}

static inline int64_t cellc_row_entries(const cellc_stage* stage, const int64_t* lengths, int symbol) {
  int p;
  int64_t n = 1;
  for (p = stage->places[symbol]; p < stage->places[symbol + 1]; ++p) n *= lengths[stage->place_axis[p]];
  return n;
}

/* Channels that a sum of the stage runs along. */
static inline int64_t cellc_summed_channels(const cellc_stage* stage, const int64_t* lengths) {
  int c;
  int64_t n = 1;
  for (c = stage->channels - stage->summed; c < stage->channels; ++c) {
    const int64_t length = lengths[stage->channel_axes[c]];
    n = length > INT32_MAX / cellc_most(1, n) ? INT32_MAX : n * length;
  }
  return n;
}

/* Of a sum over the outermost channels: entries that are left, one for each channel beside it; and the parts that it is
 * made in, one a block of lanes; 0: blocks of so many lanes a thread cannot make it, since they have to be of one
 * sequence, and the threads of a warp that have the same entry a power of two apart. */
static inline int64_t cellc_kept_channels(const cellc_stage* stage, const int64_t* lengths) {
  int c;
  int64_t n = 1;
  for (c = stage->outer_summed; c < stage->channels; ++c) {
    const int64_t length = lengths[stage->channel_axes[c]];
    n = length > INT32_MAX / cellc_most(1, n) ? INT32_MAX : n * length;
  }
  return n;
}
static inline int64_t cellc_outer_parts(const cellc_stage* stage, const int64_t* lengths, int width) {
  const int64_t kept = cellc_kept_channels(stage, lengths), block = (int64_t)stage->warps * CELLC_WARP * width;
  int64_t channels = 1;
  int c;
  for (c = 0; c < stage->channels; ++c) channels *= lengths[stage->channel_axes[c]];
  return kept > 0 && kept <= CELLC_WARP && (kept & (kept - 1)) == 0 && kept % width == 0 && channels % block == 0
             ? channels / block
             : 0;
}

/* Parts that such a sum is made in, of a warp's lanes each or fewer; 0: lanes cannot make it. */
enum { CELLC_SUM_PARTS_MOST = 16 };
static inline int cellc_sum_parts(const cellc_stage* stage, const int64_t* lengths) {
  const int64_t n = cellc_summed_channels(stage, lengths);
  if (stage->outer && cellc_outer_parts(stage, lengths, 1) == 0) return 0;
  if (stage->outer == stage->sums) return 1;
  if (n >= 2 && n <= CELLC_WARP && CELLC_WARP % n == 0) return 1;
  return n > 0 && n % CELLC_WARP == 0 && n / CELLC_WARP <= CELLC_SUM_PARTS_MOST ? (int)(n / CELLC_WARP) : 0;
}

/* Whether an input of a step lacks one of the channel axes. */
static inline int cellc_shares_inputs(const cellc_stage* stage) {
  int i, n;
  for (i = 0; i < stage->step_inputs; ++i) {
    const int symbol = stage->entries[stage->step_states + i].symbol;
    int axes = 0;
    for (n = stage->places[symbol]; n < stage->places[symbol + 1]; ++n) axes += stage->place_channel[n] >= 0;
    if (axes < stage->channels) return 1;
  }
  return 0;
}

/* Channels that are not 1 long: more than CELLC_CHANNEL_AXES of them cannot be run. */
static inline int cellc_long_channels(const cellc_stage* stage, const int64_t* lengths) {
  int c, n = 0;
  for (c = 0; c < stage->channels; ++c) n += lengths[stage->channel_axes[c]] != 1;
  return n;
}

/* cellc_sum_parts of the form of a stage that has sums; 0 also where its lanes do not reach so far. */
static inline int cellc_lane_sums(const cellc_stage* stage, const int64_t* lengths) {
  return cellc_long_channels(stage, lengths) <= CELLC_CHANNEL_AXES && cellc_fits_lanes(stage, lengths)
             ? cellc_sum_parts(stage, lengths)
             : 0;
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

#endif
