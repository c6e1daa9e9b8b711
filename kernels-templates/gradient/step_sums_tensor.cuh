// Gradients of params by the tensor cores, for arithmetic of 32 bits: the products of step_sums.cuh, whose arguments
// and parts these have, by tiles of tensor_tile.cuh. Terms are rows, and lie behind each other in memory on both sides.
//
// A part of the rows is added up by one block in one order, stage after stage, so a sum has the same bits in every run.
// Needs step_sums.cuh and tensor_tile.cuh.
#pragma once

namespace cellc {

/// Tiles of kTile by kTile entries of the result.
template <int kTile>
struct TensorSum {
  using Tile = TensorTile<kTile, kTile, false, false>;
  using Side = typename Tile::Left;

  const StepSums& s;
  float* shared;
  TensorScratch* scratch;

  /// Four neighbouring entries of a row: `table` tells where they are, `count` of them; runs: they are neighbours in
  /// memory, too, and aligned.
  static CELLC_DEVICE void fetch(float* to, const float* row, const long long* table, long long count, bool runs) {
    if (runs && count >= 4) {
      copy_async<16>(to, row + table[0]);
      return;
    }
    CELLC_UNROLL()
    for (int e = 0; e < 4; ++e) {
      if (e < count)
        copy_async<4>(to + e, row + table[e]);
      else
        to[e] = 0;
    }
  }

  CELLC_DEVICE void run() {
    const long long tiles = quotient(s.n + kTile - 1, kTile);
    const long long tile_m = quotient(blockIdx.x, tiles), tile_n = blockIdx.x - tile_m * tiles;
    const long long first_m = tile_m * kTile, first_n = tile_n * kTile, part = blockIdx.z;
    const long long begin = part_begin(s, part), end = part_begin(s, part + 1);
    const int beside = Side::own_beside(threadIdx.x), below = Side::own_below(threadIdx.x);
    const bool left_runs = s.left_runs && is_aligned(s.left), right_runs = s.right_runs && is_aligned(s.right);
    CELLC_UNROLL(1)
    for (long long batch = blockIdx.y; batch < s.batch; batch += gridDim.y) {
      const float* const left = static_cast<const float*>(s.left) + s.batch_left[batch];
      const float* const right = static_cast<const float*>(s.right) + s.batch_right[batch];
      long long k = 0, row = begin;  // of the next stage
      const auto next = [&](float* to_left, float* to_right) {
        const float* const left_row = left + s.summed_left[k] + (row + below) * s.left_row;
        const float* const right_row = right + s.summed_right[k] + (row + below) * s.right_row;
        CELLC_UNROLL()
        for (int i = 0; i < Side::kFetches; ++i) {
          const int down = i * Side::kApart, to = (below + down) * Side::kPitch + beside;
          const bool there = row + below + down < end;
          fetch(to_left + to, left_row + down * s.left_row, s.m_left + first_m + beside,
                there ? s.m - first_m - beside : 0, left_runs);
          fetch(to_right + to, right_row + down * s.right_row, s.n_right + first_n + beside,
                there ? s.n - first_n - beside : 0, right_runs);
        }
        row += kTensorTerms;
        if (row >= end) {
          row = begin;
          ++k;
        }
      };
      typename Tile::Sums sums = {};
      Tile{shared, static_cast<int>(s.stages), scratch}.add(
          sums, (end - begin + kTensorTerms - 1) / kTensorTerms * s.summed, next);
      float* const to = static_cast<float*>(s.partial) + ((part * s.batch + batch) * s.m + first_m) * s.n + first_n;
      Tile::put(
          sums, s.n - first_n, [&](int down) { return first_m + down < s.m ? to + down * s.n : nullptr; },
          [&](int down, int across) {
            return in_order(left + s.m_left[first_m + down], right + s.n_right[first_n + across], begin, end);
          });
    }
  }

  /// One sum by multiply-adds.
  CELLC_DEVICE float in_order(const float* left, const float* right, long long begin, long long end) const {
    float sum = 0;
    CELLC_UNROLL(1)
    for (long long k = 0; k < s.summed; ++k) {
      CELLC_UNROLL(1)
      for (long long row = begin; row < end; ++row)
        sum += left[s.summed_left[k] + row * s.left_row] * right[s.summed_right[k] + row * s.right_row];
    }
    return sum;
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256, CELLC_PRODUCT_BLOCKS)
    cellc_sum_products_tensor(const __grid_constant__ cellc::StepSums s) {
  CELLC_DYNAMIC_SHARED(float, tensor_stages);
  CELLC_TENSOR_SCRATCH(scratch);
  cellc::await_stream();
  if (s.tile == 64)
    cellc::TensorSum<64>{s, tensor_stages, scratch}.run();
  else
    cellc::TensorSum<128>{s, tensor_stages, scratch}.run();
}
