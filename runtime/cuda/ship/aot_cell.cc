// Larger than most (AotBuilder): what a shipped cell has is put together in one order, the units that its passes need,
// the tables that name their kernels, and the declarations that both share.
#include "runtime/cuda/ship/aot_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/codegen_llvm/print_header.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/axes.h"
#include "compiler/plan/plan.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/cuda/ship/aot_outline.h"
#include "runtime/cuda/ship/aot_outs.h"
#include "runtime/cuda/ship/aot_source.h"
#include "runtime/cuda/ship/aot_sums.h"
#include "runtime/cuda/ship/aot_text.h"
#include "runtime/cuda/ship/aot_variants.h"
#include "runtime/cuda/ship/open_lengths.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

cellc_source source_of(const ArraySource& s) {
  switch (s.kind) {
    case ArraySource::Kind::Symbol:
      return {CELLC_FROM_SYMBOL, s.id};
    case ArraySource::Kind::Trajectory:
      return {CELLC_FROM_TRAJECTORY, s.id};
    case ArraySource::Kind::Remade:
      return {CELLC_FROM_REMADE, s.id};
    case ArraySource::Kind::Before:
      return {CELLC_FROM_BEFORE, s.id};
    case ArraySource::Kind::Once:
      return {CELLC_FROM_ONCE, s.id};
    case ArraySource::Kind::Sum:
      return {CELLC_FROM_SUM, s.id};
    case ArraySource::Kind::Out:
      return {CELLC_FROM_OUT, s.id};
    default:
      break;
  }
  throw std::logic_error("shipped: no such array on a device");
}

cellc_gradient_kernels gradient_kernels_of(AotSource& source, Dtype real, bool with_past) {
  const std::vector<std::string> uses{"call.cuh",      "gradient_arguments.cuh", "shifted_rows.cuh",
                                      "step_sums.cuh", "shipped_sums.cuh",       "shipped_shifts.cuh"};
  const auto add = [&](const char* name, const char* argument, const char* function) {
    return source.add_call_kernel(real, name, argument, function, uses);
  };
  const auto add_past = [&](const char* name, const char* function) {
    return with_past ? add(name, "ShiftedRows", function) : -1;
  };
  return {add("earlier", "ShiftedRows", "earlier_rows"),    add("tables", "OffsetTables", "fill_tables"),
          add("columns", "SumsInARow", "columns_in_a_row"), add("products", "SumsInARow", "products_in_a_row"),
          add("finish", "StepSums", "finish_sums"),         add_past("later_rows", "add_later_rows"),
          add_past("later_history", "add_later_history"),   add_past("past", "add_past_to_start")};
}

}  // namespace

class AotBuilder {
 public:
  AotBuilder(AotCell& to, const Structure& structure, const ShipRequest& request)
      : to_(to),
        cell_(to.cell_),
        structure_(structure),
        request_(request),
        card_(request.card),
        source_(request.prefix, request.factors),
        outline_(to, request) {}

  void run() {
    const StagedCell staged = split_stages(cell_, structure_, request_.derive);
    running_ = lane_storage(cell_, staged, request_.dtype, rounds_rows(request_.factors, request_.dtype));
    sizes_ = known_sizes();
    std::vector<std::unique_ptr<StageProgram>> programs;
    ExecutionPlan plan = planned(staged, programs);
    running_ = plan.storage;
    with_outs_ = outs_of_lanes(staged, plan.runs_stepwise);
    if (!plan.runs_stepwise && keeps_bits(staged, *programs[0])) {
      running_ = request_.dtype;
      stands_alone_ = true;
      programs.clear();
      plan = planned(staged, programs);
      plan.storage = running_;
    }
    if (plan.runs_stepwise && request_.solver != Strategy::Auto && request_.solver != Strategy::Sequential)
      throw UsageError(fmt::format("--solver {}: the cell is run step by step on a GPU: {}", to_string(request_.solver),
                                   plan.stepwise_reason));
    for (std::size_t k = 0; k < staged.stages.size() && request_.solver == Strategy::Scan; ++k)
      if (const auto no = no_scan(structure_.stages[k], name_of_stage(cell_, staged.stages[k].states)))
        throw UsageError("--solver scan: " + *no);
    outline_.describe();
    for (std::size_t k = 0; k < staged.stages.size() && !plan.runs_stepwise; ++k) to_.stages.emplace_back();
    for (const Pass& pass : plan.passes(staged, {}, true)) add(pass, staged, programs, plan);
    if (!plan.runs_stepwise) add_sums(staged, plan);
    if (!plan.runs_stepwise) add_outs(staged, plan);
    if (stands_alone_) to_.stages[0].stands_alone = true;
    note_what_rows_read(staged, plan.runs_stepwise);
    add_defaults();
    cellc_cell& table = to_.cell_table_;
    table.copy_kernel = source_.add_call_kernel(running_, "copy", "CopyArguments", "copy_rows");
    table.offsets_kernel = source_.add_call_kernel(running_, "offsets", "OffsetsArguments", "fill_offsets");
    table.history_kernel = source_.add_call_kernel(running_, "last_steps", "LastStepsArguments", "last_steps");
    if (request_.with_sums) to_.gradient_kernels = gradient_kernels_of(source_, running_, request_.with_past);
    to_.text = source_.finish();
    to_.kernels = std::move(source_.kernels);
    to_.places = std::move(source_.places);
    outline_.finish(running_, plan.runs_stepwise, card_.facts());
  }

 private:
  /// What is decided whatever the shape of a call: storage, passes, and whether lanes can be compiled at all. Which
  /// strategy a stage takes follows from the shape, and whether its lanes make sums from the strategy: so a call
  /// decides both (host_plan.h). Here lanes make no sums; add_sums() has those that do.
  ExecutionPlan planned(const StagedCell& staged, std::vector<std::unique_ptr<StageProgram>>& programs) {
    ExecutionRequest asked{cell_, structure_, staged};
    asked.dtype = request_.dtype;
    asked.rounds_rows = rounds_rows(request_.factors, request_.dtype);
    asked.card = card_.facts();
    asked.rows = asked.longest = 1;
    for (std::size_t k = 0; k < staged.stages.size(); ++k) {
      const StageCells& stage = staged.stages[k];
      StageFacts& facts = asked.stages.emplace_back();
      const std::set<std::string> open = open_axes(cell_, request_.lengths, stage);
      if (!open.empty() && stage.channels.empty()) {
        facts.refusal = "it has no channels of its own";
      } else if (!open.empty() && stepwise_reason(cell_, staged, asked.stages).empty()) {
        throw UsageError(fmt::format("the stage {} is compiled for lengths that must be known: add {}",
                                     name_of_stage(cell_, stage.states), fmt::join(options_for(open), " ")));
      }
      programs.push_back(std::make_unique<StageProgram>(card_, cell_, stage, structure_.stages[k].scannable, running_,
                                                        nullptr, request_.derive));
      programs.back()->repeat_bits(request_.repeat_bits || request_.with_sums);
      programs.back()->loosen_scans(request_.with_sums);
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
        add_rows(to_.stages[k].plain.once, staged.stages[k].once.cell, Structure{}, pass.storage,
                 fmt::format("once{}", k), &staged.stages[k].once);
        return;
      case PassKind::Before:
        to_.plan.push_back(fmt::format("what the stage {} reads of other channels and steps",
                                       name_of_stage(cell_, staged.stages[k].states)));
        add_rows(to_.stages[k].plain.before, staged.stages[k].before.cell, Structure{}, pass.storage,
                 fmt::format("before{}", k), &staged.stages[k].before);
        return;
      case PassKind::Stage:
        add_stage(staged, k, *programs[k]);
        return;
      case PassKind::Remade:  // add_stage() has them: which stages are scanned follows from the shape of a call
      case PassKind::Relaxed:
      case PassKind::Stepped:
        throw std::logic_error("a stage that only runs of our own can run was to be shipped");
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

  std::map<AxisId, std::int64_t> known_sizes() const {
    std::map<AxisId, std::int64_t> sizes;
    for (const AxisId a : cell_.header) {
      const auto said = request_.lengths.find(a);
      // Lengths that stay open are lengths along channels, which the code reads from its arguments.
      sizes[a] = said != request_.lengths.end() ? said->second : cell_.graph.axis(a).fixed.value_or(64);
    }
    return sizes;
  }

  // Parts ----------------------------------------------------------------------------------------------

  void add_rows(AotNests& rows, const CellGraph& of, const Structure& structure, Dtype storage, const std::string& name,
                const DerivedCell* derived) {
    const Plan plan = make_plan(of, structure, plan_options(of, storage, request_.factors));
    CudaNestsOptions emit;
    emit.storage = storage_of(storage);
    emit.functions = request_.prefix + "_" + name;
    if (derived) std::tie(emit.wide_inputs, emit.wide_histories) = wide_arrays(*derived);
    const CudaNestsModule module = emit_cuda_nests(plan, emit);
    // The first two lines say where the file begins.
    std::string text = module.text;
    for (int lines = 0; lines < 2; ++lines) text = text.substr(text.find('\n') + 1);
    source_.add(
        storage,
        fmt::format("// {} {}\n{}\n", name, std::string(std::max<std::size_t>(3, 100 - name.size()), '-'), text),
        {"nest_frame.cuh", "nests.cuh"});
    rows.tables = nest_tables(plan, module.kernels, product_template(request_.factors, storage), storage == Dtype::F64,
                              emit.wide_inputs);
    rows.tables.rows.first_kernel = static_cast<int>(source_.kernels.size());
    for (const NestKernel& k : module.kernels) source_.add_kernel(k.function, source_.space_of(storage));
    // In the order of the tables: what is there of both kinds.
    for (const bool stored : {false, true})
      if (std::any_of(rows.tables.products.begin(), rows.tables.products.end(),
                      [&](const cellc_product& p) { return (p.stored != 0) == stored; }))
        source_.ask_for_product(storage, stored ? &rows.tables.rows.stored_kernel : &rows.tables.rows.product_kernel,
                                stored);
    if (derived) {
      for (const ArraySource& s : derived->sources) rows.sources.push_back(source_of(s));
      for (const Out& o : derived->cell.outs) rows.outs.push_back(outline_.dims(o.index));
    }
    rows.derived = {&rows.tables.rows, rows.sources.data(), static_cast<int>(rows.sources.size()),
                    static_cast<int>(rows.outs.size()), rows.outs.data()};
  }

  /// One form of a stage's lanes; its kernels stand in the namespace `place`, or are those of a stage that is alike.
  void add_lanes(AotLanes& to, const StageCells& stage, StageProgram& program, const std::string& place,
                 const std::function<std::vector<cellc_variant>(const cellc_stage&)>& variants) {
    const StageProgram::Parts parts = program.parts(sizes_);
    to.tables = stage_tables(cell_, stage, *parts.step, *parts.step_with_transition, running_);
    to.tables.stage.warps = parts.stage->warps;
    to.tables.stage.stage_steps = parts.stage->stage_steps;
    to.tables.stage.has_transition = parts.stage->has_transition;
    to.tables.stage.scans = parts.stage->scans;
    to.tables.stage.repeats = parts.stage->repeats;
    to.tables.stage.scan_slack = parts.stage->scan_slack;
    for (const ArraySource& source : stage.lanes.sources) to.sources.push_back(source_of(source));
    for (const std::vector<AxisId>& axes : stage.sums) to.sums.push_back(outline_.dims(axes));
    to.variants = variants(to.tables.stage);
    const auto [known, is_new] = lanes_.try_emplace(kind_of_lanes(parts, to.tables.stage, to.variants),
                                                    static_cast<int>(source_.kernels.size()));
    to.first_kernel = known->second;
    if (!is_new) return;
    const LanesText text =
        lanes_text(parts, to.tables.stage, to.variants, source_.space_of(running_), place,
                   fmt::format("The stage {}{}.", name_of_stage(cell_, stage.states),
                               !stage.sums.empty()   ? ", whose lanes make sums of what they have just computed"
                               : !stage.outs.empty() ? ", whose lanes make outs of what they have just computed"
                                                     : ""),
                   request_.prefix);
    for (std::size_t i = 0; i < text.kernels.size(); ++i) source_.add_kernel(text.kernels[i], text.places[i]);
    source_.add(running_, text.text);
  }

  void add_stage(const StagedCell& staged, std::size_t k, StageProgram& program) {
    const StageCells& stage = staged.stages[k];
    AotStage& s = to_.stages[k];
    s.states = stage.states;
    s.states.push_back(-1);
    s.facts = stage_facts(structure_.stages[k], program.carries(sizes_), program.storage_bytes());
    add_lanes(s.plain, stage, program, fmt::format("stage{}", k), [&](const cellc_stage& tables) {
      return aot_variants(tables, s.facts, request_, to_.fixed, k + 1 == structure_.stages.size());
    });
    std::string what;
    for (const cellc_variant& v : s.plain.variants) {
      const std::string kind = v.kernel == CELLC_SCAN        ? "scan"
                               : v.kernel == CELLC_SEGMENTED ? "segments"
                                                             : "step by step";
      if (what.find(kind) == std::string::npos) what += (what.empty() ? "" : ", ") + kind;
    }
    to_.plan.push_back(fmt::format("the stage {}, a lane a thread: {}", name_of_stage(cell_, stage.states), what));
    if (what.find("scan") != std::string::npos && !request_.with_sums) add_remade(stage, k, staged);
  }

  void add_remade(const StageCells& stage, std::size_t k, const StagedCell& staged) {
    AotStage& s = to_.stages[k];
    // Later stages read rounded rows as they were written.
    if (stage.remade.empty() || running_ != arithmetic_of(request_.dtype)) return;
    for (const DerivedCell& pass : stage.remade) {
      AotRemade& remade = s.remade.emplace_back();
      for (const ArraySink& sink : pass.sinks)
        if (sink.kind == ArraySink::Kind::Step) remade.copies.push_back(sink.id);
      add_rows(remade.made, pass.cell, Structure{}, running_, fmt::format("remade{}_{}", k, s.remade.size()), &pass);
    }
    s.remade_states = remade_values(cell_, staged, k);
    s.remade_states.push_back(-1);
    to_.plan.push_back(
        fmt::format("where the stage {} is scanned, its new values again, step by step, for later stages",
                    name_of_stage(cell_, stage.states)));
  }

  // Sums in lanes --------------------------------------------------------------------------------------

  /// The stages that can make sums, in that form, and what is left of the outs for each way in which calls may have
  /// them made (aot_sums.h). The passes are those of a run that makes them so.
  void add_sums(const StagedCell& staged, ExecutionPlan plan) {
    std::vector<std::optional<FusedStage>> fused;
    for (std::size_t k = 0; k < staged.stages.size(); ++k)
      fused.push_back(fuse_reductions(staged, static_cast<int>(k), request_.derive));
    std::vector<std::unique_ptr<StageProgram>> programs(fused.size());
    std::vector<SummingStage> summing(fused.size());
    for (std::size_t k = 0; k < fused.size(); ++k) {
      const std::vector<cellc_variant>& variants = to_.stages[k].plain.variants;
      const auto is_walk = [](const cellc_variant& v) { return v.kernel == CELLC_SEQUENTIAL; };
      summing[k].may_cut = !std::all_of(variants.begin(), variants.end(), is_walk);
      // A strategy that is asked for is taken, unless later stages read what it leaves.
      summing[k].may_walk = !summing[k].may_cut || request_.solver == Strategy::Auto;
      // A term that mentions a length needs to know it.
      if (!fused[k] || !open_axes(cell_, request_.lengths, fused[k]->stage).empty()) continue;
      programs[k] = std::make_unique<StageProgram>(card_, cell_, fused[k]->stage, structure_.stages[k].scannable,
                                                   running_, nullptr, request_.derive);
      if (programs[k]->refusal(sizes_)) continue;
      summing[k].stage = programs[k]->parts(sizes_).stage;
    }
    for (const std::vector<int>& way : ways_of_summing(summing, to_.fixed)) {
      plan.sum_parts = way;
      for (const Pass& pass : plan.passes(staged, fused, true))
        if (pass.fused) add_summing(pass, staged, fused, programs, way);
    }
  }

  void add_summing(const Pass& pass, const StagedCell& staged, const std::vector<std::optional<FusedStage>>& fused,
                   const std::vector<std::unique_ptr<StageProgram>>& programs, const std::vector<int>& way) {
    const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
    if (pass.kind == PassKind::After) {
      std::vector<PartialSum> made;
      for (std::size_t s = 0; s < fused.size(); ++s)
        for (std::size_t i = 0; way[s] > 0 && i < fused[s]->sums.size(); ++i)
          made.push_back({fused[s]->sums[i], way[s]});
      const DerivedCell after = with_reduced_outs(staged.after, made, request_.derive);
      AotReduced& reduced = to_.reduced.emplace_back();
      reduced.parts = way;
      add_rows(reduced.after, after.cell, Structure{}, pass.storage, fmt::format("after{}", to_.reduced.size()),
               &after);
      return;
    }
    // The lanes are the same in however many parts.
    const StageCells& stage = fused[k]->stage;
    AotLanes& lanes = to_.stages[k].summing;
    if (!lanes.variants.empty()) return;
    if (pass.kind != PassKind::Stage) return add_before(pass, lanes, stage, staged, "sums");
    add_lanes(lanes, stage, *programs[k], fmt::format("stage{}_sums", k),
              [&](const cellc_stage& tables) { return summing_variants(tables, request_.card, to_.fixed); });
    to_.plan.push_back(fmt::format("where the stage {} is run step by step, its lanes make {} of the outs",
                                   name_of_stage(cell_, stage.states),
                                   stage.sums.size() == 1 ? "a sum" : fmt::format("{} sums", stage.sums.size())));
  }

  /// What lanes of another form need before them.
  void add_before(const Pass& pass, AotLanes& lanes, const StageCells& stage, const StagedCell& staged,
                  const char* form) {
    const std::size_t k = static_cast<std::size_t>(pass.stage);
    const bool once = pass.kind == PassKind::Once;
    const DerivedCell &of = once ? stage.once : stage.before,
                      &without = once ? staged.stages[k].once : staged.stages[k].before;
    AotNests& rows = once ? lanes.once : lanes.before;
    const AotLanes& plain = to_.stages[k].plain;
    // Where terms need nothing more, the stage has it already.
    if (of.cell.outs.size() == without.cell.outs.size())
      rows.derived = (once ? plain.once : plain.before).derived;
    else
      add_rows(rows, of.cell, Structure{}, pass.storage, fmt::format("{}{}_{}", once ? "once" : "before", k, form),
               &of);
  }

  // Outs in lanes --------------------------------------------------------------------------------------

  /// By stage, where its lanes can make outs of their channels.
  std::vector<std::optional<StageCells>> outs_of_lanes(const StagedCell& staged, bool runs_stepwise) const {
    std::vector<std::optional<StageCells>> with_outs(staged.stages.size());
    for (std::size_t k = 0; k < staged.stages.size() && !runs_stepwise && !request_.with_sums; ++k) {
      // Lanes that can make sums make those.
      if (fuse_reductions(staged, static_cast<int>(k), request_.derive)) continue;
      with_outs[k] = fuse_outs(staged, static_cast<int>(k), {}, request_.derive);
      if (with_outs[k] && !open_axes(cell_, request_.lengths, *with_outs[k]).empty()) with_outs[k].reset();
    }
    return with_outs;
  }

  std::unique_ptr<StageProgram> program_with_outs(const StagedCell& staged, std::size_t k) {
    auto program = std::make_unique<StageProgram>(card_, cell_, *with_outs_[k], structure_.stages[k].scannable,
                                                  running_, nullptr, request_.derive, &staged.stages[k]);
    program->repeat_bits(request_.repeat_bits);
    return program;
  }

  /// Whether every call's rows keep their 16 bits, as all outs are made by lanes of the only stage.
  bool keeps_bits(const StagedCell& staged, StageProgram& plain) {
    if (request_.dtype == arithmetic_of(request_.dtype) || staged.stages.size() != 1 || !with_outs_[0] ||
        request_.solver != Strategy::Auto || !stands_alone(cell_, *with_outs_[0]))
      return false;
    const std::unique_ptr<StageProgram> making = program_with_outs(staged, 0);
    const StageFacts facts = facts_of(plain, nullptr, sizes_, 1, 1, 1, making.get());
    return facts.makes_outs && is_never_cut(structure_.stages[0], facts);
  }

  /// The stages that can make outs of their channels, in that form, and what is left of the outs, by which of them do.
  void add_outs(const StagedCell& staged, ExecutionPlan plan) {
    std::vector<std::unique_ptr<StageProgram>> programs(staged.stages.size());
    std::vector<OutStage> stages(staged.stages.size());
    for (std::size_t k = 0; k < staged.stages.size(); ++k) {
      if (!with_outs_[k]) continue;
      programs[k] = program_with_outs(staged, k);
      stages[k].may_make = !programs[k]->refusal(sizes_);
      // Segments do, and scans of few entries.
      stages[k].may_leave = std::any_of(
          to_.stages[k].plain.variants.begin(), to_.stages[k].plain.variants.end(), [&](const cellc_variant& v) {
            return v.kernel == CELLC_SEGMENTED || (v.kernel == CELLC_SCAN && !stands_alone_);
          });
    }
    for (const std::vector<int>& way : ways_of_making_outs(stages)) {
      std::vector<int> made;
      for (std::size_t k = 0; k < way.size(); ++k) {
        plan.makes_outs[k] = way[k] != 0;
        for (std::size_t o = 0; way[k] != 0 && o < with_outs_[k]->outs.size(); ++o)
          made.push_back(with_outs_[k]->outs[o].out);
      }
      const DerivedCell left = without_outs(staged.after, made, request_.derive);
      AotReduced& reduced = to_.reduced.emplace_back();
      reduced.parts = way;
      for (const Pass& pass : plan.passes(staged, {}, true, with_outs_, !left.cell.outs.empty())) {
        if (pass.kind == PassKind::After)
          add_rows(reduced.after, left.cell, Structure{}, pass.storage, fmt::format("after{}", to_.reduced.size()),
                   &left);
        else if (pass.with_outs)
          add_making_outs(pass, staged, *with_outs_[static_cast<std::size_t>(pass.stage)],
                          programs[static_cast<std::size_t>(pass.stage)]);
      }
    }
  }

  void add_making_outs(const Pass& pass, const StagedCell& staged, const StageCells& stage,
                       const std::unique_ptr<StageProgram>& program) {
    const std::size_t k = static_cast<std::size_t>(pass.stage);
    AotLanes& lanes = to_.stages[k].making_outs;
    if (!lanes.variants.empty() || pass.kind == PassKind::Remade) return;
    if (pass.kind != PassKind::Stage) return add_before(pass, lanes, stage, staged, "outs");
    add_lanes(lanes, stage, *program, fmt::format("stage{}_outs", k), [&](const cellc_stage& tables) {
      return out_variants(tables, to_.stages[k].facts, request_, to_.fixed, k + 1 == structure_.stages.size());
    });
    to_.plan.push_back(fmt::format("where every step of the stage {} is made once, its lanes make {} of the outs",
                                   name_of_stage(cell_, stage.states), stage.outs.size()));
  }

  void note_what_rows_read(const StagedCell& staged, bool runs_stepwise) {
    const auto note = [&](const DerivedCell& part, int how = 1) {
      const auto is_read = [&](int symbol) {
        int& by = to_.symbols[static_cast<std::size_t>(symbol)].read_by_nests;
        if (by != 1) by = how;
      };
      for (const ArraySource& s : part.sources) {
        if (s.kind == ArraySource::Kind::Symbol) is_read(s.id);
        if (s.kind == ArraySource::Kind::Trajectory || s.kind == ArraySource::Kind::Remade)
          is_read(cell_.updates[static_cast<std::size_t>(s.id)].symbol);
      }
    };
    for (const StageCells& s : staged.stages) note(s.once), note(s.before);
    for (std::size_t k = 0; k < to_.stages.size(); ++k)
      for (std::size_t i = 0; i < to_.stages[k].remade.size(); ++i)
        note(staged.stages[k].remade[i], 2), note(staged.stages[k].lanes, 2);
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

  AotCell& to_;
  const CellGraph& cell_;
  const Structure& structure_;
  const ShipRequest& request_;
  OfflineGpu card_;
  Dtype running_ = Dtype::F32;
  std::map<AxisId, std::int64_t> sizes_;
  AotSource source_;
  std::vector<std::optional<StageCells>> with_outs_;  ///< by stage, where its lanes can make outs
  bool stands_alone_ = false;                         ///< those are all outs, and rows have 16 bits for that
  std::map<std::string, int> lanes_;                  ///< kinds of lanes that have kernels already: the first of these
  AotOutline outline_;
};

AotCell::AotCell(const CellGraph& cell, const Structure& structure, const ShipRequest& request) : cell_(cell) {
  AotBuilder(*this, structure, request).run();
  // A header finds its kernels by name: with a number of all of them in one, only those that it was built with.
  std::string& copy = kernels[static_cast<std::size_t>(cell_table_.copy_kernel)];
  const std::string numbered = fmt::format(
      "{}_{}", copy,
      text_number(fmt::format("{} {} {}", cell_table_.shared_per_block, cell_table_.shared_per_multiprocessor, text)));
  text = renamed(text, copy, numbered);
  copy = numbered;
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
  r.stages = std::max(1, cell.stage_count);
  r.sums = 1;
  for (int n = 0; n < cell.reduced_count; ++n) {
    part(cell.reduced[n].after);
    int sums = 0;
    for (int k = 0; k < cell.stage_count; ++k)
      if (cell.reduced[n].parts[k] > 0) sums += cell.reduced[n].parts[k] * cell.stages[k].summing.stage->sums;
    r.sums = std::max(r.sums, sums);
  }
  for (int k = 0; k < cell.stage_count; ++k)
    for (int i = 0; i < cell.stages[k].remade_count; ++i) part(cell.stages[k].remade[i].made);
  for (int k = 0; k < cell.stage_count; ++k)
    for (const cellc_lanes* lanes : {&cell.stages[k].plain, &cell.stages[k].summing, &cell.stages[k].making_outs}) {
      if (!lanes->stage) continue;
      part(lanes->once);
      part(lanes->before);
      r.once = std::max(r.once, lanes->once.out_count);
      r.before = std::max(r.before, lanes->before.out_count);
      r.views = std::max(r.views, lanes->stage->symbols);
      r.starts = std::max(r.starts, lanes->stage->symbols);
      r.argument_words = std::max(r.argument_words, static_cast<int>(argument_words(*lanes->stage)));
    }
  return r;
}

}  // namespace cellc
