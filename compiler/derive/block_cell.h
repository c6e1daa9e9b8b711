#pragma once
// A cell with delay lines over so few steps that none of its lines brings what the same steps write. Then what a line
// brings is known before the first of them: each lag that is read is an input like others, and the steps wait for each
// other only as far as the cell's own states say. So a run is a row of blocks of steps, each of which any strategy
// runs.
#include <vector>

#include "compiler/derive/derived_cell.h"

namespace cellc {

/// What the cell reads of a delay line `lag` steps back (1: the state before the step).
struct LineTap {
  int line = -1;  ///< symbol of the whole cell
  int lag = 0;
};

struct BlockCell {
  DerivedCell block;          ///< symbols: the whole cell's but its lines, then an input a tap (ArraySource::Tap)
  std::vector<LineTap> taps;  ///< as ArraySource::Tap numbers them
  int steps = 0;              ///< of a block, at most
};

}  // namespace cellc
