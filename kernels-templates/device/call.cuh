// What a shipped call needs around its stages: rows from one layout or number type to another, the offsets of
// sequences, what the last steps read. Independent of the storage that the stages are compiled for. The arguments
// are those of host_arrays.h.
#pragma once

namespace cellc {

struct CopyArguments {
  unsigned long long from, to;                               ///< from 0: `number`, everywhere
  long long from_sequence, from_step, to_sequence, to_step;  ///< entries
  long long sequences, steps, entries;
  long long from_type, to_type;  ///< f32, f64, f16, bf16
  long long through;             ///< a type that values are rounded to on the way; below 0: none
  double number;
};
struct OffsetsArguments {
  unsigned long long to;
  long long sequences, steps;
};
struct LastStepsArguments {
  unsigned long long rows, before, to, offsets;
  long long sequence, step;  ///< of rows, entries
  long long sequences, steps, depth, entries, bytes, reverse;
};

enum : int { kCopyF32, kCopyF64, kCopyF16, kCopyBF16 };

CELLC_DEVICE float widen_half(unsigned short bits) {
#ifdef CELLC_EMULATOR
  return cellc_emulator::from_half(bits);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}
CELLC_DEVICE unsigned short narrow_half(float value) {
#ifdef CELLC_EMULATOR
  return cellc_emulator::to_half(value);
#else
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}
CELLC_DEVICE unsigned short narrow_bfloat(float value) {
  const unsigned bits = __float_as_uint(value), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<unsigned short>((value != value ? bits | 0x400000u : rounded) >> 16);
}
/// So that a second rounding, to 16 bits, gives what a single one would have given: where it is inexact, the
/// neighbour whose last bit is set.
CELLC_DEVICE float rounded_to_odd(double wide) {
  const float value = static_cast<float>(wide);
  const double back = value;
  if (!(back < wide) && !(back > wide)) return value;
  if (!(back - back == 0)) return value;
  const unsigned bits = __float_as_uint(value) - ((back < 0 ? -back : back) > (wide < 0 ? -wide : wide) ? 1u : 0u);
  return __uint_as_float(bits | 1u);
}
CELLC_DEVICE double load_as(const void* from, long long at, int type) {
  switch (type) {
    case kCopyF32:
      return static_cast<const float*>(from)[at];
    case kCopyF64:
      return static_cast<const double*>(from)[at];
    case kCopyF16:
      return widen_half(static_cast<const unsigned short*>(from)[at]);
    default:
      return __uint_as_float(static_cast<unsigned>(static_cast<const unsigned short*>(from)[at]) << 16);
  }
}
CELLC_DEVICE void store_as(void* to, long long at, int type, double value) {
  switch (type) {
    case kCopyF32:
      static_cast<float*>(to)[at] = static_cast<float>(value);
      break;
    case kCopyF64:
      static_cast<double*>(to)[at] = value;
      break;
    case kCopyF16:
      static_cast<unsigned short*>(to)[at] = narrow_half(rounded_to_odd(value));
      break;
    default:
      static_cast<unsigned short*>(to)[at] = narrow_bfloat(rounded_to_odd(value));
      break;
  }
}

CELLC_DEVICE void copy_rows(const CopyArguments& a) {
  const long long each = a.steps * a.entries;
  each_of(a.sequences * each, [&](long long i) {
    const long long sequence = i / each, step = i % each / a.entries, entry = i % a.entries;
    const long long at = sequence * a.to_sequence + step * a.to_step + entry;
    void* const to = reinterpret_cast<void*>(a.to);
    const void* const from = reinterpret_cast<const void*>(a.from);
    const long long source = sequence * a.from_sequence + step * a.from_step + entry;
    if (a.from && a.from_type == a.to_type) {
      // Bits as they are, those of a NaN too.
      if (a.from_type == kCopyF64)
        static_cast<double*>(to)[at] = static_cast<const double*>(from)[source];
      else if (a.from_type == kCopyF32)
        static_cast<unsigned*>(to)[at] = static_cast<const unsigned*>(from)[source];
      else
        static_cast<unsigned short*>(to)[at] = static_cast<const unsigned short*>(from)[source];
      return;
    }
    double value = a.from ? load_as(from, source, static_cast<int>(a.from_type)) : a.number;
    if (a.through == kCopyF16) value = widen_half(narrow_half(rounded_to_odd(value)));
    if (a.through == kCopyBF16)
      value = __uint_as_float(static_cast<unsigned>(narrow_bfloat(rounded_to_odd(value))) << 16);
    store_as(to, at, static_cast<int>(a.to_type), value);
  });
}

/// Of sequences that are all as long.
CELLC_DEVICE void fill_offsets(const OffsetsArguments& a) {
  each_of(a.sequences + 1, [&](long long i) { reinterpret_cast<long long*>(a.to)[i] = i * a.steps; });
}

/// The last `depth` steps of every sequence, newest first; before its first step, what was given. From the oldest
/// on, by one thread, so that it may be written where it was read.
CELLC_DEVICE void last_steps(const LastStepsArguments& a) {
  const auto* const offsets = reinterpret_cast<const long long*>(a.offsets);
  each_of(a.sequences * a.entries, [&](long long i) {
    const long long sequence = i / a.entries, entry = i % a.entries;
    const long long first = offsets ? offsets[sequence] : 0, steps = offsets ? offsets[sequence + 1] - first : a.steps;
    const long long base = offsets ? first * a.step : sequence * a.sequence;
    for (long long back = a.depth - 1; back >= 0; --back) {
      const long long to = (sequence * a.depth + back) * a.entries + entry;
      const bool is_row = back < steps;
      const long long row = a.reverse ? back : steps - 1 - back;
      const long long from =
          is_row ? base + row * a.step + entry : (sequence * a.depth + back - steps) * a.entries + entry;
      const unsigned long long source = is_row ? a.rows : a.before;
      if (a.bytes == 8)
        reinterpret_cast<double*>(a.to)[to] = source ? reinterpret_cast<const double*>(source)[from] : 0.0;
      else if (a.bytes == 4)
        reinterpret_cast<unsigned*>(a.to)[to] = source ? reinterpret_cast<const unsigned*>(source)[from] : 0u;
      else
        reinterpret_cast<unsigned short*>(a.to)[to] =
            source ? reinterpret_cast<const unsigned short*>(source)[from] : static_cast<unsigned short>(0);
    }
  });
}

}  // namespace cellc
