#pragma once
// Copies that lag behind a state, as the rows that were written have them. While segments run side by side each carries
// copies of its own, and at first those are copies of a guess.
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/run.h"

namespace cellc {

/// Where a state's value some steps back is: a row of `parent`, or, before the sequence's first step, a start.
struct LaggedRow {
  std::int64_t step;  ///< of the sequence; negative: before the first
  int start;          ///< update whose start it is, where the step is negative
};

/// Of an update, `back` steps before its own value after step `step`. Not of a state that lags: its own value.
class LaggingStates {
 public:
  explicit LaggingStates(const CellGraph& cell) : cell_(cell) {}

  bool lags(int update) const { return symbol(update).lag_of >= 0; }
  /// The update whose rows say what this one is: the state that it is a copy of, or itself.
  int parent(int update) const { return lags(update) ? update_of(symbol(update).lag_of, 0) : update; }
  /// The value of an update after `step`.
  LaggedRow at(int update, std::int64_t step) const;

  /// Writes the trajectories of those of `updates` that lag, from the rows of their states.
  void write(const std::vector<int>& updates, const BoundRun& run, std::vector<Array>& trajectories) const;

 private:
  const Symbol& symbol(int update) const { return cell_.symbol_of(cell_.updates[update]); }
  int update_of(int symbol, int lag) const;

  const CellGraph& cell_;
};

}  // namespace cellc
