#include "runtime/cuda/ship/aot_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/plan/plan.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/cuda/launch/strategy_numbers.h"
#include "runtime/cuda/ship/aot_variants.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

// Types are told by the numbers that the compiler has for them.
static_assert(CELLC_F32 == static_cast<int>(Storage::F32) && CELLC_F64 == static_cast<int>(Storage::F64) &&
              CELLC_F16 == static_cast<int>(Storage::F16) && CELLC_BF16 == static_cast<int>(Storage::BF16));
int type_of(Dtype dtype) { return static_cast<int>(storage_of(dtype)); }

/// A template as a part of a larger file.
std::string part(std::string_view name) {
  const std::string text(kernel_template(name));
  std::string result = fmt::format("// {} {}\n", name, std::string(std::max<std::size_t>(3, 100 - name.size()), '-'));
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (line != "#pragma once" && !line.starts_with("#line ")) result += line + "\n";
    from = end + 1;
  }
  return result + "\n";
}

/// Takes back what a text defines.
std::string undefine(const std::string& text) {
  std::set<std::string> names;
  std::string result;
  for (std::size_t at = 0; (at = text.find("#define ", at)) != std::string::npos; ++at) {
    const std::size_t from = at + 8, end = text.find_first_of(" (\n", from);
    if (names.insert(text.substr(from, end - from)).second) result += "#undef " + text.substr(from, end - from) + "\n";
  }
  return result;
}

}  // namespace

class AotBuilder {
 public:
  AotBuilder(AotCell& to, const Structure& structure, const ShipRequest& request)
      : to_(to), cell_(to.cell_), structure_(structure), request_(request), card_(request.card) {}

  void run() {
    const StagedCell staged = split_stages(cell_, structure_, request_.derive);
    running_ = lane_storage(cell_, staged, request_.dtype);
    sizes_ = known_sizes();
    std::vector<std::unique_ptr<StageProgram>> programs;
    const ExecutionPlan plan = planned(staged, programs);
    running_ = plan.storage;
    if (plan.runs_stepwise && request_.solver != Strategy::Auto && request_.solver != Strategy::Sequential)
      throw UsageError(fmt::format("--solver {}: the cell is run step by step on a GPU: {}", to_string(request_.solver),
                                   plan.stepwise_reason));
    for (std::size_t k = 0; k < staged.stages.size() && request_.solver == Strategy::Scan; ++k)
      if (const auto no = no_scan(structure_.stages[k], name_of_stage(cell_, staged.stages[k].states)))
        throw UsageError("--solver scan: " + *no);
    describe();
    for (std::size_t k = 0; k < staged.stages.size() && !plan.runs_stepwise; ++k) to_.stages.emplace_back();
    for (const Pass& pass : plan.passes(staged, {}, true)) add(pass, staged, programs, plan);
    note_what_rows_read(staged, plan.runs_stepwise);
    add_defaults();
    add_call_kernels();
    finish(plan.runs_stepwise);
  }

 private:
  /// What is decided whatever the shape of a call: storage, passes, and whether lanes can be compiled at all. Which
  /// strategy a stage takes follows from the shape, so a call decides it (host_plan.h). Its lanes make no sums.
  ExecutionPlan planned(const StagedCell& staged, std::vector<std::unique_ptr<StageProgram>>& programs) {
    ExecutionRequest asked{cell_, structure_, staged};
    asked.dtype = request_.dtype;
    asked.card = card_.facts();
    asked.rows = asked.longest = 1;
    for (std::size_t k = 0; k < staged.stages.size(); ++k) {
      const StageCells& stage = staged.stages[k];
      StageFacts& facts = asked.stages.emplace_back();
      const std::set<std::string> open = open_axes(stage);
      if (!open.empty() && stage.channels.empty()) {
        facts.refusal = "it has no channels of its own";
      } else if (!open.empty() && stepwise_reason(cell_, staged, asked.stages).empty()) {
        throw UsageError(fmt::format("the stage {} is compiled for lengths that must be known: add {}",
                                     name_of_stage(cell_, stage.states), fmt::join(options_for(open), " ")));
      }
      programs.push_back(std::make_unique<StageProgram>(card_, cell_, stage, structure_.stages[k].scannable, running_,
                                                        nullptr, request_.derive));
      if (open.empty()) facts = facts_of(*programs.back(), nullptr, sizes_, 1, 1, 1);
    }
    return plan_execution(asked);
  }

  void add(const Pass& pass, const StagedCell& staged, const std::vector<std::unique_ptr<StageProgram>>& programs,
           const ExecutionPlan& plan) {
    const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
    switch (pass.kind) {
      case PassKind::Once:
        to_.plan.push_back(
            fmt::format("values of params, for the stage {}", name_of_stage(cell_, staged.stages[k].states)));
        add_rows(to_.stages[k].once, staged.stages[k].once.cell, Structure{}, pass.storage, fmt::format("once{}", k),
                 &staged.stages[k].once);
        return;
      case PassKind::Before:
        to_.plan.push_back(fmt::format("what the stage {} reads of other channels and steps",
                                       name_of_stage(cell_, staged.stages[k].states)));
        add_rows(to_.stages[k].before, staged.stages[k].before.cell, Structure{}, pass.storage,
                 fmt::format("before{}", k), &staged.stages[k].before);
        return;
      case PassKind::Stage:
        add_stage(staged.stages[k], static_cast<int>(k), *programs[k]);
        return;
      case PassKind::After:
        to_.plan.push_back("outs, once all states are known");
        add_rows(to_.after, staged.after.cell, Structure{}, pass.storage, "after", &staged.after);
        return;
      case PassKind::Whole:
        to_.plan.push_back(fmt::format("all of the cell step by step, as row kernels: {}", plan.stepwise_reason));
        add_rows(to_.whole, cell_, structure_, pass.storage, "rows", nullptr);
        return;
    }
  }

  struct Group {
    std::string text;
    std::vector<std::string> uses;  ///< templates that stand at its head, beside the first two
    std::vector<int*> products;     ///< who asks for the number of its product
  };

  std::map<AxisId, std::int64_t> known_sizes() const {
    std::map<AxisId, std::int64_t> sizes;
    for (const AxisId a : cell_.header) {
      const auto said = request_.lengths.find(a);
      // Lengths that stay open are lengths along channels, which the code reads from its arguments.
      sizes[a] = said != request_.lengths.end() ? said->second : cell_.graph.axis(a).fixed.value_or(64);
    }
    return sizes;
  }
  bool is_open(AxisId axis) const {
    const AxisId header = cell_.graph.axis(axis).extent_of;
    return !cell_.graph.axis(header).fixed && !request_.lengths.contains(header);
  }

  /// Axes whose lengths decide on the code of a lane, and that nobody has fixed.
  std::set<std::string> open_axes(const StageCells& stage) const {
    std::set<AxisId> used;
    const Graph& graph = stage.lanes.cell.graph;
    const auto use = [&](AxisId a) { used.insert(graph.axis(a).extent_of); };
    for (const Symbol& s : stage.lanes.cell.symbols)
      for (const AxisId a : s.axes) use(a);
    std::vector<NodeId> roots;
    for (const StateUpdate& u : stage.lanes.cell.updates) roots.push_back(u.value);
    for (const NodeId id : reachable(graph, roots)) {
      const Node& n = graph[id];
      for (const AxisId a : n.axes) use(a);
      for (const AxisId a : n.bound) use(a);
      for (const Index& i : n.index)
        if (i.is_axis()) use(i.axis);
    }
    used.erase(stage.lane);
    std::set<std::string> names;
    for (const AxisId a : used) {
      const auto header = std::find_if(cell_.header.begin(), cell_.header.end(),
                                       [&](AxisId h) { return cell_.graph.axis(h).name == graph.axis(a).name; });
      if (header != cell_.header.end() && is_open(*header)) names.insert(graph.axis(a).name);
    }
    return names;
  }
  static std::vector<std::string> options_for(const std::set<std::string>& axes) {
    std::vector<std::string> options;
    for (const std::string& a : axes) options.push_back(fmt::format("--dim {}=N", a));
    return options;
  }
  // Names and numbers --------------------------------------------------------------------------------

  std::string space_of(Dtype storage) const { return request_.prefix + "_" + to_string(storage); }
  int kernel(const std::string& name, const std::string& place) {
    to_.kernels.push_back(name);
    to_.places.push_back(place);
    return static_cast<int>(to_.kernels.size()) - 1;
  }
  cellc_dims dims(const std::vector<AxisId>& axes) {
    const cellc_dims result{static_cast<int>(to_.axes.size()), static_cast<int>(axes.size())};
    for (const AxisId a : axes) to_.axes.push_back(number_of_axis(cell_, a));
    return result;
  }
  static cellc_source source_of(const ArraySource& s) {
    switch (s.kind) {
      case ArraySource::Kind::Symbol:
        return {CELLC_FROM_SYMBOL, s.id};
      case ArraySource::Kind::Trajectory:
        return {CELLC_FROM_TRAJECTORY, s.id};
      case ArraySource::Kind::Before:
        return {CELLC_FROM_BEFORE, s.id};
      case ArraySource::Kind::Once:
        return {CELLC_FROM_ONCE, s.id};
      default:
        break;
    }
    throw std::logic_error("shipped: no such array on a device");
  }

  /// The caller's side: axes, fields, symbols.
  void describe() {
    const auto least = least_lengths(cell_);
    for (const AxisId a : cell_.header) {
      const auto said = request_.lengths.find(a);
      const auto fixed = said != request_.lengths.end() ? std::optional(said->second) : cell_.graph.axis(a).fixed;
      if (fixed && *fixed < least.at(a))
        throw RequestError(fmt::format("axis {} has length {}; the cell needs {} or more", cell_.graph.axis(a).name,
                                       *fixed, least.at(a)));
      to_.fixed.push_back(fixed.value_or(-1));
      to_.least.push_back(least.at(a));
    }
    if (cell_.header.size() > CELLC_MOST_AXES)
      throw UsageError(
          fmt::format("a cell of more than {} axes cannot be built for GPUs", static_cast<int>(CELLC_MOST_AXES)));
    CellGraph fixed = cell_;
    for (const auto& [axis, length] : request_.lengths) fixed.graph.fix_length(axis, length);
    to_.layout_ = call_layout(fixed);
    const CallLayout& layout = to_.layout_;
    for (const AxisId a : cell_.header) {
      const auto at = std::find(layout.lengths.begin(), layout.lengths.end(), a);
      to_.axis_word.push_back(at == layout.lengths.end() ? -1 : static_cast<int>(at - layout.lengths.begin()));
    }
    for (const CallField& f : layout.fields) to_.fields.push_back({static_cast<int>(f.kind), f.id, f.word, f.required});
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[s];
      cellc_symbol t{};
      t.kind = symbol.kind == SymbolKind::Input   ? CELLC_SYMBOL_INPUT
               : symbol.kind == SymbolKind::Param ? CELLC_SYMBOL_PARAM
                                                  : CELLC_SYMBOL_STATE;
      t.axes = dims(symbol.axes);
      t.lag_of = symbol.lag_of;
      t.lag = symbol.lag;
      t.reaches.first = static_cast<int>(to_.axes.size());
      if (symbol.lag_of < 0 && symbol.max_lag != 0 && symbol.kind != SymbolKind::Param)
        for (const Reach& r : reaches(cell_, s)) {
          to_.axes.push_back(static_cast<int>(r.lag));
          to_.axes.push_back(r.axis == kNoAxis ? -1 : number_of_axis(cell_, r.axis));
        }
      t.reaches.count = static_cast<int>(to_.axes.size()) - t.reaches.first;
      if (symbol.initial != kNoNode && symbol.lag_of < 0) {
        const Node& initial = cell_.graph[symbol.initial];
        t.default_kind = initial.op == Op::Constant ? CELLC_DEFAULT_NUMBER : CELLC_DEFAULT_COMPUTED;
        if (initial.op == Op::Constant) t.number = std::bit_cast<std::uint64_t>(initial.number);
      }
      to_.symbols.push_back(t);
    }
    for (const StateUpdate& u : cell_.updates) to_.updates.push_back(u.symbol);
    for (const Out& o : cell_.outs) to_.outs.push_back(dims(o.index));
  }

  // Parts ----------------------------------------------------------------------------------------------

  void add_rows(AotNests& rows, const CellGraph& of, const Structure& structure, Dtype storage, const std::string& name,
                const DerivedCell* derived) {
    Group& group = groups_[storage];
    for (const char* use : {"nest_frame.cuh", "nests.cuh"})
      if (std::find(group.uses.begin(), group.uses.end(), use) == group.uses.end()) group.uses.push_back(use);
    const Plan plan = make_plan(of, structure, {.narrow_storage = size_of(storage) == 2});
    CudaNestsOptions emit;
    emit.storage = storage_of(storage);
    emit.functions = request_.prefix + "_" + name;
    const CudaNestsModule module = emit_cuda_nests(plan, emit);
    // The first two lines say where the file begins.
    std::string text = module.text;
    for (int lines = 0; lines < 2; ++lines) text = text.substr(text.find('\n') + 1);
    group.text +=
        fmt::format("// {} {}\n{}\n", name, std::string(std::max<std::size_t>(3, 100 - name.size()), '-'), text);
    rows.tables = nest_tables(plan, module.kernels, storage == Dtype::F64);
    rows.tables.rows.first_kernel = static_cast<int>(to_.kernels.size());
    for (const NestKernel& k : module.kernels) kernel(k.function, space_of(storage) + "::");
    if (!plan.products.empty()) group.products.push_back(&rows.tables.rows.product_kernel);
    if (derived) {
      for (const ArraySource& s : derived->sources) rows.sources.push_back(source_of(s));
      for (const Out& o : derived->cell.outs) rows.outs.push_back(dims(o.index));
    }
    rows.derived = {&rows.tables.rows, rows.sources.data(), static_cast<int>(rows.sources.size()),
                    static_cast<int>(rows.outs.size()), rows.outs.data()};
  }

  void add_stage(const StageCells& stage, int k, StageProgram& program) {
    AotStage& s = to_.stages[static_cast<std::size_t>(k)];
    const StageProgram::Parts parts = program.parts(sizes_);
    s.tables = stage_tables(cell_, stage, *parts.step, *parts.step_with_transition, running_);
    s.tables.stage.warps = parts.stage->warps;
    s.tables.stage.stage_steps = parts.stage->stage_steps;
    s.tables.stage.has_transition = parts.stage->has_transition;
    s.tables.stage.scans = parts.stage->scans;
    for (const ArraySource& source : stage.lanes.sources) s.sources.push_back(source_of(source));
    s.states = stage.states;
    s.states.push_back(-1);
    const cellc_stage_facts facts = stage_facts(structure_.stages[k], program.block(sizes_), program.storage_bytes());
    s.variants = aot_variants(s.tables.stage, facts, request_, to_.fixed, structure_.stages.size() == 1);
    cellc_stage_part part_table{};
    part_table.stage = &s.tables.stage;
    part_table.facts = facts;
    part_table.first_kernel = static_cast<int>(to_.kernels.size());

    // A namespace for the stage, and inside it one for each set of macros that lanes or scans are compiled
    // with.
    const std::string place = fmt::format("stage{}", k), outside = space_of(running_) + "::" + place + "::";
    std::string text = fmt::format("// The stage {}.\nnamespace {} {{\n\n{}\n{}\n", name_of_stage(cell_, stage.states),
                                   place, parts.step->text, parts.step_with_transition->text);
    std::map<std::string, std::string> inside;
    std::vector<std::string> order, kernels(s.variants.size()), used;
    std::vector<std::string> places(s.variants.size());
    for (std::size_t i = 0; i < s.variants.size(); ++i) {
      const cellc_variant& v = s.variants[i];
      const std::string space = v.kernel == CELLC_SCAN
                                    ? fmt::format("{}{}{}{}", v.buffers ? "stream" : "channels", v.channels,
                                                  v.forward ? fmt::format("_steps{}", v.steps) : "",
                                                  v.buffers ? fmt::format("_carried{}", v.carry_channels) : "")
                                    : fmt::format("{}{}",
                                                  v.width == 2 ? "pairs"
                                                  : v.rows     ? "rows"
                                                               : "lanes",
                                                  v.steps);
      const std::string name = fmt::format("{}_{}_{}", request_.prefix, place, variant_name(v));
      std::string& body = inside[space];
      if (body.empty()) {
        order.push_back(space);
        body = stage_kernel_macros(s.tables.stage, v);
        body += fmt::format("namespace cellc {{\nusing namespace {}::cellc;\n}}\n\n", space_of(running_));
        body += part("lanes.cuh");
        used.clear();
      }
      for (const std::string_view p : stage_kernel_parts(v))
        if (body.find(fmt::format("// {} -", p)) == std::string::npos) body += part(p);
      body += stage_kernel_text(*parts.step, *parts.step_with_transition, s.tables.stage, v, name) + "\n";
      kernel(name, outside + space + "::");
      const std::string kind = v.kernel == CELLC_SCAN        ? "scan"
                               : v.kernel == CELLC_SEGMENTED ? "segments"
                                                             : "step by step";
      if (s.what.find(kind) == std::string::npos) s.what += (s.what.empty() ? "" : ", ") + kind;
    }
    for (const std::string& space : order)
      text += fmt::format("namespace {0} {{\n\n{1}\n{2}}}  // namespace {0}\n\n", space, inside[space],
                          undefine(inside[space]));
    groups_[running_].text += text + fmt::format("}}  // namespace {}\n\n", place);
    to_.plan.push_back(fmt::format("the stage {}, a lane a thread: {}", name_of_stage(cell_, stage.states), s.what));
    part_tables_.push_back(part_table);
  }

  void note_what_rows_read(const StagedCell& staged, bool runs_stepwise) {
    const auto note = [&](const DerivedCell& part) {
      for (const ArraySource& s : part.sources) {
        if (s.kind == ArraySource::Kind::Symbol) to_.symbols[s.id].read_by_nests = 1;
        if (s.kind == ArraySource::Kind::Trajectory) to_.symbols[cell_.updates[s.id].symbol].read_by_nests = 1;
      }
    };
    for (const StageCells& s : staged.stages) note(s.once), note(s.before);
    note(staged.after);
    if (runs_stepwise)
      for (cellc_symbol& s : to_.symbols) s.read_by_nests = 1;
  }

  void add_defaults() {
    const auto add = [&](AotNests& rows, SymbolKind kind, Role role) {
      const DerivedCell of = defaults_of(cell_, symbols_with_defaults(cell_, kind), role, request_.derive);
      bool computed = false;
      for (std::size_t o = 0; o < of.sinks.size(); ++o) {
        cellc_symbol& s = to_.symbols[of.sinks[o].id];
        s.default_out = static_cast<int>(o);
        computed = computed || s.default_kind == CELLC_DEFAULT_COMPUTED;
      }
      if (computed) add_rows(rows, of.cell, Structure{}, Dtype::F64, to_string(role), &of);
    };
    add(to_.defaults, SymbolKind::Param, Role::Defaults);
    add(to_.starts, SymbolKind::State, Role::Starts);
  }

  void add_call_kernels() {
    Group& group = groups_[running_];
    group.uses.push_back("call.cuh");
    const auto add = [&](const char* name, const char* argument, const char* function) {
      group.text += fmt::format(
          "extern \"C\" __global__ void __launch_bounds__(256) {0}_{1}(const __grid_constant__ cellc::{2} a) "
          "{{ cellc::await_stream(); cellc::{3}(a); }}\n",
          request_.prefix, name, argument, function);
      return kernel(fmt::format("{}_{}", request_.prefix, name), space_of(running_) + "::");
    };
    to_.cell_table_.copy_kernel = add("copy", "CopyArguments", "copy_rows");
    to_.cell_table_.offsets_kernel = add("offsets", "OffsetsArguments", "fill_offsets");
    to_.cell_table_.history_kernel = add("last_steps", "LastStepsArguments", "last_steps");
  }

  void finish(bool runs_stepwise) {
    for (auto& [storage, group] : groups_) {
      std::string text = storage_macro(storage) + part("preamble.cuh") + part("math.cuh");
      for (const std::string& use : group.uses) text += part(use);
      if (!group.products.empty()) {
        const std::string name = fmt::format("{}_product_{}", request_.prefix, to_string(storage));
        std::string product = part("product.cuh");
        const std::string written = "cellc_product(";
        product.replace(product.find(written), written.size(), name + "(");
        text += product;
        const int number = kernel(name, space_of(storage) + "::");
        for (int* asks : group.products) *asks = number;
      }
      text += group.text;
      to_.text +=
          fmt::format("namespace {0} {{\n\n{1}\n{2}}}  // namespace {0}\n\n", space_of(storage), text, undefine(text));
    }
    for (std::size_t k = 0; k < part_tables_.size(); ++k) {
      cellc_stage_part& p = part_tables_[k];
      AotStage& s = to_.stages[k];
      p.once = s.once.derived;
      p.before = s.before.derived;
      p.sources = s.sources.data();
      p.states = s.states.data();
      p.variants = s.variants.data();
      p.variant_count = static_cast<int>(s.variants.size());
    }
    to_.parts = std::move(part_tables_);
    cellc_cell& t = to_.cell_table_;
    t.outline.axis_count = static_cast<int>(to_.fixed.size());
    t.outline.fixed = to_.fixed.data();
    t.outline.least = to_.least.data();
    t.outline.axis_word = to_.axis_word.data();
    t.outline.first_word = static_cast<int>(to_.layout_.lengths.size());
    t.outline.fixed_steps = request_.steps.value_or(-1);
    t.outline.axes = to_.axes.data();
    t.outline.fields = to_.fields.data();
    t.symbols = to_.symbols.data();
    t.updates = to_.updates.data();
    t.outs = to_.outs.data();
    t.outline.field_count = static_cast<int>(to_.fields.size());
    t.symbol_count = static_cast<int>(to_.symbols.size());
    t.update_count = static_cast<int>(to_.updates.size());
    t.out_count = static_cast<int>(to_.outs.size());
    t.stage_count = static_cast<int>(to_.parts.size());
    t.storage = type_of(request_.dtype);
    t.running = type_of(running_);
    t.real = type_of(arithmetic_of(request_.dtype));
    t.stages = to_.parts.data();
    if (runs_stepwise) t.whole = to_.whole.derived;
    t.after = to_.after.derived;
    t.defaults = to_.defaults.derived;
    t.starts = to_.starts.derived;
    t.tolerance = default_tolerance(request_.dtype);
    t.control_bytes = stage_control_bytes();
    t.kernel_count = static_cast<int>(to_.kernels.size());
    t.shared_per_block = card_.facts().shared_per_block;
    t.shared_per_multiprocessor = card_.facts().shared_per_multiprocessor;
    t.solver = solver_number(request_.solver);
  }

  AotCell& to_;
  const CellGraph& cell_;
  const Structure& structure_;
  const ShipRequest& request_;
  OfflineGpu card_;
  Dtype running_ = Dtype::F32;
  std::map<AxisId, std::int64_t> sizes_;
  std::map<Dtype, Group> groups_;
  std::vector<cellc_stage_part> part_tables_;
};

AotCell::AotCell(const CellGraph& cell, const Structure& structure, const ShipRequest& request) : cell_(cell) {
  AotBuilder(*this, structure, request).run();
  // Only what programs see has the lengths that were fixed.
  for (const auto& [axis, length] : request.lengths) cell_.graph.fix_length(axis, length);
}

CallRoom call_room(const cellc_cell& cell) {
  CallRoom r{};
  r.symbols = r.inputs = std::max(1, cell.symbol_count);
  r.states = std::max(1, cell.update_count);
  r.outs = std::max(1, cell.out_count);
  r.addresses = std::max(1, cell.update_count + cell.out_count);
  r.part = r.before = r.once = r.views = r.starts = r.argument_words = 1;
  const auto part = [&](const cellc_derived& d) {
    r.part = std::max(r.part, d.source_count);
    r.addresses = std::max(r.addresses, d.out_count);
  };
  for (const cellc_derived* d : {&cell.after, &cell.defaults, &cell.starts}) part(*d);
  for (int k = 0; k < cell.stage_count; ++k) {
    const cellc_stage_part& s = cell.stages[k];
    part(s.once);
    part(s.before);
    r.once = std::max(r.once, s.once.out_count);
    r.before = std::max(r.before, s.before.out_count);
    r.views = std::max(r.views, s.stage->symbols);
    r.starts = std::max(r.starts, s.stage->symbols);
    r.argument_words = std::max(r.argument_words, static_cast<int>(argument_words(*s.stage)));
  }
  return r;
}

}  // namespace cellc
