// Whether two runs of a lane meet: one ends where the other began, by a step of the step code from either.
//
// Needs lanes.cuh, sweep.cuh and transitions.cuh.
#pragma once

namespace cellc {

/// Whether the row of step t, made from `began`, follows from `ended` to within the tolerance, and what outs read of
/// where it began does. `size`: what rows may be small beside; `ground`: what is tolerated of anything.
CELLC_DEVICE bool begins_where(const Lanes& lanes, const Lane& lane, long long t, const Real* began, const Real* ended,
                               Real tolerance, const Real* size, const Real* ground) {
  Real param[(Step::kInvariants > 0 ? Step::kInvariants : 1)], input[Step::kInputs > 0 ? Step::kInputs : 1];
  Real written[Step::kStates], made[Step::kStates];
  load_invariants<Step>(lanes, lane, param);
  Repeat<Step::kInputs>::run([&](auto which) {
    constexpr int e = decltype(which)::value;
    const ArrayView& array = lanes.array[Step::input_array(e)];
    const Stored* from =
        static_cast<const Stored*>(array.data) + place(array, lane, t + is_shifted(e)) + lanes.step.input[e];
    if (is_shifted(e) && t == lane.steps - 1) from = last_of_shifted<e>(lanes, lane);
    input[e] = load(from);
  });
  const Uniforms<Step> uniforms(lanes);
  Step::step(param, input, began, written, uniforms.data);
  Step::step(param, input, ended, made, uniforms.data);
  bool near = true;
  CELLC_UNROLL()
  for (int e = 0; e < kCarried; ++e)
    near = near & are_near(written[e], made[e], tolerance, larger(finite_size(ended[e]), size[e]) + ground[e]) &
           (!Traits::kOutsReadStates || are_near(began[e], ended[e], tolerance, ground[e]));
  return near;
}

}  // namespace cellc
