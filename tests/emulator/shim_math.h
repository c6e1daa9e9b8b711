// CUDA's functions by name, on the host's. Approximate ones are exact here: a card's rounding is its own
// matter and is measured on a card.
#pragma once

// ---- what <math.h> has not, or has not in the global namespace for all types ----

template <class A, class B>
constexpr std::enable_if_t<std::is_integral_v<A> && std::is_integral_v<B>, std::common_type_t<A, B>> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
constexpr std::enable_if_t<std::is_integral_v<A> && std::is_integral_v<B>, std::common_type_t<A, B>> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(b) : T(a);
}

// What the library's <cmath> would add to C.
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
constexpr bool isnan(float x) { return __builtin_isnan(x); }
constexpr bool isnan(double x) { return __builtin_isnan(x); }
constexpr bool isinf(float x) { return __builtin_isinf(x); }
constexpr bool isinf(double x) { return __builtin_isinf(x); }
constexpr bool isfinite(float x) { return __builtin_isfinite(x); }
constexpr bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }
// Without these C would take a float for a double, and abs() would take it for an int.
constexpr float abs(float x) { return __builtin_fabsf(x); }
constexpr double abs(double x) { return __builtin_fabs(x); }
constexpr int abs(int x) { return x < 0 ? -x : x; }
constexpr long abs(long x) { return x < 0 ? -x : x; }
constexpr long long abs(long long x) { return x < 0 ? -x : x; }
#define CELLC_OF_FLOAT(name) \
  inline float name(float x) { return name##f(x); }
CELLC_OF_FLOAT(acos)
CELLC_OF_FLOAT(acosh)
CELLC_OF_FLOAT(asin)
CELLC_OF_FLOAT(asinh)
CELLC_OF_FLOAT(atan)
CELLC_OF_FLOAT(atanh)
CELLC_OF_FLOAT(cbrt)
CELLC_OF_FLOAT(ceil)
CELLC_OF_FLOAT(cos)
CELLC_OF_FLOAT(cosh)
CELLC_OF_FLOAT(erf)
CELLC_OF_FLOAT(erfc)
CELLC_OF_FLOAT(exp)
CELLC_OF_FLOAT(exp2)
CELLC_OF_FLOAT(expm1)
CELLC_OF_FLOAT(fabs)
CELLC_OF_FLOAT(floor)
CELLC_OF_FLOAT(log)
CELLC_OF_FLOAT(log10)
CELLC_OF_FLOAT(log1p)
CELLC_OF_FLOAT(log2)
CELLC_OF_FLOAT(rint)
CELLC_OF_FLOAT(round)
CELLC_OF_FLOAT(sin)
CELLC_OF_FLOAT(sinh)
CELLC_OF_FLOAT(sqrt)
CELLC_OF_FLOAT(tan)
CELLC_OF_FLOAT(tanh)
CELLC_OF_FLOAT(trunc)
#undef CELLC_OF_FLOAT
inline float atan2(float y, float x) { return atan2f(y, x); }
inline float copysign(float x, float y) { return copysignf(x, y); }
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float fmax(float x, float y) { return fmaxf(x, y); }
inline float fmin(float x, float y) { return fminf(x, y); }
inline float fmod(float x, float y) { return fmodf(x, y); }
inline float pow(float x, float y) { return powf(x, y); }

inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(double(a), b); }
inline double max(float a, double b) { return fmax(double(a), b); }
inline double min(double a, float b) { return fmin(a, double(b)); }
inline double max(double a, float b) { return fmax(a, double(b)); }
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }  // NaN gives 0
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
#if !defined(__USE_GNU)
inline float exp10f(float x) { return powf(10.0f, x); }
inline double exp10(double x) { return pow(10.0, x); }
#endif
inline float sinpif(float x) { return float(sin(3.14159265358979323846 * fmod(double(x), 2.0))); }
inline float cospif(float x) { return float(cos(3.14159265358979323846 * fmod(double(x), 2.0))); }

// ---- fast forms ----

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }

// ---- one rounding, to nearest. The host must not contract: the emulator compiles so. ----

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return float(1.0 / sqrt(double(x))); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// ---- bits ----

inline int __float_as_int(float x) { return cellc_emulator::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cellc_emulator::bits<unsigned>(x); }
inline float __int_as_float(int x) { return cellc_emulator::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cellc_emulator::bits<float>(x); }
inline long long __double_as_longlong(double x) { return cellc_emulator::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cellc_emulator::bits<double>(x); }
inline double __hiloint2double(int high, int low) {
  return cellc_emulator::bits<double>((unsigned long long)(unsigned(high)) << 32 | unsigned(low));
}
inline int __double2hiint(double x) { return int(cellc_emulator::bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return int(cellc_emulator::bits<unsigned long long>(x)); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i);
    unsigned byte = unsigned(bytes >> (8 * (pick & 7))) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;  // the sign of that byte, in all its bits
    r |= byte << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}

// ---- conversions: to nearest even, or truncation; out of range saturates and NaN is 0 as on a card ----

namespace cellc_emulator {

template <class To, class From>
inline To saturating(From x) {
  if (x != x) return 0;
  constexpr To low = std::is_signed_v<To> ? To(To(1) << (8 * sizeof(To) - 1)) : To(0), high = To(~low);
  if (x <= From(low)) return low;
  if (x >= From(high)) return high;  // From(high) may round up to 2^n, which saturates as well
  return To(x);
}

// 16-bit storage formats, for wrappers of PTX's cvt. To nearest even.
inline float from_bfloat16(unsigned short x) { return bits<float>(unsigned(x) << 16); }
inline unsigned short to_bfloat16(float x) {
  const unsigned u = bits<unsigned>(x);
  if (x != x) return 0x7fff;  // the NaN that cards give
  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
inline float from_half(unsigned short x) {
  const unsigned sign = unsigned(x & 0x8000u) << 16, exponent = x >> 10 & 31u, fraction = x & 0x3ffu;
  if (exponent == 31) return bits<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return bits<float>(sign | bits<unsigned>(float(fraction) * 0x1p-24f));
  return bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
}
inline unsigned short to_half(float x) {
  if (x != x) return 0x7fff;
  const unsigned u = bits<unsigned>(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {  // subnormal: let an addition round at the place 2^-24
    const float rounded = bits<float>(magnitude) + 0.5f;
    return (unsigned short)(sign | (bits<unsigned>(rounded) - 0x3f000000u));
  }
  return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

}  // namespace cellc_emulator

inline int __float2int_rn(float x) { return cellc_emulator::saturating<int>(rintf(x)); }
inline int __float2int_rz(float x) { return cellc_emulator::saturating<int>(truncf(x)); }
inline int __float2int_rd(float x) { return cellc_emulator::saturating<int>(floorf(x)); }
inline int __float2int_ru(float x) { return cellc_emulator::saturating<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return cellc_emulator::saturating<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return cellc_emulator::saturating<unsigned>(truncf(x)); }
inline long long __float2ll_rn(float x) { return cellc_emulator::saturating<long long>(rintf(x)); }
inline int __double2int_rn(double x) { return cellc_emulator::saturating<int>(rint(x)); }
inline int __double2int_rz(double x) { return cellc_emulator::saturating<int>(trunc(x)); }
inline long long __double2ll_rn(double x) { return cellc_emulator::saturating<long long>(rint(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline double __ll2double_rn(long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }
