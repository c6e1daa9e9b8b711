#pragma once
// Histories, and the lagged copies of a state that are made of them or become them.
#include <cstdint>
#include <vector>

#include "runtime/data/array.h"
#include "runtime/data/run.h"

namespace cellc {

/// [sequences, n, a…] -> [sequences, a…], of the steps `lag` before the next.
Array lag_of_history(const Array& history, int lag);
/// The way back: copies at lag 1, 2, ….
Array history_of_lags(const std::vector<const Array*>& lags);
/// The history of `depth` steps of a delay line: the start of its state, and before it the state's own history, which
/// may be absent: then it always was as it starts.
Array history_of_line(const Array& start, const Array& history, std::int64_t depth);
/// The history of so many steps of a state that always was as it starts.
Array history_of_start(const Array& start, std::int64_t depth);
/// The history of a delay line as a run begins: its first entries are the start of its state and of the copies that lag
/// behind that, whatever the run's history has in their place.
Array history_as_started(const CellGraph& cell, const BoundRun& run, std::size_t line);
/// The history of an input after the run: entry j is what was read j+1 steps before the next step. `rows`: the input's,
/// or of a delay line those of its state.
Array final_history(const BoundRun& run, int symbol, const Array& rows);
/// The last part of a state's history after the run is the line's after its first entry. What copies at lag 1, 2, …
/// have of it is theirs.
Array history_of_line_and_lags(const Array& line, const std::vector<const Array*>& lags, Dtype dtype);

}  // namespace cellc
