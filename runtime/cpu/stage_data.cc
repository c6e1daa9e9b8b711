#include "runtime/cpu/stage_data.h"

#include <algorithm>

namespace cellc {

namespace {

std::byte* bytes_of(const Array& array) { return static_cast<std::byte*>(const_cast<void*>(array.data())); }

}  // namespace

StageData::StageData(const StageCells& stage, RunArrays& arrays, std::vector<Array> before, std::vector<Array> once)
    : stage_(stage),
      arrays_(arrays),
      run_(*arrays.run),
      before_(std::move(before)),
      once_(std::move(once)),
      dtype_(arrays.trajectories[stage.states[0]].dtype()) {
  const CellGraph& cell = *arrays.cell;
  for (AxisId a : stage.channels) channels_ *= length(a);
  lanes_.channels = channels_;
  lanes_.rows = run_.offsets.back();
  lanes_.direction = run_.reverse ? -1 : 1;
  lanes_.sizes = run_.sizes;
  for (std::size_t s = 0; s < stage.lanes.sources.size(); ++s) {
    const ArraySource source = stage.lanes.sources[s];
    std::vector<AxisId> axes;
    const Array* array = nullptr;
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        axes = cell.symbols[source.id].axes;
        array = &run_.symbols[source.id];
        break;
      case ArraySource::Kind::Trajectory:
      case ArraySource::Kind::Remade:  // whole steps are looked at afterwards
        axes = cell.symbols[cell.updates[source.id].symbol].axes;
        array = &arrays.trajectories[source.id];
        break;
      case ArraySource::Kind::Before:
        axes = stage.before.cell.outs[source.id].index;
        array = &before_[source.id];
        break;
      case ArraySource::Kind::Once:
        axes = stage.once.cell.outs[source.id].index;
        array = &once_[source.id];
        break;
      case ArraySource::Kind::Out:
        axes = cell.outs[source.id].index;
        array = &arrays.outs[source.id];
        break;
      default:
        throw std::logic_error("stage data: lanes read no such array");
    }
    LaneArray a = layout(axes, stage.layouts[s].channel_of_place);
    a.data = bytes_of(*array);
    if (stage.lanes.cell.symbols[s].kind == SymbolKind::Param) a.row_entries = 0;
    lanes_.symbols.push_back(std::move(a));
  }
}

std::int64_t StageData::length(AxisId axis) const { return run_.sizes.at(arrays_.cell->graph.axis(axis).extent_of); }

LaneArray StageData::layout(const std::vector<AxisId>& axes, const std::vector<int>& channel_of_place) const {
  // The cells of a stage have the axes of the whole cell, and the lanes are never without contents.
  const Graph& g = stage_.lanes.cell.graph;
  std::vector<std::int64_t> lengths, strides(axes.size());
  for (AxisId a : axes) lengths.push_back(run_.sizes.at(g.axis(a).extent_of));
  std::int64_t stride = 1;
  for (std::size_t p = axes.size(); p-- > 0;) strides[p] = stride, stride *= lengths[p];
  LaneArray result;
  result.row_entries = stride;
  result.channel.assign(static_cast<std::size_t>(channels_), 0);
  std::vector<std::int64_t> channel_stride(stage_.channels.size(), 0);
  for (std::size_t p = 0; p < axes.size(); ++p)
    if (channel_of_place[p] >= 0) channel_stride[channel_of_place[p]] += strides[p];
  for (std::int64_t c = 0; c < channels_; ++c) {
    std::int64_t rest = c;
    for (std::size_t i = stage_.channels.size(); i-- > 0;) {
      const std::int64_t n = length(stage_.channels[i]);
      result.channel[c] += rest % n * channel_stride[i];
      rest /= n;
    }
  }
  result.mixed = {0};
  for (std::size_t p = 0; p < axes.size(); ++p) {
    if (channel_of_place[p] >= 0) continue;
    std::vector<std::int64_t> next;
    for (std::int64_t m : result.mixed)
      for (std::int64_t i = 0; i < lengths[p]; ++i) next.push_back(m + i * strides[p]);
    result.mixed = std::move(next);
  }
  result.in_place = result.mixed.size() == 1;
  for (std::int64_t c = 0; c < channels_; ++c) result.in_place &= result.channel[c] == c;
  return result;
}

LaneData StageData::extended(const CellGraph& cell) const {
  LaneData data = lanes_;
  for (std::size_t s = data.symbols.size(); s < cell.symbols.size(); ++s) {
    LaneArray a;
    std::int64_t mixed = 1;
    for (AxisId axis : cell.symbols[s].axes)
      if (cell.graph.axis(axis).extent_of != stage_.lane) mixed *= run_.sizes.at(cell.graph.axis(axis).extent_of);
    a.mixed.assign(static_cast<std::size_t>(mixed), 0);
    a.in_place = mixed == 1;
    data.symbols.push_back(std::move(a));
  }
  return data;
}

LaneArray StageData::as_input(int state, const Array& trajectory, bool shifted) const {
  LaneArray a = lanes_.symbols[state];
  a.data = bytes_of(trajectory);
  a.shifted = shifted;
  if (shifted) a.first = bytes_of(run_.symbols[arrays_.cell->updates[stage_.states[state]].symbol]);
  return a;
}

SegmentStates StageData::make_states(const CellGraph& cell, std::int64_t segments) const {
  SegmentStates result;
  for (const StateUpdate& u : cell.updates) {
    std::int64_t mixed = 1;
    for (AxisId axis : cell.symbols[u.symbol].axes)
      if (cell.graph.axis(axis).extent_of != stage_.lane) mixed *= run_.sizes.at(cell.graph.axis(axis).extent_of);
    result.arrays.push_back(Array(dtype_, {segments, mixed, channels_}));
  }
  return result;
}

namespace {

/// [mixed, channel] of a segment from an array's row.
template <typename Number>
void gather_row(const LaneArray& a, const Number* row, Number* to) {
  for (const std::int64_t m : a.mixed)
    for (const std::int64_t c : a.channel) *to++ = row[m + c];
}

void gather_row(Dtype dtype, const LaneArray& a, const Array& array, std::int64_t row, Array& to,
                std::int64_t segment) {
  const std::int64_t each = static_cast<std::int64_t>(a.mixed.size() * a.channel.size());
  if (dtype == Dtype::F64)
    gather_row(a, static_cast<const double*>(array.data()) + row * a.row_entries,
               static_cast<double*>(to.data()) + segment * each);
  else
    gather_row(a, static_cast<const float*>(array.data()) + row * a.row_entries,
               static_cast<float*>(to.data()) + segment * each);
}

}  // namespace

void StageData::put_start(SegmentStates& to, std::int64_t segment, std::int64_t sequence) const {
  for (int i = 0; i < states(); ++i) {
    const Array& start = run_.symbols[arrays_.cell->updates[stage_.states[i]].symbol];
    gather_row(dtype_, lanes_.symbols[i], start, sequence, to.arrays[i], segment);
  }
}

void StageData::put_row(SegmentStates& to, std::int64_t segment, std::int64_t row) const {
  for (int i = 0; i < states(); ++i) gather_row(dtype_, lanes_.symbols[i], trajectory(i), row, to.arrays[i], segment);
}

void StageData::use_trajectory(int state, Array array) {
  trajectory(state) = std::move(array);
  lanes_.symbols[state].data = bytes_of(trajectory(state));
}

std::vector<Segment> StageData::cut(std::int64_t length) const {
  std::vector<Segment> result;
  for (std::int64_t s = 0; s < sequences(); ++s)
    for (std::int64_t at = 0; at < steps(s); at += length)
      result.push_back({static_cast<std::int32_t>(s), at, std::min(length, steps(s) - at), row(s, at)});
  return result;
}

}  // namespace cellc
