/* A device as the CUDA driver gives it: the one of the current context, and kernels of a module that was
 * loaded into it. */
#ifndef CELLC_HOST_DRIVER
#define CELLC_HOST_DRIVER

/* Needs cuda.h. */
#include "kernels-templates/host/host_call.h"

typedef struct cellc_driver {
  const CUfunction* kernels;
  CUstream stream;
  CUcontext context;
  int device, shared;
  int early; /* launches may begin before what is ahead of them on the stream has ended */
} cellc_driver;

static inline int cellc_driver_error(CUresult error) {
  if (error == CUDA_SUCCESS) return CELLC_DONE;
  return error == CUDA_ERROR_NO_BINARY_FOR_GPU ? CELLC_NO_CODE : CELLC_DEVICE_ERROR + (int)error;
}

/* Lets a kernel have so much shared memory besides its own: where the two are more than 48 KiB, all that the device
 * has, since another thread may ask for the same kernel with other lengths between this and the launch. */
static inline int cellc_driver_opt_in(const cellc_driver* c, int kernel, int64_t shared_bytes) {
  int own = 0;
  const CUresult error = cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, c->kernels[kernel]);
  if (error) return cellc_driver_error(error);
  if (own + shared_bytes > c->shared) return CELLC_SMALL_CARD;
  if (own + shared_bytes <= 48 * 1024) return CELLC_DONE;
  return cellc_driver_error(
      cuFuncSetAttribute(c->kernels[kernel], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)(c->shared - own)));
}

/* Whether a kernel is code that waits for what is ahead of it on the stream (await_stream of preamble.cuh), which that
 * for cards before sm_90 does not. */
static inline int cellc_driver_waits(const cellc_driver* c, int kernel) {
  int architecture = 0;
  return !cuFuncGetAttribute(&architecture, CU_FUNC_ATTRIBUTE_PTX_VERSION, c->kernels[kernel]) && architecture >= 90;
}

static inline int cellc_driver_resident(void* self, int kernel, int threads, int64_t shared_bytes) {
  const cellc_driver* c = (const cellc_driver*)self;
  int blocks = 0;
  if (cellc_driver_opt_in(c, kernel, shared_bytes)) return 0;
  if (cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, c->kernels[kernel], threads, (size_t)shared_bytes)) return 0;
  return blocks;
}

static inline int cellc_driver_launch(void* self, int kernel, cellc_grid grid, int64_t shared_bytes,
                                      const void* argument, size_t bytes) {
  const cellc_driver* c = (const cellc_driver*)self;
  void* arguments[1];
  const int refused = cellc_driver_opt_in(c, kernel, shared_bytes);
  (void)bytes;
  arguments[0] = (void*)(uintptr_t)argument;
  if (refused) return refused;
#if CUDA_VERSION >= 12030
  if (c->early && !grid.cooperative && cellc_driver_waits(c, kernel)) {
    CUlaunchConfig config;
    CUlaunchAttribute attribute;
    CUresult error;
    memset(&config, 0, sizeof config);
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    config.gridDimX = grid.blocks, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = grid.threads, config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = (unsigned)shared_bytes;
    config.hStream = c->stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    error = cuLaunchKernelEx(&config, c->kernels[kernel], arguments, 0);
    if (error != CUDA_ERROR_NOT_SUPPORTED && error != CUDA_ERROR_INVALID_VALUE) return cellc_driver_error(error);
  }
#endif
  return cellc_driver_error(grid.cooperative
                                ? cuLaunchCooperativeKernel(c->kernels[kernel], grid.blocks, 1, 1, grid.threads, 1, 1,
                                                            (unsigned)shared_bytes, c->stream, arguments)
                                : cuLaunchKernel(c->kernels[kernel], grid.blocks, 1, 1, grid.threads, 1, 1,
                                                 (unsigned)shared_bytes, c->stream, arguments, 0));
}

static inline int cellc_driver_zero(void* self, uint64_t address, int64_t bytes) {
  return cellc_driver_error(
      cuMemsetD8Async((CUdeviceptr)address, 0, (size_t)bytes, ((const cellc_driver*)self)->stream));
}

static inline int cellc_driver_owns(void* self, uint64_t address) {
  /* Asked at once: one call of the driver for each array instead of three. */
  CUpointer_attribute asked[4] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  unsigned type = 0, managed = 0;
  int device = -1;
  CUdeviceptr seen = 0;
  void* answers[4];
  answers[0] = &type, answers[1] = &managed, answers[2] = &device, answers[3] = &seen;
  /* Of an address that it does not know the driver says zeros. */
  if (cuPointerGetAttributes(4, asked, answers, (CUdeviceptr)address)) return 0;
  if (type == CU_MEMORYTYPE_HOST || managed) return seen != 0;
  return type == CU_MEMORYTYPE_DEVICE && device == ((const cellc_driver*)self)->device;
}

/* Kernels by name, of a module for the current context. */
static inline int cellc_driver_load(CUmodule* module, CUfunction* kernels, const char* const* names, int count,
                                    CUcontext* context, const void* image) {
  CUresult error = cuCtxGetCurrent(context);
  int k;
  *module = 0;
  if (!error && !*context) error = CUDA_ERROR_INVALID_CONTEXT;
  if (!error) error = cuModuleLoadData(module, image);
  for (k = 0; k < count && !error; ++k) error = cuModuleGetFunction(kernels + k, *module, names[k]);
  if (error && *module) {
    (void)cuModuleUnload(*module);
    *module = 0;
  }
  /* One of the names has a number of the whole text. */
  return error == CUDA_ERROR_NOT_FOUND ? CELLC_OTHER_LAYOUT : cellc_driver_error(error);
}

static inline int cellc_driver_open(const cellc_cell* cell, const CUfunction* kernels, CUcontext loaded,
                                    CUstream stream, cellc_driver* c, cellc_device* device) {
  CUresult error;
  CUdevice ordinal = 0;
  int multiprocessors = 0, l2_bytes = 0, driver = 0;
  memset(c, 0, sizeof *c);
  c->kernels = kernels;
  c->stream = stream;
  error = cuCtxGetCurrent(&c->context);
  if (!error) error = cuDriverGetVersion(&driver);
  c->early = driver >= 12030; /* graphs keep such launches since then */
  if (!error && c->context != loaded) error = CUDA_ERROR_INVALID_CONTEXT;
  if (!error) error = cuCtxGetDevice(&ordinal);
  if (!error) error = cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
  if (!error) error = cuDeviceGetAttribute(&l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, ordinal);
  if (!error) error = cuDeviceGetAttribute(&c->shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, ordinal);
  c->device = (int)ordinal;
  device->self = c;
  device->facts = cellc_facts_of(cell, multiprocessors, l2_bytes);
  device->resident = cellc_driver_resident;
  device->launch = cellc_driver_launch;
  device->zero = cellc_driver_zero;
  device->owns = cellc_driver_owns;
  return cellc_driver_error(error);
}

#endif
