// Lanes that make sums and walk segments in two passes (kernels-templates/segments/two_passes.cuh): which runs take
// them, and the launches of one.
#include "kernels-templates/host/host_passes.h"
#include "runtime/cuda/launch/stage_program_impl.h"

namespace cellc {

bool StageProgram::has_two_passes(const std::map<AxisId, std::int64_t>& sizes) {
  return !stage_.sums.empty() && !code(sizes).refusal && code(sizes).two_passes && sum_parts(sizes) > 0;
}

/// One segment is a walk.
bool StageProgram::takes_two_passes(const Code& code, const Described& d, cellc_plan& numbers) {
  if (!code.two_passes || !numbers.two_passes) return false;
  if (cellc_segments(&d.run, &numbers) > 1) return true;
  numbers = cellc_sequential_plan();
  return false;
}

void StageProgram::run_in_two_passes(Code& code, const Described& d, const cellc_lane_axes& axes,
                                     const cellc_plan& numbers, double tolerance, const StageRun& run,
                                     GpuStream stream) {
  const cellc_stage& stage = code.tables.stage;
  const double* const absolute = run.absolute.empty() ? nullptr : run.absolute.data();
  const auto variant_of = [&](int pass) { return cellc_pass_variant(&stage, &d.facts, &d.run, &axes, &numbers, pass); };
  const cellc_variant ends = variant_of(CELLC_PASS_ENDS), sums = variant_of(CELLC_PASS_SUMS),
                      again = variant_of(CELLC_PASS_AGAIN);
  for (const cellc_variant& v : {ends, sums, again}) kernel(code, v);  // which may move those that are there
  const cellc_scratch bytes = cellc_scratch_bytes(&stage, &d.run, &axes, &numbers, &ends, 0);
  reserve(scan_control_, bytes.control, stream, true);
  reserve(states_, bytes.states, stream, false);
  reserve(off_, bytes.off, stream, false);
  cellc_scratch at{};
  at.control = scan_control_.address();
  at.states = states_.address();
  at.off = off_.address();
  const std::int64_t chains = run.sequences * axes.channels;
  const auto walk = [&](const cellc_variant& v) {
    launch(kernel(code, v), stage, d, axes, numbers, v, at, tolerance, absolute, stream);
  };
  const auto beside = [&](const cellc_variant& of, const cellc_variant& told, std::int64_t threads) {
    launch_beside(kernel(code, of), stage, d, axes, numbers, told, at, tolerance, absolute, threads, stream);
  };
  walk(ends);
  beside(ends, ends, chains);  // where segments begin
  walk(sums);
  beside(again, sums, chains * cellc_segments(&d.run, &numbers));  // whether they began there
  walk(again);
  ran_tile_ = numbers.segment;
}

void StageProgram::launch_beside(const Compiled& k, const cellc_stage& stage, const Described& d,
                                 const cellc_lane_axes& axes, const cellc_plan& numbers, const cellc_variant& variant,
                                 const cellc_scratch& at, double tolerance, const double* absolute,
                                 std::int64_t threads, GpuStream stream) {
  GpuLaunch launch;
  launch.block.x = 128;
  launch.grid.x = static_cast<unsigned>((threads + launch.block.x - 1) / launch.block.x);
  launch.stream = stream;
  launch.early = true;
  std::vector<std::uint64_t> room(argument_words(stage));
  cellc_stage_argument(&stage, &d.run, &axes, &numbers, &variant, &at, {}, tolerance, absolute, room.data());
  void* argument = room.data();
  gpu_.launch(k.beside, launch, &argument);
}

}  // namespace cellc
