// What every kernel of nests.cuh is told about the run, and the arguments of product.cuh and product_tensor.cuh. Read
// by the host as a header and by the device as a part of its source: both sides see the same 8-byte numbers in the same
// order, so this file includes nothing, and C compilers take it too.
#ifndef CELLC_NEST_FRAME
#define CELLC_NEST_FRAME

#ifdef __cplusplus
namespace cellc {
#endif

/// Rows lie sequence after sequence. A *window* is the part of the run that one round of launches works on:
/// rows of some neighbouring sequences, all of their steps, or of each sequence the steps
/// [window_begin, window_begin + window).
///
/// Jobs number the rows of a window: as they lie, or `window` places a sequence, of which a short sequence
/// leaves some unused. Chunk rows are numbered like jobs.
struct NestFrame {
  const long long* offsets;  ///< first row of every sequence of the run, and the end of the last
  long long first_sequence, sequences;
  long long first_row;                  ///< of the window, where it has all steps
  long long rows;                       ///< jobs: places for rows
  long long window_begin;               ///< first step of the window
  long long window;                     ///< steps of a sequence; 0: all
  long long steps_each;                 ///< steps of every sequence of the run; 0: they differ
  long long direction;                  ///< of time along rows: 1, or -1
  long long parts;                      ///< blocks that share a sequence, each some lanes of it
  long long part_length;                ///< lanes of a part, of the axis that is split
  long long tile_rows;                  ///< rows that a block works on at a time
  long long steps_factor, steps_shift;  ///< row * factor >> shift is row / steps_each, of rows that 30 bits hold
  long long narrow;     ///< not 0: every job has a row, and 30 bits hold the number of a row, and of an entry in one
  long long first_job;  ///< of the launch, of jobs that take several
  void* scratch;        ///< global memory of blocks
  long long scratch_stride;  ///< entries of a block
  /// Steps before window_begin that are counted on the device, so that a captured graph serves window after window;
  /// null: none.
  const long long* steps_before;
};

struct ProductArguments {
  struct NestFrame frame;
  const void* operand;         ///< rows [batch, depth]
  long long operand_stride;    ///< entries from row to row
  long long operand_is_chunk;  ///< its rows are numbered like jobs
  const void* matrix;          ///< [batch, width, depth], or [batch, depth, width]; or the batch is in the middle
  long long sum_last;
  long long batch, width, depth;
  long long shared;              ///< so many neighbours of the batch have the same matrix
  long long matrix_apart;        ///< entries from column to column where the sum is last, else from term to term
  long long matrix_batch;        ///< from one entry of the batch to the next that has another matrix
  long long tile, tile_columns;  ///< rows and columns that a block makes at a time
  long long stages;              ///< of shared memory, on tensor cores
  void* result;                  ///< rows [batch, width]
  long long result_in_rows;      ///< they are an out's, as rows lie; else a chunk's, numbered like jobs
  long long result_is_stored;    ///< they are rounded to storage of 16 bits
  void* prepared;                ///< the matrix as product_wgmma.cuh reads it
};

#ifdef __cplusplus
}  // namespace cellc
#endif

#endif
