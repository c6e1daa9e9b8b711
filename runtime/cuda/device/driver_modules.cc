#include "runtime/cuda/device/driver_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/cuda/device/kernel_cache.h"
#include "runtime/data/threads.h"

namespace cellc {
namespace {

constexpr std::int64_t kSharedWithoutOptIn = 48 << 10;  // static and dynamic together

/// Blocks of a cluster that every card with clusters has.
constexpr int kPortableCluster = 8;

CudaLaunchAttribute cluster_of(unsigned blocks) {
  CudaLaunchAttribute attribute;
  attribute.id = kCudaClusterDimension;
  attribute.value.cluster[0] = blocks;
  attribute.value.cluster[1] = attribute.value.cluster[2] = 1;
  return attribute;
}

}  // namespace

struct DriverModules::Loaded {
  std::shared_ptr<const DriverContext> context;
  Driver::Handle handle = nullptr;
  std::mutex mutex;
  std::map<std::uint64_t, std::int64_t> opted_in;  ///< dynamic shared memory, by function
  std::map<std::uint64_t, bool> large_clusters;    ///< by function: whether the driver lets it have them

  ~Loaded() {  // on a lost context this fails, and does no harm
    if (!handle) return;
    const DriverContext::Current current(*context);
    context->driver->module_unload(handle);
  }
};

DriverModules::DriverModules(std::shared_ptr<const DriverContext> context, const GpuFacts& facts,
                             std::shared_ptr<const Nvrtc> nvrtc, const std::string& cache_directory)
    : context_(std::move(context)),
      driver_(*context_->driver),
      facts_(facts),
      nvrtc_(std::move(nvrtc)),
      cache_(cache_directory),
      starts_early_(facts_.major >= 9 && driver_.version() >= 12030 && architecture() >= 90) {}

DriverModules::Loaded& DriverModules::loaded(const std::shared_ptr<void>& module) {
  if (!module) throw std::logic_error("a GPU module or function was used before it was loaded");
  return *static_cast<Loaded*>(module.get());
}

std::pair<std::string, CompiledKind> DriverModules::compiled_for() const {
  const int best = architecture();
  return {fmt::format("sm_{}", best),
          best == facts_.major * 10 + facts_.minor ? CompiledKind::Cubin : CompiledKind::Ptx};
}

GpuModule DriverModules::load(const GpuSource& source) {
  const auto [architecture, kind] = compiled_for();
  auto module = std::make_shared<Loaded>();
  std::optional<CompiledKernels> ahead;
  {
    const std::lock_guard lock(mutex_);
    if (auto known = ahead_.extract(kernel_key(*nvrtc_, source, architecture, kind))) ahead = std::move(known.mapped());
  }
  const CompiledKernels kernels = cached_or_compiled(
      *nvrtc_, source, architecture, kind, cache_, [&](const std::string& code) { load_code(source, code, *module); },
      std::move(ahead));
  GpuModule result;
  result.module = module;
  result.compile_ms = kernels.compile_ms;
  result.cache = kernels.cache;
  return result;
}

double DriverModules::compile_ahead(const std::vector<GpuSource>& sources) {
  const auto target = compiled_for();
  std::map<ObjectKey, const GpuSource*> missing;
  for (const GpuSource& source : sources) {
    const ObjectKey key = kernel_key(*nvrtc_, source, target.first, target.second);
    const std::lock_guard lock(mutex_);
    if (!ahead_.contains(key) && !missing.contains(key) && !cache_.find(key)) missing[key] = &source;
  }
  if (missing.size() < 2) return 0;  // load() takes as long
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::pair<ObjectKey, const GpuSource*>> work(missing.begin(), missing.end());
  run_on_cores(static_cast<int>(work.size()), [&](int i) {
    const auto& [key, source] = work[static_cast<std::size_t>(i)];
    try {
      CompiledKernels made = nvrtc_->compile(*source, target.first, target.second);
      made.compile_ms = 0;  // which are these, all together
      const std::lock_guard lock(mutex_);
      ahead_.emplace(key, std::move(made));
    } catch (const DeviceError&) {
      // In its turn load() says what is wrong with it.
    }
  });
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

GpuFunction DriverModules::function(const GpuModule& module, const std::string& name) const {
  const DriverContext::Current current = context_->enter();
  Driver::Handle function = nullptr;
  check(driver_.module_get_function(&function, loaded(module.module).handle, name.c_str()),
        [&] { return fmt::format("finding the kernel {}", name); });
  return {module.module, reinterpret_cast<std::uint64_t>(function)};
}

GpuFunctionFacts DriverModules::facts(const GpuFunction& function) const {
  const DriverContext::Current current = context_->enter();
  GpuFunctionFacts facts;
  facts.registers = attribute(function, kCudaRegisters);
  facts.static_shared = attribute(function, kCudaStaticShared);
  facts.local_bytes = attribute(function, kCudaLocalBytes);
  facts.max_threads = attribute(function, kCudaMaxThreads);
  return facts;
}

int DriverModules::resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) const {
  const DriverContext::Current current = context_->enter();
  if (!opt_in(function, shared_bytes)) return 0;
  int blocks = 0;
  check(driver_.occupancy(&blocks, handle_of(function.handle), threads, static_cast<std::size_t>(shared_bytes)),
        [&] { return fmt::format("counting resident blocks of {} threads", threads); });
  return blocks;
}

int DriverModules::resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes,
                                     int blocks) const {
  if (facts_.major < 9 || architecture() < 90) return 0;
  const DriverContext::Current current = context_->enter();
  if (!opt_in(function, shared_bytes) || !allow_cluster(function, blocks)) return 0;
  CudaLaunchAttribute attribute = cluster_of(static_cast<unsigned>(blocks));
  CudaLaunchConfig config;
  config.grid[0] = static_cast<unsigned>(blocks);
  config.block[0] = static_cast<unsigned>(threads);
  config.shared_bytes = static_cast<unsigned>(shared_bytes);
  config.attributes = &attribute;
  config.attribute_count = 1;
  int clusters = 0;
  const int result = driver_.active_clusters(&clusters, handle_of(function.handle), &config);
  if (!loses_context(result) && result != kCudaSuccess) return 0;  // the card has no clusters of that size
  check(result, [&] { return fmt::format("counting resident clusters of {} blocks", blocks); });
  return clusters;
}

void DriverModules::launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) {
  const DriverContext::Current current = context_->enter();
  if (!opt_in(function, launch.shared_bytes)) {
    throw DeviceError(fmt::format("{}: a kernel asks for {} bytes of shared memory a block; the card gives {}",
                                  facts_.name, launch.shared_bytes, facts_.shared_per_block));
  }
  CudaLaunchConfig config;
  CudaLaunchAttribute attributes[3];
  config.attributes = attributes;
  const auto with = [&](CudaLaunchAttributeId id) {
    attributes[config.attribute_count].id = id;
    attributes[config.attribute_count++].value.on = 1;
  };
  const GpuDim &grid = launch.grid, &block = launch.block;
  config.grid[0] = grid.x, config.grid[1] = grid.y, config.grid[2] = grid.z;
  config.block[0] = block.x, config.block[1] = block.y, config.block[2] = block.z;
  config.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  config.stream = handle_of(launch.stream);
  if (launch.cooperative) with(kCudaCooperative);
  if (launch.cluster > 1) {
    allow_cluster(function, static_cast<int>(launch.cluster));
    attributes[config.attribute_count++] = cluster_of(launch.cluster);
  }
  const auto queue = [&] { return driver_.launch_kernel_ex(&config, handle_of(function.handle), arguments, nullptr); };
  const bool early = launch.early && starts_early_;
  if (early) with(kCudaProgrammaticSerialization);
  int result = queue();
  if (early && (result == kCudaNotSupported || result == kCudaInvalidValue)) {
    // A driver may not know it together with what else is asked for. Then nothing begins early.
    --config.attribute_count;
    result = queue();
    if (result == kCudaSuccess) starts_early_ = false;
  }
  check(result, [&] {
    return fmt::format("launching {}x{}x{} blocks of {}x{}x{} threads with {} bytes of shared memory{}", grid.x, grid.y,
                       grid.z, block.x, block.y, block.z, launch.shared_bytes,
                       launch.cooperative   ? ", all resident"
                       : launch.cluster > 1 ? fmt::format(", in clusters of {}", launch.cluster)
                                            : std::string());
  });
}

void DriverModules::load_code(const GpuSource& source, const std::string& code, Loaded& module) const {
  const DriverContext::Current current = context_->enter();
  char log[4096] = "";  // of the driver's compiler, where the code is PTX
  int options[] = {kCudaErrorLog, kCudaErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  Driver::Handle handle = nullptr;
  check(driver_.module_load_data_ex(&handle, code.c_str(), 2, options, values), [&] {
    const std::string_view line = std::string_view(log).substr(0, std::string_view(log).find('\n'));
    return fmt::format("loading {} as {} compiled it{}{}", source.name, nvrtc_->identity(), line.empty() ? "" : ": ",
                       line);
  });
  module.context = context_;
  module.handle = handle;
}

/// What kernels are compiled for: a card that is younger than this NVRTC gets PTX of the latest architecture below
/// it.
int DriverModules::architecture() const {
  int best = 0;
  for (const int one : nvrtc_->architectures())
    best = std::max(best, one <= facts_.major * 10 + facts_.minor ? one : 0);
  return best;
}

int DriverModules::attribute(const GpuFunction& function, CudaFunctionAttribute which) const {
  int value = 0;
  check(driver_.func_get_attribute(&value, which, handle_of(function.handle)),
        [&] { return fmt::format("reading attribute {} of a kernel", static_cast<int>(which)); });
  return value;
}

/// Lets a kernel have so much dynamic shared memory. False: the card has less.
bool DriverModules::opt_in(const GpuFunction& function, std::int64_t bytes) const {
  if (bytes <= 0) return bytes == 0;
  if (bytes > facts_.shared_per_block) return false;
  Loaded& module = loaded(function.module);
  const std::lock_guard lock(module.mutex);
  std::int64_t& granted = module.opted_in[function.handle];
  if (bytes <= granted) return true;
  const std::int64_t fixed = attribute(function, kCudaStaticShared);
  if (fixed + bytes > facts_.shared_per_block) return false;
  if (fixed + bytes > kSharedWithoutOptIn) {
    check(driver_.func_set_attribute(handle_of(function.handle), kCudaMaxDynamicShared, static_cast<int>(bytes)),
          [&] { return fmt::format("asking for {} bytes of shared memory", bytes); });
  }
  granted = bytes;
  return true;
}

/// Lets a kernel have clusters of so many blocks. False: the driver does not.
bool DriverModules::allow_cluster(const GpuFunction& function, int blocks) const {
  if (blocks <= kPortableCluster) return true;
  Loaded& module = loaded(function.module);
  const std::lock_guard lock(module.mutex);
  const auto [it, is_new] = module.large_clusters.try_emplace(function.handle);
  if (is_new)
    it->second = driver_.func_set_attribute(handle_of(function.handle), kCudaLargeClusters, 1) == kCudaSuccess;
  return it->second;
}

}  // namespace cellc
