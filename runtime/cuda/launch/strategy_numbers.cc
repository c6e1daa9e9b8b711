#include "runtime/cuda/launch/strategy_numbers.h"

#include <fmt/format.h>

#include <stdexcept>

#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/cuda/launch/stage_tables.h"
// After the tables of stages and rows.
#include "kernels-templates/host/host_cell.h"

namespace cellc {

namespace {

[[noreturn]] void refuse(Strategy strategy) {
  throw std::logic_error(fmt::format("cuda: {} is no strategy of a kernel", to_string(strategy)));
}

}  // namespace

int kernel_number(Strategy strategy) {
  switch (strategy) {
    case Strategy::Sequential:
      return CELLC_SEQUENTIAL;
    case Strategy::Segmented:
    case Strategy::Shooting:
    case Strategy::Newton:
      return CELLC_SEGMENTED;
    case Strategy::Scan:
      return CELLC_SCAN;
    case Strategy::Auto:
    case Strategy::Persistent:  // of whole steps
    case Strategy::Relaxation:  // of solvers of its own
    case Strategy::Stepped:     // of kernels of its own
#include "runtime/strategy/cases_not_on_gpu.def"
      break;
  }
  refuse(strategy);
}

int request_number(Strategy strategy) {
  switch (strategy) {
    case Strategy::Segmented:
      return CELLC_ASK_SEGMENTED;
    case Strategy::Newton:
      return CELLC_ASK_NEWTON;
    case Strategy::Shooting:
    case Strategy::Scan:
      return CELLC_ASK_CARRIED;
    case Strategy::Auto:
    case Strategy::Sequential:
    case Strategy::Persistent:
    case Strategy::Relaxation:
    case Strategy::Stepped:
#include "runtime/strategy/cases_not_on_gpu.def"
      break;
  }
  refuse(strategy);
}

int solver_number(Strategy strategy) {
  switch (strategy) {
    case Strategy::Auto:
      return CELLC_MUST_AUTO;
    case Strategy::Sequential:
      return CELLC_SOLVER_SEQUENTIAL;
    case Strategy::Scan:
      return CELLC_SCAN_ASKED;
    case Strategy::Segmented:
    case Strategy::Shooting:
    case Strategy::Newton:
      return request_number(strategy);
    case Strategy::Persistent:
    case Strategy::Relaxation:
    case Strategy::Stepped:
#include "runtime/strategy/cases_not_on_gpu.def"
      break;
  }
  refuse(strategy);
}

}  // namespace cellc
