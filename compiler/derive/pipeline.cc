#include "compiler/derive/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "compiler/derive/derivations.h"

namespace cellc {

const char* to_string(Derivation derivation) {
  switch (derivation) {
#define CELLC_DERIVATION(Name, text) \
  case Derivation::Name:             \
    return text;
#include "compiler/derive/derivations.def"
#undef CELLC_DERIVATION
  }
  return "";
}

namespace {

// What each derivation has made, and whether it is what it should be. `visit` is told of every cell.

template <typename Visit>
void check(DerivedCell& derived, Visit&& visit) {
  visit(derived);
  verify(derived);
}

template <typename Visit>
void check(StageCells& stage, Visit&& visit) {
  for (DerivedCell* part : {&stage.once, &stage.before, &stage.lanes}) check(*part, visit);
  for (DerivedCell& pass : stage.remade) check(pass, visit);
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  };
  require(stage.layouts.size() == stage.lanes.cell.symbols.size(), "not one layout a symbol of the lanes");
  for (const LaneLayout& layout : stage.layouts)
    for (const int channel : layout.channel_of_place)
      require(channel < static_cast<int>(stage.channels.size()), "a place along no channel");
  require(stage.sum_outs.empty() || stage.sum_outs.size() == stage.sums.size(), "some sums are outs, and some are not");
  require(stage.lanes.cell.updates.size() ==
              stage.states.size() + stage.sums.size() + stage.sum_outs.size() + stage.outs.size(),
          "not one update a state, sum and out");
}

template <typename Visit>
void check(StagedCell& staged, Visit&& visit) {
  for (StageCells& stage : staged.stages) check(stage, visit);
  check(staged.after, visit);
  check(staged.step, visit);
}

template <typename Visit>
void check(AdjointCell& made, Visit&& visit) {
  check(made.adjoint, visit);
}

template <typename Visit>
void check(BlockCell& made, Visit&& visit) {
  check(made.block, visit);
}

template <typename Visit>
void check(SequencesCell& made, Visit&& visit) {
  check(made.sequences, visit);
}

template <typename Visit>
void check(FusedStage& summed, Visit&& visit) {
  check(summed.stage, visit);
}

template <typename Visit>
void check(RelaxedCell& relaxed, Visit&& visit) {
  for (DerivedCell* part : {&relaxed.relaxed, &relaxed.fixed, &relaxed.mixing, &relaxed.step}) check(*part, visit);
}

template <typename Visit>
void check(SteppedCell& stepped, Visit&& visit) {
  for (DerivedCell* part : {&stepped.fixed, &stepped.step}) check(*part, visit);
}

template <typename Visit>
void check(ScalarLane& lane, Visit&&) {
  verify(lane.scalars);
  verify(lane.held, lane.scalars);
}

template <typename Cell, typename Visit>
void check(std::optional<Cell>& cell, Visit&& visit) {
  if (cell) check(*cell, visit);
}

/// The one way to a derived cell. What `make` refuses is its own affair; what it made is verified.
template <typename Make>
auto derived(Derivation derivation, const std::string& of, const DeriveHooks& hooks, Make&& make) {
  using Clock = std::chrono::steady_clock;
  struct Timer {
    const Derivation derivation;
    const DeriveHooks& hooks;
    const Clock::time_point start = Clock::now();
    ~Timer() {
      if (hooks.done) hooks.done(derivation, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  };
  if (hooks.entering) hooks.entering(derivation);
  const Timer timer{derivation, hooks};
  auto result = make();
  try {
    check(result, [&](DerivedCell& cell) {
      if (hooks.made) hooks.made(derivation, cell);
    });
  } catch (const std::logic_error& e) {
    throw std::logic_error(
        fmt::format("the derivation '{}' of '{}' went wrong: {}", to_string(derivation), of, e.what()));
  }
  return result;
}

}  // namespace

StagedCell split_stages(const CellGraph& cell, const Structure& structure, const DeriveHooks& hooks) {
  return derived(Derivation::Stages, cell.name, hooks, [&] { return derivation::split_stages(cell, structure); });
}

std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage, const DeriveHooks& hooks,
                                          const std::optional<AccumulatedOuts>& of_gradient) {
  return derived(Derivation::Sums, staged.stages[static_cast<std::size_t>(stage)].lanes.cell.name, hooks,
                 [&] { return derivation::fuse_reductions(staged, stage, of_gradient); });
}

DerivedCell with_reduced_outs(const DerivedCell& after, const std::vector<PartialSum>& sums, const DeriveHooks& hooks,
                              const std::vector<int>& made) {
  return derived(Derivation::AfterSums, after.cell.name, hooks,
                 [&] { return derivation::with_reduced_outs(after, sums, made); });
}

std::optional<StageCells> fuse_outs(const StagedCell& staged, int stage, const AccumulatedOuts& accumulated,
                                    const DeriveHooks& hooks) {
  return derived(Derivation::Outs, staged.stages[static_cast<std::size_t>(stage)].lanes.cell.name, hooks,
                 [&] { return derivation::fuse_outs(staged, stage, accumulated); });
}

std::optional<StageCells> fuse_sum_outs(const CellGraph& cell, const Structure& structure, int stage,
                                        const DeriveHooks& hooks) {
  return derived(Derivation::SumOuts, cell.name, hooks,
                 [&] { return derivation::fuse_sum_outs(cell, structure, stage); });
}

DerivedCell without_outs(const DerivedCell& after, const std::vector<int>& made, const DeriveHooks& hooks) {
  return derived(Derivation::LeftOuts, after.cell.name, hooks, [&] { return derivation::without_outs(after, made); });
}

std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage,
                                 const DeriveHooks& hooks) {
  return derived(Derivation::Relaxation, cell.name, hooks, [&] { return derivation::relax(cell, structure, stage); });
}

SteppedCell step_of(const CellGraph& cell, const Structure& structure, int stage, const DeriveHooks& hooks) {
  return derived(Derivation::OneStep, cell.name, hooks, [&] { return derivation::step_of(cell, structure, stage); });
}

TransitionCell with_transition(const DerivedCell& lanes, AxisId lane, Scannable kind, const DeriveHooks& hooks) {
  return derived(Derivation::Transition, lanes.cell.name, hooks,
                 [&] { return derivation::with_transition(lanes, lane, kind); });
}

DerivedCell linearised(const DerivedCell& lanes, AxisId lane, const DeriveHooks& hooks) {
  return derived(Derivation::Newton, lanes.cell.name, hooks, [&] { return derivation::linearised(lanes, lane); });
}

DerivedCell evaluated(const DerivedCell& lanes, const DeriveHooks& hooks) {
  return derived(Derivation::Guess, lanes.cell.name, hooks, [&] { return derivation::evaluated(lanes); });
}

DerivedCell residual(const DerivedCell& lanes, AxisId lane, const DeriveHooks& hooks) {
  return derived(Derivation::Residual, lanes.cell.name, hooks, [&] { return derivation::residual(lanes, lane); });
}

DerivedCell defaults_of(const CellGraph& cell, const std::vector<int>& symbols, Role role, const DeriveHooks& hooks) {
  return derived(Derivation::Defaults, cell.name, hooks, [&] { return derivation::defaults_of(cell, symbols, role); });
}

AdjointCell adjoint_of(const CellGraph& cell, const AdjointOf& of, const DeriveHooks& hooks) {
  return derived(Derivation::Adjoint, cell.name, hooks, [&] { return derivation::adjoint_of(cell, of); });
}

DerivedCell tangent_of(const CellGraph& cell, const TangentOf& of, const DeriveHooks& hooks) {
  return derived(Derivation::Tangent, cell.name, hooks, [&] { return derivation::tangent_of(cell, of); });
}

BlockCell block_of(const CellGraph& cell, const DeriveHooks& hooks) {
  return derived(Derivation::Block, cell.name, hooks, [&] { return derivation::block_of(cell); });
}

std::optional<SequencesCell> sequences_of(const CellGraph& cell, const std::vector<bool>& any_order,
                                          const DeriveHooks& hooks) {
  return derived(Derivation::Sequences, cell.name, hooks, [&] { return derivation::sequences_of(cell, any_order); });
}

ScalarLane scalar_lane(const CellGraph& cell, AxisId lane, const ScalarizeOptions& options, const DeriveHooks& hooks) {
  return derived(Derivation::Scalars, cell.name, hooks, [&] {
    ScalarLane result{derivation::scalarize(cell, lane, options), {}};
    result.held = loop_invariants(result.scalars, cell);
    return result;
  });
}

std::vector<NumberedCell> derive(const CellGraph& cell, const Structure& structure, const DeriveHooks& hooks) {
  std::vector<NumberedCell> all;
  const auto add = [&](int stage, DerivedCell derived) {
    if (derived.role != Role::None) all.push_back({stage, std::move(derived)});
  };
  const StagedCell staged = split_stages(cell, structure, hooks);
  std::vector<PartialSum> made;
  for (int k = 0; k < static_cast<int>(staged.stages.size()); ++k) {
    const StageCells& s = staged.stages[static_cast<std::size_t>(k)];
    for (const DerivedCell* part : {&s.once, &s.before, &s.lanes}) add(k, *part);
    for (const DerivedCell& pass : s.remade) add(k, pass);
    const std::size_t sums = made.size();
    if (const auto summed = fuse_reductions(staged, k, hooks)) {
      for (const DerivedCell* part : {&summed->stage.once, &summed->stage.before, &summed->stage.lanes}) add(k, *part);
      for (const NodeId sum : summed->sums) made.push_back({sum, 1});
    }
    if (const auto outs =
            made.size() > sums ? fuse_sum_outs(cell, structure, k, hooks) : fuse_outs(staged, k, {}, hooks))
      for (const DerivedCell* part : {&outs->once, &outs->before, &outs->lanes}) add(k, *part);
    if (static_cast<int>(s.states.size()) <= kMostDerivedStates) {
      add(k, with_transition(s.lanes, s.lane, structure.stages[static_cast<std::size_t>(k)].scannable, hooks));
      const DerivedCell newton = linearised(s.lanes, s.lane, hooks);
      add(k, newton);
      add(k, with_transition(newton, s.lane, Scannable::Affine, hooks));
    }
    add(k, evaluated(s.lanes, hooks));
    add(k, residual(s.lanes, s.lane, hooks));
    auto relaxed = relax(cell, structure, k, hooks);
    const bool may_mix = relaxed.has_value();
    if (relaxed)
      for (DerivedCell* part : {&relaxed->fixed, &relaxed->mixing, &relaxed->relaxed, &relaxed->step})
        add(k, std::move(*part));
    // Such steps as kernels of their own are for stages whose lanes no thread holds, as those that mix.
    if (may_mix) {
      SteppedCell stepped = step_of(cell, structure, k, hooks);
      for (DerivedCell* part : {&stepped.fixed, &stepped.step}) add(k, std::move(*part));
    }
  }
  if (cell.has_lines()) add(-1, block_of(cell, hooks).block);
  add(-1, staged.after);
  if (!made.empty()) add(-1, with_reduced_outs(staged.after, made, hooks));
  add(-1, staged.step);
  add(-1, defaults_of(cell, symbols_with_defaults(cell, SymbolKind::State), Role::Starts, hooks));
  add(-1, defaults_of(cell, symbols_with_defaults(cell, SymbolKind::Param), Role::Defaults, hooks));
  return all;
}

}  // namespace cellc
