/* When sequences of a cell lie side by side in vectors: the one rule of runs (runtime/strategy/choose_strategy.cc) and
 * of code that is shipped (kernels-templates/cpu). */
#ifndef CELLC_ABI_SIDE_BY_SIDE
#define CELLC_ABI_SIDE_BY_SIDE

#include "kernels-templates/abi/call_extent.h"

/* Sequences that are walked at a time, at most; and of shipped code entries of an input or out: longer rows fill
 * vectors of their own, and would take too much room for so many sequences. */
enum { CELLC_MOST_LANES = 64, CELLC_MOST_LANE_ENTRIES = 32 };

/* `entries` of all states of a step, and of the `largest` state. One sequence of a narrow cell takes 3 to 60 ns a step,
 * whatever the cell holds; side by side in vectors a quarter of that or less (docs/notes/strategies.md). Where one
 * sequence is fast already, its states in registers and no operation of a step long, vectors have to be full. */
CELLC_INLINE int cellc_lie_side_by_side(int64_t entries, int64_t largest, int in_registers, int64_t vector_lanes,
                                        int64_t sequences, int64_t rows) {
  const int64_t fewest = in_registers ? vector_lanes : 4;
  /* With one entry a state no vector that lies along a cell's axes has more than one. */
  const int narrow = entries <= 4 || (largest <= 1 && entries <= 32);
  return narrow && sequences >= fewest && rows >= 4096;
}

#endif
