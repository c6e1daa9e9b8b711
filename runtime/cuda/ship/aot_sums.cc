#include "runtime/cuda/ship/aot_sums.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <set>

namespace cellc {

namespace {

/// Each is one more set of kernels for the outs.
constexpr std::size_t kMostWays = 16;

/// Header axes that a sum of the stage runs along.
std::set<int> summed_axes(const cellc_stage& stage) {
  std::set<int> axes;
  for (int c = stage.channels - stage.summed; c < stage.channels; ++c) axes.insert(stage.channel_axes[c]);
  return axes;
}

std::vector<int> possible_parts(const cellc_stage& stage, const std::vector<std::int64_t>& lengths) {
  const std::set<int> axes = summed_axes(stage);
  if (std::all_of(axes.begin(), axes.end(), [&](int a) { return lengths[a] >= 0; }))
    return {cellc_sum_parts(&stage, lengths.data())};
  std::vector<int> all;
  for (int parts = 0; parts <= CELLC_SUM_PARTS_MOST; ++parts) all.push_back(parts);
  return all;
}

}  // namespace

std::vector<std::vector<int>> ways_of_summing(const std::vector<SummingStage>& stages,
                                              const std::vector<std::int64_t>& lengths) {
  // Stages that sum along the same axes do so in as many parts.
  std::map<std::set<int>, std::vector<int>> parts_along;
  for (const SummingStage& s : stages)
    if (s.stage) parts_along[summed_axes(*s.stage)] = possible_parts(*s.stage, lengths);
  std::map<std::set<int>, int> parts_now;
  std::set<std::vector<int>> found;
  std::vector<int> way(stages.size());
  const std::function<void(std::size_t)> each_stage = [&](std::size_t k) {
    if (k == stages.size()) {
      if (std::any_of(way.begin(), way.end(), [](int parts) { return parts > 0; })) found.insert(way);
      return;
    }
    const SummingStage& s = stages[k];
    const int parts = s.stage ? parts_now.at(summed_axes(*s.stage)) : 0;
    if (parts > 0 && s.may_walk) way[k] = parts, each_stage(k + 1);
    if (parts == 0 || s.may_cut) way[k] = 0, each_stage(k + 1);
  };
  const std::function<void(std::map<std::set<int>, std::vector<int>>::iterator)> each_axes = [&](auto at) {
    if (at == parts_along.end()) return each_stage(0);
    for (const int parts : at->second) parts_now[at->first] = parts, each_axes(std::next(at));
  };
  each_axes(parts_along.begin());
  std::vector<std::vector<int>> ways(found.begin(), found.end());
  if (ways.size() <= kMostWays) return ways;
  // In halves first, and of those the fewest.
  const auto is_in_halves = [](const std::vector<int>& way) {
    return std::all_of(way.begin(), way.end(), [](int n) { return n == 0 || std::has_single_bit(unsigned(n)); });
  };
  const auto most = [](const std::vector<int>& way) { return *std::max_element(way.begin(), way.end()); };
  ways.erase(std::remove_if(ways.begin(), ways.end(), [&](const auto& way) { return !is_in_halves(way); }), ways.end());
  std::stable_sort(ways.begin(), ways.end(), [&](const auto& a, const auto& b) { return most(a) < most(b); });
  ways.resize(std::min(ways.size(), kMostWays));
  return ways;
}

std::vector<cellc_variant> summing_variants(const cellc_stage& stage, const GpuFacts& card,
                                            const std::vector<std::int64_t>& lengths) {
  std::vector<cellc_variant> all;
  std::vector<std::int64_t> now = lengths;
  std::vector<int> open;
  for (int c = 0; c < stage.channels; ++c)
    if (lengths[stage.channel_axes[c]] < 0) open.push_back(stage.channel_axes[c]);
  std::sort(open.begin(), open.end());
  open.erase(std::unique(open.begin(), open.end()), open.end());
  for (std::int64_t& n : now) n = std::max<std::int64_t>(1, n);
  std::vector<cellc_view> views(static_cast<std::size_t>(stage.symbols));
  cellc_stage_run run{};
  run.lengths = now.data();
  run.views = views.data();
  run.length = 1;
  const cellc_plan plan = cellc_sequential_plan();
  const auto of_lengths = [&] {
    if (cellc_lane_sums(&stage, now.data()) == 0) return;
    const cellc_lane_axes axes = cellc_merge_axes(&stage, &run);
    // Aligned to a warp's loads, to those of two lanes, to those of one. Of a card of one multiprocessor, that one may
    // have any number of lanes; of a large one each has few.
    for (const std::uint64_t address : {0, 8, 4})
      for (int doublings = 0; doublings <= 21; ++doublings)
        for (run.uniform = 0; run.uniform < 2; ++run.uniform) {
          for (cellc_view& v : views) v = {address, 0, 0, 0};
          run.sequences = doublings == 21 ? 1 : std::int64_t{1} << doublings;
          const cellc_facts on{
              doublings == 21 ? 1 << 20 : 1, card.shared_per_block, card.shared_per_multiprocessor, 0, 0, 0};
          const cellc_variant v = cellc_choose_variant(&stage, &on, &run, &axes, &plan);
          if (std::none_of(all.begin(), all.end(),
                           [&](const cellc_variant& other) { return std::memcmp(&other, &v, sizeof v) == 0; }))
            all.push_back(v);
        }
  };
  // None of one entry counts as an axis; multiples of a warp are divided into warps.
  const std::function<void(std::size_t)> each_axis = [&](std::size_t i) {
    if (i == open.size()) return of_lengths();
    for (const std::int64_t n : {1, 2, 3, 4, 8, 16, 32}) now[static_cast<std::size_t>(open[i])] = n, each_axis(i + 1);
  };
  each_axis(0);
  return all;
}

}  // namespace cellc
