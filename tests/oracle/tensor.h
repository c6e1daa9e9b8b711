#pragma once
// Arithmetic on tensors with named axes, for the oracle.
#include <functional>
#include <string>
#include <vector>

#include "tests/oracle/oracle.h"

namespace cellc::oracle {

Tensor scalar(double value);
std::int64_t element_count(const std::vector<std::int64_t>& shape);

/// f applied position by position over the union of the operands' axes.
Tensor elementwise(const std::vector<const Tensor*>& operands,
                   const std::function<double(const std::vector<double>&)>& f);

/// Axes renamed by place. A label that occurs twice takes the diagonal; an integer (label empty)
/// selects an entry.
struct Place {
  std::string label;
  std::int64_t entry = 0;
};
Tensor renamed(const Tensor& tensor, const std::vector<Place>& places);

/// The last axis of `a` contracted with the first axis of that name in `b`; every other name that
/// both have is batched.
Tensor contracted(const Tensor& a, const Tensor& b);

/// The axes `labels` (with these lengths) folded away by `f`, which sees all values at once. Axes
/// that the tensor lacks are repeated first, so that a sum over them multiplies by their length.
Tensor reduced(const Tensor& tensor, const std::vector<std::string>& labels, const std::vector<std::int64_t>& lengths,
               const std::function<double(const std::vector<double>&)>& f);

/// Laid out over exactly these axes, in this order; axes that the tensor lacks are repeated.
Tensor over(const Tensor& tensor, const std::vector<std::string>& labels, const std::vector<std::int64_t>& lengths);

}  // namespace cellc::oracle
