#pragma once
// The arrays of a call that goes forward, backward or along a tangent. Those of a forward call are the fields of its
// layout; the others read what it read and the states that it wrote, and have arrays for derivatives of them.
#include <optional>
#include <string>
#include <vector>

#include "compiler/plan/call_layout.h"

namespace cellc {

enum class CallDirection : std::uint8_t { Forward, Backward, Tangent };
enum class Quantity : std::uint8_t { Value, Cotangent, Gradient, Tangent };

struct DirectedField {
  Quantity quantity = Quantity::Value;
  CallField of;      ///< its axes, its layout and whose it is; a value is this field itself
  std::string name;  ///< "h", "h.start", "x.lag.final", "cotangent.h.final": no two of a direction have one
  bool written = false;
  FieldAbsent absent = FieldAbsent::Nothing;
};

struct DirectedCall {
  CallDirection direction = CallDirection::Forward;
  std::vector<DirectedField> fields;  ///< in the order of the call's arrays

  std::optional<std::size_t> find(Quantity quantity, FieldKind kind, int id) const;
  /// Of one that the call has.
  std::size_t number(Quantity quantity, FieldKind kind, int id) const;
};

/// The layout need not outlive the result.
DirectedCall directed_call(const CellGraph& cell, const CallLayout& layout, CallDirection direction);

}  // namespace cellc
