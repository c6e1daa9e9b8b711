#pragma once
// Arrays of a call on a GPU, with any strides.
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/capi/strided_array.h"
#include "tests/capi_gpu/emulated_gpu.h"

namespace cellc {

using namespace strided;

/// The arrays of a call in one direction, on the device.
struct ArraysOnGpu : CallArrays {
  ArraysOnGpu(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape, Gpu& gpu)
      : CallArrays(kernel, direction, shape), gpu(gpu) {
    device.resize(all.size());
  }
  void draw(Random& random) {
    for (OneArray& a : all) {
      a.given = a.info.required || a.info.written || random.chance(0.6);
      a.draw(random, -1, 1);
    }
  }
  OneArray& named(const std::string& name) {
    if (OneArray* const array = find(name)) return *array;
    throw std::logic_error("no array " + name);
  }
  void upload(std::size_t i, const Bytes& bytes) {
    if (device[i].bytes() < bytes.size() + 16) device[i] = GpuBuffer(gpu, bytes.size() + 16);
    gpu.copy_in(device[i].address(), bytes.data(), bytes.size(), 0);
  }
  cellc_status run(bool spread, cellc_call* prepared = nullptr) {
    views.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      OneArray& a = all[i];
      upload(i, spread ? a.spread : a.dense);
      views.push_back(spread ? a.as_view() : cellc_view{nullptr, a.info.dtype, 0, nullptr, nullptr});
      views.back().data =
          a.given ? reinterpret_cast<void*>(device[i].address() + static_cast<GpuAddress>(spread ? a.origin : 0))
                  : nullptr;
    }
    const cellc_status status = again(prepared);
    for (std::size_t i = 0; i < all.size(); ++i) {
      Bytes& bytes = spread ? all[i].spread : all[i].dense;
      gpu.copy_out(bytes.data(), device[i].address(), bytes.size(), 0);
    }
    return status;
  }
  cellc_request made(cellc_report* report = nullptr) {
    cellc_request request;
    cellc_request_init(&request);
    request.direction = direction;
    request.shape = &shape;
    request.arrays = views.data();
    request.count = static_cast<int>(views.size());
    request.on_stream = 1;
    request.stream = stream;
    request.report = report;
    request.options = options;
    request.forward_status = forward_status;
    request.status = status;
    return request;
  }
  cellc_status again(cellc_call* prepared, cellc_report* report = nullptr) {
    const cellc_request request = made(report);
    return prepared ? cellc_apply_prepared(prepared, &request) : cellc_apply(kernel, &request);
  }
  Gpu& gpu;
  void* stream = nullptr;
  const cellc_call_options* options = nullptr;
  const std::int32_t* forward_status = nullptr;
  std::int32_t* status = nullptr;
  std::vector<GpuBuffer> device;
  std::vector<cellc_view> views;
};

/// The same, all of them given, without gaps, and there.
struct ReadyOnGpu : ArraysOnGpu {
  ReadyOnGpu(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape, Gpu& gpu)
      : ArraysOnGpu(kernel, direction, shape, gpu) {
    Random random(3);
    draw(random);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].given = true;
      upload(i, all[i].dense);
      views.push_back({reinterpret_cast<void*>(device[i].address()), all[i].info.dtype, 0, nullptr, nullptr});
    }
  }
  /// What the device holds of the arrays that a call writes.
  std::vector<Bytes> written() {
    std::vector<Bytes> found;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].info.written) continue;
      found.emplace_back(all[i].dense.size());
      gpu.copy_out(found.back().data(), device[i].address(), found.back().size(), 0);
    }
    return found;
  }
  void clear() {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].info.written) gpu.zero(device[i].address(), all[i].dense.size(), 0);
  }
};

}  // namespace cellc
