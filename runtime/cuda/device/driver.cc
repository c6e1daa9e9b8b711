#include "runtime/cuda/device/driver.h"

#include <fmt/format.h>

#include <type_traits>

namespace cellc {
namespace {

// cuLaunchKernelEx is from 11.8; code of NVRTC 12.8 runs on every driver of CUDA 12.
constexpr int kOldestDriver = 12000;

bool is_stub(const std::string& path) { return path.find("/stubs/") != std::string::npos; }

std::string version_name(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

bool loses_context(int result) {
  switch (result) {
    case kCudaDeinitialized:
    case kCudaEccUncorrectable:
    case kCudaNvlinkUncorrectable:
    case kCudaContained:
    case kCudaIllegalAddress:
    case kCudaLaunchTimeout:
    case kCudaContextIsDestroyed:
    case kCudaAssert:
    case kCudaTensorMemoryLeak:
    case kCudaUnknown:
      return true;
    default:  // bad instructions, addresses, stacks
      return result >= kCudaHardwareStackError && result <= kCudaLaunchFailed;
  }
}

std::string Driver::describe(int result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != kCudaSuccess || !name) return fmt::format("CUDA error {}", result);
  if (get_error_string(result, &text) != kCudaSuccess || !text) return name;
  return fmt::format("{} ({})", name, text);
}

bool Driver::bind(std::string& reason) {
  reason.clear();
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.symbol(name));
    if (!function && reason.empty())
      reason = fmt::format("the NVIDIA driver ({}) is too old: it has no {}; cellc needs one of CUDA {} or newer",
                           library_.path(), name, version_name(kOldestDriver));
  };
  take(init, "cuInit");
  take(driver_get_version, "cuDriverGetVersion");
  take(get_error_name, "cuGetErrorName");
  take(get_error_string, "cuGetErrorString");
  take(device_get, "cuDeviceGet");
  take(device_get_count, "cuDeviceGetCount");
  take(device_get_name, "cuDeviceGetName");
  take(device_get_attribute, "cuDeviceGetAttribute");
  take(device_total_mem, "cuDeviceTotalMem_v2");
  take(primary_retain, "cuDevicePrimaryCtxRetain");
  take(primary_release, "cuDevicePrimaryCtxRelease_v2");
  take(ctx_get_current, "cuCtxGetCurrent");
  take(ctx_push_current, "cuCtxPushCurrent_v2");
  take(ctx_pop_current, "cuCtxPopCurrent_v2");
  take(module_load_data_ex, "cuModuleLoadDataEx");
  take(module_unload, "cuModuleUnload");
  take(module_get_function, "cuModuleGetFunction");
  take(func_get_attribute, "cuFuncGetAttribute");
  take(func_set_attribute, "cuFuncSetAttribute");
  take(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  take(active_clusters, "cuOccupancyMaxActiveClusters");
  take(launch_kernel_ex, "cuLaunchKernelEx");
  take(mem_get_info, "cuMemGetInfo_v2");
  take(mem_alloc, "cuMemAlloc_v2");
  take(mem_free, "cuMemFree_v2");
  take(memcpy_to_device, "cuMemcpyHtoDAsync_v2");
  take(memcpy_to_host, "cuMemcpyDtoHAsync_v2");
  take(memcpy_on_device, "cuMemcpyDtoDAsync_v2");
  take(memset_bytes, "cuMemsetD8Async");
  take(stream_synchronize, "cuStreamSynchronize");
  take(event_create, "cuEventCreate");
  take(event_destroy, "cuEventDestroy_v2");
  take(event_record, "cuEventRecord");
  take(event_synchronize, "cuEventSynchronize");
  take(event_elapsed_time, "cuEventElapsedTime");
  take(event_query, "cuEventQuery");
  take(stream_create, "cuStreamCreate");
  take(stream_destroy, "cuStreamDestroy_v2");
  take(stream_get_id, "cuStreamGetId");
  take(stream_wait_event, "cuStreamWaitEvent");
  take(stream_get_capture_info, "cuStreamGetCaptureInfo_v2");
  take(stream_begin_capture, "cuStreamBeginCapture_v2");
  take(stream_end_capture, "cuStreamEndCapture");
  take(graph_instantiate, "cuGraphInstantiateWithFlags");
  take(graph_destroy, "cuGraphDestroy");
  take(graph_launch, "cuGraphLaunch");
  take(graph_exec_destroy, "cuGraphExecDestroy");
  take(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  take(pointer_get_attributes, "cuPointerGetAttributes");
  return reason.empty();
}

std::shared_ptr<const Driver> Driver::open_file(const std::string& file, std::string& reason) {
  std::shared_ptr<Driver> driver(new Driver);
  driver->library_ = SharedLibrary::open(file, reason);
  if (!driver->library_) {
    reason = fmt::format("no NVIDIA driver: {}", reason);
    return nullptr;
  }
  // The toolkit's stub is for linkers: every call of it fails.
  if (const std::string path = driver->library_.path(); is_stub(path)) {
    reason = fmt::format("no NVIDIA driver: {} is the CUDA toolkit's stub, not a driver", path);
    driver->library_.close();
    return nullptr;
  }
  if (!driver->bind(reason)) return nullptr;
  if (const int result = driver->init(0); result != kCudaSuccess) {
    switch (result) {
      case kCudaNoDevice:
        reason = "no GPU: the NVIDIA driver finds no device that this process may use";
        break;
      case kCudaStubLibrary:
        reason = fmt::format("no NVIDIA driver: {} is a stub", driver->library_.path());
        break;
      default:
        reason = fmt::format("the NVIDIA driver does not start: {}", driver->describe(result));
    }
    return nullptr;
  }
  if (driver->driver_get_version(&driver->version_) != kCudaSuccess || driver->version_ < kOldestDriver) {
    reason = fmt::format("the NVIDIA driver is too old: it serves CUDA {}, cellc needs {} or newer",
                         version_name(driver->version_), version_name(kOldestDriver));
    return nullptr;
  }
  return driver;
}

std::shared_ptr<const Driver> Driver::open(std::string& reason) {
  if (auto driver = open_file("libcuda.so.1", reason)) return driver;
  // Where the loader's path leads to a stub first, the driver may still lie where its installer puts it.
  if (reason.find("stub") != std::string::npos) {
    for (const char* directory : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                                  "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"}) {
      std::string other;
      if (auto driver = open_file(std::string(directory) + "/libcuda.so.1", other)) return driver;
    }
  }
  return nullptr;
}

}  // namespace cellc
