#include "compiler/graph/print_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cellc {

namespace {

// Binding strength, loosest first; the grammar of docs/language.md.
enum Precedence { kComparison = 1, kSum, kProduct, kNegate, kContract, kPower, kPrimary };

struct TooLong {};
constexpr int kMaxDepth = 1000;
constexpr int kMostInPower = 1000;  // what the language takes after ^; pow takes more

bool is_greek(const std::string& s) {
  static const char* const names[] = {"alpha", "beta",  "gamma",  "delta", "epsilon", "zeta", "eta", "theta",
                                      "iota",  "kappa", "lambda", "mu",    "nu",      "xi",   "pi",  "rho",
                                      "sigma", "tau",   "phi",    "chi",   "psi",     "omega"};
  return std::find(std::begin(names), std::end(names), s) != std::end(names);
}

/// `Uf` is U_f, and `A_log` and `alpha_in` are a letter with a word below: the same without the closing brace, or
/// nothing.
std::string subscripted(const std::string& name) {
  const auto is_upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)); };
  const auto is_lower = [](char c) { return std::islower(static_cast<unsigned char>(c)); };
  std::string letter, below;
  if (is_upper(name[0]) && name.size() <= 3 && std::all_of(name.begin() + 1, name.end(), is_lower)) {
    letter = name.substr(0, 1), below = name.substr(1);
  } else if (const std::size_t line = name.find('_'); line != std::string::npos && line > 0 && line + 1 < name.size()) {
    letter = name.substr(0, line), below = name.substr(line + 1);
    if (is_greek(letter))
      letter = "\\" + letter;
    else if (letter.size() > 1)
      return {};
    if (below.find('_') != std::string::npos) return {};
  }
  if (letter.empty()) return {};
  return letter + "_{" + (below.size() == 1 ? below : "\\mathrm{" + below + "}");
}

}  // namespace

std::string latex_name(const std::string& name) {
  std::string base = name, primes, digits;
  while (!base.empty() && base.back() == '\'') base.pop_back(), primes += '\'';
  while (base.size() > 1 && std::isdigit(static_cast<unsigned char>(base.back())))
    digits.insert(0, 1, base.back()), base.pop_back();
  if (!digits.empty() && base.size() > 1 && base.back() == '_') base.pop_back();
  std::string text;
  if (is_greek(base))
    text = "\\" + base;
  else if (base.size() == 1)
    text = base;
  else if (const std::string letter = subscripted(base); !letter.empty())
    return letter + (digits.empty() ? "}" : digits + "}") + primes;
  else {
    text = "\\mathrm{";
    for (char c : base) text += c == '_' ? std::string("\\_") : std::string(1, c);
    text += "}";
  }
  if (!digits.empty()) text += "_{" + digits + "}";
  return text + primes;
}

ExpressionPrinter::ExpressionPrinter(const CellGraph& cell, Notation notation, bool use_names)
    : cell_(cell), notation_(notation) {
  for (AxisId a = 0; a < cell.graph.axis_count(); ++a)
    if (cell.graph.axis(a).copy_of == kNoAxis && taken_.emplace(cell.graph.axis(a).name, a).second)
      axis_names_[a] = cell.graph.axis(a).name;
  if (!use_names) return;
  for (const StateUpdate& u : cell.updates)
    if (cell.symbols[u.symbol].lag_of < 0)
      add_name(u.value, cell.symbols[u.symbol].name + "'", cell.symbols[u.symbol].index, true);
  for (const NamedValue& n : cell.named) add_name(n.node, n.name, n.index, n.ordered);
}

void ExpressionPrinter::add_name(NodeId node, const std::string& name, std::vector<AxisId> index, bool ordered) {
  // Leaves and numbers read better as they are; the first name of a value wins.
  const Node& n = cell_.graph[node];
  if (n.args.empty()) return;
  // A name stands for the value only where the two have the same axes: h' = 0.5 repeats.
  std::vector<AxisId> sorted = index;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != n.axes) return;
  names_.emplace(node, Named{name, std::move(index), ordered});
}

std::string ExpressionPrinter::axis_name(AxisId axis) {
  auto [it, fresh] = axis_names_.emplace(axis, "");
  if (!fresh) return it->second;
  std::string base = cell_.graph.axis(axis).name;
  base = base.substr(0, base.find('#'));
  for (int i = 1;; ++i) {
    const std::string name = base + std::to_string(i);
    if (!taken_.emplace(name, axis).second) continue;
    return it->second = name;
  }
}

std::string ExpressionPrinter::index_list(const std::vector<AxisId>& axes) {
  std::string text;
  for (AxisId a : axes) text += (text.empty() ? "" : ",") + axis_name(a);
  return axes.empty() ? "" : "[" + text + "]";
}

std::string ExpressionPrinter::print(NodeId node) { return piece(node, {}).text; }

std::string ExpressionPrinter::print_within(NodeId node, std::size_t limit) {
  produced_ = 0;
  depth_ = 0;
  limit_ = limit;
  std::string text;
  try {
    text = print(node);
  } catch (const TooLong&) {
  }
  limit_ = ~std::size_t{0};
  return text;
}

Index ExpressionPrinter::through(Index i, const Renaming& renaming) const {
  if (!i.is_axis()) return i;
  auto it = renaming.find(i.axis);
  return it == renaming.end() ? i : it->second;
}

std::string ExpressionPrinter::index_text(Index i) {
  if (!i.is_axis()) return std::to_string(i.literal);  // as it is: digits at the end of a name would be a subscript
  return notation_ == Notation::Latex ? latex_name(axis_name(i.axis)) : axis_name(i.axis);
}

std::string ExpressionPrinter::identity_text(Index a, Index b) {
  // Only a renaming says these: the graph folds them, and the language has no eye[i,i].
  if (a == b) return "1";
  if (!a.is_axis() && !b.is_axis()) return "0";
  if (notation_ == Notation::Latex) return "\\delta_{" + index_text(a) + "," + index_text(b) + "}";
  return "eye[" + index_text(a) + "," + index_text(b) + "]";
}

std::string ExpressionPrinter::indexed(const std::string& name, const std::vector<std::string>& places) {
  std::string list;
  for (const std::string& p : places) {
    if (!list.empty()) list += ",";
    list += p;
  }
  return name + "[" + list + "]";
}

std::string ExpressionPrinter::number_text(double v) {
  if (std::isnan(v)) return "(0/0)";
  if (std::isinf(v)) return v > 0 ? "(1/0)" : "(-1/0)";
  const std::string text = fmt::format("{}", v);
  const std::size_t e = text.find('e');
  if (notation_ != Notation::Latex || e == std::string::npos) return text;
  // 1e-05: a power of ten, with its factor where that is not 1.
  const std::string factor = text.substr(0, e), power = fmt::format("10^{{{}}}", std::stoi(text.substr(e + 1)));
  return factor == "1" ? power : factor == "-1" ? "-" + power : factor + " \\cdot " + power;
}

std::string ExpressionPrinter::read_text(const Node& n, const Renaming& renaming) {
  const Symbol* s = &cell_.symbols[n.symbol];
  std::vector<std::string> places;
  bool natural = true;
  for (std::size_t p = 0; p < n.index.size(); ++p) {
    const Index i = through(n.index[p], renaming);
    natural &= i == Index{s->axes[p], 0};
    places.push_back(index_text(i));
  }
  // W[d,d] read at [d,d] is the diagonal and must say so: only distinct declared axes are natural.
  for (std::size_t p = 0; p < s->axes.size(); ++p)
    for (std::size_t q = 0; q < p; ++q) natural &= s->axes[p] != s->axes[q];
  int lag = n.lag;
  std::string name = s->name;
  if (s->lag_of >= 0) {
    lag = s->lag;
    name = cell_.symbols[s->lag_of].name;
  } else if (s->line_of >= 0) {  // one step back it is the state
    s = &cell_.symbols[s->line_of];
    name = s->name;
    --lag;
  }
  if (notation_ == Notation::Latex) {
    std::string text = latex_name(name);
    if (const auto spelled = spelled_.find(n.symbol); spelled != spelled_.end()) {
      text = spelled->second;
    } else if (s->kind != SymbolKind::Param) {
      const int back = lag + (s->kind == SymbolKind::State ? 1 : 0);
      text += "^{(t" + (back ? "-" + std::to_string(back) : "") +
              (n.lag_axis != kNoAxis ? "-" + index_text(through({n.lag_axis, 0}, renaming)) : "") + ")}";
    }
    if (!natural) {
      std::string list;
      for (const std::string& p : places) list += (list.empty() ? "" : ",") + p;
      text = "{" + text + "}_{" + list + "}";
    }
    return text;
  }
  std::string text = natural ? name : indexed(name, places);
  if (lag) text = fmt::format("lag({}, {})", text, lag);
  if (n.lag_axis != kNoAxis) text = fmt::format("lag[{}]({})", index_text(through({n.lag_axis, 0}, renaming)), text);
  return text;
}

std::string ExpressionPrinter::operand(NodeId node, const Renaming& renaming, int at_least) {
  Piece p = piece(node, renaming);
  if (p.precedence >= at_least) return std::move(p.text);
  return notation_ == Notation::Latex ? "\\left(" + p.text + "\\right)" : "(" + p.text + ")";
}

bool ExpressionPrinter::named_piece(NodeId node, const Renaming& renaming, Piece& out) {
  auto it = names_.find(node);
  if (it == names_.end()) return false;
  const Named& named = it->second;
  std::vector<std::string> places;
  bool natural = true;
  for (AxisId a : named.index) {
    const Index i = through({a, 0}, renaming);
    natural &= i == Index{a, 0} && cell_.graph.axis(a).copy_of == kNoAxis;
    places.push_back(index_text(i));
  }
  std::string text = named.name;
  if (notation_ == Notation::Latex) {
    if (text.back() == '\'') text.pop_back();
    text = latex_name(text) + "^{(t)}";
    if (!natural) {
      std::string list;
      for (const std::string& p : places) list += (list.empty() ? "" : ",") + p;
      text = "{" + text + "}_{" + list + "}";
    }
  } else if (!natural) {
    if (!named.ordered) return false;  // only a formula can say it at these indices
    text = indexed(text, places);
  }
  out = {text, kPrimary};
  return true;
}

ExpressionPrinter::Piece ExpressionPrinter::piece(NodeId node, const Renaming& renaming) {
  const Node& n = cell_.graph[node];
  Piece result;
  if (named_piece(node, renaming, result)) return result;
  if (limit_ != ~std::size_t{0} && (++produced_ > limit_ || depth_ > kMaxDepth)) throw TooLong{};
  ++depth_;
  switch (n.op) {
    case Op::Constant:
      result.text = number_text(n.number);
      result.precedence = n.number < 0 || std::signbit(n.number)            ? kNegate
                          : result.text.find("\\cdot") != std::string::npos ? kProduct
                                                                            : kPrimary;
      break;
    case Op::Size: {
      const std::string name = axis_name(n.index[0].axis);
      result = {notation_ == Notation::Latex ? "|" + latex_name(name) + "|" : "size[" + name + "]", kPrimary};
      break;
    }
    case Op::Read:
      result = {read_text(n, renaming), kPrimary};
      break;
    case Op::Eye:
    case Op::OneHot: {
      result = {identity_text(through(n.index[0], renaming), through(n.index[1], renaming)), kPrimary};
      break;
    }
    case Op::Reindex: {
      Renaming inner;
      for (const auto& [from, to] : renaming)
        if (cell_.graph.has_axis(n.args[0], from)) inner[from] = to;
      for (const auto& [from, to] : n.map) inner[from] = through(to, renaming);
      result = piece(n.args[0], inner);
      break;
    }
    case Op::ReduceSum:
    case Op::ReduceMax:
    case Op::Softmax:
      result = reduction(node, renaming);
      break;
    case Op::MaxShare:
      result = max_share(node, renaming);
      break;
    case Op::Surrogate:
      result = piece(n.args[0], renaming);
      break;
    default:
      result = elementwise(node, renaming);
  }
  --depth_;
  return result;
}

/// A power in LaTeX. TeX refuses a second superscript, as in h^{(t)}^{2}, and one after a fraction
/// would be read as the numerator's.
static std::string raised(const std::string& base, const std::string& exponent) {
  const bool tall = base.starts_with("\\frac") || base.starts_with("\\begin");
  if (tall) return "\\left(" + base + "\\right)^{" + exponent + "}";
  return (base.find('^') == std::string::npos ? base : "{" + base + "}") + "^{" + exponent + "}";
}

ExpressionPrinter::Piece ExpressionPrinter::elementwise(NodeId node, const Renaming& renaming) {
  const Node& n = cell_.graph[node];
  const bool latex = notation_ == Notation::Latex;
  auto at = [&](int i, int least) { return operand(n.args[i], renaming, least); };
  switch (n.op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul: {
      // A chain leans left; walk it instead of recursing, so that a long sum is no deep stack.
      const bool additive = n.op != Op::Mul;
      std::vector<NodeId> chain{node};
      for (;;) {
        const NodeId left = cell_.graph[chain.back()].args[0];
        const Op o = cell_.graph[left].op;
        const bool same = additive ? o == Op::Add || o == Op::Sub : o == Op::Mul;
        if (!same || names_.count(left)) break;
        chain.push_back(left);
      }
      const int mine = additive ? kSum : kProduct;
      std::string text = operand(cell_.graph[chain.back()].args[0], renaming, mine);
      for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
        const Node& link = cell_.graph[*it];
        text += link.op == Op::Add ? " + " : link.op == Op::Sub ? " - " : latex ? "\\, " : "*";
        text += operand(link.args[1], renaming, additive ? kProduct : kContract);
      }
      return {text, mine};
    }
    case Op::Div:
      if (latex) return {"\\frac{" + at(0, 0) + "}{" + at(1, 0) + "}", kPrimary};
      return {at(0, kProduct) + "/" + at(1, kContract), kProduct};
    case Op::Neg:
      return {"-" + at(0, kNegate + 1), kNegate};
    case Op::Square:
      return {latex ? raised(at(0, kPrimary), "2") : at(0, kPrimary) + "^2", kPower};
    case Op::Pow: {
      const Node& e = cell_.graph[n.args[1]];
      if (e.op == Op::Constant && e.number == std::round(e.number) && std::fabs(e.number) < 1e6) {
        const int k = static_cast<int>(e.number);
        if (latex) return {raised(at(0, kPrimary), std::to_string(k)), kPower};
        if (std::abs(k) > kMostInPower) break;
        return {at(0, kPrimary) + (k < 0 ? fmt::format("^({})", k) : fmt::format("^{}", k)), kPower};
      }
      if (latex) return {raised(at(0, kPrimary), at(1, 0)), kPower};
      break;
    }
    default:
      break;
  }
  if (is_comparison(n.op))
    return {at(0, kSum) + " " + (latex ? op_info(n.op).latex : op_info(n.op).text) + " " + at(1, kSum), kComparison};
  if (latex) {
    if (n.op == Op::Sqrt) return {"\\sqrt{" + at(0, 0) + "}", kPrimary};
    if (n.op == Op::Rsqrt) return {"\\frac{1}{\\sqrt{" + at(0, 0) + "}}", kPrimary};
    if (n.op == Op::Abs) return {"\\left|" + at(0, 0) + "\\right|", kPrimary};
    if (n.op == Op::Where)
      return {"\\begin{cases}" + at(1, 0) + " & " + at(0, 0) + "\\\\ " + at(2, 0) + " & \\text{otherwise}\\end{cases}",
              kPrimary};
  }
  const OpInfo& info = op_info(n.op);
  std::string args;
  for (NodeId a : n.args) args += (args.empty() ? "" : ", ") + operand(a, renaming, 0);
  if (latex) {
    const std::string name = *info.latex ? info.latex : fmt::format("\\operatorname{{{}}}", info.text);
    return {name + "\\left(" + args + "\\right)", kPrimary};
  }
  return {std::string(info.text) + "(" + args + ")", kPrimary};
}

bool ExpressionPrinter::contraction(NodeId node, const Renaming& renaming, Piece& out) {
  const Node& n = cell_.graph[node];
  if (n.op != Op::ReduceSum || n.bound.size() != 1) return false;
  const Node& body = cell_.graph[n.args[0]];
  if (body.op != Op::Mul || names_.count(n.args[0])) return false;
  // W@h reads better than h@W: the operand with more axes goes left where it can.
  const NodeId first = body.args[0], second = body.args[1];
  const bool swap =
      cell_.graph[second].op == Op::Read && cell_.graph[second].index.size() > cell_.graph[first].index.size();
  return contracts(swap ? second : first, swap ? first : second, n.bound[0], renaming, out) ||
         contracts(swap ? first : second, swap ? second : first, n.bound[0], renaming, out);
}

bool ExpressionPrinter::contracts(NodeId matrix, NodeId x, AxisId b, const Renaming& renaming, Piece& out) {
  const Graph& g = cell_.graph;
  const Node& a = g[matrix];
  if (a.op != Op::Read || a.index.empty() || a.lag_axis != kNoAxis || !(a.index.back() == Index{b, 0})) return false;
  const Symbol& s = cell_.symbols[a.symbol];
  if (!g.has_axis(x, b)) return false;
  // The language contracts along the name of A's last axis, so x must have nothing else there,
  // and A must not keep the axis on another place under the same name.
  const AxisId along = s.axes.back();
  for (AxisId free : g[x].axes)
    if (free != b && through({free, 0}, renaming) == Index{along, 0}) return false;
  bool natural = true;
  std::vector<std::string> places;
  for (std::size_t p = 0; p + 1 < a.index.size(); ++p) {
    if (a.index[p] == Index{b, 0}) return false;
    const Index i = through(a.index[p], renaming);
    natural &= i == Index{s.axes[p], 0};
    for (std::size_t q = 0; q < p; ++q) natural &= s.axes[q] != s.axes[p];
    if (i == Index{along, 0} && s.axes[p] != along) return false;
    places.push_back(index_text(i));
  }
  // Written out (Uz[d1,d]) the contracted name must not stand twice.
  if (!natural && std::count(places.begin(), places.end(), index_text({along, 0}))) return false;
  places.push_back(index_text({along, 0}));
  Renaming inner = renaming;
  inner[b] = Index{along, 0};
  const bool line = s.line_of >= 0;  // one step back it is the state
  std::string left = line ? cell_.symbols[s.line_of].name : s.lag_of >= 0 ? cell_.symbols[s.lag_of].name : s.name;
  const int lag = line ? a.lag - 1 : s.lag_of >= 0 ? s.lag : a.lag;
  if (notation_ == Notation::Latex) {
    left = latex_name(left);
    const int back = lag + (s.kind == SymbolKind::State || line ? 1 : 0);
    if (s.kind != SymbolKind::Param) left += "^{(t" + (back ? "-" + std::to_string(back) : std::string()) + ")}";
    if (!natural) {
      std::string list;
      for (const std::string& p : places) list += (list.empty() ? "" : ",") + p;
      left = "{" + left + "}_{" + list + "}";
    }
    out = {left + "\\, " + operand(x, inner, kContract), kProduct};
    return true;
  }
  if (!natural) left = indexed(left, places);
  if (lag) {
    if (s.axes.size() != 1) return false;  // lag(…) is an expression: only one axis may be left of @
    left = fmt::format("lag({}, {})", left, lag);
  }
  out = {left + "@" + operand(x, inner, kContract), kContract};
  return true;
}

AxisId ExpressionPrinter::fresh_spelling(AxisId axis) {
  // A bound name that an outer index already uses is spelled differently. Only printing sees it,
  // so the graph gets no axis for it: an id beyond all of the graph's stands for the name.
  const AxisId id = kFirstSpelling + static_cast<AxisId>(axis_names_.size());
  std::string base = cell_.graph.axis(axis).name;
  base = base.substr(0, base.find('#'));
  for (int i = 1;; ++i) {
    const std::string name = base + std::to_string(i);
    if (!taken_.emplace(name, id).second) continue;
    axis_names_[id] = name;
    return id;
  }
}

ExpressionPrinter::Piece ExpressionPrinter::reduction(NodeId node, const Renaming& renaming) {
  Piece at;
  if (contraction(node, renaming, at)) return at;
  const Graph& g = cell_.graph;
  const Node& n = g[node];
  Renaming inner = renaming;
  std::vector<AxisId> bound;
  // One entry of a softmax, or one read along a diagonal: a sum against an identity, since calls take no index.
  std::vector<AxisId> picked;
  std::string identities;
  for (AxisId b : n.bound) {
    const auto another_at = [&](Index place) {
      return std::any_of(n.axes.begin(), n.axes.end(), [&](AxisId a) {
        return a != b && through({a, 0}, renaming) == place;
      });
    };
    AxisId spelled = b;
    // The axis of a softmax stays free and follows the renaming where it can; a bound one must not capture.
    const Index to = through({b, 0}, renaming);
    if (n.op == Op::Softmax && to.is_axis() && !another_at(to)) {
      spelled = to.axis;
    } else {
      if (another_at({b, 0})) spelled = fresh_spelling(b);
      if (n.op == Op::Softmax) {
        picked.push_back(spelled);
        identities += identity_text({spelled, 0}, to) + (notation_ == Notation::Latex ? "\\, " : "*");
      }
    }
    inner[b] = Index{spelled, 0};
    bound.push_back(spelled);
  }
  if (notation_ == Notation::Latex) {
    std::string list;
    for (AxisId b : bound) list += (list.empty() ? "" : ",") + latex_name(axis_name(b));
    if (n.op == Op::ReduceSum) return {"\\sum_{" + list + "} " + operand(n.args[0], inner, kProduct), kProduct};
    const char* name = n.op == Op::ReduceMax ? "\\max_{" : "\\operatorname{softmax}_{";
    const std::string text = name + list + "}\\left(" + operand(n.args[0], inner, 0) + "\\right)";
    if (picked.empty()) return {text, kPrimary};
    list.clear();
    for (AxisId b : picked) list += (list.empty() ? "" : ",") + latex_name(axis_name(b));
    return {"\\sum_{" + list + "} " + identities + text, kProduct};
  }
  const char* name = n.op == Op::ReduceSum ? "sum" : n.op == Op::ReduceMax ? "max" : "softmax";
  const std::string text = name + index_list(bound) + "(" + operand(n.args[0], inner, 0) + ")";
  if (picked.empty()) return {text, kPrimary};
  return {"sum" + index_list(picked) + "(" + identities + text + ")", kPrimary};
}

ExpressionPrinter::Piece ExpressionPrinter::max_share(NodeId node, const Renaming& renaming) {
  // (x == max[m](x))/sum[m](x == max[m](x)), where the first x alone follows the renaming of m.
  const Node& n = cell_.graph[node];
  std::vector<AxisId> bound;
  Renaming inner = renaming;
  for (AxisId b : n.bound) {
    bool captured = false;
    for (AxisId free : n.axes)
      captured |=
          !std::binary_search(n.bound.begin(), n.bound.end(), free) && through({free, 0}, renaming) == Index{b, 0};
    bound.push_back(captured ? fresh_spelling(b) : b);
    inner[b] = Index{bound.back(), 0};
  }
  const std::string x = operand(n.args[0], renaming, kSum), each = operand(n.args[0], inner, kSum);
  if (notation_ == Notation::Latex) {
    std::string list;
    for (AxisId b : bound) list += (list.empty() ? "" : ",") + latex_name(axis_name(b));
    const std::string most = "\\max_{" + list + "}\\left(" + each + "\\right)";
    return {"\\frac{\\left[" + x + " = " + most + "\\right]}{\\sum_{" + list + "} \\left[" + each + " = " + most +
                "\\right]}",
            kPrimary};
  }
  const std::string most = "max" + index_list(bound) + "(" + each + ")";
  return {"(" + x + " == " + most + ")/sum" + index_list(bound) + "(" + each + " == " + most + ")", kProduct};
}

}  // namespace cellc
