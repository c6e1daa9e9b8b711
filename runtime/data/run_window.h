#pragma once
// Some steps of every sequence as a run of its own. Its starts are the states at the end of the steps before,
// and its histories are what lagged inputs had there.
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/data/bind.h"

namespace cellc {

struct RunWindow {
  BoundRun run;
  std::vector<std::int64_t> sequences;  ///< of the whole run: those that are as long
  std::int64_t begin = 0;
};

/// Steps [begin, begin + steps) of the sequences that have them. Starts are the run's where the trajectory is not
/// known; those that are must be known before `begin`.
RunWindow cut_run(const CellGraph& cell, const BoundRun& run, const std::vector<Array>& trajectories,
                  std::int64_t begin, std::int64_t steps);

/// The window's rows of an array that has a row for each step of `run`.
Array rows_of(const RunWindow& window, const BoundRun& run, const Array& whole);
/// The way back.
void put_rows(const RunWindow& window, const BoundRun& run, const Array& part, Array& whole);

/// Calls visit(row of the window's run, row of the whole run) for each of the window's rows.
void each_row(const RunWindow& window, const BoundRun& run,
              const std::function<void(std::int64_t, std::int64_t)>& visit);

}  // namespace cellc
