/* A device as the CUDA runtime gives it: the current one. What it costs is asked anew at every call, so
 * nothing is kept between calls and threads share nothing. */
#ifndef CELLC_HOST_CUDART
#define CELLC_HOST_CUDART

/* Needs cuda_runtime.h. */
#include "kernels-templates/host/host_call.h"

typedef struct cellc_cuda {
  const void* const* kernels;
  cudaStream_t stream;
  int device, shared;
  int early; /* launches may begin before what is ahead of them on the stream has ended */
} cellc_cuda;

static inline int cellc_cuda_error(cudaError_t error) {
  if (error == cudaSuccess) return CELLC_DONE;
  (void)cudaGetLastError(); /* it is told here, not to whoever asks next */
  return error == cudaErrorNoKernelImageForDevice ? CELLC_NO_CODE : CELLC_DEVICE_ERROR + (int)error;
}

/* Lets a kernel have so much shared memory besides its own: where the two are more than 48 KiB, all that the device
 * has, since another thread may ask for the same kernel with other lengths between this and the launch. `waits`: it is
 * code that waits for what is ahead of it on the stream (await_stream of preamble.cuh), which that for cards before
 * sm_90 does not. */
static inline int cellc_cuda_opt_in(const cellc_cuda* c, int kernel, int64_t shared_bytes, int* waits) {
  struct cudaFuncAttributes of;
  const cudaError_t error = cudaFuncGetAttributes(&of, c->kernels[kernel]);
  const int64_t own = error ? 0 : (int64_t)of.sharedSizeBytes;
  *waits = !error && of.ptxVersion >= 90;
  if (error) return cellc_cuda_error(error);
  if (own + shared_bytes > c->shared) return CELLC_SMALL_CARD;
  if (own + shared_bytes <= 48 * 1024) return CELLC_DONE;
  return cellc_cuda_error(
      cudaFuncSetAttribute(c->kernels[kernel], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(c->shared - own)));
}

static inline int cellc_cuda_resident(void* self, int kernel, int threads, int64_t shared_bytes) {
  const cellc_cuda* c = (const cellc_cuda*)self;
  int blocks = 0, waits;
  if (cellc_cuda_opt_in(c, kernel, shared_bytes, &waits)) return 0;
  if (cellc_cuda_error(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, c->kernels[kernel], threads, (size_t)shared_bytes)))
    return 0;
  return blocks;
}

static inline int cellc_cuda_launch(void* self, int kernel, cellc_grid grid, int64_t shared_bytes, const void* argument,
                                    size_t bytes) {
  const cellc_cuda* c = (const cellc_cuda*)self;
  void* arguments[1];
  int waits;
  const int refused = cellc_cuda_opt_in(c, kernel, shared_bytes, &waits);
  (void)bytes;
  arguments[0] = (void*)(uintptr_t)argument;
  if (refused) return refused;
#if CUDART_VERSION >= 12030
  if (c->early && waits && !grid.cooperative) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    cudaLaunchAttribute attribute = cudaLaunchAttribute();
    cudaError_t error;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(grid.blocks);
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = c->stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelExC(&config, c->kernels[kernel], arguments);
    if (error != cudaErrorNotSupported && error != cudaErrorInvalidValue) return cellc_cuda_error(error);
    (void)cudaGetLastError();
  }
#endif
  return cellc_cuda_error(grid.cooperative
                              ? cudaLaunchCooperativeKernel(c->kernels[kernel], dim3(grid.blocks), dim3(grid.threads),
                                                            arguments, (size_t)shared_bytes, c->stream)
                              : cudaLaunchKernel(c->kernels[kernel], dim3(grid.blocks), dim3(grid.threads), arguments,
                                                 (size_t)shared_bytes, c->stream));
}

static inline int cellc_cuda_zero(void* self, uint64_t address, int64_t bytes) {
  return cellc_cuda_error(
      cudaMemsetAsync((void*)(uintptr_t)address, 0, (size_t)bytes, ((const cellc_cuda*)self)->stream));
}

static inline int cellc_cuda_owns(void* self, uint64_t address) {
  cudaPointerAttributes of;
  if (cellc_cuda_error(cudaPointerGetAttributes(&of, (const void*)(uintptr_t)address))) return 0;
  if (of.type == cudaMemoryTypeDevice) return of.device == ((const cellc_cuda*)self)->device;
  return of.type != cudaMemoryTypeUnregistered && of.devicePointer != 0;
}

/* The device of the calling thread. */
static inline int cellc_cuda_open(const cellc_cell* cell, const void* const* kernels, void* stream, cellc_cuda* c,
                                  cellc_device* device) {
  cudaError_t error;
  int multiprocessors = 0, l2_bytes = 0, driver = 0;
  memset(c, 0, sizeof *c);
  c->kernels = kernels;
  c->stream = (cudaStream_t)stream;
  error = cudaGetDevice(&c->device);
  if (!error) error = cudaDriverGetVersion(&driver);
  c->early = driver >= 12030; /* graphs keep such launches since then */
  if (!error) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, c->device);
  if (!error) error = cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, c->device);
  if (!error) error = cudaDeviceGetAttribute(&c->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device);
  device->self = c;
  device->facts = cellc_facts_of(cell, multiprocessors, l2_bytes);
  device->resident = cellc_cuda_resident;
  device->launch = cellc_cuda_launch;
  device->zero = cellc_cuda_zero;
  device->owns = cellc_cuda_owns;
  return cellc_cuda_error(error);
}

#endif
