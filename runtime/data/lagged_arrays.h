#pragma once
// Histories, and the lagged copies of a state that are made of them or become them.
#include <vector>

#include "runtime/data/array.h"
#include "runtime/data/run.h"

namespace cellc {

/// [sequences, n, a…] -> [sequences, a…], of the steps `lag` before the next.
Array lag_of_history(const Array& history, int lag);
/// The way back: copies at lag 1, 2, ….
Array history_of_lags(const std::vector<const Array*>& lags);
/// The history of an input after the run: entry j is what was read j+1 steps before the next step.
Array final_history(const BoundRun& run, int symbol);

}  // namespace cellc
