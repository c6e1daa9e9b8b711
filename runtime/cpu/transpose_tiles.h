#pragma once
// Transposes tiles of sixteen lanes by sixteen steps in registers, between lanes that lie step after step
// and tiles whose rows are lanes side by side. Private to the lane kernel.
//
// Entry by entry such a tile costs 256 loads and stores, in registers some 32 to 64 shuffles. The library is
// built for any processor of its kind, so the processor is asked once what it has.
#include <cstdint>

namespace cellc {

inline constexpr std::int64_t kBlock = 16;

/// `blocks` blocks, one after the other in time. Lane l's steps are neighbours from lanes[l] on; row t
/// of the tile is at row + t * row_step.
struct TurnedBlocks {
  std::int64_t blocks;
  std::int64_t row_step;  ///< may be negative
};

template <typename Number>
struct TileTransposer {
  void (*to_rows)(const Number* const* lanes, const TurnedBlocks& blocks, Number* row);
  /// `past_caches`: lines are not fetched first and do not stay; for what is not read soon.
  void (*to_lanes)(const Number* row, const TurnedBlocks& blocks, Number* const* lanes, bool past_caches);
};

/// For this processor.
template <typename Number>
const TileTransposer<Number>& block_turner();

/// Every one that this processor can run; the last needs nothing of it.
template <typename Number>
int block_turners(const TileTransposer<Number>* (&found)[3]);

}  // namespace cellc
