#include "runtime/strategy/solve_options.h"

namespace cellc {

double default_tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64:
      return 1e-12;
    case Dtype::F32:
      return 1e-6;
    default:
      return 1e-4;
  }
}

double absolute_tolerance(const SolveOptions& options, const std::string& state) {
  const auto own = options.absolute_tolerances.find(state);
  return own == options.absolute_tolerances.end() ? options.absolute_tolerance : own->second;
}

double absolute_tolerance(const SolveOptions& options, const CellGraph& cell, int update) {
  const Symbol& symbol = cell.symbol_of(cell.updates[static_cast<std::size_t>(update)]);
  return absolute_tolerance(options, symbol.lag_of >= 0 ? cell.symbols[symbol.lag_of].name : symbol.name);
}

}  // namespace cellc
