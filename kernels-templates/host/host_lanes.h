/* How a stage is launched a lane a thread: which kernel suits a run, how much scratch memory it needs, what its
 * argument holds. */
#ifndef CELLC_HOST_LANES
#define CELLC_HOST_LANES

#include "kernels-templates/host/host_scan.h"

static inline int64_t cellc_segments(const cellc_stage_run* run, const cellc_plan* plan) {
  return plan->strategy != CELLC_SEQUENTIAL && plan->segment > 0 && run->length > 0
             ? cellc_divide_up(run->length, plan->segment)
             : 0;
}

/* Segments whose channels are a kernel's lanes; 0: its lanes are those of whole sequences. */
static inline int64_t cellc_walked_segments(const cellc_stage_run* run, const cellc_plan* plan,
                                            const cellc_variant* v) {
  return v->kernel == CELLC_SEGMENTED || v->pass == CELLC_PASS_ENDS || v->pass == CELLC_PASS_SUMS
             ? cellc_segments(run, plan)
             : 0;
}

/* Bytes of inputs that all lanes of a multiprocessor may have on their way, above which each asks for half as many
 * steps at a time. Memory that is asked for much more than it can bring answers later, and blocks that do not fit wait
 * for a whole sequence. ParaGRU in f32 on an H200: with 71 KB half of it takes 17 % more time, with 89 KB 2 % more,
 * with 107 KB 0.5 % less, and 1.5 to 5 % less from there to 286 KB; f64 with 286 KB takes 33 % less. */
enum { CELLC_CROWD = 96 << 10 };

static inline void cellc_ask_for_less(cellc_variant* v) {
  v->steps /= 2;
  v->shared_bytes /= 2;
}

/* Which walk: `whole` says that channels are neighbours in every array and rows aligned; segments 0: none. */
static inline cellc_variant cellc_sequential_variant(const cellc_stage* stage, const cellc_facts* facts, int whole,
                                                     int uniform, int64_t chains, int64_t channels, int64_t segments) {
  cellc_variant v;
  /* Two channels a thread make whole lines of memory of a warp's rows and halve the instructions, where there
   * are lanes enough for a warp on every scheduler. */
  const int plenty = chains * cellc_most(1, segments) >= 2 * 128 * (int64_t)facts->multiprocessors * 9 / 10;
  int64_t tile, tiles, blocks, step_bytes;
  memset(&v, 0, sizeof v);
  v.kernel = segments ? CELLC_SEGMENTED : CELLC_SEQUENTIAL;
  v.width =
      stage->storage_bytes == 2 && stage->sums == 0 && whole && plenty && channels % (2 * CELLC_WARP) == 0 ? 2 : 1;
  tile = CELLC_WARP * v.width;
  tiles = cellc_divide_up(chains * cellc_most(1, segments), tile);
  blocks = cellc_divide_up(tiles, stage->warps);
  v.rows = whole && channels % tile == 0;
  /* The warps of a block stay together where they walk one row to its end and memory is the limit. */
  v.lockstep = !segments && v.rows && uniform && tiles % stage->warps == 0 && blocks >= 3 * facts->multiprocessors / 2;
  step_bytes = stage->warps * CELLC_STAGES_AHEAD *
               cellc_most(1, segments ? cellc_most(stage->step_inputs, stage->transition_inputs) : stage->step_inputs) *
               tile * stage->storage_bytes;
  v.steps = stage->stage_steps;
  v.shared_bytes = (int)(v.steps * step_bytes);
  if (v.lockstep && v.steps >= 8 && blocks * v.shared_bytes > (int64_t)CELLC_CROWD * facts->multiprocessors)
    cellc_ask_for_less(&v);
  return v;
}

/* Lanes a multiprocessor from which a thread of a walk with sums has two, and from which it has four: fewer
 * instructions that tell where things lie and that read what lanes share, and fewer warps. */
enum { CELLC_MANY_LANES = 200, CELLC_MOST_LANES = 400 };

/* Whether a thread can have so many neighbours along the innermost axis where not all arrays have it; then also which
 * inputs have one number for all of them. */
static inline int cellc_wide(const cellc_stage* stage, const cellc_stage_run* run, const cellc_lane_axes* axes,
                             int width, int* broadcast) {
  int i, a;
  *broadcast = 0;
  if (stage->storage_bytes > 4 || stage->step_inputs > 8 || axes->axes == 0 || axes->size[axes->axes - 1] % width != 0)
    return 0;
  if (stage->outer && cellc_outer_parts(stage, run->lengths, width) == 0) return 0;
  for (i = 0; i < stage->step_states + stage->step_inputs; ++i) {
    const cellc_entry e = stage->entries[i];
    const cellc_view* view = run->views + e.symbol;
    const int is_input = i >= stage->step_states;
    int64_t inner;
    if (!is_input && i >= cellc_row_states(stage)) continue;
    inner = cellc_inner_stride(stage, run, axes, e.symbol);
    if (is_input && inner == 0) {
      *broadcast |= 1 << (i - stage->step_states);
      continue;
    }
    if (inner != 1 || view->data % (stage->storage_bytes * width) != 0 ||
        view->last % (stage->storage_bytes * width) != 0 || view->row % width != 0 || view->batch % width != 0 ||
        cellc_entry_offset(stage, run, e) % width != 0)
      return 0;
    for (a = 0; a + 1 < axes->axes; ++a)
      if (cellc_channel_stride(stage, run, e.symbol, axes->channel[a]) % width != 0) return 0;
  }
  return *broadcast != 0;
}

/* Different entries of an input that `lanes` neighbours read at a step, where they begin at a multiple of their number;
 * 0: not known. */
static inline int64_t cellc_entries_of_lanes(const cellc_stage* stage, const cellc_stage_run* run,
                                             const cellc_lane_axes* axes, int symbol, int64_t lanes) {
  int64_t inside = 1, entries = 1;
  int a;
  if (axes->channels % lanes != 0) return 0;
  for (a = axes->axes - 1; a >= 0 && inside < lanes; --a) {
    const int64_t here = cellc_least(axes->size[a], lanes / inside);
    if (lanes % inside != 0 || (lanes / inside) % here != 0 || axes->size[a] % here != 0) return 0;
    if (cellc_channel_stride(stage, run, symbol, axes->channel[a]) != 0) entries *= here;
    inside *= axes->size[a];
  }
  return entries;
}

/* Gives each input of a walk whose threads share some as much of a step's memory as it has entries there. */
static inline void cellc_give_columns(const cellc_stage* stage, const cellc_stage_run* run, const cellc_lane_axes* axes,
                                      cellc_variant* v) {
  const int64_t tile = (int64_t)CELLC_WARP * v->width;
  int64_t all = 0;
  int e;
  if (v->rows || stage->step_inputs > 8 || !cellc_shares_inputs(stage)) return;
  v->columns = 0;
  for (e = 0; e < stage->step_inputs; ++e) {
    const int symbol = stage->entries[stage->step_states + e].symbol;
    const int64_t entries = cellc_entries_of_lanes(stage, run, axes, symbol, tile);
    int fours = entries > 0, columns = 4;
    while (fours && columns < entries) columns *= 2, ++fours;
    v->columns |= fours << 4 * e;
    all += fours ? columns : tile;
  }
  v->shared_bytes = (int)(stage->warps * CELLC_STAGES_AHEAD * v->steps * all * stage->storage_bytes);
}

static inline int cellc_shifted_inputs(const cellc_stage* stage, const cellc_stage_run* run) {
  int i, shifted = 0;
  for (i = 0; i < stage->step_inputs && i < 31; ++i)
    if (run->views[stage->entries[stage->step_states + i].symbol].last) shifted |= 1 << i;
  return shifted;
}

/* Whether channels are neighbours in every array and rows aligned, for copies of sixteen bytes. */
static inline int cellc_has_whole_rows(const cellc_stage* stage, const cellc_stage_run* run,
                                       const cellc_lane_axes* axes) {
  const int64_t size = stage->storage_bytes;
  int whole = axes->axes <= 1, i, n;
  for (i = 0; i < stage->step_states + stage->step_inputs && whole; ++i) {
    const int symbol = stage->entries[i].symbol;
    const cellc_view* view = run->views + symbol;
    cellc_entry e;
    int64_t own = 1;
    if (i >= cellc_row_states(stage) && i < stage->step_states) continue; /* of one lane, not of rows */
    whole = (axes->channels == 1 || cellc_inner_stride(stage, run, axes, symbol) == 1) && view->data % 16 == 0 &&
            view->last % 16 == 0 && view->row * size % 16 == 0 && view->batch * size % 16 == 0;
    for (n = stage->places[symbol]; n < stage->places[symbol + 1]; ++n)
      if (stage->place_channel[n] < 0) own *= run->lengths[stage->place_axis[n]];
    e.symbol = symbol;
    for (e.entry = 0; e.entry < own && whole; ++e.entry) whole = cellc_entry_offset(stage, run, e) * size % 16 == 0;
  }
  return whole;
}

/* Of a walk with sums of so many lanes in all: how many a thread has of them, and what its inputs take. */
static inline void cellc_widen_sums(const cellc_stage* stage, const cellc_facts* facts, const cellc_stage_run* run,
                                    const cellc_lane_axes* axes, int64_t lanes, cellc_variant* v) {
  int n, broadcast;
  v->sum_lanes =
      stage->sums > stage->outer ? (int)cellc_least(cellc_summed_channels(stage, run->lengths), CELLC_WARP) : 1;
  for (n = stage->for_run ? 4 : 2; n > 1 && !v->rows && v->width == 1; n /= 2) {
    const int64_t wanted = n == 4 ? CELLC_MOST_LANES : CELLC_MANY_LANES;
    if (lanes < wanted * (int64_t)facts->multiprocessors || !cellc_wide(stage, run, axes, n, &broadcast)) continue;
    cellc_variant wider = *v;
    if (n > v->sum_lanes && stage->sums > stage->outer) continue;
    wider.broadcast = broadcast;
    wider.width = n;
    wider.shared_bytes *= n;
    if (stage->for_run) cellc_give_columns(stage, run, axes, &wider);
    /* Rows of all lanes, where columns are not known: of five inputs they are more than a block has. */
    if (wider.shared_bytes <= facts->shared_per_block) *v = wider;
  }
  if (stage->for_run && v->width == 1) cellc_give_columns(stage, run, axes, v);
  v->unwritten = stage->for_run;
  for (n = 0; n < cellc_row_states(stage); ++n) v->unwritten &= run->views[stage->entries[n].symbol].data == 0;
}

/* The kernel that a run takes. */
static inline cellc_variant cellc_choose_variant(const cellc_stage* stage, const cellc_facts* facts,
                                                 const cellc_stage_run* run, const cellc_lane_axes* axes,
                                                 const cellc_plan* plan) {
  const int64_t chains = run->sequences * axes->channels;
  cellc_variant v;
  /* Tickets of a scan are numbers of 32 bits. */
  if (plan->strategy == CELLC_SCAN && stage->scans && run->length > 0 &&
      cellc_scan_variant(stage, facts, run, axes, plan, &v) &&
      chains * (run->length / cellc_scan_tile(&v) + 2) < (int64_t)1 << 31) {
    v.shifted = cellc_shifted_inputs(stage, run);
    return v;
  }
  v = cellc_sequential_variant(stage, facts, cellc_has_whole_rows(stage, run, axes), run->uniform, chains,
                               axes->channels, cellc_segments(run, plan));
  v.shifted = cellc_shifted_inputs(stage, run);
  if (stage->sums) {
    cellc_widen_sums(stage, facts, run, axes, chains, &v);
    if (stage->outer) {
      v.kept = (int)cellc_kept_channels(stage, run->lengths);
      v.shared_bytes =
          (v.shared_bytes + 15) / 16 * 16 + 2 * stage->outer * stage->warps * v.steps * v.kept * stage->real_bytes;
    }
  }
  return v;
}

/* The walk of what a scan has marked: whatever the arrays, as nearly always every warp of it ends at once. */
static inline cellc_variant cellc_rewalk_variant(const cellc_stage* stage, const cellc_facts* facts,
                                                 const cellc_stage_run* run, const cellc_lane_axes* axes) {
  cellc_variant v = cellc_sequential_variant(stage, facts, 0, 0, 0, axes->channels, 0);
  v.shifted = cellc_shifted_inputs(stage, run);
  v.rewalks = 1;
  return v;
}

/* The launch --------------------------------------------------------------------------------------------- */

/* Bytes of each part. control, sent and words begin as zeros, together; what they hold afterwards serves the
 * next run. marks begin as zeros, and are zeros again after each run, but where lanes make outs:
 * there they are numbers of runs. */
static inline cellc_scratch cellc_scratch_bytes(const cellc_stage* stage, const cellc_stage_run* run,
                                                const cellc_lane_axes* axes, const cellc_plan* plan,
                                                const cellc_variant* v, int64_t control_bytes) {
  cellc_scratch s;
  memset(&s, 0, sizeof s);
  if (v->kernel == CELLC_SCAN) {
    s.control = CELLC_SCAN_CONTROL;
    s.words = (uint64_t)cellc_scan_word_bytes(stage, run, axes, v);
    s.marks = (uint64_t)cellc_scan_mark_bytes(stage, run, axes, v);
    if (!plan->repairs && v->checks) s.bad = (uint64_t)(run->sequences * 12);
  } else if (v->kernel == CELLC_SEGMENTED) {
    const int64_t count = run->sequences * axes->channels * cellc_segments(run, plan);
    const int64_t transitions = stage->transition_states - stage->step_states;
    /* Of one state and its transition more runs than the last are kept: Runs of segments.cuh. */
    const int64_t entries =
        4 * stage->step_states + transitions + (stage->step_states == 1 && transitions == 1 ? 12 : 0);
    s.control = (uint64_t)control_bytes;
    s.sent = (uint64_t)(stage->step_states * (count * stage->real_bytes / 4) * 8);
    s.off = (uint64_t)(count * 4);
    s.states = (uint64_t)(entries * count * stage->real_bytes);
    if (!plan->repairs) s.bad = (uint64_t)(run->sequences * 12);
  } else if (v->pass) {
    const int64_t chains = run->sequences * axes->channels;
    s.control = CELLC_SCAN_CONTROL;
    /* Ends with their maps, starts, sizes (TwoPasses of two_passes.cuh). */
    s.states = (uint64_t)((stage->transition_states + 2 * cellc_carried_states(stage)) * chains *
                          cellc_segments(run, plan) * stage->real_bytes);
    s.off = (uint64_t)(chains * 4);
  }
  return s;
}

/* One more warp draws the tickets of a stream. */
static inline int cellc_stage_threads(const cellc_stage* stage, const cellc_variant* v) {
  return (v->kernel == CELLC_SCAN ? v->warps + (v->buffers > 0) : stage->warps) * CELLC_WARP;
}

/* Whether a run reads and writes a little more than the second-level cache holds. If every line is treated alike, each
 * has been replaced by the time that the next run, or whoever comes after what has written the inputs, asks for it;
 * with half as much again, a third of them could be there. On an H200 (8, 512, 1024) and (1, 65536, 64) take 5 and 6 %
 * less time; twice as much (134 MB) takes 5 % more. */
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
  int64_t at_once = cellc_most(1, resident) * facts->multiprocessors;
  cellc_grid grid;
  memset(&grid, 0, sizeof grid);
  grid.threads = (unsigned)cellc_stage_threads(stage, v);
  if (v->kernel == CELLC_SCAN) {
    const int64_t chains = cellc_scan_chains(run, axes, v), tiles = chains * cellc_scan_tiles(stage, run, v);
    const int64_t transitions = v->buffers ? cellc_stream_carry_blocks(chains, v) : 0;
    if (v->cluster) {
      grid.blocks = (unsigned)(chains * v->cluster);
      grid.cluster = (unsigned)v->cluster;
      return grid;
    }
    if (transitions == 0)
      at_once =
          facts->multiprocessors * cellc_least(cellc_most(1, resident), cellc_scan_crowd(stage, facts, v, chains));
    grid.blocks = (unsigned)cellc_most(transitions + 1, cellc_least(transitions + tiles, at_once));
    grid.cooperative = transitions > 0;
  } else {
    const int64_t count = run->sequences * axes->channels * cellc_most(1, cellc_walked_segments(run, plan, v));
    const int64_t blocks = cellc_divide_up(cellc_divide_up(count, CELLC_WARP * v->width), stage->warps);
    grid.blocks = (unsigned)blocks;
    if (v->kernel == CELLC_SEGMENTED) {
      /* All blocks at once: they wait for each other, as long as all run. */
      grid.blocks = (unsigned)cellc_least(blocks, at_once);
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
static inline void cellc_put_real(cellc_argument* a, const cellc_stage* stage, double value) {
  const float narrow = (float)value;
  if (stage->real_bytes == 8)
    cellc_put(a, &value, 8);
  else
    cellc_put(a, &narrow, 4);
}
/* What is tolerated of each state besides, over the tolerance: kernels take it for a size that every row has. */
static inline void cellc_put_ground(cellc_argument* a, const cellc_stage* stage, double tolerance,
                                    const double* absolute) {
  int i;
  for (i = 0; i < stage->step_states; ++i) {
    const double allowed = absolute && i < cellc_carried_states(stage) ? absolute[stage->entries[i].symbol] : 0;
    const double ground = allowed > 0 && tolerance > 0 ? allowed / tolerance : 0;
    cellc_put_real(a, stage, ground < 1e30 ? ground : 1e30);
  }
}
static inline void cellc_end(cellc_argument* a) {
  while (a->size % 8) a->bytes[a->size++] = 0;
}

/* What ScanRewalk has behind its lanes. Of a launch that only asks for its size there is no scan. */
static inline void cellc_put_rewalk(cellc_argument* a, const cellc_stage* stage, const cellc_stage_run* run,
                                    const cellc_lane_axes* axes, const cellc_scratch* at, double tolerance,
                                    const double* absolute) {
  const cellc_variant* scan = run->scanned;
  const int64_t channels = scan ? scan->channels : 1, tile = scan ? cellc_scan_tile(scan) : 1;
  cellc_put64(a, (int64_t)at->control);
  cellc_put64(a, (int64_t)at->marks);
  cellc_put64(a, (int64_t)at->words);
  cellc_put_real(a, stage, tolerance);
  cellc_put_ground(a, stage, tolerance, absolute);
  cellc_put32(a, scan ? cellc_scan_tiles(stage, run, scan) : 1);
  cellc_put32(a, cellc_divide_up(axes->channels, channels));
  cellc_put32(a, channels);
  cellc_put32(a, tile);
  cellc_put32(a, scan && stage->accumulated ? tile / scan->warps : tile);
  cellc_put32(a,
              scan && scan->copy == CELLC_TIME && stage->step_inputs > 0 ? 16 / (stage->storage_bytes * channels) : 1);
  cellc_end(a);
}

/* What TwoPasses has behind its lanes. */
static inline void cellc_put_passes(cellc_argument* a, const cellc_stage* stage, const cellc_stage_run* run,
                                    const cellc_lane_axes* axes, const cellc_plan* plan, const cellc_scratch* at,
                                    double tolerance, const double* absolute) {
  const int64_t row = run->sequences * axes->channels * cellc_segments(run, plan) * stage->real_bytes;
  const int64_t starts = (int64_t)at->states + stage->transition_states * row;
  cellc_put64(a, (int64_t)at->control);
  cellc_put64(a, (int64_t)at->states);
  cellc_put64(a, starts);
  cellc_put64(a, starts + cellc_carried_states(stage) * row);
  cellc_put64(a, (int64_t)at->off);
  cellc_put_real(a, stage, tolerance);
  cellc_put_ground(a, stage, tolerance, absolute);
  cellc_end(a);
}

/* The argument of the kernel (Lanes, ScanRewalk, TwoPasses, Segmented or Scan), in room that is enough for it; its
 * size. `absolute`: by state, in its own units, what a step may be off besides; null: nothing. */
static inline size_t cellc_stage_argument(const cellc_stage* stage, const cellc_stage_run* run,
                                          const cellc_lane_axes* axes, const cellc_plan* plan, const cellc_variant* v,
                                          const cellc_scratch* at, cellc_grid grid, double tolerance,
                                          const double* absolute, void* room) {
  const int64_t segments = cellc_walked_segments(run, plan, v);
  const cellc_entry* e = stage->entries;
  cellc_argument out;
  int s, a, list, i;
  const int lists[6] = {stage->step_states,       stage->step_inputs,       stage->step_params,
                        stage->transition_states, stage->transition_inputs, stage->transition_params};
  if (v->kernel == CELLC_SCAN || v->rewalks) tolerance *= stage->scan_slack;
  out.bytes = (unsigned char*)room;
  out.size = 0;
  for (i = 0; v->shifted && i < stage->step_inputs; ++i)
    cellc_put64(&out, (int64_t)run->views[e[stage->step_states + i].symbol].last);
  for (s = 0; s < stage->symbols; ++s) {
    cellc_put64(&out, (int64_t)run->views[s].data);
    cellc_put64(&out, stage->is_param[s] ? 0 : run->views[s].batch);
    cellc_put64(&out, stage->is_param[s] ? 0 : run->views[s].row);
    for (a = 0; a < CELLC_CHANNEL_AXES; ++a)
      cellc_put64(&out, a < axes->axes ? cellc_channel_stride(stage, run, s, axes->channel[a]) : 0);
  }
  /* Starts and finals lie row-major without gaps, whatever the rows do. */
  for (i = 0; i < stage->step_states; ++i)
    cellc_put64(&out, i < cellc_carried_states(stage) ? (int64_t)run->starts[e[i].symbol] : 0);
  for (i = 0; i < stage->step_states; ++i)
    cellc_put64(&out, i < cellc_carried_states(stage) ? (int64_t)run->finals[e[i].symbol] : 0);
  for (i = 0; i < stage->step_states; ++i) cellc_put64(&out, cellc_row_entries(stage, run->lengths, e[i].symbol));
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
  cellc_put64(&out, run->part);
  cellc_put64(&out, run->outer_part);
  cellc_put32(&out, v->rewalks ? run->part : stage->sums ? cellc_sum_parts(stage, run->lengths) : 1);
  cellc_end(&out);
  if (v->pass) cellc_put_passes(&out, stage, run, axes, plan, at, tolerance, absolute);
  if (v->rewalks) cellc_put_rewalk(&out, stage, run, axes, at, tolerance, absolute);
  if (v->kernel == CELLC_SCAN) {
    const int64_t chains = cellc_scan_chains(run, axes, v);
    cellc_put64(&out, (int64_t)at->control);
    cellc_put64(&out, (int64_t)at->words);
    cellc_put64(&out, (int64_t)at->marks);
    cellc_put_real(&out, stage, tolerance);
    cellc_put_ground(&out, stage, tolerance, absolute);
    cellc_put32(&out, cellc_scan_tiles(stage, run, v));
    cellc_put32(&out, cellc_divide_up(axes->channels, v->channels));
    cellc_put32(&out, v->buffers ? cellc_stream_carry_blocks(chains, v) : 0);
    cellc_put32(&out, stage->repeats ? 0 : grid.blocks / chains + 1);
    cellc_put64(&out, plan->repairs ? 0 : (int64_t)at->bad);
    cellc_put64(&out, plan->repairs ? 0 : (int64_t)at->bad + run->sequences * 8);
    cellc_end(&out);
  } else if (v->kernel == CELLC_SEGMENTED) {
    const int64_t lanes = run->sequences * axes->channels * segments;
    cellc_put64(&out, (int64_t)at->control);
    cellc_put64(&out, (int64_t)at->sent);
    cellc_put64(&out, (int64_t)at->off);
    for (i = 0; i < 4; ++i) cellc_put64(&out, (int64_t)at->states + i * stage->step_states * lanes * stage->real_bytes);
    {
      const int64_t runs = 2 * stage->step_states + stage->transition_states;
      const int64_t entries = stage->step_states == 1 && stage->transition_states == 2 ? 12 : 0;
      cellc_put64(&out, (int64_t)at->states + runs * lanes * stage->real_bytes);
      cellc_put64(&out, (int64_t)at->states + (runs + entries) * lanes * stage->real_bytes);
    }
    cellc_put_real(&out, stage, tolerance);
    cellc_put_ground(&out, stage, tolerance, absolute);
    cellc_put32(&out, plan->burn_in);
    cellc_put32(&out, plan->rounds);
    cellc_put32(&out, plan->fixed);
    cellc_put32(&out, plan->eager);
    cellc_put32(&out, plan->repairs);
    cellc_put64(&out, (int64_t)at->bad);
    cellc_put64(&out, (int64_t)at->bad + run->sequences * 8);
    cellc_put32(&out, plan->learns ? -1 : plan->measures_slope ? 1 : 0);
    cellc_put32(&out, grid.cyclic);
    cellc_put32(&out, stage->repeats);
    cellc_end(&out);
  }
  return out.size;
}

#endif
