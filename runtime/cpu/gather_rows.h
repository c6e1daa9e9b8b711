#pragma once
// Copies between arrays, whose rows are steps, and tiles, whose rows are lanes side by side. Private to
// the lane kernel.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "runtime/cpu/transpose_tiles.h"

namespace cellc {

/// Steps that are gathered at a time: inputs and states of a tile stay near the first-level cache.
inline constexpr std::int64_t kChunkSteps = 64;

template <int kCount, typename Number>
inline void copy_fixed(const Number* from, std::int64_t from_step, Number* to, std::int64_t to_step,
                       std::int64_t rows) {
  // Too many streams for the hardware to follow: the next chunk's lines are asked for here, each once.
  const std::int64_t row_bytes = std::abs(from_step) * static_cast<std::int64_t>(sizeof(Number));
  const std::int64_t every =
      std::clamp<std::int64_t>(row_bytes ? 64 / row_bytes : rows, 1, std::max<std::int64_t>(rows, 1));
  for (std::int64_t t = 0; t < rows; t += every) {
    __builtin_prefetch(from + kChunkSteps * from_step);
    const std::int64_t end = std::min(rows, t + every);
    for (std::int64_t i = t; i < end; ++i, from += from_step, to += to_step)
      std::memcpy(to, from, kCount * sizeof(Number));
  }
}

/// `rows` times `count` neighbouring entries from a place to another. Runs are mostly short and of one
/// length: fixed sizes become plain moves, where a call of memcpy would cost more than the copy.
template <typename Number>
void copy_rows(const Number* from, std::int64_t from_step, Number* to, std::int64_t to_step, std::int64_t rows,
               std::int64_t count) {
  switch (count) {
    case 1:
      return copy_fixed<1>(from, from_step, to, to_step, rows);
    case 2:
      return copy_fixed<2>(from, from_step, to, to_step, rows);
    case 3:
      return copy_fixed<3>(from, from_step, to, to_step, rows);
    case 4:
      return copy_fixed<4>(from, from_step, to, to_step, rows);
    case 8:
      return copy_fixed<8>(from, from_step, to, to_step, rows);
    case 16:
      return copy_fixed<16>(from, from_step, to, to_step, rows);
    default:
      break;
  }
  for (; count >= 8; count -= 8, from += 8, to += 8) copy_fixed<8>(from, from_step, to, to_step, rows);
  for (; count > 0; --count, ++from, ++to) copy_fixed<1>(from, from_step, to, to_step, rows);
}

/// copy_rows past the caches, for what is written once and not read soon: the lines need not be fetched
/// first. False where the rows do not lie so that it can.
template <typename Number>
bool stream_rows(const Number* from, std::int64_t from_step, Number* to, std::int64_t to_step, std::int64_t rows,
                 std::int64_t count) {
#ifdef __SSE2__
  constexpr std::int64_t kEach = 16 / sizeof(Number);
  // Whole rows in order, so that lines fill up one after the other.
  if (to_step != count || count % kEach != 0 || reinterpret_cast<std::uintptr_t>(to) % 16 != 0) return false;
  for (std::int64_t t = 0; t < rows; ++t, from += from_step)
    for (std::int64_t i = 0; i < count; i += kEach, to += kEach)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  return true;
#else
  return false;
#endif
}

/// Sixteen lanes at a time, by whole blocks where a lane's steps are neighbours (transpose_tiles.h); row by row,
/// a lane's steps would be written to (or read from) so many places at one distance that caches evict each
/// other. The rest goes entry by entry.
template <typename Number>
void lanes_to_rows(const Number* const* lanes, std::int64_t step, std::int64_t rows, Number* to, std::int64_t to_step) {
  const std::int64_t blocks = step == 1 || step == -1 ? rows / kBlock : 0, turned = blocks * kBlock;
  if (step == 1 && blocks) {
    block_turner<Number>().to_rows(lanes, {blocks, to_step}, to);
  } else if (blocks) {
    // From the other end of both.
    const Number* low[kBlock];
    for (std::int64_t l = 0; l < kBlock; ++l) low[l] = lanes[l] - (turned - 1);
    block_turner<Number>().to_rows(low, {blocks, -to_step}, to + (turned - 1) * to_step);
  }
  for (std::int64_t t = turned; t < rows; ++t)
    for (std::int64_t l = 0; l < kBlock; ++l) to[t * to_step + l] = lanes[l][t * step];
}

template <typename Number>
void rows_to_lanes(const Number* from, std::int64_t from_step, std::int64_t rows, Number* const* lanes,
                   std::int64_t step, bool past_caches) {
  const std::int64_t blocks = step == 1 || step == -1 ? rows / kBlock : 0, turned = blocks * kBlock;
  if (step == 1 && blocks) {
    block_turner<Number>().to_lanes(from, {blocks, from_step}, lanes, past_caches);
  } else if (blocks) {
    Number* low[kBlock];
    for (std::int64_t l = 0; l < kBlock; ++l) low[l] = lanes[l] - (turned - 1);
    block_turner<Number>().to_lanes(from + (turned - 1) * from_step, {blocks, -from_step}, low, past_caches);
  }
  for (std::int64_t t = turned; t < rows; ++t)
    for (std::int64_t l = 0; l < kBlock; ++l) lanes[l][t * step] = from[t * from_step + l];
}

}  // namespace cellc
