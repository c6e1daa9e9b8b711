#pragma once
// Arrays of NumPy and torch as they lie in memory, without asking NumPy's or torch's own interface in C: whatever has
// the buffer protocol, and tensors by their methods.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capi/cellc.h"
#include "exchange.h"
#include "tensor_factory.h"

namespace nb = nanobind;

namespace cellc::python {

inline constexpr int kMostAxes = 16;
inline constexpr int kHost = -1, kElsewhere = -2;

/// A dtype that is none of ours.
inline constexpr int kOtherDtype = -1;

struct View {
  std::byte* data = nullptr;
  int rank = 0;
  std::int64_t shape[kMostAxes] = {}, strides[kMostAxes] = {};  ///< strides in entries
  int dtype = kOtherDtype;                                      ///< cellc_dtype
  std::string other;                                            ///< of another dtype: its name
  bool writable = true;
  int device = kHost;  ///< or the number of a GPU, or kElsewhere
};

/// The classes of torch, once it is imported.
struct TorchTypes {
  nb::object tensor, parameter, dtypes;  ///< `dtypes`: dict, dtype -> number
  nb::object empty_like;
  TensorExchange exchange;
  TensorFactory factory;

  /// Of torch itself, which no subclass gives another meaning.
  bool is_plain(PyObject* object) const {
    const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    return type == tensor.ptr() || type == parameter.ptr();
  }
};
TorchTypes& torch_types();

/// An array that stays where it is while this lives.
class HeldArray {
 public:
  /// A tensor that is no block of numbers: a sparse or nested one, or one of a transform.
  struct NotDense {
    std::string kind;
  };

  HeldArray() = default;
  HeldArray(HeldArray&& other) noexcept;
  HeldArray& operator=(HeldArray&& other) noexcept;
  HeldArray(const HeldArray&) = delete;
  HeldArray& operator=(const HeldArray&) = delete;
  ~HeldArray() { release(); }

  /// Whether `object` is an array. Throws NotDense.
  bool take(nb::handle object);
  void release();
  /// Whether it was taken by the buffer protocol, as arrays of NumPy are.
  bool is_buffer() const { return buffered_; }

  View view;

 private:
  bool take_buffer(nb::handle object);
  void take_tensor(nb::handle object);
  bool take_by_exchange(nb::handle object);

  nb::object owner_;
  Py_buffer buffer_ = {};
  bool buffered_ = false;
};

std::int64_t size_of(int dtype);
const char* name_of(int dtype);
std::string shape_text(const std::int64_t* shape, int rank);
nb::tuple shape_tuple(const std::vector<std::int64_t>& shape);

}  // namespace cellc::python
