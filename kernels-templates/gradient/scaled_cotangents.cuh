// Cotangents scaled into the range of f16, and gradients scaled back. The adjoint is linear, so what it makes of
// cotangents times 2^k is the gradients times 2^k, exactly; products of f16 keep 11 bits of numbers from 2^-14 to 2^16
// alone, and gradients of a mean over a batch are far below. Cases that break a constant scale, as one gives to a
// trainer by hand: 1e-7 and 1e7. Needs preamble.cuh and gradient_arguments.cuh.
#pragma once

namespace cellc {

/// 2^k that takes the largest cotangent to [1, 2), or 2^-k: what the adjoint adds up may then grow by 2^15, and what is
/// 2^-14 of it has all bits of f16. Of numbers below the least normal one k is that of the least.
CELLC_DEVICE Real cotangent_scale(unsigned int largest, bool inverse) {
  const int exponent = static_cast<int>(largest >> 23) - 127;
  const int k = largest == 0 ? 0 : exponent < -126 ? 126 : exponent > 126 ? -126 : -exponent;
  return static_cast<Real>(__uint_as_float(static_cast<unsigned int>(127 + (inverse ? -k : k)) << 23));
}

/// Numbers that are none have no size; that there are such is told.
CELLC_DEVICE void largest_cotangent(const ScaledCotangents& p) {
  unsigned int most = 0;
  bool none = false;
  each_of(p.count, [&](long long i) {
    const Real value = static_cast<const Real*>(p.from)[i];
    const unsigned int size = __float_as_uint(static_cast<float>(magnitude(value)));
    if (is_finite(value))
      most = size > most ? size : most;
    else
      none = true;
  });
  // Most threads have nothing to add: whoever reads an old number writes once more than needed.
  unsigned int* const found = p.found + kLargestCotangent;
  if (most > *static_cast<volatile unsigned int*>(found)) atomicMax(found, most);
  if (none) p.found[kCotangentIsNone] = 1;
}

CELLC_DEVICE void scale_cotangents(const ScaledCotangents& p) {
  const Real scale = cotangent_scale(p.found[kLargestCotangent], p.inverse != 0);
  bool none = false;
  each_of(p.count, [&](long long i) {
    const Real value = static_cast<const Real*>(p.from)[i] * scale;
    static_cast<Real*>(p.to)[i] = value;
    none = none || !is_finite(value);
  });
  if (none && p.inverse) p.found[kGradientIsNone] = 1;
}

}  // namespace cellc

extern "C" __global__ void cellc_largest_cotangent(const __grid_constant__ cellc::ScaledCotangents p) {
  cellc::await_stream();
  cellc::largest_cotangent(p);
}
extern "C" __global__ void cellc_scale_cotangents(const __grid_constant__ cellc::ScaledCotangents p) {
  cellc::await_stream();
  cellc::scale_cotangents(p);
}
