// Entries of an array with any stride on every axis, to or from one without gaps; and 16-bit numbers into those that
// arithmetic has. Beside the kernels of a cell and not one of its types: it moves bytes.
#pragma once

namespace cellc {

constexpr int kViewAxes = 16;

struct ViewCopy {
  void* to;
  const void* from;
  long long count, rank;
  long long lengths[kViewAxes], to_strides[kViewAxes],
      from_strides[kViewAxes];  ///< in entries; the last axis is fastest
};

template <typename To, typename From, class Convert>
CELLC_DEVICE void copy_view(const ViewCopy& view, Convert&& convert) {
  each_of(view.count, [&](long long i) {
    long long rest = i, to = 0, from = 0;
    for (int axis = static_cast<int>(view.rank) - 1; axis >= 0; --axis) {
      const long long above = quotient(rest, view.lengths[axis]), index = rest - above * view.lengths[axis];
      to += index * view.to_strides[axis];
      from += index * view.from_strides[axis];
      rest = above;
    }
    static_cast<To*>(view.to)[to] = convert(static_cast<const From*>(view.from)[from]);
  });
}

CELLC_DEVICE float from_bf16(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
CELLC_DEVICE float from_f16(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
  if (exponent == 31u) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0u) return __uint_as_float(sign | (exponent + 112u) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 5.9604644775390625e-8f;
  return sign ? -small : small;
}

}  // namespace cellc

extern "C" __global__ void cellc_view_2(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<unsigned short, unsigned short>(view, [](unsigned short bits) { return bits; });
}
extern "C" __global__ void cellc_view_4(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<unsigned, unsigned>(view, [](unsigned bits) { return bits; });
}
extern "C" __global__ void cellc_view_8(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<unsigned long long, unsigned long long>(view, [](unsigned long long bits) { return bits; });
}
extern "C" __global__ void cellc_view_f16_4(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<float, unsigned short>(view, [](unsigned short bits) { return cellc::from_f16(bits); });
}
extern "C" __global__ void cellc_view_bf16_4(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<float, unsigned short>(view, [](unsigned short bits) { return cellc::from_bf16(bits); });
}
extern "C" __global__ void cellc_view_f16_8(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<double, unsigned short>(
      view, [](unsigned short bits) { return static_cast<double>(cellc::from_f16(bits)); });
}
extern "C" __global__ void cellc_view_bf16_8(const __grid_constant__ cellc::ViewCopy view) {
  cellc::await_stream();
  cellc::copy_view<double, unsigned short>(
      view, [](unsigned short bits) { return static_cast<double>(cellc::from_bf16(bits)); });
}
