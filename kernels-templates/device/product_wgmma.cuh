// Rows of f32 for product_ring.cuh. They reach the instruction in registers, taken apart or rounded on the way; a warp
// reads its own 16 rows alone, so nothing is taken apart twice. The matrix is taken apart once, before:
// cellc_prepare_matrix lays it out as the instruction reads it.
//
// Prepared: [batch][128 columns][stage of 32 terms][part][16 bytes of terms][column], high and low parts of 3xTF32,
// else one part; zeros where there is no column or term. Of 16 bits, terms of eight are paired with those four on. Of
// 3xTF32 a stage's sums leave the tensor cores together.
//
// Runs use it where it pays (cellc_is_wide of host_tiles.h); shipped code does not. Needs product_ring.cuh.
#pragma once

namespace cellc {

#ifdef CELLC_PRODUCTS_3XTF32
constexpr int kMatrixParts = 2;
#else
constexpr int kMatrixParts = 1;
#endif
constexpr int kNearTerms = kPairsTerms ? 8 : 4;                         ///< 16 bytes of one column
constexpr int kMatrixPart = kWideTile * kTensorTerms / kNearTerms * 4;  ///< floats' worth of one part of a stage
constexpr int kMatrixStage = kMatrixParts * kMatrixPart;
static_assert(kMatrixStage % (4 * kProductThreads) == 0);

struct alignas(16) NearTerms {
  unsigned at[4];
};

/// One thread makes 16 bytes of every part.
CELLC_DEVICE void prepare_matrix(const ProductArguments& a) {
  const long long tiles = (a.width + kWideTile - 1) / kWideTile, stages = (a.depth + kTensorTerms - 1) / kTensorTerms;
  constexpr int kPieces = kMatrixPart / 4;  // of 16 bytes
  const long long all = quotient(a.batch, a.shared) * tiles * stages * kPieces,
                  threads = static_cast<long long>(gridDim.x) * blockDim.x;
  NearTerms* const to = static_cast<NearTerms*>(a.prepared);
  CELLC_UNROLL(1)
  for (long long piece = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; piece < all; piece += threads) {
    const int own = static_cast<int>(piece % kPieces), near = own / kWideTile;
    const long long of_stage = piece / kPieces, of_tile = quotient(of_stage, stages), batch = quotient(of_tile, tiles);
    const long long column = (of_tile - batch * tiles) * kWideTile + own % kWideTile,
                    first = (of_stage - of_tile * stages) * kTensorTerms + near * kNearTerms;
    const float* const matrix = static_cast<const float*>(a.matrix) + batch * a.matrix_batch;
    float numbers[kNearTerms];
    CELLC_UNROLL()
    for (int k = 0; k < kNearTerms; ++k) {
      const long long term = first + k;
      numbers[k] = column >= a.width || term >= a.depth ? 0
                   : a.sum_last                         ? matrix[column * a.matrix_apart + term]
                                                        : matrix[term * a.matrix_apart + column];
    }
    NearTerms parts[kMatrixParts];
    CELLC_UNROLL()
    for (int k = 0; k < 4; ++k) {
#ifdef CELLC_PRODUCTS_16BIT
      parts[0].at[k] = two_halves(numbers[k], numbers[k + 4]);  // pairs as WideRows::load makes them
#else
      unsigned high, low = 0;
      split(numbers[k], high, low);
      parts[0].at[k] = high & 0xffffe000u;
      if (kMatrixParts == 2) parts[kMatrixParts - 1].at[k] = low;
#endif
    }
    CELLC_UNROLL()
    for (int p = 0; p < kMatrixParts; ++p) to[(of_stage * kMatrixParts + p) * kPieces + own] = parts[p];
  }
}

/// Of product_ring.cuh.
struct WideRows {
  using Number = float;
#if defined(CELLC_PRODUCTS_BF16)
  static constexpr WideFactors kFactors = WideFactors::BF16;
#elif defined(CELLC_PRODUCTS_F16)
  static constexpr WideFactors kFactors = WideFactors::F16;
#else
  static constexpr WideFactors kFactors = WideFactors::Tf32;
#endif
  static constexpr int kParts = kMatrixParts, kMatrixBytes = kMatrixPart * 4, kSteps = kTensorTerms / kTermsAtOnce;
  static constexpr bool kPromotes = kParts > 1;
  static constexpr int kHalves = kPromotes ? 1 : 2;
  static CELLC_DEVICE int parts_of(const ProductArguments&) { return kParts; }
  static CELLC_DEVICE int passes(int) { return 1; }
  static CELLC_DEVICE float scale(int) { return 1; }

  struct Left {
    LeftPart high[kSteps], low[kParts > 1 ? kSteps : 1];
  };
  /// `at`: what the lane names of the warp's first 8 terms (load_blocks).
  static CELLC_DEVICE void load(Left& left, const char* at) {
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) {
#ifdef CELLC_PRODUCTS_16BIT
      CELLC_UNROLL()
      for (int i = 0; i < 2; ++i) {
        float numbers[4];  // terms t and t + 4 of the lane's place t, each of two rows
        load_blocks(numbers, reinterpret_cast<const float*>(at + step * 64 + i * 32));
        CELLC_UNROLL()
        for (int p = 0; p < 2; ++p) left.high[step].at[2 * i + p] = two_halves(numbers[p], numbers[2 + p]);
      }
#else
      float numbers[4];
      load_blocks(numbers, reinterpret_cast<const float*>(at + step * 32));
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p) split(numbers[p], left.high[step].at[p], left.low[kParts > 1 ? step : 0].at[p]);
#endif
    }
  }
  static CELLC_DEVICE void multiply(WideSums& sums, const Left& left, const char* matrix, int, bool adds,
                                    WideScratch* scratch) {
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) {
      const char* const high = matrix + step * 2 * kWideTile * 16;
#ifdef CELLC_PRODUCTS_3XTF32
      wide_multiply<kFactors>(sums, left.low[step], columns_at(high), adds || step > 0, scratch);
      wide_multiply<kFactors>(sums, left.high[step], columns_at(high + kMatrixBytes), true, scratch);
      wide_multiply<kFactors>(sums, left.high[step], columns_at(high), true, scratch);
#else
      wide_multiply<kFactors>(sums, left.high[step], columns_at(high), adds || step > 0, scratch);
#endif
    }
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256)
    cellc_prepare_matrix(const __grid_constant__ cellc::ProductArguments a) {
  cellc::await_stream();
  cellc::prepare_matrix(a);
}
extern "C" __global__ void __launch_bounds__(CELLC_WIDE_THREADS, 1)
    cellc_product_wgmma(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(char, ring);
  CELLC_WIDE_SCRATCH(scratch);
  cellc::await_stream();
  cellc::RingProduct<cellc::WideRows>(a, ring, scratch).run();
}
