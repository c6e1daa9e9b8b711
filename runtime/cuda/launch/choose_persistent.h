#pragma once
// Picks the shape of kernels that live through all steps (compiler/plan/persistent_kernel.h): blocks of a cluster,
// sequences side by side, threads. Pure; follows plan, precedes NestProgram. Costs: docs/notes/persistent.md.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct PersistentChoice {
  std::vector<PersistentCode> code;  ///< by kernel with states; empty: none runs so
  std::string reason;                ///< why none does, or the shape in words
  double step_ns = 0;                ///< what a step of all sequences is thought to take
};

struct PersistentRequest {
  const Plan& plan;
  std::map<AxisId, std::int64_t> lengths;  ///< by header axis
  std::int64_t sequences = 0;
  Dtype dtype = Dtype::F32;
  ProductFactors factors = ProductFactors::Tf32x3;
  const GpuFacts& card;
  int most_blocks = 16;  ///< of a cluster; less where the card has no room for such clusters
  bool groups = true;    ///< false: the card was found to have no room for all blocks of a group at once
  PersistentWish wish{};
};

/// All kernels with states, or none.
PersistentChoice choose_persistent(const PersistentRequest& request);

}  // namespace cellc
