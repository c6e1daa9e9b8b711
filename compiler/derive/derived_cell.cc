#include "compiler/derive/derived_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/graph/verify.h"

namespace cellc {

const char* to_string(Role role) {
  switch (role) {
    case Role::None:
      return "none";
#define CELLC_ROLE(Name, text) \
  case Role::Name:             \
    return text;
#include "compiler/derive/roles.def"
#undef CELLC_ROLE
  }
  return "";
}

std::size_t DerivedCell::symbol_from(const ArraySource& source) const {
  const auto at = std::find(sources.begin(), sources.end(), source);
  if (at == sources.end())
    throw std::logic_error(fmt::format("derived cell '{}', {}: it reads no such array", cell.name, to_string(role)));
  return static_cast<std::size_t>(at - sources.begin());
}

void verify(const DerivedCell& derived) {
  const CellGraph& cell = derived.cell;
  const auto require = [&](bool holds, const char* what) {
    if (!holds)
      throw std::logic_error(fmt::format("derived cell '{}', {}: {}", cell.name, to_string(derived.role), what));
  };
  verify(cell);
  require(derived.sources.size() == cell.symbols.size(), "not one source a symbol");
  require(derived.sinks.size() == cell.updates.size() + cell.outs.size(), "not one sink a state and out");
  require((derived.role == Role::None) == derived.sinks.empty(), "its role is not that of a cell with results");
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const ArraySource::Kind from = derived.sources[s].kind;
    const bool state = cell.symbols[s].kind == SymbolKind::State;
    const bool may_start = from == ArraySource::Kind::Trajectory || from == ArraySource::Kind::Start ||
                           from == ArraySource::Kind::Sum || from == ArraySource::Kind::Out ||
                           from == ArraySource::Kind::Adjoint || from == ArraySource::Kind::Tangent;
    require(!state || may_start, "a state that starts as no state does");
    require(state || from != ArraySource::Kind::Start || cell.symbols[s].line_of >= 0, "a start that is no state's");
    require(derived.sources[s].id >= 0 || from == ArraySource::Kind::Tolerance || from == ArraySource::Kind::Start,
            "a source without a number");
  }
  for (const ArraySink& sink : derived.sinks) {
    require(sink.id >= 0, "a sink without a number");
    require((sink.kind == ArraySink::Kind::Transition) == (sink.of >= 0), "only a transition is of a pair of states");
  }
}

namespace {

std::string text_of(const CellGraph& whole, const ArraySource& source) {
  using Kind = ArraySource::Kind;
  const auto state = [&](int update) { return whole.symbol_of(whole.updates[update]).name; };
  switch (source.kind) {
    case Kind::Symbol:
      return whole.symbols[source.id].name;
    case Kind::Trajectory:
      return "trajectory of " + state(source.id);
    case Kind::Remade:
      return fmt::format("new values of {}, made again", state(source.id));
    case Kind::Before:
      return fmt::format("before {}", source.id);
    case Kind::Once:
      return fmt::format("once {}", source.id);
    case Kind::Mixing:
      return fmt::format("mixing {}", source.id);
    case Kind::Sum:
      return fmt::format("sum {}", source.id);
    case Kind::Out:
      return "out " + whole.outs[source.id].name;
    case Kind::Guess:
      return fmt::format("state {} of the stage, one step before", source.id);
    case Kind::Value:
      return fmt::format("state {} of the stage, at this step", source.id);
    case Kind::Tolerance:
      return "tolerance";
    case Kind::Tap:
      return fmt::format("delay line's tap {}", source.id);
    case Kind::Start:
      return "its start";
    case Kind::Previous:
      return fmt::format("trajectory of {}, one step before", state(source.id));
    case Kind::Lagged:
      return fmt::format("earlier steps {}", source.id);
    case Kind::Cotangent:
      return "cotangent of " + state(source.id);
    case Kind::OutCotangent:
      return "cotangent of " + whole.outs[source.id].name;
    case Kind::Adjoint:
      return fmt::format("cotangent of {}.final", state(source.id));
    case Kind::Tangent:
      return "tangent of " + whole.symbols[source.id].name;
  }
  return "";
}

std::string text_of(const CellGraph& whole, const ArraySink& sink) {
  using Kind = ArraySink::Kind;
  switch (sink.kind) {
    case Kind::Trajectory:
      return "trajectory of " + whole.symbol_of(whole.updates[sink.id]).name;
    case Kind::Out:
      return "out " + whole.outs[sink.id].name;
    case Kind::Step:
      return "step of " + whole.symbol_of(whole.updates[sink.id]).name;
    case Kind::Before:
      return fmt::format("before {}", sink.id);
    case Kind::Once:
      return fmt::format("once {}", sink.id);
    case Kind::Mixing:
      return fmt::format("mixing {}", sink.id);
    case Kind::Sum:
      return fmt::format("sum {}", sink.id);
    case Kind::Transition:
      return fmt::format("transition of state {} of the stage by state {}", sink.id, sink.of);
    case Kind::Map:
      return fmt::format("number {} of the map", sink.id);
    case Kind::Residual:
      return sink.id == 0 ? "residual" : sink.id == 1 ? "steps before the first bad one" : "steps since the last";
    case Kind::Default:
      return "default of " + whole.symbols[sink.id].name;
    case Kind::Adjoint:
      return "gradient of " + whole.symbol_of(whole.updates[sink.id]).name + ", of which the last is that of its start";
    case Kind::Gradient:
      return "gradient of " + whole.symbols[sink.id].name;
    case Kind::LaggedGradient:
      return fmt::format("gradient of earlier steps {}", sink.id);
    case Kind::Factor:
      return fmt::format("factor {}", sink.id);
    case Kind::Tangent:
      return "tangent of " + whole.symbol_of(whole.updates[sink.id]).name;
    case Kind::OutTangent:
      return "tangent of " + whole.outs[sink.id].name;
  }
  return "";
}

}  // namespace

std::string print_arrays(const CellGraph& whole, const DerivedCell& derived) {
  const CellGraph& cell = derived.cell;
  std::string text;
  for (std::size_t s = 0; s < derived.sources.size(); ++s)
    text += fmt::format("  {} from {}\n", cell.symbols[s].name, text_of(whole, derived.sources[s]));
  for (std::size_t i = 0; i < derived.sinks.size(); ++i) {
    const std::string name =
        i < cell.updates.size() ? cell.symbol_of(cell.updates[i]).name + "'" : cell.outs[i - cell.updates.size()].name;
    text += fmt::format("  {} to {}\n", name, text_of(whole, derived.sinks[i]));
  }
  return text;
}

}  // namespace cellc
