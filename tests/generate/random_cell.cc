#include "tests/generate/random_cell.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "tests/oracle/random.h"

namespace cellc::generate {
namespace {

using Axes = std::set<std::string>;

std::string listed(const std::vector<std::string>& axes) {
  std::string text;
  for (const std::string& a : axes) text += (text.empty() ? "" : ",") + a;
  return axes.empty() ? "" : "[" + text + "]";
}

struct Tensor {
  std::string name;
  std::vector<std::string> axes;  ///< in order; may repeat in a param
  bool is_state = false, is_input = false;
  bool ordered = true;  ///< may be indexed by place
};

// An expression with the axes that it has.
struct Text {
  std::string text;
  Axes axes;
  bool compound = false;  ///< needs parentheses inside another expression
};

// norm keeps a part of x: were its sum zero by algebra, sign(sum(norm(x))) would be decided by
// rounding alone, and nothing could be compared.
const char* const kFunctions = R"(fn gate(x, y) = sigmoid(x)*y
fn norm[a](x) {
  e = x - mean[a](x)
  return e*rsqrt(mean[a](e^2) + 0.1) + 0.3*x
}
fn turn(x, y) {
  s = sin(x)
  return s*y, cos(x) - s
}
fn spike(v) = where(v > 0, 1, 0) derivative 1/(1 + 10*abs(v))^2
)";

/// Functions of one operand that may be called of anything: all that the table calls finite, but for square, which
/// grows without end from step to step. The first are in an order that keeps every seed's cell.
const std::vector<std::string>& tame_functions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"tanh", "sigmoid",  "sin", "cos",  "relu",          "abs",   "silu",
                                     "gelu", "softplus", "erf", "sign", "stop_gradient", "square"};
#define CELLC_CALL(Name, text, arity, ...)                           \
  if (arity == 1 && op_info(Op::Name).values == ValueKind::Finite && \
      std::find(list.begin(), list.end(), #text) == list.end())      \
    list.push_back(#text);
#include "compiler/graph/ops.def"
    std::erase(list, "square");
    return list;
  }();
  return names;
}

Axes join(const Axes& a, const Axes& b) {
  Axes both = a;
  both.insert(b.begin(), b.end());
  return both;
}

std::string operand(const Text& t) { return t.compound || t.text[0] == '-' ? "(" + t.text + ")" : t.text; }

class Generator {
 public:
  Generator(std::uint64_t seed, bool defaults) : random_(seed), defaults_(defaults) {}

  std::string cell() {
    const int axis_count = random_.below(4);
    static const char* const names[] = {"d", "k", "m"};
    std::string header;
    for (int i = 0; i < axis_count; ++i) {
      header += (i ? ", " : "") + std::string(names[i]);
      header_.push_back(names[i]);
      if (i > 0 && random_.chance(0.25)) {
        header += "=3";
        fixed_.insert(names[i]);
      }
    }
    declare();
    const int values = random_.below(5);
    for (int i = 0; i < values; ++i) value_line(i);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < states_.size(); ++i)
      order.insert(order.begin() + random_.below(static_cast<int>(i) + 1), i);
    for (std::size_t i : order) state_line(states_[i]);
    for (int i = random_.below(3); i > 0; --i) out_line(i);
    std::string text = kFunctions;
    text += "cell random_cell" + (header_.empty() ? std::string() : "[" + header + "]") + " {\n" + declarations_ +
            lines_ + "}\n";
    return text;
  }

 private:
  bool chance(double p) { return random_.chance(p); }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[random_.below(static_cast<int>(from.size()))];
  }

  std::vector<std::string> some_axes(double each) {
    std::vector<std::string> axes;
    for (const std::string& a : header_)
      if (chance(each)) axes.push_back(a);
    return axes;
  }

  void declare() {
    const int states = 1 + random_.below(4);
    for (int i = 0; i < states; ++i) {
      Tensor t{"h" + std::to_string(i), some_axes(0.6), true, false};
      if (i == 0 && t.axes.empty() && !header_.empty()) t.axes = {header_[0]};
      states_.push_back(t);
      std::string item = "  state " + t.name + listed(t.axes);
      if (defaults_ && chance(0.6))
        learned_.push_back({item, t.axes});
      else if (chance(0.2))
        item += " = " + number();
      if (learned_.empty() || learned_.back().first != item) declarations_ += item + "\n";
      leaves_.push_back(t);
      // One input with the state's axes: what an update lacks is taken from here.
      Tensor u{"u" + std::to_string(i), t.axes, false, true};
      declarations_ += "  input " + u.name + listed(u.axes) + "\n";
      leaves_.push_back(u);
    }
    for (int i = random_.below(3); i > 0; --i) add("  input ", {"x" + std::to_string(i), some_axes(0.5), false, true});
    for (int i = random_.below(3); i > 0; --i) {
      const Tensor p{"p" + std::to_string(i), some_axes(0.5), false, false};
      add("  param ", p, defaults_ && chance(0.5) ? " = " + known() : "");
      params_.push_back(p);
    }
    for (const auto& [item, axes] : learned_) declarations_ += item + " = " + start(axes) + "\n";
    // Matrices: square, between two axes, one a head.
    for (const std::string& a : header_) {
      if (chance(0.5)) matrices_.push_back({"W" + a, {a, a}});
      for (const std::string& b : header_) {
        if (a == b || !chance(0.3)) continue;
        matrices_.push_back({"V" + a + b, {a, b}});
        if (chance(0.4)) matrices_.push_back({"R" + a + b, {a, b, b}});
      }
    }
    for (const Tensor& m : matrices_) declarations_ += "  param " + m.name + listed(m.axes) + "\n";
  }

  void add(const std::string& kind, const Tensor& t, const std::string& initial = "") {
    declarations_ += kind + t.name + listed(t.axes) + initial + "\n";
    leaves_.push_back(t);
  }

  /// What a param may be by default.
  std::string known() {
    if (!header_.empty() && chance(0.3)) return "1/size[" + pick(header_) + "]";
    return chance(0.3) ? "tanh(0.3)" : number();
  }
  /// What a state over `axes` starts from: that, or params over some of those axes.
  std::string start(const std::vector<std::string>& axes) {
    for (const Tensor& p : params_) {
      const bool fits = std::all_of(p.axes.begin(), p.axes.end(), [&](const std::string& a) {
        return std::find(axes.begin(), axes.end(), a) != axes.end();
      });
      if (fits && chance(0.6)) return chance(0.5) ? p.name : "tanh(" + p.name + " + " + number() + ")";
    }
    return known();
  }

  std::string number() {
    static const char* const numbers[] = {"0", "1", "0.5", "-0.5", "2", "0.25", "-1", "0.1", "0.9"};
    return numbers[random_.below(9)];
  }

  Text leaf() {
    if (chance(0.12)) return {number(), {}, false};
    if (chance(0.04) && !header_.empty()) return {"1/size[" + pick(header_) + "]", {}, true};
    const Tensor& t = pick(leaves_);
    std::string name = t.name;
    if (primed_.count(name) && chance(0.4)) name += "'";
    // A lag of a state or input; lag(h', 1) is h.
    if ((t.is_state || t.is_input) && chance(0.1))
      name = "lag(" + name + ", " + std::to_string(1 + random_.below(3)) + ")";
    // An entry of a fixed axis.
    else if (t.ordered && !t.axes.empty() && fixed_.count(t.axes[0]) && chance(0.15)) {
      std::vector<std::string> index = t.axes;
      index[0] = std::to_string(random_.below(3));
      return {name + listed(index), Axes(t.axes.begin() + 1, t.axes.end()), false};
    }
    return {name, Axes(t.axes.begin(), t.axes.end()), false};
  }

  Text call(const std::string& f, const std::vector<Text>& args) {
    Text result{f + "(", {}, false};
    for (std::size_t i = 0; i < args.size(); ++i) {
      result.text += (i ? ", " : "") + args[i].text;
      result.axes = join(result.axes, args[i].axes);
    }
    result.text += ")";
    return result;
  }

  Text binary(const char* sign, const Text& a, const Text& b) {
    return {operand(a) + sign + operand(b), join(a.axes, b.axes), true};
  }

  std::optional<Text> contraction(int depth) {
    if (matrices_.empty()) return std::nullopt;
    const Tensor& m = pick(matrices_);
    Text e = expression(depth - 1);
    if (!e.axes.count(m.axes.back())) return std::nullopt;
    Axes axes = e.axes;
    axes.erase(m.axes.back());
    axes.insert(m.axes.begin(), m.axes.end() - 1);
    // W^T h by renaming, now and then.
    if (m.axes.size() == 2 && m.axes[0] == m.axes[1] && chance(0.25) && e.axes.size() == 1 && is_plain(e.text))
      return Text{"sum[j](" + m.name + "[j," + m.axes[0] + "]*" + e.text + "[j])", {m.axes[0]}, false};
    return Text{m.name + "@" + operand(e), axes, true};
  }

  bool is_plain(const std::string& text) const {
    for (const Tensor& t : leaves_)
      if (text == t.name) return true;
    return false;
  }

  std::optional<Text> reduction(int depth) {
    Text e = expression(depth - 1);
    if (e.axes.empty()) return std::nullopt;
    const std::vector<std::string> has(e.axes.begin(), e.axes.end());
    const std::string axis = pick(has);
    const int kind = random_.below(5);
    if (kind == 4) return Text{"norm[" + axis + "](" + e.text + ")", e.axes, false};
    static const char* const names[] = {"sum", "mean", "max", "softmax"};
    Axes axes = e.axes;
    if (kind != 3) axes.erase(axis);
    return Text{std::string(names[kind]) + "[" + axis + "](" + e.text + ")", axes, false};
  }

  Text expression(int depth) {
    if (depth <= 0 || chance(0.15)) return leaf();
    const double roll = random_.uniform(0, 1);
    if (roll < 0.16)
      if (auto e = contraction(depth)) return *e;
    if (roll < 0.28)
      if (auto e = reduction(depth)) return *e;
    if (roll < 0.55) {
      static const char* const signs[] = {" + ", " - ", "*"};
      return binary(signs[random_.below(3)], expression(depth - 1), expression(depth - 1));
    }
    if (roll < 0.60) return power(depth);
    if (roll < 0.65) {  // a quotient whose divisor stays away from zero
      const Text a = expression(depth - 1), b = expression(depth - 1);
      return {operand(a) + "/(1.5 + abs(" + b.text + "))", join(a.axes, b.axes), true};
    }
    if (roll < 0.70) {
      static const char* const signs[] = {" < ", " <= ", " > ", " >= "};
      return call("where", {binary(signs[random_.below(4)], expression(depth - 1), leaf()), expression(depth - 1),
                            expression(depth - 1)});
    }
    if (roll < 0.76) return call(chance(0.5) ? "max" : "min", {expression(depth - 1), expression(depth - 1)});
    if (roll < 0.79) return call("clip", {expression(depth - 1), {"-0.5", {}, false}, {"0.75", {}, false}});
    if (roll < 0.83) return call("gate", {expression(depth - 1), expression(depth - 1)});
    if (roll < 0.85) return call("spike", {expression(depth - 1)});
    if (roll < 0.87) {
      Text e = expression(depth - 1);
      return {"lag(" + e.text + ", " + std::to_string(1 + random_.below(2)) + ")", e.axes, false};
    }
    return unary(expression(depth - 1));
  }

  Text power(int depth) {
    const Text e = expression(depth - 1);
    return {operand(call("tanh", {e})) + (chance(0.5) ? "^2" : "^3"), e.axes, true};
  }

  Text unary(const Text& e) {
    const std::vector<std::string>& tame = tame_functions();
    const int count = static_cast<int>(tame.size()), f = random_.below(count + 5);
    if (f < count) return call(tame[f], {e});
    switch (f - count) {
      case 0:
        return {"exp(-abs(" + e.text + "))", e.axes, false};
      case 1:
        return {"log(1 + abs(" + e.text + "))", e.axes, false};
      case 2:
        return {"sqrt(0.1 + square(" + e.text + "))", e.axes, false};
      case 3:
        return {"pow(0.5 + abs(" + e.text + "), -0.7)", e.axes, false};
      default:
        return {"-" + operand(e), e.axes, true};
    }
  }

  void value_line(int i) {
    if (chance(0.15)) {  // a function with two results
      const Text a = expression(2), b = expression(2);
      lines_ += "  q" + std::to_string(i) + ", r" + std::to_string(i) + " = turn(" + a.text + ", " + b.text + ")\n";
      const Axes both = join(a.axes, b.axes);  // s*y has both, cos(x) - s only those of x
      leaves_.push_back({"q" + std::to_string(i), {both.begin(), both.end()}, false, false, both.size() < 2});
      leaves_.push_back({"r" + std::to_string(i), {a.axes.begin(), a.axes.end()}, false, false, a.axes.size() < 2});
      return;
    }
    const Text e = expression(3);
    const std::vector<std::string> axes(e.axes.begin(), e.axes.end());
    const bool list = chance(0.3) && !axes.empty();  // gives the axes an order
    lines_ += "  v" + std::to_string(i) + (list ? listed(axes) : "") + " = " + e.text + "\n";
    leaves_.push_back({"v" + std::to_string(i), axes, false, false, list || axes.size() < 2});
  }

  /// e with exactly the axes `to`: others are averaged away, missing ones come from the input.
  Text fitted(Text e, const Axes& to, const std::string& input) {
    for (const std::string& a : Axes(e.axes))
      if (!to.count(a)) {
        e = {"mean[" + a + "](" + e.text + ")", e.axes, false};
        e.axes.erase(a);
      }
    if (e.axes != to) e = {operand(e) + " + 0.3*" + input, to, true};
    return e;
  }

  void state_line(const Tensor& state) {
    const Axes axes(state.axes.begin(), state.axes.end());
    const std::string input = "u" + state.name.substr(1);
    const Text e = fitted(expression(4), axes, input);
    std::string value;
    const double roll = random_.uniform(0, 1);
    if (roll < 0.35)
      value = "tanh(" + e.text + ")";
    else if (roll < 0.5)
      value = "0.7*" + state.name + " + tanh(" + e.text + ")";
    else if (roll < 0.65) {  // linear in the state where the coefficient is free of it
      const Text a = fitted(expression(2), axes, input);
      value = "sigmoid(" + a.text + ")*" + state.name + " + 0.5*" + input;
    } else if (roll < 0.75 && !matrices_.empty()) {
      const Tensor& m = pick(matrices_);
      const bool mixes = m.axes.size() == 2 && m.axes[0] == m.axes[1] && axes.count(m.axes[0]);
      value = mixes ? "0.5*(" + m.name + "@" + state.name + ") + " + input : "clip(" + e.text + ", -2, 2)";
    } else if (roll < 0.85)
      value = "clip(" + e.text + ", -1, 1)";
    else
      value = "sin(" + e.text + ")";
    // Brackets list the places, in the declared order.
    lines_ += "  " + state.name + "'" + (chance(0.15) ? listed(state.axes) : "") + " = " + value + "\n";
    primed_.insert(state.name);
  }

  void out_line(int i) {
    const Text e = expression(3);
    const std::vector<std::string> axes(e.axes.begin(), e.axes.end());
    lines_ += "  out y" + std::to_string(i) + listed(axes) + " = " + e.text + "\n";
  }

  oracle::Random random_;
  const bool defaults_;
  std::vector<std::string> header_;
  std::set<std::string> fixed_, primed_;
  std::vector<Tensor> states_, leaves_, matrices_, params_;
  std::vector<std::pair<std::string, std::vector<std::string>>>
      learned_;  ///< states whose starts stand behind the params
  std::string declarations_, lines_;
};

}  // namespace

std::string random_cell(std::uint64_t seed) { return Generator(seed, false).cell(); }
std::string random_cell_with_defaults(std::uint64_t seed) { return Generator(seed, true).cell(); }

}  // namespace cellc::generate
