// log and pow.
#include <cstdint>
#include <limits>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Split {
  Term k;  ///< as a real
  Term m;  ///< in [sqrt(1/2), sqrt(2))
};

/// x = 2^k·m for finite x > 0, subnormals included; other x give some finite k and m.
Split split(const Term& x) {
  Body& body = *x.body;
  const bool wide = x.kind == Kind::F64;
  const Kind integer = wide ? Kind::I64 : Kind::I32;
  const int mantissa = wide ? 52 : 23;
  const Term tiny = less(x, wide ? 0x1p-1022 : 0x1p-126);
  const Term scaled = body.pick(tiny, x * (wide ? 0x1p+54 : 0x1p+23), x);
  const Term bits = bits_of(scaled);
  // Subtracting the bits of sqrt(1/2) makes the exponent field change there and not at powers of 2.
  const Term from_root =
      bits - body.constant(integer, wide ? std::int64_t{0x3FE6A09E667F3BCD} : std::int64_t{0x3F3504F3});
  const Term exponent = ashr(from_root, mantissa);
  const Term m = real_of(bits - shl(exponent, mantissa));
  // Integer to real through the bits of 1.5·2^52: AVX2 has no conversion from 64-bit integers.
  const Term k = wide ? real_of(exponent + body.constant(integer, std::int64_t{0x4338000000000000})) - 0x1.8p+52
                      : body.cast("sitofp", exponent, Kind::F32);
  const Term offset = body.pick(tiny, body.constant(x.kind, wide ? -54.0 : -23.0), body.constant(x.kind, 0.0));
  return {k + offset, m};
}

}  // namespace

Term log(const Term& x) {
  Body& body = *x.body;
  const Split parts = split(x);
  const Term f = parts.m - 1.0;
  Term result;
  if (x.kind == Kind::F32) {
    // log(1 + f) = f - f²/2 + f³·P(f), P within 5.9e-9 relative of log; ln2 in two parts.
    const Term p = polynomial(f, {0x1.55554ap-2, -0x1.000220p-2, 0x1.99a5aap-3, -0x1.547882p-3, 0x1.226cf2p-3,
                                  -0x1.0ce002p-3, 0x1.07d8dap-3, -0x1.4200f0p-4});
    const Term f2 = f * f;
    const Term rest = fma(f2, fma(f, p, -0.5), parts.k * -0x1.05c610p-29);
    result = fma(parts.k, 0x1.62e430p-1, f + rest);
  } else {
    // With s = f/(2 + f), log(1 + f) = 2·atanh(s) = f - (f²/2 - s·(f²/2 + R)), R = 2s²·A(s²): the
    // leading f is exact, so only the small correction carries rounding errors. ln2_high has zeros
    // enough that k·ln2_high is exact.
    const Term s = f / (f + 2.0);
    const Term z = s * s;
    const Term series =
        polynomial(z, {0x1.5555555555592p-1, 0x1.999999997ff1bp-2, 0x1.24924941e1608p-2, 0x1.c71c52141b983p-3,
                       0x1.74663d01f9175p-3, 0x1.39a1e5c4bf6efp-3, 0x1.2f03e1b24837ap-3});
    const Term half_square = f * f * 0.5;
    const Term inner = fma(s, fma(z, series, half_square), parts.k * 0x1.ef35793c76730p-45);
    result = fma(parts.k, 0x1.62e42fefa3800p-1, f - (half_square - inner));
  }
  result = body.pick(equal(x, kInf), x, result);
  const Term outside = body.pick(equal(x, 0.0), body.constant(x.kind, -kInf), body.constant(x.kind, kNaN));
  return body.pick(greater(x, 0.0), result, outside);  // false for NaN too
}

namespace {

/// An unevaluated sum high + low, |low| <= ulp(high)/2 or so.
struct Pair {
  Term high;
  Term low;
};

/// Exact a + b for |a| >= |b| or a = 0 (Dekker).
Pair fast_sum(const Term& a, const Term& b) {
  const Term sum = a + b;
  return {sum, b - (sum - a)};
}

/// log|x| to about 2^-64 relative for finite |x| > 0.
Pair log_pair(const Term& magnitude) {
  Body& body = *magnitude.body;
  const Split parts = split(magnitude);
  const Term f = parts.m - 1.0;  // exact
  const Term d = f + 2.0;
  const Term d_low = f - (d - 2.0);
  const Term s = f / d;
  const Term s_low = fma(-s, d_low, fma(-s, d, f)) / d;
  const Term z = s * s;
  const Term z_low = fma(s, s, -z) + (s + s) * s_low;
  // atanh(s) = s + s·z·(1/3 + z·B(z)). z·B is below 2^-7.4, so B alone may be in plain f64.
  const Term w =
      z * polynomial(z, {0x1.9999999999b30p-3, 0x1.2492492457d6dp-3, 0x1.c71c722d64ae8p-4, 0x1.745ce9e3f887bp-4,
                         0x1.3b1eebee8c156p-4, 0x1.0f7fec24285b1p-4, 0x1.0e429596a8e39p-4});
  const Term third = body.c(0x1.5555555555555p-2);
  const Term u = third + w;
  const Term u_low = (w - (u - third)) + 0x1.5555555555555p-56;
  const Term v = z * u;
  const Term v_low = fma(z, u, -v) + fma(z, u_low, z_low * u);
  const Term t = s * v;
  const Term t_low = fma(s, v, -t) + fma(s, v_low, s_low * v);
  const Pair half = fast_sum(s, t);
  const Term half_low = half.low + (s_low + t_low);
  // log = k·ln2 + 2·half; k·ln2_high is exact.
  const Term k_high = parts.k * 0x1.62e42fefa3800p-1;
  const Pair sum = fast_sum(k_high, half.high + half.high);
  const Term low = sum.low + fma(parts.k, 0x1.ef35793c76730p-45, half_low + half_low);
  return fast_sum(sum.high, low);
}

/// log in f64 of an f32 widened to f64, to 5e-12 relative, and exp back to f64: together within
/// 2^-30 for |y·log x| < 104.
Term log_wide(const Term& magnitude) {
  Body& body = *magnitude.body;
  const Term bits = bits_of(magnitude);  // never subnormal in f64, but for zero
  const Term exponent = ashr(bits - body.constant(Kind::I64, std::int64_t{0x3FE6A09E667F3BCD}), 52);
  const Term m = real_of(bits - shl(exponent, 52));
  const Term k = real_of(exponent + body.constant(Kind::I64, std::int64_t{0x4338000000000000})) - 0x1.8p+52;
  const Term f = m - 1.0;
  const Term s = f / (f + 2.0);
  const Term z = s * s;
  const Term series =
      polynomial(z, {0x1.555554fd94cddp-2, 0x1.999a7a9abf85ep-3, 0x1.2438d3473eeffp-3, 0x1.e2f713a1832b1p-4});
  const Term twice = s + s;
  return fma(k, 0x1.62e42fefa39efp-1, fma(twice * z, series, twice));
}

Term exp_wide(const Term& y) {
  const Term clamped = at_least(at_most(y, 150), -150);
  const double magic = 0x1.8p+52 + 1023;
  const Term rounded = fma(clamped, 0x1.71547652b82fep+0, y.body->constant(Kind::F64, magic));
  const Term r = fma(rounded - magic, -0x1.62e42fefa39efp-1, clamped);
  const Term tail = polynomial(r, {0x1.0000003a3c1d0p-1, 0x1.55555442cef4dp-3, 0x1.55548d8b2587cp-5,
                                   0x1.11127103bf5c9p-7, 0x1.6d8d3d2c0602ep-10, 0x1.9f088873ff161p-13});
  return fma(fma(tail, r, 1.0), r, 1.0) * real_of(shl(bits_of(rounded), 52));
}

}  // namespace

// |x|^y = exp(y·log|x|) with the product carried beyond the format; the sign and the special cases
// of IEEE 754 (pow of C) follow by selection. y·(±inf) gives zeros and infinities their limits.
Term pow(const Term& x, const Term& y) {
  Body& body = *x.body;
  const Term magnitude = abs(x);
  const Term minus_infinity = body.c(-kInf);
  Term power;
  if (x.kind == Kind::F32) {
    const Term wide = body.cast("fpext", magnitude, Kind::F64);
    Term logarithm = log_wide(wide);
    logarithm = body.pick(equal(magnitude, 0.0), body.constant(Kind::F64, -kInf), logarithm);
    logarithm = body.pick(equal(magnitude, kInf), wide, logarithm);
    // The conversion to f32 rounds into infinity, subnormals and zero.
    power = body.cast("fptrunc", exp_wide(body.cast("fpext", y, Kind::F64) * logarithm), Kind::F32);
  } else {
    const Pair logarithm = log_pair(magnitude);
    Term high = body.pick(equal(magnitude, 0.0), minus_infinity, logarithm.high);
    high = body.pick(equal(magnitude, kInf), magnitude, high);
    const Term product = y * high;
    const Term product_low = fma(y, logarithm.low, fma(y, high, -product));
    // Where the result over- or underflows for sure, the low part may be infinite or NaN.
    const Term low = body.pick(less(abs(product), 1000.0), product_low, body.c(0.0));
    power = exp_of_sum(product, low);
  }
  const Term whole = body.compare("oeq", body.intrinsic("trunc", {y}), y);  // infinities count
  const Term half = y * 0.5;
  const Term half_whole = body.compare("oeq", body.intrinsic("trunc", {half}), half);
  const Term even = body.binary("and", whole, half_whole);
  const Term odd = body.binary("xor", whole, even);
  const Term negative = body.compare("slt", bits_of(x), body.n(0));
  Term result = body.pick(body.binary("and", negative, odd), -power, power);
  const Term below_zero = body.binary("and", less(x, 0.0), greater(x, -kInf));
  const Term fraction = body.compare("une", body.intrinsic("trunc", {y}), y);
  result = body.pick(body.binary("and", below_zero, fraction), body.c(kNaN), result);
  result = body.pick(body.compare("uno", x, y), x + y, result);
  // 1 to any power, anything to the power 0, NaN included; and (-1)^(±inf), where 0·inf came out.
  const Term unit = body.binary("or", equal(x, 1.0), equal(y, 0.0));
  const Term minus_unit = body.binary("and", equal(x, -1.0), equal(abs(y), kInf));
  return body.pick(body.binary("or", unit, minus_unit), body.c(1.0), result);
}

}  // namespace cellc::llvm_math
