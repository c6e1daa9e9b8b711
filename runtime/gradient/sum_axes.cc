#include "runtime/gradient/sum_axes.h"

#include <algorithm>

#include "compiler/graph/axes.h"

namespace cellc {
namespace {

std::int64_t stride_of(const std::vector<AxisId>& index, const std::vector<std::int64_t>& lengths, AxisId axis) {
  std::int64_t stride = 1;
  for (std::size_t i = index.size(); i-- > 0; stride *= lengths[i])
    if (index[i] == axis) return stride;
  return 0;
}

std::vector<std::int64_t> lengths_of(const StepSum& sum, const std::vector<AxisId>& index) {
  std::vector<std::int64_t> result;
  for (const AxisId a : index) result.push_back(sum.sizes.at(sum.adjoint.graph.axis(a).extent_of));
  return result;
}

}  // namespace

SumAxes sum_axes(const StepSum& sum) {
  const std::vector<AxisId>& left = sum.product.left.index;
  const std::vector<AxisId> right = sum.product.right ? sum.product.right->index : std::vector<AxisId>{};
  std::vector<AxisId> all = sum.result;
  for (const auto* index : {&left, &right})
    for (const AxisId a : *index)
      if (!contains(all, a)) all.push_back(a);
  const auto of_left = lengths_of(sum, left), of_right = lengths_of(sum, right), of_all = lengths_of(sum, all),
             of_result = lengths_of(sum, sum.result);
  SumAxes sorted;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const AxisId a = all[i];
    const AxisStrides extent{of_all[i], stride_of(left, of_left, a), stride_of(right, of_right, a),
                             stride_of(sum.result, of_result, a)};
    const bool in_left = contains(left, a), in_right = contains(right, a);
    if (!contains(sum.result, a))
      sorted.summed.push_back(extent);
    else if (in_left && in_right)
      sorted.shared.push_back(extent);
    else if (in_left)
      sorted.left.push_back(extent);
    else if (in_right)
      sorted.right.push_back(extent);
    else
      sorted.repeated.push_back(extent);
  }
  return sorted;
}

std::int64_t count_of(const std::vector<AxisStrides>& extents) {
  std::int64_t count = 1;
  for (const AxisStrides& e : extents) count *= e.length;
  return count;
}

std::vector<std::int64_t> offsets(const std::vector<AxisStrides>& extents, std::int64_t AxisStrides::*stride) {
  std::vector<std::int64_t> result;
  each_position(extents, [&](std::int64_t left, std::int64_t right, std::int64_t into) {
    result.push_back(stride == &AxisStrides::left ? left : stride == &AxisStrides::right ? right : into);
  });
  return result;
}

}  // namespace cellc
