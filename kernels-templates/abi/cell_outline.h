/* A cell as callers of its code see it: axes, lengths, arrays; and what a call says of lengths, checked. Tables are the
 * build's; calls on a CPU (kernels-templates/cpu) and on a GPU (kernels-templates/host) both read them here. The file
 * that includes this has memcpy. */
#ifndef CELLC_ABI_CELL_OUTLINE
#define CELLC_ABI_CELL_OUTLINE

#include "kernels-templates/abi/call_extent.h"
#include "kernels-templates/abi/field_kinds.h"

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
  enum { Once, Rows, Sequences, History };
#define CELLC_CASE(Name, NAME, owner, layout, ...) \
  case CELLC_FIELD_##NAME:                         \
    return (int)layout == (int)Rows;
  switch (f->kind) {
    CELLC_FIELD_KINDS(CELLC_CASE)
    default:
      return 0;
  }
#undef CELLC_CASE
}

/* In the numbers that rows are stored in; the others are computed in. */
CELLC_INLINE int cellc_is_stored(const cellc_field* f) {
#define CELLC_CASE(Name, NAME, owner, layout, stored, ...) \
  case CELLC_FIELD_##NAME:                                 \
    return stored;
  switch (f->kind) {
    CELLC_FIELD_KINDS(CELLC_CASE)
    default:
      return 0;
  }
#undef CELLC_CASE
}

/* Not given although nothing stands for it. No steps, no rows: their address is anything. */
CELLC_INLINE int cellc_is_missing(const cellc_field* f, int64_t given, int64_t rows) {
  return f->required && !given && (rows > 0 || !cellc_is_rows(f));
}

/* What stands in the struct of lengths, checked; the lengths by axis. `from` may be null. */
CELLC_INLINE int cellc_read_extent(const cellc_outline* o, const void* from, int64_t* lengths, cellc_extent* e) {
  int a;
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
  return cellc_read_offsets(e, 0);
}

#endif
