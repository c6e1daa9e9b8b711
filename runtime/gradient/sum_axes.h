#pragma once
// How the axes of a sum over steps lie in its factors and in its result: for the sums of a CPU and of a GPU.
#include <cstdint>
#include <vector>

#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// An axis of the sum, and how far apart its entries lie in each array; 0: it repeats there.
struct AxisStrides {
  std::int64_t length, left, right, into;
};

/// The axes by what happens to them.
struct SumAxes {
  std::vector<AxisStrides> shared;       ///< both factors have it, and the result
  std::vector<AxisStrides> left, right;  ///< of one factor alone, and of the result
  std::vector<AxisStrides> summed;       ///< the result lacks it
  std::vector<AxisStrides> repeated;     ///< the result alone has it
};

/// A matrix product where both factors have axes of their own; else a sum of columns.
SumAxes sum_axes(const StepSum& sum);

std::int64_t count_of(const std::vector<AxisStrides>& extents);

/// Calls visit(left offset, right offset, result offset) for each position, in row-major order.
template <typename Visit>
void each_position(const std::vector<AxisStrides>& extents, Visit&& visit) {
  std::vector<std::int64_t> at(extents.size());
  for (std::int64_t i = count_of(extents); i > 0; --i) {
    std::int64_t left = 0, right = 0, into = 0;
    for (std::size_t k = 0; k < extents.size(); ++k) {
      left += at[k] * extents[k].left;
      right += at[k] * extents[k].right;
      into += at[k] * extents[k].into;
    }
    visit(left, right, into);
    for (std::size_t k = extents.size(); k-- > 0 && ++at[k] == extents[k].length;) at[k] = 0;
  }
}

/// Offsets of each position in one array: &AxisStrides::left, right or into.
std::vector<std::int64_t> offsets(const std::vector<AxisStrides>& extents, std::int64_t AxisStrides::*stride);

}  // namespace cellc
