/* Lanes that make sums and walk segments in two passes (segments/two_passes.cuh): how long segments are, and the three
 * walks. For runs of our own: shipped code scans such a stage, and adds up behind it. */
#ifndef CELLC_HOST_PASSES
#define CELLC_HOST_PASSES

#include "kernels-templates/host/host_plan.h"

/* Lanes of a multiprocessor, all of which are resident; no more segments than are soon composed; and steps of all lanes
 * of a multiprocessor below which five launches take longer than a scan and a kernel that adds up. `s6` in f32 on an
 * H100: (1, 512, 64 x 16) 0.024 ms for 0.012, (1, 1024, 256 x 16) 0.028 for 0.030, (8, 2048, 64 x 16) 0.050 for 0.109.
 */
enum { CELLC_LANES_OF_TWO_PASSES = 2048, CELLC_MOST_PASS_SEGMENTS = 192, CELLC_LEAST_PASS_STEPS = 1 << 15 };

/* Steps of such a segment; 0: one walk of whole sequences. */
static inline int64_t cellc_two_pass_segment(const cellc_facts* card, int64_t sequences, int64_t channels,
                                             int64_t longest) {
  const int64_t lanes = sequences * channels, stages = CELLC_STAGE_STEPS_MOST;
  int64_t segments, steps;
  /* From there on a thread of one walk has four lanes. */
  if (lanes >= CELLC_MOST_LANES * (int64_t)card->multiprocessors) return 0;
  if ((double)lanes * (double)longest < CELLC_LEAST_PASS_STEPS * (double)card->multiprocessors) return 0;
  segments = cellc_least(CELLC_LANES_OF_TWO_PASSES * (int64_t)card->multiprocessors / lanes, CELLC_MOST_PASS_SEGMENTS);
  steps = cellc_divide_up(cellc_divide_up(longest, segments), stages) * stages;
  steps = cellc_most(CELLC_SHORTEST, steps);
  return longest > steps ? steps : 0;
}

/* A kernel of a walk of segments in two passes (two_passes.cuh). The first of them steps what a segment's map is made
 * of, and reads that step's inputs: as if it were the stage's own. */
static inline cellc_variant cellc_pass_variant(const cellc_stage* stage, const cellc_facts* facts,
                                               const cellc_stage_run* run, const cellc_lane_axes* axes,
                                               const cellc_plan* plan, int pass) {
  const int64_t segments = pass == CELLC_PASS_AGAIN ? 1 : cellc_segments(run, plan);
  const int64_t lanes = run->sequences * axes->channels * segments;
  cellc_stage ends = *stage;
  const cellc_stage* of = pass == CELLC_PASS_ENDS ? &ends : stage;
  cellc_variant v;
  ends.entries += stage->step_states + stage->step_inputs + stage->step_params;
  ends.step_states = stage->transition_states;
  ends.step_inputs = stage->transition_inputs;
  ends.sums = stage->transition_states - cellc_carried_states(stage); /* none of them is written, as of terms */
  ends.bases = 0;
  v = cellc_sequential_variant(of, facts, cellc_has_whole_rows(of, run, axes), 0, lanes, axes->channels, 0);
  cellc_widen_sums(of, facts, run, axes, lanes, &v);
  /* The others write no rows, or hardly ever: one kernel for whoever wants them and who does not. */
  if (pass != CELLC_PASS_SUMS) v.unwritten = 0;
  v.pass = pass;
  return v;
}

#endif
