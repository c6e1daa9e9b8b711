#include "runtime/cuda/call/derivative_values.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/data/bind.h"
#include "runtime/data/offsets.h"

namespace cellc {
namespace {

std::map<AxisId, std::int64_t> sizes_of(const CellGraph& cell, const CallShape& shape) {
  std::map<AxisId, std::int64_t> sizes;
  for (std::size_t a = 0; a < cell.header.size(); ++a) sizes[cell.header[a]] = shape.lengths[a];
  return sizes;
}

void* pointer(GpuAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace

DerivativeValues::DerivativeValues(CallGpu& gpu, const CellGraph& cell, const DirectedCall& call,
                                   const CallShape& shape, Dtype dtype, const std::vector<bool>& reads)
    : gpu_(gpu),
      cell_(cell),
      call_(call),
      shape_(shape),
      dtype_(dtype),
      arithmetic_(arithmetic_of(dtype)),
      layout_(call_layout(cell)),
      sizes_(sizes_of(cell, shape)),
      reads_(reads),
      moves_(gpu, dtype),
      kernels_(gpu, arithmetic_),
      absent_(gpu, cell, layout_, shape, sizes_, dtype, arithmetic_),
      lines_(gpu, cell, sizes_, moves_, arithmetic_, arithmetic_, shape.sequences),
      narrow_histories_(lines_.lines().size()) {
  run_.sizes = sizes_;
  run_.reverse = shape.reverse;
  run_.offsets = shape.offsets;
  if (!shape.packed())
    for (std::int64_t s = 0; s <= shape.sequences; ++s) run_.offsets.push_back(s * shape.steps);
  run_.symbols.resize(cell.symbols.size());
  run_.histories.resize(cell.symbols.size());
  for (const CallField& field : layout_.fields)
    if (field.kind == FieldKind::InputHistory)
      run_.histories[static_cast<std::size_t>(field.id)] = Array::view(arithmetic_, array_shape(field, shape), nullptr);
  for (const DelayLine& line : lines_.lines()) {
    std::vector<std::int64_t> lengths = array_shape(*layout_.find(FieldKind::StateHistory, line.state), shape);
    lengths[1] = line.deepest;
    run_.histories[static_cast<std::size_t>(line.symbol)] = Array::view(arithmetic_, lengths, nullptr);
  }
  offsets_ = GpuBuffer(gpu, run_.offsets.size() * 8);
  gpu.copy_in(offsets_.address(), run_.offsets.data(), run_.offsets.size() * 8, 0);
  staged_.resize(call.fields.size());
  copies_.resize(cell.updates.size());
  copied_rows_.resize(cell.updates.size());
  copy_histories_.resize(cell.updates.size());
}

std::size_t DerivativeValues::update_of(int symbol) const {
  for (std::size_t u = 0; u < cell_.updates.size(); ++u)
    if (cell_.updates[u].symbol == symbol) return u;
  throw std::logic_error("a state without an update");
}

std::int64_t DerivativeValues::entries(const std::vector<AxisId>& axes) const {
  std::int64_t count = 1;
  for (const std::int64_t n : lengths(cell_, run_, axes)) count *= n;
  return count;
}

RowsOfRun DerivativeValues::rows_of_run() const {
  const SequenceExtent extent = extent_of(run_.offsets);
  return {reinterpret_cast<const long long*>(offsets_.address()), extent.rows, extent.sequences,
          extent.uniform ? extent.longest : 0, shape_.reverse};
}

GpuAddress DerivativeValues::zeros(std::int64_t entries) {
  if (entries > zeroed_) {
    reserve(zeros_, entries);
    gpu_.zero(zeros_.address(), static_cast<std::size_t>(entries) * size_of(arithmetic_), 0);
    zeroed_ = entries;
  }
  return zeros_.address();
}

// Arrays ---------------------------------------------------------------------------------------------------

bool DerivativeValues::direct(std::size_t number, const CallArray& array) const {
  return dtype_of(call_.fields[number], dtype_) == arithmetic_ && array.step_stride == 0 &&
         array.sequence_stride == 0 && array.data % 16 == 0;
}

void DerivativeValues::move(std::size_t number, const CallArray& array, GpuAddress dense, bool out, GpuStream stream) {
  const CallField& field = call_.fields[number].of;
  const Dtype given = dtype_of(call_.fields[number], dtype_);
  const std::int64_t part = part_entries(field, shape_), all = all_entries(field, shape_);
  if (all == 0) return;
  std::int64_t sequences = 1, steps = all / part;
  PlacedRows there{array.data, all, part}, here{dense, all, part};
  if (field.is_rows()) {
    const cellc_strides full = strides_of(field, shape_, {array.sequence_stride, array.step_stride});
    if (!shape_.packed()) sequences = shape_.sequences, steps = shape_.steps;
    there = {array.data, full.sequence, full.step};
    here = {dense, steps * part, part};
  }
  if (out)
    moves_.move(there, given, here, arithmetic_, sequences, steps, part, stream);
  else
    moves_.move(here, arithmetic_, there, given, sequences, steps, part, stream);
}

GpuAddress DerivativeValues::read(std::size_t number, const CallArray& array, GpuStream stream) {
  if (direct(number, array)) return array.data;
  reserve(staged_[number], all_entries(call_.fields[number].of, shape_));
  move(number, array, staged_[number].address(), false, stream);
  return staged_[number].address();
}

GpuAddress DerivativeValues::written(std::size_t number, const CallArray& array) {
  if (direct(number, array)) return array.data;
  reserve(staged_[number], all_entries(call_.fields[number].of, shape_));
  return staged_[number].address();
}

void DerivativeValues::write(std::size_t number, const CallArray& array, GpuStream stream) {
  if (!direct(number, array)) move(number, array, staged_[number].address(), true, stream);
}

void DerivativeValues::take_lag(GpuAddress to, GpuAddress history, const Symbol& copy, GpuStream stream) {
  const std::int64_t n = entries(copy.axes), depth = cell_.symbols[static_cast<std::size_t>(copy.lag_of)].max_lag;
  const GpuAddress part = history + static_cast<GpuAddress>((copy.lag - 1) * n) * size_of(arithmetic_);
  moves_.move({to, n, n}, arithmetic_, {part, depth * n, n}, arithmetic_, shape_.sequences, 1, n, stream);
}

void DerivativeValues::put_lag(GpuAddress history, GpuAddress from, const Symbol& copy, GpuStream stream) {
  const std::int64_t n = entries(copy.axes), depth = cell_.symbols[static_cast<std::size_t>(copy.lag_of)].max_lag;
  const GpuAddress part = history + static_cast<GpuAddress>((copy.lag - 1) * n) * size_of(arithmetic_);
  moves_.move({part, depth * n, n}, arithmetic_, {from, n, n}, arithmetic_, shape_.sequences, 1, n, stream);
}

/// What a step contributes to the input that it reads itself.
void DerivativeValues::add(GpuAddress into, GpuAddress from, std::int64_t count, GpuStream stream) {
  if (count == 0) return;
  LaggedRows p{};
  p.run = {reinterpret_cast<const long long*>(offsets_.address()), count, 1, count, 0};
  p.rows = pointer(from);
  p.input = pointer(into);
  p.entries = p.along = 1;
  kernels_.launch_each("cellc_add_lagged_to_input", count, &p, stream);
}

// Values ---------------------------------------------------------------------------------------------------

void DerivativeValues::place(std::span<const CallArray> arrays, GpuStream stream) {
  symbols.assign(cell_.symbols.size(), 0);
  histories.assign(cell_.symbols.size(), 0);
  trajectories.assign(cell_.updates.size(), 0);
  by_field_.assign(layout_.fields.size(), {});
  for (std::size_t f = 0; f < layout_.fields.size(); ++f) {
    const CallField& field = layout_.fields[f];
    const auto number = call_.find(Quantity::Value, field.kind, field.id);
    if (!number) continue;
    const CallArray& array = by_field_[f] = arrays[*number];
    const auto id = static_cast<std::size_t>(field.id);
    switch (field.kind) {
      case FieldKind::Input:
        if (reads_[*number] && shape_.rows > 0) symbols[id] = read(*number, array, stream);
        break;
      case FieldKind::State:
        if (reads_[*number] && shape_.rows > 0) trajectories[update_of(field.id)] = read(*number, array, stream);
        break;
      case FieldKind::InputHistory:
        histories[id] = array.data ? read(*number, array, stream) : absent_[f];
        break;
      case FieldKind::Param:
      case FieldKind::Start:
        symbols[id] = array.data ? read(*number, array, stream) : absent_[f];
        break;
      default:
        break;
    }
  }
  absent_.compute(by_field_, symbols, moves_, stream);
  start_copies(arrays, stream);
  start_lines(arrays, stream);
  lag_trajectories(stream);
}

void DerivativeValues::start_copies(std::span<const CallArray> arrays, GpuStream stream) {
  for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
    const Symbol& copy = cell_.symbol_of(cell_.updates[u]);
    if (copy.lag_of < 0) continue;
    GpuAddress& start = symbols[static_cast<std::size_t>(cell_.updates[u].symbol)];
    start = symbols[static_cast<std::size_t>(copy.lag_of)];
    const CallArray& history = arrays[call_.number(Quantity::Value, FieldKind::StateHistory, copy.lag_of)];
    if (!history.data) continue;
    reserve(copies_[u], shape_.sequences * entries(copy.axes));
    start = copies_[u].address();
    take_lag(start, history.data, copy, stream);
  }
}

/// All that delay lines bring of steps before the first is as rows hold it.
void DerivativeValues::start_lines(std::span<const CallArray> arrays, GpuStream stream) {
  const auto given = [&](int state) {
    return arrays[call_.number(Quantity::Value, FieldKind::StateHistory, state)].data;
  };
  lines_.begin(symbols, given, histories, stream);
  for (std::size_t i = 0; i < narrow_histories_.size() && dtype_ != arithmetic_; ++i) {
    const DelayLine& line = lines_.lines()[i];
    const std::int64_t n = lines_.entries(line), rows = shape_.sequences * line.deepest;
    gpu_.reserve(narrow_histories_[i], static_cast<std::size_t>(rows * n) * size_of(dtype_));
    const PlacedRows wide{histories[static_cast<std::size_t>(line.symbol)], rows * n, n};
    const PlacedRows narrow{narrow_histories_[i].address(), rows * n, n};
    moves_.move(narrow, dtype_, wide, arithmetic_, 1, rows, n, stream);
    moves_.move(wide, arithmetic_, narrow, dtype_, 1, rows, n, stream);
  }
}

/// The trajectory of a copy is that of its state so many steps earlier: before the first row stand the state's start
/// and the starts of the copies that lag it less.
void DerivativeValues::lag_trajectories(GpuStream stream) {
  for (std::size_t u = 0; u < cell_.updates.size() && shape_.rows > 0; ++u) {
    const Symbol& copy = cell_.symbol_of(cell_.updates[u]);
    if (copy.lag_of < 0 || !trajectories[update_of(copy.lag_of)]) continue;
    const std::int64_t n = entries(copy.axes);
    reserve(copied_rows_[u], shape_.rows * n);
    reserve(copy_histories_[u], shape_.sequences * copy.lag * n);
    const auto before = [&](GpuAddress start, int place) {
      const GpuAddress to = copy_histories_[u].address() + static_cast<GpuAddress>(place * n) * size_of(arithmetic_);
      moves_.move({to, copy.lag * n, n}, arithmetic_, {start, n, n}, arithmetic_, shape_.sequences, 1, n, stream);
    };
    before(symbols[static_cast<std::size_t>(copy.lag_of)], 0);
    for (const StateUpdate& other : cell_.updates) {
      const Symbol& nearer = cell_.symbol_of(other);
      if (nearer.lag_of == copy.lag_of && nearer.lag < copy.lag)
        before(symbols[static_cast<std::size_t>(other.symbol)], nearer.lag);
    }
    LaggedRows p{};
    p.run = rows_of_run();
    p.rows = pointer(copied_rows_[u].address());
    p.input = pointer(trajectories[update_of(copy.lag_of)]);
    p.history = pointer(copy_histories_[u].address());
    p.entries = n;
    p.lag = p.depth = copy.lag;
    p.along = 1;
    kernels_.launch_each("cellc_lagged_rows", shape_.rows * n, &p, stream);
    trajectories[u] = copied_rows_[u].address();
  }
}

}  // namespace cellc
