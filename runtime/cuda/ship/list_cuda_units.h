#pragma once
// The CUDA C++ that a run on a GPU compiles, for readers and for compilers elsewhere. Needs
// neither a GPU nor NVRTC.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/derive_hooks.h"
#include "compiler/syntax/source.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

struct CudaUnit {
  std::string what;  ///< "stage {h}: segmented, …"
  GpuSource source;
};

/// Steps that a unit is chosen for where nobody says otherwise.
constexpr std::int64_t kUnitSteps = 4096;

/// Whole translation units, in the order in which they run, as the planner chooses them for a card of that
/// architecture ("sm_90"), one sequence of `steps`, and axes of 256 where `dims` says nothing else. Throws
/// UsageError where `dims` names no axis of the cell, RequestError where it disagrees with the header.
std::vector<CudaUnit> list_cuda_units(const CellGraph& cell, const Structure& structure, Dtype dtype,
                                      const SourceText* source, const std::string& architecture,
                                      const std::map<std::string, std::int64_t>& dims = {},
                                      std::int64_t steps = kUnitSteps, const DeriveHooks& derive = {});

}  // namespace cellc
