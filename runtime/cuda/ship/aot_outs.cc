#include "runtime/cuda/ship/aot_outs.h"

#include <algorithm>
#include <functional>

#include "runtime/cuda/ship/aot_variants.h"

namespace cellc {

namespace {

/// Each is one more set of kernels for the outs.
constexpr std::size_t kMostWays = 8;

}  // namespace

std::vector<std::vector<int>> ways_of_making_outs(const std::vector<OutStage>& stages) {
  std::vector<std::vector<int>> ways;
  std::vector<int> way(stages.size());
  // Those that make more come first.
  const std::function<void(std::size_t)> each_stage = [&](std::size_t k) {
    if (ways.size() == kMostWays) return;
    if (k == stages.size()) {
      if (std::any_of(way.begin(), way.end(), [](int how) { return how != 0; })) ways.push_back(way);
      return;
    }
    if (stages[k].may_make) way[k] = CELLC_MAKES_OUTS, each_stage(k + 1);
    if (!stages[k].may_make || stages[k].may_leave) way[k] = 0, each_stage(k + 1);
  };
  each_stage(0);
  return ways;
}

std::vector<cellc_variant> out_variants(const cellc_stage& stage, const cellc_stage_facts& facts,
                                        const ShipRequest& request, const std::vector<std::int64_t>& lengths,
                                        bool last) {
  std::vector<cellc_variant> all = aot_variants(stage, facts, request, lengths, last);
  std::erase_if(all, [](const cellc_variant& v) { return v.kernel == CELLC_SEGMENTED; });
  if (std::none_of(all.begin(), all.end(), [](const cellc_variant& v) { return v.kernel == CELLC_SCAN; })) return all;
  const cellc_facts on{1 << 20, request.card.shared_per_block, request.card.shared_per_multiprocessor, 0, 0, 0};
  cellc_variant rewalk = cellc_sequential_variant(&stage, &on, 0, 0, 0, 1, 0);
  rewalk.rewalks = 1;
  all.push_back(rewalk);
  return all;
}

}  // namespace cellc
