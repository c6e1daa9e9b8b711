#pragma once
// A window of a run with the arrays of kernels on a CPU.
#include <cstdint>
#include <vector>

#include "runtime/cpu/engine.h"
#include "runtime/cpu/stage_data.h"
#include "runtime/data/run_window.h"

namespace cellc {

struct TimeWindow : RunWindow {
  RunArrays arrays;  ///< of `run`; its trajectories are those of the whole run, cut

  TimeWindow() = default;
  TimeWindow(const TimeWindow&) = delete;  // arrays point to run
  TimeWindow& operator=(const TimeWindow&) = delete;
};

/// Steps [begin, begin + steps) of the sequences that have them. Trajectories that the whole run has not
/// allocated stay unallocated; those before `begin` must be known.
void cut_window(const CellGraph& cell, const BoundRun& run, const std::vector<Array>& trajectories, std::int64_t begin,
                std::int64_t steps, TimeWindow& window);

/// Writes the window's trajectories of some updates where they belong.
void put_back(const TimeWindow& window, const std::vector<int>& updates, const BoundRun& run,
              std::vector<Array>& trajectories);

}  // namespace cellc
