#include "tests/gpu/needed_lengths.h"

#include <algorithm>

#include "compiler/derive/pipeline.h"

namespace cellc {

std::map<AxisId, std::int64_t> needed_lengths(const LoweredCell& cell, const std::map<std::string, std::int64_t>& sizes,
                                              bool all) {
  const StagedCell staged = split_stages(cell.graph, cell.structure);
  std::map<AxisId, std::int64_t> lengths;
  for (const AxisId a : cell.graph.header) {
    const auto is_channel_of = [&](const StageCells& stage) {
      return std::any_of(stage.channels.begin(), stage.channels.end(),
                         [&](AxisId c) { return cell.graph.graph.axis(c).extent_of == a; });
    };
    if (!cell.graph.graph.axis(a).fixed &&
        (all || !std::all_of(staged.stages.begin(), staged.stages.end(), is_channel_of)))
      lengths[a] = sizes.at(cell.graph.graph.axis(a).name);
  }
  return lengths;
}

}  // namespace cellc
