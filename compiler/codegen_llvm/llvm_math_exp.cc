// exp and what is built on it: sigmoid, silu, tanh, softplus.
//
// Reduction after Cody and Waite: y = n·ln2 + r with |r| <= ln2/2, n rounded by adding 1.5·2^p, so
// that the sum's low bits hold n and become the exponent of 2^n by one shift. ln2 is two numbers.
// Polynomials are minimax fits; the note docs/notes/math-functions.md says how they were obtained.
#include <cmath>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

struct Format {
  int mantissa;  ///< explicit fraction bits
  int bias;      ///< exponent bias
  double log2e;
  double ln2_high;
  double ln2_low;
  double magic;      ///< 1.5·2^mantissa: adding it rounds to an integer held in the low bits
  double overflow;   ///< exp of this and above is infinite
  double underflow;  ///< exp of this and below is zero
  double saturated;  ///< 1 + exp(-saturated) is 1
};

constexpr Format kF32{23, 127, 0x1.715476p+0, 0x1.62e430p-1, -0x1.05c610p-29, 0x1.8p+23, 89, -105, 40};
constexpr Format kF64{52,   1023, 0x1.71547652b82fep+0, 0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56, 0x1.8p+52, 710,
                      -746, 80};

const Format& format(const Term& x) { return x.kind == Kind::F64 ? kF64 : kF32; }

/// (exp(r) - 1)/r - 1, over r: exp(r) = 1 + r + r²·tail(r). Relative error of exp 3.1e-9, 3.7e-18.
Term tail(const Term& r) {
  if (r.kind == Kind::F32) {
    return polynomial(r, {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558b0p-5, 0x1.123992p-7, 0x1.6a4d94p-10});
  }
  return polynomial(r, {0x1.000000000000ap-1, 0x1.5555555555504p-3, 0x1.55555555506a7p-5, 0x1.1111111125571p-7,
                        0x1.6c16c1847e513p-10, 0x1.a01a0136d41a7p-13, 0x1.a01999464b82dp-16, 0x1.71df0a394d7b5p-19,
                        0x1.28ae16f1bc6a6p-22, 0x1.ada9737624b34p-26});
}

Term exp_reduced(const Term& r) { return fma(fma(tail(r), r, 1.0), r, 1.0); }

struct Reduction {
  Term rounded;  ///< n + magic + offset
  Term r;
};

Reduction reduce(const Term& y, const Term* lo, double offset) {
  const Format& f = format(y);
  const Term rounded = fma(y, f.log2e, y.body->c(f.magic + offset));
  const Term n = rounded - (f.magic + offset);
  // The first product cancels y to a number the format holds, up to one rounding.
  const Term first = fma(n, -f.ln2_high, y);
  if (!lo) return {rounded, fma(n, -f.ln2_low, first)};
  return {rounded, first + fma(n, -f.ln2_low, *lo)};
}

Term scaled_by_halves(const Reduction& reduction) {
  // 2^n may be outside the normal range on both sides, so it is applied as 2^(n/2)·2^(n - n/2):
  // the first product is exact and the second rounds once, into subnormals or infinity.
  const Format& f = format(reduction.r);
  const Term sum = bits_of(reduction.rounded);  // n + 2·bias in the low bits
  const Term half = lshr(sum, 1);
  const Term first = real_of(shl(half, f.mantissa));
  const Term second = real_of(shl(sum - half, f.mantissa));
  return exp_reduced(reduction.r) * first * second;
}

}  // namespace

HeldExp held_exp(const Term& y, const Term* lo, int held) {
  const Format& f = format(y);
  const Reduction reduction = reduce(y, lo, f.bias + held);
  return {exp_reduced(reduction.r), real_of(shl(bits_of(reduction.rounded), f.mantissa))};
}

Term exp(const Term& x) {
  const Format& f = format(x);
  const Term clamped = at_least(at_most(x, f.overflow), f.underflow);
  return scaled_by_halves(reduce(clamped, nullptr, 2 * f.bias));
}

Term exp_of_sum(const Term& hi, const Term& lo) {
  const Format& f = format(hi);
  const Term clamped = at_least(at_most(hi, f.overflow), f.underflow);
  return scaled_by_halves(reduce(clamped, &lo, 2 * f.bias));
}

// 1/(1 + e^-x) keeps its relative accuracy as it falls to zero, but e^-x overflows before the
// answer underflows. Holding e^-x back by 2^-held and dividing 2^-held by the sum costs nothing.
Term sigmoid(const Term& x) {
  const Format& f = format(x);
  const int held = x.kind == Kind::F64 ? 128 : 64;
  const double unit = std::ldexp(1.0, -held);
  const Term y = at_least(at_most(-x, -f.underflow), -f.saturated);
  const HeldExp e = held_exp(y, nullptr, -held);
  return unit / fma(e.mantissa, e.scale, unit);
}

Term silu(const Term& x) {
  const Format& f = format(x);
  const int held = x.kind == Kind::F64 ? 128 : 64;
  const double unit = std::ldexp(1.0, -held);
  // x·e^x is zero a little below where e^x is; the product needs the clamped x, or -inf gives NaN.
  const Term low = at_least(x, f.underflow - 15);
  const HeldExp e = held_exp(at_least(-low, -f.saturated), nullptr, -held);
  const Term result = (low / fma(e.mantissa, e.scale, unit)) * unit;
  // Beyond saturation sigmoid is 1; dividing a huge x by the held-back sum would overflow.
  return x.body->pick(greater(x, f.saturated), x, result);
}

Term tanh(const Term& x) {
  if (x.kind == Kind::F32) {
    // x·P(x²)/Q(x²) with positive coefficients only, so no cancellation; P(0) = Q(0) = 1 keeps
    // subnormals exact. At 9.02 tanh rounds to 1, and what rounding puts above 1 is cut off. Fit:
    // 2.4e-8 relative. (e^2a - 1)/(e^2a + 1), as below, takes half as long again.
    const Term c = at_most(abs(x), 9.02);
    const Term z = c * c;
    const Term p = polynomial(z, {1.0, 0x1.12139ep-3, 0x1.ca69eep-9, 0x1.5a34bap-16, 0x1.cbe170p-27});
    const Term q = polynomial(z, {1.0, 0x1.de5f1cp-2, 0x1.a8162ep-6, 0x1.58d226p-12, 0x1.a23b06p-21});
    return copy_sign(at_most((c * p) / q, 1.0), x);
  }
  // (e^2a - 1)/(e^2a + 1) for a = |x|, with e^2a - 1 = 2^n·(e^r - 1) + (2^n - 1): accurate near 0,
  // where n = 0. At 22 tanh is 1.
  const Format& f = kF64;
  const Term a = at_most(abs(x), 22);
  const Reduction reduction = reduce(a + a, nullptr, f.bias);
  const Term scale = real_of(shl(bits_of(reduction.rounded), f.mantissa));
  const Term r = reduction.r;
  const Term minus_one = fma(r * r, tail(r), r);
  return copy_sign(fma(scale, minus_one, scale - 1.0) / fma(scale, minus_one, scale + 1.0), x);
}

// max(x, 0) + log(1 + e), e = e^-|x| in (0, 1]. log(1 + e) = 2·atanh(s/2) with s = 2e/(2 + e): no
// rounding of 1 + e to correct for, and accurate for every small e.
Term softplus(const Term& x) {
  const Format& f = format(x);
  const int held = 64;
  const HeldExp e_held = held_exp(at_least(-abs(x), f.underflow), nullptr, held);
  const Term e = e_held.mantissa * e_held.scale * std::ldexp(1.0, -held);
  const Term s = e / fma(e, 0.5, x.body->c(1.0));
  const Term z = s * s;
  const Term series =
      x.kind == Kind::F32
          ? polynomial(z, {0x1.555558p-4, 0x1.9996d8p-7, 0x1.250510p-9, 0x1.b72bb4p-12, 0x1.f08b22p-14})
          : polynomial(z, {0x1.5555555555555p-4, 0x1.9999999999afep-7, 0x1.2492492482185p-9, 0x1.c71c71d2e04edp-12,
                           0x1.745d14c7c807dp-14, 0x1.3b1406a9491e1p-16, 0x1.11098415eaadep-18, 0x1.e2c7ba1c3c1dcp-21,
                           0x1.a5fc7c4c06725p-23, 0x1.c34f130958347p-25, 0x1.aa597571aed0fp-29, 0x1.abb8f3aa57832p-28});
  const Term log1p = fma(s * z, series, s);
  const Term zero = x.body->c(0.0);
  return x.body->pick(greater(x, 0.0), x, zero) + log1p;
}

Term rsqrt(const Term& x) { return 1.0 / x.body->intrinsic("sqrt", {x}); }

}  // namespace cellc::llvm_math
