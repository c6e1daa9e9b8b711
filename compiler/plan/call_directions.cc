#include "compiler/plan/call_directions.h"

#include <algorithm>
#include <stdexcept>

namespace cellc {
namespace {

constexpr FieldKind kRead[] = {FieldKind::Input, FieldKind::Param, FieldKind::Start, FieldKind::StateHistory,
                               FieldKind::InputHistory};

/// Cotangents of final histories of inputs, and of what a delay line brings, are left out: whoever cuts a sequence has
/// the rows that they are of.
constexpr FieldKind kPulled[] = {FieldKind::State, FieldKind::Out, FieldKind::Final, FieldKind::FinalStateHistory};
constexpr FieldKind kMoved[] = {FieldKind::State, FieldKind::Out, FieldKind::Final};

const char* word_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::Value:
      return "";
    case Quantity::Cotangent:
      return "cotangent.";
    case Quantity::Gradient:
      return "gradient.";
    case Quantity::Tangent:
      return "tangent.";
  }
  throw std::logic_error("no such quantity");
}

/// Identifiers have no dots, so no two of these are the same.
const char* behind_owner(FieldKind kind) {
  switch (kind) {
    case FieldKind::Start:
      return ".start";
    case FieldKind::Final:
      return ".final";
    case FieldKind::StateHistory:
    case FieldKind::InputHistory:
      return ".lag";
    case FieldKind::FinalStateHistory:
    case FieldKind::FinalInputHistory:
      return ".lag.final";
    default:
      return "";
  }
}

class Directed {
 public:
  Directed(const CellGraph& cell, const CallLayout& layout) : cell_(cell), layout_(layout) {}

  void add(Quantity quantity, const CallField& of, bool written, FieldAbsent absent) {
    const std::string& owner = of.traits().owner == FieldOwner::Out
                                   ? cell_.outs[static_cast<std::size_t>(of.id)].name
                                   : cell_.symbols[static_cast<std::size_t>(of.id)].name;
    call.fields.push_back({quantity, of, word_of(quantity) + owner + behind_owner(of.kind), written, absent});
  }
  template <std::size_t N>
  void add_all(Quantity quantity, const FieldKind (&kinds)[N], bool written, FieldAbsent absent) {
    for (const CallField& field : layout_.fields)
      for (const FieldKind kind : kinds)
        if (field.kind == kind && !(kind == FieldKind::FinalStateHistory && has_line(field.id)))
          add(quantity, field, written, absent);
  }

  DirectedCall call;

 private:
  bool has_line(int state) const {
    return std::any_of(cell_.symbols.begin(), cell_.symbols.end(), [&](const Symbol& s) { return s.line_of == state; });
  }

  const CellGraph& cell_;
  const CallLayout& layout_;
};

}  // namespace

std::optional<std::size_t> DirectedCall::find(Quantity quantity, FieldKind kind, int id) const {
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].quantity == quantity && fields[i].of.kind == kind && fields[i].of.id == id) return i;
  return std::nullopt;
}

std::size_t DirectedCall::number(Quantity quantity, FieldKind kind, int id) const {
  if (const auto found = find(quantity, kind, id)) return *found;
  throw std::logic_error("the call has no such array");
}

DirectedCall directed_call(const CellGraph& cell, const CallLayout& layout, CallDirection direction) {
  Directed directed(cell, layout);
  directed.call.direction = direction;
  const bool forward = direction == CallDirection::Forward;
  for (const CallField& field : layout.fields)
    if (forward)
      directed.add(Quantity::Value, field, field.is_written(), field.absent);
    else if (!field.is_written() || field.kind == FieldKind::State)
      directed.add(Quantity::Value, field, false, field.is_written() ? FieldAbsent::Nothing : field.absent);
  if (direction == CallDirection::Backward) {
    directed.add_all(Quantity::Cotangent, kPulled, false, FieldAbsent::Zeros);
    directed.add_all(Quantity::Gradient, kRead, true, FieldAbsent::Unwanted);
  } else if (direction == CallDirection::Tangent) {
    directed.add_all(Quantity::Tangent, kRead, false, FieldAbsent::Zeros);
    directed.add_all(Quantity::Tangent, kMoved, true, FieldAbsent::Unwanted);
  }
  return std::move(directed.call);
}

}  // namespace cellc
