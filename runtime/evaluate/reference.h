#pragma once
// The sequential f64 reference: the evaluator computes the cell's graph, one step after another,
// with no code generated. It is slow; `run --verify` and `check` measure against it.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "compiler/graph/graph.h"
#include "runtime/data/run.h"

namespace cellc {

/// Runs what `run` says in f64, from the same (already rounded) arrays. Every array is F64. `rounded`: what to make of
/// each intermediate value, to see what rounding does; called by several threads.
RunOutput reference_run(const CellGraph& cell, const BoundRun& run, const std::function<double(double)>& rounded = {});

/// The largest |a - b| / (|b| + m) of a run's states, outs and finals against the reference's, m the largest |b| of the
/// lane: of an entry, over the sequence.
/// Two NaN agree, as do equal infinities; a number against neither of them is infinitely far. Of several that are
/// infinitely far the one that was made first is named: the others may follow from it.
struct Deviation {
  double error = 0;
  std::string array;  ///< where: "h", "y", "h.final"; empty where nothing was compared
  std::int64_t sequence = 0;
  std::int64_t step = 0;  ///< within the sequence
  double got = 0, want = 0;
  double finite_error = 0;  ///< the largest where both are numbers
};
Deviation compare(const CellGraph& cell, const BoundRun& run, const RunOutput& got, const RunOutput& reference);

/// The earliest step (in the order of the run) at which a state or an out is NaN or infinite.
struct NonFinite {
  std::string array;
  bool is_state;
  std::int64_t sequence, step;
};
std::optional<NonFinite> first_nonfinite(const CellGraph& cell, const BoundRun& run, const RunOutput& output);

/// The same of arrays by name, in the same order: over |value| + the largest of the array.
Deviation compare_arrays(const std::vector<std::pair<std::string, Array>>& got,
                         const std::vector<std::pair<std::string, Array>>& reference);

}  // namespace cellc
