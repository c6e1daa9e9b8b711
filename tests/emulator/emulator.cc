#include "tests/emulator/emulator.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/cpu/engine.h"
#include "tests/emulator/device_memory.h"
#include "tests/emulator/grid_run.h"
#include "tests/emulator/host_compiler.h"

namespace cellc {
namespace {

using emulator::GridRun;

constexpr std::int64_t kReservedShared = 1024;  // a block's, of the system
constexpr int kMaxBlocks = 32;                  // of a multiprocessor
// Loaded objects hold one pointer to the thread that runs, and signal handlers belong to the process.
std::mutex launch_mutex;

/// Faults of kernels become errors while this lives. Handlers need a stack of their own: the fault may be
/// that the thread's is full.
class FaultGuard {
 public:
  FaultGuard() : stack_(64 << 10) {
    stack_t given{};
    given.ss_sp = stack_.data();
    given.ss_size = stack_.size();
    sigaltstack(&given, &old_stack_);
    struct sigaction action {};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &old_[i]);
  }
  ~FaultGuard() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_[i], nullptr);
    sigaltstack(&old_stack_, nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
  CELLC_LEAVES_STACK static void handle(int signal, siginfo_t* info, [[maybe_unused]] void* context) {
    GridRun* const run = emulator::active_run();
    // Leaves this stack for the scheduler's where a kernel is at fault.
    // The processor's own refusals (a misaligned vector, an impossible address) come without an address.
    const bool refused = signal == SIGSEGV && info->si_code == SI_KERNEL;
#if defined(__x86_64__)
    const auto at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    const void* const site = reinterpret_cast<const char*>(at) + 1;  // as if it were the one before a return
#else
    const void* const site = nullptr;
#endif
    if (run && run->fault(refused ? SIGILL : signal, info->si_addr, site)) return;
    ::signal(signal, SIG_DFL);  // the fault comes again, and is then what it always was
  }
  std::vector<char> stack_;
  stack_t old_stack_{};
  struct sigaction old_[std::size(kSignals)]{};
};

class ActiveRun {
 public:
  explicit ActiveRun(GridRun& run) { emulator::active_run() = &run; }
  ~ActiveRun() { emulator::active_run() = nullptr; }
};

struct Module {
  explicit Module(const std::string& file, std::string source)
      : object(file, emulator::grid_services()), source(std::move(source)) {}
  struct Kernel {
    const Module* module;
    std::string name;
    emulator::LoadedObject::Entry entry;
  };
  emulator::LoadedObject object;
  std::string source;
  std::mutex mutex;
  std::map<std::string, Kernel> kernels;  // whose addresses are handles
};

const Module::Kernel& kernel_of(const GpuFunction& function) {
  if (!function) throw DeviceError("emulator: an empty function");
  return *reinterpret_cast<const Module::Kernel*>(function.handle);
}

class EmulatorDevice final : public Emulator {
 public:
  explicit EmulatorDevice(EmulatorOptions options)
      : options_(std::move(options)),
        memory_(static_cast<std::size_t>(options_.memory_bytes)),
        fibers_(options_.stack_bytes) {
    facts_.name = "emulator";
    facts_.major = 9;
    facts_.multiprocessors = options_.multiprocessors;
    facts_.shared_per_block = 227 << 10;
    facts_.shared_kept = 14 << 10;  // what lanes of a warp show each other, and tiles of tensor cores
    facts_.shared_per_multiprocessor = 228 << 10;
    facts_.registers_per_multiprocessor = 64 << 10;
    facts_.threads_per_multiprocessor = 2048;
    facts_.l2_bytes = 50 << 20;
    facts_.memory_bytes = options_.memory_bytes;
  }

  const GpuFacts& facts() const override { return facts_; }

  GpuModule load(const GpuSource& source) override {
    refuse_in_capture("loading", kFirstOwnStream);
    const auto compiled = emulator::compile_for_host(source, options_.optimisation, options_.cache_directory);
    GpuModule module;
    module.module = std::make_shared<Module>(compiled.file, source.name);
    module.compile_ms = compiled.milliseconds;
    module.cache = compiled.was_cached ? CacheState::Hit : CacheState::Miss;
    return module;
  }

  GpuFunction function(const GpuModule& module, const std::string& name) override {
    refuse_in_capture("loading a kernel", kFirstOwnStream);  // where drivers load code lazily
    if (!module) throw DeviceError("emulator: an empty module has no kernel " + name);
    auto& loaded = *static_cast<Module*>(module.module.get());
    const auto entry = loaded.object.entry(name);
    if (!entry) throw DeviceError("emulator: " + loaded.source + " has no kernel extern \"C\" " + name);
    const std::lock_guard lock(loaded.mutex);
    const auto& kernel = loaded.kernels.try_emplace(name, Module::Kernel{&loaded, name, entry}).first->second;
    return {module.module, reinterpret_cast<std::uint64_t>(&kernel)};
  }

  GpuFunctionFacts facts(const GpuFunction& function) override {
    GpuFunctionFacts facts;
    facts.registers = options_.registers;
    // All kernels' of the module, less what the shim itself keeps there.
    const auto bytes = static_cast<std::int64_t>(kernel_of(function).module->object.shared_bytes());
    facts.static_shared = bytes > 1 ? bytes : 0;
    facts.max_threads = 1024;
    return facts;
  }

  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) override {
    const std::int64_t shared = facts(function).static_shared + shared_bytes;
    if (threads <= 0 || threads > 1024 || shared > facts_.shared_per_block) return 0;
    const std::int64_t rounded = (threads + 31) / 32 * 32;
    std::int64_t blocks = facts_.threads_per_multiprocessor / rounded;
    blocks = std::min(blocks, facts_.registers_per_multiprocessor / (rounded * options_.registers));
    blocks = std::min(blocks, facts_.shared_per_multiprocessor / (shared + kReservedShared));
    return static_cast<int>(std::min<std::int64_t>(blocks, kMaxBlocks));
  }

  int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) override {
    return facts_.multiprocessors * resident_blocks(function, threads, shared_bytes) / blocks;
  }

  GpuAddress allocate(std::size_t bytes) override {
    refuse_in_capture("allocating", kFirstOwnStream);
    ++allocations_;
    return memory_.allocate(bytes);
  }
  void release(GpuAddress address) noexcept override {
    // Cannot throw here: the next launch or synchronisation does.
    if (!memory_.release(address)) wrong_release_ = true;
    if (capture_ && allowed_in_capture <= 0) refused_release_ = true;
  }
  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) override {
    refuse_in_capture("copying from the host", stream);
    if (bytes) std::memcpy(memory_.range(to, bytes, "copy_in"), from, bytes);
  }
  void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    synchronize(stream);
    if (bytes) std::memcpy(to, memory_.range(from, bytes, "copy_out"), bytes);
  }
  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream) override {
    if (bytes)
      std::memmove(memory_.range(to, bytes, "copy (target)"), memory_.range(from, bytes, "copy (source)"), bytes);
  }
  void zero(GpuAddress to, std::size_t bytes, GpuStream) override {
    if (bytes) std::memset(memory_.range(to, bytes, "zero"), 0, bytes);
  }

  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override;

  void synchronize(GpuStream stream) override {
    refuse_in_capture("waiting", stream);
    ++synchronisations_;
    check_release();
  }

  void record(int mark, GpuStream) override {
    const std::lock_guard lock(marks_mutex_);
    marks_[mark] = std::chrono::steady_clock::now();
  }
  double elapsed_ms(int from, int to) override {
    synchronize(0);
    const std::lock_guard lock(marks_mutex_);
    const auto first = marks_.find(from), last = marks_.find(to);
    if (first == marks_.end() || last == marks_.end())
      throw DeviceError("emulator: mark " + std::to_string(first == marks_.end() ? from : to) + " was never recorded");
    return std::chrono::duration<double, std::milli>(last->second - first->second).count();
  }

  Counts counts() const override {
    const std::lock_guard lock(graphs_mutex_);
    return {
        allocations_,   memory_.live_bytes(), launches_, synchronisations_, static_cast<std::int64_t>(graphs_.size()),
        graph_launches_};
  }
  void set_seed(std::uint64_t seed) override { options_.seed = seed; }
  void set_room(int blocks) override { room_ = blocks; }
  void set_capture(std::uint64_t graph) override { capture_ = graph; }

  std::optional<std::string> pointer_fault(GpuAddress address, std::size_t bytes) override {
    try {
      memory_.range(address, bytes, "use");
      return std::nullopt;
    } catch (const DeviceError& e) {
      return std::string("is refused: ") + e.what();
    }
  }
  std::uint64_t stream_number(GpuStream stream) override {
    refuse_in_capture("telling a stream's number", stream);
    return stream;
  }
  std::uint64_t capturing(GpuStream stream) override { return is_own(stream) ? 0 : capture_.load(); }
  void allow_in_capture(bool allowed) override { allowed_in_capture += allowed ? 1 : -1; }
  // Work is done when a call returns, so streams need no more than a name.
  GpuStream make_stream() override { return kFirstOwnStream + next_stream_++; }
  GpuFence make_fence() override { return ++next_stream_; }

  bool begin_capture(GpuStream stream) override {
    if (!is_own(stream) || kept_stream_) throw DeviceError("emulator: a stream that cannot be captured");
    kept_stream_ = stream;
    kept_.clear();
    return true;
  }
  GpuGraph end_capture(GpuStream stream) override {
    if (stream != kept_stream_) throw DeviceError("emulator: the end of a capture that was not begun");
    kept_stream_ = 0;
    const std::lock_guard lock(graphs_mutex_);
    graphs_.emplace(++next_graph_, std::move(kept_));
    return next_graph_;
  }
  void launch_graph(GpuGraph graph, GpuStream) override {
    std::vector<KeptLaunch> launches;
    {
      const std::lock_guard lock(graphs_mutex_);
      ++graph_launches_;
      launches = graphs_.at(graph);
    }
    for (KeptLaunch& one : launches) {
      void* argument = one.argument.data();
      launch(one.function, one.shape, &argument);
    }
  }
  void release_graph(GpuGraph graph) noexcept override {
    const std::lock_guard lock(graphs_mutex_);
    graphs_.erase(graph);
  }

 private:
  struct KeptLaunch {
    GpuFunction function;
    GpuLaunch shape;
    std::vector<char> argument;
  };
  void check_release() {
    if (wrong_release_.exchange(false))
      throw DeviceError("emulator: release() of an address that is not, or no longer, a device buffer");
    if (refused_release_.exchange(false)) throw DeviceError("emulator: freeing while a graph is captured");
  }
  void check_shape(const Module::Kernel& kernel, const GpuFunction& function, const GpuLaunch& launch);

  static constexpr GpuStream kFirstOwnStream = GpuStream{1} << 40;
  static bool is_own(GpuStream stream) { return stream >= kFirstOwnStream; }
  static thread_local int allowed_in_capture;
  void refuse_in_capture(const char* what, GpuStream stream) const {
    if (kept_stream_ || (capture_ && !(allowed_in_capture > 0 && is_own(stream))))
      throw DeviceError(std::string("emulator: ") + what + " while a graph is captured");
  }

  std::atomic<std::uint64_t> capture_ = 0, next_stream_ = 1;
  static thread_local GpuStream kept_stream_;  ///< whose launches are kept, of this thread
  static thread_local std::vector<KeptLaunch> kept_;
  mutable std::mutex graphs_mutex_;
  std::map<GpuGraph, std::vector<KeptLaunch>> graphs_;
  GpuGraph next_graph_ = 0;
  std::int64_t graph_launches_ = 0;
  int room_ = 0;
  EmulatorOptions options_;
  GpuFacts facts_;
  emulator::DeviceMemory memory_;
  emulator::FiberPool fibers_;
  std::atomic<std::int64_t> allocations_ = 0, launches_ = 0, synchronisations_ = 0;
  std::atomic<bool> wrong_release_ = false, refused_release_ = false;
  std::mutex marks_mutex_;
  std::map<int, std::chrono::steady_clock::time_point> marks_;
};

thread_local int EmulatorDevice::allowed_in_capture = 0;
thread_local GpuStream EmulatorDevice::kept_stream_ = 0;
thread_local std::vector<EmulatorDevice::KeptLaunch> EmulatorDevice::kept_;

void EmulatorDevice::check_shape(const Module::Kernel& kernel, const GpuFunction& function, const GpuLaunch& launch) {
  const auto refuse = [&](const std::string& why) {
    throw DeviceError("emulator: kernel " + kernel.name + ": " + why);
  };
  const auto& [grid, block] = std::pair(launch.grid, launch.block);
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    refuse("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " + std::to_string(grid.z) +
           " blocks: at least 1, at most 2147483647 x 65535 x 65535");
  if (!block.x || !block.y || !block.z || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      std::uint64_t{block.x} * block.y * block.z > 1024)
    refuse("a block of " + std::to_string(block.x) + " x " + std::to_string(block.y) + " x " + std::to_string(block.z) +
           " threads: 1 to 1024");
  const std::int64_t shared = facts(function).static_shared + launch.shared_bytes;
  if (launch.shared_bytes < 0 || shared > facts_.shared_per_block)
    refuse(std::to_string(shared) + " bytes of shared memory: a block has " + std::to_string(facts_.shared_per_block));
  if (launch.cluster == 0 || launch.cluster > 16 || grid.x % launch.cluster != 0)
    refuse("clusters of " + std::to_string(launch.cluster) + " blocks: 1 to 16, and whole ones");
  if (!launch.cooperative) return;
  const int threads = static_cast<int>(block.x * block.y * block.z);
  const std::int64_t room =
      std::int64_t{facts_.multiprocessors} * resident_blocks(function, threads, launch.shared_bytes);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (blocks > static_cast<std::uint64_t>(room))
    refuse("a cooperative launch of " + std::to_string(blocks) + " blocks, of which " + std::to_string(room) +
           " can be resident at once");
}

void EmulatorDevice::launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) {
  const Module::Kernel& kernel = kernel_of(function);
  check_release();
  check_shape(kernel, function, launch);
  if (kept_stream_) {
    if (launch.stream != kept_stream_ || launch.argument_bytes == 0)
      throw DeviceError("emulator: kernel " + kernel.name + ": a launch that no graph can keep");
    const char* const argument = static_cast<const char*>(*arguments);
    kept_.push_back({function, launch, {argument, argument + launch.argument_bytes}});
    kept_.back().shape.stream = 0;
    return;
  }
  const std::lock_guard lock(launch_mutex);
  const auto& object = kernel.module->object;
  emulator::GridJob job;
  job.name = kernel.name;
  job.entry = kernel.entry;
  job.arguments = arguments;
  job.current = object.current();
  job.static_shared = object.shared();
  job.static_shared_bytes = object.shared_bytes();
  job.grid = launch.grid;
  job.block = launch.block;
  job.dynamic_shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
  const int threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  if (launch.cooperative || options_.interleave)
    job.resident = static_cast<std::size_t>(
        std::max(1, facts_.multiprocessors * resident_blocks(function, threads, launch.shared_bytes)));
  if (room_ > 0 && !launch.cooperative)
    job.resident = std::min(job.resident, static_cast<std::size_t>(room_) * launch.cluster);
  job.cluster = launch.cluster;
  job.shuffled = options_.seed != 0;
  // Launches differ, and a run of the same launches is the same again.
  job.seed = options_.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(launches_);
  job.lines_of = [&object](const void* site) { return object.lines_of(site); };
  job.patience = options_.patience;
  ++launches_;
  {
    GridRun run(job, fibers_, memory_);
    const ActiveRun active(run);
    const FaultGuard guard;
    try {
      run.run();
    } catch (const DeviceError&) {
      memory_.broken_guard();  // so that the next launch is not blamed for this one
      throw;
    }
  }
  if (const std::string broken = memory_.broken_guard(); !broken.empty())
    throw DeviceError("emulator: kernel " + kernel.name + ": " + broken);
}

}  // namespace

std::unique_ptr<Emulator> open_emulator(const EmulatorOptions& options) {
  return std::make_unique<EmulatorDevice>(options);
}

}  // namespace cellc
