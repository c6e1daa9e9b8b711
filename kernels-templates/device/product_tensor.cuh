// Rows times a matrix of params by the tensor cores, for arithmetic of 32 bits: the arguments, jobs and edges of
// product.cuh, tiles of tensor_tile.cuh. Needs nests.cuh and tensor_tile.cuh.
#pragma once

namespace cellc {

/// One sum by multiply-adds.
template <class Number>
CELLC_DEVICE float product_in_order(const Number* row, const float* column, long long apart, long long terms) {
  float sum = 0;
  CELLC_UNROLL(1)
  for (long long k = 0; k < terms; ++k) sum += number_of(row[k]) * column[k * apart];
  return sum;
}

constexpr int kRowsOfTile = 128;  ///< at most

/// The rows of a tile: of the operand, and of the result.
template <class Left>
struct OperandRows {
  using Number = typename Left::Number;
  const Number* at[Left::kFetches];  ///< own rows, at the thread's next terms; null: no row
  const Number* operand;
  const long long* rows_of;
  long long stride, depth, terms;  ///< terms: from the next stage on
  bool aligned;

  /// `rows_of`: [2, row of the tile] in shared memory, which become the operand's row, below 0 for none, and the
  /// result's.
  CELLC_DEVICE OperandRows(const ProductArguments& a, long long* rows_of, long long first_row, long long batch)
      : operand(static_cast<const Number*>(a.operand) + batch * a.depth),
        rows_of(rows_of),
        stride(a.operand_stride),
        depth(a.depth),
        terms(a.depth),
        aligned(((a.operand_stride | a.depth) & (Left::kNeighbours - 1)) == 0 && is_aligned(a.operand)) {
    const int thread = threadIdx.x;
    __syncthreads();  // the last tile has been written
    if (thread < Left::kLength) {
      const RowPlace place = place_of(a.frame, first_row + thread);
      rows_of[thread] = !place.used ? -1 : a.operand_is_chunk ? place.chunk_row : place.row;
      rows_of[kRowsOfTile + thread] = result_row(a, place);
    }
    __syncthreads();
    CELLC_UNROLL()
    for (int i = 0; i < Left::kFetches; ++i) {
      const long long row = rows_of[Left::own_below(thread) + i * Left::kApart];
      at[i] = row < 0 ? nullptr : operand + row * stride + Left::own_beside(thread);
    }
  }

  CELLC_DEVICE void fetch(float* side) {
    Number* const left = reinterpret_cast<Number*>(side);
    const int own_term = Left::own_beside(threadIdx.x), own_row = Left::own_below(threadIdx.x);
    CELLC_UNROLL()
    for (int i = 0; i < Left::kFetches; ++i) {
      fetch_neighbours(left + (own_row + i * Left::kApart) * Left::kPitch + own_term, at[i],
                       at[i] ? terms - own_term : 0, aligned);
      if (at[i]) at[i] += kTensorTerms;
    }
    terms -= kTensorTerms;
  }

  /// Writes the tile's sums; `batch`: of the operand.
  template <class Tile>
  CELLC_DEVICE void put(const ProductArguments& a, const typename Tile::Sums& sums, long long first_column,
                        long long batch) const {
    const float* const matrix = static_cast<const float*>(a.matrix) + quotient(batch, a.shared) * a.matrix_batch;
    put_result<float>(a, [&](auto* result) {
      Tile::put(
          sums, a.width - first_column,
          [&](int row) {
            return rows_of[row] < 0 ? nullptr
                                    : result + (rows_of[kRowsOfTile + row] * a.batch + batch) * a.width + first_column;
          },
          [&](int row, int column) {
            const long long n = first_column + column;
            return product_in_order(operand + rows_of[row] * stride, matrix + (a.sum_last ? n * a.matrix_apart : n),
                                    a.sum_last ? 1 : a.matrix_apart, depth);
          });
    });
  }
};

/// Tiles of kRows rows and kColumns columns. kStored: the operand is `Stored`, of 16 bits, else float.
template <int kRows, int kColumns, bool kStored>
struct TensorProduct {
  const ProductArguments& a;
  float* shared;
  long long* rows_of;  ///< of OperandRows
  TensorScratch* scratch;

  CELLC_DEVICE void run() {
    const long long column_tiles = (a.width + kColumns - 1) / kColumns, row_tiles = (a.frame.rows + kRows - 1) / kRows;
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < column_tiles * row_tiles * a.batch; tile += gridDim.x) {
      const long long rest = tile / column_tiles, first_row = rest / a.batch * kRows,
                      first_column = tile % column_tiles * kColumns;
      if (a.sum_last)
        make<true>(first_row, first_column, rest % a.batch);
      else
        make<false>(first_row, first_column, rest % a.batch);
    }
  }

  template <bool kSumLast>
  CELLC_DEVICE void make(long long first_row, long long first_column, long long batch) {
    using Tile = TensorTile<kRows, kColumns, true, kSumLast, (kRows > kColumns ? 4 : 2), kStored>;
    using Right = typename Tile::Right;
    const int thread = threadIdx.x;
    const float* const matrix = static_cast<const float*>(a.matrix) + quotient(batch, a.shared) * a.matrix_batch;
    OperandRows<typename Tile::Left> rows(a, rows_of, first_row, batch);
    const int beside = Right::own_beside(thread), below = Right::own_below(thread);
    const float* column_at = kSumLast ? matrix + (first_column + below) * a.matrix_apart + beside
                                      : matrix + below * a.matrix_apart + first_column + beside;
    const long long below_apart = Right::kApart * a.matrix_apart,
                    columns_on = kTensorTerms * (kSumLast ? 1 : a.matrix_apart),
                    columns_left = a.width - first_column - (kSumLast ? below : beside);
    const bool matrix_aligned = ((a.matrix_apart | a.matrix_batch) & 3) == 0 && is_aligned(a.matrix);
    long long terms = a.depth;  // from the next stage on
    const auto fetch = [&](float* left, float* right) {
      rows.fetch(left);
      CELLC_UNROLL()
      for (int i = 0; i < Right::kFetches; ++i) {
        const int at = below + i * Right::kApart;
        const long long there =
            kSumLast ? (columns_left > i * Right::kApart ? terms - beside : 0) : (at < terms ? columns_left : 0);
        fetch_neighbours(right + at * Right::kPitch + beside, column_at + i * below_apart, there, matrix_aligned);
      }
      column_at += columns_on;
      terms -= kTensorTerms;
    };

    typename Tile::Sums sums = {};
    Tile{shared, static_cast<int>(a.stages), scratch}.add(sums, (a.depth + kTensorTerms - 1) / kTensorTerms, fetch);
    rows.template put<Tile>(a, sums, first_column, batch);
  }
};

template <bool kStored>
CELLC_DEVICE void run_product(const ProductArguments& a, float* stages, long long* rows_of, TensorScratch* scratch) {
  await_stream();
  if (a.tile == 64)
    TensorProduct<64, 64, kStored>{a, stages, rows_of, scratch}.run();
  else if (a.tile_columns == 64)
    TensorProduct<128, 64, kStored>{a, stages, rows_of, scratch}.run();
  else
    TensorProduct<128, 128, kStored>{a, stages, rows_of, scratch}.run();
}

}  // namespace cellc

// CELLC_STORED_OPERANDS: some operands are `Stored` (1), or all of them are (2).
#if !defined(CELLC_STORED_OPERANDS) || CELLC_STORED_OPERANDS == 1
extern "C" __global__ void __launch_bounds__(256, CELLC_PRODUCT_BLOCKS)
    cellc_product(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(float, tensor_stages);
  CELLC_TENSOR_SCRATCH(scratch);
  __shared__ long long rows_of[2 * cellc::kRowsOfTile];
  cellc::run_product<false>(a, tensor_stages, rows_of, scratch);
}
#endif
#ifdef CELLC_STORED_OPERANDS
extern "C" __global__ void __launch_bounds__(256, CELLC_PRODUCT_BLOCKS)
    cellc_product_stored(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(float, tensor_stages);
  CELLC_TENSOR_SCRATCH(scratch);
  __shared__ long long rows_of[2 * cellc::kRowsOfTile];
  cellc::run_product<true>(a, tensor_stages, rows_of, scratch);
}
#endif
