#pragma once
// The graph: one step of a cell as an immutable, hash-consed expression DAG in index notation.
//
// A node denotes a real-valued function of its *free axes* (`Node::axes`, sorted by id): for
// every choice of one position per free axis it has one value. Elementwise operators take the
// union of their operands' axes and broadcast by axis identity, never by position. There is no
// "transpose" and no "outer product": both are index lists of reads.
//
//   leaf     := Constant | Size(axis) | Read(symbol, index…, lag) | Eye(axis, axis) | OneHot(axis, n)
//   node     := leaf | elementwise(node…)                          -- rows of ops.def
//             | ReduceSum[bound…](node) | ReduceMax[bound…](node)  -- bound axes are no longer free
//             | Softmax[bound…](node)                 -- normalised over bound, which stay free
//             | MaxShare[bound…](node)                -- 1/n at each of the n largest, else 0; bound stay free
//             | Reindex{axis -> axis or integer}(node)  -- the value of node read at other indices
//             | Surrogate(value, argument…, slope…)     -- is `value`; slopes are for gradients only
//
// `W@h` with W[d,d] is ReduceSum[d#1](Read(W,[d,d#1]) * Read(h,[d#1])), where d#1 is the first
// copy of the axis d. A bound copy gets the smallest number that is free in neither operand, so
// equal contractions hash to equal nodes. A Reindex of a compound node stays a node (it says
// "the same tensor, read elsewhere", so a backend computes the tensor once); a Reindex of a leaf
// is folded into the leaf.
//
// Invariants (checked by verify.h): operands precede their users in id order; the axes of a node
// are exactly those its definition gives; a Read has one index per declared axis.
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/syntax/source.h"
#include "compiler/syntax/tree.h"

namespace cellc {

using AxisId = std::uint32_t;
using NodeId = std::uint32_t;
inline constexpr AxisId kNoAxis = ~0u;
inline constexpr NodeId kNoNode = ~0u;

enum class Op : std::uint8_t {
#define CELLC_OP(Name, ...) Name,
#define CELLC_NODE(Name) Name,
#include "compiler/graph/ops.def"
};

// The words of ops.def's columns, which says what they mean.
enum class Slope : std::uint8_t { Smooth, Kink, Step, Select, Identity };
enum class ValueKind : std::uint8_t { Finite, Singular };
enum class Cost : std::uint8_t { Free, Basic, Short, Long };
enum class Bits : std::uint8_t { Exact, Rounded };
enum class Zero : std::uint8_t { Plus, Signed };

/// A row of ops.def.
struct OpInfo {
  const char* name;  ///< enumerator, e.g. "Tanh"
  const char* text;  ///< spelling in the language, e.g. "tanh" or "+"
  int arity;
  bool call;  ///< written as a call, not as a sign
  Slope slope;
  ValueKind values;
  Cost cost;
  Bits bits;
  Zero zero;
  const char* latex;
};
bool is_elementwise(Op op);
const OpInfo& op_info(Op op);  ///< elementwise operators only
/// The enumerator, of any operator.
const char* op_name(Op op);
inline bool is_comparison(Op op) {
  return op == Op::Lt || op == Op::Le || op == Op::Gt || op == Op::Ge || op == Op::Eq || op == Op::Ne;
}
/// Whether a value of it takes more than a few instructions.
inline bool is_long(Op op) { return is_elementwise(op) && op_info(op).cost == Cost::Long; }
/// The elementwise function called `name` in the language, if there is one.
std::optional<Op> op_by_call_name(const std::string& name);
/// The operator of two operands that is written `sign`, if there is one.
std::optional<Op> op_by_sign(const std::string& sign);

/// An axis as index variable. Its length is that of the header axis `extent_of`.
struct Axis {
  std::string name;                   ///< "d", a renamed "i", or a copy "d#1"
  AxisId extent_of;                   ///< header axis that gives the length (itself for a header axis)
  std::optional<std::int64_t> fixed;  ///< length, where the header fixes it
  AxisId copy_of = kNoAxis;           ///< for copies d#n
  int copy_number = 0;
};

/// One place of an index list: an axis, or a literal position.
struct Index {
  AxisId axis = kNoAxis;
  std::int64_t literal = 0;  ///< used where axis == kNoAxis
  bool is_axis() const { return axis != kNoAxis; }
  bool operator==(const Index&) const = default;
};

struct Node {
  Op op = Op::Constant;
  std::vector<NodeId> args;
  double number = 0;          ///< Constant
  int symbol = -1;            ///< Read
  std::vector<Index> index;   ///< Read: one per declared axis. Eye: two. OneHot: axis, literal. Size: axis
  int lag = 0;                ///< Read of an input, a delay line among them: steps back
  AxisId lag_axis = kNoAxis;  ///< Read of an input: further steps back by the position on this axis
  std::vector<std::pair<AxisId, Index>> map;  ///< Reindex, sorted by axis; identity pairs are left out
  std::vector<AxisId> bound;                  ///< ReduceSum, ReduceMax, Softmax, MaxShare; sorted
  std::vector<AxisId> axes;                   ///< free axes, sorted; derived
  Span span;                                  ///< where the source says it (first occurrence)
};

class Graph {
 public:
  Graph();

  // Axes -------------------------------------------------------------------------------------
  AxisId add_header_axis(const std::string& name, std::optional<std::int64_t> fixed);
  /// The index variable `name` with the length of `like` (a renamed axis); interned.
  AxisId renamed_axis(const std::string& name, AxisId like);
  /// The n-th copy (n >= 1) of an axis; interned.
  AxisId copy_axis(AxisId axis, int number);
  /// States the length of a header axis that the header leaves open. Nodes stay as they are.
  void fix_length(AxisId header, std::int64_t length) { axes_[header].fixed = length; }
  const Axis& axis(AxisId id) const { return axes_[id]; }
  std::size_t axis_count() const { return axes_.size(); }
  bool same_length(AxisId a, AxisId b) const;
  /// A graph over the same axes, with the same ids, that has no nodes yet.
  Graph without_nodes() const;

  // Nodes ------------------------------------------------------------------------------------
  // Constants are folded where every operand is one; nothing else is rewritten here, so that
  // what runs is what was written. Algebra for proofs is in simplify.h.
  NodeId constant(double value, Span span = {});
  NodeId size(AxisId axis, Span span = {});
  NodeId read(int symbol, std::vector<Index> index, Span span = {}, int lag = 0, AxisId lag_axis = kNoAxis);
  NodeId eye(Index a, Index b, Span span = {});  ///< 1 where equal, else 0; folds literals and i==i
  NodeId op(Op op, std::vector<NodeId> args, Span span = {});
  NodeId reduce_sum(std::vector<AxisId> bound, NodeId body,
                    Span span = {});  ///< axes the body lacks multiply by their size
  NodeId reduce_max(std::vector<AxisId> bound, NodeId body, Span span = {});
  NodeId softmax(std::vector<AxisId> bound, NodeId body, Span span = {});
  /// The slope of reduce_max with respect to its body. One operator rather than `body == max(body)`,
  /// which stops holding as soon as one side is summed in another order than the other.
  NodeId max_share(std::vector<AxisId> bound, NodeId body, Span span = {});
  NodeId reindex(NodeId node, std::vector<std::pair<AxisId, Index>> map, Span span = {});
  NodeId surrogate(NodeId value, std::vector<NodeId> arguments, std::vector<NodeId> slopes, Span span = {});
  /// `node`, of this graph or of one with the same axes and symbols, with other operands.
  NodeId rebuild(const Node& node, std::vector<NodeId> args);
  /// Contraction of `axis` between a and b, batching all other shared axes. `a` and `b` must
  /// already have been indexed so that `axis` is the bound one in both.
  NodeId contract(AxisId axis, NodeId a, NodeId b, Span span = {});

  const Node& operator[](NodeId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }
  bool has_axis(NodeId node, AxisId axis) const;
  bool is_constant(NodeId node, double value) const;

 private:
  NodeId intern(Node node);
  NodeId normalised(Op op, std::vector<AxisId> bound, NodeId body, Span span);
  std::deque<Node> nodes_;  // references to nodes stay valid while the graph grows
  std::vector<Axis> axes_;
  std::unordered_multimap<std::size_t, NodeId> table_;
};

/// A state, input or param of the cell.
struct Symbol {
  std::string name;
  SymbolKind kind = SymbolKind::Input;
  std::vector<AxisId> axes;   ///< declared header axes in order; may repeat (W[d,d])
  std::vector<AxisId> index;  ///< the same with repeats made distinct by copies ([d, d#1]): how
                              ///< updates, outs and starts of this symbol are indexed
  NodeId initial = kNoNode;   ///< start or default (indexed by `index`); kNoNode: 0 for a state, none for the rest
  std::optional<Range> range;
  Span span;
  int lag_of = -1;   ///< companion state: the state symbol it is a lagged copy of
  int lag = 0;       ///< companion state: holds what `lag_of` was `lag` steps before
  int line_of = -1;  ///< delay line: an input that nobody gives. Its rows are those that the run writes of the state
                     ///< `line_of`, and it is only read steps back: one step back it is that state itself
  int max_lag = 0;   ///< deepest lag read of this state or input (history length of NAME.lag);
                     ///< -1 for an input lagged along an axis whose length only the run knows:
                     ///< then the largest, over its reads, of lag + length(lag_axis) - 1
};

struct StateUpdate {
  int symbol;
  NodeId value;  ///< free axes are among symbol.index; a missing one repeats
  Span span;
};

struct Out {
  std::string name;
  std::vector<AxisId> index;  ///< order in which it is written
  NodeId value;
  Span span;
};

/// A name that the cell gives to a value, for printing.
struct NamedValue {
  std::string name;
  NodeId node;
  std::vector<AxisId> index;
  Span span;
  bool ordered = false;  ///< the cell orders its places (one axis at most, or listed): `name[i,j]` is legal
};

/// One cell, lowered. Updates stand in the order of the states' declarations, a companion state
/// directly after the state that it lags (lag 1, lag 2, …). Delay lines are the last symbols, one a state at most.
struct CellGraph {
  std::string name;
  Span span;
  Graph graph;
  std::vector<AxisId> header;
  std::vector<Symbol> symbols;
  std::vector<StateUpdate> updates;
  std::vector<Out> outs;
  std::vector<NamedValue> named;

  const Symbol& symbol_of(const StateUpdate& u) const { return symbols[u.symbol]; }
  bool has_lines() const { return !symbols.empty() && symbols.back().line_of >= 0; }
  int find_symbol(const std::string& name) const;  ///< -1 if there is none
};

}  // namespace cellc
