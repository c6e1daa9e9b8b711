#pragma once
// Turns states that are known for all steps into inputs. Shared by the passes that cut a cell apart.
//
// A cell of n stages is cut into about n cells, so a derived cell must cost what it holds and not what
// the whole cell does. Therefore values are copied into graphs of their own, over the same axes, node by node
// as they are needed. (The cell's graph also holds its Jacobian, which grows with the square of the states.)
#include <functional>
#include <unordered_map>

#include "compiler/derive/stage_cells.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

/// The cell's symbols, and every state twice more as an input: symbol `cell.symbols.size() + u` is the trajectory of
/// update u, whose history is the start; and behind all trajectories stand the new values (ArraySource::Kind::Remade).
std::vector<Symbol> with_trajectories(const CellGraph& cell);

/// `cell` with its name and axes only.
CellGraph without_contents(const CellGraph& cell);

/// A cell of `outs`, which are values in `graph`, and of those of the `symbols` that they read; the first
/// `cell.symbols.size()` symbols are the cell's own, the others as with_trajectories has them. `sinks`: by out. Empty
/// without outs.
DerivedCell stateless(Role role, const CellGraph& cell, const std::vector<Symbol>& symbols, const Graph& graph,
                      std::vector<Out> outs, std::vector<ArraySink> sinks);

/// That many results of one kind, numbered.
std::vector<ArraySink> numbered(ArraySink::Kind kind, std::size_t count);

/// Which array a symbol of with_trajectories is.
ArraySource source_of(const CellGraph& cell, int symbol);

std::vector<Index> index_of(const CellGraph& cell, int update);

/// Repeats of an axis made distinct by copies, as declared symbols have them.
std::vector<AxisId> distinct_axes(Graph& graph, const std::vector<AxisId>& axes);

/// Updates by what they assign and by the value that they give it: made once a cell, for all of its stages.
class UpdateTable {
 public:
  explicit UpdateTable(const CellGraph& cell);
  int of_symbol(int symbol) const { return of_symbol_[symbol]; }  ///< -1: not a state's
  /// Updates with this value for each place of their state, ascending, where it is worth reading.
  const std::vector<int>& of_value(NodeId value) const;

 private:
  std::vector<int> of_symbol_;
  std::unordered_map<NodeId, std::vector<int>> of_value_;
};

/// Copies values so that known states come from their trajectories: h' at this step, h one before.
class KnownStates {
 public:
  using Predicate = std::function<bool(int update)>;
  /// `from`: the cell's graph, or a copy that has grown. `to`: over the same axes; may be `from` itself,
  /// where what stays as it is is not copied. `values`: updates whose h' is read; `reads`: updates whose h is.
  /// `remade`: of these, updates whose h' may not be what the row before gives; nor is a copy that lags then what the
  /// state was.
  KnownStates(
      const CellGraph& cell, const UpdateTable& table, const Graph& from, Graph& to, Predicate values, Predicate reads,
      Predicate remade = [](int) { return false; });
  NodeId operator()(NodeId root) { return rewriter_(root); }

 private:
  int known_value(NodeId value) const;  ///< the update, or -1
  NodeId known(NodeId id, const Node& node);

  const CellGraph& cell_;
  const UpdateTable& table_;
  Graph& to_;
  const Predicate values_, reads_, remade_;
  Rewriter rewriter_;
};

/// Updates of stages before `stage` that a scan can run: what that rounds, the stage must not see.
KnownStates::Predicate may_be_remade(const Structure& structure, int stage);

}  // namespace cellc
