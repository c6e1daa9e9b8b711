#pragma once
// s = a*s + b over neighbouring steps, in vectors along time. Private to the scan along time.
//
// Within a vector the maps of one, two, four and eight steps are composed (Kogge and Stone): about ten
// shuffles for sixteen steps. To transpose tiles of lanes and steps (transpose_tiles.h) costs fifteen for each
// array that is read or written, and takes every entry through the caches a second time.
#include <cstddef>
#include <cstdint>

namespace cellc {

/// Lines to ask for meanwhile, one of each array a vector: memory would idle while steps are composed.
struct LinesAhead {
  const std::byte* const* arrays;
  int count;
};

template <typename Number>
struct StepComposer {
  /// Steps of a vector: what `steps` below is a multiple of.
  std::int64_t width;
  /// s[t] = a[t]*s[t − 1] + b[t], s[−1] = start. The product of all a.
  double (*compose)(const Number* a, const Number* b, std::int64_t steps, Number start, Number* s, LinesAhead ahead);
  /// Copies s to `to`. The largest |f − s| over |s| + size, at most two parts in ten thousand too large; infinity where
  /// any is no number. `size` > 0. `past_caches`: lines do not stay; for what is not read soon.
  double (*check_and_copy)(const Number* f, const Number* s, std::int64_t steps, Number size, Number* to,
                           bool past_caches);
  /// The largest |s|; of what is no number or infinite some number or infinity.
  Number (*largest)(const Number* s, std::int64_t steps);
};

/// For this processor; null where it has no vectors that make this worth while.
template <typename Number>
const StepComposer<Number>* step_composer();

}  // namespace cellc
