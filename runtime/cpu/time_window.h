#pragma once
// Some steps of every sequence as a run of its own. Its starts are the states at the end of the steps before,
// and its histories are what lagged inputs had there.
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/cpu/engine.h"
#include "runtime/cpu/stage_data.h"

namespace cellc {

struct TimeWindow {
  BoundRun run;
  RunArrays arrays;                     ///< of `run`; its trajectories are those of the whole run, cut
  std::vector<std::int64_t> sequences;  ///< of the whole run: those that are as long
  std::int64_t begin = 0;

  TimeWindow() = default;
  TimeWindow(const TimeWindow&) = delete;  // arrays point to run
  TimeWindow& operator=(const TimeWindow&) = delete;
};

/// Steps [begin, begin + steps) of the sequences that have them. Trajectories that the whole run has not
/// allocated stay unallocated; those before `begin` must be known.
void cut_window(const CellGraph& cell, const BoundRun& run, const std::vector<Array>& trajectories, std::int64_t begin,
                std::int64_t steps, TimeWindow& window);

/// The window's rows of an array that has a row for each step of `run`.
Array rows_of(const TimeWindow& window, const BoundRun& run, const Array& whole);

/// Writes the window's trajectories of some updates where they belong.
void put_back(const TimeWindow& window, const std::vector<int>& updates, const BoundRun& run,
              std::vector<Array>& trajectories);

/// Calls visit(row of the window's run, row of the whole run) for each of the window's rows.
void each_row(const TimeWindow& window, const BoundRun& run,
              const std::function<void(std::int64_t, std::int64_t)>& visit);

}  // namespace cellc
