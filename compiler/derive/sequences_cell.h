#pragma once
// A cell whose sequences lie side by side: the whole step over one axis more, `lane`, along which nothing moves. Every
// state, input and out has that axis last, params do not, so the sequences of a batch fill vectors that the axes of a
// narrow cell do not.
//
// Only of cells whose steps sum nothing up. What is elementwise has the same bits in any lane of any vector; a sum has
// those of the order in which it is added up, and that is another one where its own axis is walked in vectors. Outs of
// an adjoint that are summed up over sequences, for gradients of params, have no such order.
#include <optional>
#include <vector>

#include "compiler/derive/derived_cell.h"

namespace cellc {

/// What the cell reads of an input some steps back: an input like others here.
struct EarlierInput {
  int symbol = -1;  ///< of the whole cell
  int lag = 0;
};

struct SequencesCell {
  DerivedCell sequences;              ///< its states and outs are the whole cell's, in their order
  AxisId lane = kNoAxis;              ///< header axis, the last one
  std::vector<EarlierInput> earlier;  ///< as ArraySource::Lagged numbers them
};

/// Whether each state is one number that a kernel of the cell keeps in a register, and no step has a long operation:
/// then a step of one sequence takes little more than the operations that wait for each other.
bool steps_in_registers(const CellGraph& cell);

}  // namespace cellc
