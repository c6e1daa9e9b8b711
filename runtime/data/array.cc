#include "runtime/data/array.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "runtime/data/fault_points.h"
#include "runtime/data/host_memory.h"

namespace cellc {

namespace {

/// A binary floating-point format of 16 bits.
struct Format {
  int mantissa_bits;
  int bias;  ///< also the largest exponent
};
constexpr Format kHalf{10, 15};
constexpr Format kBrain{7, 127};

/// Rounds once, from f64: going through f32 first would round twice and miss ties.
std::uint16_t encode(double value, Format f) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int exponent_all_ones = 2 * f.bias + 1;
  const std::uint16_t infinity = static_cast<std::uint16_t>(exponent_all_ones << f.mantissa_bits);
  if (std::isnan(value)) return sign | infinity | static_cast<std::uint16_t>(1 << (f.mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int smallest = 1 - f.bias;  // exponent of the smallest normal number, and of all subnormals
  int exponent = std::max(std::ilogb(magnitude), smallest);
  // The significand as an integer; nearbyint rounds halves to even.
  double significand = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  if (significand >= std::ldexp(1.0, f.mantissa_bits + 1)) {
    significand /= 2;
    ++exponent;
  }
  if (exponent > f.bias) return sign | infinity;
  const int bits = static_cast<int>(significand);
  const int hidden = 1 << f.mantissa_bits;
  if (bits < hidden) return sign | static_cast<std::uint16_t>(bits);  // subnormal
  return sign | static_cast<std::uint16_t>(((exponent + f.bias) << f.mantissa_bits) | (bits - hidden));
}

double decode(std::uint16_t raw, Format f) {
  const double sign = raw & 0x8000 ? -1 : 1;
  const int exponent = (raw & 0x7fff) >> f.mantissa_bits;
  const int mantissa = raw & ((1 << f.mantissa_bits) - 1);
  if (exponent == 2 * f.bias + 1) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

/// Entries of a shape, or a complaint where they cannot be counted or addressed.
std::int64_t entries(const std::vector<std::int64_t>& shape, std::size_t entry_size) {
  std::int64_t count = 1;
  bool overflow = false;
  for (const std::int64_t n : shape) {
    if (n < 0) throw std::length_error("an array's axis has a negative length");
    overflow = overflow || __builtin_mul_overflow(count, n, &count);
  }
  for (const std::int64_t n : shape) {
    if (n == 0) return 0;
  }
  std::int64_t bytes;
  if (overflow || __builtin_mul_overflow(count, static_cast<std::int64_t>(entry_size), &bytes)) {
    throw std::length_error("an array is too large to address");
  }
  return count;
}

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  // Large arrays lie on huge pages where the system has them: touching fresh memory page by page costs as
  // much as computing what goes there.
  constexpr std::size_t kHugePage = 2 << 20;
  const bool large = bytes >= 4 * kHugePage;
  const std::size_t alignment = large ? kHugePage : 64;
  // Never empty, so that data() is a real address also for arrays without entries.
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  if (fails_now(FaultPoint::Allocate)) throw std::bad_alloc();
  if (const HostMemory* own = host_memory()) {
    void* memory = own->allocate(own->context, rounded, 64);
    if (!memory) throw std::bad_alloc();
    return {static_cast<std::byte*>(memory),
            [from = *own, rounded](std::byte* p) { from.release(from.context, p, rounded); }};
  }
  void* memory = std::aligned_alloc(alignment, rounded);
  if (!memory) throw std::bad_alloc();
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);  // a hint: refusal changes nothing
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

}  // namespace

const char* to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return "f32";
    case Dtype::F64:
      return "f64";
    case Dtype::F16:
      return "f16";
    case Dtype::BF16:
      return "bf16";
    case Dtype::I64:
      return "i64";
    case Dtype::U16:
      return "u16";
  }
  throw std::logic_error("to_string: no such dtype");
}

double largest_number(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return std::numeric_limits<float>::max();
    case Dtype::F16:
      return decode(0x7bff, kHalf);
    case Dtype::BF16:
    case Dtype::U16:
      return decode(0x7f7f, kBrain);
    default:
      return std::numeric_limits<double>::max();
  }
}

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return 4;
    case Dtype::F64:
    case Dtype::I64:
      return 8;
    case Dtype::F16:
    case Dtype::BF16:
    case Dtype::U16:
      return 2;
  }
  throw std::logic_error("size_of: no such dtype");
}

Array::Array(Dtype dtype, std::vector<std::int64_t> shape) : Array(uninitialised(dtype, std::move(shape))) {
  std::memset(data_.get(), 0, static_cast<std::size_t>(count()) * size_of(dtype_));
}

Array Array::view(Dtype dtype, std::vector<std::int64_t> shape, void* data) {
  entries(shape, size_of(dtype));
  Array array;
  array.dtype_ = dtype;
  array.shape_ = std::move(shape);
  array.data_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(data), [](std::byte*) {});
  return array;
}

Array Array::uninitialised(Dtype dtype, std::vector<std::int64_t> shape) {
  Array array;
  const std::int64_t count = entries(shape, size_of(dtype));
  array.dtype_ = dtype;
  array.shape_ = std::move(shape);
  array.data_ = allocate(static_cast<std::size_t>(count) * size_of(dtype));
  return array;
}

std::int64_t Array::count() const {
  if (!data_) return 0;
  std::int64_t n = 1;
  for (const std::int64_t length : shape_) n *= length;
  return n;
}

double Array::get(std::int64_t flat) const {
  switch (dtype_) {
    case Dtype::F32:
      return reinterpret_cast<const float*>(data_.get())[flat];
    case Dtype::F64:
      return reinterpret_cast<const double*>(data_.get())[flat];
    case Dtype::I64:
      return static_cast<double>(reinterpret_cast<const std::int64_t*>(data_.get())[flat]);
    case Dtype::F16:
      return decode(reinterpret_cast<const std::uint16_t*>(data_.get())[flat], kHalf);
    case Dtype::BF16:
      return decode(reinterpret_cast<const std::uint16_t*>(data_.get())[flat], kBrain);
    case Dtype::U16:
      return reinterpret_cast<const std::uint16_t*>(data_.get())[flat];
  }
  throw std::logic_error("Array::get: no such dtype");
}

void Array::set(std::int64_t flat, double value) {
  switch (dtype_) {
    case Dtype::F32:
      reinterpret_cast<float*>(data_.get())[flat] = static_cast<float>(value);
      return;
    case Dtype::F64:
      reinterpret_cast<double*>(data_.get())[flat] = value;
      return;
    case Dtype::I64:
      reinterpret_cast<std::int64_t*>(data_.get())[flat] = static_cast<std::int64_t>(std::nearbyint(value));
      return;
    case Dtype::F16:
      reinterpret_cast<std::uint16_t*>(data_.get())[flat] = encode(value, kHalf);
      return;
    case Dtype::BF16:
      reinterpret_cast<std::uint16_t*>(data_.get())[flat] = encode(value, kBrain);
      return;
    case Dtype::U16:
      reinterpret_cast<std::uint16_t*>(data_.get())[flat] = static_cast<std::uint16_t>(std::nearbyint(value));
      return;
  }
  throw std::logic_error("Array::set: no such dtype");
}

}  // namespace cellc
