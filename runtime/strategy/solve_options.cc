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

}  // namespace cellc
