/* How large a call is: numbers of entries, strides of rows, sequences and their offsets. For calls in C
 * (cell_outline.h) and for the runtime, which both check and measure by these functions alone. */
#ifndef CELLC_ABI_CALL_EXTENT
#define CELLC_ABI_CALL_EXTENT

#include <stdint.h>

#include "kernels-templates/abi/call_results.h"

/* A function; a loop over a table. Of calls on a CPU one is inlined and the other unrolled. */
#ifndef CELLC_EACH
#define CELLC_INLINE static inline
#define CELLC_EACH(i, count) for (i = 0; i < (count); ++i)
#endif

/* Numbers of bytes and entries are bounded far below what an address can hold, and never wrap. */
#define CELLC_MOST_BYTES ((int64_t)1 << 60)
CELLC_INLINE int64_t cellc_times(int64_t a, int64_t b) {
#ifdef __GNUC__ /* without a division: short calls on a CPU would notice it */
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) || product > CELLC_MOST_BYTES ? CELLC_MOST_BYTES : product;
#else
  return a != 0 && b > CELLC_MOST_BYTES / a ? CELLC_MOST_BYTES : a * b;
#endif
}

/* Strides of rows in full, in entries: 0 stands for rows one after another. Rows of packed sequences always are so,
 * apart from the step between them. */
typedef struct cellc_strides {
  int64_t sequence, step;
} cellc_strides;
CELLC_INLINE cellc_strides cellc_strides_of(cellc_strides given, int64_t row, int64_t steps, int packed) {
  cellc_strides full;
  full.step = given.step ? given.step : row;
  full.sequence = given.sequence && !packed ? given.sequence : cellc_times(steps, full.step);
  return full;
}

/* How many sequences of how many steps. */
typedef struct cellc_extent {
  int64_t sequences, steps, rows; /* steps: of the longest; rows: of all sequences */
  const int64_t* offsets;         /* null: the caller gave none */
  int even;                       /* all sequences are as long */
} cellc_extent;

/* Steps and rows of sequences that have offsets, which are checked. `wrong`, unless null: the entry that is. */
CELLC_INLINE int cellc_read_offsets(cellc_extent* e, int64_t* wrong) {
  int64_t s;
  e->steps = 0;
  e->even = 1;
  if (wrong) *wrong = 0;
  if (e->offsets[0] != 0) return CELLC_BAD_OFFSETS;
  for (s = 0; s < e->sequences; ++s) {
    const int64_t n = e->offsets[s + 1] - e->offsets[s];
    if (e->offsets[s + 1] < e->offsets[s]) {
      if (wrong) *wrong = s + 1;
      return CELLC_DECREASING_OFFSETS;
    }
    if (s > 0 && n != e->steps) e->even = 0;
    if (n > e->steps) e->steps = n;
  }
  e->rows = e->offsets[e->sequences];
  return CELLC_DONE;
}

#endif
