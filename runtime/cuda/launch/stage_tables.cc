#include "runtime/cuda/launch/stage_tables.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/derive/fused_outs.h"
#include "compiler/graph/axes.h"

namespace cellc {

void StageTables::point() {
  stage.channel_axes = channel_axes.data();
  stage.places = places.data();
  stage.place_channel = place_channel.data();
  stage.place_axis = place_axis.data();
  stage.is_param = is_param.data();
  stage.entries = entries.data();
}

std::vector<std::int64_t> lengths_by_number(const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes) {
  std::vector<std::int64_t> lengths;
  for (const AxisId a : cell.header) {
    const auto found = sizes.find(a);
    lengths.push_back(found != sizes.end() ? found->second : cell.graph.axis(a).fixed.value_or(0));
  }
  return lengths;
}

cellc_facts host_facts(const GpuFacts& facts) {
  return {facts.multiprocessors, facts.shared_per_block, facts.shared_per_multiprocessor,
          facts.memory_bytes,    facts.l2_bytes,         facts.major >= 9};
}

const std::vector<AxisId>& axes_of_source(const CellGraph& cell, const StageCells& stage, const ArraySource& source) {
  switch (source.kind) {
    case ArraySource::Kind::Symbol:
      return cell.symbols[source.id].axes;
    case ArraySource::Kind::Trajectory:
    case ArraySource::Kind::Remade:
      return cell.symbol_of(cell.updates[source.id]).axes;
    case ArraySource::Kind::Before:
      return stage.before.cell.outs[source.id].index;
    case ArraySource::Kind::Once:
      return stage.once.cell.outs[source.id].index;
    case ArraySource::Kind::Sum:
      return stage.sums[source.id];
    case ArraySource::Kind::Out:
      return cell.outs[source.id].index;
    default:
      break;
  }
  throw std::logic_error("stage tables: no such array on a device");
}

StageTables stage_tables(const CellGraph& cell, const StageCells& stage, const CudaLaneCode& step,
                         const CudaLaneCode& step_with_transition, Dtype storage) {
  StageTables t;
  for (const AxisId a : stage.channels) t.channel_axes.push_back(header_position(cell, a));
  t.places.push_back(0);
  for (std::size_t s = 0; s < stage.lanes.sources.size(); ++s) {
    const std::vector<AxisId>& axes = axes_of_source(cell, stage, stage.lanes.sources[s]);
    for (std::size_t p = 0; p < axes.size(); ++p) {
      t.place_channel.push_back(stage.layouts[s].channel_of_place[p]);
      t.place_axis.push_back(header_position(cell, axes[p]));
    }
    t.places.push_back(static_cast<int>(t.place_axis.size()));
    t.is_param.push_back(stage.lanes.cell.symbols[s].kind == SymbolKind::Param);
  }
  for (const CudaLaneCode* code : {&step, &step_with_transition})
    for (const auto* list : {&code->states, &code->inputs, &code->params})
      for (const SymbolEntry& e : *list) t.entries.push_back({e.symbol, static_cast<int>(e.entry)});
  cellc_stage& s = t.stage;
  s.symbols = static_cast<int>(stage.layouts.size());
  s.channels = static_cast<int>(stage.channels.size());
  s.step_states = static_cast<int>(step.states.size());
  s.step_inputs = static_cast<int>(step.inputs.size());
  s.step_params = static_cast<int>(step.params.size());
  s.transition_states = static_cast<int>(step_with_transition.states.size());
  s.transition_inputs = static_cast<int>(step_with_transition.inputs.size());
  s.transition_params = static_cast<int>(step_with_transition.params.size());
  s.map_numbers = step_with_transition.map_numbers;
  s.storage_bytes = static_cast<int>(size_of(storage));
  s.real_bytes = storage == Dtype::F64 ? 8 : 4;
  s.sums = static_cast<int>(stage.sums.size());
  s.summed = stage.summed;
  s.bases = static_cast<int>(stage.sum_outs.size());
  s.outer = stage.outer;
  s.outer_summed = stage.outer_summed;
  s.scan_slack = 1;
  s.outs_read_states = outs_read_states(stage);
  for (const LaneOut& o : stage.outs) ++(o.accumulated ? s.accumulated : s.outs);
  t.point();
  return t;
}

std::size_t argument_words(const cellc_stage& stage) {
  const auto n = [](int count) { return static_cast<std::size_t>(count); };
  const std::size_t lists = n(stage.step_states) + n(stage.step_inputs) + n(stage.step_params) +
                            n(stage.transition_states) + n(stage.transition_inputs) + n(stage.transition_params);
  return 7 * n(stage.symbols) + 4 * n(stage.step_states) + n(stage.step_inputs) + lists / 2 + 64;
}

std::size_t argument_bytes(const cellc_stage& stage, const cellc_variant& variant) {
  int axes_in_use = 1;
  for (int p = 0; p < stage.places[stage.symbols]; ++p) axes_in_use = std::max(axes_in_use, stage.place_axis[p] + 1);
  for (int c = 0; c < stage.channels; ++c) axes_in_use = std::max(axes_in_use, stage.channel_axes[c] + 1);
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(axes_in_use), 1);
  const std::vector<cellc_view> views(static_cast<std::size_t>(stage.symbols) + 1);
  const std::vector<std::uint64_t> none(static_cast<std::size_t>(stage.symbols) + 1);
  cellc_stage_run run{};
  run.lengths = lengths.data();
  run.views = views.data();
  run.starts = run.finals = none.data();
  run.sequences = run.length = 1;
  cellc_lane_axes axes{};
  axes.channels = 1;
  cellc_plan plan = cellc_sequential_plan();
  plan.strategy = variant.kernel;
  plan.segment = 1;
  std::vector<std::uint64_t> room(argument_words(stage));
  const cellc_scratch at{};
  return cellc_stage_argument(&stage, &run, &axes, &plan, &variant, &at, {1, 32, 0, 0, 0}, 0, nullptr, room.data());
}

cellc_stage_facts stage_facts(const Stage& stage, bool carries, int storage_bytes) {
  cellc_stage_facts facts{};
  facts.exact = carries && (stage.linear || stage.scannable != Scannable::No);
  facts.forgets = stage.linear && stage.norm_bound && *stage.norm_bound == 0;
  // A cell that is not linear may forget by its data alone, and mostly does: segments find that out.
  facts.remembers = !carries && stage.linear && !(stage.norm_bound && *stage.norm_bound < 1);
  facts.storage_bytes = storage_bytes;
  return facts;
}

}  // namespace cellc
