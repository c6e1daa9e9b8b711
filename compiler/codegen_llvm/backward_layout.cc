#include "compiler/codegen_llvm/backward_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "compiler/plan/call_directions.h"

namespace cellc {
namespace {

/// Throws std::invalid_argument.
void refuse_lags(const CellGraph& whole, const AdjointCell& adjoint) {
  int lagged = adjoint.lagged.empty() ? -1 : adjoint.lagged[0].symbol;
  for (const Symbol& s : whole.symbols)
    if (s.lag_of >= 0 || s.line_of >= 0) lagged = std::max(s.lag_of, s.line_of);
  if (lagged < 0) return;
  throw std::invalid_argument(
      fmt::format("backward: cell {} reads {} at a lag, for which there is no backward call in shipped code; "
                  "cellc_backward of cellc.h has one",
                  whole.name, whole.symbols[static_cast<std::size_t>(lagged)].name));
}

const char* suffix_of(Quantity quantity) {
  return quantity == Quantity::Cotangent ? "_cotangent" : quantity == Quantity::Gradient ? "_gradient" : "";
}

CallLayout layout_of(const DirectedCall& call, const std::vector<AxisId>& lengths) {
  CallLayout layout;
  layout.lengths = lengths;
  std::set<std::string> members;
  for (const DirectedField& directed : call.fields) {
    CallField field = directed.of;
    field.written = directed.written;
    // A default is a value of other params, whose gradients would lack what it hands on: so it is given.
    field.absent = directed.absent == FieldAbsent::Declared ? FieldAbsent::Nothing : directed.absent;
    field.name = c_name(directed.of.name + suffix_of(directed.quantity));
    while (members.count(field.name) || (field.is_rows() && members.count(field.name + "_strides"))) field.name += "_";
    field.member = field.name;
    members.insert(field.member);
    if (field.is_rows()) members.insert(field.member + "_strides");
    field.word = layout.words;
    layout.words += field.is_rows() ? 3 : 1;
    layout.fields.push_back(std::move(field));
  }
  return layout;
}

}  // namespace

BackwardLayout backward_layout(const CellGraph& whole, const AdjointCell& adjoint) {
  refuse_lags(whole, adjoint);
  const CallLayout forward = call_layout(whole);
  const DirectedCall call = directed_call(whole, forward, CallDirection::Backward);
  BackwardLayout result{layout_of(call, forward.lengths), {}, {}, {}, {}};
  const CellGraph& cell = adjoint.adjoint.cell;
  const auto field = [&](Quantity quantity, FieldKind kind, int id) {
    return static_cast<int>(call.number(quantity, kind, id));
  };
  const auto state = [&](int update) { return whole.updates[static_cast<std::size_t>(update)].symbol; };
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
    const ArraySource& source = adjoint.adjoint.sources[static_cast<std::size_t>(s)];
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        if (cell.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::Param)
          result.of_adjoint[{FieldKind::Param, s}] = field(Quantity::Value, FieldKind::Param, source.id);
        else
          result.of_adjoint[{FieldKind::Input, s}] = field(Quantity::Value, FieldKind::Input, source.id);
        break;
      case ArraySource::Kind::Previous:
        result.of_adjoint[{FieldKind::Input, s}] = field(Quantity::Value, FieldKind::State, state(source.id));
        result.starts[s] = field(Quantity::Value, FieldKind::Start, state(source.id));
        break;
      case ArraySource::Kind::Cotangent:
        result.of_adjoint[{FieldKind::Input, s}] = field(Quantity::Cotangent, FieldKind::State, state(source.id));
        break;
      case ArraySource::Kind::OutCotangent:
        result.of_adjoint[{FieldKind::Input, s}] = field(Quantity::Cotangent, FieldKind::Out, source.id);
        break;
      case ArraySource::Kind::Adjoint:
        result.of_adjoint[{FieldKind::Start, s}] = field(Quantity::Cotangent, FieldKind::Final, state(source.id));
        result.of_adjoint[{FieldKind::Final, s}] = field(Quantity::Gradient, FieldKind::Start, state(source.id));
        break;
      default:
        throw std::logic_error("backward call: an array that the adjoint does not read");
    }
  }
  for (int s = 0; s < static_cast<int>(whole.symbols.size()); ++s) {
    if (whole.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::Param)
      result.gradients[s] = field(Quantity::Gradient, FieldKind::Param, s);
    if (whole.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::Input)
      result.untouched[s] = field(Quantity::Gradient, FieldKind::Input, s);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (const ArraySink& sink = adjoint.adjoint.sinks[cell.updates.size() + o];
        sink.kind == ArraySink::Kind::Gradient) {
      result.of_adjoint[{FieldKind::Out, static_cast<int>(o)}] = result.untouched.at(sink.id);
      result.untouched.erase(sink.id);
    }
  return result;
}

}  // namespace cellc
