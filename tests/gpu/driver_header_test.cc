// What driver.h declares of the CUDA driver, against the toolkit's own header where the machine has one: numbers,
// structs, and the parameters of every function that is called.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "runtime/cuda/device/driver.h"

#ifdef CELLC_CUDA_HEADER
#define __CUDA_API_VERSION_INTERNAL  // declares older versions of functions beside the newest
#include <cuda.h>

namespace cellc {
namespace {

/// Whether an argument is passed alike: as an address, or as a number of so many bytes.
template <typename Ours, typename Theirs>
constexpr bool is_passed_alike() {
  return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
}
template <typename Ours, typename Theirs>
struct IsCalledAlike : std::false_type {};
template <typename... Ours, typename... Theirs>
struct IsCalledAlike<int (*)(Ours...), CUresult (*)(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return (is_passed_alike<Ours, Theirs>() && ...);
    else
      return false;
  }();
};
static_assert(!IsCalledAlike<int (*)(int), CUresult (*)(int*)>::value);
static_assert(!IsCalledAlike<int (*)(int, int), CUresult (*)(int)>::value);

#define CELLC_SAME_CALL(member, function) \
  static_assert(IsCalledAlike<decltype(Driver::member), decltype(&function)>::value, #function)
CELLC_SAME_CALL(init, cuInit);
CELLC_SAME_CALL(driver_get_version, cuDriverGetVersion);
CELLC_SAME_CALL(get_error_name, cuGetErrorName);
CELLC_SAME_CALL(get_error_string, cuGetErrorString);
CELLC_SAME_CALL(device_get, cuDeviceGet);
CELLC_SAME_CALL(device_get_count, cuDeviceGetCount);
CELLC_SAME_CALL(device_get_name, cuDeviceGetName);
CELLC_SAME_CALL(device_get_attribute, cuDeviceGetAttribute);
CELLC_SAME_CALL(device_total_mem, cuDeviceTotalMem_v2);
CELLC_SAME_CALL(primary_retain, cuDevicePrimaryCtxRetain);
CELLC_SAME_CALL(primary_release, cuDevicePrimaryCtxRelease_v2);
CELLC_SAME_CALL(ctx_get_current, cuCtxGetCurrent);
CELLC_SAME_CALL(ctx_push_current, cuCtxPushCurrent_v2);
CELLC_SAME_CALL(ctx_pop_current, cuCtxPopCurrent_v2);
CELLC_SAME_CALL(module_load_data_ex, cuModuleLoadDataEx);
CELLC_SAME_CALL(module_unload, cuModuleUnload);
CELLC_SAME_CALL(module_get_function, cuModuleGetFunction);
CELLC_SAME_CALL(func_get_attribute, cuFuncGetAttribute);
CELLC_SAME_CALL(func_set_attribute, cuFuncSetAttribute);
CELLC_SAME_CALL(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor);
CELLC_SAME_CALL(active_clusters, cuOccupancyMaxActiveClusters);
CELLC_SAME_CALL(launch_kernel_ex, cuLaunchKernelEx);
CELLC_SAME_CALL(mem_get_info, cuMemGetInfo_v2);
CELLC_SAME_CALL(mem_alloc, cuMemAlloc_v2);
CELLC_SAME_CALL(mem_free, cuMemFree_v2);
CELLC_SAME_CALL(memcpy_to_device, cuMemcpyHtoDAsync_v2);
CELLC_SAME_CALL(memcpy_to_host, cuMemcpyDtoHAsync_v2);
CELLC_SAME_CALL(memcpy_on_device, cuMemcpyDtoDAsync_v2);
CELLC_SAME_CALL(memset_bytes, cuMemsetD8Async);
CELLC_SAME_CALL(stream_synchronize, cuStreamSynchronize);
CELLC_SAME_CALL(event_create, cuEventCreate);
CELLC_SAME_CALL(event_destroy, cuEventDestroy_v2);
CELLC_SAME_CALL(event_record, cuEventRecord);
CELLC_SAME_CALL(event_synchronize, cuEventSynchronize);
CELLC_SAME_CALL(event_elapsed_time, cuEventElapsedTime);
CELLC_SAME_CALL(event_query, cuEventQuery);
CELLC_SAME_CALL(stream_create, cuStreamCreate);
CELLC_SAME_CALL(stream_destroy, cuStreamDestroy_v2);
CELLC_SAME_CALL(stream_get_id, cuStreamGetId);
CELLC_SAME_CALL(stream_wait_event, cuStreamWaitEvent);
CELLC_SAME_CALL(stream_get_capture_info, cuStreamGetCaptureInfo_v2);
CELLC_SAME_CALL(stream_begin_capture, cuStreamBeginCapture_v2);
CELLC_SAME_CALL(stream_end_capture, cuStreamEndCapture);
CELLC_SAME_CALL(graph_instantiate, cuGraphInstantiateWithFlags);
CELLC_SAME_CALL(graph_destroy, cuGraphDestroy);
CELLC_SAME_CALL(graph_launch, cuGraphLaunch);
CELLC_SAME_CALL(graph_exec_destroy, cuGraphExecDestroy);
CELLC_SAME_CALL(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
CELLC_SAME_CALL(pointer_get_attributes, cuPointerGetAttributes);

TEST(DriverHeader, StructsAreTheToolkits) {
  EXPECT_EQ(sizeof(CudaLaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(CudaLaunchAttribute, id), offsetof(CUlaunchAttribute, id));
  EXPECT_EQ(offsetof(CudaLaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(CudaLaunchAttribute::value), sizeof(CUlaunchAttributeValue));
  EXPECT_EQ(sizeof(CudaLaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(CudaLaunchConfig, grid), offsetof(CUlaunchConfig, gridDimX));
  EXPECT_EQ(offsetof(CudaLaunchConfig, block), offsetof(CUlaunchConfig, blockDimX));
  EXPECT_EQ(offsetof(CudaLaunchConfig, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
  EXPECT_EQ(offsetof(CudaLaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(CudaLaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(CudaLaunchConfig, attribute_count), offsetof(CUlaunchConfig, numAttrs));
}

TEST(DriverHeader, NumbersAreTheToolkits) {
  const struct {
    int ours;
    int theirs;
  } numbers[] = {
    {kCudaSuccess, CUDA_SUCCESS},
    {kCudaInvalidValue, CUDA_ERROR_INVALID_VALUE},
    {kCudaOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
    {kCudaDeinitialized, CUDA_ERROR_DEINITIALIZED},
    {kCudaStubLibrary, CUDA_ERROR_STUB_LIBRARY},
    {kCudaNoDevice, CUDA_ERROR_NO_DEVICE},
    {kCudaEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE},
    {kCudaNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE},
    {kCudaNotReady, CUDA_ERROR_NOT_READY},
    {kCudaIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS},
    {kCudaLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT},
    {kCudaContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED},
    {kCudaAssert, CUDA_ERROR_ASSERT},
    {kCudaHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR},
    {kCudaLaunchFailed, CUDA_ERROR_LAUNCH_FAILED},
    {kCudaNotSupported, CUDA_ERROR_NOT_SUPPORTED},
    {kCudaUnknown, CUDA_ERROR_UNKNOWN},
#if CUDA_VERSION >= 12080
    {kCudaContained, CUDA_ERROR_CONTAINED},
    {kCudaTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK},
#endif
    {kCudaMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {kCudaL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {kCudaThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {kCudaMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {kCudaMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {kCudaSharedPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {kCudaRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {kCudaSharedPerBlockOptIn, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {kCudaMaxThreads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {kCudaStaticShared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
    {kCudaLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
    {kCudaRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS},
    {kCudaMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
    {kCudaLargeClusters, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED},
    {kCudaMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {kCudaIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {kCudaDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {kCudaIsLegacyIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {kCudaRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
    {kCudaRangeBytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {static_cast<int>(kCudaMemoryOfDevice), CU_MEMORYTYPE_DEVICE},
    {kCudaCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED},
    {static_cast<int>(kCudaNonBlocking), CU_STREAM_NON_BLOCKING},
    {static_cast<int>(kCudaEventWithoutTiming), CU_EVENT_DISABLE_TIMING},
    {kCudaErrorLog, CU_JIT_ERROR_LOG_BUFFER},
    {kCudaErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES},
    {kCudaCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE},
    {kCudaClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
    {kCudaProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION},
  };
  int row = 0;
  for (const auto& [ours, theirs] : numbers) {
    EXPECT_EQ(ours, theirs) << "row " << row;
    ++row;
  }
}

}  // namespace
}  // namespace cellc
#else
TEST(DriverHeader, IsTheToolkits) { GTEST_SKIP() << "no CUDA toolkit: there is no cuda.h to compare driver.h with"; }
#endif
