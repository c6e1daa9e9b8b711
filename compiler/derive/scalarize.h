#pragma once
// A lane cell in which every axis but the lane is written out: one scalar expression an entry of a state.
// Follows stage_cells (or a cell derived from a lane cell); precedes emit_cuda_lane.
//
// Needs the length of every axis that the step mentions. Sums and maxima run in index order, as in the CPU's
// kernels; softmax is written out as there. Sizes, identities and one-hots become numbers, and arithmetic
// on numbers alone is done here, in the precision of the run. Other rewriting is limited to what is equal
// for every operand, NaN included.
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "compiler/derive/transition_cell.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// An entry of a symbol: its row-major position over the symbol's axes other than the lane.
struct SymbolEntry {
  int symbol = -1;
  std::int64_t entry = 0;
  auto operator<=>(const SymbolEntry&) const = default;
};

/// Constant, Read or a row of ops.def, without StopGradient.
struct Scalar {
  Op op = Op::Constant;
  std::array<int, 3> args{-1, -1, -1};
  int arity = 0;
  double number = 0;                   ///< Constant
  SymbolEntry entry;                   ///< Read
  NodeId node = kNoNode;               ///< the node that it is first a value of; kNoNode: part of a spelled-out node
  std::vector<std::int64_t> position;  ///< which entry of `node`, over the node's axes but the lane
  Span span;
};

struct ScalarizedCell {
  std::vector<Scalar> scalars;      ///< operands precede their users
  std::vector<SymbolEntry> states;  ///< all entries, in the order of updates, without those of `zero`
  std::vector<int> next;            ///< by state: its scalar
};

struct ScalarizeOptions {
  std::map<AxisId, std::int64_t> sizes;  ///< by header axis; fixed lengths need none
  bool f64 = false;
  std::int64_t limit = 4000;   ///< operations
  std::set<SymbolEntry> zero;  ///< entries of states that are zero for ever: left out, with what they are factors of
  int own = -1;  ///< updates from here on are transitions: linear, so a factor zero by its form ends a product
};

/// The cell is longer than `limit` when written out: run it another way.
struct ScalarizedTooLong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws std::logic_error where an operand does not precede its user, or a number stands for nothing.
void verify(const ScalarizedCell& scalars);

/// Entries that `symbol` has in a lane. Throws as scalar_lane does (pipeline.h).
std::int64_t entries_of(const CellGraph& cell, AxisId lane, int symbol, const std::map<AxisId, std::int64_t>& sizes);

/// Entries of affine transitions that no product of Jacobian entries reaches from the identity.
std::set<SymbolEntry> zero_transitions(const TransitionCell& transitions, AxisId lane, ScalarizeOptions options);

}  // namespace cellc
