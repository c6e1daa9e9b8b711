#include "runtime/cpu/transpose_tiles.h"

#include <cstring>

#if defined(__x86_64__)
#define CELLC_TURN_X86 1
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on _mm512_undefined_ps in g++ 12
#endif
#include <immintrin.h>
#else
#define CELLC_TURN_X86 0
#endif

namespace cellc {

namespace {

/// A lane's line that is asked for while this block is turned: sixteen streams are many for the hardware
/// to follow. Distances from 16 to 1,000 steps were tried; none but this gained anything.
constexpr std::int64_t kAhead = 32;

// Anywhere ---------------------------------------------------------------------------------------------

template <typename Number>
void to_rows_plain(const Number* const* lanes, const TurnedBlocks& blocks, Number* row) {
  Number block[kBlock][kBlock];
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock) {
    for (std::int64_t l = 0; l < kBlock; ++l) {
      __builtin_prefetch(lanes[l] + t + kAhead);
      std::memcpy(block[l], lanes[l] + t, sizeof block[l]);
    }
    for (std::int64_t i = 0; i < kBlock; ++i, row += blocks.row_step)
      for (std::int64_t l = 0; l < kBlock; ++l) row[l] = block[l][i];
  }
}

template <typename Number>
void to_lanes_plain(const Number* row, const TurnedBlocks& blocks, Number* const* lanes, bool) {
  Number block[kBlock][kBlock];
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock) {
    for (std::int64_t i = 0; i < kBlock; ++i, row += blocks.row_step)
      for (std::int64_t l = 0; l < kBlock; ++l) block[l][i] = row[l];
    for (std::int64_t l = 0; l < kBlock; ++l) std::memcpy(lanes[l] + t, block[l], sizeof block[l]);
  }
}

#if CELLC_TURN_X86

// 128 bits: every x86-64 ---------------------------------------------------------------------------------

/// 4 by 4, or 2 by 2.
inline void turn(__m128 (&v)[4]) { _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]); }
inline void turn(__m128d (&v)[2]) {
  const __m128d low = _mm_unpacklo_pd(v[0], v[1]);
  v[1] = _mm_unpackhi_pd(v[0], v[1]);
  v[0] = low;
}
inline __m128 load(const float* p) { return _mm_loadu_ps(p); }
inline __m128d load(const double* p) { return _mm_loadu_pd(p); }
inline void store(float* p, __m128 v) { _mm_storeu_ps(p, v); }
inline void store(double* p, __m128d v) { _mm_storeu_pd(p, v); }

template <typename Number>
struct Vector128;
template <>
struct Vector128<float> {
  using Type = __m128;
};
template <>
struct Vector128<double> {
  using Type = __m128d;
};

template <typename Number>
void to_rows_128(const Number* const* lanes, const TurnedBlocks& blocks, Number* row) {
  constexpr std::int64_t kEach = 16 / sizeof(Number);
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock, row += kBlock * blocks.row_step) {
    for (std::int64_t l = 0; l < kBlock; ++l) __builtin_prefetch(lanes[l] + t + kAhead);
    for (std::int64_t l = 0; l < kBlock; l += kEach)
      for (std::int64_t i = 0; i < kBlock; i += kEach) {
        typename Vector128<Number>::Type v[kEach];
        for (std::int64_t k = 0; k < kEach; ++k) v[k] = load(lanes[l + k] + t + i);
        turn(v);
        for (std::int64_t k = 0; k < kEach; ++k) store(row + (i + k) * blocks.row_step + l, v[k]);
      }
  }
}

template <typename Number>
void to_lanes_128(const Number* row, const TurnedBlocks& blocks, Number* const* lanes, bool) {
  constexpr std::int64_t kEach = 16 / sizeof(Number);
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock, row += kBlock * blocks.row_step)
    for (std::int64_t l = 0; l < kBlock; l += kEach)
      for (std::int64_t i = 0; i < kBlock; i += kEach) {
        typename Vector128<Number>::Type v[kEach];
        for (std::int64_t k = 0; k < kEach; ++k) v[k] = load(row + (i + k) * blocks.row_step + l);
        turn(v);
        for (std::int64_t k = 0; k < kEach; ++k) store(lanes[l + k] + t + i, v[k]);
      }
}

// AVX-512: a row of sixteen f32 is one register ----------------------------------------------------------

#define CELLC_AVX512 __attribute__((target("avx512f")))

/// Within each quarter of four registers: 4 by 4.
CELLC_AVX512 inline void transpose_quarters(__m512 (&v)[4]) {
  const __m512 a = _mm512_unpacklo_ps(v[0], v[1]), b = _mm512_unpackhi_ps(v[0], v[1]);
  const __m512 c = _mm512_unpacklo_ps(v[2], v[3]), d = _mm512_unpackhi_ps(v[2], v[3]);
  v[0] = _mm512_shuffle_ps(a, c, 0x44);
  v[1] = _mm512_shuffle_ps(a, c, 0xee);
  v[2] = _mm512_shuffle_ps(b, d, 0x44);
  v[3] = _mm512_shuffle_ps(b, d, 0xee);
}

CELLC_AVX512 void to_rows_512(const float* const* lanes, const TurnedBlocks& blocks, float* row) {
  const std::int64_t step = blocks.row_step;
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock, row += kBlock * step) {
    for (std::int64_t l = 0; l < kBlock; ++l) __builtin_prefetch(lanes[l] + t + kAhead);
    for (std::int64_t i = 0; i < kBlock; i += 4) {
      // Quarter q of register k is lane 4q + k: put together by loads, so that shuffles are left for turning.
      __m512 v[4];
      for (std::int64_t k = 0; k < 4; ++k) {
        v[k] = _mm512_castps128_ps512(_mm_loadu_ps(lanes[k] + t + i));
        v[k] = _mm512_mask_broadcast_f32x4(v[k], 0x00f0, _mm_loadu_ps(lanes[4 + k] + t + i));
        v[k] = _mm512_mask_broadcast_f32x4(v[k], 0x0f00, _mm_loadu_ps(lanes[8 + k] + t + i));
        v[k] = _mm512_mask_broadcast_f32x4(v[k], 0xf000, _mm_loadu_ps(lanes[12 + k] + t + i));
      }
      transpose_quarters(v);
      for (std::int64_t k = 0; k < 4; ++k) _mm512_storeu_ps(row + (i + k) * step, v[k]);
    }
  }
}

CELLC_AVX512 void to_lanes_512(const float* row, const TurnedBlocks& blocks, float* const* lanes, bool past_caches) {
  const std::int64_t step = blocks.row_step;
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock, row += kBlock * step) {
    __m512 v[4][4];
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t k = 0; k < 4; ++k) v[i][k] = _mm512_loadu_ps(row + (4 * i + k) * step);
      transpose_quarters(v[i]);
    }
    // Quarter q of v[i][k] is steps 4i to 4i + 3 of lane 4q + k.
    for (std::int64_t k = 0; k < 4; ++k) {
      const __m512 a = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0x44), b = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0xee);
      const __m512 c = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0x44), d = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0xee);
      const __m512 lane[4] = {_mm512_shuffle_f32x4(a, c, 0x88), _mm512_shuffle_f32x4(a, c, 0xdd),
                              _mm512_shuffle_f32x4(b, d, 0x88), _mm512_shuffle_f32x4(b, d, 0xdd)};
      for (std::int64_t q = 0; q < 4; ++q) {
        float* const to = lanes[4 * q + k] + t;
        if (past_caches && reinterpret_cast<std::uintptr_t>(to) % 64 == 0)
          _mm512_stream_ps(to, lane[q]);
        else
          _mm512_storeu_ps(to, lane[q]);
      }
    }
  }
}

/// f64: half a row is one register; blocks of 8 by 8.
CELLC_AVX512 void to_rows_512(const double* const* lanes, const TurnedBlocks& blocks, double* row) {
  const std::int64_t step = blocks.row_step;
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += kBlock, row += kBlock * step) {
    for (std::int64_t l = 0; l < kBlock; ++l) {
      __builtin_prefetch(lanes[l] + t + kAhead);
      __builtin_prefetch(lanes[l] + t + kAhead + 8);
    }
    for (std::int64_t half = 0; half < kBlock; half += 8)
      for (std::int64_t i = 0; i < kBlock; i += 2) {
        __m512d v[2];
        for (std::int64_t k = 0; k < 2; ++k) {
          __m512d q[4];
          for (std::int64_t j = 0; j < 4; ++j)
            q[j] = _mm512_castpd128_pd512(_mm_loadu_pd(lanes[half + 2 * j + k] + t + i));
          v[k] = _mm512_shuffle_f64x2(_mm512_shuffle_f64x2(q[0], q[1], 0x00), _mm512_shuffle_f64x2(q[2], q[3], 0x00),
                                      0x88);
        }
        _mm512_storeu_pd(row + i * step + half, _mm512_unpacklo_pd(v[0], v[1]));
        _mm512_storeu_pd(row + (i + 1) * step + half, _mm512_unpackhi_pd(v[0], v[1]));
      }
  }
}

CELLC_AVX512 void to_lanes_512(const double* row, const TurnedBlocks& blocks, double* const* lanes, bool past_caches) {
  const std::int64_t step = blocks.row_step;
  for (std::int64_t t = 0; t < blocks.blocks * kBlock; t += 8, row += 8 * step)
    for (std::int64_t half = 0; half < kBlock; half += 8) {
      __m512d v[4][2];
      for (std::int64_t i = 0; i < 4; ++i) {
        const __m512d even = _mm512_loadu_pd(row + 2 * i * step + half),
                      odd = _mm512_loadu_pd(row + (2 * i + 1) * step + half);
        v[i][0] = _mm512_unpacklo_pd(even, odd);
        v[i][1] = _mm512_unpackhi_pd(even, odd);
      }
      // Quarter q of v[i][k] is steps 2i and 2i + 1 of lane 2q + k.
      for (std::int64_t k = 0; k < 2; ++k) {
        const __m512d a = _mm512_shuffle_f64x2(v[0][k], v[1][k], 0x44),
                      b = _mm512_shuffle_f64x2(v[0][k], v[1][k], 0xee);
        const __m512d c = _mm512_shuffle_f64x2(v[2][k], v[3][k], 0x44),
                      d = _mm512_shuffle_f64x2(v[2][k], v[3][k], 0xee);
        const __m512d lane[4] = {_mm512_shuffle_f64x2(a, c, 0x88), _mm512_shuffle_f64x2(a, c, 0xdd),
                                 _mm512_shuffle_f64x2(b, d, 0x88), _mm512_shuffle_f64x2(b, d, 0xdd)};
        for (std::int64_t q = 0; q < 4; ++q) {
          double* const to = lanes[half + 2 * q + k] + t;
          if (past_caches && reinterpret_cast<std::uintptr_t>(to) % 64 == 0)
            _mm512_stream_pd(to, lane[q]);
          else
            _mm512_storeu_pd(to, lane[q]);
        }
      }
    }
}

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
}

#endif  // CELLC_TURN_X86

template <typename Number>
constexpr TileTransposer<Number> kPlain{to_rows_plain<Number>, to_lanes_plain<Number>};
#if CELLC_TURN_X86
template <typename Number>
constexpr TileTransposer<Number> k128{to_rows_128<Number>, to_lanes_128<Number>};
template <typename Number>
constexpr TileTransposer<Number> k512{to_rows_512, to_lanes_512};
#endif

}  // namespace

template <typename Number>
int block_turners(const TileTransposer<Number>* (&found)[3]) {
  int count = 0;
#if CELLC_TURN_X86
  if (has_avx512()) found[count++] = &k512<Number>;
  found[count++] = &k128<Number>;
#endif
  found[count++] = &kPlain<Number>;
  return count;
}

template <typename Number>
const TileTransposer<Number>& block_turner() {
  const TileTransposer<Number>* found[3];
  block_turners(found);
  return *found[0];
}

template int block_turners(const TileTransposer<float>* (&)[3]);
template int block_turners(const TileTransposer<double>* (&)[3]);
template const TileTransposer<float>& block_turner();
template const TileTransposer<double>& block_turner();

}  // namespace cellc
