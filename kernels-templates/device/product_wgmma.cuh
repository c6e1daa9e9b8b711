// Rows times a matrix of params by the tensor cores of sm_90a, where 128 threads multiply 64 rows by 128 columns at
// once (wgmma): the arguments, jobs and edges of product_tensor.cuh. Rows come as there, and reach the instruction in
// registers, taken apart or rounded on the way; a warp reads its own 16 rows alone, so nothing is taken apart twice.
// The matrix is taken apart once, before: cellc_prepare_matrix lays it out as the instruction reads it.
//
// Prepared: [batch][128 columns][stage of 32 terms][part][16 bytes of terms][column], high and low parts of 3xTF32,
// else one part; zeros where there is no column or term. Of 3xTF32 a stage's sums leave the tensor cores together.
//
// Runs use it where it pays (cellc_is_wide of host_tiles.h); shipped code does not. Needs product_tensor.cuh.
#pragma once

namespace cellc {

#ifdef CELLC_PRODUCTS_3XTF32
constexpr int kMatrixParts = 2;
#else
constexpr int kMatrixParts = 1;
#endif
constexpr int kWideTile = 128;                                          ///< rows and columns
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
      parts[0].at[k] = two_halves(numbers[2 * k], numbers[2 * k + 1]);
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

#if defined(CELLC_EMULATOR)
CELLC_DEVICE void wide_fence() {}
CELLC_DEVICE void wide_finish() {}
CELLC_DEVICE void wide_arrive() {}
using WideSums = float[16][4];
using Columns = const float*;
CELLC_DEVICE Columns columns_at(const float* part, int step) { return part + step * 2 * kWideTile * 4; }
/// sums = left · columns, or sums += where it adds. All lanes of a warp call it.
CELLC_DEVICE void wide_multiply(WideSums& sums, const LeftPart& left, Columns columns, bool adds,
                                TensorScratch* scratch) {
  const int thread = threadIdx.x, warp = thread / 32 * 32, group = thread % 32 / 4, of_group = thread % 4;
  scratch->left[thread] = left;
  __syncwarp();
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * j + 2 * of_group + i % 2, high_row = i / 2;
      float sum = adds ? sums[j][i] : 0;
      for (int k = 0; k < kTermsAtOnce; ++k) {
        const unsigned* const near =
            reinterpret_cast<const unsigned*>(columns) + (k / kNearTerms * kWideTile + column) * 4;
#ifdef CELLC_PRODUCTS_16BIT
        const int lane = k % 8 / 2, part = k / 8, shift = 16 * (k % 2);
        const float l = from_half(scratch->left[warp + group * 4 + lane].at[2 * part + high_row] >> shift & 0xffff),
                    r = from_half(near[k % 8 / 2] >> shift & 0xffff);
#else
        const int lane = k % 4, part = k / 4;
        const float l = __uint_as_float(scratch->left[warp + group * 4 + lane].at[2 * part + high_row] & 0xffffe000u),
                    r = __uint_as_float(near[k % 4] & 0xffffe000u);
#endif
        sum += l * r;
      }
      sums[j][i] = sum;
    }
  __syncwarp();
}
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// What threads copied to shared memory is seen by the tensor cores, which read it themselves.
CELLC_DEVICE void wide_arrive() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CELLC_DEVICE void wide_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
using WideSums = float[16][4];
CELLC_DEVICE void wide_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/// Where columns lie: without swizzle, 16 bytes of terms 16 · 128 bytes from the next 16, groups of 8 columns 128 bytes
/// apart; all in units of 16 bytes.
using Columns = unsigned long long;
CELLC_DEVICE Columns columns_at(const float* part, int step) {
  const unsigned at = shared_address(const_cast<float*>(part + step * 2 * kWideTile * 4));
  return static_cast<unsigned long long>(at >> 4 & 0x3fffu) | static_cast<unsigned long long>(kWideTile) << 16 |
         8ull << 32;
}
CELLC_DEVICE void wide_multiply(WideSums& sums, const LeftPart& left, Columns columns, bool adds, TensorScratch*) {
#if defined(CELLC_PRODUCTS_BF16)
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
        "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]),
        "+f"(sums[4][2]), "+f"(sums[4][3]), "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
        "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3]),
        "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]), "+f"(sums[10][0]), "+f"(sums[10][1]),
        "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]), "+f"(sums[11][1]), "+f"(sums[11][2]),
        "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3]),
        "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3]), "+f"(sums[14][0]),
        "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]), "+f"(sums[15][0]), "+f"(sums[15][1]),
        "+f"(sums[15][2]), "+f"(sums[15][3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "l"(columns), "r"(static_cast<int>(adds)));
#elif defined(CELLC_PRODUCTS_F16)
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
        "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]),
        "+f"(sums[4][2]), "+f"(sums[4][3]), "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
        "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3]),
        "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]), "+f"(sums[10][0]), "+f"(sums[10][1]),
        "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]), "+f"(sums[11][1]), "+f"(sums[11][2]),
        "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3]),
        "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3]), "+f"(sums[14][0]),
        "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]), "+f"(sums[15][0]), "+f"(sums[15][1]),
        "+f"(sums[15][2]), "+f"(sums[15][3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "l"(columns), "r"(static_cast<int>(adds)));
#else
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, adds, 1, 1;\n}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
        "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]),
        "+f"(sums[4][2]), "+f"(sums[4][3]), "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
        "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3]),
        "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]), "+f"(sums[10][0]), "+f"(sums[10][1]),
        "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]), "+f"(sums[11][1]), "+f"(sums[11][2]),
        "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3]),
        "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3]), "+f"(sums[14][0]),
        "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]), "+f"(sums[15][0]), "+f"(sums[15][1]),
        "+f"(sums[15][2]), "+f"(sums[15][3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "l"(columns), "r"(static_cast<int>(adds)));
#endif
}
#else
using WideSums = float[16][4];
using Columns = int;
CELLC_DEVICE void wide_fence() { __trap(); }
CELLC_DEVICE void wide_finish() {}
CELLC_DEVICE void wide_arrive() {}
CELLC_DEVICE Columns columns_at(const float*, int) { return 0; }
CELLC_DEVICE void wide_multiply(WideSums&, const LeftPart&, Columns, bool, TensorScratch*) {}
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

struct WideProduct {
  using Tile = TensorTile<kWideTile, kWideTile, true, true, 8>;
  using Left = typename Tile::Left;
  static constexpr int kStage = Left::kEntries + kMatrixStage, kSteps = kTensorTerms / kTermsAtOnce;

  const ProductArguments& a;
  float* shared;
  long long* rows_of;  ///< [row of the tile]: of the operand; below 0: none
  TensorScratch* scratch;

  CELLC_DEVICE void run() {
    const long long column_tiles = (a.width + kWideTile - 1) / kWideTile,
                    row_tiles = (a.frame.rows + kWideTile - 1) / kWideTile;
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < column_tiles * row_tiles * a.batch; tile += gridDim.x) {
      const long long rest = tile / column_tiles, row = rest / a.batch;
      make(row * kWideTile, tile % column_tiles, rest % a.batch);
    }
  }

  CELLC_DEVICE void make(long long first_row, long long column_tile, long long batch) {
    const int thread = threadIdx.x;
    const long long count = (a.depth + kTensorTerms - 1) / kTensorTerms, first_column = column_tile * kWideTile,
                    column_tiles = (a.width + kWideTile - 1) / kWideTile, matrix_batch = quotient(batch, a.shared);
    OperandRows<Left> rows(a, rows_of, first_row, batch);
    const float* prepared = static_cast<const float*>(a.prepared) +
                            (matrix_batch * column_tiles + column_tile) * count * kMatrixStage + 4 * thread;
    const auto fetch = [&](float* stage) {
      rows.fetch(stage);
      float* const to = stage + Left::kEntries + 4 * thread;
      CELLC_UNROLL()
      for (int i = 0; i < kMatrixStage / (4 * kProductThreads); ++i)
        copy_async<16>(to + i * 4 * kProductThreads, prepared + i * 4 * kProductThreads);
      prepared += kMatrixStage;
    };
    typename Tile::Sums sums = {};
    run_stages<kStage>(shared, static_cast<int>(a.stages), count, fetch, wide_arrive,
                       [&](const float* stage) { multiply(sums[0], stage); });
    rows.template put<Tile>(a, sums, first_row, first_column, batch);
  }

  CELLC_DEVICE void multiply(WideSums& sums, const float* stage) const {
    const float* const columns = stage + Left::kEntries;
    LeftPart high[kSteps];
    [[maybe_unused]] LeftPart low[kSteps];
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) Tile::load_left(stage, step * kTermsAtOnce, high[step], low[step]);
#ifdef CELLC_PRODUCTS_3XTF32
    WideSums part = {};
    settle(part);
    wide_fence();
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) {
      wide_multiply(part, low[step], columns_at(columns, step), step > 0, scratch);
      wide_multiply(part, high[step], columns_at(columns + kMatrixPart, step), true, scratch);
      wide_multiply(part, high[step], columns_at(columns, step), true, scratch);
    }
    wide_finish();
    settle(part);
    CELLC_UNROLL()
    for (int j = 0; j < 16; ++j) {
      CELLC_UNROLL()
      for (int i = 0; i < 4; ++i) sums[j][i] += part[j][i];
    }
#else
    settle(sums);
    wide_fence();
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) wide_multiply(sums, high[step], columns_at(columns, step), true, scratch);
    wide_finish();
    settle(sums);
#endif
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256)
    cellc_prepare_matrix(const __grid_constant__ cellc::ProductArguments a) {
  cellc::await_stream();
  cellc::prepare_matrix(a);
}
extern "C" __global__ void __launch_bounds__(256, CELLC_PRODUCT_BLOCKS)
    cellc_product_wgmma(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(float, tensor_stages);
  CELLC_TENSOR_SCRATCH(scratch);
  __shared__ long long rows_of[128];
  cellc::await_stream();
  cellc::WideProduct{a, tensor_stages, rows_of, scratch}.run();
}
