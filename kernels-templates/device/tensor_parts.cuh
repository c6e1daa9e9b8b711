// Instructions of the tensor cores, for arithmetic of 32 bits: what a lane of a warp holds of factors and sums, and how
// numbers become factors. One of CELLC_PRODUCTS_3XTF32, _TF32, _BF16, _F16 says what factors are. Needs preamble.cuh.
#pragma once

#if defined(CELLC_PRODUCTS_BF16) || defined(CELLC_PRODUCTS_F16)
#define CELLC_PRODUCTS_16BIT 1
#endif

namespace cellc {

constexpr int kTensorThreads = 512;  ///< of a block that calls them, at most

/// Factors of one instruction as a lane holds them: of 16 rows by 8 or 16 terms, and of as many terms by 8 columns.
struct alignas(16) LeftPart {
  unsigned at[4];
};
struct RightPart {
  unsigned at[2];
};

#ifdef CELLC_EMULATOR
/// All lanes of a warp look at each other's parts here.
struct TensorScratch {
  LeftPart left[kTensorThreads];
  RightPart right[kTensorThreads];
};
#else
struct TensorScratch {};
#endif

CELLC_DEVICE unsigned bits_of(float value) { return __float_as_uint(value); }

/// To 11 bits, to nearest, for tensor cores, which do not look at the other bits.
CELLC_DEVICE unsigned to_tf32(float value) {
#ifndef CELLC_PRODUCTS_3XTF32
  // With all bits set, as a card's are, it would become a small number. Of 3xTF32 the low part is none all the same.
  if (value != value) return bits_of(value);
#endif
  return bits_of(value) + 0x1000u;
}
CELLC_DEVICE float without_rest(unsigned bits) { return __uint_as_float(bits & 0xffffe000u); }

#ifdef CELLC_PRODUCTS_16BIT
constexpr int kTermsAtOnce = 16;
#ifdef CELLC_EMULATOR
#ifdef CELLC_PRODUCTS_BF16
CELLC_DEVICE unsigned to_half(float value) {
  const unsigned bits = bits_of(value);
  return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
}
CELLC_DEVICE float from_half(unsigned bits) { return __uint_as_float(bits << 16); }
#else
CELLC_DEVICE unsigned to_half(float value) { return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value)); }
CELLC_DEVICE float from_half(unsigned bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<unsigned short>(bits)));
}
#endif
CELLC_DEVICE unsigned two_halves(float low, float high) { return to_half(low) | to_half(high) << 16; }
#else
CELLC_DEVICE unsigned two_halves(float low, float high) {
  unsigned bits;
#ifdef CELLC_PRODUCTS_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#endif
  return bits;
}
#endif
#else
constexpr int kTermsAtOnce = 8;
#endif

/// sums += left · right. All lanes of a warp call it.
CELLC_DEVICE void multiply_add(float (&sums)[4], const LeftPart& left, const RightPart& right,
                               [[maybe_unused]] TensorScratch* scratch) {
#ifdef CELLC_EMULATOR
  const int thread = threadIdx.x, warp = thread / 32 * 32, group = thread % 32 / 4, of_group = thread % 4;
  scratch->left[thread] = left;
  scratch->right[thread] = right;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * of_group + i % 2, high_row = i / 2;
    for (int k = 0; k < kTermsAtOnce; ++k) {
#ifdef CELLC_PRODUCTS_16BIT
      const int lane = k % 8 / 2, part = k / 8, shift = 16 * (k % 2);
      const float l = from_half(scratch->left[warp + group * 4 + lane].at[2 * part + high_row] >> shift & 0xffff),
                  r = from_half(scratch->right[warp + column * 4 + lane].at[part] >> shift & 0xffff);
#else
      const int lane = k % 4, part = k / 4;
      const float l = __uint_as_float(scratch->left[warp + group * 4 + lane].at[2 * part + high_row] & 0xffffe000u),
                  r = __uint_as_float(scratch->right[warp + column * 4 + lane].at[part] & 0xffffe000u);
#endif
      sums[i] += l * r;
    }
  }
  __syncwarp();
#else
#if defined(CELLC_PRODUCTS_BF16)
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#elif defined(CELLC_PRODUCTS_F16)
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[0]), "r"(right.at[1]));
#endif
}

/// Four blocks of 8 rows by 4 numbers: of each a lane has the number at its group's row and at its place in the group.
/// `at`: of lane 8·i + r, row r of block i. All lanes of a warp call it.
CELLC_DEVICE void load_blocks(float (&to)[4], const float* at) {
#ifdef CELLC_EMULATOR
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const unsigned long long row = __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(at), 8 * i + lane / 4);
    to[i] = reinterpret_cast<const float*>(row)[lane % 4];
  }
#else
  unsigned bits[4];
  // Volatile, so that it stays between barriers; what it reads is no matter to the compiler.
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(shared_address(const_cast<float*>(at))));
  CELLC_UNROLL()
  for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(bits[i]);
#endif
}

/// value = high + low, as far as twice 11 bits go.
CELLC_DEVICE void split(float value, unsigned& high, [[maybe_unused]] unsigned& low) {
  high = to_tf32(value);
#ifdef CELLC_PRODUCTS_3XTF32
  low = bits_of(value - without_rest(high));
#endif
}

}  // namespace cellc
