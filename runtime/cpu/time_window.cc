#include "runtime/cpu/time_window.h"

namespace cellc {

void cut_window(const CellGraph& cell, const BoundRun& run, const std::vector<Array>& trajectories, std::int64_t begin,
                std::int64_t steps, TimeWindow& window) {
  static_cast<RunWindow&>(window) = cut_run(cell, run, trajectories, begin, steps);
  window.arrays = {};
  window.arrays.cell = &cell;
  window.arrays.run = &window.run;
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    window.arrays.trajectories.push_back(u < trajectories.size() ? rows_of(window, run, trajectories[u]) : Array());
}

void put_back(const TimeWindow& window, const std::vector<int>& updates, const BoundRun& run,
              std::vector<Array>& trajectories) {
  for (const int u : updates) put_rows(window, run, window.arrays.trajectories[u], trajectories[u]);
}

}  // namespace cellc
