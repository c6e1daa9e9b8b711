#pragma once
// A GPU through a given driver. open_gpu() of gpu.h finds the driver and calls this.
#include <memory>
#include <string>

#include "runtime/cuda/device/driver.h"
#include "runtime/cuda/device/gpu.h"

namespace cellc {

std::unique_ptr<Gpu> open_gpu(std::shared_ptr<const Driver> driver, const std::string& cache_directory,
                              std::string& reason, int device = 0);

/// Whether such a reason says that there is a GPU, and no NVRTC for it.
bool is_compiler_missing(const std::string& reason);

}  // namespace cellc
