// The instruction of sm_90a by which 128 threads multiply 64 rows by 128 columns at once (wgmma), for products of rows
// and a matrix of params (product_ring.cuh). A warp has 16 of the rows, which reach the instruction in registers; the
// columns lie in shared memory as their part's essay says. It works beside the threads until wide_wait: till then
// neither its registers nor its columns may change.
//
// On other cards than those it is nothing, and nothing that needs it is launched there. Needs tensor_parts.cuh.
#pragma once

namespace cellc {

enum class WideFactors { Tf32, BF16, F16 };
constexpr int terms_at_once(WideFactors factors) { return factors == WideFactors::Tf32 ? 8 : 16; }
constexpr int kWideTile = 128;  ///< rows of a block, and columns of an instruction

/// Of a lane: [16 rows][8 columns], of which it has two neighbours of two rows.
using WideSums = float[16][4];

#if defined(CELLC_EMULATOR)
/// All lanes of a warp look at each other's rows here.
struct WideScratch {
  LeftPart left[256];
};
#define CELLC_WIDE_SCRATCH(name) __shared__ cellc::WideScratch name[1]
CELLC_DEVICE void wide_fence() {}
CELLC_DEVICE void wide_commit() {}
template <int kPending>
CELLC_DEVICE void wide_wait() {}
using Columns = const unsigned*;
CELLC_DEVICE Columns columns_at(const void* at) { return static_cast<const unsigned*>(at); }

template <WideFactors kFactors>
CELLC_DEVICE float wide_factor(unsigned word, int of_word) {
  if (kFactors == WideFactors::Tf32) return __uint_as_float(word & 0xffffe000u);
  const unsigned half = word >> 16 * of_word & 0xffff;
  if (kFactors == WideFactors::BF16) return __uint_as_float(half << 16);
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<unsigned short>(half)));
}

/// sums = left · columns, or sums += where it adds. All lanes of a warp call it.
template <WideFactors kFactors>
CELLC_DEVICE void wide_multiply(WideSums& sums, const LeftPart& left, Columns columns, bool adds,
                                WideScratch* scratch) {
  constexpr int kAtOnce = terms_at_once(kFactors), kOfWord = kAtOnce / 8, kNear = 4 * kOfWord;
  const int thread = threadIdx.x, warp = thread / 32 * 32, group = thread % 32 / 4, of_group = thread % 4;
  scratch->left[thread] = left;
  __syncwarp();
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * j + 2 * of_group + i % 2, high_row = i / 2;
      float sum = adds ? sums[j][i] : 0;
      for (int k = 0; k < kAtOnce; ++k) {
        const int word = k % kNear / kOfWord, half = k / kNear;
        const unsigned l = scratch->left[warp + group * 4 + word].at[2 * half + high_row],
                       r = columns[(half * kWideTile + column) * 4 + word];
        sum += wide_factor<kFactors>(l, k % kOfWord) * wide_factor<kFactors>(r, k % kOfWord);
      }
      sums[j][i] = sum;
    }
  __syncwarp();
}
#else
struct WideScratch {};
#define CELLC_WIDE_SCRATCH(name) cellc::WideScratch* const name = nullptr
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CELLC_DEVICE void wide_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CELLC_DEVICE void wide_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most kPending groups of this warp's are under way.
template <int kPending>
CELLC_DEVICE void wide_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Where columns lie: without swizzle, 16 bytes of terms 16 · 128 bytes from the next 16, groups of 8 columns 128 bytes
/// apart; all in units of 16 bytes.
using Columns = unsigned long long;
CELLC_DEVICE Columns columns_at(const void* at) {
  return static_cast<unsigned long long>(shared_address(const_cast<void*>(at)) >> 4 & 0x3fffu) |
         static_cast<unsigned long long>(kWideTile) << 16 | 8ull << 32;
}
#define CELLC_FOUR_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define CELLC_WGMMA(form, last)                                                                                  \
  asm volatile(                                                                                                  \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"                                                         \
      "wgmma.mma_async.sync.aligned." form                                                                       \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                 \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                         \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                         \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                        \
      "{%64, %65, %66, %67}, %68, adds, 1, 1" last ";\n}"                                                        \
      : CELLC_FOUR_SUMS(0), CELLC_FOUR_SUMS(1), CELLC_FOUR_SUMS(2), CELLC_FOUR_SUMS(3), CELLC_FOUR_SUMS(4),      \
        CELLC_FOUR_SUMS(5), CELLC_FOUR_SUMS(6), CELLC_FOUR_SUMS(7), CELLC_FOUR_SUMS(8), CELLC_FOUR_SUMS(9),      \
        CELLC_FOUR_SUMS(10), CELLC_FOUR_SUMS(11), CELLC_FOUR_SUMS(12), CELLC_FOUR_SUMS(13), CELLC_FOUR_SUMS(14), \
        CELLC_FOUR_SUMS(15)                                                                                      \
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "l"(columns), "r"(static_cast<int>(adds)))
template <WideFactors kFactors>
CELLC_DEVICE void wide_multiply(WideSums& sums, const LeftPart& left, Columns columns, bool adds, WideScratch*) {
  if constexpr (kFactors == WideFactors::BF16)
    CELLC_WGMMA("m64n128k16.f32.bf16.bf16", ", 0");
  else if constexpr (kFactors == WideFactors::F16)
    CELLC_WGMMA("m64n128k16.f32.f16.f16", ", 0");
  else
    CELLC_WGMMA("m64n128k8.f32.tf32.tf32", "");
}
#undef CELLC_WGMMA
#undef CELLC_FOUR_SUMS
#else
CELLC_DEVICE void wide_fence() { __trap(); }
CELLC_DEVICE void wide_commit() {}
template <int kPending>
CELLC_DEVICE void wide_wait() {}
using Columns = int;
CELLC_DEVICE Columns columns_at(const void*) { return 0; }
template <WideFactors kFactors>
CELLC_DEVICE void wide_multiply(WideSums&, const LeftPart&, Columns, bool, WideScratch*) {}
#endif
#endif

/// The compiler neither reads nor moves these before what was waited for.
CELLC_DEVICE void settle([[maybe_unused]] WideSums& sums) {
#ifndef CELLC_EMULATOR
  CELLC_UNROLL()
  for (int j = 0; j < 16; ++j) {
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[j][i])::"memory");
  }
#endif
}

}  // namespace cellc
