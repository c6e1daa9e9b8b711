#include "compiler/codegen_llvm/emit_llvm_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/codegen_llvm/call_tables.h"
#include "compiler/codegen_llvm/print_header.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"

namespace cellc {
namespace {

/// A plan, its code, and the areas of its buffers.
struct PlannedKernels {
  Plan plan;
  std::vector<KernelCode> kernels;
  DerivedCell of;  ///< of defaults or starts, in f64 whatever the cell's arithmetic; else of no role
  std::vector<int> once, temps, params, outs;
};

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
  int area(const std::vector<AxisId>& axes, int bytes, bool of_block = false, cellc_dims reaches = {0, 0},
           int back = 0) {
    tables.areas.push_back({shape(axes), bytes, of_block, back, reaches});
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
      tables.earlier.push_back({input_rows.at(symbol), callers_rows(e.field), e.back, e.along, e.is_state, e.in_line,
                                e.start, e.history, listed(e.reaches)});
    for (const auto& [out, l] : options.backward->later)
      tables.later.push_back({out_rows[static_cast<std::size_t>(out)], callers_rows(l.field), l.back, l.along,
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
      tables.gradients.push_back({field, sum, shape(symbol.axes)});
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
    cellc_product row{};
    row.gradient = static_cast<int>(tables.gradients.size()) - 1;
    row.left = rows(product.left);
    row.right = product.right ? rows(*product.right) : -1;
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

class DriverEmitter {
 public:
  DriverEmitter(const CellGraph& cell, const Structure& structure, const DriverOptions& options)
      : options_(options), arrays_(options) {
    arrays_.cell = cell;
    check_fixed();
    fix(arrays_.cell.graph);
    arrays_.layout = options.backward ? options.backward->layout : call_layout(arrays_.cell);
    result_.ir = fmt::format("; cell {}, to be run without us\n\n", cell.name);
    const std::vector<int> defaults = symbols_with_defaults(cell, SymbolKind::Param),
                           starts = symbols_with_defaults(cell, SymbolKind::State);
    PlannedKernels step, fill, begin;
    plan(step, cell, structure, options.storage, ".step");
    // Starts and defaults are computed in f64 and rounded once, as they are for runs of our own.
    for (auto& [to, role, symbols, name] : {std::tuple{&fill, Role::Defaults, &defaults, ".default"},
                                            std::tuple{&begin, Role::Starts, &starts, ".start"}}) {
      to->of = defaults_of(cell, *symbols, role);
      if (to->of.role != Role::None) plan(*to, to->of.cell, Structure{}, Storage::F64, name);
    }
    result_.ir += llvm_math::definitions(math_);
    for (PlannedKernels* kernels : {&step, &fill, &begin}) add_buffers(*kernels);
    arrays_.add_params(defaults);
    arrays_.add_rows();
    arrays_.add_histories();
    if (options.backward) {
      arrays_.add_backward_rows();
      arrays_.add_gradients(*options.whole, options.adjoint->params);
    }
    add_kernels(step, fill, begin, defaults, starts);
    arrays_.say_all();
    place_values();
  }

  DriverModule run() {
    const std::string run = options_.backward ? "" : "_forward";
    result_.ir += print_call_tables(std::move(t_), options_.prefix, run, options_.about);
    for (const std::string& name : {std::string("_workspace"), run, std::string("_message"), std::string("_about")})
      result_.functions.push_back(options_.prefix + name);
    result_.cell = std::move(arrays_.cell);
    result_.layout = std::move(arrays_.layout);
    return std::move(result_);
  }

 private:
  const CellGraph& cell() const { return arrays_.cell; }
  void fix(Graph& graph) const {
    for (const auto& [axis, length] : options_.lengths) graph.fix_length(axis, length);
  }

  void check_fixed() const {
    for (const auto& [axis, least] : least_lengths(cell()))
      if (const auto found = options_.lengths.find(axis); found != options_.lengths.end() && found->second < least)
        throw std::invalid_argument(fmt::format("axis {} has length {}; the cell needs {} or more",
                                                cell().graph.axis(axis).name, found->second, least));
  }

  void plan(PlannedKernels& to, const CellGraph& cell, const Structure& structure, Storage storage, const char* name) {
    // Lengths are fixed after planning: the loops, and with them the bits, are those of a run that learns its
    // lengths from arrays.
    const bool narrow = storage == Storage::F16 || storage == Storage::BF16;
    to.plan = make_plan(cell, structure, {.narrow_storage = narrow, .hoist_products = false});
    if (!to.plan.chunks.empty() || !to.plan.products.empty()) throw std::logic_error("driver: a plan passes rows on");
    fix(to.plan.cell.graph);
    EmitOptions emit;
    emit.storage = storage;
    emit.vector_bits = options_.vector_bits;
    emit.functions = options_.prefix + name;
    EmittedModule module = emit_llvm_kernels(to.plan, emit, math_);
    result_.ir += module.ir;
    to.kernels = std::move(module.kernels);
  }

  void add_buffers(PlannedKernels& kernels) {
    const bool f64 = kernels.of.role != Role::None;
    const auto add = [&](std::vector<int>& to, const std::vector<AxisId>& dims) {
      // Derived cells have axes of theirs, of the same lengths.
      std::vector<AxisId> axes;
      for (const AxisId a : dims) axes.push_back(kernels.plan.cell.graph.axis(a).extent_of);
      to.push_back(arrays_.area(axes, f64 ? 8 : arrays_.real_bytes));
    };
    for (const Buffer& b : kernels.plan.once) add(kernels.once, b.dims);
    for (const Buffer& b : kernels.plan.temps) add(kernels.temps, b.dims);
    if (!f64) return;
    for (const Symbol& s : kernels.plan.cell.symbols) add(kernels.params, s.axes);
    for (const Out& o : kernels.plan.cell.outs) add(kernels.outs, o.index);
  }

  // Kernels -----------------------------------------------------------------------------------------

  void add_kernels(const PlannedKernels& step, const PlannedKernels& fill, const PlannedKernels& begin,
                   const std::vector<int>& defaults, const std::vector<int>& starts) {
    for (const Phase& phase : step.plan.phases) add_kernel(step, phase.index);
    t_.numbers.step_kernels = static_cast<int>(t_.kernels.size());
    t_.numbers.once_kernel = add_kernel(step, step.plan.once_kernel) ? t_.numbers.step_kernels : -1;
    std::vector<int> filled, begun;
    for (const int s : defaults) filled.push_back(t_.params[static_cast<std::size_t>(arrays_.param_of.at(s))].area);
    for (const int s : starts)
      for (std::size_t u = 0; u < t_.states.size(); ++u)
        if (cell().updates[u].symbol == s) begun.push_back(t_.states[u].area);
    t_.numbers.defaults = filled_by(fill, filled);
    t_.numbers.starts = filled_by(begin, begun);
  }

  bool add_kernel(const PlannedKernels& kernels, int kernel) {
    if (kernel < 0 || kernels.kernels[static_cast<std::size_t>(kernel)].function.empty()) return false;
    const KernelCode& code = kernels.kernels[static_cast<std::size_t>(kernel)];
    const AxisId split = kernels.plan.split_axis;
    t_.kernels.push_back({static_cast<int>(slots_.size()), static_cast<int>(code.slots.size()),
                          split == kNoAxis ? -1 : header_position(arrays_.cell, split)});
    t_.codes.push_back("@" + code.function);
    for (const Slot& slot : code.slots) slots_.push_back(place(kernels, slot));
    return true;
  }

  /// Which of a call's values a slot asks for: section, and place in it.
  std::pair<int, int> place(const PlannedKernels& kernels, const Slot& slot) const {
    const auto id = static_cast<std::size_t>(slot.id);
    const bool f64 = kernels.of.role != Role::None;
    switch (slot.kind) {
      case SlotKind::Length:
        return {CELLC_LENGTHS, header_position(arrays_.cell, static_cast<AxisId>(slot.id))};
      case SlotKind::Once:
        return {CELLC_AREAS, kernels.once[id]};
      case SlotKind::Temp:
        return {CELLC_AREAS, kernels.temps[id]};
      case SlotKind::Param:
        if (f64) return {CELLC_AREAS, kernels.params[id]};
        return {CELLC_PARAMS, arrays_.param_of.at(slot.id)};
      case SlotKind::Time:
        return {f64 ? CELLC_ZERO : CELLC_TIME, 0};
      case SlotKind::OutRow:
        if (f64) return {CELLC_AREAS, kernels.outs[id]};
        return {CELLC_ROWS, arrays_.out_rows[id]};
      case SlotKind::OutStep:
        if (f64) return {CELLC_ZERO, 0};
        return {CELLC_STRIDES, arrays_.out_rows[id]};
      case SlotKind::InputRow:
        return {CELLC_ROWS, arrays_.input_rows.at(slot.id)};
      case SlotKind::InputStep:
        return {CELLC_STRIDES, arrays_.input_rows.at(slot.id)};
      case SlotKind::History:
        // An axis of one lag, which is none, reads no history.
        if (!arrays_.history_of.contains(slot.id)) return {CELLC_ROWS, arrays_.input_rows.at(slot.id)};
        return {CELLC_HISTORIES, arrays_.history_of.at(slot.id)};
      case SlotKind::StateRow:
        return {CELLC_ROWS, t_.states[id].rows};
      case SlotKind::StateStep:
        return {CELLC_STRIDES, t_.states[id].rows};
      case SlotKind::StateNew:  // a block begins at an even step
        return {CELLC_AREAS, t_.states[id].carried};
      case SlotKind::StateSpare:
        return {CELLC_AREAS, t_.states[id].spare};
      case SlotKind::StateOld:
        return {CELLC_OLDS, slot.id};
      case SlotKind::ChunkRow:
      case SlotKind::ChunkStep:
        break;
    }
    throw std::logic_error("driver: no such slot");
  }

  cellc_fill filled_by(const PlannedKernels& kernels, const std::vector<int>& areas) {
    const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
    cellc_fill fill{size(t_.wide), size(kernels.params), size(t_.round), size(areas), size(t_.kernels), 0};
    for (std::size_t p = 0; p < kernels.params.size(); ++p)
      t_.wide.push_back({arrays_.param_of.at(kernels.of.sources[p].id), kernels.params[p],
                         t_.areas[static_cast<std::size_t>(kernels.params[p])].shape});
    for (std::size_t o = 0; o < areas.size(); ++o)
      t_.round.push_back({kernels.outs[o], areas[o], t_.areas[static_cast<std::size_t>(areas[o])].shape});
    add_kernel(kernels, kernels.plan.once_kernel);
    for (const Phase& phase : kernels.plan.phases) add_kernel(kernels, phase.index);
    fill.kernels = size(t_.kernels) - fill.first_kernel;
    return fill;
  }

  /// Where a call keeps each section of its values; slots become places among all of them.
  void place_values() {
    std::vector<int> sizes(CELLC_SECTIONS, 1);  // time, zero
    const auto set = [&](std::initializer_list<int> sections, std::size_t size) {
      for (const int section : sections) sizes[static_cast<std::size_t>(section)] = static_cast<int>(size);
    };
    set({CELLC_LENGTHS}, t_.fixed.size());
    set({CELLC_AREAS}, t_.areas.size());
    set({CELLC_PARAMS}, t_.params.size());
    set({CELLC_ROWS, CELLC_STRIDES, CELLC_GIVEN, CELLC_APART, CELLC_FIRST, CELLC_KEPT}, t_.rows.size());
    set({CELLC_HISTORIES}, t_.histories.size());
    set({CELLC_OLDS, CELLC_STARTS}, t_.states.size());
    set({CELLC_ENTRIES}, t_.shapes.size());
    t_.places = {0};
    for (const int size : sizes) t_.places.push_back(t_.places.back() + size);
    for (const auto& [section, at] : slots_) t_.slots.push_back(t_.places[static_cast<std::size_t>(section)] + at);
    t_.numbers.most_slots = 1;
    for (const cellc_kernel& k : t_.kernels) t_.numbers.most_slots = std::max(t_.numbers.most_slots, k.slots);
    t_.numbers.storage = static_cast<int>(options_.storage);
    t_.numbers.rows_storage = static_cast<int>(options_.rows.value_or(options_.storage));
    t_.numbers.is_backward = options_.backward != nullptr;
    t_.fixed_steps = options_.steps.value_or(-1);
    t_.first_word = arrays_.layout.sequences();
    t_.layout = layout_number({arrays_.cell, arrays_.layout, options_.rows.value_or(options_.storage), options_.steps,
                               options_.prefix, false, options_.backward ? "_" : ""});
  }

  // Words ---------------------------------------------------------------------

  const DriverOptions& options_;
  DriverModule result_;
  ArrayTables arrays_;
  CallTables& t_ = arrays_.tables;
  std::set<llvm_math::Request> math_;
  std::vector<std::pair<int, int>> slots_;  ///< section, and place in it
};

}  // namespace

DriverModule emit_driver(const CellGraph& cell, const Structure& structure, const DriverOptions& options) {
  return DriverEmitter(cell, structure, options).run();
}

DriverModule emit_backward_driver(const CellGraph& whole, const DriverOptions& options) {
  const bool narrow = options.storage == Storage::F16 || options.storage == Storage::BF16;
  AdjointCell adjoint = adjoint_of(whole);
  CellGraph fixed = whole;
  for (const auto& [axis, length] : options.lengths) fixed.graph.fix_length(axis, length);
  const BackwardLayout call = backward_layout(fixed, adjoint, narrow);
  const Jacobian jacobian = differentiate(adjoint.adjoint.cell);
  CellGraph& cell = adjoint.adjoint.cell;
  DriverOptions of_adjoint = options;
  of_adjoint.prefix += "_backward";
  of_adjoint.rows = options.storage;
  if (narrow) of_adjoint.storage = Storage::F32;
  of_adjoint.whole = &whole;
  of_adjoint.adjoint = &adjoint;
  of_adjoint.backward = &call;
  return DriverEmitter(cell, analyse(cell, jacobian), of_adjoint).run();
}

}  // namespace cellc
