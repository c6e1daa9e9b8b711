#include "runtime/cuda/device/gpu_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "runtime/cuda/device/driver_context.h"
#include "runtime/cuda/device/driver_modules.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

constexpr const char* kNoCompiler = " has no compiler: ";
constexpr int kOldestMajor = 8;  // Ampere: bf16, asynchronous copies

class GpuDriver final : public Gpu {
 public:
  GpuDriver(std::shared_ptr<const DriverContext> context, int device, GpuFacts facts,
            std::shared_ptr<const Nvrtc> nvrtc, const std::string& cache_directory)
      : context_(std::move(context)),
        device_(device),
        driver_(*context_->driver),
        facts_(std::move(facts)),
        modules_(context_, facts_, std::move(nvrtc), cache_directory) {}

  ~GpuDriver() override {
    const DriverContext::Current current(*context_);
    for (const auto& [mark, event] : marks_) driver_.event_destroy(event);
  }

  const GpuFacts& facts() const override { return facts_; }

  GpuModule load(const GpuSource& source) override { return modules_.load(source); }
  double compile_ahead(const std::vector<GpuSource>& sources) override { return modules_.compile_ahead(sources); }
  GpuFunction function(const GpuModule& module, const std::string& name) override {
    return modules_.function(module, name);
  }
  GpuFunctionFacts facts(const GpuFunction& function) override { return modules_.facts(function); }
  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) override {
    return modules_.resident_blocks(function, threads, shared_bytes);
  }
  int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) override {
    return modules_.resident_clusters(function, threads, shared_bytes, blocks);
  }
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override {
    modules_.launch(function, launch, arguments);
  }

  GpuAddress allocate(std::size_t bytes) override {
    const DriverContext::Current current = context_->enter();
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
    const DriverContext::Current current(*context_);
    driver_.mem_free(address);
  }

  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const DriverContext::Current current = context_->enter();
    check(driver_.memcpy_to_device(to, from, bytes, handle_of(stream)),
          [&] { return fmt::format("copying {} bytes to the GPU", bytes); });
  }

  void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    const auto doing = [&] { return fmt::format("copying {} bytes from the GPU", bytes); };
    if (bytes != 0) check(driver_.memcpy_to_host(to, from, bytes, handle_of(stream)), doing);
    check(driver_.stream_synchronize(handle_of(stream)), doing);
  }

  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const DriverContext::Current current = context_->enter();
    check(driver_.memcpy_on_device(to, from, bytes, handle_of(stream)),
          [&] { return fmt::format("copying {} bytes on the GPU", bytes); });
  }

  void zero(GpuAddress to, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const DriverContext::Current current = context_->enter();
    check(driver_.memset_bytes(to, 0, bytes, handle_of(stream)),
          [&] { return fmt::format("zeroing {} bytes", bytes); });
  }

  void synchronize(GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    check(driver_.stream_synchronize(handle_of(stream)), [] { return "waiting for the GPU"; });
  }

  void record(int mark, GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    const std::lock_guard lock(marks_mutex_);
    Driver::Handle& event = marks_[mark];
    if (!event) check(driver_.event_create(&event, 0), [] { return "making an event"; });
    check(driver_.event_record(event, handle_of(stream)), [&] { return fmt::format("setting mark {}", mark); });
  }

  double elapsed_ms(int from, int to) override {
    const DriverContext::Current current = context_->enter();
    const Driver::Handle first = event_of(from), last = event_of(to);
    const auto doing = [&] { return fmt::format("timing from mark {} to mark {}", from, to); };
    check(driver_.event_synchronize(last), doing);
    float ms = 0;
    check(driver_.event_elapsed_time(&ms, first, last), doing);
    return ms;
  }

  std::optional<std::string> pointer_fault(GpuAddress address, std::size_t bytes) override {
    const DriverContext::Current current = context_->enter();
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
    const DriverContext::Current current = context_->enter();
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
    const DriverContext::Current current = context_->enter();
    std::uint64_t number = 0;
    check(driver_.stream_get_id(handle_of(stream), &number), [] { return "looking at the caller's stream"; });
    return number;
  }

  GpuStream make_stream() override {
    const DriverContext::Current current = context_->enter();
    Driver::Handle stream = nullptr;
    check(driver_.stream_create(&stream, kCudaNonBlocking), [] { return "making a stream"; });
    return reinterpret_cast<GpuStream>(stream);
  }
  void release_stream(GpuStream stream) noexcept override {
    const DriverContext::Current current(*context_);
    if (stream) driver_.stream_destroy(handle_of(stream));
  }

  GpuFence make_fence() override {
    const DriverContext::Current current = context_->enter();
    Driver::Handle event = nullptr;
    check(driver_.event_create(&event, kCudaEventWithoutTiming), [] { return "making an event"; });
    return reinterpret_cast<GpuFence>(event);
  }
  void release_fence(GpuFence fence) noexcept override {
    const DriverContext::Current current(*context_);
    if (fence) driver_.event_destroy(handle_of(fence));
  }
  void signal(GpuFence fence, GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    check(driver_.event_record(handle_of(fence), handle_of(stream)), [] { return "setting a fence"; });
  }
  bool passed(GpuFence fence) override {
    const DriverContext::Current current = context_->enter();
    // A capture elsewhere may forbid this thread to ask, and would be spoilt by it.
    const AllowedInCapture allowed(*this);
    const int result = driver_.event_query(handle_of(fence));
    if (result == kCudaNotReady) return false;
    check(result, [] { return "looking at a fence"; });
    return true;
  }
  void wait(GpuFence fence, GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    check(driver_.stream_wait_event(handle_of(stream), handle_of(fence), 0), [] { return "waiting for a fence"; });
  }

  bool begin_capture(GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    const AllowedInCapture allowed(*this);  // a capture elsewhere is none of this one's business
    const int result = driver_.stream_begin_capture(handle_of(stream), kCudaCaptureRelaxed);
    if (result == kCudaNotSupported) return false;
    check(result, [] { return "beginning to capture a graph"; });
    return true;
  }
  GpuGraph end_capture(GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    const AllowedInCapture allowed(*this);
    Driver::Handle graph = nullptr, ready = nullptr;
    check(driver_.stream_end_capture(handle_of(stream), &graph), [] { return "capturing a graph"; });
    const int result = driver_.graph_instantiate(&ready, graph, 0);
    driver_.graph_destroy(graph);
    check(result, [] { return "making a graph ready"; });
    return reinterpret_cast<GpuGraph>(ready);
  }
  void launch_graph(GpuGraph graph, GpuStream stream) override {
    const DriverContext::Current current = context_->enter();
    check(driver_.graph_launch(handle_of(graph), handle_of(stream)), [] { return "launching a graph"; });
  }
  void release_graph(GpuGraph graph) noexcept override {
    const DriverContext::Current current(*context_);
    if (graph) driver_.graph_exec_destroy(handle_of(graph));
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
    const int result = driver_.pointer_get_attributes(6, wanted, values, address);
    // Of an address that it does not know a driver says so; any other error is not about the address.
    if (result != kCudaInvalidValue) check(result, [] { return "looking at an array's address"; });
    m.known = result == kCudaSuccess && m.type != 0;
    m.managed = managed & 1, m.one_piece = one_piece & 1;
    return m;
  }

  template <typename Doing>
  void check(int result, const Doing& doing) const {
    context_->check(result, doing);
  }

  Driver::Handle event_of(int mark) {
    const std::lock_guard lock(marks_mutex_);
    const auto found = marks_.find(mark);
    if (found == marks_.end() || !found->second) throw std::logic_error(fmt::format("mark {} was not recorded", mark));
    return found->second;
  }

  std::shared_ptr<const DriverContext> context_;
  const int device_;
  const Driver& driver_;
  GpuFacts facts_;
  DriverModules modules_;
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
    reason = fmt::format("{}{}{}", facts.name, kNoCompiler, problem);
    return nullptr;
  }
  Driver::Handle primary = nullptr;
  result = driver->primary_retain(&primary, device);
  if (result != kCudaSuccess) {
    reason = fmt::format("{} gives no context: {}", facts.name, driver->describe(result));
    return nullptr;
  }
  auto context = std::make_shared<const DriverContext>(driver, device, primary, facts.name);
  reason.clear();
  return std::make_unique<GpuDriver>(std::move(context), device, std::move(facts), std::move(nvrtc), cache_directory);
}

bool is_gpu_missing(const std::string& reason) {
  return reason.starts_with("no GPU") || reason.starts_with("no NVIDIA driver");
}
bool is_compiler_missing(const std::string& reason) { return reason.find(kNoCompiler) != std::string::npos; }

std::optional<std::string> Gpu::pointer_fault(GpuAddress, std::size_t) { return std::nullopt; }

std::unique_ptr<Gpu> open_gpu(const std::string& cache_directory, std::string& reason, int device) {
  auto driver = Driver::open(reason);
  return driver ? open_gpu(std::move(driver), cache_directory, reason, device) : nullptr;
}

}  // namespace cellc
