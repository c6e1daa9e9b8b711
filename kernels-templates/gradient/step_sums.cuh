// Gradients of params: sums over all rows of a run, of one array or of the product of two.
//
//   columns   into[m] += sum over rows of left·right, entry by entry     of a·h: h and the gradient of a·h
//   product   into[m, n] += sum over rows of left[m]·right[n]            of W@x: G and x; one matrix product over all
//   rows
//
// Rows are cut into parts, whose number follows from the shape and the card; a part is added up by one block in one
// order, and parts by one thread in the order of their numbers. So a sum has the same bits in every run. Needs
// preamble.cuh and gradient_arguments.cuh.
#pragma once

namespace cellc {

constexpr int kSumSpread = 16;  ///< threads of a block of products either way, of 4 by 4 entries each

CELLC_DEVICE long long part_begin(const StepSums& s, long long part) {
  return quotient(s.rows * part, s.parts);  // rows * parts stay far below 2^63
}

/// An entry of the result, which may repeat.
CELLC_DEVICE void put_sum(const StepSums& s, long long at, Real sum) {
  Real* const into = static_cast<Real*>(s.into) + at;
  for (long long r = 0; r < s.repeated; ++r) {
    Real& entry = into[s.repeated_into[r]];
    entry = s.assigns ? sum : entry + sum;
  }
}

/// Block `x` of 32 columns, of a part; of one part straight to the result. Threads of one column take every eighth row.
CELLC_DEVICE void sum_columns(const StepSums& s, long long x, long long part) {
  CELLC_DYNAMIC_SHARED(Real, shared);
  const int across = threadIdx.x % kColumnThreads, down = threadIdx.x / kColumnThreads;
  const long long column = x * kColumnThreads + across;
  const long long begin = part_begin(s, part), end = part_begin(s, part + 1);
  Real sum = 0;
  if (column < s.m) {
    for (long long k = 0; k < s.summed; ++k) {
      const Real* const left = static_cast<const Real*>(s.left) + s.m_left[column] + s.summed_left[k];
      const Real* const right =
          s.right ? static_cast<const Real*>(s.right) + s.m_right[column] + s.summed_right[k] : nullptr;
      // Some rows by themselves first: a long sum of small numbers loses them to the large one that it has become.
      constexpr long long kShort = 32 * kRowThreads;
      for (long long from = begin + down; from < end; from += kShort) {
        Real some = 0;
        const long long to = from + kShort < end ? from + kShort : end;
        for (long long row = from; row < to; row += kRowThreads)
          some += right ? left[row * s.left_row] * right[row * s.right_row] : left[row * s.left_row];
        sum += some;
      }
    }
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int other = kRowThreads / 2; other > 0; other /= 2) {
    if (down < other) shared[threadIdx.x] += shared[threadIdx.x + other * kColumnThreads];
    __syncthreads();
  }
  if (down > 0 || column >= s.m) return;
  if (s.parts == 1)
    put_sum(s, s.m_into[column], shared[threadIdx.x]);
  else
    static_cast<Real*>(s.partial)[part * s.m + column] = shared[threadIdx.x];
}

/// A tile of the result, entries of the batch from `first` on, one in `apart`; a part of the rows.
CELLC_DEVICE void sum_products(const StepSums& s, long long tile, long long first, long long apart, long long part) {
  CELLC_DYNAMIC_SHARED(Real, shared);
  constexpr int kPitch = kSumPitch, kEach = kSumTile / kSumSpread, kThreads = kSumSpread * kSumSpread;
  Real* const left_tile = shared;
  Real* const right_tile = shared + kSumDepth * kPitch;
  const int thread = threadIdx.x, across = thread % kSumSpread, down = thread / kSumSpread;
  const long long tiles = quotient(s.n + kSumTile - 1, kSumTile);
  const long long tile_m = quotient(tile, tiles), tile_n = tile - tile_m * tiles;
  const long long first_m = tile_m * kSumTile, first_n = tile_n * kSumTile;
  const long long begin = part_begin(s, part), end = part_begin(s, part + 1);
  CELLC_UNROLL(1)
  for (long long batch = first; batch < s.batch; batch += apart) {
    Real sum[kEach][kEach];
    for (auto& row : sum)
      for (Real& entry : row) entry = 0;
    for (long long k = 0; k < s.summed; ++k) {
      const Real* const left = static_cast<const Real*>(s.left) + s.batch_left[batch] + s.summed_left[k];
      const Real* const right = static_cast<const Real*>(s.right) + s.batch_right[batch] + s.summed_right[k];
      for (long long row = begin; row < end; row += kSumDepth) {
        __syncthreads();
        for (int i = thread; i < kSumDepth * kSumTile; i += kThreads) {
          const int r = i / kSumTile, c = i % kSumTile;
          const bool there = row + r < end;
          left_tile[r * kPitch + c] =
              there && first_m + c < s.m ? left[(row + r) * s.left_row + s.m_left[first_m + c]] : 0;
          right_tile[r * kPitch + c] =
              there && first_n + c < s.n ? right[(row + r) * s.right_row + s.n_right[first_n + c]] : 0;
        }
        __syncthreads();
        CELLC_UNROLL()
        for (int r = 0; r < kSumDepth; ++r) {
          Real a[kEach], b[kEach];
          CELLC_UNROLL()
          for (int i = 0; i < kEach; ++i) {
            a[i] = left_tile[r * kPitch + down * kEach + i];
            b[i] = right_tile[r * kPitch + across * kEach + i];
          }
          CELLC_UNROLL()
          for (int i = 0; i < kEach; ++i) {
            CELLC_UNROLL()
            for (int j = 0; j < kEach; ++j) sum[i][j] += a[i] * b[j];
          }
        }
      }
    }
    Real* const to = static_cast<Real*>(s.partial) + (part * s.batch + batch) * s.m * s.n;
    CELLC_UNROLL()
    for (int i = 0; i < kEach; ++i) {
      CELLC_UNROLL()
      for (int j = 0; j < kEach; ++j) {
        const long long m = first_m + down * kEach + i, n = first_n + across * kEach + j;
        if (m < s.m && n < s.n) to[m * s.n + n] = sum[i][j];
      }
    }
  }
}

CELLC_DEVICE void finish_sums(const StepSums& s) {
  const long long count = s.batch * s.m * s.n;
  each_of(count, [&](long long i) {
    Real sum = 0;
    for (long long part = 0; part < s.parts; ++part) sum += static_cast<const Real*>(s.partial)[part * count + i];
    const long long of_batch = quotient(i, s.n), n = i - of_batch * s.n, b = quotient(of_batch, s.m),
                    m = of_batch - b * s.m;
    put_sum(s, s.batch_into[b] + s.m_into[m] + s.n_into[n], sum);
  });
}

}  // namespace cellc

extern "C" __global__ void cellc_sum_columns(const __grid_constant__ cellc::StepSums s) {
  cellc::await_stream();
  cellc::sum_columns(s, blockIdx.x, blockIdx.y);
}
extern "C" __global__ void cellc_sum_products(const __grid_constant__ cellc::StepSums s) {
  cellc::await_stream();
  cellc::sum_products(s, blockIdx.x, blockIdx.y, gridDim.y, blockIdx.z);
}
extern "C" __global__ void cellc_finish_sums(const __grid_constant__ cellc::StepSums s) {
  cellc::await_stream();
  cellc::finish_sums(s);
}
