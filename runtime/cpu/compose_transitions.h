#pragma once
// The scan over segments: computes the start of each from the ends and transitions of all.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compiler/analysis/semiring.h"
#include "compiler/derive/transition_cell.h"
#include "runtime/cpu/segments.h"

namespace cellc {

/// The transitions' identity, for every segment and channel, into a transition cell's states.
template <typename Number>
void put_identity(const TransitionCell& transitions, const StageData& data, std::int64_t segments, SegmentStates& to) {
  const auto fill = [&](int position, std::int64_t mixed, auto value_of) {
    Number* const p = static_cast<Number*>(to.arrays[position].data());
    for (std::int64_t s = 0; s < segments; ++s)
      for (std::int64_t m = 0; m < mixed; ++m)
        std::fill_n(p + (s * mixed + m) * data.channels(), data.channels(), value_of(m));
  };
  constexpr Number infinite = std::numeric_limits<Number>::infinity();
  if (transitions.kind == Scannable::Clip) {
    const Number values[4] = {1, 0, -infinite, infinite};
    for (int k = 0; k < 4; ++k) fill(transitions.map[k], 1, [&](std::int64_t) { return values[k]; });
  } else if (transitions.kind == Scannable::Moebius) {
    const Number values[4] = {1, 0, 0, 1};
    for (int k = 0; k < 4; ++k) fill(transitions.map[k], 1, [&](std::int64_t) { return values[k]; });
  } else {
    const bool numbers = transitions.kind == Scannable::Affine;
    const Number one = numbers ? 1 : 0, zero = numbers ? 0 : static_cast<Number>(semiring_zero(transitions.kind));
    for (int i = 0; i < data.states(); ++i)
      for (int j = 0; j < data.states(); ++j) {
        if (transitions.position[i][j] < 0) continue;
        const std::int64_t columns = data.mixed(j);
        fill(transitions.position[i][j], data.mixed(i) * columns,
             [&](std::int64_t m) { return i == j && m / columns == m % columns ? one : zero; });
      }
    for (std::size_t i = 0; i < transitions.offset.size(); ++i)
      fill(transitions.offset[i], data.mixed(static_cast<int>(i)), [&](std::int64_t) { return zero; });
  }
}

/// The recurrence over segments, in the order of time: from ends and transitions to the start of each.
template <typename Number>
class Composer {
 public:
  /// `active[sequence * channels + c]`: the lane takes part.
  Composer(const TransitionCell& transitions, const StageData& data, Segments<Number>& segments,
           const SegmentStates& swept, std::vector<char> active)
      : transitions_(transitions),
        data_(data),
        segments_(segments),
        swept_(swept),
        active_(std::move(active)),
        moved_(active_.size(), 0) {
    for (int i = 0; i < data.states(); ++i) {
      change_.emplace_back(static_cast<std::size_t>(data.mixed(i) * data.channels()), Number{0});
      next_.push_back(change_.back());
      size_.emplace_back(change_.back().size(), 0.0);
    }
  }

  /// New starts of segments [begin, end); calls follow each other without gaps. A start that moves by
  /// more than `tolerance` marks its lane as moved.
  void advance(std::int64_t begin, std::int64_t end, double tolerance) {
    for (std::int64_t s = begin; s < end; ++s) {
      if (segments_.is_first(s)) {
        for (auto& c : change_) std::fill(c.begin(), c.end(), Number{0});
        for (auto& s : size_) std::fill(s.begin(), s.end(), 0.0);
        continue;
      }
      // The left neighbour's end had it started where it now does: change = new start − old start.
      const std::int64_t left = s - 1, channels = data_.channels(), lane0 = segments_[s].sequence * channels;
      for (int i = 0; i < data_.states(); ++i)
        for (std::int64_t m = 0; m < data_.mixed(i); ++m)
          for (std::int64_t c = 0; c < channels; ++c) {
            if (!active_[lane0 + c]) continue;
            const Number to = reached(i, m, c, left);
            Number& start = segments_.start(i)[segments_.entry(i, s, m, c)];
            double& size = size_[i][static_cast<std::size_t>(m * channels + c)];
            for (const Number value : {start, to})
              if (std::isfinite(value)) size = std::max(size, std::fabs(static_cast<double>(value)));
            const double move = relative_difference(to, start, size);
            if (!(move <= tolerance)) moved_[lane0 + c] = 1;
            if (!(move <= most_)) most_ = move;
            next_[i][m * channels + c] = to - start;
            start = to;
          }
      std::swap(change_, next_);
    }
  }

  double largest_move() const { return most_; }  ///< over |start| + the largest of its lane so far
  const std::vector<char>& moved() const { return moved_; }

 private:
  const Number* array(int position) const { return static_cast<const Number*>(swept_.arrays[position].data()); }

  Number reached(int i, std::int64_t m, std::int64_t c, std::int64_t left) const {
    const std::int64_t channels = data_.channels(), rows = data_.mixed(i);
    const Number end = array(i)[segments_.entry(i, left, m, c)];
    if (is_semiring(transitions_.kind)) return semiring_sum(i, m, c, left, end);
    Number result = end;
    if (transitions_.kind == Scannable::Affine) {
      for (int j = 0; j < data_.states(); ++j) {
        if (transitions_.position[i][j] < 0) continue;
        const std::int64_t columns = data_.mixed(j);
        for (std::int64_t k = 0; k < columns; ++k) {
          const Number d = change_[j][k * channels + c];
          // An overflowed transition times no change is no change.
          if (d == 0) continue;
          result += array(transitions_.position[i][j])[(left * rows * columns + m * columns + k) * channels + c] * d;
        }
      }
    } else {
      const Number x = segments_.start(i)[segments_.entry(i, left, m, c)];
      const auto at = [&](int k) { return array(transitions_.map[k])[left * channels + c]; };
      if (transitions_.kind == Scannable::Clip) {
        const Number y = at(0) * x + at(1), above = y < at(2) ? at(2) : y;
        result = above > at(3) ? at(3) : above;
      } else {
        result = (at(0) * x + at(1)) / (at(2) * x + at(3));
      }
    }
    return std::isfinite(result) ? result : end;
  }

  /// offset ⊕ (P + start), in f64. Infinities are numbers here.
  Number semiring_sum(int i, std::int64_t m, std::int64_t c, std::int64_t left, Number end) const {
    const std::int64_t channels = data_.channels(), rows = data_.mixed(i);
    std::vector<double>& terms = terms_;
    terms.assign(1, static_cast<double>(array(transitions_.offset[i])[(left * rows + m) * channels + c]));
    for (int j = 0; j < data_.states(); ++j) {
      if (transitions_.position[i][j] < 0) continue;
      const Number* const matrix = array(transitions_.position[i][j]);
      const std::int64_t columns = data_.mixed(j);
      for (std::int64_t k = 0; k < columns; ++k)
        terms.push_back(static_cast<double>(matrix[(left * rows * columns + m * columns + k) * channels + c]) +
                        static_cast<double>(segments_.start(j)[segments_.entry(j, left, k, c)]));
    }
    const auto nan = std::find_if(terms.begin(), terms.end(), [](double x) { return x != x; });
    if (nan != terms.end()) return end;  // infinities of both signs met
    if (transitions_.kind == Scannable::MinPlus)
      return static_cast<Number>(*std::min_element(terms.begin(), terms.end()));
    const double most = *std::max_element(terms.begin(), terms.end());
    if (transitions_.kind == Scannable::MaxPlus || !std::isfinite(most)) return static_cast<Number>(most);
    double sum = 0;
    for (const double x : terms) sum += std::exp(x - most);
    return static_cast<Number>(most + std::log(sum));
  }

  const TransitionCell& transitions_;
  const StageData& data_;
  Segments<Number>& segments_;
  const SegmentStates& swept_;
  mutable std::vector<double> terms_;
  const std::vector<char> active_;
  std::vector<char> moved_;
  std::vector<std::vector<Number>> change_, next_;
  std::vector<std::vector<double>> size_;  ///< of the starts of a lane so far
  double most_ = 0;
};

}  // namespace cellc
