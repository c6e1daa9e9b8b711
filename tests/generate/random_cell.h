#pragma once
// Random cells: text that obeys the language's rules, drawn from a seed.
#include <cstdint>
#include <string>

namespace cellc::generate {

/// A file with one cell, `random_cell`, and a few functions. The same seed gives the same text on
/// every machine. States stay bounded, so that a run can be compared over many steps.
std::string random_cell(std::uint64_t seed);

/// The same with params that have defaults and states that start from them, which only calls tell from arrays
/// that are given.
std::string random_cell_with_defaults(std::uint64_t seed);

}  // namespace cellc::generate
