#pragma once
// NVRTC, the compiler of CUDA C++, found and loaded at run time. Needs no GPU and no driver.
//
// The first of these places that has a suitable one wins (docs/notes/gpu.md):
//   1. $CELLC_NVRTC, a file or a directory. If it is set, nothing else is tried.
//   2. what the process has loaded: that of PyTorch, or of cellc itself.
//   3. nvrtc/ beside the program or the library, what ./dev unpacked there; NVIDIA's wheels next to their directory, as
//      in site-packages.
//   4. $CUDA_HOME and $CUDA_PATH.
//   5. what the loader finds: libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so.
//   6. /usr/local/cuda and /usr/local/cuda-*, the latest name first.
//   7. site-packages of Python: NVIDIA's wheels.
// An NVRTC is suitable if it is 12.8 or newer, has the builtins of its version and is, for a card, of no later major
// version than the card's driver.
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/device/shared_library.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"

namespace cellc {

struct NvrtcVersion {
  int major = 0, minor = 0;
  friend auto operator<=>(const NvrtcVersion&, const NvrtcVersion&) = default;
};
std::string to_string(NvrtcVersion version);  ///< "13.0"

constexpr NvrtcVersion kOldestNvrtc = {12, 8};

enum class CompiledKind {
  Cubin,  ///< machine code of one architecture
  Ptx,    ///< text of one virtual architecture, which the driver compiles on
};

struct CompiledKernels {
  std::string code;
  std::string log;  ///< warnings
  double compile_ms = 0;
  CacheState cache = CacheState::Off;
};

/// One NVRTC. Threads may compile at once.
class Nvrtc {
 public:
  /// The library in that file, or by that name for the loader; or nullptr with a reason in one line.
  static std::shared_ptr<const Nvrtc> load(const std::string& file, std::string& reason);
  /// As above, of every place. `latest_major`: of the driver; 0: any.
  static std::shared_ptr<const Nvrtc> find(int latest_major, std::string& reason);

  NvrtcVersion version() const { return version_; }
  std::string path() const { return library_.path(); }
  /// Tells two builds apart, for the cache: "NVRTC 13.0 65be0d…".
  std::string identity() const;
  /// Real architectures that it compiles for: 75, 80, …
  std::vector<int> architectures() const;
  /// All options of a compilation, in the order in which NVRTC sees them.
  std::vector<std::string> options(const GpuSource& source, const std::string& architecture, CompiledKind kind) const;

  /// `architecture`: "sm_90", for both kinds. A failed compile throws DeviceError, which has the first error
  /// and names the directory that keeps source, options and log.
  CompiledKernels compile(const GpuSource& source, const std::string& architecture,
                          CompiledKind kind = CompiledKind::Cubin) const;

 private:
  using Program = struct NvrtcProgram*;
  Nvrtc() = default;
  bool bind(std::string& reason);
  std::string load_builtins() const;  ///< why they cannot be, in one line; empty where they are

  SharedLibrary library_;
  NvrtcVersion version_;
  int (*get_version_)(int*, int*) = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*architecture_count_)(int*) = nullptr;
  int (*architectures_)(int*) = nullptr;
  int (*create_)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy_)(Program*) = nullptr;
  int (*compile_)(Program, int, const char* const*) = nullptr;
  int (*log_size_)(Program, std::size_t*) = nullptr;
  int (*log_)(Program, char*) = nullptr;
  int (*ptx_size_)(Program, std::size_t*) = nullptr;
  int (*ptx_)(Program, char*) = nullptr;
  int (*cubin_size_)(Program, std::size_t*) = nullptr;
  int (*cubin_)(Program, char*) = nullptr;
};

/// With the NVRTC of this machine. Throws DeviceError, also where there is none.
CompiledKernels compile_cuda(const GpuSource& source, const std::string& architecture,
                             CompiledKind kind = CompiledKind::Cubin);
/// Its version, "13.0"; empty, with the reason in one line, where there is none.
std::string nvrtc_version(std::string& reason);

}  // namespace cellc
