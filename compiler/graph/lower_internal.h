#pragma once
// Shared by the files lower*.cc; nobody else includes it.
//
// A cell is lowered in two passes. First its lines become nodes of a scratch graph, in which h' is a
// leaf of its own (the symbol `prime(h)`) and any read may carry a lag. Then lag(e, n) is a rewriting
// of leaves, and a lag of h' differs from a lag of the expression that h' happens to be. At last
// `finish` copies what is used into the cell's graph: it puts updates in place of primes, and
// companion states or delay lines in place of lags; only then is the number of lags known exactly.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/graph/rewriter.h"
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"
#include "compiler/syntax/tree.h"

namespace cellc::lowering {

inline constexpr int kMaxLag = 4096;
/// Lags of a state that are states of their own, to be carried in registers and to be a part of the block that
/// strategies solve; that holds 16 entries at most (kMostDerivedStates). What lies further back is read from the rows.
inline constexpr int kMostCompanions = 15;
inline constexpr int kMaxStateLagAxis = 256;            ///< each entry of lag[w](h) is written out
inline constexpr int kMaxCallDepth = 64;                ///< functions that call functions
inline constexpr int kMaxDepth = 600;                   ///< nesting of expressions through inlined functions
inline constexpr std::size_t kMaxSymbols = 4096;        ///< states (lagged ones too), inputs and params of one cell
inline constexpr std::size_t kMaxAxes = 1024;           ///< index variables of one cell
inline constexpr std::size_t kMaxErrors = 1000;         ///< a hostile file must not cost a search per error
inline constexpr std::size_t kMaxSuggestions = 60;      ///< nobody reads further, and each looks at every name
inline constexpr std::size_t kMaxWork = 3 * kMaxNodes;  ///< steps of inlining and lagging in one file

/// A value during lowering. `order` names every axis that the value has in the sense of the
/// language; its node may lack some, along which it is then constant.
struct Value {
  NodeId node = kNoNode;
  int symbol = -1;            ///< a declared tensor or a prime: read anew at each use, for its span
  std::vector<AxisId> order;  ///< index variable of each place
  std::vector<AxisId> shown;  ///< axis that the text names at each place: d where `order` has d#1
  bool ordered = false;       ///< the order of places means something
  bool poisoned = false;      ///< an error was reported: uses give no further ones
  std::string name;           ///< as the text calls it; empty for an expression
  bool repeated() const { return order != shown; }
};

struct BoundName {
  Value value;
  Span span;
};

/// What the names of a cell's lines, of a start or of a function's body mean.
struct Scope {
  enum class Kind { Cell, Function, Start, Default };
  Kind kind = Kind::Cell;
  std::map<std::string, AxisId> axes;                      ///< header axes, or a function's own
  std::map<std::string, std::vector<AxisId>> index_names;  ///< introduced by index lists, one a length
  std::map<std::string, std::set<AxisId>> in_line;         ///< those of them that the line at hand introduces
  std::map<std::string, BoundName> values;
  std::map<std::string, BoundName> primes;  ///< of a cell: states that have their line
  std::set<std::string> mentioned;          ///< in index lists, with a length or without
  std::set<std::string> displayed;          ///< names of axes made here
  std::set<AxisId> own_axes;                ///< of a function: may not leave it
  const Function* function = nullptr;
  const Scope* caller = nullptr;
  Span call_span;
  int depth = 0;
};

/// What all cells of a file share.
struct FileContext {
  FileContext(const File& file, Diagnostics& diagnostics);
  /// Whether a syntax error lies in the item (cell or function) that begins at `offset`: lines may
  /// then be missing from the tree, so that what it lacks is no error.
  bool is_partial(std::uint32_t offset) const;
  /// Says each thing at a place once, however often a function is inlined.
  void error(Span span, std::string message, std::string note = {}, std::optional<Span> related = {});
  /// Errors of the file as such: names given twice, functions that call themselves.
  void check_names();

  const File& file;
  Diagnostics& diagnostics;
  std::map<std::string, const Function*> functions;
  std::map<const Function*, std::string> recursive;  ///< function on a cycle of calls: the cycle
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::string>> said;
  std::vector<std::uint32_t> syntax_errors;  ///< offsets, sorted
  std::vector<std::uint32_t> items;          ///< where cells and functions begin, sorted
  std::size_t work = 0;
  std::size_t errors = 0;
};

bool is_builtin(const std::string& name);
/// Of those that are always over axes: max may be.
bool is_reduction(const std::string& name);
/// What to write for a function, or for a name, that other languages have; empty: nothing is known of it
/// (lower_hint.cc).
std::string function_elsewhere(const std::string& name);
std::string name_elsewhere(const std::string& name);
const std::vector<std::string>& builtin_names();
/// Calls `visit` for every expression below `root` and itself, without recursion: a chain of
/// operators is as deep as it is long.
template <typename Visit>
void walk(const Expr& root, Visit visit) {
  std::vector<const Expr*> stack{&root};
  while (!stack.empty()) {
    const Expr* e = stack.back();
    stack.pop_back();
    visit(*e);
    for (auto it = e->args.rbegin(); it != e->args.rend(); ++it)
      if (*it) stack.push_back(it->get());
  }
}

class Lowering {
 public:
  explicit Lowering(FileContext& file) : file_(file) {}
  std::optional<CellGraph> cell(const Cell& cell);
  /// The function by itself: its parameters have unknown axes, so that only names, numbers of
  /// arguments and the like are checked.
  void check_function(const Function& function);

 private:
  // lower_cell.cc
  void declare_axes(const std::vector<HeaderAxis>& axes, Scope& scope);
  void declare(const Declaration& declaration, Scope& scope);
  void lower_starts(const Cell& cell, const Scope& scope);
  void lower_start(const Declaration& declaration, int symbol, Scope& scope);
  bool check_new_name(const std::string& name, Span span, const Scope& scope);
  void lower_line(const Line& line, Scope& scope);
  void assign(const Line& line, const Target& target, const Value& value, Scope& scope);
  void assign_state(const Line& line, const Target& target, const Value& value, Scope& scope);
  void assign_value(const Line& line, const Target& target, Value value, Scope& scope);
  std::optional<std::vector<AxisId>> listed_axes(const Target& target, const Value& value, Scope& scope);
  bool is_fixed_number(NodeId node) const;
  std::string source_of_axis(const Expr& value, AxisId axis, Scope& scope);
  void learn_index_names(const Expr& root, Scope& scope, const std::vector<Target>& targets = {});
  void report_unassigned(const Cell& cell);
  // order of definitions, lower_order.cc
  Value undefined_name(const Expr& e, Scope& scope);
  void collect_definitions(const Cell& cell);
  std::vector<int> path_between_lines(int from, int to);

  // lower_expression.cc
  Value lower(const Expr& e, Scope& scope);
  Value lower_name(const Expr& e, Scope& scope);
  Value read_name(const Expr& e, Value value, Scope& scope);  ///< `value` where `e` reads it
  Value lower_binary(const Expr& e, Scope& scope);
  Value lower_power(const Expr& e, Scope& scope);
  Value contract(const Expr& at, const Value& a, const Value& b, Scope& scope);
  /// Is it an index name that is a value's name too: E[token] with an input token?
  bool is_index_of_value(AxisId axis, const Scope& scope) const;
  std::string picked_by_value(AxisId axis, const std::string& from) const;
  Value missing_axis(const Expr& at, const Value& a, const Value& b, Scope& scope);
  /// `places`: where each operand stands.
  Value elementwise(Op op, const std::vector<Value>& args, const std::vector<Span>& places, Span span, Scope& scope);
  /// False, with an error, where the value cannot stand in an elementwise place.
  bool plain(const Value& value, Span span, Scope& scope);
  /// False, with an error, where `axes` has more places of a repeated axis than the value, as W*p has in
  /// the start of P[d,d]: the value could lie along any of them.
  bool all_places(const Value& value, const std::vector<AxisId>& axes, Span span, Scope& scope);
  /// Unites axes into `axes`; an error where one name stands for two lengths.
  bool unite(std::vector<AxisId>& axes, const std::vector<AxisId>& more, Span span, Scope& scope);
  Value expression_value(NodeId node, std::vector<AxisId> axes) const;

  // lower_axes.cc
  Value index_value(const Value& value, const std::vector<IndexEntry>& entries, Span span, Scope& scope);
  AxisId index_axis(const IndexEntry& entry, AxisId like, const std::string& what, Scope& scope);
  AxisId new_index_axis(const std::string& name, AxisId like, Span span, Scope& scope);
  /// An axis that is already known; prefers one in `among`. kNoAxis after an error.
  AxisId known_axis(const IndexEntry& entry, const std::vector<AxisId>* among, Scope& scope);
  bool is_taken(const std::string& display, const Scope& scope) const;
  std::string axis_name(AxisId axis) const { return graph_.axis(axis).name; }
  std::string describe(const Value& value) const;
  std::string list_of(const std::vector<AxisId>& axes) const;

  // lower_call.cc
  Value lower_call(const Expr& e, Scope& scope);
  Value lower_reduction(const Expr& e, Scope& scope);
  Value lower_size(const Expr& e, Scope& scope);
  Value lower_eye(const Expr& e, Scope& scope);
  Value lower_elementwise_call(const Expr& e, Op op, Scope& scope);
  Value unknown_function(const Expr& e, Scope& scope);
  std::vector<Value> lower_args(const Expr& e, Scope& scope);

  // lower_function.cc
  std::vector<Value> call_function(const Expr& e, const Function& function, Scope& scope);
  std::vector<Value> function_body(const Function& function, const std::vector<Value>& args, Span span, Scope& scope);
  Value with_slopes(const Function& function, const Value& value, const std::vector<Value>& args, Span span,
                    Scope& scope);

  // lower_lag.cc
  Value lower_lag(const Expr& e, Scope& scope);
  Value lag_along_axis(const Expr& e, Scope& scope);
  NodeId shift(NodeId node, int steps, Span span, Scope& scope);
  NodeId shift_along(NodeId node, AxisId axis, Span span, Scope& scope);
  std::vector<AxisId> axes_before(const Node& reindex, AxisId axis) const;
  bool chooses_lags(NodeId root, AxisId axis) const;
  NodeId at_place(NodeId root, AxisId axis, std::int64_t place, Span span, Scope& scope);
  NodeId sum_of_lags(std::vector<AxisId> bound, NodeId body, Span span, Scope& scope);
  RewriteRules lag_rules(std::function<NodeId(NodeId, const Node&)> moved, Span span, Scope& scope);
  std::size_t varying_in(const std::vector<NodeId>& nodes);
  bool varies(NodeId node);

  // lower_finish.cc
  std::optional<CellGraph> finish(const Cell& cell);

  // Symbols of the scratch graph: declared ones, then one prime for each.
  /// What h' stands for.
  Value next_value(int symbol) const;
  int prime_symbol(int symbol) const { return symbol + static_cast<int>(symbols_.size()); }
  bool is_prime(int symbol) const { return symbol >= static_cast<int>(symbols_.size()); }
  int find_symbol(const std::string& name) const;  ///< -1 if there is none
  const Symbol& base_symbol(int symbol) const { return symbols_[symbol % symbols_.size()]; }

  bool may_suggest() const { return file_.errors < kMaxSuggestions; }
  Value fail(Span span, std::string message, const Scope& scope, std::string note = {},
             std::optional<Span> related = {});
  static Value poison();
  bool spend(std::size_t work, Span span, const Scope& scope);
  bool too_large(Span span, const Scope& scope);

  FileContext& file_;
  Graph graph_;
  std::vector<Symbol> symbols_;
  std::map<std::string, int> symbol_of_;       ///< by name: its first declaration
  std::vector<NodeId> updates_;                ///< by symbol; kNoNode where there is none
  std::vector<std::optional<Span>> assigned_;  ///< by symbol: where the state got its line
  std::vector<Span> update_spans_;
  std::vector<Out> outs_;
  std::vector<NamedValue> named_;
  std::vector<char> varies_;       ///< by scratch node: reads a state or an input
  std::map<int, Images> shifted_;  ///< by steps
  const Cell* cell_ = nullptr;
  std::map<std::string, int> line_of_;  ///< "z" or "h'" -> first line that gives it
  std::set<int> told_cycle_;            ///< lines already said to need each other
  std::size_t searched_ = 0;            ///< lines visited in search of cycles
  int line_ = -1;
  std::set<NodeId> written_out_;  ///< choices among the lags of a state along an axis
  int steps_back_ = 0;            ///< of the lags around what is being lowered
  int depth_ = 0;
  bool standalone_ = false;  ///< check_function: calls are not inlined
  bool partial_ = false;     ///< a syntax error took lines from the tree
  bool stopped_ = false;     ///< a limit was passed; everything is poison from here
};

}  // namespace cellc::lowering
