#include "tests/gpu/call_on_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/graph/delay_lines.h"

namespace cellc {

// A copy at lag L holds what the one at lag L - 1 held a step before.
void follow_lags(const CellGraph& cell, const BoundRun& run, RunOutput& output) {
  std::map<int, std::size_t> of_symbol;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) of_symbol[cell.updates[u].symbol] = u;
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1, all = run.offsets.back();
  for (int lag = 1; lag <= 64; ++lag)
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Symbol& symbol = cell.symbols[cell.updates[u].symbol];
      if (symbol.lag_of < 0 || symbol.lag != lag) continue;
      int before = symbol.lag_of;
      for (std::size_t s = 0; s < cell.symbols.size(); ++s)
        if (cell.symbols[s].lag_of == symbol.lag_of && cell.symbols[s].lag == lag - 1) before = static_cast<int>(s);
      const Array& follows = output.states[of_symbol.at(before)];
      const Array& start = run.symbols[before];
      Array &rows = output.states[u], &last = output.finals[u];
      const std::int64_t n = all ? rows.count() / all : sequences ? last.count() / sequences : 0;
      for (std::int64_t b = 0; b < sequences; ++b) {
        const std::int64_t first = run.offsets[b], end = run.offsets[b + 1];
        for (std::int64_t t = 0; t < end - first; ++t) {
          const std::int64_t row = run.reverse ? end - 1 - t : first + t, from = run.reverse ? row + 1 : row - 1;
          for (std::int64_t e = 0; e < n; ++e)
            rows.set(row * n + e, t == 0 ? start.get(b * n + e) : follows.get(from * n + e));
        }
        for (std::int64_t e = 0; e < n; ++e)
          last.set(b * n + e, end > first ? rows.get((run.reverse ? first : end - 1) * n + e)
                                          : run.symbols[cell.updates[u].symbol].get(b * n + e));
      }
    }
}

CallArrays::CallArrays(Gpu& gpu, const CellGraph& cell, const Binding& binding, Dtype dtype, const CallLook& look)
    : gpu_(gpu), cell_(cell), dtype_(dtype), look_(look), layout_(call_layout(cell)) {
  for (const AxisId a : cell.header) shape_.lengths.push_back(binding.run.sizes.at(a));
  shape_.sequences = binding.batch;
  shape_.rows = binding.run.offsets.back();
  if (binding.packed)
    shape_.offsets = binding.run.offsets;
  else
    shape_.steps = binding.length;
  shape_.reverse = binding.run.reverse;
  arrays_.resize(layout_.fields.size());
  for (std::size_t i = 0; i < layout_.fields.size(); ++i) {
    const CallField& f = layout_.fields[i];
    Held h;
    h.dtype = f.is_storage() ? dtype : arithmetic_of(dtype);
    h.part = 1;
    for (const int a : f.axes) h.part *= shape_.lengths[static_cast<std::size_t>(a)];
    if (f.is_history()) h.part *= history_depth(f.reaches, shape_.lengths);
    h.parts = f.is_rows() ? shape_.rows : f.kind == FieldKind::Param ? 1 : shape_.sequences;
    h.step = h.part, h.sequence = h.part * shape_.steps;
    if (f.is_rows() && look.strided) {
      // Odd gaps: nothing is aligned to sixteen bytes.
      h.step = binding.packed ? h.part + 3 : shape_.sequences * (h.part + 1) + 2;
      h.sequence = h.part + 1;
      arrays_[i].step_stride = h.step;
      if (!binding.packed) arrays_[i].sequence_stride = h.sequence;
    }
    h.entries = f.is_rows() && h.parts > 0 ? place(h, h.parts - 1) + h.part : h.parts * h.part;
    const bool optional =
        !f.required() && f.kind != FieldKind::State && f.kind != FieldKind::Out && f.kind != FieldKind::Final;
    const bool given = f.kind == FieldKind::Param || f.kind == FieldKind::Start;
    if (look.leave_out && (given ? optional : f.is_history())) {
      held_.push_back(std::move(h));
      continue;
    }
    // The final of a start stands where its start does.
    const FieldKind start = f.kind == FieldKind::Final               ? FieldKind::Start
                            : f.kind == FieldKind::FinalStateHistory ? FieldKind::StateHistory
                            : f.kind == FieldKind::FinalInputHistory ? FieldKind::InputHistory
                                                                     : f.kind;
    if (look.in_place && start != f.kind) {
      const auto at = static_cast<std::size_t>(layout_.find(start, f.id) - layout_.fields.data());
      if (arrays_[at].data) {
        arrays_[i].data = arrays_[at].data;
        held_.push_back(std::move(h));
        continue;
      }
    }
    h.memory = GpuBuffer(gpu, std::max<std::size_t>(1, static_cast<std::size_t>(h.entries) * size_of(h.dtype)));
    arrays_[i].data = h.memory.address();
    held_.push_back(std::move(h));
  }
  status_ = GpuBuffer(gpu, static_cast<std::size_t>(std::max<std::int64_t>(1, shape_.sequences)) * 4);
  fill(binding);
}

std::int64_t CallArrays::place(const Held& held, std::int64_t part) const {
  if (shape_.packed() || shape_.steps == 0) return part * held.step;
  return part / shape_.steps * held.sequence + part % shape_.steps * held.step;
}

Array CallArrays::host_of(const Binding& binding, std::size_t i) const {
  const CallField& f = layout_.fields[i];
  const Held& h = held_[i];
  if (f.kind == FieldKind::InputHistory) return convert(binding.run.histories[f.id], h.dtype);
  if (f.kind != FieldKind::StateHistory) return convert(binding.run.symbols[f.id], h.dtype);
  Array joined(h.dtype, {shape_.sequences * h.part});
  const std::int64_t depth = cell_.symbols[f.id].max_lag, n = depth ? h.part / depth : 0;
  for (const DelayLine& line : delay_lines(cell_))  // begins with the start; what copies have is not rounded
    for (std::int64_t i = 0; line.state == f.id && i < joined.count(); ++i)
      joined.set(i, binding.run.histories[static_cast<std::size_t>(line.symbol)].get(i + (i / h.part + 1) * n));
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
    if (cell_.symbols[s].lag_of == f.id)
      for (std::int64_t b = 0; b < shape_.sequences; ++b)
        for (std::int64_t e = 0; e < n; ++e)
          joined.set(b * h.part + (cell_.symbols[s].lag - 1) * n + e, binding.run.symbols[s].get(b * n + e));
  return joined;
}

void CallArrays::fill(const Binding& binding) {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const Held& h = held_[i];
    if (layout_.fields[i].is_written() || !h.memory.address() || h.parts == 0) continue;
    const Array from = host_of(binding, i);
    Array laid(h.dtype, {h.entries});
    for (std::int64_t e = 0; e < h.entries; ++e) laid.set(e, std::numeric_limits<double>::quiet_NaN());
    const std::size_t size = size_of(h.dtype);
    for (std::int64_t p = 0; p < h.parts; ++p)
      std::memcpy(static_cast<std::byte*>(laid.data()) +
                      static_cast<std::size_t>(layout_.fields[i].is_rows() ? place(h, p) : p * h.part) * size,
                  static_cast<const std::byte*>(from.data()) + static_cast<std::size_t>(p * h.part) * size,
                  static_cast<std::size_t>(h.part) * size);
    gpu_.copy_in(h.memory.address(), laid.data(), static_cast<std::size_t>(h.entries) * size, 0);
  }
  gpu_.synchronize(0);
}

Array CallArrays::fetch(std::size_t i) {
  const Held& h = held_[i];
  Array laid(h.dtype, {h.entries}), dense(h.dtype, {h.parts * h.part});
  if (arrays_[i].data && h.entries)
    gpu_.copy_out(laid.data(), arrays_[i].data, static_cast<std::size_t>(h.entries) * size_of(h.dtype), 0);
  for (std::int64_t p = 0; p < h.parts; ++p)
    for (std::int64_t e = 0; e < h.part; ++e)
      dense.set(p * h.part + e, laid.get((layout_.fields[i].is_rows() ? place(h, p) : p * h.part) + e));
  return dense;
}

RunOutput CallArrays::read(const Binding& binding) {
  RunOutput output;
  const auto number = [&](FieldKind kind, int id) {
    return static_cast<std::size_t>(layout_.find(kind, id) - layout_.fields.data());
  };
  const auto shaped = [&](std::int64_t first, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> shape = lengths(cell_, binding.run, axes);
    shape.insert(shape.begin(), first);
    return shape;
  };
  for (const StateUpdate& u : cell_.updates) {
    const Symbol& symbol = cell_.symbols[u.symbol];
    if (symbol.lag_of < 0) {
      output.states.push_back(fetch(number(FieldKind::State, u.symbol)).with_shape(shaped(shape_.rows, symbol.axes)));
      output.finals.push_back(
          fetch(number(FieldKind::Final, u.symbol)).with_shape(shaped(shape_.sequences, symbol.axes)));
    } else {
      output.states.emplace_back(dtype_, shaped(shape_.rows, symbol.axes));
      output.finals.emplace_back(arithmetic_of(dtype_), shaped(shape_.sequences, symbol.axes));
    }
  }
  follow_lags(cell_, binding.run, output);
  // What a copy holds in the end is a final history's, where that is written.
  for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
    const Symbol& symbol = cell_.symbols[cell_.updates[u].symbol];
    if (symbol.lag_of < 0) continue;
    const std::size_t field = number(FieldKind::FinalStateHistory, symbol.lag_of);
    if (!arrays_[field].data) continue;
    const std::int64_t depth = cell_.symbols[symbol.lag_of].max_lag;
    const Array history = fetch(field);
    Array& last = output.finals[u];
    const std::int64_t n = shape_.sequences ? last.count() / shape_.sequences : 0;
    for (std::int64_t b = 0; b < shape_.sequences; ++b)
      for (std::int64_t e = 0; e < n; ++e) last.set(b * n + e, history.get((b * depth + symbol.lag - 1) * n + e));
  }
  for (std::size_t o = 0; o < cell_.outs.size(); ++o)
    output.outs.push_back(
        fetch(number(FieldKind::Out, static_cast<int>(o))).with_shape(shaped(shape_.rows, cell_.outs[o].index)));
  return output;
}

std::string CallArrays::wrong_histories(const Binding& binding, const RunOutput& output) {
  const auto want = written_arrays(cell_, binding, output);
  const std::vector<DelayLine> lines = delay_lines(cell_);
  for (std::size_t i = 0; i < layout_.fields.size(); ++i) {
    const CallField& f = layout_.fields[i];
    const bool line = f.kind == FieldKind::FinalStateHistory && f.id >= 0 &&
                      std::any_of(lines.begin(), lines.end(), [&](const DelayLine& l) { return l.state == f.id; });
    if ((f.kind != FieldKind::FinalInputHistory && !line) || !arrays_[i].data) continue;
    const Array have = fetch(i);
    for (const auto& [name, array] : want) {
      if (name != cell_.symbols[f.id].name + ".lag") continue;
      for (std::int64_t e = 0; e < have.count(); ++e)
        if (have.get(e) != convert(array, held_[i].dtype).get(e))
          return fmt::format("{}: entry {} is {}, expected {}", f.name, e, have.get(e), array.get(e));
    }
  }
  return {};
}

std::vector<int> CallArrays::statuses() {
  std::vector<int> result(static_cast<std::size_t>(shape_.sequences));
  if (!result.empty()) gpu_.copy_out(result.data(), status_.address(), result.size() * 4, 0);
  return result;
}

}  // namespace cellc
