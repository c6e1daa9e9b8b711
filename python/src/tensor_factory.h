#pragma once
// New tensors by torch's stable ABI, where the torch of the process has what it takes (2.14): a third of the time that
// torch.empty_like takes, most of which is for reading arguments of Python. Looked up by name, so that no header of
// torch is needed.
#include <nanobind/nanobind.h>

#include <cstdint>

namespace nb = nanobind;

namespace cellc::python {

class TensorFactory {
 public:
  /// That of the torch that is loaded; can do nothing where there is none, or an earlier one.
  static TensorFactory of_process();

  bool exists() const { return wrap_ != nullptr; }
  /// A new tensor without gaps; `device` as of View. Null where torch could not make it: whoever asks torch in Python
  /// is told why.
  nb::object make(const std::int64_t* shape, const std::int64_t* strides, int rank, int dtype, int device,
                  void** data) const;

 private:
  std::int32_t (*empty_)(std::int64_t, const std::int64_t*, const std::int64_t*, std::int32_t, std::int32_t,
                         std::int32_t, void**) = nullptr;
  std::int32_t (*free_)(void*) = nullptr;
  std::int32_t (*place_)(void*, void**) = nullptr;
  std::int32_t (*wrap_)(void*, void*, void**) = nullptr;
  std::int32_t dtypes_[4] = {}, cpu_ = 0, cuda_ = 0;
};

}  // namespace cellc::python
