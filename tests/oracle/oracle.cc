#include "tests/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "tests/oracle/functions.h"
#include "tests/oracle/tensor.h"

namespace cellc::oracle {
namespace {

struct Scope;

/// What a name stands for: an expression where it was written. Function arguments are kept so
/// too, not as values: lag(x, 1) inside a function means the argument one step earlier.
struct Definition {
  const Expr* expr = nullptr;
  const Scope* scope = nullptr;    ///< where `expr` is read
  const Target* target = nullptr;  ///< may list axes; null for an argument
  const Scope* target_scope = nullptr;
  std::size_t result = 0;  ///< which result of a function with several
};

struct Scope {
  std::map<std::string, std::string> axes;        ///< own axis names -> labels of tensor axes
  std::map<std::string, Definition> definitions;  ///< "z", or "h'" for a state
  std::map<std::string, std::int64_t> lengths;    ///< labels whose length is known beforehand
  int call = 0;                                   ///< 0: the cell itself

  /// Index names inside a function are its own: they never meet an axis of the caller.
  std::string label(const std::string& name) const {
    const auto own = axes.find(name);
    if (own != axes.end()) return own->second;
    return call == 0 ? name : name + "~" + std::to_string(call);
  }
};

const Function* find_function(const File& file, const std::string& name) {
  for (const Function& f : file.functions)
    if (f.name == name) return &f;
  return nullptr;
}

std::string prime_key(const std::string& name, bool primed) { return primed ? name + "'" : name; }

double log_sum(const std::vector<double>& v) {
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (double x : v) most = oracle::maximum(most, x);
  if (!std::isfinite(most)) return most;
  for (double x : v) total += std::exp(x - most);
  return most + std::log(total);
}

/// Everything that is known up to one step: evaluates expressions at that step and, through
/// `back`, at earlier ones.
class Moment {
 public:
  Moment(const Cell& cell, const Data& data, const Trajectory& past, std::int64_t now)
      : cell_(cell), data_(data), past_(past), now_(now) {
    for (const HeaderAxis& a : cell.tree().axes) {
      root_.axes[a.name] = a.name;
      root_.lengths[a.name] = cell.length(a.name, data);
    }
    for (const Line& line : cell.tree().lines) define(root_, line);
    for (const Line& line : cell.tree().lines) {
      learn_lengths(*line.value);
      for (const Target& t : line.targets)
        if (const Declaration* d = t.has_index ? cell.find(t.name) : nullptr) learn_places(t.index, *d);
    }
  }

  Tensor state_after(const Declaration& d) {
    const auto found = root_.definitions.find(prime_key(d.name, true));
    if (found == root_.definitions.end()) throw OracleError("the state '" + d.name + "' is never assigned");
    const Tensor& value = evaluate(found->second, 0);
    if (found->second.target->has_index) return value;  // by place already
    return over(value, place_labels(d), cell_.shape(d, data_));
  }

  const Tensor& named(const std::string& name) { return evaluate(root_.definitions.at(name), 0); }

  Tensor constant(const Expr& e) { return evaluate(e, root_, 0); }

 private:
  std::vector<std::string> place_labels(const Declaration& d) const {
    std::vector<std::string> labels;
    for (const IndexEntry& axis : d.axes) labels.push_back(axis.name);
    return labels;
  }

  static void define(Scope& scope, const Line& line) {
    for (std::size_t i = 0; i < line.targets.size(); ++i) {
      const Target& t = line.targets[i];
      const auto [at, fresh] =
          scope.definitions.emplace(prime_key(t.name, t.primed), Definition{line.value.get(), &scope, &t, &scope, i});
      if (!fresh) throw OracleError("'" + t.name + "' is given twice");
    }
  }

  // eye[i,j] may stand before anything that tells how long i is.
  void learn_places(const std::vector<IndexEntry>& index, const Declaration& d) {
    for (std::size_t p = 0; p < index.size() && p < d.axes.size(); ++p)
      if (!index[p].integer) root_.lengths.emplace(index[p].name, cell_.length(d.axes[p].name, data_));
  }
  void learn_lengths(const Expr& e) {
    if (e.kind == ExprKind::Name && e.has_index)
      if (const Declaration* d = cell_.find(e.name)) learn_places(e.index, *d);
    for (const ExprPtr& arg : e.args) learn_lengths(*arg);
  }

  std::int64_t length_of(const std::string& label) const {
    const auto found = root_.lengths.find(label);
    if (found == root_.lengths.end()) throw OracleError("the length of '" + label + "' is not known");
    return found->second;
  }

  // ---- time --------------------------------------------------------------------------------
  /// A state before the step that is `back` steps earlier than now, or an input of that step.
  Tensor read(const Declaration& d, int back) const {
    Tensor t{place_labels(d), cell_.shape(d, data_), {}};
    const std::int64_t n = element_count(t.shape);
    const bool is_state = d.kind == SymbolKind::State;
    if (d.kind == SymbolKind::Param) {
      t.data = initial_value(cell_, data_, d.name);
      return t;
    }
    const std::int64_t row = now_ - back - (is_state ? 1 : 0);  // of the written states, or of the inputs
    const auto& written = is_state ? past_.states : data_.inputs;
    if (row >= 0) {
      const auto found = written.find(d.name);
      if (found == written.end()) throw OracleError("the input '" + d.name + "' is missing");
      if (static_cast<std::int64_t>(found->second.size()) < (row + 1) * n)
        throw OracleError("'" + d.name + "' is too short");
      t.data.assign(found->second.begin() + row * n, found->second.begin() + (row + 1) * n);
      return t;
    }
    const std::int64_t before = is_state ? -2 - row : -1 - row;  // 0: one step before the start
    if (is_state && row == -1) {
      t.data = initial_value(cell_, data_, d.name);
    } else if (const auto history = data_.histories.find(d.name); history != data_.histories.end()) {
      if (static_cast<std::int64_t>(history->second.size()) < (before + 1) * n)
        throw OracleError("the history of '" + d.name + "' is too short");
      t.data.assign(history->second.begin() + before * n, history->second.begin() + (before + 1) * n);
    } else {
      t.data = is_state ? initial_value(cell_, data_, d.name) : std::vector<double>(n, 0.0);
    }
    return t;
  }

  // ---- names -------------------------------------------------------------------------------
  const Tensor& evaluate(const Definition& definition, int back) {
    const auto key = std::make_pair(&definition, back);
    if (const auto known = values_.find(key); known != values_.end()) return known->second;
    Tensor value = definition.target ? call_result(*definition.expr, *definition.scope, back, definition.result)
                                     : evaluate(*definition.expr, *definition.scope, back);
    if (definition.target && definition.target->has_index)
      value = listed(value, *definition.target, *definition.target_scope);
    return values_.emplace(key, std::move(value)).first->second;
  }

  /// The target's list orders the axes of its value.
  Tensor listed(const Tensor& value, const Target& target, const Scope& scope) {
    const Declaration* state = target.primed ? cell_.find(target.name) : nullptr;
    std::vector<std::string> labels;
    std::vector<std::int64_t> lengths;
    for (std::size_t p = 0; p < target.index.size(); ++p) {
      if (target.index[p].integer) throw OracleError("an integer in the list of a target");
      labels.push_back(scope.label(target.index[p].name));
      const auto found = std::find(value.axes.begin(), value.axes.end(), labels.back());
      if (state)
        lengths.push_back(cell_.length(state->axes.at(p).name, data_));
      else
        lengths.push_back(found == value.axes.end() ? length_of(labels.back())
                                                    : value.shape[found - value.axes.begin()]);
    }
    return over(value, labels, lengths);
  }

  Tensor name_value(const Expr& e, const Scope& scope, int back) {
    const Declaration* declared = scope.call == 0 ? cell_.find(e.name) : nullptr;
    if (e.primed && back > 0) {  // lag(h', n) is lag(h, n-1)
      if (!declared) throw OracleError("'" + e.name + "' is no state");
      return read(*declared, back - 1);
    }
    const auto found = scope.definitions.find(prime_key(e.name, e.primed));
    if (found != scope.definitions.end()) {
      const Tensor& value = evaluate(found->second, back);
      // h' has the state's axes in their declared order, whatever order its line gives.
      if (e.primed) return Tensor{place_labels(*declared), cell_.shape(*declared, data_), state_after(*declared).data};
      return value;
    }
    if (!declared || e.primed) throw OracleError("unknown name '" + e.name + "'");
    return read(*declared, back);
  }

  // ---- calls -------------------------------------------------------------------------------
  const Scope& enter(const Function& f, const Expr& call, const Scope& caller) {
    scopes_.push_back(std::make_unique<Scope>());
    Scope& scope = *scopes_.back();
    scope.call = ++calls_;
    if (call.args.size() != f.params.size()) throw OracleError("'" + f.name + "' with the wrong number of arguments");
    if (call.index.size() != f.axes.size()) throw OracleError("'" + f.name + "' with the wrong number of axes");
    for (std::size_t i = 0; i < f.axes.size(); ++i) scope.axes[f.axes[i].name] = caller.label(call.index[i].name);
    for (std::size_t i = 0; i < f.params.size(); ++i)
      scope.definitions[f.params[i].first] = Definition{call.args[i].get(), &caller, nullptr, nullptr, 0};
    for (const Line& line : f.lines) define(scope, line);
    return scope;
  }

  Tensor call_result(const Expr& e, const Scope& scope, int back, std::size_t result) {
    const Function* f = e.kind == ExprKind::Call ? find_function(cell_.file(), e.name) : nullptr;
    if (!f) return evaluate(e, scope, back);
    if (result >= f->results.size()) throw OracleError("'" + f->name + "' has fewer results");
    const Scope& inner = enter(*f, e, scope);
    return evaluate(*f->results[result], inner, back);
  }

  Tensor lagged(const Expr& e, const Scope& scope, int back) {
    if (e.index.empty()) {
      const Tensor n = evaluate(*e.args.at(1), scope, 0);
      return evaluate(*e.args[0], scope, back + static_cast<int>(std::lround(n.data.at(0))));
    }
    const std::string label = scope.label(e.index.at(0).name);
    const std::int64_t length = length_of(label);
    if (length == 0) throw OracleError("a lag along an axis of length 0");
    Tensor result;
    for (std::int64_t j = 0; j < length; ++j) {
      const Tensor one = evaluate(*e.args.at(0), scope, back + static_cast<int>(j));
      if (j == 0) {
        result = one;
        result.axes.insert(result.axes.begin(), label);
        result.shape.insert(result.shape.begin(), length);
      } else {
        result.data.insert(result.data.end(), one.data.begin(), one.data.end());
      }
    }
    return result;
  }

  Tensor reduction(const Expr& e, const Scope& scope, int back) {
    const Tensor body = evaluate(*e.args.at(0), scope, back);
    std::vector<std::string> labels;
    std::vector<std::int64_t> lengths;
    for (const IndexEntry& axis : e.index) {
      labels.push_back(scope.label(axis.name));
      const auto found = std::find(body.axes.begin(), body.axes.end(), labels.back());
      lengths.push_back(found == body.axes.end() ? length_of(labels.back()) : body.shape[found - body.axes.begin()]);
    }
    using Values = const std::vector<double>&;
    auto sum = [](Values v) {
      double s = 0;
      for (double x : v) s += x;
      return s;
    };
    auto maximum = [](Values v) {
      double m = -std::numeric_limits<double>::infinity();
      for (double x : v) m = oracle::maximum(m, x);
      return m;
    };
    if (e.name == "sum") return reduced(body, labels, lengths, sum);
    if (e.name == "mean")
      return reduced(body, labels, lengths, [&](Values v) { return sum(v) / static_cast<double>(v.size()); });
    if (e.name == "max") return reduced(body, labels, lengths, maximum);
    if (e.name == "logsumexp") return reduced(body, labels, lengths, log_sum);
    // softmax, with the largest value taken off first
    const Tensor top = reduced(body, labels, lengths, maximum);
    const Tensor raised = elementwise({&body, &top}, [](Values v) { return std::exp(v[0] - v[1]); });
    const Tensor total = reduced(raised, labels, lengths, sum);
    return elementwise({&raised, &total}, [](Values v) { return v[0] / v[1]; });
  }

  Tensor eye(const Expr& e, const Scope& scope) {
    if (e.index.size() != 2) throw OracleError("eye takes two axes of one length");
    // An index name that stands nowhere else has the length of its partner; eye[i,0] selects a row.
    std::optional<std::int64_t> length;
    std::vector<Place> places;
    for (const IndexEntry& entry : e.index) {
      places.push_back(entry.integer ? Place{"", *entry.integer} : Place{scope.label(entry.name), 0});
      const auto known = root_.lengths.find(places.back().label);
      if (known == root_.lengths.end()) continue;
      if (length && *length != known->second) throw OracleError("eye takes two axes of one length");
      length = known->second;
    }
    if (!length) throw OracleError("the axes of eye have no known length");
    Tensor t{{"row", "column"}, {*length, *length}, {}};
    for (std::int64_t i = 0; i < *length; ++i)
      for (std::int64_t j = 0; j < *length; ++j) t.data.push_back(i == j ? 1 : 0);
    if (places[0].label == places[1].label && !places[0].label.empty()) {
      t.axes = {places[0].label, places[1].label};  // eye[n,n] of a start: by place
      return t;
    }
    return renamed(t, places);
  }

  Tensor call_value(const Expr& e, const Scope& scope, int back) {
    if (e.name == "size") return scalar(static_cast<double>(length_of(scope.label(e.index.at(0).name))));
    if (e.name == "eye") return eye(e, scope);
    if (e.name == "lag") return lagged(e, scope, back);
    const bool folds =
        e.name == "sum" || e.name == "mean" || e.name == "max" || e.name == "softmax" || e.name == "logsumexp";
    if (folds && !e.index.empty()) return reduction(e, scope, back);
    if (find_elementwise(e.name, e.args.size())) return apply_all(e.name, e, scope, back);
    if (find_function(cell_.file(), e.name)) return call_result(e, scope, back, 0);
    throw OracleError("unknown function '" + e.name + "'");
  }

  Tensor apply_all(const std::string& f, const Expr& e, const Scope& scope, int back) {
    std::vector<Tensor> args;
    args.reserve(e.args.size());
    for (const ExprPtr& arg : e.args) args.push_back(evaluate(*arg, scope, back));
    std::vector<const Tensor*> operands;
    for (const Tensor& t : args) operands.push_back(&t);
    return elementwise(operands, find_elementwise(f, args.size()));
  }

  // ---- expressions -------------------------------------------------------------------------
  Tensor evaluate(const Expr& e, const Scope& scope, int back) {
    switch (e.kind) {
      case ExprKind::Number:
        return scalar(e.number);
      case ExprKind::Name: {
        Tensor value = name_value(e, scope, back);
        if (!e.has_index) return value;
        std::vector<Place> places;
        for (const IndexEntry& entry : e.index)
          places.push_back(entry.integer ? Place{"", *entry.integer} : Place{scope.label(entry.name), 0});
        return renamed(value, places);
      }
      case ExprKind::Call:
        return call_value(e, scope, back);
      case ExprKind::Negate:
        return apply_all("neg", e, scope, back);
      case ExprKind::Power: {
        const Tensor base = evaluate(*e.args.at(0), scope, back);
        return elementwise({&base}, [&](const std::vector<double>& v) { return std::pow(v[0], e.number); });
      }
      case ExprKind::Binary:
        if (e.name == "@") return contracted(evaluate(*e.args[0], scope, back), evaluate(*e.args[1], scope, back));
        return apply_all(e.name, e, scope, back);
    }
    throw OracleError("an unknown kind of expression");
  }

  const Cell& cell_;
  const Data& data_;
  const Trajectory& past_;
  std::int64_t now_;
  Scope root_;
  std::deque<std::unique_ptr<Scope>> scopes_;
  std::map<std::pair<const Definition*, int>, Tensor> values_;
  int calls_ = 0;
};

}  // namespace

Cell::Cell(const File& file, const std::string& name) : file_(&file), cell_(nullptr) {
  for (const cellc::Cell& c : file.cells)
    if (c.name == name) cell_ = &c;
  if (!cell_) throw OracleError("no cell '" + name + "'");
}

const Declaration* Cell::find(const std::string& name) const {
  for (const Declaration& d : cell_->declarations)
    if (d.name == name) return &d;
  return nullptr;
}

std::int64_t Cell::length(const std::string& axis, const Data& data) const {
  for (const HeaderAxis& a : cell_->axes)
    if (a.name == axis && a.length) return *a.length;
  const auto found = data.sizes.find(axis);
  if (found == data.sizes.end()) throw OracleError("the length of '" + axis + "' is not given");
  return found->second;
}

std::vector<std::int64_t> Cell::shape(const Declaration& declaration, const Data& data) const {
  std::vector<std::int64_t> shape;
  for (const IndexEntry& axis : declaration.axes) shape.push_back(length(axis.name, data));
  return shape;
}

std::int64_t Cell::count(const Declaration& declaration, const Data& data) const {
  return element_count(shape(declaration, data));
}

std::vector<double> initial_value(const Cell& cell, const Data& data, const std::string& name) {
  const Declaration* d = cell.find(name);
  if (!d) throw OracleError("no state or param '" + name + "'");
  const auto& given = d->kind == SymbolKind::State ? data.starts : data.params;
  const auto found = given.find(name);
  const std::int64_t n = cell.count(*d, data);
  if (found != given.end()) {
    if (static_cast<std::int64_t>(found->second.size()) != n) throw OracleError("'" + name + "' has the wrong size");
    return found->second;
  }
  if (!d->initial) {
    if (d->kind == SymbolKind::Param) throw OracleError("the param '" + name + "' is missing");
    return std::vector<double>(n, 0.0);
  }
  const Trajectory none;
  Moment moment(cell, data, none, 0);
  std::vector<std::string> labels;
  for (const IndexEntry& axis : d->axes) labels.push_back(axis.name);
  return over(moment.constant(*d->initial), labels, cell.shape(*d, data)).data;
}

Trajectory run(const Cell& cell, const Data& given) {
  // Starts and defaults are looked up at every read: work them out once.
  Data data = given;
  for (const Declaration& d : cell.tree().declarations)
    if (d.kind == SymbolKind::Param) data.params[d.name] = initial_value(cell, data, d.name);
  for (const Declaration& d : cell.tree().declarations)
    if (d.kind == SymbolKind::State) data.starts[d.name] = initial_value(cell, data, d.name);

  Trajectory trajectory;
  for (const Declaration& d : cell.tree().declarations)
    if (d.kind == SymbolKind::State) trajectory.states[d.name];
  for (std::int64_t t = 0; t < data.steps; ++t) {
    Moment moment(cell, data, trajectory, t);
    std::map<std::string, std::vector<double>> states;
    for (const Declaration& d : cell.tree().declarations)
      if (d.kind == SymbolKind::State) states[d.name] = moment.state_after(d).data;
    for (const Line& line : cell.tree().lines) {
      if (!line.is_out) continue;
      for (const Target& target : line.targets) {
        const Tensor& value = moment.named(target.name);
        std::vector<double>& written = trajectory.outs[target.name];
        written.insert(written.end(), value.data.begin(), value.data.end());
        trajectory.out_shapes[target.name] = value.shape;
      }
    }
    for (auto& [name, value] : states) {
      std::vector<double>& written = trajectory.states[name];
      written.insert(written.end(), value.begin(), value.end());
    }
  }
  return trajectory;
}

std::map<std::string, std::vector<double>> step(const Cell& cell, const Data& data) {
  Data one = data;
  one.steps = 1;
  return run(cell, one).states;
}

}  // namespace cellc::oracle
