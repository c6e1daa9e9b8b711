#pragma once
// Curves in a terminal, drawn with Braille characters (2 by 4 dots each).
#include <cstddef>
#include <string>
#include <vector>

namespace cellc {

/// The range of `values` within each dot column, over the whole range of the values: `rows` lines
/// of `columns` characters, each line behind `indent` spaces.
std::string plot(const std::vector<double>& values, std::size_t columns, std::size_t rows, std::size_t indent);

}  // namespace cellc
