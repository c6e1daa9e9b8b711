#pragma once
// Arrays of a run as some step reads them that is not their own: the state before it, inputs some steps back. Shared by
// adjoint and tangent runs.
#include <cstddef>
#include <optional>

#include "compiler/derive/derived_cell.h"
#include "runtime/data/run.h"

namespace cellc {

/// Rows of one sequence by the order in which a run meets them.
struct Steps {
  std::int64_t begin, count;
  bool reverse;
  Steps(const BoundRun& run, std::size_t sequence)
      : begin(run.offsets[sequence]), count(run.offsets[sequence + 1] - begin), reverse(run.reverse) {}
  std::int64_t row(std::int64_t step) const { return reverse ? begin + count - 1 - step : begin + step; }
};

/// The address of an entry.
inline std::byte* at(Array& array, std::int64_t entry) {
  return static_cast<std::byte*>(array.data()) + static_cast<std::size_t>(entry) * size_of(array.dtype());
}
inline const std::byte* at(const Array& array, std::int64_t entry) {
  return static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(entry) * size_of(array.dtype());
}

/// Throws RequestError where a run of `cell` does not keep a state that `derived` reads at every step; `what`:
/// "gradients".
void check_kept(const CellGraph& cell, const DerivedCell& derived, const Wanted& wanted, const char* what);

/// The trajectory [rows, a…] one step before, which begins with the start [N, a…]; of one dtype. `reuse`: memory that
/// is written again where it fits and nobody else holds it.
Array previous_rows(const BoundRun& run, const Array& trajectory, const Array& start, Array reuse = {});

/// An input [rows, a…] as it was `lag` steps before each step, beyond the first step from its history [N, n, a…]. With
/// `along`: so many of them, each one step further back, as a last axis. Both of one dtype.
Array lagged_rows(const BoundRun& run, const Array& input, const Array& history, int lag,
                  std::optional<std::int64_t> along);

/// The rows that a run read of an input; of a delay line those that it wrote of its state.
const Array& rows_of_symbol(const CellGraph& cell, const BoundRun& run, const RunOutput& output, std::size_t symbol);

/// The tangent of a delay line's history, from that of its state's start; `history`, of the state, may be absent: that
/// does not move.
Array tangent_of_line(const Array& start, const Array& history, std::int64_t depth);

/// The transpose: adds what each step contributed to what it read.
void add_lagged_rows(const BoundRun& run, const Array& contributed, int lag, std::optional<std::int64_t> along,
                     Array& input, Array& history);

/// Of that, what went to the history alone.
void add_lagged_history(const BoundRun& run, const Array& contributed, int lag, Array& history);

}  // namespace cellc
