#pragma once
// Gradients of params on a GPU: sums over all rows (kernels-templates/gradient/step_sums.cuh).
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// The kernels of a backward run beside the adjoint, compiled when they are first launched. Arrays hold `real`, f32 or
/// f64.
class GradientKernels {
 public:
  GradientKernels(Gpu& gpu, Dtype real) : gpu_(gpu), real_(real) {}
  Gpu& gpu() const { return gpu_; }
  Dtype real() const { return real_; }
  /// What products over steps multiply in from now on; f64 stays what it is.
  void multiply_in(ProductFactors factors);
  ProductFactors factors() const { return factors_; }
  /// `block` threads, so many blocks.
  void launch(const char* kernel, GpuDim grid, unsigned block, std::int64_t shared_bytes, void* argument,
              GpuStream stream);
  /// One thread a piece of work, or several pieces where there are more than the card has threads.
  void launch_each(const char* kernel, std::int64_t count, void* argument, GpuStream stream);

 private:
  Gpu& gpu_;
  const Dtype real_;
  ProductFactors factors_ = ProductFactors::Real;
  GpuModule module_;
  std::map<std::string, GpuFunction> functions_;
};

/// One sum, whose tables are on the device.
class StepSumOnGpu {
 public:
  /// `sum`: shapes only; its arrays are not looked at. `rows`: of the run.
  StepSumOnGpu(GradientKernels& kernels, const StepSum& sum, std::int64_t rows);
  /// Adds to `into`, over the param's index, or `assigns` it. Queues; waits for nothing.
  void launch(GpuAddress left, GpuAddress right, GpuAddress into, bool assigns, GpuStream stream);

 private:
  GpuAddress table(const std::vector<std::int64_t>& values);

  GradientKernels& kernels_;
  /// Offsets by position, four of them a copy of 16 bytes each.
  static bool runs(const std::vector<std::int64_t>& offsets);
  void cut_rows();

  bool product_ = false;
  ProductTemplate form_;  ///< of products
  std::int64_t tile_ = 0, stages_ = 0;
  bool left_runs_ = false, right_runs_ = false;
  std::int64_t rows_, left_row_ = 0, right_row_ = 0;
  std::int64_t m_ = 1, n_ = 1, batch_ = 1, summed_ = 1, repeated_ = 1, parts_ = 1;
  std::vector<GpuBuffer> tables_;
  GpuAddress m_left_ = 0, m_right_ = 0, m_into_ = 0, n_right_ = 0, n_into_ = 0, batch_left_ = 0, batch_right_ = 0,
             batch_into_ = 0, summed_left_ = 0, summed_right_ = 0, repeated_into_ = 0;
  GpuBuffer partial_;
};

}  // namespace cellc
