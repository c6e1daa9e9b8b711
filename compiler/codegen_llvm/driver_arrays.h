#pragma once
// A driver's tables of arrays: axes, params, rows, histories, gradients, and parts of the workspace. Private to
// emit_llvm_driver.cc.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen_llvm/call_tables.h"
#include "compiler/codegen_llvm/emit_llvm_driver.h"
#include "compiler/derive/default_cells.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"

namespace cellc {

/// A cell's axes and arrays, and the parts of the workspace.
struct ArrayTables {
  explicit ArrayTables(const DriverOptions& options)
      : options(options),
        narrow(options.storage == Storage::F16 || options.storage == Storage::BF16),
        storage_bytes(narrow                            ? 2
                      : options.storage == Storage::F64 ? 8
                                                        : 4),
        real_bytes(options.storage == Storage::F64 ? 8 : 4) {}

  const std::vector<AxisId>& axes_of(int symbol) const { return cell.symbols[symbol].axes; }
  int field(FieldKind kind, int id) const {
    if (options.backward) {
      const auto found = options.backward->of_adjoint.find({kind, id});
      return found == options.backward->of_adjoint.end() ? -1 : found->second;
    }
    const CallField* found = layout.find(kind, id);
    return found ? static_cast<int>(found - layout.fields.data()) : -1;
  }

  int shape(const std::vector<AxisId>& axes) {
    std::vector<int> key;
    for (const AxisId a : axes) key.push_back(header_position(cell, a));
    std::sort(key.begin(), key.end());
    const auto [found, fresh] = shape_of.try_emplace(key, static_cast<int>(tables.shapes.size()));
    if (fresh) tables.shapes.push_back(listed(key));
    return found->second;
  }
  cellc_dims listed(const std::vector<int>& numbers) {
    tables.axes.insert(tables.axes.end(), numbers.begin(), numbers.end());
    return {static_cast<int>(tables.axes.size() - numbers.size()), static_cast<int>(numbers.size())};
  }
  cellc_dims reaches_of(int symbol) { return listed(reaches(cell, symbol)); }
  cellc_dims listed(const std::vector<Reach>& reaches) {
    std::vector<int> pairs;
    for (const Reach& reach : reaches) {
      pairs.push_back(static_cast<int>(reach.lag));
      pairs.push_back(reach.axis);
    }
    return listed(pairs);
  }
  int area(const std::vector<AxisId>& axes, int bytes, bool of_block = false, cellc_dims reaches = {0, 0}, int back = 0,
           int beside = CELLC_OF_EVERY_CALL) {
    tables.areas.push_back({shape(axes), bytes, of_block, back, reaches, beside});
    return static_cast<int>(tables.areas.size()) - 1;
  }

  void add_params(const std::vector<int>& defaults) {
    for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
      if (cell.symbols[s].kind != SymbolKind::Param) continue;
      const bool filled = std::find(defaults.begin(), defaults.end(), s) != defaults.end();
      param_of[s] = static_cast<int>(tables.params.size());
      tables.params.push_back({field(FieldKind::Param, s), filled ? area(axes_of(s), real_bytes) : -1});
    }
  }

  /// States, inputs and outs.
  void add_rows() {
    const auto rows = [&](int field, const std::vector<AxisId>& axes, bool reads, int back = 0) {
      const bool callers = reads && field >= 0;
      tables.rows.push_back({field, callers ? -1 : area(axes, storage_bytes, true, {0, 0}, back), shape(axes), reads,
                             storage_bytes, -1, -1});
      return static_cast<int>(tables.rows.size()) - 1;
    };
    const std::vector<DelayLine> lines = delay_lines(cell);
    std::map<int, int> start_area;
    for (const StateUpdate& update : cell.updates) {
      const int symbol = update.symbol;
      const Symbol& s = cell.symbols[symbol];
      if (s.lag_of < 0) start_area[symbol] = area(s.axes, real_bytes);
    }
    for (const StateUpdate& update : cell.updates) {
      const int symbol = update.symbol;
      const Symbol& s = cell.symbols[symbol];
      const bool lagged = s.lag_of >= 0;
      const int of = lagged ? s.lag_of : symbol;
      cellc_state state{};
      state.shape = shape(s.axes);
      const auto line = std::find_if(lines.begin(), lines.end(), [&](const DelayLine& l) { return l.state == symbol; });
      state.rows =
          rows(lagged ? -1 : field(FieldKind::State, symbol), s.axes, false, line == lines.end() ? 0 : line->deepest);
      if (line != lines.end()) line_rows[line->symbol] = state.rows;
      state.carried = area(s.axes, real_bytes);
      state.spare = narrow ? area(s.axes, real_bytes) : -1;
      state.start = field(FieldKind::Start, of);
      state.area = start_area.at(of);
      state.is_computed = s.initial != kNoNode;
      state.history = lagged ? field(FieldKind::StateHistory, of) : -1;
      state.final = field(lagged ? FieldKind::FinalStateHistory : FieldKind::Final, of);
      state.lag = s.lag;
      if (lagged) state.reaches = reaches_of(of);
      if (options.backward) set_past(state, static_cast<int>(tables.states.size()));
      tables.states.push_back(state);
    }
    for (int o = 0; o < static_cast<int>(cell.outs.size()); ++o)
      out_rows.push_back(rows(field(FieldKind::Out, o), cell.outs[o].index, false));
    for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s)
      if (is_given_input(cell.symbols[s])) input_rows[s] = rows(field(FieldKind::Input, s), axes_of(s), true);
  }

  /// What the rows of a backward call are beside: zeros in place of cotangents, and the states before each step.
  void add_backward_rows() {
    const auto zeros = [&](const std::vector<AxisId>& axes, int bytes) {
      tables.zeros.push_back(area(axes, bytes));
      return tables.zeros.back();
    };
    for (const auto& [symbol, at] : input_rows) {
      cellc_rows& rows = tables.rows[static_cast<std::size_t>(at)];
      if (rows.field < 0) continue;
      if (!layout.fields[static_cast<std::size_t>(rows.field)].required())
        rows.area = zeros(axes_of(symbol), storage_bytes);
      const auto start = options.backward->starts.find(symbol);
      if (start == options.backward->starts.end()) continue;
      rows.start = start->second;
      rows.start_area = zeros(axes_of(symbol), real_bytes);
    }
    for (const auto& [symbol, field] : options.backward->untouched) tables.cleared.push_back(callers_rows(field));
    for (const auto& [symbol, e] : options.backward->earlier)
      tables.earlier.push_back({input_rows.at(symbol), callers_rows(e.field), -1, e.back, e.along, e.is_state,
                                e.in_line, e.start, e.history, listed(e.reaches)});
    for (const auto& [out, l] : options.backward->later)
      tables.later.push_back({out_rows[static_cast<std::size_t>(out)], callers_rows(l.field), -1, l.back, l.along,
                              l.history, listed(l.reaches)});
    std::set<int> sums;  // histories of states that delay lines add to
    for (const auto& [update, p] : options.backward->past) {
      if (p.is_line) sums.insert(p.history);
      tables.onward.push_back(
          {update, p.lag, p.is_line, p.start, p.is_line ? p.history : -1, p.value, listed(p.reaches)});
    }
    for (const CallField& f : layout.fields) {
      if (!f.is_history() || !f.is_written()) continue;
      const int number = static_cast<int>(&f - layout.fields.data());
      tables.past.push_back({number, shape(axes_of_field(f)), f.kind == FieldKind::InputHistory || sums.count(number),
                             listed(f.reaches)});
    }
  }

  /// A state that is a copy which lags lies in histories: its start is a part of one, its last value of another.
  void set_past(cellc_state& state, int update) {
    const auto found = options.backward->past.find(update);
    if (found == options.backward->past.end() || found->second.is_line) return;
    const PastState& past = found->second;
    state.history = past.cotangent;
    state.final = past.history;
    state.lag = past.lag;
    state.reaches = listed(past.reaches);
  }

  std::vector<AxisId> axes_of_field(const CallField& f) const {
    std::vector<AxisId> axes;
    for (const int a : f.axes) axes.push_back(cell.header[static_cast<std::size_t>(a)]);
    return axes;
  }

  /// Rows of the caller's that no kernel sees.
  int callers_rows(int field) {
    const auto [found, fresh] = rows_of_field.try_emplace(field, static_cast<int>(tables.rows.size()));
    if (!fresh) return found->second;
    const CallField& f = layout.fields[static_cast<std::size_t>(field)];
    const Storage storage = options.rows.value_or(options.storage);
    const bool halves = f.is_storage() && (storage == Storage::F16 || storage == Storage::BF16);
    tables.rows.push_back({field, -1, shape(axes_of_field(f)), 1, halves ? 2 : real_bytes, -1, -1});
    return found->second;
  }

  /// Params' gradients, and the products that they are sums of: of no product, where nothing depends on the param.
  void add_gradients(const CellGraph& whole, const std::vector<ParamGradient>& params) {
    for (const auto& [param, field] : options.backward->gradients) {
      const Symbol& symbol = whole.symbols[static_cast<std::size_t>(param)];
      const int sum = area(symbol.axes, 8);
      tables.zeros.push_back(sum);
      tables.gradients.push_back({field, sum, shape(symbol.axes), -1});
      for (const ParamGradient& gradient : params)
        if (gradient.symbol == param)
          for (const StepProduct& product : gradient.products) add_product(symbol.index, product);
    }
  }

  void add_product(const std::vector<AxisId>& param, const StepProduct& product) {
    // The loops of the param first and in its order, so that the innermost walks along it where nothing else is summed.
    std::vector<AxisId> loops = param;
    const std::vector<AxisId> none, &left = product.left.index, &right = product.right ? product.right->index : none;
    for (const auto& index : {left, right})
      for (const AxisId a : index)
        if (!contains(loops, a)) loops.push_back(a);
    if (loops.size() > 16) throw std::logic_error("driver: a gradient of more than 16 axes");
    const auto places = [&](const std::vector<AxisId>& index) {
      std::vector<int> places;
      for (const AxisId a : index)
        places.push_back(static_cast<int>(std::find(loops.begin(), loops.end(), a) - loops.begin()));
      return listed(places);
    };
    std::vector<int> lengths;
    for (const AxisId a : loops) lengths.push_back(header_position(cell, a));
    const auto rows = [&](const StepFactor& f) {
      return f.is_out ? out_rows[static_cast<std::size_t>(f.id)] : input_rows.at(f.id);
    };
    cellc_step_product row{};
    row.gradient = static_cast<int>(tables.gradients.size()) - 1;
    row.left = rows(product.left);
    row.right = product.right ? rows(*product.right) : -1;
    row.lane_left = row.lane_right = -1;
    row.loops = listed(lengths);
    row.of_gradient = places(param);
    row.of_left = places(left);
    row.of_right = places(right);
    tables.products.push_back(row);
  }

  void add_histories() {
    for (const CallField& f : layout.fields) {
      if (f.kind != FieldKind::InputHistory || options.backward) continue;  // an adjoint has rows in their place
      history_of[f.id] = static_cast<int>(tables.histories.size());
      tables.histories.push_back({field(f.kind, f.id), field(FieldKind::FinalInputHistory, f.id),
                                  area(axes_of(f.id), storage_bytes, false, reaches_of(f.id)), input_rows.at(f.id),
                                  shape(axes_of(f.id)), -1, 0});
    }
    for (const DelayLine& line : delay_lines(cell)) {
      int state = 0, copies = 0;
      for (std::size_t u = 0; u < cell.updates.size(); ++u) {
        if (cell.updates[u].symbol == line.state) state = static_cast<int>(u);
        copies += cell.symbol_of(cell.updates[u]).lag_of == line.state;
      }
      history_of[line.symbol] = static_cast<int>(tables.histories.size());
      tables.histories.push_back({field(FieldKind::StateHistory, line.state),
                                  field(FieldKind::FinalStateHistory, line.state),
                                  area(axes_of(line.symbol), storage_bytes, false, reaches_of(line.symbol)),
                                  line_rows.at(line.symbol), shape(axes_of(line.symbol)), state, copies});
      input_rows[line.symbol] = line_rows.at(line.symbol);  // an input to the kernels
    }
  }

  void say_all() {
    const auto say = [&](int result, const std::string& text) { tables.words.emplace_back(result, text); };
    for (const int result :
         {CELLC_DONE, CELLC_NO_LENGTHS, CELLC_NO_BYTES, CELLC_NO_ARRAYS, CELLC_NEGATIVE_SEQUENCES, CELLC_NEGATIVE_STEPS,
          CELLC_BAD_OFFSETS, CELLC_DECREASING_OFFSETS, CELLC_TOO_LARGE, CELLC_NO_WORKSPACE, CELLC_OTHER_LAYOUT})
      say(result, cellc_message(result));
    if (options.processors.size() > 1) say(CELLC_NO_PROCESSOR, cellc_message(CELLC_NO_PROCESSOR));
    if (options.steps) {
      say(CELLC_NO_PACKING, fmt::format("offsets are given, but this function was built for {} steps", *options.steps));
      say(CELLC_OTHER_STEPS,
          fmt::format("the number of steps is not {}, for which this function was built", *options.steps));
    }
    say(CELLC_SMALL_WORKSPACE, fmt::format("the workspace is smaller than {}_workspace says", options.prefix));
    std::map<AxisId, std::int64_t> least = least_lengths(cell);
    for (const AxisId a : cell.header) {
      const Axis& axis = cell.graph.axis(a);
      tables.least.push_back(least[a]);
      tables.fixed.push_back(axis.fixed.value_or(-1));
      const auto& open = layout.lengths;
      tables.axis_words.push_back(axis.fixed ? -1
                                             : static_cast<int>(std::find(open.begin(), open.end(), a) - open.begin()));
      if (!axis.fixed)
        say(CELLC_SHORT_AXES + header_position(cell, a),
            fmt::format("the length of axis {} is less than {}", axis.name, least[a]));
    }
    for (const CallField& f : layout.fields) {
      if (f.required())
        say(CELLC_MISSING_FIELD + static_cast<int>(tables.fields.size()), f.member + " is a null pointer");
      tables.fields.push_back({static_cast<int>(f.kind), f.id, f.word, f.required()});
    }
    say(CELLC_RESULT_COUNT, cellc_message(CELLC_RESULT_COUNT));
  }

  const DriverOptions& options;
  const bool narrow;
  const int storage_bytes, real_bytes;
  CellGraph cell;  ///< with the lengths that are fixed
  CallLayout layout;
  CallTables tables;
  std::map<std::vector<int>, int> shape_of;
  std::map<int, int> param_of, input_rows, history_of, line_rows;  ///< by symbol
  std::map<int, int> rows_of_field;                                ///< of the caller's rows that no kernel sees
  std::vector<int> out_rows;
};

}  // namespace cellc
