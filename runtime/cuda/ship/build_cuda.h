#pragma once
// Compiles a cell ahead of time for GPUs: to CUDA source, PTX or machine code, each with its header.
// The result depends neither on us nor on NVRTC.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_llvm/print_header.h"
#include "compiler/derive/derive_hooks.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"
#include "runtime/data/library_parts.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

enum class CudaTarget { Source, Ptx, Cubin, Library };

struct CudaBuildRequest {
  CudaTarget target = CudaTarget::Source;
  std::string file;                        ///< name of what is built, for the header
  std::string name;                        ///< what every name begins with; empty: build_name
  std::vector<std::string> architectures;  ///< "sm_90"; empty: sm_80, and for machine code sm_90 too
  Dtype dtype = Dtype::F32;
  std::map<std::string, std::int64_t> dims;  ///< lengths of axes that are the same in every call
  std::optional<std::int64_t> length;        ///< steps, if they are
  Strategy solver = Strategy::Auto;
  Products products = Products::Tf32x3;
  DeriveHooks derive = {};
  bool backward = false;       ///< gradients too
  bool deterministic = false;  ///< calls have the same bits each time
};

struct BuiltCuda {
  std::string bytes, header;
  std::optional<LibraryParts> library;  ///< of CudaTarget::Library, and no bytes: runtime/build compiles it
  std::string about;
  std::vector<std::string> functions, kernels, plan, architectures;
  std::vector<ArrayFacts> forward, backward;  ///< arrays of calls
  std::vector<std::string> lengths;           ///< members of their struct
};

/// Throws UsageError, RequestError, and DeviceError where NVRTC is missing or fails.
BuiltCuda build_cuda(const CellGraph& cell, const Structure& structure, const CudaBuildRequest& request);

}  // namespace cellc
