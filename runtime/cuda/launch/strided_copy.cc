#include "runtime/cuda/launch/strided_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/data/bind.h"

namespace cellc {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kBlocks = 16;  ///< of a multiprocessor

// StridedCopy and HistoryMove of strided_copy.cuh.
struct MoveArguments {
  GpuAddress to, from;
  std::int64_t to_batch, to_row, from_batch, from_row, sequences, steps, entries;
};
struct HistoryArguments {
  GpuAddress to, before, rows;
  std::int64_t batch, row;
  GpuAddress offsets;
  std::int64_t sequences, depth, entries, reverse;
};

bool has_no_gaps(const PlacedRows& rows, std::int64_t sequences, std::int64_t steps, std::int64_t entries) {
  return (steps <= 1 || rows.row == entries) && (sequences <= 1 || rows.batch == steps * entries);
}

}  // namespace

void StridedCopies::launch(const char* kernel, std::int64_t threads, void** arguments, GpuStream stream) {
  if (!module_) {
    std::string text = storage_macro(storage_);
    for (const char* part : {"preamble.cuh", "strided_copy.cuh"})
      text += fmt::format("#line 1 \"{}\"\n{}\n", part, kernel_template(part));
    module_ = gpu_.load({"strided_copy.cu", std::move(text), {}});
  }
  GpuLaunch launch;
  launch.grid.x = static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kBlocks * gpu_.facts().multiprocessors));
  launch.block.x = kThreads;
  launch.stream = stream;
  launch.early = true;
  GpuFunction& function = kernels_[kernel];
  if (!function) function = gpu_.function(module_, kernel);
  gpu_.launch(function, launch, arguments);
}

void StridedCopies::move(const PlacedRows& to, Dtype to_type, const PlacedRows& from, Dtype from_type,
                         std::int64_t sequences, std::int64_t steps, std::int64_t entries, GpuStream stream) {
  const std::int64_t count = sequences * steps * entries;
  if (count == 0 || (to.data == from.data && to_type == from_type)) return;
  if (to_type == from_type && has_no_gaps(to, sequences, steps, entries) &&
      has_no_gaps(from, sequences, steps, entries)) {
    gpu_.copy(to.data, from.data, static_cast<std::size_t>(count) * size_of(to_type), stream);
    return;
  }
  const char* const kernel = to_type == from_type  ? (to_type == storage_ ? "cellc_move_stored" : "cellc_move_real")
                             : to_type == storage_ ? "cellc_narrow"
                                                   : "cellc_widen";
  MoveArguments a{to.data, from.data, to.batch, to.row, from.batch, from.row, sequences, steps, entries};
  void* argument = &a;
  launch(kernel, count, &argument, stream);
}

void StridedCopies::move_history(const History& h, GpuStream stream) {
  const std::int64_t count = h.sequences * h.depth * h.entries;
  if (count == 0) return;
  HistoryArguments a{h.to,      h.before,    h.rows.data, h.rows.batch, h.rows.row,
                     h.offsets, h.sequences, h.depth,     h.entries,    h.reverse};
  void* argument = &a;
  launch("cellc_history", count, &argument, stream);
}

void StridedCopies::status(GpuAddress status, GpuAddress first_bad, std::int64_t sequences, bool adds,
                           GpuStream stream) {
  int count = static_cast<int>(sequences), also = adds;
  void* arguments[] = {&status, &first_bad, &count, &also};
  launch("cellc_status", sequences, arguments, stream);
}

}  // namespace cellc
