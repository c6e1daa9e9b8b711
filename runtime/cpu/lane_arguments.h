#pragma once
// What a lane kernel is called with: where the rows of its lanes lie, and its memory of values. Private to those that
// run lane kernels.
#include <cstdint>
#include <vector>

#include "runtime/cpu/lane_kernel.h"

namespace cellc {

/// A symbol's rows; of a state, where it is from and where it goes.
struct LanePlace {
  std::byte* row = nullptr;
  std::int64_t step = 0;  ///< bytes from row to row
  std::byte* old = nullptr;
};

class LaneArguments {
 public:
  /// `flushes`: the kernel is run with numbers that are too small made zero (flush_to_zero.h).
  LaneArguments(const LaneKernel& kernel, const LaneData& data, bool flushes);

  /// Of so many lanes, all symbols still without a place.
  void begin(std::int64_t lanes);
  std::vector<LanePlace> places;  ///< by symbol

  int states() const { return static_cast<int>(plan_.cell.updates.size()); }
  std::size_t symbol_of_state(int position) const {
    return static_cast<std::size_t>(plan_.cell.updates[position].symbol);
  }
  /// Buffer `i`, with room for `count` entries: zeros at first, so that lanes that only fill up stay harmless.
  std::byte* grown(std::vector<Array>& buffers, std::size_t i, std::int64_t count) const;

  /// Values of params only, once their places are known.
  void call_once() {
    if (plan_.once_kernel >= 0) call(plan_.once_kernel, 1, 0, 0);
  }
  /// The step, `steps` times for lanes [begin, end).
  void call_steps(std::int64_t steps, std::int64_t begin, std::int64_t end) {
    call(kernel_.kernel_, steps, begin, end);
  }

 private:
  void call(int kernel, std::int64_t steps, std::int64_t begin, std::int64_t end);
  std::uint64_t value(const Slot& slot);
  std::int64_t length(AxisId axis) const;
  std::int64_t entries(const std::vector<AxisId>& axes) const;

  const LaneKernel& kernel_;
  const Plan& plan_;
  const LaneData& data_;
  const bool flushes_;
  std::int64_t lanes_ = 0;
  std::vector<std::uint64_t> values_;
  std::vector<Array> once_, temps_;
};

}  // namespace cellc
