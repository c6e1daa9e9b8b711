// Rows times a matrix of params by the tensor cores, for arithmetic of 32 bits: the tiles of product.cuh, whose
// arguments, jobs and edges these have.
//
// CELLC_PRODUCTS_3XTF32: each factor is a sum of two numbers of 11 bits, x = high + low, and x·y = high·high + high·low
// + low·high: what is left out is some 2^-22 of the product, and the result is as good as one of 32 bits. Tensor cores
// cut sums off rather than round them, so a sum leaves them after 16 terms and is added to the others in f32.
// CELLC_PRODUCTS_TF32: the high parts alone. CELLC_PRODUCTS_BF16, CELLC_PRODUCTS_F16: factors rounded to 16 bits, which
// changes none that comes from such storage.
// (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores, 2022, section 3.)
//
// A warp makes a part of the tile, 16 by 8 sums at a time. Factors come to shared memory 16 terms at a time by copies
// that run beside the products of the 16 terms before; rows and columns that are not there, and terms past the last
// one, are zeros on both sides. Needs nests.cuh and tensor_parts.cuh.
#pragma once

namespace cellc {

// Blocks that a multiprocessor has room for: taking factors apart takes registers.
#ifdef CELLC_PRODUCTS_3XTF32
#define CELLC_PRODUCT_BLOCKS 1
#else
#define CELLC_PRODUCT_BLOCKS 2
#endif

constexpr int kProductThreads = 256, kTensorTerms = 16,
// 8 rows and 4 terms fall into different banks, or of pairs of terms 4 rows and 8 terms.
#ifdef CELLC_PRODUCTS_16BIT
              kTensorPitch = kTensorTerms + 8;
#else
              kTensorPitch = kTensorTerms + 4;
#endif
constexpr int kTensorRows = 128, kTensorAcross = kTensorRows + 8;  // of a matrix whose columns are last, likewise
constexpr int kTensorLeft = kTensorRows * kTensorPitch;
constexpr int kTensorRight =
    kTensorRows * kTensorPitch > kTensorTerms* kTensorAcross ? kTensorRows* kTensorPitch : kTensorTerms* kTensorAcross;

/// Tiles of kTile rows and columns by 8 warps, 2 below each other and 4 side by side.
template <int kTile>
struct TensorTile {
  static constexpr int kDown = kTile / 2 / 16, kAcross = kTile / 4 / 8;    // of 16 rows, of 8 columns, of a warp
  static constexpr int kFetched = kTile * kTensorTerms / kProductThreads;  // factors of either side of a thread

  const ProductArguments& a;
  float* left;   ///< [buffer][row][term]
  float* right;  ///< [buffer][column][term], or [buffer][term][column]
  TensorScratch* scratch;

  /// Four neighbours in memory, of which `count` are there.
  static CELLC_DEVICE void fetch_four(float* to, const float* from, long long count, bool aligned) {
    if (count >= 4 && aligned) {
      copy_async<16>(to, from);
      return;
    }
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) {
      if (i < count)
        copy_async<4>(to + i, from + i);
      else
        to[i] = 0;
    }
  }

  CELLC_DEVICE void run() {
    const long long column_tiles = (a.width + kTile - 1) / kTile, row_tiles = (a.frame.rows + kTile - 1) / kTile;
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < column_tiles * row_tiles * a.batch; tile += gridDim.x) {
      const long long rest = tile / column_tiles;
      make(rest / a.batch * kTile, tile % column_tiles * kTile, rest % a.batch);
    }
  }

  CELLC_DEVICE void make(long long first_row, long long first_column, long long batch) {
    if (a.sum_last)
      make_of<true>(first_row, first_column, batch);
    else
      make_of<false>(first_row, first_column, batch);
  }

  static CELLC_DEVICE bool is_aligned(const void* at) { return (reinterpret_cast<unsigned long long>(at) & 15) == 0; }

  template <bool kSumLast>
  CELLC_DEVICE void make_of(long long first_row, long long first_column, long long batch) {
    const int thread = threadIdx.x, warp = thread / 32, group = thread % 32 / 4, of_group = thread % 4;
    const float* const operand = static_cast<const float*>(a.operand);
    const float* const matrix = static_cast<const float*>(a.matrix) + batch * a.width * a.depth;
    // Four terms of a row a fetch; of the matrix four terms of a column, or four columns of a term.
    constexpr int kFours = kTensorTerms / 4, kRowsApart = kProductThreads / kFours;
    constexpr int kAcrossFours = kTile / 4, kTermsApart = kProductThreads / kAcrossFours;
    const int own_row = thread / kFours, own_term = thread % kFours * 4;
    const int own_across = thread % kAcrossFours * 4, own_down = thread / kAcrossFours;
    const float *rows_at[kFetched / 4], *columns_at[kFetched / 4];
    long long columns_there[kFetched / 4];  // of four that are fetched at once
    bool rows_there[kFetched / 4];
    CELLC_UNROLL()
    for (int i = 0; i < kFetched / 4; ++i) {
      const RowPlace place = place_of(a.frame, first_row + own_row + i * kRowsApart);
      rows_at[i] =
          operand + (a.operand_is_chunk ? place.chunk_row : place.row) * a.operand_stride + batch * a.depth + own_term;
      rows_there[i] = place.used;
      const long long column = first_column + (kSumLast ? own_row + i * kRowsApart : own_across);
      columns_at[i] =
          kSumLast ? matrix + column * a.depth + own_term : matrix + (own_down + i * kTermsApart) * a.width + column;
      columns_there[i] = kSumLast ? (column < a.width ? 4 : 0) : a.width - column;
    }
    const bool rows_aligned = ((a.operand_stride | a.depth) & 3) == 0 && is_aligned(a.operand);
    const bool matrix_aligned = ((kSumLast ? a.depth : a.width | (a.width * a.depth)) & 3) == 0 && is_aligned(a.matrix);
    const long long columns_on = kSumLast ? kTensorTerms : kTensorTerms * a.width;
    const auto fetch = [&](int buffer, long long term) {
      float* const to_left = left + buffer * kTensorLeft + own_row * kTensorPitch + own_term;
      float* const to_right = right + buffer * kTensorRight +
                              (kSumLast ? own_row * kTensorPitch + own_term : own_down * kTensorAcross + own_across);
      const long long terms = a.depth - term;
      CELLC_UNROLL()
      for (int i = 0; i < kFetched / 4; ++i) {
        fetch_four(to_left + i * kRowsApart * kTensorPitch, rows_at[i], rows_there[i] ? terms - own_term : 0,
                   rows_aligned);
        rows_at[i] += kTensorTerms;
        fetch_four(to_right + i * (kSumLast ? kRowsApart * kTensorPitch : kTermsApart * kTensorAcross), columns_at[i],
                   kSumLast ? (columns_there[i] ? terms - own_term : 0)
                            : (own_down + i * kTermsApart < terms ? columns_there[i] : 0),
                   matrix_aligned);
        columns_at[i] += columns_on;
      }
      copy_commit();
    };

    float sums[kDown][kAcross][4] = {};
    const int left_row = warp / 4 * (kTile / 2) + group, right_column = warp % 4 * (kTile / 4) + group;
    const float* own_left = left + left_row * kTensorPitch + of_group * kOwnTerms;
    const float* own_right = right + (kSumLast ? right_column * kTensorPitch + of_group * kOwnTerms
                                               : of_group * kOwnTerms * kTensorAcross + right_column);
#ifndef CELLC_PRODUCTS_16BIT
    // The row that a lane names to load_blocks: 8 by 4, below and beside each other; of columns two times 8 of them.
    const int lane = thread % 32, block = lane / 8;
    own_left = left + (left_row - group + block % 2 * 8 + lane % 8) * kTensorPitch + block / 2 * 4;
    if (kSumLast) own_right = right + (right_column - group + block / 2 * 8 + lane % 8) * kTensorPitch + block % 2 * 4;
#endif
    __syncthreads();  // the last tile has been read
    if (a.depth > 0) fetch(0, 0);
    int buffer = 0;
    CELLC_UNROLL(1)
    for (long long term = 0; term < a.depth; term += kTensorTerms, buffer ^= 1) {
      copy_wait<0>();
      __syncthreads();  // the terms are there, and those before them have been read
      if (term + kTensorTerms < a.depth) fetch(buffer ^ 1, term + kTensorTerms);
      multiply<kSumLast>(sums, own_left + buffer * kTensorLeft, own_right + buffer * kTensorRight);
    }
    float* const result = static_cast<float*>(a.result);
    CELLC_UNROLL()
    for (int i = 0; i < kDown; ++i) {
      CELLC_UNROLL()
      for (int half = 0; half < 2; ++half) {
        const long long job = first_row + left_row + 16 * i + 8 * half;
        const RowPlace place = place_of(a.frame, job);
        if (!place.used) continue;
        float* const to = result + (job * a.batch + batch) * a.width;
        const float* const row =
            operand + (a.operand_is_chunk ? place.chunk_row : place.row) * a.operand_stride + batch * a.depth;
        CELLC_UNROLL()
        for (int j = 0; j < kAcross; ++j) {
          CELLC_UNROLL()
          for (int k = 0; k < 2; ++k) {
            const long long column = first_column + right_column - group + 8 * j + 2 * of_group + k;
            float sum = sums[i][j][2 * half + k];
            if (column >= a.width) continue;
            if (!is_finite(sum))
              sum = in_order(row, matrix + (kSumLast ? column * a.depth : column), kSumLast ? 1 : a.width);
            to[column] = sum;
          }
        }
      }
    }
  }

  /// One sum by multiply-adds.
  CELLC_DEVICE float in_order(const float* row, const float* column, long long apart) const {
    float sum = 0;
    CELLC_UNROLL(1)
    for (long long k = 0; k < a.depth; ++k) sum += row[k] * column[k * apart];
    return sum;
  }

  /// Neighbouring terms that a lane holds in one number of an instruction.
  static constexpr int kOwnTerms = kTermsAtOnce == 16 ? 2 : 1;

  /// Sixteen terms. `rows`, `columns`: at the first of the lane's own.
  template <bool kSumLast>
  static CELLC_DEVICE float column_at(const float* columns, int j, int k) {
    return columns[kSumLast ? 8 * j * kTensorPitch + k : 8 * j + k * kTensorAcross];
  }
  template <bool kSumLast>
  CELLC_DEVICE void multiply(float (&sums)[kDown][kAcross][4], const float* rows, const float* columns) {
#ifdef CELLC_PRODUCTS_16BIT
    LeftPart l[kDown];
    CELLC_UNROLL()
    for (int i = 0; i < kDown; ++i) {
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p) {
        const float* const at = rows + (16 * i + 8 * (p % 2)) * kTensorPitch + 8 * (p / 2);
        l[i].at[p] = two_halves(at[0], at[1]);
      }
    }
    CELLC_UNROLL()
    for (int j = 0; j < kAcross; ++j) {
      RightPart r;
      CELLC_UNROLL()
      for (int p = 0; p < 2; ++p)
        r.at[p] = two_halves(column_at<kSumLast>(columns, j, 8 * p), column_at<kSumLast>(columns, j, 8 * p + 1));
      CELLC_UNROLL()
      for (int i = 0; i < kDown; ++i) multiply_add(sums[i][j], l[i], r, scratch);
    }
#else
    CELLC_UNROLL()
    for (int k = 0; k < kTensorTerms; k += 8) {
      LeftPart high[kDown], low[kDown];
      CELLC_UNROLL()
      for (int i = 0; i < kDown; ++i) {
        float numbers[4];
        load_blocks(numbers, rows + 16 * i * kTensorPitch + k);
        CELLC_UNROLL()
        for (int p = 0; p < 4; ++p) split(numbers[p], high[i].at[p], low[i].at[p]);
      }
      // Two columns of instructions at a time: none waits for the one before.
      CELLC_UNROLL()
      for (int j = 0; j < kAcross; j += 2) {
        RightPart r[2], r_low[2];
        float numbers[4];  // of column 0: terms 0 and 4, of column 1 likewise
        if (kSumLast) {
          load_blocks(numbers, columns + 8 * j * kTensorPitch + k);
        } else {
          CELLC_UNROLL()
          for (int n = 0; n < 4; ++n) numbers[n] = columns[8 * (j + n / 2) + (k + 4 * (n % 2)) * kTensorAcross];
        }
        CELLC_UNROLL()
        for (int n = 0; n < 4; ++n) split(numbers[n], r[n / 2].at[n % 2], r_low[n / 2].at[n % 2]);
#ifdef CELLC_PRODUCTS_3XTF32
        float part[2][kDown][4] = {};
        const auto add = [&](const LeftPart(&l)[kDown], const RightPart(&of)[2]) {
          CELLC_UNROLL()
          for (int n = 0; n < 2; ++n) {
            CELLC_UNROLL()
            for (int i = 0; i < kDown; ++i) multiply_add(part[n][i], l[i], of[n], scratch);
          }
        };
        add(low, r);
        add(high, r_low);
        add(high, r);
        CELLC_UNROLL()
        for (int n = 0; n < 2; ++n) {
          CELLC_UNROLL()
          for (int i = 0; i < kDown; ++i) {
            CELLC_UNROLL()
            for (int s = 0; s < 4; ++s) sums[i][j + n][s] += part[n][i][s];
          }
        }
#else
        CELLC_UNROLL()
        for (int n = 0; n < 2; ++n) {
          CELLC_UNROLL()
          for (int i = 0; i < kDown; ++i) multiply_add(sums[i][j + n], high[i], r[n], scratch);
        }
#endif
      }
    }
#endif
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256, CELLC_PRODUCT_BLOCKS)
    cellc_product(const __grid_constant__ cellc::ProductArguments a) {
  __shared__ __align__(16) float left[2 * cellc::kTensorLeft];
  __shared__ __align__(16) float right[2 * cellc::kTensorRight];
#ifdef CELLC_EMULATOR
  __shared__ cellc::TensorScratch scratch[1];
#else
  cellc::TensorScratch* const scratch = nullptr;
#endif
  cellc::await_stream();
  if (a.tile == 128)
    cellc::TensorTile<128>{a, left, right, scratch}.run();
  else
    cellc::TensorTile<64>{a, left, right, scratch}.run();
}
