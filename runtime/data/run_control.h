#pragma once
// What a host has to say of a run while it is under way: that it is to end, and whose threads work for it.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>

namespace cellc {

/// The host ended the run.
struct Cancelled : std::runtime_error {
  using runtime_error::runtime_error;
};

struct RunControl {
  const volatile int* cancel = nullptr;                     ///< not 0: the run ends
  int (*goes_on)(void* host, std::int64_t rows) = nullptr;  ///< on the thread that called; 0: the run ends
  void* host = nullptr;
  /// Calls task(data, 0) … task(data, tasks - 1) on any threads, one after another too, and returns when all are done.
  void (*run_tasks)(void* pool, void (*task)(void* data, int number), void* data, int tasks) = nullptr;
  void* pool = nullptr;
  bool waits = false;  ///< of a call on a GPU: it waits for what it queues
  std::thread::id caller = std::this_thread::get_id();
  mutable std::atomic<bool> ended{false};  ///< seen by all threads of the run
  /// Steps of sequences, or of their channels' segments, that were walked; on a GPU kernels that were queued.
  mutable std::atomic<std::int64_t> rows{0};
};

/// Of the calling thread; null: nobody has anything to say.
const RunControl* run_control();

/// Sets it, for as long as it lives. Threads of run_on_threads take over that of their caller.
class UseRunControl {
 public:
  explicit UseRunControl(const RunControl* control);
  ~UseRunControl();
  UseRunControl(const UseRunControl&) = delete;
  UseRunControl& operator=(const UseRunControl&) = delete;

 private:
  const RunControl* before_;
};

/// Called between pieces of work, of which the last had so many rows. Throws Cancelled where the run is to end.
void go_on_after(std::int64_t rows);

/// Rows of a piece that is walked without asking, where somebody may ask. Even, as kernels of 16 bits go by pairs.
constexpr std::int64_t kRowsUnasked = 4096;

}  // namespace cellc
