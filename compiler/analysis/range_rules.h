#pragma once
// The range of every elementwise operator, from the ranges of its operands: the one place that knows ranges.
#include <algorithm>
#include <limits>

#include "compiler/graph/graph.h"

namespace cellc {

/// All numbers from low to high. No number is one that is NaN: what may be NaN or overflow has the whole line, and a
/// finite bound holds for every value that is a number.
struct Interval {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

/// Contains op's value wherever the operands lie in `x`, one interval for each. Bounds may be NaN (inf - inf): then
/// they say nothing.
Interval range_of(Op op, const Interval* x);

/// Of a product. Zero times infinity is zero: the bounds are of numbers.
Interval times(Interval a, Interval b);
double product(double a, double b);

}  // namespace cellc
