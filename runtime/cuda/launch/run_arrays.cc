#include "runtime/cuda/launch/run_arrays.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "runtime/data/bind.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/offsets.h"

namespace cellc {

// To the device ------------------------------------------------------------------------------------------

void CudaRunArrays::reserve(GpuBuffer& buffer, std::size_t bytes) const {
  if (buffer.bytes() >= bytes && (bytes == 0 || buffer.address())) return;
  buffer = GpuBuffer();
  buffer = GpuBuffer(gpu, bytes);
}

void CudaRunArrays::put(GpuBuffer& buffer, const Array& array, Dtype as) const {
  if (!array.data()) return;
  const Array converted = convert(array, as);
  const std::size_t bytes = static_cast<std::size_t>(converted.count()) * size_of(as);
  reserve(buffer, bytes);
  if (bytes) gpu.copy_in(buffer.address(), converted.data(), bytes, 0);
}

void CudaRunArrays::begin(const BoundRun& run) {
  bound.sizes = run.sizes;
  bound.offsets = run.offsets;
  bound.reverse = run.reverse;
  bound.threads = run.threads;
  bound.histories = run.histories;
  bound.symbols.assign(run.symbols.size(), Array());
  placed = {};
  placed.inputs.resize(run.symbols.size());
  placed.values.resize(run.symbols.size());
  placed.histories.resize(run.symbols.size());
  placed.trajectories.resize(cell.updates.size());
  placed.finals.resize(cell.updates.size());
  placed.outs.resize(cell.outs.size());
  const SequenceExtent extent = extent_of(run.offsets);
  sequences = extent.sequences, rows = extent.rows, longest = extent.longest, uniform = extent.uniform;
}

void CudaRunArrays::copy_in(const BoundRun& run, Dtype as) {
  storage = as;
  const std::size_t count = cell.symbols.size();
  symbols_.resize(count);
  histories_.resize(count);
  for (std::size_t s = 0; s < count; ++s) {
    const FieldKind kind = field_of(cell.symbols[s].kind);
    put(symbols_[s], run.symbols[s], dtype_of(kind, storage));
    if (kind != FieldKind::Input) bound.symbols[s] = run.symbols[s];
    if (s >= run.histories.size()) continue;
    const bool line = cell.symbols[s].line_of >= 0 && run.histories[s].data();
    put(histories_[s], line ? history_as_started(cell, run, s) : run.histories[s],
        dtype_of(FieldKind::InputHistory, storage));
  }
  reserve(offsets_, run.offsets.size() * 8);
  gpu.copy_in(offsets_.address(), run.offsets.data(), run.offsets.size() * 8, 0);
  trajectories_.resize(cell.updates.size());
  finals_.resize(cell.updates.size());
  outs_.resize(cell.outs.size());
}

void CudaRunArrays::reserve_rows(GpuBuffer& buffer, const std::vector<AxisId>& axes) {
  reserve(buffer, bytes_of_rows(axes));
}
std::size_t CudaRunArrays::bytes_of_rows(const std::vector<AxisId>& axes) const {
  return static_cast<std::size_t>(rows * entries(axes)) * size_of(storage);
}

void CudaRunArrays::reserve_written(const std::vector<bool>& unwritten, const std::vector<bool>& outs, bool drops) {
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const std::vector<AxisId>& axes = cell.symbols[cell.updates[u].symbol].axes;
    if (!placed.trajectories[u].data && !unwritten[u]) reserve_rows(trajectories_[u], axes);
    if (drops && unwritten[u]) trajectories_[u] = GpuBuffer();  // where it was, kernels would write
    if (!placed.finals[u])
      reserve(finals_[u], static_cast<std::size_t>(sequences * entries(axes)) * size_of(arithmetic));
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (!placed.outs[o] && outs[o]) reserve_rows(outs_[o], cell.outs[o].index);
}

void CudaRunArrays::reserve_between(const std::vector<const StageCells*>& stages) {
  before_.resize(stages.size());
  once_.resize(stages.size());
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (!stages[k]) continue;
    const std::vector<Out>&before = stages[k]->before.cell.outs, &once = stages[k]->once.cell.outs;
    // Never fewer: a graph may have been captured by another plan, and run again after this one.
    before_[k].resize(std::max(before_[k].size(), before.size()));
    for (std::size_t o = 0; o < before.size(); ++o) reserve_rows(before_[k][o], before[o].index);
    once_[k].resize(std::max(once_[k].size(), once.size()));
    for (std::size_t o = 0; o < once.size(); ++o)
      reserve(once_[k][o], static_cast<std::size_t>(entries(once[o].index)) * size_of(arithmetic));
  }
}

void CudaRunArrays::reserve_remade(const std::vector<bool>& updates, const std::vector<bool>& states) {
  is_remade_ = updates;
  remade_.resize(updates.size());
  befores_.resize(updates.size());
  for (std::size_t u = 0; u < updates.size(); ++u) {
    if (updates[u]) reserve_rows(remade_[u], cell.symbol_of(cell.updates[u]).axes);
    if (states[u]) reserve_rows(befores_[u], cell.symbol_of(cell.updates[u]).axes);
  }
}

void CudaRunArrays::reserve_outs(std::vector<std::vector<GpuBuffer>>& of, int stage, const DerivedCell& derived) {
  const auto k = static_cast<std::size_t>(stage);
  of.resize(std::max(of.size(), k + 1));
  of[k].resize(std::max(of[k].size(), derived.cell.outs.size()));
  for (std::size_t o = 0; o < derived.cell.outs.size(); ++o) reserve_rows(of[k][o], derived.cell.outs[o].index);
}
void CudaRunArrays::reserve_fixed(int stage, const DerivedCell& fixed) { reserve_outs(before_, stage, fixed); }
void CudaRunArrays::reserve_mixing(int stage, const DerivedCell& mixing) { reserve_outs(mixing_, stage, mixing); }

namespace {

/// Of the first, one for each out: there may be more, for the stage run in another way.
std::vector<GpuAddress> addresses(const std::vector<GpuBuffer>& buffers, const DerivedCell& derived) {
  std::vector<GpuAddress> all;
  for (std::size_t o = 0; o < derived.cell.outs.size(); ++o) all.push_back(buffers[o].address());
  return all;
}

}  // namespace

std::vector<GpuAddress> CudaRunArrays::fixed_sums(int stage, const DerivedCell& fixed) const {
  return addresses(before_[static_cast<std::size_t>(stage)], fixed);
}
std::vector<GpuAddress> CudaRunArrays::mixing_terms(int stage, const DerivedCell& mixing) const {
  return addresses(mixing_[static_cast<std::size_t>(stage)], mixing);
}

void CudaRunArrays::reserve_sums(const std::vector<std::optional<FusedStage>>& summed, const std::vector<int>& parts,
                                 const std::function<std::int64_t(int)>& outer_parts) {
  sums_.resize(summed.size());
  parts_.clear();
  for (std::size_t k = 0; k < summed.size(); ++k) {
    if (parts[k] == 0) continue;
    const StageCells& stage = summed[k]->stage;
    const std::size_t inner = stage.sums.size() - static_cast<std::size_t>(stage.outer);
    sums_[k].resize(stage.sums.size());
    const std::int64_t outer = stage.outer > 0 ? outer_parts(static_cast<int>(k)) : 0;
    for (std::size_t i = 0; i < stage.sums.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(rows * entries(stage.sums[i])) * size_of(arithmetic);
      reserve(sums_[k][i], bytes * static_cast<std::size_t>(i < inner ? parts[k] : outer));
      for (int p = 0; p < (i < inner ? parts[k] : 1); ++p)
        parts_.push_back(sums_[k][i].address() + static_cast<GpuAddress>(p) * bytes);
    }
  }
}

void CudaRunArrays::reserve_accumulated(int out, std::int64_t parts) {
  accumulated_.resize(cell.outs.size());
  Accumulated& a = accumulated_[static_cast<std::size_t>(out)];
  a.parts = parts;
  reserve(a.buffer, accumulated_bytes(out));
}
std::size_t CudaRunArrays::accumulated_bytes(int out) const {
  return static_cast<std::size_t>(accumulated(out).parts * entries(cell.outs[static_cast<std::size_t>(out)].index)) *
         size_of(arithmetic);
}

void CudaRunArrays::drop() {
  for (auto* buffers : {&symbols_, &histories_, &trajectories_, &finals_, &outs_, &remade_, &befores_})
    buffers->clear();
  is_remade_.clear();
  for (auto* buffers : {&before_, &once_, &sums_, &mixing_}) buffers->clear();
  accumulated_.clear();
  parts_.clear();
  offsets_ = GpuBuffer();
}

// Where things lie ---------------------------------------------------------------------------------------

std::vector<std::int64_t> CudaRunArrays::shape_of(std::int64_t first, const std::vector<AxisId>& axes) const {
  return AxisLengths(cell.graph, bound.sizes).shape({first}, axes);
}

std::int64_t CudaRunArrays::entries(const std::vector<AxisId>& axes) const {
  return AxisLengths(cell.graph, bound.sizes).entries(axes);
}

PlacedRows CudaRunArrays::rows_of(const PlacedRows& given, const GpuBuffer& own,
                                  const std::vector<AxisId>& axes) const {
  if (given.data) return given;
  const std::int64_t row = entries(axes);
  return {own.address(), uniform ? row * longest : 0, row};
}

PlacedRows CudaRunArrays::input_rows_of(int symbol) const {
  return rows_of(placed.inputs[symbol], symbols_[symbol], cell.symbols[symbol].axes);
}

PlacedRows CudaRunArrays::trajectory_of(int update) const {
  return rows_of(placed.trajectories[update], trajectories_[update], cell.symbols[cell.updates[update].symbol].axes);
}

PlacedRows CudaRunArrays::new_values_of(int update) const {
  const auto u = static_cast<std::size_t>(update);
  if (u >= is_remade_.size() || !is_remade_[u]) return trajectory_of(update);
  return rows_of({}, remade_[u], cell.symbol_of(cell.updates[u]).axes);
}

// As kernels are given them ------------------------------------------------------------------------------

NestArray CudaRunArrays::input_rows(int symbol) const {
  NestArray a;
  const bool input = cell.symbols[symbol].kind == SymbolKind::Input;
  const PlacedRows rows = cell.symbols[symbol].line_of >= 0 ? rows_of_line(symbol)
                          : input                           ? input_rows_of(symbol)
                                                            : PlacedRows{value_of(symbol), 0, -1};
  a.data = rows.data;
  a.row_stride = rows.row;
  a.history = placed.histories[symbol] ? placed.histories[symbol] : histories_[symbol].address();
  if (a.history) a.history_depth = bound.histories[symbol].shape()[1];
  return a;
}

/// The rows that the run writes of a delay line's state.
PlacedRows CudaRunArrays::rows_of_line(int symbol) const {
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    if (cell.updates[u].symbol == cell.symbols[symbol].line_of) return trajectory_of(static_cast<int>(u));
  throw std::logic_error("cuda: a delay line of no state");
}

NestRun CudaRunArrays::empty_run() const {
  NestRun r;
  r.sizes = bound.sizes;
  r.offsets = bound.offsets;
  r.device_offsets = offsets_.address();
  r.reverse = bound.reverse;
  return r;
}

NestRun CudaRunArrays::whole_run() const {
  NestRun r = empty_run();
  for (std::size_t s = 0; s < symbols_.size(); ++s) r.symbols.push_back(input_rows(static_cast<int>(s)));
  for (std::size_t u = 0; u < trajectories_.size(); ++u) {
    r.states.push_back(trajectory_of(static_cast<int>(u)).data);
    r.finals.push_back(final_of(u));
  }
  for (std::size_t o = 0; o < outs_.size(); ++o) r.outs.push_back(out_of(o));
  return r;
}

NestRun CudaRunArrays::rows_run(const std::vector<ArraySource>& sources, int k) const {
  NestRun r = empty_run();
  for (const ArraySource s : sources) {
    NestArray a;
    switch (s.kind) {
      case ArraySource::Kind::Symbol:
        a = input_rows(s.id);
        break;
      case ArraySource::Kind::Trajectory:
      case ArraySource::Kind::Remade: {
        const PlacedRows rows = s.kind == ArraySource::Kind::Remade ? new_values_of(s.id) : trajectory_of(s.id);
        a.data = rows.data;
        a.row_stride = rows.row;
        a.history = value_of(cell.updates[s.id].symbol);
        a.history_depth = 1;
        break;
      }
      case ArraySource::Kind::Before:
        a.data = before_[k][s.id].address();
        break;
      case ArraySource::Kind::Mixing:
        a.data = mixing_[k][s.id].address();
        break;
      case ArraySource::Kind::Once:
        a.data = once_[k][s.id].address();
        break;
      case ArraySource::Kind::Sum:
        a.data = parts_[s.id];
        break;
      default:
        throw std::logic_error("cuda: no such array on a device");
    }
    r.symbols.push_back(a);
  }
  return r;
}

NestRun CudaRunArrays::once_run(const StageCells& stage, int k) const {
  NestRun r = rows_run(stage.once.sources, k);
  r.offsets = {0, 1};
  for (std::size_t o = 0; o < stage.once.cell.outs.size(); ++o) r.outs.push_back(once_[k][o].address());
  return r;
}

NestRun CudaRunArrays::before_run(const StageCells& stage, int k) const {
  NestRun r = rows_run(stage.before.sources, k);
  for (std::size_t o = 0; o < stage.before.cell.outs.size(); ++o) r.outs.push_back(before_[k][o].address());
  return r;
}

NestRun CudaRunArrays::remade_run(const DerivedCell& pass, int k) const {
  NestRun r = rows_run(pass.sources, k);
  for (const ArraySink& sink : pass.sinks) {
    if (sink.kind == ArraySink::Kind::Step) {
      r.outs.push_back(remade_[static_cast<std::size_t>(sink.id)].address());
      continue;
    }
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == sink.id) r.outs.push_back(befores_[u].address());
  }
  return r;
}

StageRun CudaRunArrays::single_steps(const StageCells& stage, int k, const std::vector<int>& updates) const {
  StageRun run = stage_run(stage, k);
  run.sequences = rows;
  run.length = 1;
  run.uniform = true;
  run.offsets = 0;
  run.reverse = false;
  for (std::size_t s = 0; s < run.symbols.size(); ++s) {
    DeviceArray& array = run.symbols[s];
    if (s < stage.states.size()) {
      const int u = stage.states[s];
      const bool wanted = std::find(updates.begin(), updates.end(), u) != updates.end();
      array.data = wanted ? remade_[static_cast<std::size_t>(u)].address() : 0;
      array.row = entries(cell.symbol_of(cell.updates[static_cast<std::size_t>(u)]).axes);
      run.starts[s] = befores_[static_cast<std::size_t>(u)].address();
      run.finals[s] = 0;
    }
    array.batch = array.row;
  }
  return run;
}

NestRun CudaRunArrays::after_run(const DerivedCell& after) const {
  NestRun r = rows_run(after.sources, -1);
  for (const ArraySink& sink : after.sinks) r.outs.push_back(out_of(static_cast<std::size_t>(sink.id)));
  return r;
}

DeviceArray CudaRunArrays::device_array(GpuAddress data, const std::vector<AxisId>& axes) const {
  DeviceArray a;
  a.data = data;
  a.lengths = AxisLengths(cell.graph, bound.sizes).shape({}, axes);
  a.row = entries(axes);
  a.batch = uniform ? a.row * longest : 0;
  return a;
}

StageRun CudaRunArrays::stage_run(const StageCells& stage, int k) const {
  const auto put_rows = [](DeviceArray& array, const PlacedRows& rows) {
    array.data = rows.data;
    array.row = rows.row;
    array.batch = rows.batch;
    array.last = rows.last;
  };
  StageRun run;
  run.sizes = bound.sizes;
  run.sequences = sequences;
  run.length = longest;
  run.uniform = uniform;
  run.offsets = uniform ? 0 : offsets_.address();
  run.reverse = bound.reverse;
  for (const ArraySource& source : stage.lanes.sources) {
    const int id = source.id;
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        run.symbols.push_back(device_array(value_of(id), cell.symbols[id].axes));
        if (cell.symbols[id].kind == SymbolKind::Input) put_rows(run.symbols.back(), input_rows_of(id));
        break;
      case ArraySource::Kind::Trajectory:
      case ArraySource::Kind::Remade:
        run.symbols.push_back(device_array(0, cell.symbols[cell.updates[id].symbol].axes));
        put_rows(run.symbols.back(), source.kind == ArraySource::Kind::Remade ? new_values_of(id) : trajectory_of(id));
        break;
      case ArraySource::Kind::Before:
        run.symbols.push_back(device_array(before_[k][id].address(), stage.before.cell.outs[id].index));
        break;
      case ArraySource::Kind::Once:
        run.symbols.push_back(device_array(once_[k][id].address(), stage.once.cell.outs[id].index));
        break;
      case ArraySource::Kind::Out: {
        const std::vector<AxisId>& index = cell.outs[static_cast<std::size_t>(id)].index;
        if (std::any_of(stage.outs.begin(), stage.outs.end(),
                        [&](const LaneOut& o) { return o.out == id && o.accumulated; })) {
          const bool there = static_cast<std::size_t>(id) < accumulated_.size();
          run.symbols.push_back(
              device_array(there ? accumulated_[static_cast<std::size_t>(id)].buffer.address() : 0, index));
          run.symbols.back().batch = run.symbols.back().row;  // from part to part
          run.symbols.back().row = 0;
        } else {
          run.symbols.push_back(device_array(out_of(static_cast<std::size_t>(id)), index));
        }
        break;
      }
      case ArraySource::Kind::Sum:
        run.symbols.push_back(device_array(sums_[k][id].address(), stage.sums[id]));
        (id + stage.outer < static_cast<int>(stage.sums.size()) ? run.part : run.outer_part) =
            rows * run.symbols.back().row;
        break;
      default:
        throw std::logic_error("cuda: no such array on a device");
    }
  }
  for (const int u : stage.states) {
    run.starts.push_back(value_of(cell.updates[u].symbol));
    run.finals.push_back(final_of(static_cast<std::size_t>(u)));
  }
  // Terms and outs start as nothing and end nowhere.
  run.starts.resize(stage.states.size() + stage.sum_outs.size() + stage.sums.size());
  run.finals.resize(run.starts.size());
  return run;
}

// And back -----------------------------------------------------------------------------------------------

Array CudaRunArrays::fetch(GpuAddress from, Dtype type, const std::vector<std::int64_t>& shape,
                           GpuStream stream) const {
  Array array = Array::uninitialised(type, shape);
  const std::size_t bytes = static_cast<std::size_t>(array.count()) * size_of(type);
  if (bytes) gpu.copy_out(array.data(), from, bytes, stream);
  return array;
}

Array CudaRunArrays::fetch_rows(GpuAddress from, const std::vector<AxisId>& axes, GpuStream stream) const {
  return fetch(from, storage, shape_of(rows, axes), stream);
}

Array CudaRunArrays::fetch_trajectory(std::size_t update, GpuStream stream) const {
  return fetch_rows(trajectories_[update].address(), cell.symbols[cell.updates[update].symbol].axes, stream);
}

RunOutput CudaRunArrays::download(Dtype dtype, const Wanted& wanted, GpuStream stream) const {
  RunOutput output;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const int symbol = cell.updates[u].symbol;
    output.states.push_back(wanted.state(u) ? convert(fetch_trajectory(u, stream), dtype) : Array());
    output.finals.push_back(
        !wanted.final(u) ? Array()
        : rows == 0      ? convert(bound.symbols[symbol], arithmetic)
                    : fetch(finals_[u].address(), arithmetic, shape_of(sequences, cell.symbols[symbol].axes), stream));
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    output.outs.push_back(wanted.out(o) ? convert(fetch_rows(outs_[o].address(), cell.outs[o].index, stream), dtype)
                                        : Array());
  return output;
}

}  // namespace cellc
