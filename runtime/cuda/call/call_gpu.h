#pragma once
// The device as one prepared call sees it. The calls of a kernel share its modules. During a rehearsal
// kernels are not launched, and what fills the call's memory once and for all runs on a stream of our
// own. So a rehearsal allocates, compiles and clears all that the call will ever need, and does not touch the
// caller's stream or the graph that may be captured on it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/data/array.h"

namespace cellc {

/// An array with any stride on every axis, or of other numbers than the call has.
struct CallView {
  std::vector<std::int64_t> lengths, strides;   ///< strides in entries
  Dtype given = Dtype::F32, kept = Dtype::F32;  ///< types of the array and of the call's; the same unless `given` has
                                                ///< 16 bits and is only read
  bool written = false;
};

/// An array of a call, by field of the layout. Strides in entries, of rows only; 0: rows one after another.
struct CallArray {
  GpuAddress data = 0;  ///< 0: the default, or not wanted
  std::int64_t sequence_stride = 0, step_stride = 0;
  const CallView* view = nullptr;  ///< null: as the strides say
};

/// What was compiled for one device, by text.
class LoadedModules {
 public:
  /// Compiled at most once, also where several threads ask.
  GpuModule load(Gpu& gpu, const GpuSource& source);
  /// What nobody has asked for yet.
  double compile_ahead(Gpu& gpu, const std::vector<GpuSource>& sources);

 private:
  struct Entry {
    std::mutex mutex;
    GpuModule module;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<std::string>>, std::shared_ptr<Entry>> modules_;
};

class CallGpu final : public WrappedGpu {
 public:
  CallGpu(Gpu& below, std::shared_ptr<LoadedModules> modules) : WrappedGpu(below), modules_(std::move(modules)) {}

  /// A rehearsal, for as long as this lives. It ends when the device has done what was asked of it.
  class Rehearsal {
   public:
    explicit Rehearsal(CallGpu& gpu);
    ~Rehearsal();
    Rehearsal(const Rehearsal&) = delete;
    Rehearsal& operator=(const Rehearsal&) = delete;
    void finish();  ///< waits; throws where the device failed

   private:
    CallGpu& gpu_;
  };

  GpuModule load(const GpuSource& source) override { return modules_->load(below_, source); }
  double compile_ahead(const std::vector<GpuSource>& sources) override {
    return modules_->compile_ahead(below_, sources);
  }
  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) override {
    below_.copy_in(to, from, bytes, own_or(stream));
  }
  /// Moves a call's data: nothing to rehearse.
  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    if (!rehearsing_) below_.copy(to, from, bytes, stream);
  }
  GpuAddress allocate(std::size_t bytes) override {
    const GpuAddress address = below_.allocate(bytes);
    if (rehearsing_) fresh_.push_back({address, bytes});
    sizes_[address] = bytes;
    held_ += static_cast<std::int64_t>(bytes);
    return address;
  }
  void release(GpuAddress address) noexcept override {
    if (const auto known = sizes_.find(address); known != sizes_.end()) {
      held_ -= static_cast<std::int64_t>(known->second);
      sizes_.erase(known);
    }
    below_.release(address);
  }
  /// Of memory that was allocated here and not released. Any thread may ask.
  std::int64_t held_bytes() const { return held_; }
  /// In a rehearsal: of memory that was allocated in it. Other memory an earlier run may still use, or the caller.
  void zero(GpuAddress to, std::size_t bytes, GpuStream stream) override {
    if (!rehearsing_ || is_fresh(to)) below_.zero(to, bytes, own_or(stream));
  }
  /// Asks the host before (run_control.h), so that a call that was cancelled queues no further kernel.
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override;
  /// A rehearsal launches nothing that a graph could keep. A host that is asked between kernels sees them one by one.
  bool begin_capture(GpuStream stream) override;
  void launch_graph(GpuGraph graph, GpuStream stream) override;
  /// Memory that is kept from run to run: larger, where it is too small.
  void reserve(GpuBuffer& buffer, std::size_t bytes) {
    if (buffer.bytes() < std::max<std::size_t>(256, bytes))
      buffer = GpuBuffer(*this, std::max<std::size_t>(256, bytes));
  }

 private:
  struct Fresh {
    GpuAddress address;
    std::size_t bytes;
  };
  /// Before something is queued; whether the host was asked.
  bool ask_host(GpuStream stream);
  GpuStream own_or(GpuStream stream) const { return rehearsing_ ? own_ : stream; }
  bool is_fresh(GpuAddress at) const {
    return std::any_of(fresh_.begin(), fresh_.end(),
                       [&](const Fresh& f) { return at >= f.address && at - f.address < f.bytes; });
  }

  std::shared_ptr<LoadedModules> modules_;
  bool rehearsing_ = false;
  GpuStream own_ = 0;
  std::vector<Fresh> fresh_;  ///< of the rehearsal
  std::map<GpuAddress, std::size_t> sizes_;
  std::atomic<std::int64_t> held_{0};
};

}  // namespace cellc
