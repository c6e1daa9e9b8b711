#pragma once
// CUDA C++ text to an object of this process, compiled for the host.
#include <cstdint>
#include <string>

#include "runtime/cuda/device/gpu.h"
#include "tests/emulator/shim_interface.h"

namespace cellc::emulator {

/// A loaded object. Each load has its own, with its own __device__ variables.
class LoadedObject {
 public:
  LoadedObject(const std::string& file, const cellc_emulator::Services* services);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  using Entry = void (*)(void** arguments);
  Entry entry(const std::string& kernel) const;  ///< nullptr: it has no such kernel
  const cellc_emulator::Thread** current() const { return current_; }
  /// Where the calling thread's static shared memory lies, all kernels' together.
  char* shared() const;
  std::size_t shared_bytes() const { return shared_bytes_; }
  /// Source lines of a return address, innermost first: ", at a.cuh:5, from b.cuh:7". Empty if the machine
  /// has no addr2line.
  std::string lines_of(const void* site) const;

 private:
  std::string file_;
  void* handle_ = nullptr;
  std::uintptr_t base_ = 0;
  const cellc_emulator::Thread** current_ = nullptr;
  std::size_t shared_bytes_ = 0;
};

struct HostCompilation {
  std::string file;  ///< of the object
  bool was_cached = false;
  double milliseconds = 0;
};

/// Compiles, or finds what was compiled of the same text, options, shim and compiler. Threads may call this
/// at the same time. Throws DeviceError with the compiler's first error and the file that holds all of them.
HostCompilation compile_for_host(const GpuSource& source, int optimisation, const std::string& cache_directory);

/// The text with an entry beside each kernel: `cellc_entry_NAME(void**)`. Public for its tests.
std::string add_entries(const std::string& text);

}  // namespace cellc::emulator
