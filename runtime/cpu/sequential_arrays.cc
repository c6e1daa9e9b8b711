#include "runtime/cpu/sequential_arrays.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

template <typename Number>
Array widened(const Array& array, Dtype dtype) {
  Array result = Array::uninitialised(dtype, array.shape());
  Number* to = static_cast<Number*>(result.data());
  const std::int64_t count = array.count();
  if (array.dtype() == Dtype::F16 || array.dtype() == Dtype::BF16) {
    // Decoding is slow and there are only so many values.
    std::vector<Number> table(1 << 16);
    Array each(Dtype::U16, {1 << 16});
    auto* raw = static_cast<std::uint16_t*>(each.data());
    for (int i = 0; i < 1 << 16; ++i) raw[i] = static_cast<std::uint16_t>(i);
    each.reinterpret(array.dtype());
    for (int i = 0; i < 1 << 16; ++i) table[i] = static_cast<Number>(each.get(i));
    const auto* from = static_cast<const std::uint16_t*>(array.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = table[from[i]];
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Number>(array.get(i));
  }
  return result;
}

const std::byte* bytes(const Array& array) { return static_cast<const std::byte*>(array.data()); }

std::uint64_t at(const Array& array, std::int64_t entry) {
  return std::bit_cast<std::uint64_t>(bytes(array) + entry * static_cast<std::int64_t>(size_of(array.dtype())));
}

std::int64_t checked_sequences(const CompiledPlan& compiled, const BoundRun& run) {
  if (run.offsets.empty()) throw RequestError("a run needs the offsets of its sequences");
  if (run.symbols.size() != compiled.plan.cell.symbols.size())
    throw std::logic_error("run: arrays and symbols do not match");
  return static_cast<std::int64_t>(run.offsets.size()) - 1;
}

}  // namespace

SequentialArrays::SequentialArrays(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse,
                                   const std::vector<Array>* given)
    : length(compiled.plan.cell.graph, run.sizes),
      narrow(compiled.plan.options.narrow_storage),
      arithmetic(arithmetic_of(compiled.dtype)),
      sequences(checked_sequences(compiled, run)),
      compiled_(compiled),
      plan_(compiled.plan),
      run_(run),
      given_(given) {
  for (std::size_t s = 0; s < plan_.cell.symbols.size(); ++s) take(s);
  for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u) {
    const auto result = [&](bool wanted, std::vector<Array>& earlier, FieldKind kind) {
      return wanted ? written(earlier, u, kind, state_axes(u)) : Array();
    };
    output.states.push_back(result(run.wanted.state(u), reuse.states, FieldKind::State));
    output.finals.push_back(result(run.wanted.final(u), reuse.finals, FieldKind::Final));
    work += length.entries(state_axes(u)) * run.offsets.back();
  }
  for (std::size_t o = 0; o < plan_.cell.outs.size(); ++o) {
    output.outs.push_back(run.wanted.out(o) ? written(reuse.outs, o, FieldKind::Out, plan_.cell.outs[o].index)
                                            : Array());
    work += length.entries(plan_.cell.outs[o].index) * run.offsets.back();
  }
  for (const DelayLine& line : delay_lines(plan_.cell))
    for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u)
      if (plan_.cell.updates[u].symbol == line.state) arrays_[static_cast<std::size_t>(line.symbol)] = output.states[u];
  for (const Buffer& b : plan_.once) once_.push_back(Array::uninitialised(arithmetic, length.shape({}, b.dims)));
}

const std::vector<AxisId>& SequentialArrays::state_axes(std::size_t update) const {
  return plan_.cell.symbols[plan_.cell.updates[update].symbol].axes;
}

void SequentialArrays::take(std::size_t s) {
  const Symbol& symbol = plan_.cell.symbols[s];
  // The rows of a delay line are those that this run writes.
  const bool line = symbol.line_of >= 0;
  arrays_.push_back(line ? Array() : checked(symbol, run_.symbols[s], field_of(symbol.kind), 0));
  histories_.emplace_back();
  history_depth_.push_back(symbol.max_lag);
  if (symbol.kind != SymbolKind::Input || symbol.max_lag == 0) return;
  const Array past = s >= run_.histories.size() ? Array()
                     : symbol.line_of >= 0      ? history_as_started(plan_.cell, run_, s)
                                                : run_.histories[s];
  if (past.shape().size() >= 2) history_depth_[s] = past.shape()[1];
  histories_[s] = checked(symbol, past, FieldKind::InputHistory, history_depth_[s]);
}

/// In the type that kernels read, zeros for a start or history that is not there.
Array SequentialArrays::checked(const Symbol& symbol, const Array& given, FieldKind kind, std::int64_t depth) const {
  const FieldTraits traits = traits_of(kind);
  const Dtype dtype = dtype_of(kind, compiled_.dtype);
  const std::vector<std::int64_t> wanted = run_shape(kind, plan_.cell, run_, symbol.axes, depth);
  std::int64_t count = 1;
  for (const std::int64_t n : wanted) count *= n;
  if (!given.data()) {
    const bool zeros = traits.owner == FieldOwner::State || traits.absent == FieldAbsent::Zeros;
    if (zeros || (traits.layout == FieldLayout::Rows && count == 0)) return Array(dtype, wanted);
    throw RequestError(fmt::format("{} is not given", symbol.name));
  }
  if (given.count() != count)
    throw RequestError(
        fmt::format("{}{}: expected {} entries, found {}", symbol.name, traits.file, count, given.count()));
  if (given.dtype() == dtype) return given;
  if (size_of(dtype) == 2)
    throw RequestError(fmt::format("{}{}: expected {}, found {}", symbol.name, traits.file, to_string(dtype),
                                   to_string(given.dtype())));
  return dtype == Dtype::F64 ? widened<double>(given, dtype) : widened<float>(given, dtype);
}

/// An array to write: one of an earlier run, if it fits and nobody else holds it.
Array SequentialArrays::written(std::vector<Array>& earlier, std::size_t number, FieldKind kind,
                                const std::vector<AxisId>& axes) const {
  const Dtype dtype = dtype_of(kind, compiled_.dtype);
  const std::vector<std::int64_t> shape = run_shape(kind, plan_.cell, run_, axes);
  const bool fits = number < earlier.size() && earlier[number].dtype() == dtype && earlier[number].shape() == shape &&
                    earlier[number].is_sole_owner();
  return fits ? std::move(earlier[number]) : Array::uninitialised(dtype, shape);
}

// Rows that are not wanted ---------------------------------------------------------------------------

void SequentialArrays::cut_parts(std::int64_t largest_span) {
  // They stay in a cache that is a core's own, or nearly so. Steps of one number take a nanosecond, a call of the
  // kernel some hundred; and parts whose length is a power of two would share the places of a cache.
  constexpr std::int64_t kPartBytes = 1 << 19, kPartRows = 600;
  std::int64_t bytes = 0;
  for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u)
    if (!run_.wanted.state(u)) bytes += row_bytes(SlotKind::StateRow, static_cast<int>(u));
  for (std::size_t o = 0; o < plan_.cell.outs.size(); ++o)
    if (!run_.wanted.out(o)) bytes += row_bytes(SlotKind::OutRow, static_cast<int>(o));
  if (bytes == 0 || largest_span == 0) return;
  by_span_ = std::count_if(plan_.phases.begin(), plan_.phases.end(), [](const Phase& p) { return !p.product; }) > 1 ||
             std::any_of(plan_.products.begin(), plan_.products.end(), [](const Product& p) {
               return p.operand.place == Place::StateNew || p.operand.place == Place::Out;
             });
  part_rows_ =
      by_span_ ? largest_span : std::min(largest_span, std::clamp<std::int64_t>(kPartBytes / bytes, 1, kPartRows));
}

std::int64_t SequentialArrays::row_in_part(const RowSpan& span, std::int64_t sequence, std::int64_t step) const {
  if (by_span_) return part_of(span.chunks[0].begin) + row_of(run_, sequence, step) - span.row_begin;
  const std::int64_t place = step % part_rows_;
  return part_of(step) + (run_.reverse ? part_rows_ - 1 - place : place);
}

/// The row of the step before the first of a chunk. Where a part is a span, the one before is a whole one.
std::int64_t SequentialArrays::row_before(std::int64_t sequence, std::int64_t begin) const {
  if (!by_span_) return row_in_part({}, sequence, begin - 1);
  return part_of(begin - 1) + (run_.reverse ? 0 : part_rows_ - 1);
}

// Slots ----------------------------------------------------------------------------------------------

std::int64_t SequentialArrays::row_bytes(SlotKind kind, int id) const {
  const auto storage = static_cast<std::int64_t>(size_of(compiled_.dtype));
  switch (kind) {
    case SlotKind::InputRow:
    case SlotKind::InputStep:
      return length.entries(plan_.cell.symbols[id].axes) * storage;
    case SlotKind::StateRow:
    case SlotKind::StateGiven:
    case SlotKind::StateStep:
      return length.entries(state_axes(static_cast<std::size_t>(id))) * storage;
    case SlotKind::OutRow:
    case SlotKind::OutStep:
      return length.entries(plan_.cell.outs[id].index) * storage;
    default:
      return length.entries(plan_.chunks[id].dims) * static_cast<std::int64_t>(size_of(arithmetic));
  }
}

std::uint64_t SequentialArrays::slot_value(const Slot& slot, const TaskScratch& scratch, const RowSpan& span,
                                           const StepChunk& chunk) const {
  const int id = slot.id;
  const auto row = [&](const Array& array, std::int64_t first = 0) {
    const std::int64_t here = row_of(run_, chunk.sequence, chunk.begin) - first;
    return at(array, 0) + static_cast<std::uint64_t>(here * row_bytes(slot.kind, id));
  };
  const auto part = [&](const Array& array) {
    return at(array, 0) +
           static_cast<std::uint64_t>(row_in_part(span, chunk.sequence, chunk.begin) * row_bytes(slot.kind, id));
  };
  switch (slot.kind) {
    case SlotKind::Length:
      return static_cast<std::uint64_t>(length[static_cast<AxisId>(id)]);
    case SlotKind::Param:
      return at(arrays_[id], 0);
    case SlotKind::Once:
      return at(once_[id], 0);
    case SlotKind::Temp:
      return at(scratch.temps[id], 0);
    case SlotKind::InputRow:
      return row(arrays_[id]);
    case SlotKind::History:
      return at(histories_[id], chunk.sequence * history_depth_[id] * length.entries(plan_.cell.symbols[id].axes));
    case SlotKind::Time:
      return static_cast<std::uint64_t>(chunk.begin);
    case SlotKind::StateOld: {
      const std::int64_t n = length.entries(state_axes(static_cast<std::size_t>(id)));
      if (chunk.begin == 0) return at(arrays_[plan_.cell.updates[id].symbol], chunk.sequence * n);
      if (given_) return at((*given_)[id], row_of(run_, chunk.sequence, chunk.begin - 1) * n);
      if (narrow) return at(scratch.carried[(chunk.begin - 1) % 2][id], 0);
      if (!run_.wanted.state(static_cast<std::size_t>(id)))
        return at(scratch.states[id], row_before(chunk.sequence, chunk.begin) * n);
      return at(output.states[id], row_of(run_, chunk.sequence, chunk.begin - 1) * n);
    }
    case SlotKind::StateNew:
      return at(scratch.carried[chunk.begin % 2][id], 0);
    case SlotKind::StateSpare:
      return at(scratch.carried[(chunk.begin + 1) % 2][id], 0);
    case SlotKind::StateRow:
      return run_.wanted.state(static_cast<std::size_t>(id)) ? row(output.states[id]) : part(scratch.states[id]);
    case SlotKind::StateGiven:
      return row((*given_)[id]);
    case SlotKind::OutRow:
      return run_.wanted.out(static_cast<std::size_t>(id)) ? row(output.outs[id]) : part(scratch.outs[id]);
    case SlotKind::ChunkRow:
      return row(scratch.chunks[id], span.row_begin);
    case SlotKind::InputStep:
    case SlotKind::StateStep:
    case SlotKind::OutStep:
    case SlotKind::ChunkStep: {
      const std::int64_t bytes = row_bytes(slot.kind, id);
      return static_cast<std::uint64_t>(run_.reverse ? -bytes : bytes);
    }
  }
  throw std::logic_error("run: no such slot");
}

TaskScratch SequentialArrays::make_scratch(std::int64_t largest_span) const {
  TaskScratch scratch;
  for (const Buffer& b : plan_.temps)
    scratch.temps.push_back(Array::uninitialised(arithmetic, length.shape({}, b.dims)));
  for (const Buffer& b : plan_.chunks)
    scratch.chunks.push_back(Array::uninitialised(arithmetic, length.shape({largest_span}, b.dims)));
  for (std::size_t u = 0; u < plan_.cell.updates.size() && narrow; ++u)
    for (auto& half : scratch.carried)
      half.push_back(Array::uninitialised(arithmetic, length.shape({}, state_axes(u))));
  const auto unwanted = [&](bool wanted, const std::vector<AxisId>& axes) {
    return wanted ? Array() : Array::uninitialised(compiled_.dtype, length.shape({2 * part_rows_}, axes));
  };
  for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u)
    scratch.states.push_back(unwanted(run_.wanted.state(u), state_axes(u)));
  for (std::size_t o = 0; o < plan_.cell.outs.size(); ++o)
    scratch.outs.push_back(unwanted(run_.wanted.out(o), plan_.cell.outs[o].index));
  return scratch;
}

// Products -------------------------------------------------------------------------------------------

const std::byte* SequentialArrays::matrix_of(const Product& product) const {
  const int id = product.matrix.id;
  return bytes(product.matrix.place == Place::Param ? arrays_[id] : once_[id]);
}

const std::byte* SequentialArrays::operand_of(const Product& product, const TaskScratch& scratch, const RowSpan& span,
                                              std::int64_t row_bytes) const {
  const int id = product.operand.id;
  const auto result = [&](bool wanted, const std::vector<Array>& whole, const std::vector<Array>& parts) {
    if (wanted) return bytes(whole[id]) + span.row_begin * row_bytes;
    return bytes(parts[id]) + part_of(span.chunks[0].begin) * row_bytes;
  };
  switch (product.operand.place) {
    case Place::Input:
      return bytes(arrays_[id]) + span.row_begin * row_bytes;
    case Place::StateNew:
      return result(run_.wanted.state(static_cast<std::size_t>(id)), output.states, scratch.states);
    case Place::Out:
      return result(run_.wanted.out(static_cast<std::size_t>(id)), output.outs, scratch.outs);
    case Place::Chunk:
      return bytes(scratch.chunks[id]);
    default:
      throw std::logic_error("run: a product of something without rows");
  }
}

// Finals ---------------------------------------------------------------------------------------------

bool SequentialArrays::ends_in_scratch(const StepChunk& chunk) const {
  return (narrow || part_rows_ > 0) && chunk.end == steps_of(run_, chunk.sequence);
}

void SequentialArrays::keep_finals(int kernel, const TaskScratch& scratch, const RowSpan& span,
                                   const StepChunk& chunk) {
  if (!ends_in_scratch(chunk)) return;
  for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u) {
    if (plan_.state_kernel[u] != kernel || !run_.wanted.final(u)) continue;
    if (narrow)
      copy_final(u, chunk.sequence, scratch.carried[(chunk.end - 1) % 2][u], 0);
    else if (!run_.wanted.state(u))
      copy_final(u, chunk.sequence, scratch.states[u],
                 row_in_part(span, chunk.sequence, chunk.end - 1) * length.entries(state_axes(u)));
  }
}

void SequentialArrays::copy_final(std::size_t update, std::int64_t sequence, const Array& from, std::int64_t entry) {
  const std::int64_t n = length.entries(state_axes(update)), size = static_cast<std::int64_t>(size_of(arithmetic));
  std::memcpy(static_cast<std::byte*>(output.finals[update].data()) + sequence * n * size, bytes(from) + entry * size,
              static_cast<std::size_t>(n * size));
}

void SequentialArrays::write_finals() {
  for (std::size_t u = 0; u < plan_.cell.updates.size(); ++u) {
    if (!run_.wanted.final(u)) continue;
    const std::int64_t n = length.entries(state_axes(u));
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t steps = steps_of(run_, s);
      if (steps == 0)
        copy_final(u, s, arrays_[plan_.cell.updates[u].symbol], s * n);
      else if (!narrow && run_.wanted.state(u))
        copy_final(u, s, output.states[u], row_of(run_, s, steps - 1) * n);
    }
  }
}

}  // namespace cellc
