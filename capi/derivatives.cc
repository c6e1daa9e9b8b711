#include "capi/derivatives.h"

#include <algorithm>
#include <set>

#include "compiler/graph/graph_walk.h"

namespace cellc::capi {
namespace {

/// By array of the call: whether the derived cell reads it. Lagged copies of a state are made of the state's own array.
std::vector<bool> reads_of(const CellGraph& cell, const DirectedCall& call, const DerivedCell& derived,
                           const std::vector<ArrayRead>& lagged) {
  std::vector<bool> reads(call.fields.size());
  const auto mark = [&](FieldKind kind, int symbol) { reads[call.number(Quantity::Value, kind, symbol)] = true; };
  // A delay line is its state's rows.
  const auto mark_rows = [&](int input) {
    const int state = cell.symbols[static_cast<std::size_t>(input)].line_of;
    mark(state < 0 ? FieldKind::Input : FieldKind::State, state < 0 ? input : state);
  };
  for (const ArraySource& source : derived.sources) {
    if (source.kind == ArraySource::Kind::Symbol) {
      if (cell.symbols[static_cast<std::size_t>(source.id)].kind == SymbolKind::Input) mark_rows(source.id);
    } else if (source.kind == ArraySource::Kind::Lagged) {
      mark_rows(lagged[static_cast<std::size_t>(source.id)].symbol);
    } else if (source.kind == ArraySource::Kind::Previous) {
      const int state = cell.updates[static_cast<std::size_t>(source.id)].symbol;
      const int owner = cell.symbols[static_cast<std::size_t>(state)].lag_of;
      mark(FieldKind::State, owner < 0 ? state : owner);
    }
  }
  return reads;
}

}  // namespace

AdjointPlan& Derivatives::adjoint(const std::vector<bool>& given) {
  AdjointOf of;
  of.multiplies_factors = on_gpu_;  // lanes add the products up
  const auto has = [&](FieldKind kind, int id) {
    const auto number = backward_.find(Quantity::Cotangent, kind, id);
    return number && given[*number];
  };
  for (const StateUpdate& u : cell_.updates) of.states.push_back(has(FieldKind::State, u.symbol));
  for (int o = 0; o < static_cast<int>(cell_.outs.size()); ++o) of.outs.push_back(has(FieldKind::Out, o));
  std::vector<bool> key = of.states;
  key.insert(key.end(), of.outs.begin(), of.outs.end());
  const std::lock_guard lock(mutex_);
  std::unique_ptr<AdjointPlan>& plan = adjoints_[key];
  if (!plan) {
    auto made = std::make_unique<AdjointPlan>(cell_, of);
    made->reads = reads_of(cell_, backward_, made->run.adjoint().adjoint, made->run.adjoint().lagged);
    plan = std::move(made);
  }
  return *plan;
}

TangentOf Derivatives::moved(const std::vector<bool>& given) const {
  TangentOf of;
  std::set<int> moving;
  const auto has = [&](Quantity quantity, FieldKind kind, int id) {
    const auto number = tangent_.find(quantity, kind, id);
    return number && given[*number];
  };
  const auto moves = [&](int s) {
    const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
    const int owner = std::max(symbol.lag_of, symbol.line_of);
    if (owner >= 0)
      return has(Quantity::Tangent, FieldKind::StateHistory, owner) ||
             (moving.contains(owner) && !has(Quantity::Value, FieldKind::StateHistory, owner));
    const FieldKind kind = symbol.kind == SymbolKind::Input   ? FieldKind::Input
                           : symbol.kind == SymbolKind::Param ? FieldKind::Param
                                                              : FieldKind::Start;
    return has(Quantity::Tangent, kind, s) || has(Quantity::Tangent, FieldKind::InputHistory, s) ||
           (symbol.initial != kNoNode && !has(Quantity::Value, kind, s) &&
            depends_on(cell_.graph, symbol.initial, moving));
  };
  // Defaults of params read params that are declared before them, and starts read params.
  const int count = static_cast<int>(cell_.symbols.size());
  for (const bool params : {true, false})
    for (int s = 0; s < count; ++s)
      if ((cell_.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::Param) == params && moves(s))
        moving.insert(s);
  for (int s = 0; s < count; ++s) of.symbols.push_back(moving.contains(s));
  return of;
}

TangentPlan& Derivatives::tangent(const std::vector<bool>& given) {
  const TangentOf of = moved(given);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<TangentPlan>& plan = tangents_[of.symbols];
  if (!plan) {
    auto made = std::make_unique<TangentPlan>(cell_, of);
    made->reads = reads_of(cell_, tangent_, made->run.derived(), {});
    plan = std::move(made);
  }
  return *plan;
}

void Derivatives::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& [given, plan] : adjoints_) plan->on_cpu.trim();
  for (const auto& [given, plan] : tangents_) plan->on_cpu.trim();
}

}  // namespace cellc::capi
