/* How whole steps are run: a plan's phases over windows of time. For runs of our own
 * (runtime/cuda/launch/nest_program.cc) and for code that is shipped. */
#ifndef CELLC_HOST_NESTS
#define CELLC_HOST_NESTS

#include "kernels-templates/host/host_nest_kernels.h"
#include "kernels-templates/host/host_nest_products.h"

enum { CELLC_SHORTEST_WINDOW = 64 }; /* steps below which short launches cost more than their chunks save */

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
