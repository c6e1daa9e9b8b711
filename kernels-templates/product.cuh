// Rows times a matrix of params, for all rows of a window: what a plan hoists out of the recurrence.
// Tiles of 64 by 64 through shared memory, 4 by 4 sums a thread. Each sum is added up in the order of its
// terms by one thread, so its bits depend on neither the batch nor the card. Needs rows.cuh.
#pragma once

namespace cellc {

constexpr int kProductTile = 64, kProductDepth = 16, kProductThreads = 256, kProductSums = 4;
constexpr int kProductPitch = kProductTile + 1;  // neighbours in depth fall into different banks

CELLC_DEVICE void multiply(const ProductArguments& a, Real* left, Real* right) {
  constexpr int kSpread = kProductTile / kProductSums;  // 16: threads along an edge
  const int thread = threadIdx.x, across = thread % kSpread, down = thread / kSpread;
  const long long column_tiles = (a.width + kProductTile - 1) / kProductTile;
  const long long row_tiles = (a.frame.rows + kProductTile - 1) / kProductTile;
  const Real* operand = static_cast<const Real*>(a.operand);
  const Real* matrix = static_cast<const Real*>(a.matrix);
  Real* result = static_cast<Real*>(a.result);
  for (long long tile = blockIdx.x; tile < column_tiles * row_tiles * a.batch; tile += gridDim.x) {
    const long long first_column = tile % column_tiles * kProductTile, rest = tile / column_tiles;
    const long long batch = rest % a.batch, first_row = rest / a.batch * kProductTile;
    // The rows that this thread fetches: places (i * kSpread + down, across) of the left tile.
    const Real* source[kProductSums];
    for (int i = 0; i < kProductSums; ++i) {
      const RowPlace place = place_of(a.frame, first_row + i * kSpread + down);
      const long long row = a.operand_is_chunk ? place.chunk_row : place.row;
      source[i] = place.used ? operand + row * a.operand_stride + batch * a.depth : nullptr;
    }
    Real sums[kProductSums][kProductSums] = {};
    for (long long depth = 0; depth < a.depth; depth += kProductDepth) {
      for (int i = 0; i < kProductSums; ++i) {
        const long long k = depth + across;
        const int place = across * kProductPitch + i * kSpread + down;
        left[place] = source[i] && k < a.depth ? source[i][k] : Real(0);
      }
      for (int i = thread; i < kProductTile * kProductDepth; i += kProductThreads) {
        const int n = a.sum_last ? i / kProductDepth : i % kProductTile;
        const int k = a.sum_last ? i % kProductDepth : i / kProductTile;
        Real value = Real(0);
        if (first_column + n < a.width && depth + k < a.depth) {
          const long long column = first_column + n, term = depth + k;
          value = matrix[batch * a.width * a.depth +
                         (a.sum_last ? column * a.depth + term : term * a.width + column)];
        }
        right[k * kProductPitch + n] = value;
      }
      __syncthreads();
      // The last tile is cut at the end of the sum: 0 * x is not 0 where x is infinite.
      const int terms = a.depth - depth < kProductDepth ? static_cast<int>(a.depth - depth) : kProductDepth;
      for (int k = 0; k < terms; ++k) {
        Real l[kProductSums], r[kProductSums];
        for (int i = 0; i < kProductSums; ++i) l[i] = left[k * kProductPitch + i * kSpread + down];
        for (int i = 0; i < kProductSums; ++i) r[i] = right[k * kProductPitch + i * kSpread + across];
        for (int i = 0; i < kProductSums; ++i) {
          for (int j = 0; j < kProductSums; ++j) sums[i][j] += l[i] * r[j];
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kProductSums; ++i) {
      const long long job = first_row + i * kSpread + down;
      if (!place_of(a.frame, job).used) continue;
      for (int j = 0; j < kProductSums; ++j) {
        const long long column = first_column + j * kSpread + across;
        if (column < a.width) result[(job * a.batch + batch) * a.width + column] = sums[i][j];
      }
    }
  }
}

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256)
    cellc_product(const __grid_constant__ cellc::ProductArguments a) {
  __shared__ Real left[cellc::kProductDepth * cellc::kProductPitch];
  __shared__ Real right[cellc::kProductDepth * cellc::kProductPitch];
  cellc::await_stream();
  cellc::multiply(a, left, right);
}
