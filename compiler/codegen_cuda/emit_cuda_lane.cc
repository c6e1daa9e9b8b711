#include "compiler/codegen_cuda/emit_cuda_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "compiler/codegen_cuda/lane_expressions.h"
#include "compiler/codegen_cuda/line_directive.h"
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
    std::set<SymbolEntry> inputs(options_.inputs.begin(), options_.inputs.end()), params, kept;
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
      for (std::size_t i = 0; i < entries.size(); ++i) place_.emplace(entries[i], fmt::format("{}[{}]", array, i));
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
      mark_line(scalar_.scalars[static_cast<std::size_t>(i)].span);
      statement("param[{}] = {};", place++, expressions_.text(i));
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
      statement("next[{}] = {};", i, expressions_.text(scalar_.next[i]));
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
    expressions_.begin(!steps, code_.states);
    taken_.clear();
    std::size_t held = kept_;
    for (std::size_t i = 0; i < scalar_.scalars.size(); ++i) {
      if (!wanted[i]) continue;
      const Scalar& s = scalar_.scalars[i];
      if (steps && held_.is_held[i]) {
        expressions_.name(i, fmt::format("param[{}]", held++));
        continue;
      }
      std::string text = expressions_.write(static_cast<int>(i));
      const bool leaf = s.arity == 0;
      const bool apart = uses_[i] > 1 || wanted_[i].always || text.size() > kWidest;
      if (!leaf && apart && !ends_a_step(i)) {
        const std::string name = fresh(wanted_[i].name.empty() ? next_number() : wanted_[i].name);
        mark_line(s.span);
        statement("const Real {} = {};", name, text);
        expressions_.name(i, name);
      }
    }
  }

  template <typename... Args>
  void statement(fmt::format_string<Args...> format, Args&&... args) {
    code_.text += "    ";
    line(format, std::forward<Args>(args)...);
    if (counted_ > 0) ++counted_;
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
    if (counted_ != number) line("#line {} \"{}\"", number, line_directive_path(options_.source->path()));
    counted_ = number;
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
  std::vector<int> uses_;
  struct Wanted {
    std::string name;     ///< empty: a number
    bool always = false;  ///< a statement of its own even if read once
  };
  std::vector<Wanted> wanted_;  // by scalar
  LaneExpressions expressions_{cell_,   lane_, options_.storage,
                               scalar_, held_, [this](const SymbolEntry& e) { return read(e); }};
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
  const bool matrix = transitions.kind == Scannable::Affine || is_semiring(transitions.kind);
  if (matrix) {
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
    for (std::size_t i = 0; i < transitions.offset.size(); ++i)
      for (std::int64_t r = 0; r < entries(i); ++r) row.push_back(place(transitions.offset[i], r));
    if (!row.empty()) end_row();
  } else {
    for (std::int64_t e = 0; e < entries(0); ++e) {
      for (int m : transitions.map) row.push_back(place(m, e));
      code.map_numbers += 4;
      end_row();
    }
  }
  static const char* const kinds[] = {"Affine", "Affine", "Clip", "Moebius", "MaxPlus", "MinPlus", "LogPlus"};
  code.text += fmt::format(
      "\nstruct TransitionRule {{\n  enum Kind {{ Affine, Clip, Moebius, MaxPlus, MinPlus, LogPlus }};\n  static "
      "constexpr Kind kKind = {};\n",
      kinds[static_cast<int>(transitions.kind)]);
  code.text += table_text("transition", "place", rows, ",\n      ") + "};\n";
  return code;
}

}  // namespace cellc
