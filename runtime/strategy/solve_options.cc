#include "runtime/strategy/solve_options.h"

namespace cellc {

const char* to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::Auto:
      return "auto";
    case Strategy::Sequential:
      return "sequential";
    case Strategy::Segmented:
      return "segmented";
    case Strategy::Shooting:
      return "shooting";
    case Strategy::Newton:
      return "newton";
    case Strategy::Scan:
      return "scan";
    case Strategy::Relaxation:
      return "relaxation";
  }
  return "?";
}

std::optional<Strategy> strategy_named(const std::string& name) {
  for (Strategy s : {Strategy::Auto, Strategy::Sequential, Strategy::Segmented, Strategy::Shooting, Strategy::Newton,
                     Strategy::Scan, Strategy::Relaxation})
    if (name == to_string(s)) return s;
  return std::nullopt;
}

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

}  // namespace cellc
