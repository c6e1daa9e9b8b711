#pragma once
// Tensors as DLPack (version 1) lays them out. Nothing of Python, as the library of operators reads them, too.
#include <cstddef>
#include <cstdint>

namespace cellc::python {

struct DLDevice {
  std::int32_t type, number;
};
inline constexpr std::int32_t kDLCpu = 1, kDLCuda = 2, kDLCudaHost = 3;

struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

/// A tensor that someone else owns, as long as it is not changed.
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t rank;
  DLDataType dtype;
  std::int64_t *shape, *strides;  ///< in entries; strides may be null: no gaps
  std::uint64_t byte_offset;

  std::byte* first() const { return static_cast<std::byte*>(data) + byte_offset; }
  int cellc_dtype() const;   ///< or kOtherDtype
  int cellc_device() const;  ///< kHost, the number of a GPU, or kElsewhere
};

}  // namespace cellc::python
