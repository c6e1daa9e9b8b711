#pragma once
// Tensors read by the table of functions in C that their class has for it, DLPack's exchange (version 1, which torch
// has since 2.10): a tenth of the time that their methods take. Its layout is fixed, so that no header of torch is
// needed.
#include <nanobind/nanobind.h>

#include "dlpack.h"

namespace nb = nanobind;

namespace cellc::python {

class TensorExchange {
 public:
  TensorExchange() = default;
  /// Of a class of tensors; can do nothing where the class has no table, or one of another version.
  explicit TensorExchange(nb::handle type);

  bool exists() const { return read_ != nullptr; }
  /// Whether `tensor` could be read: one of torch.Tensor itself or its parameters, which has memory.
  bool read(PyObject* tensor, DLTensor& result) const { return read_(tensor, &result) == 0 || (PyErr_Clear(), false); }
  /// The stream that work is queued on now, of a GPU. Where exists().
  void* stream(int gpu) const;

 private:
  int (*read_)(void*, DLTensor*) = nullptr;
  int (*stream_)(std::int32_t, std::int32_t, void**) = nullptr;
};

}  // namespace cellc::python
