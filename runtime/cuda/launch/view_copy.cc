#include "runtime/cuda/launch/view_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/build/kernel_templates.h"

namespace cellc {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kBlocks = 16;  ///< of a multiprocessor

// ViewCopy of view_copy.cuh.
struct ViewArguments {
  GpuAddress to, from;
  std::int64_t count, rank;
  std::int64_t lengths[kMostViewAxes], to_strides[kMostViewAxes], from_strides[kMostViewAxes];
};

std::string kernel_of(Dtype to, Dtype from) {
  if (to == from) return fmt::format("cellc_view_{}", size_of(to));
  return fmt::format("cellc_view_{}_{}", from == Dtype::F16 ? "f16" : "bf16", size_of(to));
}

}  // namespace

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> strides(lengths.size(), 1);
  for (std::size_t i = lengths.size(); i-- > 1;) strides[i - 1] = strides[i] * lengths[i];
  return strides;
}

bool ViewCopies::knows(Dtype to, Dtype from) const { return kernels_.contains(kernel_of(to, from)); }

void ViewCopies::copy(const Place& to, const Place& from, const std::vector<std::int64_t>& lengths, GpuStream stream) {
  ViewArguments a{to.data, from.data, 1, 0, {}, {}, {}};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    a.count *= lengths[i];
    if (lengths[i] == 1) continue;
    // Axes that lie within each other on both sides are one.
    const auto last = static_cast<std::size_t>(a.rank) - 1;
    if (a.rank > 0 && a.to_strides[last] == to.strides[i] * lengths[i] &&
        a.from_strides[last] == from.strides[i] * lengths[i]) {
      a.lengths[last] *= lengths[i];
      a.to_strides[last] = to.strides[i];
      a.from_strides[last] = from.strides[i];
      continue;
    }
    if (a.rank == static_cast<std::int64_t>(kMostViewAxes))
      throw std::logic_error("a view has more axes than copies take");
    a.lengths[a.rank] = lengths[i];
    a.to_strides[a.rank] = to.strides[i];
    a.from_strides[a.rank] = from.strides[i];
    ++a.rank;
  }
  if (a.count == 0) return;
  if (!module_) {
    std::string text = storage_macro(Dtype::F32);
    for (const char* part : {"preamble.cuh", "view_copy.cuh"})
      text += fmt::format("#line 1 \"{}\"\n{}\n", part, kernel_template(part));
    module_ = gpu_.load({"view_copy.cu", std::move(text), {}});
  }
  const std::string name = kernel_of(to.dtype, from.dtype);
  GpuFunction& function = kernels_[name];
  if (!function) function = gpu_.function(module_, name);
  GpuLaunch launch;
  launch.grid.x = static_cast<unsigned>(
      std::clamp<std::int64_t>((a.count + kThreads - 1) / kThreads, 1, kBlocks * gpu_.facts().multiprocessors));
  launch.block.x = kThreads;
  launch.stream = stream;
  launch.early = true;
  void* argument = &a;
  gpu_.launch(function, launch, &argument);
}

}  // namespace cellc
