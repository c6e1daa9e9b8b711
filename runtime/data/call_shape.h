#pragma once
// What the arrays of a call must be: from the table of its arrays (compiler/plan/call_layout.h) and the lengths of the
// call. Whoever binds, runs, allocates or checks arrays asks here.
#include <cstdint>
#include <vector>

#include "compiler/graph/axes.h"
#include "compiler/graph/graph.h"
#include "compiler/plan/call_directions.h"
#include "compiler/plan/call_layout.h"
#include "kernels-templates/abi/call_extent.h"
#include "runtime/data/array.h"
#include "runtime/data/run.h"

namespace cellc {

/// Lengths of a call.
struct CallShape {
  std::vector<std::int64_t> lengths;  ///< by position in the header
  std::int64_t sequences = 0, steps = 0, rows = 0;
  std::vector<std::int64_t> offsets;  ///< empty: none are given, and every sequence has `steps`
  bool reverse = false;

  bool packed() const { return !offsets.empty(); }
  bool operator==(const CallShape&) const = default;
};

/// What the state is carried in: f64 for f64 storage, else f32.
Dtype arithmetic_of(Dtype storage);
Dtype dtype_of(FieldKind kind, Dtype storage);
/// Gradients have arithmetic precision, others what they are of.
Dtype dtype_of(const DirectedField& field, Dtype storage);
/// As what a symbol comes into a run.
FieldKind field_of(SymbolKind kind);

// Numbers of entries end at CELLC_MOST_BYTES, which stands for all that is too large as well.

/// Entries of a row, or of one sequence's start, history or final; of a param: all.
std::int64_t part_entries(const CallField& field, const CallShape& shape);
std::int64_t all_entries(const CallField& field, const CallShape& shape);
/// As callers see it: rows are [sequences, steps, a…], of packed sequences [rows, a…].
std::vector<std::int64_t> array_shape(const CallField& field, const CallShape& shape);
/// In full. Packed sequences are like one of all rows.
cellc_strides strides_of(const CallField& field, const CallShape& shape, cellc_strides given);

/// As runs see it: all sequences' rows lie one behind another. `depth`: of a history.
std::vector<std::int64_t> run_shape(FieldKind kind, const CellGraph& cell, const BoundRun& run,
                                    const std::vector<AxisId>& axes, std::int64_t depth = 0);

}  // namespace cellc
