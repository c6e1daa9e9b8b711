#pragma once
// A node as cell-language text that parses back, or as LaTeX. Index variables that the language
// cannot spell (copies d#1) get fresh names (d1), which rule 4 makes legal anywhere.
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

enum class Notation { Language, Latex };

class ExpressionPrinter {
 public:
  /// With `use_names`, values that the cell names are printed by name (also after simplification,
  /// if `add_name` registered the simplified node); without, everything is spelled out in states,
  /// inputs and params.
  ExpressionPrinter(const CellGraph& cell, Notation notation, bool use_names);

  /// `ordered`: the language lets the name be indexed (z[d1]); otherwise it stands only for the
  /// value at its own axes.
  void add_name(NodeId node, const std::string& name, std::vector<AxisId> index, bool ordered);
  /// Names of a node that must not stand for themselves (a definition's own right-hand side).
  void forget(NodeId node) { names_.erase(node); }

  /// In LaTeX, how a symbol is written, with its time: for cells whose inputs are known by other names.
  void spell(int symbol, const std::string& latex) { spelled_[symbol] = latex; }

  std::string print(NodeId node);
  /// Like print, but stops growing past `limit` bytes and then returns an empty string.
  std::string print_within(NodeId node, std::size_t limit);
  /// How an axis is spelled: its name, or the fresh one given to a copy.
  std::string axis_name(AxisId axis);
  std::string index_list(const std::vector<AxisId>& axes);

 private:
  using Renaming = std::map<AxisId, Index>;
  struct Piece {
    std::string text;
    int precedence;
  };
  struct Named {
    std::string name;
    std::vector<AxisId> index;
    bool ordered;
  };

  Piece piece(NodeId node, const Renaming& renaming);
  bool named_piece(NodeId node, const Renaming& renaming, Piece& out);
  std::string operand(NodeId node, const Renaming& renaming, int at_least);
  Piece elementwise(NodeId node, const Renaming& renaming);
  Piece reduction(NodeId node, const Renaming& renaming);
  Piece max_share(NodeId node, const Renaming& renaming);
  bool contraction(NodeId node, const Renaming& renaming, Piece& out);
  bool contracts(NodeId matrix, NodeId x, AxisId b, const Renaming& renaming, Piece& out);
  std::string read_text(const Node& n, const Renaming& renaming);
  std::string number_text(double v);
  Index through(Index i, const Renaming& renaming) const;
  std::string index_text(Index i);
  std::string identity_text(Index a, Index b);
  std::string indexed(const std::string& name, const std::vector<std::string>& places);
  static constexpr AxisId kFirstSpelling = 1u << 30;
  AxisId fresh_spelling(AxisId axis);

  const CellGraph& cell_;
  Notation notation_;
  std::map<NodeId, Named> names_;
  std::map<int, std::string> spelled_;
  std::map<AxisId, std::string> axis_names_;
  std::map<std::string, AxisId> taken_;
  std::size_t produced_ = 0;
  std::size_t limit_ = ~std::size_t{0};
  int depth_ = 0;
};

/// LaTeX of a name: greek letters, primes and subscripts ("x1" -> x_{1}, "alpha" -> \alpha).
std::string latex_name(const std::string& name);

}  // namespace cellc
