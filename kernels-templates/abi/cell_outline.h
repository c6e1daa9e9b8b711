/* A cell as callers of its code see it: axes, lengths, arrays; and what a call says of lengths, checked. Tables are the
 * build's; calls on a CPU (kernels-templates/cpu) and on a GPU (kernels-templates/host) both read them here. The file
 * that includes this has memcpy. */
#ifndef CELLC_ABI_CELL_OUTLINE
#define CELLC_ABI_CELL_OUTLINE

#include "kernels-templates/abi/call_results.h"
#include "kernels-templates/abi/field_kinds.h"

/* A function; a loop over a table. Of calls on a CPU one is inlined and the other unrolled. */
#ifndef CELLC_EACH
#define CELLC_INLINE static inline
#define CELLC_EACH(i, count) for (i = 0; i < (count); ++i)
#endif

/* Header axes: a part of cellc_outline::axes. */
typedef struct cellc_dims {
  int first, count;
} cellc_dims;

/* An array of the caller's: its word in the struct of arrays. Rows have two strides behind the address. */
typedef struct cellc_field {
  int kind, id, word, required;
} cellc_field;

typedef struct cellc_outline {
  int axis_count;
  const int64_t* fixed; /* by axis: its length, or -1 */
  const int64_t* least; /* by axis */
  const int* axis_word; /* by axis: in the struct of lengths, or -1 */
  int first_word;       /* of sequences, steps, offsets, and what else a target has */
  int64_t fixed_steps;  /* or -1 */
  const int* axes;
  const cellc_field* fields;
  int field_count;
} cellc_outline;

enum { CELLC_F32, CELLC_F64, CELLC_F16, CELLC_BF16 };

CELLC_INLINE int64_t cellc_word(const void* from, int word) {
  int64_t value;
  memcpy(&value, (const unsigned char*)from + 8 * (size_t)word, 8);
  return value;
}

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

CELLC_INLINE int64_t cellc_entries_of(const cellc_outline* o, const int64_t* lengths, cellc_dims dims) {
  int64_t n = 1;
  int i;
  CELLC_EACH(i, dims.count) n = cellc_times(n, lengths[o->axes[dims.first + i]]);
  return n;
}

/* Steps of a history. `reaches`: pairs in cellc_outline::axes, lag and axis (-1: none). */
CELLC_INLINE int64_t cellc_depth_of(const cellc_outline* o, const int64_t* lengths, cellc_dims reaches) {
  int64_t depth = 0;
  int i;
  CELLC_EACH(i, reaches.count / 2) {
    const int* pair = o->axes + reaches.first + 2 * i;
    const int64_t here = pair[0] + (pair[1] < 0 ? 0 : lengths[pair[1]] - 1);
    if (here > depth) depth = here;
  }
  return depth;
}

CELLC_INLINE int cellc_is_rows(const cellc_field* f) {
  return f->kind == CELLC_FIELD_INPUT || f->kind == CELLC_FIELD_STATE || f->kind == CELLC_FIELD_OUT;
}

/* In the numbers that rows are stored in; the others are computed in. */
CELLC_INLINE int cellc_is_stored(const cellc_field* f) {
  return cellc_is_rows(f) || f->kind == CELLC_FIELD_INPUT_HISTORY || f->kind == CELLC_FIELD_FINAL_INPUT_HISTORY;
}

/* How many sequences of how many steps. */
typedef struct cellc_extent {
  int64_t sequences, steps, rows; /* steps: of the longest; rows: of all sequences */
  const int64_t* offsets;         /* null: the caller gave none */
  int even;                       /* all sequences are as long */
} cellc_extent;

/* What stands in the struct of lengths, checked; the lengths by axis. `from` may be null. */
CELLC_INLINE int cellc_read_extent(const cellc_outline* o, const void* from, int64_t* lengths, cellc_extent* e) {
  int a;
  int64_t s;
  if (!from) return CELLC_NO_LENGTHS;
  CELLC_EACH(a, o->axis_count) {
    lengths[a] = o->axis_word[a] < 0 ? o->fixed[a] : cellc_word(from, o->axis_word[a]);
    if (lengths[a] < o->least[a]) return CELLC_SHORT_AXES + a;
  }
  e->sequences = cellc_word(from, o->first_word);
  e->steps = cellc_word(from, o->first_word + 1);
  e->offsets = (const int64_t*)(uintptr_t)cellc_word(from, o->first_word + 2);
  e->even = 1;
  if (e->sequences < 0) return CELLC_NEGATIVE_SEQUENCES;
  if (!e->offsets) {
    if (e->steps < 0) return CELLC_NEGATIVE_STEPS;
    if (o->fixed_steps >= 0 && e->steps != o->fixed_steps) return CELLC_OTHER_STEPS;
    e->rows = cellc_times(e->sequences, e->steps);
    return CELLC_DONE;
  }
  if (o->fixed_steps >= 0) return CELLC_NO_PACKING;
  if (e->offsets[0] != 0) return CELLC_BAD_OFFSETS;
  e->steps = 0;
  for (s = 0; s < e->sequences; ++s) {
    const int64_t n = e->offsets[s + 1] - e->offsets[s];
    if (n < 0) return CELLC_DECREASING_OFFSETS;
    if (s > 0 && n != e->steps) e->even = 0;
    if (n > e->steps) e->steps = n;
  }
  e->rows = e->offsets[e->sequences];
  return CELLC_DONE;
}

#endif
