// The language's elementwise functions, for float and double: one for each row of compiler/graph/ops.def that is
// written as a call. Semantics are those of docs/language.md and of the CPU's code, NaN, infinities and
// signed zeros included; figures in docs/notes/math-functions.md.
//
// Included after preamble.cuh, which gives CELLC_DEVICE and CELLC_NARROW: arrays are stored in 16 bits, and
// sigmoid and tanh of a float are the hardware's own, within 8e-6 of exact. CELLC_EMULATOR: compiled for
// the host, on the C library.
#pragma once

#ifdef CELLC_EMULATOR
#include <cmath>
#endif

namespace cellc {

// What the machine gives ---------------------------------------------------------------------------

#ifdef CELLC_EMULATOR
CELLC_DEVICE double infinity() { return HUGE_VAL; }
CELLC_DEVICE double not_a_number() { return std::nan(""); }
CELLC_DEVICE float power_of_two(float x) { return ::exp2f(x); }
/// Below 2^-126 it is zero, as the hardware's is.
CELLC_DEVICE float reciprocal(float x) {
  const float y = 1.0f / x;
  return ::fabsf(y) < 1.17549435e-38f ? ::copysignf(0.0f, y) : y;
}
CELLC_DEVICE float hardware_tanh(float x) { return ::tanhf(x); }
CELLC_DEVICE float hardware_log2(float x) { return ::log2f(x); }
CELLC_DEVICE float inverse_root(float x) { return 1.0f / ::sqrtf(x); }
CELLC_DEVICE double inverse_root(double x) { return 1.0 / ::sqrt(x); }
// e^(u*u)*erfc(u) for 0 <= u < 29, where C++ has no function: erfc underflows from 26 on. The error of u*u is
// one of the result, so u*u is a pair; from 20 on the terms left out of the series are below a rounding.
CELLC_DEVICE double scaled_erfc(double u) {
  const double square = u * u;
  if (u < 20) return ::exp(square) * (1 + ::fma(u, u, -square)) * ::erfc(u);
  const double v = 0.5 / square;
  const double series = 1 - v * (1 - v * 3 * (1 - v * 5 * (1 - v * 7 * (1 - v * 9 * (1 - v * 11 * (1 - v * 13))))));
  return 0.56418958354775628695 / u * series;
}
CELLC_DEVICE float scaled_erfc(float u) { return static_cast<float>(scaled_erfc(static_cast<double>(u))); }
#else
CELLC_DEVICE double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
CELLC_DEVICE double not_a_number() { return __longlong_as_double(0x7ff8000000000000ll); }
// One instruction of the special-function unit each; two places, results below 2^-126 are zero.
CELLC_DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CELLC_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CELLC_DEVICE float hardware_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CELLC_DEVICE float hardware_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
CELLC_DEVICE float inverse_root(float x) { return ::rsqrtf(x); }
CELLC_DEVICE double inverse_root(double x) { return ::rsqrt(x); }
CELLC_DEVICE float scaled_erfc(float u) { return ::erfcxf(u); }
CELLC_DEVICE double scaled_erfc(double u) { return ::erfcx(u); }
#endif

// The library's functions under names that do not depend on the type -----------------------------------

#ifdef CELLC_NARROW
// A sixth of the instructions: `s6` raises e to the power of as many numbers as it has states. What is off is the
// exponent's own rounding, |x| units of f32.
constexpr float kExpScale = 1.44269504f;
CELLC_DEVICE float scaled_exp(float x) { return power_of_two(x); }  ///< of kExpScale*x
CELLC_DEVICE float exp(float x) { return scaled_exp(x * kExpScale); }
#else
CELLC_DEVICE float exp(float x) { return ::expf(x); }
#endif
CELLC_DEVICE double exp(double x) { return ::exp(x); }
CELLC_DEVICE float log(float x) { return ::logf(x); }
CELLC_DEVICE double log(double x) { return ::log(x); }
CELLC_DEVICE float sin(float x) { return ::sinf(x); }
CELLC_DEVICE double sin(double x) { return ::sin(x); }
CELLC_DEVICE float cos(float x) { return ::cosf(x); }
CELLC_DEVICE double cos(double x) { return ::cos(x); }
CELLC_DEVICE float erf(float x) { return ::erff(x); }
CELLC_DEVICE double erf(double x) { return ::erf(x); }
CELLC_DEVICE float pow(float x, float y) { return ::powf(x, y); }
CELLC_DEVICE double pow(double x, double y) { return ::pow(x, y); }
CELLC_DEVICE float sqrt(float x) { return ::sqrtf(x); }
CELLC_DEVICE double sqrt(double x) { return ::sqrt(x); }
CELLC_DEVICE float abs(float x) { return ::fabsf(x); }
CELLC_DEVICE double abs(double x) { return ::fabs(x); }
CELLC_DEVICE float log1p(float x) { return ::log1pf(x); }
CELLC_DEVICE double log1p(double x) { return ::log1p(x); }
CELLC_DEVICE float copysign(float x, float y) { return ::copysignf(x, y); }
CELLC_DEVICE double copysign(double x, double y) { return ::copysign(x, y); }
CELLC_DEVICE float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
CELLC_DEVICE double fma(double x, double y, double z) { return ::fma(x, y, z); }
CELLC_DEVICE float rsqrt(float x) { return inverse_root(x); }
CELLC_DEVICE double rsqrt(double x) { return inverse_root(x); }

// Kinks and jumps: selections that let a NaN through, unlike fmin and fmax ---------------------------------

template <typename T>
CELLC_DEVICE T square(T x) {
  return x * x;
}
template <typename T>
CELLC_DEVICE T min(T x, T y) {
  return x < y || x != x ? x : y;
}
template <typename T>
CELLC_DEVICE T max(T x, T y) {
  return x > y || x != x ? x : y;
}
template <typename T>
CELLC_DEVICE T clip(T x, T low, T high) {
  return cellc::min(cellc::max(x, low), high);
}
// A zero keeps its sign, in sign as well.
template <typename T>
CELLC_DEVICE T relu(T x) {
  return x < T(0) ? T(0) : x;
}
template <typename T>
CELLC_DEVICE T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}

// sigmoid and tanh ------------------------------------------------------------------------------------

// They bound the speed of every gated cell, so a float's take two instructions of the special-function
// unit and no branch: within 4e-7 of exact, which near zero is not small beside tanh itself.
// scaled_sigmoid(kSigmoidScale * x) is sigmoid(x), and so scaled_exp: a cell's step multiplies what comes early by the
// scale. scaled_tanh likewise, but it makes 0 of -0.
#ifdef CELLC_NARROW
constexpr float kSigmoidScale = 0.5f, kTanhScale = 1.0f;
CELLC_DEVICE float scaled_sigmoid(float x) { return cellc::fma(0.5f, hardware_tanh(x), 0.5f); }
CELLC_DEVICE float scaled_tanh(float x) { return hardware_tanh(x); }
#else
constexpr Real kSigmoidScale = sizeof(Real) == 8 ? Real(1) : Real(-1.44269504),
               kTanhScale = sizeof(Real) == 8 ? Real(1) : Real(2.88539008);
CELLC_DEVICE float scaled_sigmoid(float x) { return reciprocal(1.0f + power_of_two(x)); }
CELLC_DEVICE float scaled_tanh(float x) { return cellc::fma(-2.0f, reciprocal(1.0f + power_of_two(x)), 1.0f); }
#endif
CELLC_DEVICE float sigmoid(float x) { return scaled_sigmoid(x * float(kSigmoidScale)); }
CELLC_DEVICE float tanh(float x) { return cellc::copysign(scaled_tanh(cellc::abs(x) * float(kTanhScale)), x); }
CELLC_DEVICE double sigmoid(double x) {
  const double e = cellc::exp(-cellc::abs(x));  // of a negative number: never inf/inf
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
CELLC_DEVICE double tanh(double x) { return ::tanh(x); }
CELLC_DEVICE double scaled_sigmoid(double x) { return cellc::sigmoid(x); }
CELLC_DEVICE double scaled_tanh(double x) { return cellc::tanh(x); }

// Unbounded functions made of them: relative accuracy everywhere ---------------------------------------------

// x*sigmoid(x) with e^-|x| as a square: it would leave the normal numbers before the product does.
template <typename T>
CELLC_DEVICE T silu(T x) {
  const T h = cellc::exp(T(-0.5) * cellc::abs(x));
  const T y = (x < T(0) ? x * h * h : x) / (T(1) + h * h);
  return x == T(-infinity()) ? T(-0.0) : y;  // the limit, where the product is infinity times zero
}

// max(x, 0) - u*Phi(-u) with u = |x|: no sum that cancels. The tail is e^(-u*u/2), u*u as a pair of
// numbers, times a function without exponential. Beyond 40 there is no tail in either type.
template <typename T>
CELLC_DEVICE T gelu(T x) {
  const T a = cellc::abs(x), u = a > T(40) ? T(40) : a;
  const T square = u * u, rest = cellc::fma(u, u, -square);
  const T decay = cellc::exp(T(-0.5) * square) * (T(1) - T(0.5) * rest);
  const T tail = T(-0.5) * u * scaled_erfc(u * T(0.70710678118654752440)) * decay;
  return x < T(0) ? tail : x + tail;
}

// Neither has a branch: lanes of a thread that have the same x, as `softplus(dt[d])` beside states h[d,n], then make it
// once.
#ifdef CELLC_NARROW
// Within 4e-5 of itself: the hardware's logarithm is 2^-22 off near 1, and two terms of the series are nearer there.
CELLC_DEVICE float softplus(float x) {
  const float e = cellc::exp(-cellc::abs(x));
  const float far = hardware_log2(1.0f + e) * 0.69314718f, near = cellc::fma(-0.5f * e, e, e);
  return (x > 0.0f ? x : 0.0f) + (e < 0.0078125f ? near : far);
}
#else
// log(1 + e) is 2*atanh(e/(2 + e)), of which at most 1/3 is asked: seven terms of its series, the first left out below
// 2^-25 of it.
CELLC_DEVICE float softplus(float x) {
  const float e = cellc::exp(-cellc::abs(x)), below = 2.0f + e, r = reciprocal(below), first = e * r;
  const float s = cellc::fma(cellc::fma(-below, first, e), r, first), z = s * s;
  float series = 0.07692308f;
  series = cellc::fma(series, z, 0.09090909f);
  series = cellc::fma(series, z, 0.11111111f);
  series = cellc::fma(series, z, 0.14285714f);
  series = cellc::fma(series, z, 0.2f);
  series = cellc::fma(series, z, 0.33333333f);
  return (x > 0.0f ? x : 0.0f) + 2.0f * cellc::fma(s * z, series, s);
}
#endif
CELLC_DEVICE double softplus(double x) { return (x > 0 ? x : 0.0) + cellc::log1p(cellc::exp(-cellc::abs(x))); }

}  // namespace cellc
