// Everything goes through the device's primary context, the one that the CUDA runtime and PyTorch use, so
// that their memory and streams are ours too. A call makes it current and leaves the thread as it was.
#include "runtime/cuda/device/gpu_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "runtime/cuda/device/kernel_cache.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

constexpr int kOldestMajor = 8;                         // Ampere: bf16, asynchronous copies
constexpr std::int64_t kSharedWithoutOptIn = 48 << 10;  // static and dynamic together

Driver::Handle handle_of(std::uint64_t number) { return reinterpret_cast<Driver::Handle>(number); }

/// The primary context, held by the GPU and by every module, whichever goes last.
class Context {
 public:
  Context(std::shared_ptr<const Driver> driver, int device, Driver::Handle context, std::string name)
      : driver(std::move(driver)), name(std::move(name)), device_(device), context_(context) {}
  ~Context() { driver->primary_release(device_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Makes the context current for a scope.
  class Current {
   public:
    explicit Current(const Context& context) : driver_(*context.driver) {
      Driver::Handle now = nullptr;
      if (driver_.ctx_get_current(&now) == kCudaSuccess && now == context.context_) return;
      pushed_ = driver_.ctx_push_current(context.context_) == kCudaSuccess;
    }
    ~Current() {
      Driver::Handle popped = nullptr;
      if (pushed_) driver_.ctx_pop_current(&popped);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    bool pushed_ = false;
  };

  /// For each call that may fail: the context is current, and refused where it is lost.
  Current enter() const {
    if (lost_)
      throw DeviceError(fmt::format("{}: the context was lost by an earlier error; only a new process helps", name));
    return Current(*this);
  }

  /// `doing()` says in words what failed.
  template <typename Doing>
  void check(int result, const Doing& doing) const {
    if (result == kCudaSuccess) return;
    // An error of a kernel shows at whatever call comes next.
    std::string message = fmt::format("{}: {}: {}", name, doing(), driver->describe(result));
    if (loses_context(result)) {
      lost_ = true;
      message += "; a kernel before it may be the cause. The context is lost; only a new process helps";
    }
    throw DeviceError(message);
  }

  const std::shared_ptr<const Driver> driver;
  const std::string name;

 private:
  int device_;
  Driver::Handle context_;
  mutable std::atomic<bool> lost_ = false;
};

/// Blocks of a cluster that every card with clusters has.
constexpr int kPortableCluster = 8;

struct LoadedModule {
  std::shared_ptr<const Context> context;
  Driver::Handle handle = nullptr;
  std::mutex mutex;
  std::map<std::uint64_t, std::int64_t> opted_in;  ///< dynamic shared memory, by function
  std::map<std::uint64_t, bool> large_clusters;    ///< by function: whether the driver lets it have them

  ~LoadedModule() {  // on a lost context this fails, and does no harm
    if (!handle) return;
    const Context::Current current(*context);
    context->driver->module_unload(handle);
  }
};

LoadedModule& loaded(const std::shared_ptr<void>& module) {
  if (!module) throw std::logic_error("a GPU module or function was used before it was loaded");
  return *static_cast<LoadedModule*>(module.get());
}

class GpuDriver final : public Gpu {
 public:
  GpuDriver(std::shared_ptr<const Context> context, int device, GpuFacts facts, std::shared_ptr<const Nvrtc> nvrtc,
            const std::string& cache_directory)
      : context_(std::move(context)),
        device_(device),
        driver_(*context_->driver),
        facts_(std::move(facts)),
        nvrtc_(std::move(nvrtc)),
        cache_(cache_directory),
        starts_early_(facts_.major >= 9 && driver_.version() >= 12030 && architecture() >= 90) {}

  ~GpuDriver() override {
    const Context::Current current(*context_);
    for (const auto& [mark, event] : marks_) driver_.event_destroy(event);
  }

  const GpuFacts& facts() const override { return facts_; }

  GpuModule load(const GpuSource& source) override {
    const int best = architecture();
    const CompiledKind kind = best == facts_.major * 10 + facts_.minor ? CompiledKind::Cubin : CompiledKind::Ptx;
    auto module = std::make_shared<LoadedModule>();
    const CompiledKernels kernels =
        cached_or_compiled(*nvrtc_, source, fmt::format("sm_{}", best), kind, cache_,
                           [&](const std::string& code) { load_code(source, code, *module); });
    GpuModule result;
    result.module = module;
    result.compile_ms = kernels.compile_ms;
    result.cache = kernels.cache;
    return result;
  }

  GpuFunction function(const GpuModule& module, const std::string& name) override {
    const Context::Current current = context_->enter();
    Driver::Handle function = nullptr;
    check(driver_.module_get_function(&function, loaded(module.module).handle, name.c_str()),
          [&] { return fmt::format("finding the kernel {}", name); });
    return {module.module, reinterpret_cast<std::uint64_t>(function)};
  }

  GpuFunctionFacts facts(const GpuFunction& function) override {
    const Context::Current current = context_->enter();
    GpuFunctionFacts facts;
    facts.registers = attribute(function, kCudaRegisters);
    facts.static_shared = attribute(function, kCudaStaticShared);
    facts.local_bytes = attribute(function, kCudaLocalBytes);
    facts.max_threads = attribute(function, kCudaMaxThreads);
    return facts;
  }

  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) override {
    const Context::Current current = context_->enter();
    if (!opt_in(function, shared_bytes)) return 0;
    int blocks = 0;
    check(driver_.occupancy(&blocks, handle_of(function.handle), threads, static_cast<std::size_t>(shared_bytes)),
          [&] { return fmt::format("counting resident blocks of {} threads", threads); });
    return blocks;
  }

  int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) override {
    if (facts_.major < 9 || architecture() < 90) return 0;
    const Context::Current current = context_->enter();
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

  GpuAddress allocate(std::size_t bytes) override {
    const Context::Current current = context_->enter();
    Driver::Address address = 0;
    const int result = driver_.mem_alloc(&address, bytes);
    if (result == kCudaOutOfMemory) {
      std::size_t free = 0, total = 0;
      driver_.mem_get_info(&free, &total);
      throw MemoryError(fmt::format("{}: no memory for {:.1f} MB: {:.1f} of {:.1f} MB are free", facts_.name,
                                    bytes * 1e-6, free * 1e-6, total * 1e-6));
    }
    check(result, [&] { return fmt::format("allocating {:.1f} MB", bytes * 1e-6); });
    return address;
  }

  void release(GpuAddress address) noexcept override {
    if (!address) return;
    const Context::Current current(*context_);
    driver_.mem_free(address);
  }

  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Context::Current current = context_->enter();
    check(driver_.memcpy_to_device(to, from, bytes, handle_of(stream)),
          [&] { return fmt::format("copying {} bytes to the GPU", bytes); });
  }

  void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    const Context::Current current = context_->enter();
    const auto doing = [&] { return fmt::format("copying {} bytes from the GPU", bytes); };
    if (bytes != 0) check(driver_.memcpy_to_host(to, from, bytes, handle_of(stream)), doing);
    check(driver_.stream_synchronize(handle_of(stream)), doing);
  }

  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Context::Current current = context_->enter();
    check(driver_.memcpy_on_device(to, from, bytes, handle_of(stream)),
          [&] { return fmt::format("copying {} bytes on the GPU", bytes); });
  }

  void zero(GpuAddress to, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Context::Current current = context_->enter();
    check(driver_.memset_bytes(to, 0, bytes, handle_of(stream)),
          [&] { return fmt::format("zeroing {} bytes", bytes); });
  }

  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override {
    const Context::Current current = context_->enter();
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
    const auto queue = [&] {
      return driver_.launch_kernel_ex(&config, handle_of(function.handle), arguments, nullptr);
    };
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
      return fmt::format("launching {}x{}x{} blocks of {}x{}x{} threads with {} bytes of shared memory{}", grid.x,
                         grid.y, grid.z, block.x, block.y, block.z, launch.shared_bytes,
                         launch.cooperative   ? ", all resident"
                         : launch.cluster > 1 ? fmt::format(", in clusters of {}", launch.cluster)
                                              : std::string());
    });
  }

  void synchronize(GpuStream stream) override {
    const Context::Current current = context_->enter();
    check(driver_.stream_synchronize(handle_of(stream)), [] { return "waiting for the GPU"; });
  }

  void record(int mark, GpuStream stream) override {
    const Context::Current current = context_->enter();
    const std::lock_guard lock(marks_mutex_);
    Driver::Handle& event = marks_[mark];
    if (!event) check(driver_.event_create(&event, 0), [] { return "making an event"; });
    check(driver_.event_record(event, handle_of(stream)), [&] { return fmt::format("setting mark {}", mark); });
  }

  double elapsed_ms(int from, int to) override {
    const Context::Current current = context_->enter();
    const Driver::Handle first = event_of(from), last = event_of(to);
    const auto doing = [&] { return fmt::format("timing from mark {} to mark {}", from, to); };
    check(driver_.event_synchronize(last), doing);
    float ms = 0;
    check(driver_.event_elapsed_time(&ms, first, last), doing);
    return ms;
  }

  std::optional<std::string> pointer_fault(GpuAddress address, std::size_t bytes) override {
    const Context::Current current = context_->enter();
    const Memory memory = memory_at(address);
    if (!memory.known) return "is memory of the host, or of nobody; expected memory of the GPU";
    if (!memory.managed && memory.type != kCudaMemoryOfDevice)
      return "is memory of the host; expected memory of the GPU";
    if (!memory.managed && memory.device != device_)
      return fmt::format("is memory of GPU {}; the kernel is for GPU {}", memory.device, device_);
    if (bytes == 0 || address + bytes <= memory.start + memory.bytes) return std::nullopt;
    // Memory that was mapped piece by piece goes on where one piece ends.
    const Memory last = memory.one_piece ? Memory() : memory_at(address + bytes - 1);
    if (last.known && (last.managed || (last.type == kCudaMemoryOfDevice && last.device == device_)))
      return std::nullopt;
    return fmt::format("takes {} bytes; the memory of the GPU there has {}", bytes,
                       memory.start + memory.bytes - address);
  }

  std::uint64_t capturing(GpuStream stream) override {
    const Context::Current current = context_->enter();
    int state = 0;
    std::uint64_t number = 0;
    // The legacy stream cannot be captured, and asking about it while another one is gives an error.
    if (stream == 0 ||
        driver_.stream_get_capture_info(handle_of(stream), &state, &number, nullptr, nullptr, nullptr) != kCudaSuccess)
      return 0;
    return state ? std::max<std::uint64_t>(1, number) : 0;
  }

  void allow_in_capture(bool allowed) override {
    thread_local std::vector<int> before;
    int mode = kCudaCaptureRelaxed;
    if (!allowed) mode = before.back(), before.pop_back();
    driver_.thread_exchange_capture_mode(&mode);
    if (allowed) before.push_back(mode);
  }

  std::uint64_t stream_number(GpuStream stream) override {
    const Context::Current current = context_->enter();
    std::uint64_t number = 0;
    check(driver_.stream_get_id(handle_of(stream), &number), [] { return "looking at the caller's stream"; });
    return number;
  }

  GpuStream make_stream() override {
    const Context::Current current = context_->enter();
    Driver::Handle stream = nullptr;
    check(driver_.stream_create(&stream, kCudaNonBlocking), [] { return "making a stream"; });
    return reinterpret_cast<GpuStream>(stream);
  }
  void release_stream(GpuStream stream) noexcept override {
    const Context::Current current(*context_);
    if (stream) driver_.stream_destroy(handle_of(stream));
  }

  GpuFence make_fence() override {
    const Context::Current current = context_->enter();
    Driver::Handle event = nullptr;
    check(driver_.event_create(&event, kCudaEventWithoutTiming), [] { return "making an event"; });
    return reinterpret_cast<GpuFence>(event);
  }
  void release_fence(GpuFence fence) noexcept override {
    const Context::Current current(*context_);
    if (fence) driver_.event_destroy(handle_of(fence));
  }
  void signal(GpuFence fence, GpuStream stream) override {
    const Context::Current current = context_->enter();
    check(driver_.event_record(handle_of(fence), handle_of(stream)), [] { return "setting a fence"; });
  }
  bool passed(GpuFence fence) override {
    const Context::Current current = context_->enter();
    // A capture elsewhere may forbid this thread to ask, and would be spoilt by it.
    const AllowedInCapture allowed(*this);
    const int result = driver_.event_query(handle_of(fence));
    if (result == kCudaNotReady) return false;
    check(result, [] { return "looking at a fence"; });
    return true;
  }
  void wait(GpuFence fence, GpuStream stream) override {
    const Context::Current current = context_->enter();
    check(driver_.stream_wait_event(handle_of(stream), handle_of(fence), 0), [] { return "waiting for a fence"; });
  }

 private:
  struct Memory {
    bool known = false, managed = false, one_piece = false;
    unsigned type = 0;
    int device = -1;
    GpuAddress start = 0;
    std::size_t bytes = 0;
  };
  Memory memory_at(GpuAddress address) const {
    Memory m;
    unsigned managed = 0, one_piece = 0;
    int wanted[] = {kCudaMemoryType,         kCudaIsManaged,  kCudaDeviceOrdinal,
                    kCudaIsLegacyIpcCapable, kCudaRangeStart, kCudaRangeBytes};
    void* values[] = {&m.type, &managed, &m.device, &one_piece, &m.start, &m.bytes};
    m.known = driver_.pointer_get_attributes(6, wanted, values, address) == kCudaSuccess && m.type != 0;
    m.managed = managed & 1, m.one_piece = one_piece & 1;
    return m;
  }

  template <typename Doing>
  void check(int result, const Doing& doing) const {
    context_->check(result, doing);
  }

  void load_code(const GpuSource& source, const std::string& code, LoadedModule& module) const {
    const Context::Current current = context_->enter();
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
  int architecture() const {
    int best = 0;
    for (const int one : nvrtc_->architectures())
      best = std::max(best, one <= facts_.major * 10 + facts_.minor ? one : 0);
    return best;
  }

  int attribute(const GpuFunction& function, CudaFunctionAttribute which) const {
    int value = 0;
    check(driver_.func_get_attribute(&value, which, handle_of(function.handle)),
          [&] { return fmt::format("reading attribute {} of a kernel", static_cast<int>(which)); });
    return value;
  }

  /// Lets a kernel have so much dynamic shared memory. False: the card has less.
  bool opt_in(const GpuFunction& function, std::int64_t bytes) const {
    if (bytes <= 0) return bytes == 0;
    if (bytes > facts_.shared_per_block) return false;
    LoadedModule& module = loaded(function.module);
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
  bool allow_cluster(const GpuFunction& function, int blocks) const {
    if (blocks <= kPortableCluster) return true;
    LoadedModule& module = loaded(function.module);
    const std::lock_guard lock(module.mutex);
    const auto [it, is_new] = module.large_clusters.try_emplace(function.handle);
    if (is_new)
      it->second = driver_.func_set_attribute(handle_of(function.handle), kCudaLargeClusters, 1) == kCudaSuccess;
    return it->second;
  }
  static CudaLaunchAttribute cluster_of(unsigned blocks) {
    CudaLaunchAttribute attribute;
    attribute.id = kCudaClusterDimension;
    attribute.value.cluster[0] = blocks;
    attribute.value.cluster[1] = attribute.value.cluster[2] = 1;
    return attribute;
  }

  Driver::Handle event_of(int mark) {
    const std::lock_guard lock(marks_mutex_);
    const auto found = marks_.find(mark);
    if (found == marks_.end() || !found->second) throw std::logic_error(fmt::format("mark {} was not recorded", mark));
    return found->second;
  }

  std::shared_ptr<const Context> context_;
  const int device_;
  const Driver& driver_;
  GpuFacts facts_;
  std::shared_ptr<const Nvrtc> nvrtc_;
  ObjectCache cache_;
  /// Whether kernels may begin before what is ahead of them has ended: from sm_90 on, in graphs that are captured
  /// from 12.3 on. Code for less does not wait (await_stream of preamble.cuh).
  std::atomic<bool> starts_early_;
  std::mutex marks_mutex_;
  std::map<int, Driver::Handle> marks_;
};

/// False, with a reason, where the device does not answer.
bool read_facts(const Driver& driver, int device, GpuFacts& facts, std::string& reason) {
  char name[256] = "";
  int result = driver.device_get_name(name, sizeof name - 1, device);
  facts.name = name;
  const auto read = [&](CudaDeviceAttribute which) {
    int value = 0;
    if (result == kCudaSuccess) result = driver.device_get_attribute(&value, which, device);
    return value;
  };
  facts.major = read(kCudaMajor);
  facts.minor = read(kCudaMinor);
  facts.multiprocessors = read(kCudaMultiprocessors);
  facts.shared_per_block = read(kCudaSharedPerBlockOptIn);
  facts.shared_per_multiprocessor = read(kCudaSharedPerMultiprocessor);
  facts.registers_per_multiprocessor = read(kCudaRegistersPerMultiprocessor);
  facts.threads_per_multiprocessor = read(kCudaThreadsPerMultiprocessor);
  facts.l2_bytes = read(kCudaL2Bytes);
  std::size_t memory = 0;
  if (result == kCudaSuccess) result = driver.device_total_mem(&memory, device);
  facts.memory_bytes = static_cast<std::int64_t>(memory);
  if (result == kCudaSuccess) return true;
  reason = fmt::format("the GPU does not tell what it is: {}", driver.describe(result));
  return false;
}

}  // namespace

std::string GpuFacts::architecture() const { return fmt::format("sm_{}{}", major, minor); }

std::unique_ptr<Gpu> open_gpu(std::shared_ptr<const Driver> driver, const std::string& cache_directory,
                              std::string& reason, int number) {
  int count = 0, device = 0;
  int result = driver->device_get_count(&count);
  if (result == kCudaSuccess && count == 0) result = kCudaNoDevice;
  if (result == kCudaSuccess && (number < 0 || number >= count)) {
    reason = fmt::format("no GPU {}: this process may use {}, numbered from 0", number, count);
    return nullptr;
  }
  if (result == kCudaSuccess) result = driver->device_get(&device, number);
  if (result != kCudaSuccess) {
    reason = result == kCudaNoDevice ? "no GPU: the NVIDIA driver finds no device that this process may use"
                                     : fmt::format("no GPU: {}", driver->describe(result));
    return nullptr;
  }
  GpuFacts facts;
  if (!read_facts(*driver, device, facts, reason)) return nullptr;
  if (facts.major < kOldestMajor) {
    reason = fmt::format("{} is too old: it has compute capability {}.{}, cellc needs {}.0 or newer", facts.name,
                         facts.major, facts.minor, kOldestMajor);
    return nullptr;
  }
  std::string problem;
  auto nvrtc = Nvrtc::find(driver->major(), problem);
  if (!nvrtc) {
    reason = fmt::format("{} has no compiler: {}", facts.name, problem);
    return nullptr;
  }
  Driver::Handle primary = nullptr;
  result = driver->primary_retain(&primary, device);
  if (result != kCudaSuccess) {
    reason = fmt::format("{} gives no context: {}", facts.name, driver->describe(result));
    return nullptr;
  }
  auto context = std::make_shared<const Context>(driver, device, primary, facts.name);
  reason.clear();
  return std::make_unique<GpuDriver>(std::move(context), device, std::move(facts), std::move(nvrtc), cache_directory);
}

bool is_gpu_missing(const std::string& reason) {
  return reason.starts_with("no GPU") || reason.starts_with("no NVIDIA driver");
}

std::optional<std::string> Gpu::pointer_fault(GpuAddress, std::size_t) { return std::nullopt; }

std::unique_ptr<Gpu> open_gpu(const std::string& cache_directory, std::string& reason, int device) {
  auto driver = Driver::open(reason);
  return driver ? open_gpu(std::move(driver), cache_directory, reason, device) : nullptr;
}

}  // namespace cellc
