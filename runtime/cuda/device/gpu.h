#pragma once
// A device that runs CUDA C++ source: a GPU through the driver and NVRTC, or the emulator on which the
// tests run the same source. The solver knows devices by this interface alone; it includes no
// CUDA header.
//
// Addresses are device addresses; streams are the caller's (0: the legacy default stream). Nothing here
// synchronises except synchronize() and copies to the host. Errors are DeviceError with one clear line;
// afterwards the device is usable again unless the message says that it is lost.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"

namespace cellc {

using GpuAddress = std::uint64_t;
using GpuStream = std::uint64_t;  ///< CUstream as a number
using GpuFence = std::uint64_t;   ///< what a stream has passed, or will; 0: none
using GpuGraph = std::uint64_t;   ///< launches that were captured, ready to be made again; 0: none

/// What a planner needs to know of a card.
struct GpuFacts {
  std::string name;          ///< "NVIDIA H200"
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t shared_per_block = 0;  ///< bytes that a kernel may opt in to
  std::int64_t shared_kept = 0;       ///< of those, what the device itself takes of every kernel's: a card nothing
  std::int64_t shared_per_multiprocessor = 0;
  std::int64_t registers_per_multiprocessor = 0;
  std::int64_t threads_per_multiprocessor = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::string architecture() const;  ///< "sm_90"
};

/// One translation unit of generated CUDA C++.
struct GpuSource {
  std::string name;  ///< of the file that diagnostics speak of, e.g. "para_gru.cu"
  std::string text;
  std::vector<std::string> options;  ///< further compiler options
  /// The text as it is compared: where two are the same, kernels of either text do for both. Empty: the text.
  std::string alike{};
};

struct GpuDim {
  unsigned x = 1, y = 1, z = 1;
};

/// An extern "C" kernel of a loaded module. Lives as long as its module.
struct GpuFunction {
  std::shared_ptr<void> module;
  std::uint64_t handle = 0;
  explicit operator bool() const { return handle != 0; }
};

struct GpuFunctionFacts {
  int registers = 0;
  std::int64_t static_shared = 0, local_bytes = 0;
  int max_threads = 0;
};

struct GpuLaunch {
  GpuDim grid{}, block{};
  std::int64_t shared_bytes = 0;  ///< dynamic; above 48 KiB the implementation opts in
  GpuStream stream = 0;
  bool cooperative = false;  ///< all blocks are resident at once, or the launch is refused
  unsigned cluster = 1;  ///< blocks, neighbours along x, that run together and see each other's shared memory (sm_90)
  /// May begin before what is ahead of it on the stream has ended, where the device can do that: the kernel itself
  /// waits first (await_stream of preamble.cuh).
  bool early = false;
  std::size_t argument_bytes = 0;  ///< of the only argument; 0: not said, and then no graph of ours keeps the launch
};

struct GpuModule {
  std::shared_ptr<void> module;
  double compile_ms = 0;  ///< 0 where it came from the cache
  CacheState cache = CacheState::Off;
  explicit operator bool() const { return module != nullptr; }
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const GpuFacts& facts() const = 0;
  /// Compiles for this card, or takes the code from the cache. A failed compile throws DeviceError that
  /// names the file where source, options and log were kept.
  virtual GpuModule load(const GpuSource& source) = 0;
  /// Compiles, side by side, what load() is about to be asked for; returns the milliseconds that this took, and loads
  /// of these take none. What does not compile is left for load() to say so.
  virtual double compile_ahead(const std::vector<GpuSource>&) { return 0; }
  virtual GpuFunction function(const GpuModule& module, const std::string& name) = 0;
  virtual GpuFunctionFacts facts(const GpuFunction& function) = 0;
  /// Blocks of a kernel that one multiprocessor holds at once.
  virtual int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) = 0;
  /// Clusters of so many blocks that the card holds at once; 0: it knows no such clusters.
  virtual int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) = 0;

  virtual GpuAddress allocate(std::size_t bytes) = 0;  ///< 256-byte aligned; not zeroed
  virtual void release(GpuAddress address) noexcept = 0;
  virtual void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream stream) = 0;  ///< synchronises
  virtual void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream stream) = 0;
  virtual void zero(GpuAddress to, std::size_t bytes, GpuStream stream) = 0;

  /// `arguments[i]` points at the i-th argument, of the kernel's own type.
  virtual void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) = 0;
  virtual void synchronize(GpuStream stream) = 0;

  /// Milliseconds between two marks on a stream; marks are made by record() and are numbers of the caller.
  virtual void record(int mark, GpuStream stream) = 0;
  virtual double elapsed_ms(int from, int to) = 0;  ///< synchronises with `to`

  // For memory and streams of a caller. The defaults are those of a device that has done its work when a
  // call returns, and that anyone may use at any time.

  /// What keeps kernels from using `bytes` from `address` on, such as "is memory of the host"; nullopt: nothing.
  virtual std::optional<std::string> pointer_fault(GpuAddress address, std::size_t bytes);
  /// The number of the graph that is being captured on a stream; 0: none is.
  virtual std::uint64_t capturing(GpuStream) { return 0; }
  /// Lets this thread allocate, free, load and wait while somebody captures a graph, or no longer. Nests.
  virtual void allow_in_capture(bool) {}
  /// Tells streams apart, also where one has the handle of another that is gone. A stream that is being captured
  /// has none: it throws DeviceError.
  virtual std::uint64_t stream_number(GpuStream stream) { return stream; }
  /// A stream that waits for no other.
  virtual GpuStream make_stream() { return 0; }
  virtual void release_stream(GpuStream) noexcept {}
  virtual GpuFence make_fence() { return 0; }
  virtual void release_fence(GpuFence) noexcept {}
  virtual void signal(GpuFence, GpuStream) {}     ///< the fence is where the stream is now
  virtual bool passed(GpuFence) { return true; }  ///< also where it never was anywhere
  virtual void wait(GpuFence, GpuStream) {}  ///< the stream goes on once the fence is passed; the host does not wait

  // Graphs of our own. Between begin and end of a capture this thread only launches, and only on that stream, which is
  // one of make_stream().
  virtual bool begin_capture(GpuStream) { return false; }  ///< false: this device captures nothing
  virtual GpuGraph end_capture(GpuStream) { return 0; }
  virtual void launch_graph(GpuGraph, GpuStream) {}
  virtual void release_graph(GpuGraph) noexcept {}  ///< once nothing of it runs any more
};

/// While it lives, this thread may do what Gpu::allow_in_capture lets it.
class AllowedInCapture {
 public:
  explicit AllowedInCapture(Gpu& gpu) : gpu_(gpu) { gpu_.allow_in_capture(true); }
  ~AllowedInCapture() { gpu_.allow_in_capture(false); }
  AllowedInCapture(const AllowedInCapture&) = delete;

 private:
  Gpu& gpu_;
};

/// Owned device memory.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  GpuBuffer(Gpu& gpu, std::size_t bytes) : gpu_(&gpu), address_(bytes ? gpu.allocate(bytes) : 0), bytes_(bytes) {}
  GpuBuffer(GpuBuffer&& other) noexcept { swap(other); }
  GpuBuffer& operator=(GpuBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GpuBuffer() {
    if (address_) gpu_->release(address_);
  }
  GpuAddress address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(GpuBuffer& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }
  Gpu* gpu_ = nullptr;
  GpuAddress address_ = 0;
  std::size_t bytes_ = 0;
};

/// A GPU of this machine, the first where nothing else is said, or nullptr with the reason in one line ("no
/// NVIDIA driver: …"). `cache_directory` keeps compiled kernels between processes; empty: nothing is kept.
std::unique_ptr<Gpu> open_gpu(const std::string& cache_directory, std::string& reason, int device = 0);

/// Whether such a reason says that there is none, rather than one that cannot be used.
bool is_gpu_missing(const std::string& reason);

}  // namespace cellc
