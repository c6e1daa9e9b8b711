// The arguments of the kernels of a backward run, as host and device see them.
#pragma once

namespace cellc {

/// Rows of a run: sequence b owns rows offsets[b] … offsets[b + 1] - 1.
struct RowsOfRun {
  const long long* offsets;
  long long rows, sequences, length;  ///< length: of every sequence; 0: they differ
  long long reverse;                  ///< the forward run went from the last row to the first
};

/// A trajectory one step before, which begins with the start.
struct PreviousRows {
  RowsOfRun run;
  void* to;                ///< [rows, entries]
  const void* trajectory;  ///< [rows, entries]
  const void* start;       ///< [sequences, entries]
  long long entries;
};

/// What a step reads of an earlier one, `lag` + w steps before, for w below `along`; and the way back. Of a history and
/// the start that follows it: rows `lag` + w of the history.
struct LaggedRows {
  RowsOfRun run;
  void* rows;     ///< [rows, entries, along]; read on the way back
  void* input;    ///< [rows, entries]; added to on the way back
  void* history;  ///< [sequences, depth, entries]; likewise
  long long entries, lag, along, depth;
};

/// Words of ScaledCotangents::found: bits of the largest |cotangent|; whether a cotangent, and a gradient, is no
/// number.
enum ScaledWord { kLargestCotangent, kCotangentIsNone, kGradientIsNone, kScaledWords };

/// Numbers times a power of two (scaled_cotangents.cuh).
struct ScaledCotangents {
  const void* from;
  void* to;  ///< may be `from`
  long long count;
  unsigned int* found;  ///< [kScaledWords]
  long long inverse;    ///< back to what the caller's cotangents give
};

// Of step_sums.cuh, which the host plans its grids by.
constexpr int kColumnThreads = 32, kRowThreads = 8;  ///< of a block of columns
constexpr int kSumTile = 64, kSumDepth = 16;         ///< of products: entries of the result either way; rows at once
constexpr int kSumPitch = kSumTile + 4;              ///< of a row of a tile, which four banks keep from the next

/// A sum over rows of left·right (step_sums.cuh). Tables have entries by position: `m` along the axes of the left
/// factor, `n` along those of the right one, `batch` along those of both, `summed` along those that the result lacks.
/// Of a sum of columns all kept positions are along `m`, and `right` has offsets for them.
struct StepSums {
  const void* left;
  const void* right;  ///< null: there is one factor
  void* partial;      ///< [parts, batch, m, n]
  void* into;
  long long assigns;                    ///< what `into` has does not count
  long long rows, left_row, right_row;  ///< entries from row to row
  long long m, n, batch, summed, parts, repeated;
  const long long *m_left, *m_right, *m_into;  ///< m_right: of columns
  const long long *n_right, *n_into;
  const long long *batch_left, *batch_right, *batch_into;
  const long long *summed_left, *summed_right;
  const long long* repeated_into;
  // Of step_sums_tensor.cuh. Runs: four entries from each fourth position on are neighbours in memory, at places that
  // four divide.
  long long tile, stages, left_runs, right_runs;
};

}  // namespace cellc
