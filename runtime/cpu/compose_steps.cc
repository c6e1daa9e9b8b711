#include "runtime/cpu/compose_steps.h"

#include <limits>

#if defined(__x86_64__)
#define CELLC_STEPS_X86 1
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on _mm512_undefined_ps in g++ 12
#endif
#include <immintrin.h>
#else
#define CELLC_STEPS_X86 0
#endif

namespace cellc {

namespace {

#if CELLC_STEPS_X86

#define CELLC_AVX512 __attribute__((target("avx512f")))

/// Composes every map with that of kBy steps earlier; the first kBy have none in this vector.
template <int kBy>
CELLC_AVX512 inline void compose_by(__m512& a, __m512& b) {
  constexpr __mmask16 kHas = static_cast<__mmask16>(0xffff << kBy);
  const __m512i ai = _mm512_castps_si512(a), bi = _mm512_castps_si512(b);
  const __m512 before_a = _mm512_castsi512_ps(_mm512_alignr_epi32(ai, ai, 16 - kBy));
  const __m512 before_b = _mm512_castsi512_ps(_mm512_alignr_epi32(bi, bi, 16 - kBy));
  b = _mm512_mask3_fmadd_ps(a, before_b, b, kHas);
  a = _mm512_mask_mul_ps(a, kHas, a, before_a);
}

template <int kBy>
CELLC_AVX512 inline void compose_by(__m512d& a, __m512d& b) {
  constexpr __mmask8 kHas = static_cast<__mmask8>(0xff << kBy);
  const __m512i ai = _mm512_castpd_si512(a), bi = _mm512_castpd_si512(b);
  const __m512d before_a = _mm512_castsi512_pd(_mm512_alignr_epi64(ai, ai, 8 - kBy));
  const __m512d before_b = _mm512_castsi512_pd(_mm512_alignr_epi64(bi, bi, 8 - kBy));
  b = _mm512_mask3_fmadd_pd(a, before_b, b, kHas);
  a = _mm512_mask_mul_pd(a, kHas, a, before_a);
}

CELLC_AVX512 double compose_512(const float* a, const float* b, std::int64_t steps, float start, float* s,
                                LinesAhead ahead) {
  const __m512i last = _mm512_set1_epi32(15);
  __m512 before = _mm512_set1_ps(start), product = _mm512_set1_ps(1);
  for (std::int64_t t = 0; t < steps; t += 16) {
    __m512 va = _mm512_loadu_ps(a + t), vb = _mm512_loadu_ps(b + t);
    for (int i = 0; i < ahead.count; ++i)
      __builtin_prefetch(ahead.arrays[i] + t * static_cast<std::int64_t>(sizeof *a));
    product = _mm512_mul_ps(product, va);
    compose_by<1>(va, vb);
    compose_by<2>(va, vb);
    compose_by<4>(va, vb);
    compose_by<8>(va, vb);
    const __m512 now = _mm512_fmadd_ps(va, before, vb);
    _mm512_storeu_ps(s + t, now);
    before = _mm512_permutexvar_ps(last, now);
  }
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, product);
  double all = 1;
  for (const float p : lanes) all *= p;
  return all;
}

CELLC_AVX512 double compose_512(const double* a, const double* b, std::int64_t steps, double start, double* s,
                                LinesAhead ahead) {
  const __m512i last = _mm512_set1_epi64(7);
  __m512d before = _mm512_set1_pd(start), product = _mm512_set1_pd(1);
  for (std::int64_t t = 0; t < steps; t += 8) {
    __m512d va = _mm512_loadu_pd(a + t), vb = _mm512_loadu_pd(b + t);
    for (int i = 0; i < ahead.count; ++i)
      __builtin_prefetch(ahead.arrays[i] + t * static_cast<std::int64_t>(sizeof *a));
    product = _mm512_mul_pd(product, va);
    compose_by<1>(va, vb);
    compose_by<2>(va, vb);
    compose_by<4>(va, vb);
    const __m512d now = _mm512_fmadd_pd(va, before, vb);
    _mm512_storeu_pd(s + t, now);
    before = _mm512_permutexvar_pd(last, now);
  }
  alignas(64) double lanes[8];
  _mm512_store_pd(lanes, product);
  double all = 1;
  for (const double p : lanes) all *= p;
  return all;
}

/// A division costs sixteen cycles a vector; a reciprocal to 14 bits two, and this makes up for it.
constexpr double kReciprocal = 1 + 1.0 / 8192;

CELLC_AVX512 double check_and_copy_512(const float* f, const float* s, std::int64_t steps, float size, float* to,
                                       bool past_caches) {
  const __m512 own = _mm512_set1_ps(size);
  __m512 most = _mm512_setzero_ps();
  __mmask16 no_number = 0;
  past_caches &= reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  for (std::int64_t t = 0; t < steps; t += 16) {
    const __m512 vs = _mm512_loadu_ps(s + t);
    const __m512 far = _mm512_mul_ps(_mm512_abs_ps(_mm512_sub_ps(_mm512_loadu_ps(f + t), vs)),
                                     _mm512_rcp14_ps(_mm512_add_ps(own, _mm512_abs_ps(vs))));
    no_number |= _mm512_cmp_ps_mask(far, far, _CMP_UNORD_Q);
    most = _mm512_max_ps(most, far);
    if (past_caches)
      _mm512_stream_ps(to + t, vs);
    else
      _mm512_storeu_ps(to + t, vs);
  }
  return no_number ? std::numeric_limits<double>::infinity() : kReciprocal * _mm512_reduce_max_ps(most);
}

CELLC_AVX512 double check_and_copy_512(const double* f, const double* s, std::int64_t steps, double size, double* to,
                                       bool past_caches) {
  const __m512d own = _mm512_set1_pd(size);
  __m512d most = _mm512_setzero_pd();
  __mmask8 no_number = 0;
  past_caches &= reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  for (std::int64_t t = 0; t < steps; t += 8) {
    const __m512d vs = _mm512_loadu_pd(s + t);
    const __m512d far = _mm512_mul_pd(_mm512_abs_pd(_mm512_sub_pd(_mm512_loadu_pd(f + t), vs)),
                                      _mm512_rcp14_pd(_mm512_add_pd(own, _mm512_abs_pd(vs))));
    no_number |= _mm512_cmp_pd_mask(far, far, _CMP_UNORD_Q);
    most = _mm512_max_pd(most, far);
    if (past_caches)
      _mm512_stream_pd(to + t, vs);
    else
      _mm512_storeu_pd(to + t, vs);
  }
  return no_number ? std::numeric_limits<double>::infinity() : kReciprocal * _mm512_reduce_max_pd(most);
}

CELLC_AVX512 float largest_512(const float* s, std::int64_t steps) {
  __m512 most = _mm512_setzero_ps();
  for (std::int64_t t = 0; t < steps; t += 16) most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(s + t)));
  return _mm512_reduce_max_ps(most);
}

CELLC_AVX512 double largest_512(const double* s, std::int64_t steps) {
  __m512d most = _mm512_setzero_pd();
  for (std::int64_t t = 0; t < steps; t += 8) most = _mm512_max_pd(most, _mm512_abs_pd(_mm512_loadu_pd(s + t)));
  return _mm512_reduce_max_pd(most);
}

template <typename Number>
constexpr StepComposer<Number> k512{64 / sizeof(Number), compose_512, check_and_copy_512, largest_512};

#endif  // CELLC_STEPS_X86

}  // namespace

template <typename Number>
const StepComposer<Number>* step_composer() {
#if CELLC_STEPS_X86
  static const bool has = __builtin_cpu_supports("avx512f");
  if (has) return &k512<Number>;
#endif
  return nullptr;
}

template const StepComposer<float>* step_composer();
template const StepComposer<double>* step_composer();

}  // namespace cellc
