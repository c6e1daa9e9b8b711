#pragma once
// States that are known for all steps, read as inputs. Shared by the passes that cut a cell apart.
#include <functional>
#include <map>

#include "compiler/stage_cells.h"

namespace cellc {

/// The cell with every state also readable as an input: symbol `cell.symbols.size() + u` is the
/// trajectory of update u, whose history is the start.
CellGraph with_trajectories(const CellGraph& cell);

/// Drops states and the symbols that nothing reads; the first `originals` symbols are the cell's own.
StatelessCell stateless(CellGraph cell, std::size_t originals);

std::vector<Index> index_of(const CellGraph& cell, int update);
int update_of(const CellGraph& cell, int symbol);

/// Rewrites values so that known states come from their trajectories: h' at this step, h one before.
class KnownStates {
 public:
  using Predicate = std::function<bool(int update)>;
  /// `values`: updates whose h' is read; `reads`: updates whose h is.
  KnownStates(const CellGraph& cell, Graph& graph, Predicate values, Predicate reads);
  NodeId operator()(NodeId root);

 private:
  const CellGraph& cell_;
  Graph& graph_;
  const Predicate reads_;
  std::map<NodeId, int> value_of_;
  std::map<NodeId, NodeId> image_;
};

}  // namespace cellc
