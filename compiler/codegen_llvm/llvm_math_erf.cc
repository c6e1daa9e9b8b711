// erf and gelu.
#include <cmath>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

/// u·Phi(-u)·e^(u²/2) for u >= 0, Phi the normal distribution, up to 14.6 (f32) and 39.5 (f64).
/// (u + c)/u times it is smooth on [0, inf], so a polynomial in t = (u - c)/(u + c) of [-1, 1] serves
/// (Shepherd and Laframboise did so for erfc), and its coefficients fall fast enough that Horner's
/// rule rounds little. A rational function in u takes as many operations and has twice the error.
/// Fits: 4.7e-9 and 4.7e-18 relative.
Term scaled_tail(const Term& u) {
  const bool wide = u.kind == Kind::F64;
  const double c = wide ? 3.5 : 3.375;  // 3.375: the f32 coefficients happen to round well
  const Term over = u + c;
  const Term inverse = 1.0 / over;
  const Term rough = u * inverse;
  const Term s = fma(fma(-rough, over, u), inverse, rough);  // u/(u + c) = (1 + t)/2, corrected
  const Term t = fma(s, 2.0, u.body->c(-1.0));
  const Term h =
      !wide ? polynomial(t, {0x1.7b6ee0p-1, -0x1.1b21ccp-1, 0x1.2e7700p-2, -0x1.92fb64p-4, 0x1.1dbb74p-7, 0x1.0064cap-7,
                             -0x1.274e42p-9, -0x1.bd5dd4p-11, 0x1.4660e8p-12, 0x1.1c84d2p-13})
            : polynomial(
                  t, {0x1.7d241a953a614p-1,   -0x1.2191517fa27b8p-1,  0x1.42fec3680acaap-2,   -0x1.db5837f7f5565p-4,
                      0x1.1d35bdee16e3ap-6,   0x1.a86cec766e56ap-8,   -0x1.a200796a8edd5p-9,  -0x1.d2a1411123b0fp-12,
                      0x1.f3cfaae376790p-12,  0x1.19286230460b1p-14,  -0x1.3d066d9c2a2dep-14, -0x1.3b39ab80cbcf6p-16,
                      0x1.821988c971159p-17,  0x1.7b4ab7e8c843dp-18,  -0x1.38becf81f5382p-20, -0x1.8d0c593616ef1p-20,
                      -0x1.3389abe117322p-23, 0x1.3c0e8549c3f9bp-22,  0x1.0a38062dab75bp-23,  -0x1.025002d7d8268p-25,
                      -0x1.38a0e2691d7e9p-25, -0x1.0b22ba28ffb29p-28, 0x1.52b8bc038f47ep-28,  0x1.9be86e2dacfd4p-30});
  return s * h;
}

}  // namespace

// Below 0.85 x·P(x²), which is exact to the last place near 0; above, 1 - e^(-x²)·P(|x|)/Q(|x|).
// One rational function for all x would be cheaper in f32, and 6 ulp off.
Term erf(const Term& x) {
  const bool wide = x.kind == Kind::F64;
  const Term z = x * x;
  const Term small = x * (wide ? polynomial(z, {0x1.20dd750429b6dp+0, -0x1.812746b0379c5p-2, 0x1.ce2f21a04189fp-4,
                                                -0x1.b82ce31236cb2p-6, 0x1.565bcd02322b8p-8, -0x1.c02db1bf0c378p-11,
                                                0x1.f9a2e17687e3fp-14, -0x1.f4ccbeec739b1p-17, 0x1.b99864a42ca0ep-20,
                                                -0x1.5c9ac5f6c90abp-23, 0x1.dace3b96d0d4fp-27, -0x1.b4f731ca32577p-31})
                               : polynomial(z, {0x1.20dd74p+0, -0x1.8126b8p-2, 0x1.ce183ap-4, -0x1.b6908ap-6,
                                                0x1.47e98ap-8, -0x1.3ea4c2p-11}));
  // Where erf has long rounded to 1. What a² loses in rounding matters little: e^(-a²) is below a half.
  const Term a = at_most(abs(x), wide ? 6 : 4);
  const HeldExp e = held_exp(-(a * a), nullptr, 0);
  const Term numerator =
      wide ? polynomial(a, {0x1.00000005efc81p+0, 0x1.8b5a208405cc9p+0, 0x1.2f00a7a6aa509p+0, 0x1.17434f44a4073p-1,
                            0x1.42ba663a1a8bdp-3, 0x1.bb7c627a270c8p-6, 0x1.1f686c4f93747p-9})
           : polynomial(a, {0x1.fde654p-1, 0x1.89f342p-2, 0x1.0ddda6p-8});
  const Term denominator =
      wide ? polynomial(a, {1.0, 0x1.561bcaea8472cp+1, 0x1.9987898cabb7cp+1, 0x1.1e199e254517ep+1, 0x1.fb4a1f86b0fcep-1,
                            0x1.1ffee3a958e6ep-2, 0x1.8907fa2b6f200p-5, 0x1.fd6a9785bda02p-9})
           : polynomial(a, {1.0, 0x1.7d1b60p+0, 0x1.7fe700p-1});
  const Term large = fma(-(e.mantissa * e.scale), numerator / denominator, 1.0);
  return x.body->pick(less(abs(x), 0.85), small, copy_sign(large, x));
}

// x·Phi(x) = max(x, 0) - u·Phi(-u) with u = |x|: the tail of negative x keeps its relative
// accuracy, where 1 + erf would cancel. Held back, as x·Phi is above the tail that would underflow.
Term gelu(const Term& x) {
  const bool wide = x.kind == Kind::F64;
  const int held = wide ? 128 : 64;
  const double unit = std::ldexp(1.0, -held);
  const Term u = at_most(abs(x), wide ? 39.5 : 14.6);
  const Term square = u * u;
  const Term low = fma(u, u, -square) * -0.5;
  const HeldExp e = held_exp(square * -0.5, &low, held);
  const Term weighted = scaled_tail(u) * e.mantissa * e.scale * unit;  // u·Phi(-u)
  // A zero keeps its sign and NaN passes.
  return x.body->pick(less(x, 0.0), x.body->c(-0.0), x) - weighted;
}

}  // namespace cellc::llvm_math
