#pragma once
// NVIDIA's driver, loaded at run time: the functions of libcuda that a GpuDriver calls. The declarations
// here are part of the driver's binary interface; their names and numbers never change.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/cuda/device/shared_library.h"

namespace cellc {

/// CUresult. Those that something here depends on.
enum CudaResult : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaDeinitialized = 4,
  kCudaStubLibrary = 34,
  kCudaNoDevice = 100,
  kCudaEccUncorrectable = 214,
  kCudaNvlinkUncorrectable = 220,
  kCudaContained = 226,
  kCudaNotReady = 600,
  kCudaIllegalAddress = 700,
  kCudaLaunchTimeout = 702,
  kCudaContextIsDestroyed = 709,
  kCudaAssert = 710,
  kCudaHardwareStackError = 714,
  kCudaLaunchFailed = 719,
  kCudaTensorMemoryLeak = 721,
  kCudaNotSupported = 801,
  kCudaUnknown = 999,
};

/// After these every call on the context fails: only a new process helps.
bool loses_context(int result);

enum CudaDeviceAttribute : int {  // CUdevice_attribute
  kCudaMultiprocessors = 16,
  kCudaL2Bytes = 38,
  kCudaThreadsPerMultiprocessor = 39,
  kCudaMajor = 75,
  kCudaMinor = 76,
  kCudaSharedPerMultiprocessor = 81,
  kCudaRegistersPerMultiprocessor = 82,
  kCudaSharedPerBlockOptIn = 97,
};

enum CudaFunctionAttribute : int {  // CUfunction_attribute
  kCudaMaxThreads = 0,
  kCudaStaticShared = 1,
  kCudaLocalBytes = 3,
  kCudaRegisters = 4,
  kCudaMaxDynamicShared = 8,
  kCudaLargeClusters = 14,  ///< NON_PORTABLE_CLUSTER_SIZE_ALLOWED: of more than 8 blocks
};

enum CudaPointerAttribute : int {  // CUpointer_attribute
  kCudaMemoryType = 2,
  kCudaIsManaged = 8,
  kCudaDeviceOrdinal = 9,
  kCudaIsLegacyIpcCapable = 10,  ///< memory of cuMemAlloc, whose range is one piece
  kCudaRangeStart = 11,
  kCudaRangeBytes = 12,
};
constexpr unsigned kCudaMemoryOfDevice = 2;  // CUmemorytype
constexpr int kCudaCaptureRelaxed = 2;       // CUstreamCaptureMode
constexpr unsigned kCudaNonBlocking = 1, kCudaEventWithoutTiming = 2;

enum CudaJitOption : int { kCudaErrorLog = 5, kCudaErrorLogBytes = 6 };  // CUjit_option

enum CudaLaunchAttributeId : int {
  kCudaCooperative = 2,
  kCudaClusterDimension = 4,
  kCudaProgrammaticSerialization = 6
};
struct CudaLaunchAttribute {  // CUlaunchAttribute
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64];
    int on;
    unsigned cluster[3];
  } value = {};
};
static_assert(sizeof(CudaLaunchAttribute) == 72);

struct CudaLaunchConfig {  // CUlaunchConfig
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  CudaLaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(CudaLaunchConfig) == 56);

/// The table. Members have the names of the functions without `cu` and version.
class Driver {
 public:
  /// The driver of this machine, initialised; or nullptr with a reason in one line. Never the stub of a
  /// toolkit.
  static std::shared_ptr<const Driver> open(std::string& reason);
  /// The one in that file.
  static std::shared_ptr<const Driver> open_file(const std::string& file, std::string& reason);

  int version() const { return version_; }  ///< of CUDA that it serves: 13000 is 13.0
  int major() const { return version_ / 1000; }
  /// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  std::string describe(int result) const;

  using Handle = void*;  // CUcontext, CUmodule, CUfunction, CUstream, CUevent, CUgraph, CUgraphExec
  using Address = std::uint64_t;
  int (*init)(unsigned) = nullptr;
  int (*driver_get_version)(int*) = nullptr;
  int (*get_error_name)(int, const char**) = nullptr;
  int (*get_error_string)(int, const char**) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_get_count)(int*) = nullptr;
  int (*device_get_name)(char*, int, int) = nullptr;
  int (*device_get_attribute)(int*, int, int) = nullptr;
  int (*device_total_mem)(std::size_t*, int) = nullptr;
  int (*primary_retain)(Handle*, int) = nullptr;
  int (*primary_release)(int) = nullptr;
  int (*ctx_get_current)(Handle*) = nullptr;
  int (*ctx_push_current)(Handle) = nullptr;
  int (*ctx_pop_current)(Handle*) = nullptr;
  int (*module_load_data_ex)(Handle*, const void*, unsigned, int*, void**) = nullptr;
  int (*module_unload)(Handle) = nullptr;
  int (*module_get_function)(Handle*, Handle, const char*) = nullptr;
  int (*func_get_attribute)(int*, int, Handle) = nullptr;
  int (*func_set_attribute)(Handle, int, int) = nullptr;
  int (*occupancy)(int*, Handle, int, std::size_t) = nullptr;
  int (*active_clusters)(int*, Handle, const CudaLaunchConfig*) = nullptr;
  int (*launch_kernel_ex)(const CudaLaunchConfig*, Handle, void**, void**) = nullptr;
  int (*mem_get_info)(std::size_t*, std::size_t*) = nullptr;
  int (*mem_alloc)(Address*, std::size_t) = nullptr;
  int (*mem_free)(Address) = nullptr;
  int (*memcpy_to_device)(Address, const void*, std::size_t, Handle) = nullptr;
  int (*memcpy_to_host)(void*, Address, std::size_t, Handle) = nullptr;
  int (*memcpy_on_device)(Address, Address, std::size_t, Handle) = nullptr;
  int (*memset_bytes)(Address, unsigned char, std::size_t, Handle) = nullptr;
  int (*stream_synchronize)(Handle) = nullptr;
  int (*event_create)(Handle*, unsigned) = nullptr;
  int (*event_destroy)(Handle) = nullptr;
  int (*event_record)(Handle, Handle) = nullptr;
  int (*event_synchronize)(Handle) = nullptr;
  int (*event_elapsed_time)(float*, Handle, Handle) = nullptr;
  int (*event_query)(Handle) = nullptr;
  int (*stream_create)(Handle*, unsigned) = nullptr;
  int (*stream_destroy)(Handle) = nullptr;
  int (*stream_get_id)(Handle, std::uint64_t*) = nullptr;
  int (*stream_wait_event)(Handle, Handle, unsigned) = nullptr;
  int (*stream_get_capture_info)(Handle, int*, std::uint64_t*, Handle*, const Handle**, std::size_t*) = nullptr;
  int (*stream_begin_capture)(Handle, int) = nullptr;
  int (*stream_end_capture)(Handle, Handle*) = nullptr;
  int (*graph_instantiate)(Handle*, Handle, unsigned long long) = nullptr;
  int (*graph_destroy)(Handle) = nullptr;
  int (*graph_launch)(Handle, Handle) = nullptr;
  int (*graph_exec_destroy)(Handle) = nullptr;
  int (*thread_exchange_capture_mode)(int*) = nullptr;
  int (*pointer_get_attributes)(unsigned, int*, void**, Address) = nullptr;

 private:
  Driver() = default;
  bool bind(std::string& reason);

  SharedLibrary library_;
  int version_ = 0;
};

}  // namespace cellc
