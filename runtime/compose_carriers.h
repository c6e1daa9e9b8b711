#pragma once
// The scan over segments: from the ends and carriers of all segments to the start of each.
#include "compiler/carrier_cell.h"
#include "runtime/segments.h"

namespace cellc {

/// The carriers' identity, for every segment and channel, into a carrier cell's states.
template <typename Number>
void put_identity(const CarrierCell& carriers, const StageData& data, std::int64_t segments, SegmentStates& to) {
  const auto fill = [&](int position, std::int64_t mixed, auto value_of) {
    Number* const p = static_cast<Number*>(to.arrays[position].data());
    for (std::int64_t s = 0; s < segments; ++s)
      for (std::int64_t m = 0; m < mixed; ++m)
        std::fill_n(p + (s * mixed + m) * data.channels(), data.channels(), value_of(m));
  };
  constexpr Number infinite = std::numeric_limits<Number>::infinity();
  if (carriers.kind == Scannable::Clip) {
    const Number values[4] = {1, 0, -infinite, infinite};
    for (int k = 0; k < 4; ++k) fill(carriers.map[k], 1, [&](std::int64_t) { return values[k]; });
  } else if (carriers.kind == Scannable::Moebius) {
    const Number values[4] = {1, 0, 0, 1};
    for (int k = 0; k < 4; ++k) fill(carriers.map[k], 1, [&](std::int64_t) { return values[k]; });
  } else {
    for (int i = 0; i < data.states(); ++i)
      for (int j = 0; j < data.states(); ++j) {
        if (carriers.position[i][j] < 0) continue;
        const std::int64_t columns = data.mixed(j);
        fill(carriers.position[i][j], data.mixed(i) * columns,
             [&](std::int64_t m) { return static_cast<Number>(i == j && m / columns == m % columns); });
      }
  }
}

/// New starts of the segments of some sequences' channels. `active[sequence * channels + c]`: the
/// lane takes part; on return, whether any of its starts moved by more than `tolerance`.
/// Returns the largest move over 1 + |start|.
template <typename Number>
double compose(const CarrierCell& carriers, const StageData& data, Segments<Number>& segments,
               const SegmentStates& swept, double tolerance, std::vector<char>& active) {
  const std::int64_t channels = data.channels();
  const int states = static_cast<int>(data.states());
  const auto array = [&](int position) { return static_cast<const Number*>(swept.arrays[position].data()); };
  double most = 0;
  std::vector<char> moved(active.size(), 0);
  std::vector<std::vector<Number>> change(states);
  for (int i = 0; i < states; ++i) change[i].assign(static_cast<std::size_t>(data.mixed(i) * channels), 0);
  for (std::int64_t s = 1; s < segments.count(); ++s) {
    const std::int64_t left = s - 1;
    if (segments.is_first(left))
      for (auto& c : change) std::fill(c.begin(), c.end(), Number{0});
    if (segments.is_first(s)) continue;
    const std::int64_t lane0 = segments[s].sequence * channels;
    // The left neighbour's end had it started where it now does: change = new start − old start.
    std::vector<std::vector<Number>> next(states);
    for (int i = 0; i < states; ++i) {
      const std::int64_t rows = data.mixed(i);
      next[i].assign(static_cast<std::size_t>(rows * channels), 0);
      for (std::int64_t m = 0; m < rows; ++m)
        for (std::int64_t c = 0; c < channels; ++c) {
          if (!active[lane0 + c]) continue;
          const Number end = array(i)[segments.entry(i, left, m, c)];
          Number reached = end;
          if (carriers.kind == Scannable::Affine) {
            for (int j = 0; j < states; ++j) {
              if (carriers.position[i][j] < 0) continue;
              const std::int64_t columns = data.mixed(j);
              for (std::int64_t k = 0; k < columns; ++k) {
                const Number d = change[j][k * channels + c];
                // An overflowed carrier times no change is no change.
                if (d == 0) continue;
                reached += array(carriers.position[i][j])[(left * rows * columns + m * columns + k) * channels + c] * d;
              }
            }
          } else {
            const Number x = segments.start(i)[segments.entry(i, left, m, c)];
            const auto at = [&](int k) { return array(carriers.map[k])[left * channels + c]; };
            if (carriers.kind == Scannable::Clip) {
              const Number y = at(0) * x + at(1), above = y < at(2) ? at(2) : y;
              reached = above > at(3) ? at(3) : above;
            } else {
              reached = (at(0) * x + at(1)) / (at(2) * x + at(3));
            }
          }
          if (!std::isfinite(reached)) reached = end;
          Number& start = segments.start(i)[segments.entry(i, s, m, c)];
          const double move = relative_difference(reached, start);
          if (!(move <= tolerance)) moved[lane0 + c] = 1;
          if (!(move <= most)) most = move;
          next[i][m * channels + c] = reached - start;
          start = reached;
        }
    }
    change = std::move(next);
  }
  active = std::move(moved);
  return most;
}

}  // namespace cellc
