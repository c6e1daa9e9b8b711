/* As much of the driver as host_driver.h calls, found when it is first asked for: for libraries that are loaded where
 * there may be none. In the place of cuda.h. */
#ifndef CELLC_HOST_DRIVER_TABLE
#define CELLC_HOST_DRIVER_TABLE

#include <stddef.h>
#include <stdint.h>

#define CUDA_VERSION 12080 /* whose launches are asked for where the driver has them */

typedef uint64_t CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef int CUdevice;
typedef int CUresult;
enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_SUPPORTED = 801
};
typedef int CUfunction_attribute;
enum {
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
};
typedef int CUdevice_attribute;
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};
typedef int CUpointer_attribute;
enum {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
typedef struct CUlaunchAttribute {
  int id, pad;
  union {
    char pad[64];
    int programmaticStreamSerializationAllowed;
  } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
} CUlaunchConfig;

/* FUNCTION(name, symbol, arguments) */
#define CELLC_DRIVER_FUNCTIONS(FUNCTION)                                                                            \
  FUNCTION(cuInit, "cuInit", (unsigned))                                                                            \
  FUNCTION(cuDriverGetVersion, "cuDriverGetVersion", (int*))                                                        \
  FUNCTION(cuGetErrorString, "cuGetErrorString", (CUresult, const char**))                                          \
  FUNCTION(cuDeviceGetCount, "cuDeviceGetCount", (int*))                                                            \
  FUNCTION(cuDeviceGet, "cuDeviceGet", (CUdevice*, int))                                                            \
  FUNCTION(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))                      \
  FUNCTION(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                            \
  FUNCTION(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                   \
  FUNCTION(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext*))                                                        \
  FUNCTION(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice*))                                                           \
  FUNCTION(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                                    \
  FUNCTION(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*))                                                     \
  FUNCTION(cuModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*))                                          \
  FUNCTION(cuModuleUnload, "cuModuleUnload", (CUmodule))                                                            \
  FUNCTION(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                        \
  FUNCTION(cuFuncGetAttribute, "cuFuncGetAttribute", (int*, CUfunction_attribute, CUfunction))                      \
  FUNCTION(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction, CUfunction_attribute, int))                       \
  FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",              \
           (int*, CUfunction, int, size_t))                                                                         \
  FUNCTION(                                                                                                         \
      cuLaunchKernel, "cuLaunchKernel",                                                                             \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)) \
  FUNCTION(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel",                                                  \
           (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**))    \
  FUNCTION(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                      \
  FUNCTION(cuPointerGetAttributes, "cuPointerGetAttributes", (unsigned, CUpointer_attribute*, void**, CUdeviceptr)) \
  FUNCTION(cuLaunchKernelEx, "cuLaunchKernelEx", (const CUlaunchConfig*, CUfunction, void**, void**))

typedef struct cellc_driver_table {
#define CELLC_FUNCTION(name, symbol, arguments) CUresult(*name) arguments;
  CELLC_DRIVER_FUNCTIONS(CELLC_FUNCTION)
#undef CELLC_FUNCTION
  int is_whole;
} cellc_driver_table;

static cellc_driver_table cellc_table;

/* Of libc, or of libdl where that is apart. */
extern void* dlopen(const char* file, int flags);
extern void* dlsym(void* handle, const char* symbol);

/* Whether there is a driver. Threads that ask for the first time together write the same. It stays loaded. */
static int cellc_find_driver(void) {
  enum { NOW = 2 };
  void* library;
  int missing = 0;
  if (__atomic_load_n(&cellc_table.is_whole, __ATOMIC_ACQUIRE)) return 1;
  library = dlopen("libcuda.so.1", NOW);
  if (!library) library = dlopen("libcuda.so", NOW);
  if (!library) return 0;
#define CELLC_FUNCTION(name, symbol, arguments)                           \
  {                                                                       \
    void* found = dlsym(library, symbol);                                 \
    missing += !found;                                                    \
    __atomic_store_n((void**)&cellc_table.name, found, __ATOMIC_RELAXED); \
  }
  CELLC_DRIVER_FUNCTIONS(CELLC_FUNCTION)
#undef CELLC_FUNCTION
  /* The last came with CUDA 11.8, and is asked for with drivers of 12.3 or newer. */
  if (missing - !cellc_table.cuLaunchKernelEx) return 0;
  __atomic_store_n(&cellc_table.is_whole, 1, __ATOMIC_RELEASE);
  return 1;
}

#define cuInit cellc_table.cuInit
#define cuDriverGetVersion cellc_table.cuDriverGetVersion
#define cuGetErrorString cellc_table.cuGetErrorString
#define cuDeviceGetCount cellc_table.cuDeviceGetCount
#define cuDeviceGet cellc_table.cuDeviceGet
#define cuDeviceGetAttribute cellc_table.cuDeviceGetAttribute
#define cuDevicePrimaryCtxRetain cellc_table.cuDevicePrimaryCtxRetain
#define cuDevicePrimaryCtxRelease cellc_table.cuDevicePrimaryCtxRelease
#define cuCtxGetCurrent cellc_table.cuCtxGetCurrent
#define cuCtxGetDevice cellc_table.cuCtxGetDevice
#define cuCtxPushCurrent cellc_table.cuCtxPushCurrent
#define cuCtxPopCurrent cellc_table.cuCtxPopCurrent
#define cuModuleLoadData cellc_table.cuModuleLoadData
#define cuModuleUnload cellc_table.cuModuleUnload
#define cuModuleGetFunction cellc_table.cuModuleGetFunction
#define cuFuncGetAttribute cellc_table.cuFuncGetAttribute
#define cuFuncSetAttribute cellc_table.cuFuncSetAttribute
#define cuOccupancyMaxActiveBlocksPerMultiprocessor cellc_table.cuOccupancyMaxActiveBlocksPerMultiprocessor
#define cuLaunchKernel cellc_table.cuLaunchKernel
#define cuLaunchCooperativeKernel cellc_table.cuLaunchCooperativeKernel
#define cuMemsetD8Async cellc_table.cuMemsetD8Async
#define cuPointerGetAttributes cellc_table.cuPointerGetAttributes
#define cuLaunchKernelEx cellc_table.cuLaunchKernelEx

#endif
