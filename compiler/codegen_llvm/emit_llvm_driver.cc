#include "compiler/codegen_llvm/emit_llvm_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/codegen_llvm/driver_arrays.h"
#include "compiler/codegen_llvm/lane_tables.h"
#include "compiler/codegen_llvm/print_header.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"

namespace cellc {
namespace {

/// Of an adjoint: by out, whether it is nothing but a factor of params' gradients.
std::vector<bool> factors(const AdjointCell& adjoint) {
  const CellGraph& cell = adjoint.adjoint.cell;
  std::vector<bool> result;
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    result.push_back(adjoint.adjoint.sinks[cell.updates.size() + o].kind == ArraySink::Kind::Factor);
  return result;
}

/// A plan, its code, and the areas of its buffers.
struct PlannedKernels {
  Plan plan;
  std::vector<KernelCode> kernels;
  DerivedCell of;  ///< of defaults or starts, in f64 whatever the cell's arithmetic; else of no role
  std::vector<int> once, temps, params, outs;
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
    PlannedKernels lanes;
    if (options.side_by_side && is_narrow_at_least())
      if (std::optional<SequencesCell> sequences =
              sequences_of(cell, options.backward ? factors(*options.adjoint) : std::vector<bool>()))
        lanes_.emplace(arrays_, std::move(*sequences));
    if (lanes_) plan(lanes, lanes_->of.sequences.cell, Structure{}, options.storage, ".lanes");
    result_.ir += llvm_math::definitions(math_);
    for (PlannedKernels* kernels : {&step, &fill, &begin, &lanes}) add_buffers(*kernels);
    arrays_.add_params(defaults);
    arrays_.add_rows();
    arrays_.add_histories();
    if (options.backward) {
      arrays_.add_backward_rows();
      arrays_.add_gradients(*options.whole, options.adjoint->params);
    }
    add_kernels(step, fill, begin, defaults, starts);
    if (lanes_) add_lanes(lanes);
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
    const AxisId lane = lanes_ ? lanes_->of.lane : kNoAxis;
    to.plan = make_plan(cell, structure, {.narrow_storage = narrow, .split_axis = lane, .hoist_products = false});
    if (!to.plan.chunks.empty() || !to.plan.products.empty()) throw std::logic_error("driver: a plan passes rows on");
    fix(to.plan.cell.graph);
    EmitOptions emit;
    emit.storage = storage;
    emit.vector_bits = options_.vector_bits;
    emit.whole_vectors = lane != kNoAxis;
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
      int beside = (lanes_ && lanes_->owns(kernels.plan)) ? CELLC_BESIDE_ONCE : CELLC_OF_EVERY_CALL;
      for (const AxisId a : dims)
        if (const AxisId extent = kernels.plan.cell.graph.axis(a).extent_of; lanes_ && lanes_->is_lane(extent))
          beside = CELLC_BY_LANE;
        else
          axes.push_back(extent);
      to.push_back(arrays_.area(axes, f64 ? 8 : arrays_.real_bytes, false, {0, 0}, 0, beside));
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
                          split == kNoAxis                   ? -1
                          : lanes_ && lanes_->is_lane(split) ? -2
                                                             : header_position(arrays_.cell, split)});
    t_.codes.push_back("@" + code.function);
    for (const Slot& slot : code.slots) slots_.push_back(place(kernels, slot));
    return true;
  }

  /// Which of a call's values a slot asks for: section, and place in it.
  std::pair<int, int> place(const PlannedKernels& kernels, const Slot& slot) const {
    const auto id = static_cast<std::size_t>(slot.id);
    const bool f64 = kernels.of.role != Role::None;
    if (lanes_ && lanes_->owns(kernels.plan))
      if (const auto own = lanes_->place(slot)) return *own;
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
      case SlotKind::StateGiven:
      case SlotKind::ChunkRow:
      case SlotKind::ChunkStep:
        break;
    }
    throw std::logic_error("driver: no such slot");
  }

  /// Whether sequences may lie side by side at all: at the least lengths of axes that are open.
  bool is_narrow_at_least() const {
    std::vector<std::int64_t> lengths;
    for (const AxisId a : cell().header) lengths.push_back(cell().graph.axis(a).fixed.value_or(1));
    return may_lie_side_by_side(cell(), lengths, CELLC_MOST_BYTES, CELLC_MOST_BYTES);
  }

  /// Kernels for sequences side by side, behind all others.
  void add_lanes(const PlannedKernels& lanes) {
    lanes_->add_rows(lanes.kernels);
    t_.numbers.lane_vector = options_.vector_bits / (8 * arrays_.real_bytes);
    t_.numbers.in_registers = !arrays_.narrow && steps_in_registers(cell());
    t_.numbers.first_lane_kernel = static_cast<int>(t_.kernels.size());
    for (const Phase& phase : lanes.plan.phases) add_kernel(lanes, phase.index);
    const int behind = static_cast<int>(t_.kernels.size());
    t_.numbers.lane_kernels = behind - t_.numbers.first_lane_kernel;
    t_.numbers.lane_once = add_kernel(lanes, lanes.plan.once_kernel) ? behind : -1;
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
    std::vector<int> sizes(CELLC_SECTIONS, 1);  // time, zero, lanes
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
    set({CELLC_LANE_STEPS}, t_.lane_rows.size());
    t_.places = {0};
    for (const int size : sizes) t_.places.push_back(t_.places.back() + size);
    for (const auto& [section, at] : slots_) t_.slots.push_back(t_.places[static_cast<std::size_t>(section)] + at);
    t_.numbers.most_slots = 1;
    for (const cellc_cell_kernel& k : t_.kernels) t_.numbers.most_slots = std::max(t_.numbers.most_slots, k.slots);
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
  std::optional<LaneTables> lanes_;         ///< where sequences may lie side by side
};

}  // namespace

DriverModule emit_driver(const CellGraph& cell, const Structure& structure, const DriverOptions& options) {
  return DriverEmitter(cell, structure, options).run();
}

bool may_lie_side_by_side(const CellGraph& cell, const std::vector<std::int64_t>& lengths, std::int64_t sequences,
                          std::int64_t rows) {
  std::int64_t all = 0, largest = 0;
  for (const StateUpdate& update : cell.updates) {
    std::int64_t entries = 1;
    for (const AxisId a : cell.symbol_of(update).axes)
      entries = cellc_times(entries, lengths[static_cast<std::size_t>(header_position(cell, a))]);
    all = std::min(all + entries, CELLC_MOST_BYTES);
    largest = std::max(largest, entries);
  }
  return cellc_lie_side_by_side(all, largest, 0, 1, sequences, rows) != 0;
}

bool has_side_by_side(const CellGraph& cell, bool backward) {
  if (!backward) return sequences_of(cell).has_value();
  const AdjointCell adjoint = adjoint_of(cell);
  return sequences_of(adjoint.adjoint.cell, factors(adjoint)).has_value();
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
