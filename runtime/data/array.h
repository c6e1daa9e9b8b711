#pragma once
// Arrays that the command line and the engine exchange: owned memory, row-major, one dtype.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cellc {

enum class Dtype { F32, F64, F16, BF16, I64, U16 };  ///< U16: raw 16-bit, read as BF16 on request

const char* to_string(Dtype);
std::size_t size_of(Dtype);
double largest_number(Dtype);  ///< of a floating-point dtype, that is finite

class Array {
 public:
  Array() = default;
  Array(Dtype dtype, std::vector<std::int64_t> shape);  ///< zero-filled, 64-byte aligned
  /// The same without the zeros, for what is about to be overwritten whole.
  static Array uninitialised(Dtype dtype, std::vector<std::int64_t> shape);
  /// Memory of somebody else, who keeps it as long as this array is used.
  static Array view(Dtype dtype, std::vector<std::int64_t> shape, void* data);
  Dtype dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t count() const;
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  double get(std::int64_t flat) const;        ///< entry converted to f64
  void set(std::int64_t flat, double value);  ///< rounded to nearest even
  /// The same memory under another shape of as many entries.
  Array with_shape(std::vector<std::int64_t> shape) const {
    Array view = *this;
    view.shape_ = std::move(shape);
    return view;
  }
  /// No other Array shares the memory, so overwriting it surprises nobody.
  bool is_sole_owner() const { return data_.use_count() == 1; }
  void reinterpret(Dtype dtype) { dtype_ = dtype; }  ///< U16 <-> BF16

 private:
  Dtype dtype_ = Dtype::F32;
  std::vector<std::int64_t> shape_;
  std::shared_ptr<std::byte> data_;
};

}  // namespace cellc
