// Rows times a matrix of params, for all rows of a window: what a plan hoists out of the recurrence.
//
// A block makes tiles of the result, a thread 4 by 4 or 8 by 8 sums of each. What a tile needs comes to shared memory
// eight terms at a time, while the eight before are multiplied; 16 bytes are read from there at once, so that a thread
// of 8 by 8 sums reads 4 times for 64 multiplications. Large tiles are taken where there are enough of them for the
// card (host_nest_products.h).
//
// Each sum is added up in the order of its terms by one thread, so its bits depend on neither the batch, nor the card,
// nor the tile. Needs nests.cuh.
#pragma once

namespace cellc {

constexpr int kProductThreads = 256, kProductSpread = 16, kProductDepth = 8;

/// 16 bytes, which a thread reads at once: more, and its neighbours would meet it in a bank.
constexpr int kProductNear = 16 / static_cast<int>(sizeof(Real));
struct alignas(16) NearNumbers {
  Real at[kProductNear];
};

/// kSums by kSums sums a thread; 16 times as many in a tile.
template <int kSums>
struct ProductTile {
  static constexpr int kTile = kProductSpread * kSums, kGroups = kSums / kProductNear;
  static constexpr int kPitch =
      kTile + 4;  // aligned to 16 bytes; rows that are written together fall into different banks
  static constexpr int kEntries = kProductDepth * kPitch;
  static constexpr int kOwnRows =
      kTile * kProductDepth / kProductThreads;  // entries of either side that a thread fetches

  const ProductArguments& a;
  Real* left;   ///< [buffer][depth][row]
  Real* right;  ///< [buffer][depth][column]

  /// Place of sum i of a thread within the tile.
  static CELLC_DEVICE int place(int of_thread, int i) {
    return i / kProductNear * (kProductNear * kProductSpread) + of_thread * kProductNear + i % kProductNear;
  }

  CELLC_DEVICE void run() {
    const int thread = threadIdx.x, across = thread % kProductSpread, down = thread / kProductSpread;
    const int own_term = thread % kProductDepth, own_row = thread / kProductDepth;
    constexpr int kRowsApart = kProductThreads / kProductDepth;
    const long long column_tiles = (a.width + kTile - 1) / kTile, row_tiles = (a.frame.rows + kTile - 1) / kTile;
    const Real* const operand = static_cast<const Real*>(a.operand);
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < column_tiles * row_tiles * a.batch; tile += gridDim.x) {
      const long long first_column = tile % column_tiles * kTile, rest = tile / column_tiles;
      const long long batch = rest % a.batch, first_row = rest / a.batch * kTile;
      const Real* const matrix = static_cast<const Real*>(a.matrix) + quotient(batch, a.shared) * a.matrix_batch;
      // Where this thread's entries of the next terms are, and which of them there are at all.
      const Real* left_at[kOwnRows];
      unsigned left_there = 0, right_there = 0;
      CELLC_UNROLL()
      for (int i = 0; i < kOwnRows; ++i) {
        const RowPlace place = place_of(a.frame, first_row + i * kRowsApart + own_row);
        left_at[i] = operand + (a.operand_is_chunk ? place.chunk_row : place.row) * a.operand_stride + batch * a.depth +
                     own_term;
        left_there |= static_cast<unsigned>(place.used) << i;
      }
      // Of the matrix, neighbours in memory by neighbours of the warp.
      const int column = a.sum_last ? own_row : thread % kTile, term = a.sum_last ? own_term : thread / kTile;
      const int columns_apart = a.sum_last ? kRowsApart : 0, terms_apart = a.sum_last ? 0 : kProductThreads / kTile;
      const long long right_apart = (a.sum_last ? kRowsApart : terms_apart) * a.matrix_apart,
                      right_on = kProductDepth * (a.sum_last ? 1 : a.matrix_apart);
      const Real* right_at = matrix + (a.sum_last ? (first_column + column) * a.matrix_apart + term
                                                  : term * a.matrix_apart + first_column + column);
      CELLC_UNROLL()
      for (int i = 0; i < kOwnRows; ++i)
        right_there |= static_cast<unsigned>(first_column + column + i * columns_apart < a.width) << i;
      Real own_left[kOwnRows], own_right[kOwnRows], sums[kSums][kSums] = {};
      const auto fetch = [&](long long terms) {
        CELLC_UNROLL()
        for (int i = 0; i < kOwnRows; ++i) {
          own_left[i] = (left_there >> i & 1) && own_term < terms ? *left_at[i] : Real(0);
          left_at[i] += kProductDepth;
        }
        CELLC_UNROLL()
        for (int i = 0; i < kOwnRows; ++i)
          own_right[i] = (right_there >> i & 1) && term + i * terms_apart < terms ? right_at[i * right_apart] : Real(0);
        right_at += right_on;
      };
      const auto put = [&](int buffer) {
        CELLC_UNROLL()
        for (int i = 0; i < kOwnRows; ++i)
          left[buffer * kEntries + own_term * kPitch + own_row + i * kRowsApart] = own_left[i];
        CELLC_UNROLL()
        for (int i = 0; i < kOwnRows; ++i)
          right[buffer * kEntries + (term + i * terms_apart) * kPitch + column + i * columns_apart] = own_right[i];
      };
      const auto multiply = [&](int at) {
        NearNumbers l[kGroups], r[kGroups];
        CELLC_UNROLL()
        for (int g = 0; g < kGroups; ++g) {
          l[g] = *reinterpret_cast<const NearNumbers*>(left + at + place(down, kProductNear * g));
          r[g] = *reinterpret_cast<const NearNumbers*>(right + at + place(across, kProductNear * g));
        }
        CELLC_UNROLL()
        for (int i = 0; i < kSums; ++i) {
          CELLC_UNROLL()
          for (int j = 0; j < kSums; ++j)
            sums[i][j] += l[i / kProductNear].at[i % kProductNear] * r[j / kProductNear].at[j % kProductNear];
        }
      };
      int buffer = 0;
      fetch(a.depth);
      __syncthreads();  // the last tile has been read
      put(buffer);
      __syncthreads();
      CELLC_UNROLL(1)
      for (long long depth = 0; depth < a.depth; depth += kProductDepth) {
        const bool fuses_with_next = depth + kProductDepth < a.depth;
        if (fuses_with_next) fetch(a.depth - depth - kProductDepth);
        if (fuses_with_next || a.depth - depth == kProductDepth) {
          CELLC_UNROLL()
          for (int k = 0; k < kProductDepth; ++k) multiply(buffer * kEntries + k * kPitch);
        } else {
          // The last terms are cut where the sum ends: 0 * x is not 0 where x is infinite.
          CELLC_UNROLL(1)
          for (int k = 0; k < static_cast<int>(a.depth - depth); ++k) multiply(buffer * kEntries + k * kPitch);
        }
        buffer ^= 1;
        if (fuses_with_next) put(buffer);
        __syncthreads();
      }
      put_result<Real>(a, [&](auto* result) {
        CELLC_UNROLL()
        for (int i = 0; i < kSums; ++i) {
          const RowPlace own = place_of(a.frame, first_row + place(down, i));
          if (!own.used) continue;
          CELLC_UNROLL()
          for (int j = 0; j < kSums; ++j) {
            const long long column = first_column + place(across, j);
            if (column < a.width) store(result + (result_row(a, own) * a.batch + batch) * a.width + column, sums[i][j]);
          }
        }
      });
    }
  }
};

/// A double takes two registers: 8 by 8 sums of them would not fit.
constexpr int kLargeSums = sizeof(Real) == 4 ? 8 : 4;

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256, 2) cellc_product(const __grid_constant__ cellc::ProductArguments a) {
  using Large = cellc::ProductTile<cellc::kLargeSums>;
  using Small = cellc::ProductTile<4>;
  __shared__ __align__(16) Real left[2 * Large::kEntries];
  __shared__ __align__(16) Real right[2 * Large::kEntries];
  cellc::await_stream();
  if (a.tile == Large::kTile)
    Large{a, left, right}.run();
  else
    Small{a, left, right}.run();
}
