#pragma once
// Random cells with sums over several axes of W*v, W a param: which axes are summed, free on either side or shared, and
// how W, v and the result lie in memory, all vary. Many of them are matrix products that leave the step.
#include <cstdint>
#include <string>

namespace cellc::generate {

/// A file with one cell, `contraction`. The same seed gives the same text on every machine.
std::string contraction_cell(std::uint64_t seed);

}  // namespace cellc::generate
