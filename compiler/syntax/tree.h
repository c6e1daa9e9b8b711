#pragma once
// The tree: what the parser read, one node per construct, nothing resolved yet.
//
//   file  := (cell | fn)*
//   cell  := "cell" name ("[" axis ("=" integer)? , … "]")? "{" (declaration | line)* "}"
//   declaration := ("state" | "input" | "param") item , …
//   item  := name ("[" axis , … "]")? ("=" expr)? ("in" "(" number "," number ")")?
//   line  := "out"? target , … "=" expr
//   target:= name "'"? ("[" (axis | integer) , … "]")?
//   fn    := "fn" name ("[" axis , … "]")? "(" name , … ")" ( "=" expr ("derivative" expr , …)?
//                                                    | "{" line* "return" expr , … "}" derivative? )
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/syntax/source.h"

namespace cellc {

/// One place of an index list: an axis name, or an integer that picks an entry.
struct IndexEntry {
  Span span;
  std::string name;  ///< empty where `integer` is set
  std::optional<std::int64_t> integer;
};

enum class ExprKind {
  Number,  ///< `number`
  Name,    ///< `name`, `primed`, `index` (where has_index)
  Call,    ///< `name[index](args…)`: built-in or user function, reductions, lag, size[k], eye[i,j]
  Binary,  ///< `name` is the sign: + - * / @ < <= > >= == !=  ; two args
  Negate,  ///< unary minus; one arg
  Power,   ///< `^`; args[0] the base, `number` the integer exponent
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::Number;
  Span span;       ///< the whole expression
  Span name_span;  ///< the name or the operator sign
  double number = 0;
  std::string name;
  bool primed = false;
  bool has_index = false;
  std::vector<IndexEntry> index;
  std::vector<ExprPtr> args;
};

struct HeaderAxis {
  Span span;
  std::string name;
  std::optional<std::int64_t> length;  ///< `n=2`
};

struct Range {
  double low, high;
};

enum class SymbolKind { State, Input, Param };

struct Declaration {
  SymbolKind kind;
  Span span;
  std::string name;
  std::vector<IndexEntry> axes;
  ExprPtr initial;  ///< a state's start, a param's default; null where none is written
  std::optional<Range> range;
};

struct Target {
  Span span;
  std::string name;
  bool primed = false;
  bool has_index = false;
  std::vector<IndexEntry> index;
};

struct Line {
  Span span;
  bool is_out = false;
  std::vector<Target> targets;  ///< one, or several for a function with several results
  ExprPtr value;
};

struct Function {
  Span span;
  std::string name;
  std::vector<HeaderAxis> axes;
  std::vector<std::pair<std::string, Span>> params;
  std::vector<Line> lines;
  std::vector<ExprPtr> results;
  std::vector<ExprPtr> derivative;  ///< one slope per parameter, or empty
};

struct Cell {
  Span span;
  std::string name;
  std::vector<HeaderAxis> axes;
  std::vector<Declaration> declarations;
  std::vector<Line> lines;
};

struct File {
  std::vector<Cell> cells;
  std::vector<Function> functions;
};

}  // namespace cellc
