#include "runtime/cuda/launch/step_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels-templates/gradient/gradient_arguments.cuh"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/gradient/sum_axes.h"

namespace cellc {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kBlocks = 16;      ///< of a multiprocessor
constexpr std::int64_t kLeastRows = 256;  ///< of a part: fewer cost more in sums of parts than they spread
/// Of a part on tensor cores, whose sums of parts are cheaper to make than to add up.
constexpr std::int64_t kLeastTensorRows = 512;
constexpr std::int64_t kMostParts = 512, kMostGroups = 65535;  ///< the latter is what a grid may have that way

std::int64_t rounded_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

}  // namespace

void GradientKernels::multiply_in(ProductFactors factors) {
  if (real_ == Dtype::F64 || factors == factors_) return;
  if (module_) gpu_.synchronize(0);  // its kernels may still run
  functions_.clear();
  module_ = {};
  factors_ = factors;
}

void GradientKernels::launch(const char* kernel, GpuDim grid, unsigned block, std::int64_t shared_bytes, void* argument,
                             GpuStream stream) {
  if (!module_) {
    std::string text = storage_macro(real_);
    const ProductTemplate product = product_template(factors_, real_);
    text += product.macro;
    std::vector<const char*> parts{"preamble.cuh", "gradient_arguments.cuh", "shifted_rows.cuh",
                                   "scaled_cotangents.cuh", "step_sums.cuh"};
    if (product.row_bytes > 0)
      parts.insert(parts.end(), {"tensor_parts.cuh", "tensor_tile.cuh", "step_sums_tensor.cuh"});
    for (const char* part : parts) text += fmt::format("#line 1 \"{}\"\n{}\n", part, kernel_template(part));
    module_ = gpu_.load({"gradient.cu", std::move(text), {}});
  }
  GpuFunction& function = functions_[kernel];
  if (!function) function = gpu_.function(module_, kernel);
  GpuLaunch launch;
  launch.grid = grid;
  launch.block.x = block;
  launch.shared_bytes = shared_bytes;
  launch.stream = stream;
  launch.early = true;
  gpu_.launch(function, launch, &argument);
}

void GradientKernels::launch_each(const char* kernel, std::int64_t count, void* argument, GpuStream stream) {
  if (count == 0) return;
  const std::int64_t blocks =
      std::clamp<std::int64_t>(rounded_up(count, kThreads), 1, kBlocks * gpu_.facts().multiprocessors);
  launch(kernel, {static_cast<unsigned>(blocks), 1, 1}, kThreads, 0, argument, stream);
}

StepSumOnGpu::StepSumOnGpu(GradientKernels& kernels, const StepSum& sum, std::int64_t rows)
    : kernels_(kernels), rows_(rows) {
  const SumAxes axes = sum_axes(sum);
  const auto entries = [&](const std::vector<AxisId>& index) {
    std::int64_t count = 1;
    for (const AxisId a : index) count *= sum.sizes.at(sum.adjoint.graph.axis(a).extent_of);
    return count;
  };
  left_row_ = entries(sum.product.left.index);
  right_row_ = sum.product.right ? entries(sum.product.right->index) : 0;
  product_ = sum.product.right && !axes.left.empty() && !axes.right.empty();
  std::vector<AxisStrides> along_m = axes.left, along_n = axes.right, along_batch = axes.shared;
  if (!product_) {
    along_m = axes.shared;
    along_m.insert(along_m.end(), axes.left.begin(), axes.left.end());
    along_m.insert(along_m.end(), axes.right.begin(), axes.right.end());
    along_n.clear();
    along_batch.clear();
  }
  m_ = count_of(along_m);
  n_ = count_of(along_n);
  batch_ = count_of(along_batch);
  summed_ = count_of(axes.summed);
  repeated_ = count_of(axes.repeated);
  m_left_ = table(offsets(along_m, &AxisStrides::left));
  m_right_ = table(offsets(along_m, &AxisStrides::right));
  m_into_ = table(offsets(along_m, &AxisStrides::into));
  n_right_ = table(offsets(along_n, &AxisStrides::right));
  n_into_ = table(offsets(along_n, &AxisStrides::into));
  batch_left_ = table(offsets(along_batch, &AxisStrides::left));
  batch_right_ = table(offsets(along_batch, &AxisStrides::right));
  batch_into_ = table(offsets(along_batch, &AxisStrides::into));
  summed_left_ = table(offsets(axes.summed, &AxisStrides::left));
  summed_right_ = table(offsets(axes.summed, &AxisStrides::right));
  repeated_into_ = table(offsets(axes.repeated, &AxisStrides::into));

  form_ = product_template(kernels_.factors(), kernels_.real());
  const auto together = [](std::vector<std::int64_t> offsets, std::int64_t row) {
    offsets.push_back(row);
    return std::all_of(offsets.begin(), offsets.end(), [](std::int64_t o) { return o % 4 == 0; });
  };
  left_runs_ = runs(offsets(along_m, &AxisStrides::left)) &&
               together(offsets(along_batch, &AxisStrides::left), left_row_) &&
               together(offsets(axes.summed, &AxisStrides::left), 0);
  right_runs_ = runs(offsets(along_n, &AxisStrides::right)) &&
                together(offsets(along_batch, &AxisStrides::right), right_row_) &&
                together(offsets(axes.summed, &AxisStrides::right), 0);
  cut_rows();
  partial_ = GpuBuffer(kernels_.gpu(), static_cast<std::size_t>(parts_ * batch_ * m_ * n_) * size_of(kernels_.real()));
}

bool StepSumOnGpu::runs(const std::vector<std::int64_t>& offsets) {
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (i % 4 == 0 ? offsets[i] % 4 != 0 : offsets[i] != offsets[i - 1] + 1) return false;
  return true;
}

/// Tiles, and how many parts the rows are cut into, which follow from the shape, the card and what is multiplied in.
void StepSumOnGpu::cut_rows() {
  const GpuFacts& card = kernels_.gpu().facts();
  if (!product_ || form_.row_bytes == 0) {
    tile_ = product_ ? kSumTile : kColumnThreads;
    const std::int64_t blocks =
        product_ ? rounded_up(m_, tile_) * rounded_up(n_, tile_) * batch_ : rounded_up(m_, tile_);
    const std::int64_t wanted = rounded_up(8 * card.multiprocessors, std::max<std::int64_t>(1, blocks));
    parts_ = std::clamp<std::int64_t>(std::min(wanted, rows_ / kLeastRows), 1, kMostParts);
    return;
  }
  tile_ = std::min(m_, n_) > kSumTile ? 2 * kSumTile : kSumTile;
  const std::int64_t stage = 2 * tile_ * form_.row_bytes;
  stages_ = std::clamp<std::int64_t>(card.shared_per_block / form_.blocks / stage, 2, 4);
  // As many parts as fill the card once or a few times, with as little as may be left over of the last time.
  const std::int64_t blocks = std::max<std::int64_t>(1, rounded_up(m_, tile_) * rounded_up(n_, tile_) * batch_),
                     places = static_cast<std::int64_t>(form_.blocks) * card.multiprocessors;
  const std::int64_t most = std::clamp<std::int64_t>(rows_ / kLeastTensorRows, 1, kMostParts);
  double best = 0;
  for (std::int64_t parts = 1; parts <= most && blocks * parts <= std::max(blocks, 2 * places); ++parts) {
    const std::int64_t all = blocks * parts;
    const double used = static_cast<double>(all) / static_cast<double>(rounded_up(all, places) * places);
    if (used > best + 0.05) {
      best = used;
      parts_ = parts;
    }
  }
}

GpuAddress StepSumOnGpu::table(const std::vector<std::int64_t>& values) {
  tables_.emplace_back(kernels_.gpu(), values.size() * sizeof(std::int64_t));
  if (!values.empty()) kernels_.gpu().copy_in(tables_.back().address(), values.data(), tables_.back().bytes(), 0);
  return tables_.back().address();
}

void StepSumOnGpu::launch(GpuAddress left, GpuAddress right, GpuAddress into, bool assigns, GpuStream stream) {
  const std::int64_t count = batch_ * m_ * n_;
  if (count == 0 || repeated_ == 0) return;
  const auto at = [](GpuAddress address) { return reinterpret_cast<const long long*>(address); };
  StepSums s{};
  s.left = reinterpret_cast<const void*>(left);
  s.right = reinterpret_cast<const void*>(right);
  s.partial = reinterpret_cast<void*>(partial_.address());
  s.into = reinterpret_cast<void*>(into);
  s.assigns = assigns;
  s.rows = rows_;
  s.left_row = left_row_;
  s.right_row = right_row_;
  s.m = m_;
  s.n = n_;
  s.batch = batch_;
  s.summed = summed_;
  s.parts = parts_;
  s.repeated = repeated_;
  s.m_left = at(m_left_);
  s.m_right = at(m_right_);
  s.m_into = at(m_into_);
  s.n_right = at(n_right_);
  s.n_into = at(n_into_);
  s.batch_left = at(batch_left_);
  s.batch_right = at(batch_right_);
  s.batch_into = at(batch_into_);
  s.summed_left = at(summed_left_);
  s.summed_right = at(summed_right_);
  s.repeated_into = at(repeated_into_);
  s.tile = tile_;
  s.stages = stages_;
  s.left_runs = left_runs_;
  s.right_runs = right_runs_;
  const std::int64_t size = static_cast<std::int64_t>(size_of(kernels_.real()));
  const auto parts = static_cast<unsigned>(parts_);
  const bool on_tensor_cores = form_.row_bytes > 0;
  if (product_)
    kernels_.launch(on_tensor_cores ? "cellc_sum_products_tensor" : "cellc_sum_products",
                    {static_cast<unsigned>(rounded_up(m_, tile_) * rounded_up(n_, tile_)),
                     static_cast<unsigned>(std::min(batch_, kMostGroups)), parts},
                    kThreads,
                    on_tensor_cores ? stages_ * 2 * tile_ * form_.row_bytes : 2 * kSumDepth * kSumPitch * size, &s,
                    stream);
  else
    kernels_.launch("cellc_sum_columns", {static_cast<unsigned>(rounded_up(m_, kColumnThreads)), parts, 1}, kThreads,
                    kThreads * size, &s, stream);
  if (product_ || parts_ > 1) kernels_.launch_each("cellc_finish_sums", count, &s, stream);
}

}  // namespace cellc
