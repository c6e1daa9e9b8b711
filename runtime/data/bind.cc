#include "runtime/data/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/declared_value.h"
#include "runtime/data/find_sizes.h"
#include "runtime/data/given_arrays.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/narrow_numbers.h"
#include "runtime/data/random_fill.h"

namespace cellc {
namespace {

class Binder {
 public:
  Binder(const CellGraph& cell, const CallLayout& layout, const BindRequest& request)
      : cell_(cell), request_(request), layout_(layout), given_(cell, layout_, request) {}

  Binding bind() {
    binding_.dtype = given_.dtype();
    find_sizes(cell_, layout_, request_, given_, binding_);
    check_memory();
    binding_.run.reverse = request_.reverse;
    binding_.run.threads = request_.threads;
    binding_.run.symbols.resize(cell_.symbols.size());
    binding_.run.histories.resize(cell_.symbols.size());
    // Starts may be computed from params.
    for (const FieldKind kind : {FieldKind::Param, FieldKind::Input, FieldKind::InputHistory, FieldKind::Start})
      for (const CallField& field : layout_.fields)
        if (field.kind == kind) fill(field);
    // A lagged copy starts as the history says, or as the state that it follows.
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
      const Symbol& copy = cell_.symbols[s];
      if (copy.lag_of < 0) continue;
      const GivenArray* history = given_.find(FieldKind::StateHistory, copy.lag_of);
      const Array& parent = binding_.run.symbols[static_cast<std::size_t>(copy.lag_of)];
      binding_.run.symbols[s] = history ? lag_of_history(converted(*history, parent.dtype()), copy.lag) : parent;
    }
    for (const DelayLine& line : delay_lines(cell_)) {
      const GivenArray* history = given_.find(FieldKind::StateHistory, line.state);
      const Array start = convert(binding_.run.symbols[static_cast<std::size_t>(line.state)], binding_.dtype);
      binding_.run.histories[static_cast<std::size_t>(line.symbol)] =
          history_of_line(start, history ? converted(*history, start.dtype()) : Array(), line.deepest);
    }
    return std::move(binding_);
  }

 private:
  /// Overcommitted memory is granted and then kills the process when it is touched, so a run that
  /// cannot fit is refused beforehand.
  void check_memory() const {
    CallShape shape;
    for (const AxisId a : cell_.header) shape.lengths.push_back(binding_.run.sizes.at(a));
    shape.sequences = binding_.batch;
    shape.rows = binding_.run.offsets.back();
    std::int64_t total = 0;
    const auto add = [&](const CallField& field) {
      const auto size = static_cast<std::int64_t>(size_of(dtype_of(field.kind, binding_.dtype)));
      total = std::min(CELLC_MOST_BYTES, total + cellc_times(all_entries(field, shape), size));
    };
    for (const CallField& field : layout_.fields) add(field);
    for (const Symbol& copy : cell_.symbols)
      for (const FieldKind kind : {FieldKind::State, FieldKind::Start, FieldKind::Final})
        if (copy.lag_of >= 0) add(*layout_.find(kind, copy.lag_of));
    if (total > physical_memory())
      throw DeviceError(
          fmt::format("the arrays of this run take {} of memory; the machine has {:.1f} GB",
                      total == CELLC_MOST_BYTES ? "more than can be counted" : fmt::format("{:.1f} GB", total / 1e9),
                      physical_memory() / 1e9));
  }

  static Array converted(const GivenArray& given, Dtype dtype) {
    Array array = given.array;
    if (array.dtype() == Dtype::U16) array.reinterpret(Dtype::BF16);
    return convert(array, dtype);
  }

  void fill(const CallField& field) {
    const auto s = static_cast<std::size_t>(field.id);
    const Symbol& symbol = cell_.symbols[s];
    const GivenArray* given = given_.find(field.kind, field.id);
    Dtype dtype = dtype_of(field.kind, binding_.dtype);
    // Params of files have been rounded to the storage type.
    if (field.kind == FieldKind::Param && !(request_.params_unrounded && given)) dtype = binding_.dtype;
    std::vector<std::int64_t> lengths;
    for (const AxisId a : cell_.header) lengths.push_back(binding_.run.sizes.at(a));
    const auto shape = run_shape(field.kind, cell_, binding_.run, symbol.axes, history_depth(field.reaches, lengths));
    Array& array = field.is_history() ? binding_.run.histories[s] : binding_.run.symbols[s];
    const auto number =
        field.kind == FieldKind::Param ? request_.param_numbers.find(symbol.name) : request_.param_numbers.end();
    if (given) {
      array = converted(*given, dtype).with_shape(shape);
    } else if (number != request_.param_numbers.end()) {
      array = Array(dtype, shape);
      for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, number->second);
      // Nobody who writes a number means the infinity that it would become.
      if (array.count() > 0 && std::isfinite(number->second) && !std::isfinite(array.get(0)))
        throw UsageError(fmt::format("--param {}: the number {:g} is out of the range of {}", symbol.name,
                                     number->second, to_string(dtype)));
    } else if (field.absent == FieldAbsent::Declared) {
      array = declared_value(cell_, field.id, binding_.run.sizes, binding_.run.symbols, dtype, shape);
    } else {
      array = Array(dtype, shape);
      if (field.required()) fill_random(array, symbol);
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

  const CellGraph& cell_;
  const BindRequest& request_;
  const CallLayout& layout_;
  const GivenArrays given_;
  Binding binding_;
};

}  // namespace

Binding bind(const CellGraph& cell, const BindRequest& request) { return bind(cell, call_layout(cell), request); }

Binding bind(const CellGraph& cell, const CallLayout& layout, const BindRequest& request) {
  return Binder(cell, layout, request).bind();
}

namespace {

template <auto kMade, typename From, typename To>
void convert_each(const Array& from, Array& to) {
  std::transform(static_cast<const From*>(from.data()), static_cast<const From*>(from.data()) + from.count(),
                 static_cast<To*>(to.data()), kMade);
}

/// Between 16 bits and f32, which runs of narrow storage have all their arrays go through.
bool converts_at_once(const Array& from, Array& to) {
  const Dtype a = from.dtype(), b = to.dtype();
  if (a == Dtype::BF16 && b == Dtype::F32) return convert_each<from_brain, std::uint16_t, float>(from, to), true;
  if (a == Dtype::F32 && b == Dtype::BF16) return convert_each<to_brain, float, std::uint16_t>(from, to), true;
  if (a == Dtype::F16 && b == Dtype::F32) return convert_each<from_half, std::uint16_t, float>(from, to), true;
  if (a == Dtype::F32 && b == Dtype::F16) return convert_each<to_half, float, std::uint16_t>(from, to), true;
  return false;
}

}  // namespace

Array convert(const Array& array, Dtype dtype) {
  if (array.dtype() == dtype) return array;
  Array result(dtype, array.shape());
  if (converts_at_once(array, result)) return result;
  const std::int64_t count = array.count();
  for (std::int64_t i = 0; i < count; ++i) result.set(i, array.get(i));
  return result;
}

std::vector<std::int64_t> lengths(const CellGraph& cell, const BoundRun& run, const std::vector<AxisId>& axes) {
  return AxisLengths(cell.graph, run.sizes).shape({}, axes);
}

}  // namespace cellc
