#include "demo/plot.h"

#include <algorithm>
#include <cmath>

namespace cellc {

std::string plot(const std::vector<double>& values, std::size_t columns, std::size_t rows, std::size_t indent) {
  std::vector<unsigned> cells(columns * rows);
  const std::size_t across = columns * 2, down = rows * 4;
  double low = 0, high = 0;
  for (const double v : values)
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  const double span = high > low ? high - low : 1;
  // Dots of a Braille character, by column and row, as bits of its code point.
  constexpr unsigned bit[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  const auto dot_row = [&](double v) {
    return static_cast<std::size_t>(std::lround((high - v) / span * static_cast<double>(down - 1)));
  };
  for (std::size_t x = 0; x < across && !values.empty(); ++x) {
    const std::size_t begin = x * values.size() / across;
    const std::size_t end = std::max(begin + 1, (x + 1) * values.size() / across);
    double least = high, most = low;
    for (std::size_t i = begin; i < std::min(end, values.size()); ++i) {
      if (!std::isfinite(values[i])) continue;
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
    }
    if (least > most) continue;
    for (std::size_t y = dot_row(most); y <= dot_row(least); ++y) cells[y / 4 * columns + x / 2] |= bit[x % 2][y % 4];
  }
  std::string text;
  for (std::size_t r = 0; r < rows; ++r) {
    text.append(indent, ' ');
    for (std::size_t c = 0; c < columns; ++c) {
      const unsigned code = 0x2800 + cells[r * columns + c];
      text += static_cast<char>(0xe0 | (code >> 12));
      text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
    text += '\n';
  }
  return text;
}

}  // namespace cellc
