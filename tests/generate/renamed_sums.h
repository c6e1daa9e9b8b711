#pragma once
// Random cells whose values are sums over renamed axes of one header axis: sums inside of sums, transposes, diagonals,
// an axis under several names in one statement. What is derived of them moves index variables past bound ones, and must
// not capture any.
#include <cstdint>
#include <string>

namespace cellc::generate {

/// A file with one cell, `renamed`. The same seed gives the same text on every machine.
std::string renamed_sums_cell(std::uint64_t seed);

}  // namespace cellc::generate
