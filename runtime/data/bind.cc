#include "runtime/data/bind.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "compiler/graph/evaluate.h"
#include "compiler/plan/call_layout.h"
#include "compiler/syntax/diagnostic.h"
#include "runtime/data/check_offsets.h"
#include "runtime/data/errors.h"
#include "runtime/data/npy.h"
#include "runtime/data/random_fill.h"

namespace cellc {
namespace {

const char* kind_name(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::State:
      return "state";
    case SymbolKind::Input:
      return "input";
    case SymbolKind::Param:
      return "param";
  }
  throw std::logic_error("bind: no such kind of symbol");
}

bool is_16_bit(Dtype dtype) { return dtype == Dtype::F16 || dtype == Dtype::BF16; }

/// "x.lag" -> "x", true.
std::pair<std::string, bool> split_lag(const std::string& name) {
  if (name.size() > 4 && name.ends_with(".lag")) return {name.substr(0, name.size() - 4), true};
  return {name, false};
}

/// What one given array turned out to be.
struct Matched {
  std::string name;  ///< as given
  int symbol;
  bool history;
  const GivenArray* given;
};

class Binder {
 public:
  Binder(const CellGraph& cell, const BindRequest& request) : cell_(cell), request_(request) {}

  Binding bind() {
    match_names();
    find_dtype();
    find_sizes();
    check_memory();
    binding_.run.reverse = request_.reverse;
    binding_.run.threads = request_.threads;
    binding_.run.symbols.resize(cell_.symbols.size());
    binding_.run.histories.resize(cell_.symbols.size());
    for (const SymbolKind kind : {SymbolKind::Param, SymbolKind::Input, SymbolKind::State})
      for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s)
        if (cell_.symbols[s].kind == kind && cell_.symbols[s].lag_of < 0) fill(s);
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s)
      if (cell_.symbols[s].lag_of >= 0) fill_companion(s);
    return std::move(binding_);
  }

 private:
  // Names ------------------------------------------------------------------------------------
  void match_names() {
    match_all(request_.inputs, SymbolKind::Input, "--input");
    match_all(request_.params, SymbolKind::Param, "--param");
    match_all(request_.states, SymbolKind::State, "--state");
    for (const auto& [name, number] : request_.param_numbers) {
      (void)number;
      find(name, SymbolKind::Param, "--param");
      if (request_.params.count(name)) throw UsageError(fmt::format("--param {} is given twice", name));
    }
    std::vector<std::string> names;
    for (const AxisId a : cell_.header) names.push_back(cell_.graph.axis(a).name);
    for (const auto& [name, length] : request_.dims) {
      (void)length;
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const std::string near = closest_name(name, names);
      throw UsageError(fmt::format("--dim {}: cell {} has no axis '{}'{}", name, cell_.name, name,
                                   near.empty() ? listed("axes", names) : fmt::format("; did you mean '{}'?", near)));
    }
  }

  static std::string listed(const char* what, const std::vector<std::string>& names) {
    return names.empty() ? fmt::format("; it has no {}", what)
                         : fmt::format("; its {}: {}", what, fmt::join(names, ", "));
  }

  int find(const std::string& name, SymbolKind kind, const char* option) const {
    std::vector<std::string> names;
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[s];
      if (symbol.lag_of >= 0) continue;
      if (symbol.name == name && symbol.kind == kind) return s;
      if (symbol.name == name)
        throw RequestError(fmt::format("{} {}: '{}' is {} {} of cell {}; give it with --{}", option, name, name,
                                       symbol.kind == SymbolKind::Input ? "an" : "a", kind_name(symbol.kind),
                                       cell_.name, kind_name(symbol.kind)));
      if (symbol.kind == kind) names.push_back(symbol.name);
    }
    const std::string near = closest_name(name, names);
    throw RequestError(fmt::format("{} {}: cell {} has no {} '{}'{}", option, name, cell_.name, kind_name(kind), name,
                                   near.empty() ? listed((std::string(kind_name(kind)) + "s").c_str(), names)
                                                : fmt::format("; did you mean '{}'?", near)));
  }

  void match_all(const std::map<std::string, GivenArray>& given, SymbolKind kind, const char* option) {
    for (const auto& [name, array] : given) {
      const auto [base, lagged] = split_lag(name);
      SymbolKind wanted = kind;
      // The history of an input may come by either option: it is an input's, and it is a start.
      if (lagged && kind != SymbolKind::Param)
        for (const Symbol& s : cell_.symbols)
          if (s.name == base && s.lag_of < 0 && s.kind != SymbolKind::Param) wanted = s.kind;
      const int symbol = find(base, wanted, option);
      if (lagged && (kind == SymbolKind::Param || cell_.symbols[symbol].max_lag == 0))
        throw RequestError(fmt::format("{} {}: cell {} never reads {} at a lag, so there is no history to give", option,
                                       name, cell_.name, base));
      matched_.push_back({name, symbol, lagged, without_last(symbol, lagged, array)});
    }
  }

  /// One number is often an array of one: [1] for a param without axes, [B, T, 1] for an input, where no other shape
  /// can be meant.
  const GivenArray* without_last(int symbol, bool history, const GivenArray& given) {
    std::vector<std::int64_t> shape = given.array.shape();
    const Symbol& s = cell_.symbols[symbol];
    const bool two = history || (s.kind == SymbolKind::Input && !request_.offsets);
    const std::size_t most = s.kind == SymbolKind::Param ? 0 : two ? 2 : 1;
    if (!s.axes.empty() || shape.size() != most + 1 || shape.back() != 1) return &given;
    shape.pop_back();
    return &scalars_.emplace_back(GivenArray{given.source, given.array.with_shape(std::move(shape))});
  }

  /// Steps of history that the cell reads of a state or input, as far as lengths are known.
  std::int64_t depth(int symbol) const {
    std::int64_t deepest = 0;
    for (const Reach& reach : reaches(cell_, symbol)) {
      const auto along = sizes_.find(reach.axis);
      deepest = std::max(deepest, reach.lag + (along == sizes_.end() ? 0 : along->second.value - 1));
    }
    return deepest;
  }

  // Dtype ------------------------------------------------------------------------------------
  static std::string label(const char* kind, const std::string& name, const std::string& source) {
    return fmt::format("{} {} ({})", kind, name, source);
  }
  std::string label(const Matched& m) const {
    return label(kind_name(cell_.symbols[m.symbol].kind), m.name, m.given->source);
  }

  bool is_start(const Matched& m) const { return cell_.symbols[m.symbol].kind == SymbolKind::State; }

  /// Integers and truth values are taken as the numbers that they are, in whatever the other arrays are in.
  static bool is_integer(const Matched& m) { return m.given->array.dtype() == Dtype::I64; }

  void find_dtype() {
    for (const Matched& m : matched_) {
      const Dtype dtype = m.given->array.dtype();
      if (dtype == Dtype::U16 && request_.dtype != Dtype::BF16)
        throw RequestError(
            fmt::format("{} holds raw 16-bit numbers: pass --dtype bf16 if they are bfloat16, "
                        "or save it as float32",
                        label(m)));
    }
    if (request_.dtype) {
      binding_.dtype = *request_.dtype;
      return;
    }
    const Matched* first = nullptr;
    for (const SymbolKind kind : {SymbolKind::Input, SymbolKind::Param, SymbolKind::State}) {
      for (const Matched& m : matched_)
        if (!first && cell_.symbols[m.symbol].kind == kind && !is_integer(m)) first = &m;
    }
    if (!first) return;
    binding_.dtype = first->given->array.dtype();
    for (const Matched& m : matched_) {
      const Dtype dtype = m.given->array.dtype();
      if (dtype == binding_.dtype || is_integer(m)) continue;
      // What a 16-bit run writes as h.final is f32, and must go back in as it is.
      if (is_start(m) && is_16_bit(binding_.dtype) && dtype == Dtype::F32) continue;
      throw RequestError(fmt::format("{} is {}, but {} is {}: give arrays of one dtype, or state --dtype", label(m),
                                     to_string(dtype), label(*first), to_string(binding_.dtype)));
    }
  }

  // Sizes ------------------------------------------------------------------------------------
  struct Known {
    std::int64_t value;
    std::string from;
  };

  static void settle(std::optional<Known>& known, std::int64_t value, const std::string& from,
                     const std::string& what) {
    if (!known)
      known = Known{value, from};
    else if (known->value != value)
      throw RequestError(
          fmt::format("{} has {} {}; expected {}, {} of {}", from, what, value, known->value, what, known->from));
  }

  void settle_axis(AxisId axis, std::int64_t value, const std::string& from) {
    const Axis& a = cell_.graph.axis(axis);
    const AxisId header = a.extent_of;
    const std::string& name = cell_.graph.axis(header).name;
    if (value < 1) throw RequestError(fmt::format("{}: axis {} has length {}; expected at least 1", from, name, value));
    const auto known = sizes_.find(header);
    if (known == sizes_.end()) {
      sizes_[header] = {value, from};
      return;
    }
    if (known->second.value != value)
      throw RequestError(fmt::format("{}: axis {} has length {}; expected {}, as {} has it", from, name, value,
                                     known->second.value, known->second.from));
  }

  std::string axes_text(const Symbol& symbol, const std::string& before) const {
    std::string text = "[" + before;
    for (const AxisId a : symbol.axes) {
      if (text.size() > 1) text += ", ";
      text += cell_.graph.axis(a).name;
    }
    return text + "]";
  }

  [[noreturn]] void wrong_rank(const Matched& m, const std::string& expected) const {
    throw RequestError(
        fmt::format("{} has the shape {}; expected {}", label(m), shape_text(m.given->array.shape()), expected));
  }

  void settle_tail(const Matched& m, std::size_t from) {
    const Symbol& symbol = cell_.symbols[m.symbol];
    for (std::size_t i = 0; i < symbol.axes.size(); ++i)
      settle_axis(symbol.axes[i], m.given->array.shape()[from + i], label(m));
  }

  void find_sizes() {
    for (const AxisId a : cell_.header)
      if (cell_.graph.axis(a).fixed) sizes_[a] = {*cell_.graph.axis(a).fixed, fmt::format("cell {}", cell_.name)};
    for (const AxisId a : cell_.header)
      if (const auto dim = request_.dims.find(cell_.graph.axis(a).name); dim != request_.dims.end())
        settle_axis(a, dim->second, fmt::format("--dim {}={}", dim->first, dim->second));

    binding_.packed = request_.offsets.has_value();
    std::optional<Known> batch, length;
    if (binding_.packed)
      read_offsets(batch, length);
    else if (request_.length)
      length = Known{*request_.length, fmt::format("--length {}", *request_.length)};
    if (request_.batch) settle(batch, *request_.batch, fmt::format("--batch {}", *request_.batch), "the batch size");

    bool any_batched = false, any_plain = false;
    for (const Matched& m : matched_) {
      const Symbol& symbol = cell_.symbols[m.symbol];
      const auto& shape = m.given->array.shape();
      const std::size_t rank = shape.size(), tail = symbol.axes.size();
      if (m.history || symbol.kind != SymbolKind::Input) continue;
      if (binding_.packed) {
        if (rank != tail + 1) wrong_rank(m, axes_text(symbol, "total") + ", packed as the offsets say");
        settle(length, shape[0], label(m), "the number of steps");
        settle_tail(m, 1);
      } else if (rank == tail + 2) {
        any_batched = true;
        settle(batch, shape[0], label(m), "the batch size");
        settle(length, shape[1], label(m), "the length");
        settle_tail(m, 2);
      } else if (rank == tail + 1) {
        any_plain = true;
        settle(batch, 1, label(m), "the batch size");
        settle(length, shape[0], label(m), "the length");
        settle_tail(m, 1);
      } else {
        wrong_rank(m, axes_text(symbol, "B, T") + " or " + axes_text(symbol, "T"));
      }
    }
    binding_.batched = any_batched || !any_plain;
    for (const Matched& m : matched_) {
      const Symbol& symbol = cell_.symbols[m.symbol];
      const auto& shape = m.given->array.shape();
      const std::size_t rank = shape.size(), tail = symbol.axes.size();
      if (m.history) {
        if (rank != tail + 2) wrong_rank(m, axes_text(symbol, "B, n"));
        settle(batch, shape[0], label(m), "the batch size");
        settle_tail(m, 2);
      } else if (symbol.kind == SymbolKind::State) {
        if (rank == tail && !binding_.batched && !binding_.packed) {
          settle_tail(m, 0);
          continue;
        }
        if (rank != tail + 1) wrong_rank(m, axes_text(symbol, "B"));
        settle(batch, shape[0], label(m), "the batch size");
        settle_tail(m, 1);
      } else if (symbol.kind == SymbolKind::Param) {
        if (rank != tail) wrong_rank(m, axes_text(symbol, ""));
        settle_tail(m, 0);
      }
    }

    for (const Matched& m : matched_)
      if (m.history && m.given->array.shape()[1] != depth(m.symbol))
        throw RequestError(fmt::format("{} has {} steps of history; the cell reads {} (newest first)", label(m),
                                       m.given->array.shape()[1], depth(m.symbol)));
    report_missing();
    if (!length) throw RequestError("the number of steps is not known: no input is given; state it with --length");
    binding_.batch = batch ? batch->value : 1;
    binding_.length = length->value;
    if (!binding_.packed) {
      std::int64_t rows = 0;
      if (__builtin_mul_overflow(binding_.batch, binding_.length, &rows))
        throw DeviceError(
            fmt::format("{} sequences of {} steps are more than can be counted", binding_.batch, binding_.length));
      offsets_at_regular_steps();
    }
    for (const AxisId a : cell_.header) {
      const auto known = sizes_.find(a);
      if (known == sizes_.end()) {
        const std::string& name = cell_.graph.axis(a).name;
        throw RequestError(fmt::format(
            "the length of axis {} is not known: no given array has it; state it with --dim {}=N", name, name));
      }
      binding_.run.sizes[a] = known->second.value;
    }
    check_entries();
  }

  /// Entries picked by an integer: the compiler has checked those of axes whose length the header fixes.
  void check_entries() const {
    each_picked_entry(cell_, [&](AxisId header, std::int64_t entry, const std::string& of) {
      const Known& known = sizes_.at(header);
      if (entry >= known.value)
        throw RequestError(fmt::format("cell {} reads entry {} of axis {}{}, which has {} (0 to {}), as {} has it",
                                       cell_.name, entry, cell_.graph.axis(header).name, of, known.value,
                                       known.value - 1, known.from));
    });
  }

  void offsets_at_regular_steps() {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(binding_.batch, std::int64_t{8}, &bytes) || bytes > physical_memory())
      throw DeviceError(fmt::format("a batch of {} does not fit this machine's memory", binding_.batch));
    for (std::int64_t b = 0; b <= binding_.batch; ++b) binding_.run.offsets.push_back(b * binding_.length);
  }

  void read_offsets(std::optional<Known>& batch, std::optional<Known>& length) {
    const GivenArray& given = *request_.offsets;
    if (request_.length)
      throw UsageError("--length has no meaning with --offsets, which state the length of every sequence");
    const std::string who = fmt::format("offsets ({})", given.source);
    if (given.array.dtype() != Dtype::I64)
      throw RequestError(fmt::format("{} are {}; expected int64", who, to_string(given.array.dtype())));
    if (given.array.shape().size() != 1 || given.array.count() < 1)
      throw RequestError(fmt::format("{} have the shape {}; expected [N+1], from 0 to the total number of steps", who,
                                     shape_text(given.array.shape())));
    const auto* values = static_cast<const std::int64_t*>(given.array.data());
    const std::int64_t count = given.array.count();
    if (const auto fault = fault_of_offsets({values, static_cast<std::size_t>(count)}))
      throw RequestError(who + " " + *fault);
    binding_.run.offsets.assign(values, values + count);
    batch = Known{count - 1, who};
    length = Known{values[count - 1], who};
  }

  const GivenArray* given(int symbol, bool history) const {
    for (const Matched& m : matched_)
      if (m.symbol == symbol && m.history == history) return m.given;
    return nullptr;
  }

  /// All that is missing is said at once, before any size is found missing: a forgotten array is
  /// the likelier mistake, and it would have brought the size.
  void report_missing() const {
    if (request_.random_seed) return;
    std::vector<std::string> missing;
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[s];
      if (symbol.kind == SymbolKind::State || symbol.initial != kNoNode || given(s, false) ||
          request_.param_numbers.count(symbol.name))
        continue;
      missing.push_back(
          fmt::format("{} {}{} (--{} {}=FILE.npy)", kind_name(symbol.kind), symbol.name,
                      axes_text(symbol, symbol.kind == SymbolKind::Input ? (binding_.packed ? "total" : "B, T") : ""),
                      kind_name(symbol.kind), symbol.name));
    }
    if (missing.empty()) return;
    throw RequestError(fmt::format("cell {} needs {} more array{}: {}; or --random SEED fills what is missing",
                                   cell_.name, missing.size(), missing.size() == 1 ? "" : "s",
                                   fmt::join(missing, ", ")));
  }

  // Memory -----------------------------------------------------------------------------------
  static std::int64_t physical_memory() {
    return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }

  std::int64_t rows() const { return binding_.run.offsets.back(); }

  /// Overcommitted memory is granted and then kills the process when it is touched, so a run that
  /// cannot fit is refused beforehand.
  void check_memory() const {
    std::int64_t total = 0;
    bool overflow = false;
    const auto add = [&](std::int64_t count, const std::vector<AxisId>& axes, Dtype dtype) {
      std::int64_t bytes = count;
      overflow |= __builtin_mul_overflow(bytes, static_cast<std::int64_t>(size_of(dtype)), &bytes);
      for (const AxisId a : axes)
        overflow |= __builtin_mul_overflow(bytes, binding_.run.sizes.at(cell_.graph.axis(a).extent_of), &bytes);
      overflow |= __builtin_add_overflow(total, bytes, &total);
    };
    for (const Symbol& s : cell_.symbols) {
      if (s.kind == SymbolKind::Param) add(1, s.axes, binding_.dtype);
      if (s.kind == SymbolKind::Input) add(rows(), s.axes, binding_.dtype);
      if (s.kind == SymbolKind::State) add(rows(), s.axes, binding_.dtype);
      if (s.kind == SymbolKind::State) add(2 * binding_.batch, s.axes, arithmetic_of(binding_.dtype));
    }
    for (const Out& out : cell_.outs) add(rows(), out.index, binding_.dtype);
    if (overflow || total > physical_memory())
      throw DeviceError(fmt::format("the arrays of this run take {} of memory; the machine has {:.1f} GB",
                                    overflow ? "more than can be counted" : fmt::format("{:.1f} GB", total / 1e9),
                                    physical_memory() / 1e9));
  }

  // Values -----------------------------------------------------------------------------------
  static Array converted(const GivenArray& given, Dtype dtype) {
    Array array = given.array;
    if (array.dtype() == Dtype::U16) array.reinterpret(Dtype::BF16);
    return convert(array, dtype);
  }

  std::vector<std::int64_t> shape_of(std::vector<std::int64_t> before, const Symbol& symbol) const {
    for (const std::int64_t n : lengths(cell_, binding_.run, symbol.axes)) before.push_back(n);
    return before;
  }

  /// The declared start or default, over the symbol's axes.
  Tensor evaluate_initial(const Symbol& symbol) const {
    Environment environment;
    environment.sizes = binding_.run.sizes;
    environment.read = [&](int s, const std::vector<std::int64_t>& position, int) {
      const Array& array = binding_.run.symbols[s];
      std::int64_t flat = 0;
      for (std::size_t i = 0; i < position.size(); ++i) flat = flat * array.shape()[i] + position[i];
      return array.get(flat);
    };
    return Evaluator(cell_, environment).value_over(symbol.initial, symbol.index);
  }

  void fill(int s) {
    const Symbol& symbol = cell_.symbols[s];
    const bool state = symbol.kind == SymbolKind::State, input = symbol.kind == SymbolKind::Input;
    const bool exact = state || (symbol.kind == SymbolKind::Param && request_.params_unrounded && given(s, false));
    const Dtype dtype = exact ? arithmetic_of(binding_.dtype) : binding_.dtype;
    const auto shape = state   ? shape_of({binding_.batch}, symbol)
                       : input ? shape_of({rows()}, symbol)
                               : shape_of({}, symbol);
    Array& array = binding_.run.symbols[s];
    if (const GivenArray* g = given(s, false)) {
      array = converted(*g, dtype).with_shape(shape);
    } else if (const auto number = request_.param_numbers.find(symbol.name);
               symbol.kind == SymbolKind::Param && number != request_.param_numbers.end()) {
      array = Array(dtype, shape);
      for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, number->second);
      // Nobody who writes a number means the infinity that it would become.
      if (array.count() > 0 && std::isfinite(number->second) && !std::isfinite(array.get(0)))
        throw UsageError(fmt::format("--param {}: the number {:g} is out of the range of {}", symbol.name,
                                     number->second, to_string(dtype)));
    } else if (symbol.initial != kNoNode) {
      array = Array(dtype, shape);
      const Tensor value = evaluate_initial(symbol);
      const auto count = static_cast<std::int64_t>(value.data.size());
      for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, value.data[static_cast<std::size_t>(i % count)]);
    } else if (state) {
      array = Array(dtype, shape);
    } else {
      array = Array(dtype, shape);
      fill_random(array, symbol);
    }
    if (input && symbol.max_lag != 0) {
      Array& history = binding_.run.histories[s];
      const auto history_shape = shape_of({binding_.batch, depth(s)}, symbol);
      const GivenArray* g = given(s, true);
      history = g ? converted(*g, dtype).with_shape(history_shape) : Array(dtype, history_shape);
    }
  }

  void fill_random(Array& array, const Symbol& symbol) {
    double low = -2, high = 2;
    if (symbol.range) {
      low = symbol.range->low;
      high = symbol.range->high;
    } else if (symbol.kind == SymbolKind::Param) {
      const std::int64_t columns = symbol.axes.size() >= 2 ? array.shape().back() : 1;
      high = 1 / std::sqrt(static_cast<double>(columns));
      low = -high;
    }
    fill_uniform(array, *request_.random_seed, symbol.name, low, high);
    binding_.filled.push_back(symbol.name);
  }

  /// A companion starts as the history says, or as the state that it follows.
  void fill_companion(int s) {
    const Symbol& symbol = cell_.symbols[s];
    const Array& parent = binding_.run.symbols[symbol.lag_of];
    const GivenArray* g = given(symbol.lag_of, true);
    if (!g) {
      binding_.run.symbols[s] = parent;
      return;
    }
    const Array history = converted(*g, parent.dtype());
    const std::int64_t depth = history.shape()[1];
    Array start(parent.dtype(), parent.shape());
    const std::int64_t entries = binding_.batch > 0 ? parent.count() / binding_.batch : 0;
    const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(parent.dtype());
    for (std::int64_t b = 0; b < binding_.batch; ++b)
      std::memcpy(
          static_cast<std::byte*>(start.data()) + static_cast<std::size_t>(b) * bytes,
          static_cast<const std::byte*>(history.data()) + static_cast<std::size_t>(b * depth + symbol.lag - 1) * bytes,
          bytes);
    binding_.run.symbols[s] = start;
  }

  const CellGraph& cell_;
  const BindRequest& request_;
  Binding binding_;
  std::vector<Matched> matched_;
  std::deque<GivenArray> scalars_;  ///< what `matched_` points to where a shape was cut
  std::map<AxisId, Known> sizes_;
};

}  // namespace

Binding bind(const CellGraph& cell, const BindRequest& request) { return Binder(cell, request).bind(); }

Dtype arithmetic_of(Dtype storage) { return storage == Dtype::F64 ? Dtype::F64 : Dtype::F32; }

Array convert(const Array& array, Dtype dtype) {
  if (array.dtype() == dtype) return array;
  Array result(dtype, array.shape());
  const std::int64_t count = array.count();
  for (std::int64_t i = 0; i < count; ++i) result.set(i, array.get(i));
  return result;
}

std::vector<std::int64_t> lengths(const CellGraph& cell, const BoundRun& run, const std::vector<AxisId>& axes) {
  std::vector<std::int64_t> result;
  for (const AxisId a : axes) result.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
  return result;
}

}  // namespace cellc
