#pragma once
// Numbers of 16 bits to and from f32, by whole arrays: the bits that Array::get and set give one by one, through f64,
// which takes some 60 ns a number. What is no number becomes the one quiet NaN of its type.
#include <bit>
#include <cstdint>

namespace cellc {

inline float from_brain(std::uint16_t raw) {
  const std::uint32_t bits = static_cast<std::uint32_t>(raw) << 16;
  return std::bit_cast<float>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
}

/// To nearest, halves to even; what is too large is infinite.
inline std::uint16_t to_brain(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_half(std::uint16_t raw) {
  constexpr std::uint32_t kExponent = 0x7c00u << 13, kRebias = (127u - 15u) << 23;
  std::uint32_t bits = (raw & 0x7fffu) << 13;
  const std::uint32_t exponent = bits & kExponent;
  if (exponent == kExponent) {
    if (bits != kExponent) return std::bit_cast<float>(0x7fc00000u);
    bits = 0x7f800000u;
  } else if (exponent == 0) {  // without a hidden bit: so many times 2^-24
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(raw & 0x3ffu) * 0x1p-24f);
  } else {
    bits += kRebias;
  }
  return std::bit_cast<float>(bits | static_cast<std::uint32_t>(raw & 0x8000u) << 16);
}

/// As to_brain().
inline std::uint16_t to_half(float value) {
  constexpr std::uint32_t kLeastNormal = (127u - 14u) << 23, kTooLarge = (127u + 16u) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(value), size = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= kTooLarge) return static_cast<std::uint16_t>(sign | 0x7c00u);
  // The last place of 0.5 is 2^-24, that of the numbers without a hidden bit: adding it rounds to that.
  if (size < kLeastNormal)
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f)));
  return static_cast<std::uint16_t>(sign | ((size - ((127u - 15u) << 23) + 0xfffu + (size >> 13 & 1u)) >> 13));
}

}  // namespace cellc
