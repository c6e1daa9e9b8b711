#pragma once
// Compiled kernels kept on disk between processes: runtime/data/object_cache.h over NVRTC.
#include <functional>
#include <optional>
#include <string>

#include "runtime/cuda/device/nvrtc.h"
#include "runtime/data/object_cache.h"

namespace cellc {

ObjectKey kernel_key(const Nvrtc& nvrtc, const GpuSource& source, const std::string& architecture, CompiledKind kind);

/// The kernels from the cache, else from the compiler. `use` loads the code: cached code that it throws on
/// is compiled anew, and only code that it accepts is kept. No failure of the cache is an error. `ahead`: what the
/// compiler made of it already.
CompiledKernels cached_or_compiled(const Nvrtc& nvrtc, const GpuSource& source, const std::string& architecture,
                                   CompiledKind kind, const ObjectCache& cache,
                                   const std::function<void(const std::string& code)>& use,
                                   std::optional<CompiledKernels> ahead = std::nullopt);

}  // namespace cellc
