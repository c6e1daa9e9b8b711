#pragma once
// Where arrays of the host lie: memory of the C library, or of a host that has its own.
#include <cstddef>

namespace cellc {

/// Called from every thread that works for a run. What was allocated is released by the same, whenever that is.
struct HostMemory {
  void* (*allocate)(void* context, std::size_t bytes, std::size_t alignment);  ///< null: there is none
  void (*release)(void* context, void* memory, std::size_t bytes);
  void* context;
};

/// Of the calling thread, for new arrays; null: the C library.
const HostMemory* host_memory();

/// Sets it, for as long as it lives. Threads of run_on_threads take over that of their caller.
class UseHostMemory {
 public:
  explicit UseHostMemory(const HostMemory* memory);
  ~UseHostMemory();
  UseHostMemory(const UseHostMemory&) = delete;
  UseHostMemory& operator=(const UseHostMemory&) = delete;

 private:
  const HostMemory* before_;
};

}  // namespace cellc
