#pragma once
// Whether a stage's steps are to be kernels of their own (stepped_on_gpu.h), or walks of a block a sequence
// (nest_program.h): both read the weights at every step, the one by the whole card for all sequences, the other by each
// block for its own. Pure. docs/notes/persistent.md has the model.
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"

namespace cellc {

/// A product of a step: rows of all sequences by a matrix of params.
struct StepProductShape {
  std::int64_t width = 0, depth = 0, batch = 1;  ///< batch: of matrices, such as heads
};

struct SteppedStage {
  std::vector<StepProductShape> products;
  int kernels = 0;               ///< of a step, products among them
  std::int64_t fixed_bytes = 0;  ///< of a row: sums that are made for all steps beforehand
};

struct SteppedRequest {
  std::vector<SteppedStage> stages;  ///< those that no thread can hold
  std::int64_t sequences = 0, rows = 0;
  Dtype arithmetic = Dtype::F32;
  ProductFactors factors = ProductFactors::Tf32x3;
  const GpuFacts& card;
};

struct SteppedChoice {
  bool pays = false;
  double step_ns = 0, walk_ns = 0;  ///< what a step of all sequences is thought to take
  std::string reason;               ///< "a step is 6 kernels, which take 31 us where blocks take 190"
};

SteppedChoice choose_stepped(const SteppedRequest& request);

}  // namespace cellc
