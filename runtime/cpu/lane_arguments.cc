#include "runtime/cpu/lane_arguments.h"

#include <bit>
#include <stdexcept>

#include "runtime/cpu/flush_to_zero.h"

namespace cellc {

LaneArguments::LaneArguments(const LaneKernel& kernel, const LaneData& data, bool flushes)
    : kernel_(kernel), plan_(kernel.compiled_.plan), data_(data), flushes_(flushes) {}

void LaneArguments::begin(std::int64_t lanes) {
  lanes_ = lanes;
  places.assign(plan_.cell.symbols.size(), {});
}

std::byte* LaneArguments::grown(std::vector<Array>& buffers, std::size_t i, std::int64_t count) const {
  if (buffers.size() <= i) buffers.resize(i + 1);
  if (!buffers[i].data() || buffers[i].count() < count) buffers[i] = Array(kernel_.compiled_.dtype, {count});
  return static_cast<std::byte*>(buffers[i].data());
}

std::int64_t LaneArguments::length(AxisId axis) const { return axis == kernel_.lane_ ? lanes_ : data_.sizes.at(axis); }

std::int64_t LaneArguments::entries(const std::vector<AxisId>& axes) const {
  std::int64_t n = 1;
  for (AxisId a : axes) n *= length(plan_.cell.graph.axis(a).extent_of);
  return n;
}

std::uint64_t LaneArguments::value(const Slot& slot) {
  const auto address = [](const void* p) { return std::bit_cast<std::uint64_t>(p); };
  const auto id = static_cast<std::size_t>(slot.id);
  switch (slot.kind) {
    case SlotKind::Length:
      return static_cast<std::uint64_t>(length(static_cast<AxisId>(slot.id)));
    case SlotKind::Param:
    case SlotKind::InputRow:
      return address(places[id].row);
    case SlotKind::InputStep:
      return static_cast<std::uint64_t>(places[id].step);
    case SlotKind::Once:
      return address(grown(once_, id, entries(plan_.once[id].dims)));
    case SlotKind::Temp:
      return address(grown(temps_, id, entries(plan_.temps[id].dims)));
    case SlotKind::Time:
      return 0;
    case SlotKind::StateOld:
      return address(places[symbol_of_state(slot.id)].old);
    case SlotKind::StateRow:
      return address(places[symbol_of_state(slot.id)].row);
    case SlotKind::StateStep:
      return static_cast<std::uint64_t>(places[symbol_of_state(slot.id)].step);
    default:
      throw std::logic_error("lanes: no such slot");
  }
}

void LaneArguments::call(int kernel, std::int64_t steps, std::int64_t begin, std::int64_t end) {
  const KernelFunction function = kernel_.compiled_.functions[kernel];
  if (!function) return;
  values_.clear();
  for (const Slot& slot : kernel_.compiled_.kernels[kernel].slots) values_.push_back(value(slot));
  const FlushToZero flushed(flushes_);
  function(values_.data(), steps, begin, end);
}

}  // namespace cellc
