#include "runtime/cuda/call/viewed_call.h"

#include <algorithm>

namespace cellc {

namespace {

std::size_t bytes_of(const CallView& view) {
  std::int64_t count = 1;
  for (const std::int64_t n : view.lengths) count *= n;
  return static_cast<std::size_t>(count) * size_of(view.kept);
}
bool has_views(std::span<const CallArray> arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const CallArray& a) { return a.view; });
}

}  // namespace

bool ViewedCall::knows(std::span<const CallArray> arrays, GpuAddress status) const {
  if (!has_views(arrays)) return inner_->knows(arrays, status);
  if (packed_.size() < arrays.size()) return false;
  std::vector<CallArray> placed(arrays.begin(), arrays.end());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].view) continue;
    const CallView& view = *arrays[i].view;
    const std::size_t bytes = bytes_of(view);
    if (packed_[i].bytes() < bytes || (bytes > 0 && !copies_.knows(view.kept, view.given))) return false;
    placed[i] = {packed_[i].address(), 0, 0, nullptr};
  }
  return inner_->knows(placed, status);
}

void ViewedCall::rehearse(std::span<const CallArray> arrays, GpuAddress status) {
  if (!has_views(arrays)) return inner_->rehearse(arrays, status);
  packed_.resize(arrays.size());
  if (!knows(arrays, status)) {
    CallGpu::Rehearsal rehearsal(gpu_);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].view) gpu_.reserve(packed_[i], bytes_of(*arrays[i].view));
    move(arrays, false, 0);
    move(arrays, true, 0);
    rehearsal.finish();
  }
  placed_.assign(arrays.begin(), arrays.end());
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].view) placed_[i] = {packed_[i].address(), 0, 0, nullptr};
  inner_->rehearse(placed_, status);
}

void ViewedCall::queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) {
  rehearse(arrays, status);
  if (!has_views(arrays)) return inner_->queue(arrays, stream, status);
  move(arrays, false, stream);
  inner_->queue(placed_, stream, status);
  move(arrays, true, stream);
}

void ViewedCall::move(std::span<const CallArray> arrays, bool written, GpuStream stream) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].view || arrays[i].view->written != written) continue;
    const CallView& view = *arrays[i].view;
    const std::vector<std::int64_t> dense = dense_strides(view.lengths);
    const ViewCopies::Place own{packed_[i].address(), view.kept, dense},
        given{arrays[i].data, view.given, view.strides};
    if (written)
      copies_.copy(given, own, view.lengths, stream);
    else
      copies_.copy(own, given, view.lengths, stream);
  }
}

}  // namespace cellc
