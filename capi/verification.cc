#include "capi/verification.h"

#include "runtime/data/lagged_arrays.h"
#include "runtime/evaluate/reference.h"

namespace cellc::capi {

Verification::Verification(const CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
                           const cellc_array* arrays)
    : kernel_(kernel), arrays_(kernel, shape, expected, arrays), run_(arrays_.bound().binding.run) {
  run_.wanted = arrays_.wanted();
  reference_ = reference_run(kernel_.cell(), run_);
}

double Verification::error() const {
  const CellGraph& cell = kernel_.cell();
  RunOutput written;
  for (const StateUpdate& u : cell.updates) {
    const Symbol& copy = cell.symbol_of(u);
    written.states.push_back(rows(FieldKind::State, u.symbol));
    written.finals.push_back(copy.lag_of < 0 ? given(FieldKind::Final, u.symbol) : lagged(copy));
  }
  for (int o = 0; o < static_cast<int>(cell.outs.size()); ++o) written.outs.push_back(rows(FieldKind::Out, o));
  return compare(cell, run_, written, reference_).error;
}

std::optional<std::size_t> Verification::number(FieldKind kind, int id) const {
  const CallField* field = kernel_.layout.find(kind, id);
  if (!field) return std::nullopt;  // a lagged copy
  const auto i = static_cast<std::size_t>(field - kernel_.layout.fields.data());
  return arrays_.is_given(i) ? std::optional(i) : std::nullopt;
}

Array Verification::rows(FieldKind kind, int id) const {
  const auto i = number(kind, id);
  return i ? arrays_.rows(*i) : Array();
}

Array Verification::given(FieldKind kind, int id) const {
  const auto i = number(kind, id);
  return i ? arrays_.given(*i) : Array();
}

Array Verification::lagged(const Symbol& copy) const {
  const auto i = number(FieldKind::FinalStateHistory, copy.lag_of);
  return i ? lag_of_history(arrays_.given(*i), copy.lag) : Array();
}

}  // namespace cellc::capi
