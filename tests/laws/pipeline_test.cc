// Derived cells: each is announced, verified and timed, whoever asks for it, and says of its arrays what they are.
#include "compiler/derive/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/front_end.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

constexpr const char* kCell = R"(cell c[d, n] {
  state h[d,n], g[d]
  state s[d] = 2*p
  input x[d], u[d,n]
  param p[d], W[d,d], V[d,d], C[n]
  h' = sigmoid(p)*h + softplus(x)*u
  g' = tanh(W@g + V@x)
  s' = relu(p*s + x)
  out y = sum[n](C*h')
}
)";

AnalysedCell analysed() { return analyse_text(SourceText("c.cell", kCell)); }

TEST(Pipeline, AnnouncesMakesAndTimesInOrder) {
  const AnalysedCell cell = analysed();
  std::vector<std::string> entered, done;
  std::map<std::string, int> made;
  DeriveHooks hooks;
  hooks.entering = [&](Derivation d) { entered.push_back(to_string(d)); };
  hooks.made = [&](Derivation d, DerivedCell& derived) { made[to_string(d)] += derived.role != Role::None; };
  hooks.done = [&](Derivation d, double ms) {
    EXPECT_GE(ms, 0);
    done.push_back(to_string(d));
  };
  const std::vector<NumberedCell> all = derive(cell.cell, cell.structure, hooks);
  EXPECT_EQ(entered, done);
  ASSERT_FALSE(entered.empty());
  EXPECT_EQ(entered.front(), "stages");
  EXPECT_EQ(entered.back(), "defaults");
  for (const char* name :
       {"stages", "sums", "after sums", "relaxation", "transition", "newton", "guess", "residual", "defaults"})
    EXPECT_GE(made[name], 1) << name;
  std::set<Role> roles;
  for (const NumberedCell& n : all) roles.insert(n.derived.role);
  for (const Role role : {Role::Before, Role::Lanes, Role::FusedLanes, Role::After, Role::AfterSums, Role::Step,
                          Role::Transition, Role::Newton, Role::NewtonTransition, Role::Guess, Role::Residual,
                          Role::Relaxed, Role::Fixed, Role::Mixing, Role::Starts})
    EXPECT_TRUE(roles.contains(role)) << to_string(role);
}

/// A cell whose first result is a node that there is none of.
void spoil(DerivedCell& derived) {
  const NodeId nowhere = static_cast<NodeId>(derived.cell.graph.size());
  for (StateUpdate& u : derived.cell.updates) u.value = nowhere;
  for (Out& o : derived.cell.outs) o.value = nowhere;
}

std::string fault_of(Derivation broken, void (*breaks)(DerivedCell&)) {
  const AnalysedCell cell = analysed();
  DeriveHooks hooks;
  int still_open = 0;
  hooks.entering = [&](Derivation) { ++still_open; };
  hooks.done = [&](Derivation, double) { --still_open; };
  hooks.made = [&](Derivation d, DerivedCell& derived) {
    if (d == broken && derived.role != Role::None) breaks(derived);
  };
  try {
    derive(cell.cell, cell.structure, hooks);
  } catch (const std::logic_error& e) {
    EXPECT_EQ(still_open, 0) << "a derivation that went wrong is over";
    return e.what();
  }
  return "";
}

TEST(Pipeline, WhatIsNoGraphIsFoundAndItsDerivationNamed) {
  for (const Derivation d :
       {Derivation::Stages, Derivation::Sums, Derivation::AfterSums, Derivation::Relaxation, Derivation::OneStep,
        Derivation::Transition, Derivation::Newton, Derivation::Guess, Derivation::Residual, Derivation::Defaults}) {
    const std::string fault = fault_of(d, spoil);
    EXPECT_NE(fault.find(fmt::format("the derivation '{}' of 'c' went wrong", to_string(d))), std::string::npos)
        << fault;
    EXPECT_NE(fault.find("unknown node"), std::string::npos) << fault;
  }
}

TEST(Pipeline, ArraysAreSaidOfEverySymbolAndResult) {
  using Break = void (*)(DerivedCell&);
  for (const auto& [breaks, what] : std::vector<std::pair<Break, const char*>>{
           {[](DerivedCell& c) { c.sources.pop_back(); }, "not one source a symbol"},
           {[](DerivedCell& c) { c.sinks.pop_back(); }, "not one sink a state and out"},
           {[](DerivedCell& c) { c.role = Role::None; }, "its role is not that of a cell with results"},
           {[](DerivedCell& c) { c.sources[0].kind = ArraySource::Kind::Tolerance; },
            "a state that starts as no state"},
           {[](DerivedCell& c) { c.sources.back().kind = ArraySource::Kind::Start; }, "a start that is no state's"},
           {[](DerivedCell& c) { c.sources.back().id = -1; }, "a source without a number"},
           {[](DerivedCell& c) { c.sinks[0].id = -1; }, "a sink without a number"},
           {[](DerivedCell& c) { c.sinks[0].of = 1; }, "only a transition is of a pair of states"}}) {
    const std::string fault = fault_of(Derivation::Newton, breaks);
    EXPECT_NE(fault.find(what), std::string::npos) << what << ": " << fault;
  }
}

TEST(Pipeline, AllThatIsDerivedOfAnyCellIsAGraph) {
  int cells = 0;
  for (const oracle::Example& example : oracle::all_cells())
    for (const Cell& tree : example.tree.cells) {
      const AnalysedCell cell = analyse_text(example.source, tree.name);
      for (const NumberedCell& n : derive(cell.cell, cell.structure)) {
        ++cells;
        if (n.derived.role != Role::Lanes) continue;
        const std::vector<int>& states = cell.structure.stages[static_cast<std::size_t>(n.stage)].states;
        for (std::size_t i = 0; i < states.size(); ++i)
          EXPECT_EQ(n.derived.sinks[i], (ArraySink{ArraySink::Kind::Trajectory, states[i]})) << tree.name;
      }
    }
  EXPECT_GT(cells, 1000);
}

TEST(Pipeline, ASymbolIsFoundByWhereItComesFrom) {
  const AnalysedCell cell = analysed();
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  for (const StageCells& stage : staged.stages) {
    const DerivedCell checks = residual(stage.lanes, stage.lane);
    const auto name = [&](ArraySource::Kind kind, int id) {
      return checks.cell.symbols[checks.symbol_from({kind, id})].name;
    };
    const std::string state = cell.cell.symbol_of(cell.cell.updates[static_cast<std::size_t>(stage.states[0])]).name;
    EXPECT_EQ(name(ArraySource::Kind::Guess, 0), "before." + state);
    EXPECT_EQ(name(ArraySource::Kind::Value, 0), "value." + state);
    EXPECT_EQ(name(ArraySource::Kind::Tolerance, 0), "tolerance");
    EXPECT_THROW(checks.symbol_from({ArraySource::Kind::Guess, 7}), std::logic_error);
  }
}

}  // namespace
}  // namespace cellc
