/* From structure, shape and a card's facts to a strategy and its parameters: what `auto` does on a GPU before
 * it has seen any data; and what follows from them for the passes of a call. For runs of our own
 * (runtime/cuda/launch/choose_cuda_plan.cc, plan_execution.cc) and for code that is shipped (host_call.h).
 */
#ifndef CELLC_HOST_PLAN
#define CELLC_HOST_PLAN

#include "kernels-templates/host/host_lanes.h"

enum {
  CELLC_STAGE_STEPS_MOST = 8, /* steps that a warp stages at once: segments are multiples of it */
  CELLC_SHORTEST = 64,        /* steps below which cutting gains less than it costs */
  CELLC_FIRST_RUN_UP = 64,    /* steps that a first call starts early, at least: kFirstRunUp of segments.cuh */
  CELLC_ROUNDS = 8,           /* of repair, unless the caller allows fewer: kPlannedRounds of segmented.cuh */
  /* Threads of a multiprocessor that keep memory busy: with twice as many, longer run-ups cost more than the
   * latency that they hide. */
  CELLC_THREADS_WANTED = 256
};

typedef struct cellc_stage_facts {
  int exact;     /* linear, or scannable, and a thread holds the map over a segment */
  int forgets;   /* no state feeds itself: one step back decides */
  int remembers; /* linear, nothing says that it forgets, and no thread holds that map: cut, it would end in a walk */
  int storage_bytes;
} cellc_stage_facts;

/* Lanes that keep a multiprocessor busy: of 16-bit arrays a thread takes two (cellc_sequential_variant). */
static inline int64_t cellc_lanes_wanted(const cellc_stage_facts* stage, int64_t channels) {
  return stage->storage_bytes == 2 && channels % (2 * CELLC_WARP) == 0 ? 2 * CELLC_THREADS_WANTED
                                                                       : CELLC_THREADS_WANTED;
}

enum { CELLC_TOO_SHORT, CELLC_FULL, CELLC_FORGETS, CELLC_REMEMBERS, CELLC_EXACT, CELLC_SEGMENTS };

static inline int64_t cellc_segment_length(const cellc_facts* card, int64_t sequences, int64_t channels,
                                           int64_t longest, int64_t lanes) {
  const int64_t wanted = (int64_t)card->multiprocessors * lanes;
  const int64_t segments = cellc_most(1, wanted / cellc_most(1, sequences * channels));
  const int64_t steps = cellc_divide_up(longest, segments);
  return cellc_most(2 * CELLC_STAGE_STEPS_MOST,
                    cellc_divide_up(steps, CELLC_STAGE_STEPS_MOST) * CELLC_STAGE_STEPS_MOST);
}

static inline cellc_plan cellc_sequential_plan(void) {
  cellc_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.strategy = CELLC_SEQUENTIAL;
  plan.rounds = CELLC_ROUNDS;
  plan.repairs = 1;
  plan.checks = 1;
  return plan;
}

/* `why`: null, or the reason. */
static inline cellc_plan cellc_choose_plan(const cellc_stage_facts* stage, const cellc_facts* card, int64_t sequences,
                                           int64_t channels, int64_t longest, int* why) {
  cellc_plan plan = cellc_sequential_plan();
  const int64_t lanes = cellc_lanes_wanted(stage, channels);
  int reason;
  if (longest < CELLC_SHORTEST) {
    reason = CELLC_TOO_SHORT;
  } else if (4 * sequences * channels >= 3 * (int64_t)card->multiprocessors * lanes) {
    reason = CELLC_FULL;
  } else if (stage->remembers) {
    reason = CELLC_REMEMBERS;
  } else {
    plan.segment = cellc_segment_length(card, sequences, channels, longest, lanes);
    if (stage->forgets) {
      reason = CELLC_FORGETS;
      plan.strategy = CELLC_SEGMENTED;
      plan.burn_in = CELLC_STAGE_STEPS_MOST;
    } else if (stage->exact) {
      reason = CELLC_EXACT;
      plan.strategy = CELLC_SCAN;
      plan.measures_slope = 1;
      plan.eager = 1;
    } else {
      reason = CELLC_SEGMENTS;
      plan.strategy = CELLC_SEGMENTED;
      plan.burn_in = plan.segment >= 512 ? 64 : 32;
      plan.learns = 1;
    }
  }
  if (why) *why = reason;
  return plan;
}

enum { CELLC_ASK_SEGMENTED, CELLC_ASK_NEWTON, CELLC_ASK_CARRIED };

/* A strategy that is asked for, with its parameters: segments, Newton's iteration over single steps, or
 * segments with transitions (shooting, scan). `rounds`: of repair at most, or exactly where `fixed`. */
static inline cellc_plan cellc_forced_plan(const cellc_stage_facts* stage, const cellc_facts* card, int64_t sequences,
                                           int64_t channels, int64_t longest, int asked, int rounds) {
  cellc_plan plan = cellc_sequential_plan();
  plan.strategy = CELLC_SEGMENTED;
  plan.segment =
      cellc_least(cellc_segment_length(card, sequences, channels, longest, cellc_lanes_wanted(stage, channels)),
                  cellc_most(2 * CELLC_STAGE_STEPS_MOST, (longest / 2 + 7) / 8 * 8));
  plan.rounds = rounds;
  if (asked == CELLC_ASK_SEGMENTED) {
    plan.burn_in = stage->forgets ? CELLC_STAGE_STEPS_MOST : 32;
  } else if (asked == CELLC_ASK_NEWTON) {
    /* Every step is an unknown. The first sweep makes the guess f(start, x); each round is one iteration. */
    plan.segment = 1;
    plan.eager = 2;
    plan.fixed = 1;
  } else {
    plan.measures_slope = 1;
    plan.eager = 1;
  }
  return plan;
}

/* The plan of calls that have the same bits each time: that of a first call, as what others have learned would be
 * another one. */
static inline void cellc_repeat_plan(cellc_plan* plan) {
  if (plan->learns && plan->burn_in < CELLC_FIRST_RUN_UP) plan->burn_in = CELLC_FIRST_RUN_UP;
  plan->learns = 0;
}

/* Whether a plan leaves no residual that a later stage would see: a walk, exact maps in a single pass (`scans`: the
 * stage has them; cellc_is_remade), or starts that one step back decides. A stage that later ones read is walked
 * otherwise, where nobody looks at whole steps afterwards: what a later stage makes of a residual would have to be
 * checked. */
static inline int cellc_leaves_no_residual(const cellc_stage_facts* stage, int scans, const cellc_plan* plan) {
  if (plan->strategy == CELLC_SEQUENTIAL) return 1;
  if (stage->forgets) return plan->burn_in > 0;
  return plan->strategy == CELLC_SCAN && scans;
}

/* Whether later stages read a stage's new values as they are made again from the rows before, where nobody looks at
 * whole steps afterwards: what exact maps were rounded by is within the tolerance, and what a later stage makes of it
 * may not be. It costs a pass over what the stage reads and has written; a walk in its place takes up to twenty times
 * as long. */
static inline int cellc_is_remade(const cellc_plan* plan) { return plan->strategy == CELLC_SCAN; }

/* Parts that each of a stage's sums is made in by this plan; 0: lanes make none. `parts`: what they can
 * (cellc_lane_sums). Lanes that walk their whole sequence have every new state at hand for what comes after them.
 * Segments and scans run steps more than once, and would make sums anew each time, but where starts come first. */
static inline int cellc_planned_sums(const cellc_plan* plan, int parts) {
  return plan->strategy == CELLC_SEQUENTIAL || plan->two_passes ? parts : 0;
}

/* Entries of an out for each multiprocessor from which a scan makes it: with fewer, one of clusters and a kernel behind
 * it are sooner done. qrnn_fo in f32 on an H100: (1, 2048, 256) 0.029 ms so and 0.050 in lanes, (1, 65536, 64) 0.129
 * and 0.130, (8, 2048, 1024) 0.207 and 0.183. */
enum { CELLC_LEAST_SCANNED_OUTS = 1 << 15 };

/* Whether a stage's lanes make outs of their channels by this plan: each step once, and again where a start was off
 * (scan_rewalk.cuh). `scans`: the stage scans in a single pass, with those outs and without; `always`: whatever the
 * number of `entries`, as rows have a type that nothing else could make them of. */
static inline int cellc_plans_outs(const cellc_plan* plan, const cellc_facts* card, int scans, int always,
                                   int64_t entries) {
  if (plan->strategy == CELLC_SEQUENTIAL) return 1;
  return plan->strategy == CELLC_SCAN && scans && (plan->repairs || !plan->checks) &&
         (always || entries >= CELLC_LEAST_SCANNED_OUTS * (int64_t)card->multiprocessors);
}

#endif
