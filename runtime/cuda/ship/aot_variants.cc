#include "runtime/cuda/ship/aot_variants.h"

#include <fmt/format.h>

#include "runtime/cuda/launch/strategy_numbers.h"

namespace cellc {

std::vector<cellc_variant> aot_variants(const cellc_stage& stage, const cellc_stage_facts& facts,
                                        const ShipRequest& request, const std::vector<std::int64_t>& lengths,
                                        bool last) {
  std::vector<cellc_variant> all;
  const GpuFacts& card = request.card;
  const cellc_facts on{1 << 20, card.shared_per_block, card.shared_per_multiprocessor, 0, 0, 0};
  // Neighbours along one axis, or along several that are one in memory.
  std::int64_t channels = 1;
  for (int c = 0; c < stage.channels; ++c) {
    const std::int64_t n = lengths[stage.channel_axes[c]];
    channels = n < 0 || channels < 0 ? -1 : channels * n;
  }
  const bool alone = stage.channels == 0 || channels == 1;
  bool segments = false, scans = false;
  if (request.solver == Strategy::Auto) {
    scans = !facts.forgets && facts.exact && stage.scans;
    segments = !scans && !facts.remembers;
  } else {
    const int kernel = kernel_number(request.solver);
    scans = kernel == CELLC_SCAN && stage.scans;
    segments = kernel != CELLC_SEQUENTIAL && !scans;
  }
  // Segments leave residuals, but where one step back decides and they begin as early: cellc_leaves_no_residual.
  const bool begins_early = request.solver == Strategy::Auto || request.solver == Strategy::Segmented;
  if (!last && !(facts.forgets && begins_early)) segments = false;
  if (request.steps && *request.steps < CELLC_SHORTEST && request.solver == Strategy::Auto) scans = segments = false;
  for (const int kind : {CELLC_SEQUENTIAL, CELLC_SEGMENTED}) {
    if (kind == CELLC_SEGMENTED && !segments) continue;
    const auto add = [&](int rows, int lockstep, int width, bool crowded = false) {
      const std::int64_t tile = CELLC_WARP * width;
      if (rows && (alone || (channels > 0 && channels % tile != 0))) return;
      if (kind == CELLC_SEGMENTED && lockstep) return;
      cellc_variant v = cellc_sequential_variant(&stage, &on, 0, 0, 0, 1, kind == CELLC_SEGMENTED);
      v.shared_bytes *= width;
      v.rows = rows;
      v.lockstep = lockstep;
      v.width = width;
      if (crowded && v.steps < 8) return;
      if (crowded) cellc_ask_for_less(&v);
      all.push_back(v);
    };
    add(0, 0, 1);
    for (int width = 1; width <= (stage.storage_bytes == 2 ? 2 : 1); ++width) {
      for (int lockstep = 0; lockstep < 2; ++lockstep) add(1, lockstep, width);
      add(1, 1, width, true);
    }
  }
  if (scans) {
    const auto add = [&](int copy, int of_block) {
      cellc_variant v{};
      v.kernel = CELLC_SCAN;
      v.width = 1;
      v.copy = copy;
      v.channels = of_block;
      v.checks = 1;
      // Where steps are read in chunks it pays to know the direction; streams run forward.
      if (cellc_scan_block(&stage, &on, 0, &v)) all.push_back(v);
      v.forward = 1;
      if (copy != CELLC_CONTIGUOUS && of_block * stage.storage_bytes >= 16) return;
      if (copy != CELLC_CONTIGUOUS && cellc_scan_block(&stage, &on, 0, &v)) all.push_back(v);
      if (!cellc_stream_block(&stage, &on, &v)) return;
      all.push_back(v);
      // Of many chains or few multiprocessors, a transition takes all channels of a chain (cellc_streams).
      if (copy != CELLC_CONTIGUOUS || v.carry_channels == v.channels) return;
      v.carry_channels = v.channels;
      all.push_back(v);
    };
    int most = CELLC_WARP, dividing = CELLC_WARP;
    while (channels > 0 && most > channels) most /= 2;
    while (channels > 0 && channels % dividing != 0) dividing /= 2;
    if (!alone) {
      if (dividing * stage.storage_bytes >= 16) add(CELLC_CONTIGUOUS, dividing);
      if (most > 1) add(CELLC_EACH, most);
      if (channels > 1 && (channels & (channels - 1)) == 0 && channels * stage.storage_bytes < 16 &&
          stage.step_inputs > 0)
        add(CELLC_TIME, static_cast<int>(channels));
    }
    add(CELLC_EACH, 1);
    if (stage.step_inputs > 0) add(CELLC_TIME, 1);
  }
  return all;
}

std::string variant_name(const cellc_variant& v) {
  if (v.kernel == CELLC_SCAN) {
    const char* copy = v.copy == CELLC_CONTIGUOUS ? "rows" : v.copy == CELLC_TIME ? "time" : "each";
    return fmt::format("{}_{}{}{}{}", v.buffers ? "stream" : "scan", copy, v.channels, v.forward ? "_forward" : "",
                       v.buffers && v.copy == CELLC_CONTIGUOUS ? fmt::format("_carried{}", v.carry_channels) : "");
  }
  return fmt::format("{}{}{}{}{}",
                     v.rewalks                     ? "rewalk"
                     : v.kernel == CELLC_SEGMENTED ? "segments"
                                                   : "walk",
                     v.lockstep ? fmt::format("_lockstep{}", v.steps)
                     : v.rows   ? "_rows"
                                : "",
                     v.width == 2 ? "_pairs" : "", v.broadcast ? fmt::format("_shared{}", v.broadcast) : "",
                     v.sum_lanes ? fmt::format("_sum{}", v.sum_lanes) : "");
}

}  // namespace cellc
