#pragma once
// What a caller of a shipped cell sees of it, as tables: axes, fields, symbols; and the table of the whole cell.
#include "runtime/cuda/ship/aot_cell.h"

namespace cellc {

class AotOutline {
 public:
  AotOutline(AotCell& to, const ShipRequest& request) : to_(to), cell_(to.cell_), request_(request) {}

  /// Axes, fields, symbols, updates and outs. Throws RequestError, UsageError: lengths that no call can have.
  void describe();
  /// The axes of an array, by position in the header.
  cellc_dims dims(const std::vector<AxisId>& axes);
  /// The table of the cell, once all that it points to is there. `running`: what lanes keep their states in.
  void finish(Dtype running, bool runs_stepwise, const GpuFacts& card);

 private:
  AotCell& to_;
  const CellGraph& cell_;
  const ShipRequest& request_;
};

}  // namespace cellc
