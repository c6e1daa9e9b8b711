#include "compiler/codegen_cuda/emit_cuda_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "compiler/derive/pipeline.h"

namespace cellc {

namespace {

/// Where no line of the source is: the next mark is written.
constexpr std::uint32_t kNoLine = 0x7fffffffu;

/// Past this width an operand gets a statement of its own.
constexpr std::size_t kWidest = 70;

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& p : parts) text += (text.empty() ? "" : separator) + p;
  return text;
}

/// A letter first and a single underscore last: no keyword looks so, and no macro of CUDA or of a C library.
std::string local_name(const std::string& name) {
  std::string text;
  for (char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter)
      text += c;
    else if (!text.empty() && text.back() != '_')
      text += '_';
  }
  if (text.empty() || !((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'))) text = "v" + text;
  if (text.back() != '_') text += '_';
  return text;
}

/// A C string literal.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return out + "\"";
}

std::string table_text(const std::string& name, const char* argument, const std::vector<std::string>& entries,
                       const char* separator) {
  if (entries.empty()) return fmt::format("  static CELLC_DEVICE constexpr int {}(int) {{ return -1; }}\n", name);
  return fmt::format(
      "  static CELLC_DEVICE constexpr int {}(int {}) {{ constexpr int table[] = {{{}}}; return table[{}]; }}\n", name,
      argument, joined(entries, separator), argument);
}

class LaneWriter {
 public:
  LaneWriter(const CellGraph& cell, AxisId lane, const CudaLaneOptions& options, const TransitionCell* transitions)
      : cell_(cell), lane_(lane), options_(options) {
    ScalarizeOptions scalar;
    scalar.sizes = options.sizes;
    scalar.f64 = options.storage == Storage::F64;
    scalar.limit = options.limit;
    if (transitions && transitions->kind == Scannable::Affine) {
      scalar.own = static_cast<int>(transitions->position.size());
      scalar.zero = zero_transitions(*transitions, lane, scalar);
    }
    ScalarLane made = scalar_lane(cell, lane, scalar);
    scalar_ = std::move(made.scalars);
    held_ = std::move(made.held);
  }

  CudaLaneCode run() {
    code_.states = scalar_.states;
    collect_reads();
    count_uses();
    name_values();
    write_lists();
    if (holds()) write_hold();
    write_step();
    code_.text += "};\n";
    return std::move(code_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(code_.text), format, std::forward<Args>(args)...);
    code_.text += '\n';
  }

  bool has_lane(int symbol) const {
    const auto& axes = cell_.symbols[symbol].axes;
    return std::find(axes.begin(), axes.end(), lane_) != axes.end();
  }

  bool holds() const { return !held_.values.empty(); }

  void collect_reads() {
    std::set<SymbolEntry> inputs, params, kept;
    std::set<int> uniforms;
    for (std::size_t i = 0; i < scalar_.scalars.size(); ++i) {
      const Scalar& s = scalar_.scalars[i];
      code_.operations += s.arity > 0 && held_.in_step[i] && !held_.is_held[i];
      if (s.op != Op::Read) continue;
      if (held_.in_step[i]) kept.insert(s.entry);
      switch (cell_.symbols[s.entry.symbol].kind) {
        case SymbolKind::State:
          break;
        case SymbolKind::Input:
          inputs.insert(s.entry);
          break;
        case SymbolKind::Param:
          if (has_lane(s.entry.symbol))
            params.insert(s.entry);
          else
            uniforms.insert(s.entry.symbol);
          break;
      }
    }
    code_.inputs.assign(inputs.begin(), inputs.end());
    code_.params.assign(params.begin(), params.end());
    code_.uniform_arrays.assign(uniforms.begin(), uniforms.end());
    const auto number = [&](const std::vector<SymbolEntry>& entries, const char* array) {
      for (std::size_t i = 0; i < entries.size(); ++i) place_[entries[i]] = fmt::format("{}[{}]", array, i);
    };
    number(code_.states, "state");
    number(code_.inputs, "input");
    number(code_.params, holds() ? "raw" : "param");
    place_before_ = place_;
    if (!holds()) return;
    // A lane holds the params that steps read, and then what is made of params.
    for (const SymbolEntry& e : code_.params)
      if (kept.contains(e))
        place_[e] = fmt::format("param[{}]", kept_++);
      else
        place_.erase(e);
  }

  void count_uses() {
    uses_.assign(scalar_.scalars.size(), 0);
    for (const Scalar& s : scalar_.scalars)
      for (int k = 0; k < s.arity; ++k) ++uses_[static_cast<std::size_t>(s.args[k])];
    for (int n : scalar_.next) ++uses_[static_cast<std::size_t>(n)];
  }

  // Names ----------------------------------------------------------------------------------------

  /// Statements take the names of the cell as written. Its values are found again by their place in the
  /// source, which passes keep; what several names or several values share is left unnamed.
  void name_values() {
    wanted_.resize(scalar_.scalars.size());
    if (!options_.written) return;
    struct Found {
      std::string name;
      bool always;
      NodeId node = kNoNode;
      bool clear = true;
    };
    const Graph& written = options_.written->graph;
    std::map<std::tuple<Op, std::uint32_t, std::uint32_t>, Found> names;
    const auto add = [&](NodeId id, const std::string& name, bool always) {
      const Node& n = written[id];
      if (n.args.empty() || n.span.length == 0) return;
      const auto [it, fresh] = names.emplace(std::tuple(n.op, n.span.offset, n.span.length), Found{name, always});
      if (!fresh && it->second.name != name) it->second.clear = false;
    };
    for (const NamedValue& v : options_.written->named) add(v.node, v.name, true);
    // The next state is named only where it is read as well.
    std::set<NodeId> named;
    for (const NamedValue& v : options_.written->named) named.insert(v.node);
    for (const StateUpdate& u : options_.written->updates)
      if (!named.contains(u.value)) add(u.value, options_.written->symbols[u.symbol].name + "_next", false);
    for (const Scalar& s : scalar_.scalars) {
      if (s.node == kNoNode) continue;
      const auto it = names.find({cell_.graph[s.node].op, s.span.offset, s.span.length});
      if (it == names.end()) continue;
      if (it->second.node != kNoNode && it->second.node != s.node) it->second.clear = false;
      it->second.node = s.node;
    }
    for (std::size_t i = 0; i < scalar_.scalars.size(); ++i) {
      const Scalar& s = scalar_.scalars[i];
      if (s.node == kNoNode || s.arity == 0) continue;
      const auto it = names.find({cell_.graph[s.node].op, s.span.offset, s.span.length});
      if (it == names.end() || !it->second.clear || cell_.graph[s.node].args.empty()) continue;
      std::string name = it->second.name;
      for (std::int64_t p : s.position) name += "_" + std::to_string(p);
      wanted_[i] = {name, it->second.always};
    }
  }

  std::string fresh(const std::string& name) {
    const std::string base = local_name(name);
    std::string chosen = base;
    for (int n = 2; !taken_.insert(chosen).second; ++n) chosen = base + std::to_string(n) + "_";
    return chosen;
  }

  /// t1, t2, … without those that the cell itself uses.
  std::string next_number() {
    for (;;) {
      std::string name = "t" + std::to_string(++numbered_);
      const auto same = [&](const Wanted& w) { return w.name == name; };
      if (std::none_of(wanted_.begin(), wanted_.end(), same)) return name;
    }
  }

  // The struct's lists -----------------------------------------------------------------------------

  void write_lists() {
    line("struct {} {{", options_.name);
    line("  static constexpr int kStates = {};", code_.states.size());
    line("  static constexpr int kInputs = {};", code_.inputs.size());
    line("  static constexpr int kParams = {};", code_.params.size());
    line("  static constexpr int kInvariants = {};", holds() ? kept_ + held_.values.size() : code_.params.size());
    line("  static constexpr bool kHasPrologue = {};", holds());
    std::vector<std::string> symbols;
    for (const Symbol& s : cell_.symbols) symbols.push_back(s.name);
    line("  static constexpr int kArrays = {};  // {}", symbols.size(), joined(symbols, " "));
    line("  static constexpr int kUniforms = {};", code_.uniform_arrays.size());
    line("  static constexpr int kOperations = {};", code_.operations);
    const auto list = [&](const char* what, const std::vector<SymbolEntry>& entries) {
      std::vector<std::string> arrays, places;
      for (const SymbolEntry& e : entries) {
        arrays.push_back(std::to_string(e.symbol));
        places.push_back(std::to_string(e.entry));
      }
      table(fmt::format("{}_array", what), "entry", arrays);
      table(fmt::format("{}_entry", what), "entry", places);
    };
    list("state", code_.states);
    list("input", code_.inputs);
    list("param", code_.params);
    std::vector<std::string> uniforms;
    for (int u : code_.uniform_arrays) uniforms.push_back(std::to_string(u));
    table("uniform_array", "uniform", uniforms);
    line("");
  }

  /// A function, since an array at class scope has no device code behind it.
  void table(const std::string& name, const char* argument, const std::vector<std::string>& entries) {
    code_.text += table_text(name, argument, entries, ", ");
  }

  // Statements -------------------------------------------------------------------------------------

  /// What a lane holds, from its params.
  void write_hold() {
    line("  static CELLC_DEVICE void hold(const Real* raw, Real* param, const Real* const* uniform) {{");
    std::swap(place_, place_before_);
    write_statements(held_.before, false);
    std::size_t place = 0;
    for (const SymbolEntry& e : code_.params)
      if (place_before_.contains(e)) statement("param[{}] = {};", place++, place_.at(e));
    for (const int i : held_.values) {
      mark_line(scalar(i).span);
      statement("param[{}] = {};", place++, texts_[static_cast<std::size_t>(i)].text);
    }
    std::swap(place_, place_before_);
    end_function();
  }
  void write_step() {
    line("  static CELLC_DEVICE void step(const Real* param, const Real* input, const Real* state, Real* next,");
    line("                                const Real* const* uniform) {{");
    write_statements(held_.in_step, true);
    for (std::size_t i = 0; i < scalar_.next.size(); ++i) {
      const Scalar& s = scalar_.scalars[static_cast<std::size_t>(scalar_.next[i])];
      mark_line(s.span);
      statement("next[{}] = {};", i, texts_[static_cast<std::size_t>(scalar_.next[i])].text);
    }
    end_function();
  }
  void end_function() {
    if (counted_ > 0) line("#line 1 \"{}.generated\"", options_.name);
    counted_ = counted_ > 0 ? kNoLine : 0;
    line("  }}");
  }

  /// Of the values that are wanted. `steps`: what is held is there.
  void write_statements(const std::vector<bool>& wanted, bool steps) {
    texts_.assign(scalar_.scalars.size(), {});
    apart_.assign(scalar_.scalars.size(), false);
    in_hold_ = !steps;
    taken_.clear();
    measure_depths();
    std::size_t held = kept_;
    for (std::size_t i = 0; i < scalar_.scalars.size(); ++i) {
      if (!wanted[i]) continue;
      const Scalar& s = scalar_.scalars[i];
      if (steps && held_.is_held[i]) {
        texts_[i] = {fmt::format("param[{}]", held++), kPrimary, ""};
        apart_[i] = true;
        continue;
      }
      Text text = expression(static_cast<int>(i));
      const bool leaf = s.arity == 0;
      const bool apart = uses_[i] > 1 || wanted_[i].always || text.text.size() > kWidest;
      if (!leaf && apart && !ends_a_step(i)) {
        const std::string name = fresh(wanted_[i].name.empty() ? next_number() : wanted_[i].name);
        mark_line(s.span);
        statement("const Real {} = {};", name, text.text);
        text = {name, kPrimary, ""};
        apart_[i] = true;
      }
      texts_[i] = std::move(text);
    }
  }

  template <typename... Args>
  void statement(fmt::format_string<Args...> format, Args&&... args) {
    code_.text += "    ";
    line(format, std::forward<Args>(args)...);
    if (counted_ > 0) ++counted_;
  }

  /// How long a value is waited for after the step's states are there; 0: it does not wait for them.
  void measure_depths() {
    depth_.assign(scalar_.scalars.size(), 0);
    for (std::size_t i = 0; i < scalar_.scalars.size(); ++i) {
      const Scalar& s = scalar_.scalars[i];
      if (s.op == Op::Read) {
        depth_[i] = std::find(code_.states.begin(), code_.states.end(), s.entry) != code_.states.end();
        continue;
      }
      int most = 0;
      for (int k = 0; k < s.arity; ++k) most = std::max(most, depth_[static_cast<std::size_t>(s.args[k])]);
      depth_[i] = most == 0 ? 0 : most + (op_info(s.op).cost == Cost::Basic ? 1 : 8);
    }
  }

  /// A value that only becomes a state: written straight there.
  bool ends_a_step(std::size_t i) const {
    return uses_[i] == 1 && !wanted_[i].always &&
           std::find(scalar_.next.begin(), scalar_.next.end(), static_cast<int>(i)) != scalar_.next.end();
  }

  void mark_line(Span span) {
    if (!options_.source || span.length == 0) return;
    const std::uint32_t number = options_.source->position(span.offset).line;
    // The compiler counts on from a mark.
    if (counted_ != number) line("#line {} {}", number, quoted(options_.source->path()));
    counted_ = number;
  }

  // Expressions ------------------------------------------------------------------------------------

  enum Precedence { kSum = 1, kProduct, kSign, kPrimary };
  struct Text {
    std::string text;
    int precedence = kPrimary;
    std::string condition;  ///< of a comparison: what it is 1 for
  };

  static std::string within(const Text& t, int at_least) {
    return t.precedence >= at_least ? t.text : "(" + t.text + ")";
  }
  std::string operand(const Scalar& s, int k, int at_least) const {
    return within(texts_[static_cast<std::size_t>(s.args[k])], at_least);
  }
  const Scalar& scalar(int i) const { return scalar_.scalars[static_cast<std::size_t>(i)]; }
  bool is_held(int i) const { return !in_hold_ && held_.is_held[static_cast<std::size_t>(i)]; }
  int depth(int i) const { return depth_[static_cast<std::size_t>(i)]; }
  /// Whether i stands where it is used, not under a name.
  bool inlined(int i) const { return scalar(i).arity > 0 && !apart_[static_cast<std::size_t>(i)]; }

  /// The factors of a product; of more than two the earliest first: what comes late is multiplied once, at
  /// the end.
  std::vector<int> factors(int i) const {
    std::vector<int> result;
    const auto add = [&](auto&& self, int k) -> void {
      if (scalar(k).op == Op::Mul && (k == i || inlined(k))) {
        self(self, scalar(k).args[0]);
        self(self, scalar(k).args[1]);
      } else {
        result.push_back(k);
      }
    };
    add(add, i);
    if (result.size() > 2)
      std::stable_sort(result.begin(), result.end(), [&](int a, int b) { return depth(a) < depth(b); });
    return result;
  }
  std::vector<int> terms(int i) const {
    std::vector<int> result;
    for (int k = 0; k < 2; ++k) {
      const int a = scalar(i).args[k];
      if (scalar(a).op != Op::Add || !inlined(a)) {
        result.push_back(a);
        continue;
      }
      for (const int inner : terms(a)) result.push_back(inner);
    }
    return result;
  }
  std::vector<int> ordered_factors(int i) const {
    std::vector<int> result = factors(i);
    if (result.size() == 2 && depth(result[1]) < depth(result[0])) std::swap(result[0], result[1]);
    return result;
  }
  Text product(const std::vector<int>& of, const char* scale = nullptr) const {
    if (of.empty()) return {scale, kPrimary, ""};
    std::string text = scale ? scale : "";
    for (const int k : of)
      text +=
          (text.empty() ? "" : " * ") + within(texts_[static_cast<std::size_t>(k)], text.empty() ? kProduct : kSign);
    return {text, scale || of.size() > 1 ? kProduct : texts_[static_cast<std::size_t>(of[0])].precedence, ""};
  }

  /// scale * i with the scale at what comes earliest of every term: a gate's own scale would otherwise be one
  /// more multiplication that the next step waits for. Before a param it is done once for all steps.
  Text scaled(int i, const char* scale) const {
    const Scalar& s = scalar(i);
    if (inlined(i)) {
      if (s.op == Op::Neg) return {"-" + within(scaled(s.args[0], scale), kPrimary), kSign, ""};
      if (s.op == Op::Sub)
        return {within(scaled(s.args[0], scale), kSum) + " - " + within(scaled(s.args[1], scale), kProduct), kSum, ""};
      if (s.op == Op::Add) {
        // The latest is added last, by one fma.
        std::vector<int> of = terms(i);
        std::stable_sort(of.begin(), of.end(), [&](int a, int b) { return depth(a) < depth(b); });
        Text sum = scaled(of[0], scale);
        for (std::size_t k = 1; k < of.size(); ++k) {
          const bool a_product = !inlined(of[k]) || scalar(of[k]).op == Op::Mul;
          if (!a_product) {
            sum = {within(sum, kSum) + " + " + within(scaled(of[k], scale), kProduct), kSum, ""};
            continue;
          }
          std::vector<int> by = inlined(of[k]) ? ordered_factors(of[k]) : std::vector<int>{of[k]};
          const int last = by.back();
          by.pop_back();
          sum = {fmt::format("cellc::fma({}, {}, {})", product(by, scale).text,
                             texts_[static_cast<std::size_t>(last)].text, sum.text),
                 kPrimary, ""};
        }
        return sum;
      }
      if (s.op == Op::Mul) return product(ordered_factors(i), scale);
    }
    return product({i}, scale);
  }
  /// Multiplications of a step that scaled() takes: none for a term with a param.
  int scalings(int i) const {
    const Scalar& s = scalar(i);
    if (is_held(i)) return 0;
    if (inlined(i)) {
      if (s.op == Op::Neg) return scalings(s.args[0]);
      if (s.op == Op::Add || s.op == Op::Sub) return scalings(s.args[0]) + scalings(s.args[1]);
      if (s.op == Op::Mul) {
        for (const int k : factors(i))
          if (scalings(k) == 0) return 0;
        return 1;
      }
    }
    return s.op == Op::Constant || (s.op == Op::Read && cell_.symbols[s.entry.symbol].kind == SymbolKind::Param &&
                                    has_lane(s.entry.symbol))
               ? 0
               : 1;
  }
  /// sigmoid or tanh of a sum that can bring the function's own scale along.
  std::optional<Text> scaled_gate(const Scalar& s, const char* function, const char* scale) const {
    const int i = s.args[0];
    if (!inlined(i) || scalings(i) > 2) return std::nullopt;
    return Text{fmt::format("cellc::{}({})", function, scaled(i, scale).text), kPrimary, ""};
  }

  std::string number(double value) const {
    if (std::isnan(value)) return "Real(cellc::not_a_number())";
    if (std::isinf(value)) return value > 0 ? "Real(cellc::infinity())" : "Real(-cellc::infinity())";
    if (value == 0 && std::signbit(value)) return "Real(-0.0)";
    if (options_.storage != Storage::F64) {
      // The shortest that reads as this f32 also does through a double, which is rounded once more.
      const std::string text = fmt::format("{}", static_cast<float>(value));
      if (static_cast<float>(std::stod(text)) == static_cast<float>(value)) return "Real(" + text + ")";
    }
    return fmt::format("Real({})", value);
  }

  /// Of two products the one that comes late is fused, so that nothing but the fma waits for it; left to itself the
  /// compiler takes either.
  std::optional<Text> fused(const Scalar& s) const {
    int late = s.args[0], other = s.args[1];
    if (depth(other) > depth(late)) std::swap(late, other);
    if (scalar(late).op != Op::Mul || !inlined(late) || scalar(other).op != Op::Mul || !inlined(other) ||
        depth(late) == 0)
      return std::nullopt;
    std::vector<int> of = ordered_factors(late);
    const int last = of.back();
    of.pop_back();
    return Text{fmt::format("cellc::fma({}, {}, {})", product(of).text, texts_[static_cast<std::size_t>(last)].text,
                            texts_[static_cast<std::size_t>(other)].text),
                kPrimary, ""};
  }

  Text binary(const Scalar& s, int precedence) const {
    return {fmt::format("{} {} {}", operand(s, 0, precedence), op_info(s.op).text, operand(s, 1, precedence + 1)),
            precedence, ""};
  }

  Text comparison(const Scalar& s) const {
    const std::string condition = fmt::format("{} {} {}", operand(s, 0, kSum), op_info(s.op).text, operand(s, 1, kSum));
    return {"(" + condition + " ? Real(1) : Real(0))", kPrimary, condition};
  }

  Text selection(const Scalar& s) const {
    const Text& c = texts_[static_cast<std::size_t>(s.args[0])];
    const std::string condition = c.condition.empty() ? operand(s, 0, kSum) + " != Real(0)" : c.condition;
    return {"(" + condition + " ? " + operand(s, 1, kSum) + " : " + operand(s, 2, kSum) + ")", kPrimary, ""};
  }

  /// Of a function of math.cuh.
  Text call(const Scalar& s) const {
    if (s.op == Op::Sigmoid)
      if (auto text = scaled_gate(s, "scaled_sigmoid", "cellc::kSigmoidScale")) return *text;
    if (s.op == Op::Tanh)
      if (auto text = scaled_gate(s, "scaled_tanh", "cellc::kTanhScale")) return *text;
    std::string args;
    for (int k = 0; k < s.arity; ++k) args += (k ? ", " : "") + operand(s, k, kSum);
    return {fmt::format("cellc::{}({})", op_info(s.op).text, args), kPrimary, ""};
  }

  Text expression(int i) const {
    const Scalar& s = scalar(i);
    switch (s.op) {
      case Op::Constant:
        return {number(s.number), kPrimary, ""};
      case Op::Read:
        return {read(s.entry), kPrimary, ""};
      case Op::Add:
        if (auto text = fused(s)) return *text;
        return binary(s, kSum);
      case Op::Sub:
        return binary(s, kSum);
      case Op::Mul:
        return product(factors(i));
      case Op::Div:
        return binary(s, kProduct);
      case Op::Neg:
        return {"-" + operand(s, 0, kPrimary), kSign, ""};
      case Op::Lt:
      case Op::Le:
      case Op::Gt:
      case Op::Ge:
      case Op::Eq:
      case Op::Ne:
        return comparison(s);
      case Op::Where:
        return selection(s);
#define CELLC_CUDA_Inline(Name)  // above
#define CELLC_CUDA_Function(Name) case Op::Name:
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, ...) CELLC_CUDA_##cuda(Name)
#include "compiler/graph/ops.def"
        return call(s);
      case Op::StopGradient:
      case Op::Size:
      case Op::Eye:
      case Op::OneHot:
      case Op::ReduceSum:
      case Op::ReduceMax:
      case Op::Softmax:
      case Op::MaxShare:
      case Op::Reindex:
      case Op::Surrogate:
        break;  // a scalar is none of these
    }
    throw std::logic_error(fmt::format("emit_cuda_lane: a {} of '{}'", op_name(s.op), cell_.name));
  }

  std::string read(const SymbolEntry& e) const {
    if (const auto it = place_.find(e); it != place_.end()) return it->second;
    const auto u = std::find(code_.uniform_arrays.begin(), code_.uniform_arrays.end(), e.symbol);
    if (u == code_.uniform_arrays.end())
      throw std::logic_error(
          fmt::format("emit_cuda_lane: '{}' of '{}' is nowhere", cell_.symbols[e.symbol].name, cell_.name));
    return fmt::format("uniform[{}][{}]", u - code_.uniform_arrays.begin(), e.entry);
  }

  const CellGraph& cell_;
  const AxisId lane_;
  const CudaLaneOptions& options_;
  ScalarizedCell scalar_;
  CudaLaneCode code_;
  std::map<SymbolEntry, std::string> place_, place_before_;  ///< in a step, and in hold()
  LoopInvariants held_;
  std::size_t kept_ = 0;  ///< params that a lane holds as they are
  bool in_hold_ = false;
  std::vector<int> uses_, depth_;
  std::vector<bool> apart_;  ///< a statement of its own
  struct Wanted {
    std::string name;     ///< empty: a number
    bool always = false;  ///< a statement of its own even if read once
  };
  std::vector<Wanted> wanted_;  // by scalar
  std::vector<Text> texts_;
  std::set<std::string> taken_;
  int numbered_ = 0;
  std::uint32_t counted_ = 0;  ///< what the compiler takes the next line for; 0: no mark yet
};

}  // namespace

CudaLaneCode emit_cuda_lane(const CellGraph& cell, AxisId lane, const CudaLaneOptions& options) {
  return LaneWriter(cell, lane, options, nullptr).run();
}

CudaLaneCode emit_cuda_step_with_transition(const TransitionCell& transitions, AxisId lane,
                                            const CudaLaneOptions& options) {
  CudaLaneCode code = LaneWriter(transitions.cell, lane, options, &transitions).run();

  std::map<SymbolEntry, int> number;
  for (std::size_t i = 0; i < code.states.size(); ++i) number[code.states[i]] = static_cast<int>(i);
  const auto place = [&](int update, std::int64_t entry) {
    const auto it = number.find({transitions.cell.updates[static_cast<std::size_t>(update)].symbol, entry});
    return std::to_string(it == number.end() ? -1 : it->second);
  };
  const auto entries = [&](std::size_t update) {
    return entries_of(transitions.cell, lane, transitions.cell.updates[update].symbol, options.sizes);
  };
  std::vector<std::string> rows, row;
  const auto end_row = [&] {
    rows.push_back(joined(row, ", "));
    row.clear();
  };
  if (transitions.kind == Scannable::Affine) {
    const std::size_t n = transitions.position.size();
    for (std::size_t i = 0; i < n; ++i)
      for (std::int64_t r = 0; r < entries(i); ++r) {
        for (std::size_t j = 0; j < n; ++j)
          for (std::int64_t c = 0; c < entries(j); ++c) {
            row.push_back(transitions.position[i][j] < 0 ? "-1"
                                                         : place(transitions.position[i][j], r * entries(j) + c));
            // Over no step the map is the identity: its diagonal is kept whatever is proved zero.
            code.map_numbers += row.back() != "-1" || (i == j && r == c);
          }
        code.map_numbers += 1;  // the shift
        end_row();
      }
  } else {
    for (std::int64_t e = 0; e < entries(0); ++e) {
      for (int m : transitions.map) row.push_back(place(m, e));
      code.map_numbers += 4;
      end_row();
    }
  }
  const char* kind = transitions.kind == Scannable::Clip      ? "Clip"
                     : transitions.kind == Scannable::Moebius ? "Moebius"
                                                              : "Affine";
  code.text += fmt::format(
      "\nstruct TransitionRule {{\n  enum Kind {{ Affine, Clip, Moebius }};\n  static constexpr Kind kKind = {};\n",
      kind);
  code.text += table_text("transition", "place", rows, ",\n      ") + "};\n";
  return code;
}

}  // namespace cellc
