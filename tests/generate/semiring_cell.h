#pragma once
// Random cells that are mostly linear over (max, +), (min, +) or (logsumexp, +), in the ways in which people write
// them.
#include <cstdint>
#include <string>

namespace cellc::generate {

/// Two states of single numbers and one along an axis; the text follows from the seed.
std::string semiring_cell(std::uint64_t seed);

}  // namespace cellc::generate
