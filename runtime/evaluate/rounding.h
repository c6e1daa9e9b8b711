#pragma once
// What rounding may do to a calculation, found by doing it to every intermediate value.
#include <cstdint>
#include <functional>

#include "runtime/data/array.h"

namespace cellc {

/// What a machine of this dtype may make of an intermediate value: rounded to it, and moved by up to `relative` where
/// rounding may have happened at all. Whole numbers stay, so that no comparison of them falls on another side than in
/// any kernel. Seed 0: rounded only, which is what decides at a kink that the data sit on.
std::function<double(double)> rounding_of(Dtype dtype, double relative, std::uint64_t seed);

}  // namespace cellc
