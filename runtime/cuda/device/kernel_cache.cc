#include "runtime/cuda/device/kernel_cache.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"

namespace cellc {

ObjectKey kernel_key(const Nvrtc& nvrtc, const GpuSource& source, const std::string& architecture, CompiledKind kind) {
  ObjectIdentity identity;
  identity.kind = kind == CompiledKind::Cubin ? "cubin" : "ptx";
  identity.text = source.text;
  identity.platform = "cuda";
  identity.processor = architecture;
  // The name too: line information and __FILE__ put it into the code.
  identity.options = fmt::format("{}:{}", source.name.size(), source.name);
  for (const std::string& option : nvrtc.options(source, architecture, kind))
    identity.options += fmt::format(" {}:{}", option.size(), option);
  identity.compiler = nvrtc.identity();
  return object_key(identity);
}

CompiledKernels cached_or_compiled(const Nvrtc& nvrtc, const GpuSource& source, const std::string& architecture,
                                   CompiledKind kind, const ObjectCache& cache,
                                   const std::function<void(const std::string& code)>& use,
                                   std::optional<CompiledKernels> ahead) {
  const ObjectKey key = kernel_key(nvrtc, source, architecture, kind);
  const std::optional<std::vector<char>> object = ahead ? std::nullopt : cache.find(key);
  if (object) {
    CompiledKernels kernels;
    kernels.code.assign(object->begin(), object->end());
    kernels.cache = CacheState::Hit;
    try {
      use(kernels.code);
      return kernels;
    } catch (const DeviceError&) {
      // Cached code that does not load is no better than none.
    }
  }
  CompiledKernels kernels = ahead ? std::move(*ahead) : nvrtc.compile(source, architecture, kind);
  use(kernels.code);
  if (cache.store(key, kernels.code)) kernels.cache = CacheState::Miss;
  return kernels;
}

}  // namespace cellc
