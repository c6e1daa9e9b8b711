#pragma once
// From a forward run to the run of its tangent. Knows no device: whoever runs the tangent cell has the result then, for
// its states, finals and outs stand in the order of the cell's.
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/pipeline.h"
#include "runtime/data/run.h"

namespace cellc {

/// Whether there is an array; that of a scalar param has no axes either.
inline bool is_given(const Array& array) { return array.data() != nullptr || !array.shape().empty(); }

/// The direction: of what a run reads, in any floating-point dtype, by symbol and shaped as in BoundRun; Array(): that
/// does not move.
struct Tangents {
  std::vector<Array> symbols;    ///< inputs, params, starts of states and of copies that lag
  std::vector<Array> histories;  ///< of lagged inputs; of states that have a delay line
  explicit Tangents(const CellGraph& cell) : symbols(cell.symbols.size()), histories(cell.symbols.size()) {}
};

/// The symbols that move.
TangentOf moved_symbols(const Tangents& tangents);

class TangentRun {
 public:
  /// The tangent of `cell`, which must outlive this, for tangents of these symbols.
  TangentRun(const CellGraph& cell, const TangentOf& of, const DeriveHooks& hooks = {});

  const CellGraph& cell() const { return tangent_.cell; }
  const DerivedCell& derived() const { return tangent_; }
  const Structure& structure() const { return structure_; }

  /// Throws RequestError where a run of which only this is wanted does not keep a state that the tangent reads. bind()
  /// does, too.
  void check_kept(const Wanted& wanted) const;

  /// The arrays of the tangent's run, after a forward run of `forward` that wrote `output`. Memory is shared where
  /// arrays are read as they lie. Throws RequestError where a tangent has another shape than what it is of.
  BoundRun bind(const BoundRun& forward, const RunOutput& output, const Tangents& tangents, Dtype arithmetic) const;

 private:
  const CellGraph& whole_;
  DerivedCell tangent_;
  Structure structure_;
};

}  // namespace cellc
