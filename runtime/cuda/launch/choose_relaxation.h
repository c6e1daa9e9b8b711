#pragma once
// How many iterations of relaxation are worth trying on a GPU, where a cell would otherwise go step by step. Pure;
// precedes plan_execution. The iteration itself then says whether so few will do (relaxation_progress.h). Costs:
// docs/notes/nests.md and docs/notes/persistent.md, measured.
#include <cstdint>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"

namespace cellc {

struct RelaxationRequest {
  double product_entries = 0;  ///< multiplications of a row's mixing terms
  double state_entries = 0;    ///< of a row
  std::int64_t rows = 0, longest = 0, sequences = 0;
  Dtype arithmetic = Dtype::F32;
  ProductFactors factors = ProductFactors::Tf32x3;
  double other_step_ns = 0;  ///< of kernels that live through all steps; 0: there are none
  int multiprocessors = 1;
};

/// 0: none is worth trying.
int iterations_worth_on_gpu(const RelaxationRequest& request);

}  // namespace cellc
