#pragma once
// Tensors read by the table of functions in C that their class has for it, DLPack's exchange (version 1, which torch
// has since 2.10): a tenth of the time that their methods take. Its layout is fixed, so that no header of torch is
// needed.
#include <nanobind/nanobind.h>

#include <cstdint>

namespace nb = nanobind;

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
  bool is_dense() const;     ///< lies row-major without gaps
};

class TensorExchange {
 public:
  TensorExchange() = default;
  /// Of a class of tensors; can do nothing where the class has no table, or one of another version.
  explicit TensorExchange(nb::handle type);

  bool exists() const { return read_ != nullptr; }
  /// Whether `tensor` could be read: one of torch.Tensor itself or its parameters, which has memory.
  bool read(PyObject* tensor, DLTensor& result) const { return read_(tensor, &result) == 0 || (PyErr_Clear(), false); }

 private:
  int (*read_)(void*, DLTensor*) = nullptr;
};

}  // namespace cellc::python
