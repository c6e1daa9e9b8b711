#pragma once
// What stands on the device for arrays that a call is not given: zeros, starts and defaults that the cell declares.
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compiler/derive/derived_cell.h"
#include "runtime/cuda/call/call_gpu.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/strided_copy.h"
#include "runtime/data/call_shape.h"

namespace cellc {

class AbsentArrays {
 public:
  /// All but `kept`, the storage of kernels, must outlive it. Constants are there from now on.
  AbsentArrays(CallGpu& gpu, const CellGraph& cell, const CallLayout& layout, const CallShape& shape,
               const std::map<AxisId, std::int64_t>& sizes, Dtype dtype, Dtype kept);

  /// What stands for a field; 0: nothing does.
  GpuAddress operator[](std::size_t field) const { return fields_[field].standing.address(); }
  /// Queues what follows from params: all of it where any is wanted. `values`: by symbol, where params lie.
  void compute(std::span<const CallArray> arrays, const std::vector<GpuAddress>& values, StridedCopies& moves,
               GpuStream stream);
  double compile_ms() const { return program_ ? program_->compile_ms() : 0; }

 private:
  struct Field {
    GpuBuffer standing;
    int computed = -1;  ///< out of the cell that computes it
    std::int64_t part = 0;
  };
  void stand(Field& field, const CallField& of, Dtype kept);
  void declare(Field& field, const CallField& of);

  CallGpu& gpu_;
  const CellGraph& cell_;
  const CallShape& shape_;
  const std::map<AxisId, std::int64_t>& sizes_;
  const Dtype dtype_, arithmetic_;
  std::vector<Field> fields_;
  std::vector<int> symbols_;  ///< whose start or default follows from params
  DerivedCell computing_;     ///< and what computes them
  std::optional<NestProgram> program_;
  std::vector<GpuBuffer> made_;
  GpuBuffer one_row_;  ///< offsets {0, 1}
};

}  // namespace cellc
