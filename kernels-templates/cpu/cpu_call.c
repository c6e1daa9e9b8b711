/* Calls of a cell on a CPU. The build of cellc turns this file into bitcode; runtime/build/link_call.cc links that into
 * a cell's module and makes it special for the cell: every function is inlined, every loop over a table unrolled, every
 * number of a table a constant. So a table costs a call nothing. It calls memcpy, memmove and memset, nothing else, and
 * keeps nothing between calls. */
#define CELLC_EACH(i, count) _Pragma("clang loop unroll(full)") for (i = 0; i < (count); ++i)
#define CELLC_INLINE static inline __attribute__((always_inline))
#include "kernels-templates/cpu/cpu_cell.h"

#define EACH(i, count) _Pragma("clang loop unroll(full)") for (int i = 0; i < (count); ++i)
#define INLINE CELLC_INLINE
/* Of a length that is a constant for a cell. */
#define VALUES ((uint64_t*)__builtin_alloca((size_t)cellc_cell.places[CELLC_SECTIONS] * 8))
#define SLOTS ((uint64_t*)__builtin_alloca((size_t)cellc_cell.numbers.most_slots * 8))

typedef struct cellc_call {
  const cellc_cpu_cell* cell;
  const unsigned char* arrays;
  uint64_t *values, *slots; /* memory of the caller's frame */
  cellc_extent extent;
  int64_t block_steps;
  int reverse;
} cellc_call;

INLINE uint64_t* section(const cellc_call* c, int which) { return c->values + c->cell->places[which]; }
INLINE uint64_t area(const cellc_call* c, int which) { return section(c, CELLC_AREAS)[which]; }
INLINE int64_t entries(const cellc_call* c, int shape) { return (int64_t)section(c, CELLC_ENTRIES)[shape]; }
INLINE int64_t* lengths(const cellc_call* c) { return (int64_t*)section(c, CELLC_LENGTHS); }
INLINE uint64_t given(const cellc_call* c, int field) {
  if (field < 0) return 0;
  return (uint64_t)cellc_word(c->arrays, c->cell->outline.fields[field].word);
}
INLINE int storage_bytes(const cellc_cpu_cell* cell) {
  return cell->numbers.storage == CELLC_F64 ? 8 : cell->numbers.storage == CELLC_F32 ? 4 : 2;
}
INLINE int real_bytes(const cellc_cpu_cell* cell) { return cell->numbers.storage == CELLC_F64 ? 8 : 4; }
INLINE int is_narrow(const cellc_cpu_cell* cell) {
  return cell->numbers.storage == CELLC_F16 || cell->numbers.storage == CELLC_BF16;
}
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE void move(uint64_t to, uint64_t from, int64_t bytes) { memmove((void*)to, (const void*)from, (size_t)bytes); }
INLINE void clear(uint64_t at, int64_t bytes) { memset((void*)at, 0, (size_t)bytes); }

#include "kernels-templates/cpu/narrow_storage.h"
#include "kernels-templates/cpu/sum_gradients.h"

/* Lengths and the workspace ------------------------------------------------------------------------------ */

INLINE int read_lengths(cellc_call* c, const void* from) {
  const cellc_cpu_cell* cell = c->cell;
  const int result = cellc_read_extent(&cell->outline, from, lengths(c), &c->extent);
  if (result) return result;
  c->reverse = (cellc_word(from, cell->outline.first_word + 3) != 0) != cell->numbers.is_backward;
  EACH(s, cell->numbers.count.shapes)
  section(c, CELLC_ENTRIES)[s] = (uint64_t)cellc_entries_of(&cell->outline, lengths(c), cell->shapes[s]);
  return CELLC_DONE;
}

INLINE int64_t area_bytes(const cellc_call* c, const cellc_area* a) {
  int64_t bytes = cellc_times(a->bytes, entries(c, a->shape));
  if (a->of_block) {
    const int64_t steps = c->extent.offsets ? INT64_MAX : c->extent.steps;
    /* Twice as many as are read: then they are moved to the front once in so many steps. */
    const int64_t behind = a->back ? least(steps, 2 * (int64_t)a->back) : 0;
    bytes = cellc_times(least(steps, c->block_steps) + behind, bytes);
  }
  if (a->beside == CELLC_BY_LANE)
    bytes = cellc_times(bytes, (int64_t)section(c, CELLC_LANES)[0]);
  else if (a->beside && !section(c, CELLC_LANES)[0])
    bytes = 0;
  if (a->reaches.count) bytes = cellc_times(cellc_depth_of(&c->cell->outline, lengths(c), a->reaches), bytes);
  return bytes;
}

INLINE int64_t block_steps(const cellc_call* c) {
  int64_t bytes = 0; /* of a row, to a power of two or so */
  EACH(a, c->cell->numbers.count.areas) {
    const cellc_area* area = c->cell->areas + a;
    const int64_t lanes = area->beside ? (int64_t)section(c, CELLC_LANES)[0] : 1;
    if (area->of_block) bytes |= area->bytes * lanes * least(entries(c, area->shape), CELLC_BLOCK_BYTES);
  }
  return bytes > CELLC_BLOCK_BYTES / 4    ? 2
         : bytes > CELLC_BLOCK_BYTES / 8  ? 4
         : bytes > CELLC_BLOCK_BYTES / 16 ? 8
         : bytes > CELLC_BLOCK_BYTES / 32 ? 16
                                          : CELLC_BLOCK_STEPS;
}

/* Every area's address in a workspace; the size of all, or CELLC_MOST_BYTES, which is found by a bit of any part. */
INLINE int64_t lay_out(const cellc_call* c, const void* workspace) {
  /* It begins anywhere: back to a multiple of 64, and the first offset is 64. */
  const uint64_t base = (uint64_t)workspace & ~(uint64_t)63;
  uint64_t end = 64, seen = 0;
  EACH(a, c->cell->numbers.count.areas) {
    const uint64_t bytes = (uint64_t)area_bytes(c, c->cell->areas + a);
    section(c, CELLC_AREAS)[a] = base + end;
    end += (bytes + 63) & ~(uint64_t)63;
    seen |= bytes | end;
  }
  return seen < CELLC_MOST_BYTES ? (int64_t)end : CELLC_MOST_BYTES;
}

/* Before the call --------------------------------------------------------------------------------------- */

INLINE void run(const cellc_call* c, int kernel, int64_t steps) {
  const cellc_cell_kernel* k = c->cell->kernels + kernel;
  EACH(i, k->slots) c->slots[i] = c->values[c->cell->slots[k->first_slot + i]];
  c->cell->codes[kernel](c->slots, steps, 0,
                         k->split == -2 ? (int64_t)section(c, CELLC_LANES)[0]
                         : k->split < 0 ? 0
                                        : lengths(c)[k->split]);
}

/* Defaults of params are rounded to what an array of the storage type holds, starts to arithmetic precision; once. */
INLINE void compute(const cellc_call* c, const cellc_fill* fill, int to_storage) {
  const cellc_cpu_cell* cell = c->cell;
  int64_t i;
  EACH(w, fill->wide_count) {
    const cellc_wide* wide = cell->wide + fill->first_wide + w;
    const uint64_t from = section(c, CELLC_PARAMS)[wide->param];
    double* to = (double*)area(c, wide->area);
    for (i = 0; i < entries(c, wide->shape); ++i)
      to[i] = cell->numbers.storage == CELLC_F64 ? ((const double*)from)[i] : ((const float*)from)[i];
  }
  EACH(k, fill->kernels) run(c, fill->first_kernel + k, 1);
  EACH(r, fill->round_count) {
    const cellc_round* round = cell->round + fill->first_round + r;
    const double* from = (const double*)area(c, round->from);
    const uint64_t to = area(c, round->to);
    for (i = 0; i < entries(c, round->shape); ++i) {
      if (cell->numbers.storage == CELLC_F64) {
        ((double*)to)[i] = from[i];
      } else {
        const float value = (float)from[i];
        ((float*)to)[i] =
            to_storage && is_narrow(cell) ? narrowed(cell->numbers.storage, rounded_to_odd(from[i], value)) : value;
      }
    }
  }
}

INLINE void fill_in(const cellc_call* c) {
  const cellc_cpu_cell* cell = c->cell;
  int some = 0;
  EACH(p, cell->numbers.count.params) {
    const cellc_param* param = cell->params + p;
    const uint64_t at = given(c, param->field);
    if (param->area >= 0 && !at) some = 1;
    section(c, CELLC_PARAMS)[p] = param->area >= 0 && !at ? area(c, param->area) : at;
  }
  if (cell->numbers.defaults.round_count && some) compute(c, &cell->numbers.defaults, 1);
  if (cell->numbers.once_kernel >= 0) run(c, cell->numbers.once_kernel, 1);
  some = 0;
  EACH(s, cell->numbers.count.states) {
    const cellc_state* state = cell->states + s;
    if ((state->history >= 0 && state->start >= 0) || given(c, state->start)) continue; /* a copy: its parent's */
    if (state->is_computed)
      some = 1;
    else
      clear(area(c, state->area), entries(c, state->shape) * real_bytes(cell));
  }
  if (cell->numbers.starts.round_count && some) compute(c, &cell->numbers.starts, 0);
  EACH(h, cell->numbers.count.histories) {
    const cellc_history* history = cell->histories + h;
    if (history->state < 0 && !given(c, history->field))
      clear(area(c, history->area), area_bytes(c, cell->areas + history->area));
  }
  EACH(z, cell->numbers.count.zeros) clear(area(c, cell->zeros[z]), area_bytes(c, cell->areas + cell->zeros[z]));
}

INLINE void find_rows(const cellc_call* c) {
  EACH(r, c->cell->numbers.count.rows) {
    const cellc_rows* rows = c->cell->rows + r;
    const int bytes = rows->bytes;
    const int64_t row = entries(c, rows->shape);
    section(c, CELLC_GIVEN)[r] = 0;
    section(c, CELLC_APART)[r] = 0;
    section(c, CELLC_STRIDES)[r] = (uint64_t)(row * bytes);
    if (rows->field < 0) continue;
    const int word = c->cell->outline.fields[rows->field].word;
    const cellc_strides strides = {cellc_word(c->arrays, word + 1), cellc_word(c->arrays, word + 2)};
    const cellc_strides full = cellc_strides_of(strides, row, c->extent.steps, 0); /* packed: not looked at */
    section(c, CELLC_GIVEN)[r] = given(c, rows->field);
    if (rows->reads && rows->area >= 0 && !section(c, CELLC_GIVEN)[r]) { /* the same zeros at every step */
      section(c, CELLC_GIVEN)[r] = area(c, rows->area);
      section(c, CELLC_STRIDES)[r] = 0;
      continue;
    }
    section(c, CELLC_APART)[r] = (uint64_t)(full.sequence * bytes);
    /* Rows that are not given are those of the area. */
    if (rows->reads || section(c, CELLC_GIVEN)[r])
      section(c, CELLC_STRIDES)[r] = (uint64_t)(c->reverse ? -full.step * bytes : full.step * bytes);
  }
}

/* One sequence ------------------------------------------------------------------------------------------ */

INLINE uint64_t row_at(const cellc_call* c, int rows, int64_t t) {
  return section(c, CELLC_FIRST)[rows] + (uint64_t)t * section(c, CELLC_STRIDES)[rows];
}
/* Whether rows go to the workspace: known at build time of a lagged copy's. */
INLINE int is_absent(const cellc_call* c, int rows) {
  return c->cell->rows[rows].field < 0 || (!c->cell->rows[rows].reads && !section(c, CELLC_GIVEN)[rows]);
}

INLINE uint64_t start_of(const cellc_call* c, const cellc_state* state, int64_t s) {
  const int64_t size = entries(c, state->shape) * real_bytes(c->cell);
  const uint64_t start = given(c, state->start);
  const uint64_t plain = start ? start + (uint64_t)(s * size) : area(c, state->area);
  if (state->history < 0) return plain;
  const uint64_t history = given(c, state->history);
  const int64_t depth = cellc_depth_of(&c->cell->outline, lengths(c), state->reaches);
  return history ? history + (uint64_t)((s * depth + state->lag - 1) * size) : plain;
}

/* The start that the last step of sequence `s` reads instead of a row. */
INLINE uint64_t shifted_start(const cellc_call* c, const cellc_rows* rows, int64_t s) {
  const uint64_t start = given(c, rows->start);
  return start ? start + (uint64_t)(s * entries(c, rows->shape) * real_bytes(c->cell)) : area(c, rows->start_area);
}

/* Delay lines ------------------------------------------------------------------------------------------- */

/* What a delay line brings before the sequence has written it: the start, the copies that lag behind it, and what the
 * caller says of the steps before, or the start again. */
INLINE void begin_line(const cellc_call* c, const cellc_history* line, int64_t s) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t count = entries(c, line->shape), size = count * real_bytes(cell);
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), cell->areas[line->area].reaches);
  const uint64_t before = given(c, line->field);
  int64_t j;
  for (j = 0; j < depth; ++j) {
    const uint64_t from = j <= line->copies ? section(c, CELLC_STARTS)[line->state + j]
                          : before          ? before + (uint64_t)((s * (depth - 1) + j - 1) * size)
                                            : section(c, CELLC_STARTS)[line->state];
    to_storage(cell, area(c, line->area) + (uint64_t)(j * count * storage_bytes(cell)), from, count);
  }
}

/* Rows of the workspace that hold what a delay line brings: the last ones go to the front where there is no room for
 * so many steps more. */
INLINE void make_room(const cellc_call* c, int rows, int64_t steps) {
  const cellc_area* a = c->cell->areas + c->cell->rows[rows].area;
  const int64_t size = entries(c, a->shape) * a->bytes, kept = (int64_t)section(c, CELLC_KEPT)[rows];
  const int64_t back = least(kept, a->back);
  if ((kept + steps) * size <= area_bytes(c, a)) return;
  move(area(c, c->cell->rows[rows].area), area(c, c->cell->rows[rows].area) + (uint64_t)((kept - back) * size),
       back * size);
  section(c, CELLC_KEPT)[rows] = (uint64_t)back;
}

INLINE int has_line(const cellc_call* c, int rows) {
  return !c->cell->rows[rows].reads && c->cell->areas[c->cell->rows[rows].area].back > 0;
}
/* Of rows of the workspace: that of the block's step. */
INLINE uint64_t own_row(const cellc_call* c, int rows, int64_t step) {
  const cellc_area* a = c->cell->areas + c->cell->rows[rows].area;
  const int64_t kept = has_line(c, rows) ? (int64_t)section(c, CELLC_KEPT)[rows] : 0;
  return area(c, c->cell->rows[rows].area) + (uint64_t)((kept + step) * entries(c, a->shape) * a->bytes);
}

/* What of a state's history after the run copies that lag do not have. */
INLINE void end_line(const cellc_call* c, const cellc_history* line, int64_t s, int64_t n) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t count = entries(c, line->shape), bytes = count * storage_bytes(cell);
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), cell->areas[line->area].reaches);
  const uint64_t to = given(c, line->final);
  int64_t j;
  for (j = line->copies + 1; to && j < depth; ++j) { /* j + 1 steps before the next */
    const uint64_t from = j >= n                     ? area(c, line->area) + (uint64_t)((j - n) * bytes)
                          : is_absent(c, line->rows) ? own_row(c, line->rows, -1 - j)
                                                     : row_at(c, line->rows, n - 1 - j);
    from_storage(cell, to + (uint64_t)((s * (depth - 1) + j - 1) * count * real_bytes(cell)), from, count);
  }
}

#include "kernels-templates/cpu/lagged_rows.h"

/* Steps of sequence `s` from `t` on, of `n`. */
INLINE void run_block(const cellc_call* c, int64_t s, int64_t n, int64_t t, int64_t steps) {
  const cellc_cpu_cell* cell = c->cell;
  section(c, CELLC_TIME)[0] = (uint64_t)t;
  EACH(r, cell->numbers.count.rows) {
    const cellc_rows* rows = cell->rows + r;
    if (is_absent(c, r) && has_line(c, r)) make_room(c, r, steps);
    section(c, CELLC_ROWS)[r] = is_absent(c, r)        ? own_row(c, r, 0)
                                : rows->start_area < 0 ? row_at(c, r, t)
                                : t == n - 1           ? shifted_start(c, rows, s)
                                                       : row_at(c, r, t + 1);
  }
  EACH(s, cell->numbers.count.states) {
    const cellc_state* state = cell->states + s;
    const uint64_t before = is_narrow(cell)             ? area(c, state->spare)
                            : is_absent(c, state->rows) ? area(c, state->carried)
                                                        : row_at(c, state->rows, t - 1);
    section(c, CELLC_OLDS)[s] = t == 0 ? section(c, CELLC_STARTS)[s] : before;
  }
  EACH(e, cell->numbers.count.earlier) take_earlier(c, cell->earlier + e, s, n, t, steps);
  EACH(k, cell->numbers.step_kernels) run(c, k, steps);
  for (int64_t i = 0; cell->numbers.count.later && i < steps; ++i)
    EACH(l, cell->numbers.count.later) add_later(c, cell->later + l, s, n, t, i);
  EACH(p, cell->numbers.count.products) add_product(c, cell->products + p, steps);
  /* Rows of the workspace are written again by the next block. */
  if (!is_narrow(cell)) {
    EACH(s, cell->numbers.count.states) {
      const cellc_state* state = cell->states + s;
      const int64_t size = entries(c, state->shape) * real_bytes(cell);
      /* The last block's last row is the final itself: a short call moves it once. */
      if (is_absent(c, state->rows) && (t + steps < n || cell->numbers.count.onward))
        move(area(c, state->carried), own_row(c, state->rows, steps - 1), size);
    }
  }
  EACH(r, cell->numbers.count.rows)
  if (is_absent(c, r) && has_line(c, r)) section(c, CELLC_KEPT)[r] += (uint64_t)steps;
}

/* Where sequence `s` leaves a state; 0: nobody wants it. */
INLINE uint64_t final_of(const cellc_call* c, int number, int64_t s) {
  const cellc_state* state = c->cell->states + number;
  const uint64_t to = given(c, state->final);
  if (!to) return 0;
  if (state->reaches.count) s = s * cellc_depth_of(&c->cell->outline, lengths(c), state->reaches) + state->lag - 1;
  return to + (uint64_t)(s * entries(c, state->shape) * real_bytes(c->cell));
}

/* `steps`: of the last block, whose rows are still in the workspace; 0: what was carried is the final. */
INLINE void write_final(const cellc_call* c, int number, int64_t s, int64_t n, int64_t steps) {
  const cellc_state* state = c->cell->states + number;
  const int64_t size = entries(c, state->shape) * real_bytes(c->cell);
  const uint64_t to = final_of(c, number, s);
  uint64_t last = area(c, state->carried);
  if (!to) return;
  if (is_narrow(c->cell))
    last = n % 2 ? area(c, state->carried) : area(c, state->spare);
  else if (!is_absent(c, state->rows))
    last = row_at(c, state->rows, n - 1);
  else if (steps)
    last = own_row(c, state->rows, has_line(c, state->rows) ? -1 : steps - 1);
  move(to, n == 0 ? section(c, CELLC_STARTS)[number] : last, size);
}

/* What the last steps read, the newest first; before the sequence's first step, what was given. From the oldest on, so
 * that it may be written where it was read. */
INLINE void write_final_history(const cellc_call* c, int number, int64_t s, int64_t n) {
  const cellc_history* history = c->cell->histories + number;
  const int64_t size = entries(c, history->shape) * storage_bytes(c->cell);
  const int64_t depth = cellc_depth_of(&c->cell->outline, lengths(c), c->cell->areas[history->area].reaches);
  const uint64_t before = section(c, CELLC_HISTORIES)[number], to = given(c, history->final);
  if (!to) return;
  for (int64_t j = depth - 1; j >= 0; --j)
    move(to + (uint64_t)((s * depth + j) * size),
         j >= n ? before + (uint64_t)((j - n) * size) : row_at(c, history->rows, n - 1 - j), size);
}

/* Rows, starts and histories of sequence `s`. Its steps. */
INLINE int64_t find_sequence(const cellc_call* c, int64_t s) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t* offsets = c->extent.offsets;
  const int64_t begin = offsets ? offsets[s] : 0, n = offsets ? offsets[s + 1] - begin : c->extent.steps;
  EACH(r, cell->numbers.count.rows) {
    const int64_t apart = (int64_t)section(c, CELLC_APART)[r], stride = (int64_t)section(c, CELLC_STRIDES)[r];
    /* From the last step on where time runs backwards: strides are those of the run. */
    if (has_line(c, r)) section(c, CELLC_KEPT)[r] = 0;
    const int64_t first = offsets ? begin * (c->reverse ? -stride : stride) : s * apart;
    section(c, CELLC_FIRST)[r] = section(c, CELLC_GIVEN)[r] + (uint64_t)(first - (c->reverse ? (n - 1) * stride : 0));
  }
  EACH(u, cell->numbers.count.states) section(c, CELLC_STARTS)[u] = start_of(c, cell->states + u, s);
  EACH(h, cell->numbers.count.histories) {
    const cellc_history* history = cell->histories + h;
    const uint64_t at = history->state < 0 ? given(c, history->field) : 0;
    const int64_t size = area_bytes(c, cell->areas + history->area);
    if (history->state >= 0) begin_line(c, history, s);
    section(c, CELLC_HISTORIES)[h] = at ? at + (uint64_t)(s * size) : area(c, history->area);
  }
  return n;
}

INLINE void end_sequence(const cellc_call* c, int64_t s, int64_t n, int64_t steps, int32_t* status) {
  const cellc_cpu_cell* cell = c->cell;
  EACH(u, cell->numbers.count.states) write_final(c, u, s, n, steps);
  EACH(o, cell->numbers.count.onward) pass_onward(c, cell->onward + o, s, n);
  EACH(h, cell->numbers.count.histories) {
    if (cell->histories[h].state >= 0)
      end_line(c, cell->histories + h, s, n);
    else
      write_final_history(c, h, s, n);
  }
  if (status) status[s] = 0;
}

INLINE void run_sequence(const cellc_call* c, int64_t s, int32_t* status) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t n = find_sequence(c, s);
  int in_blocks = 0;
  int64_t t, now = 0;
  EACH(r, cell->numbers.count.rows) in_blocks |= is_absent(c, r);
  begin_gradients(c, s, n);
  for (t = 0; t < n; t += now) {
    now = least(in_blocks ? c->block_steps : n, n - t);
    /* What is shifted is read elsewhere by the last step: a block of its own. */
    EACH(r, cell->numbers.count.rows)
    if (cell->rows[r].start_area >= 0 && t < n - 1) now = least(now, n - 1 - t);
    run_block(c, s, n, t, now);
  }
  end_sequence(c, s, n, now, status);
}

#include "kernels-templates/cpu/lane_rows.h"
#include "kernels-templates/cpu/walk_lanes.h"

/* The cell's functions: its prefix takes the place of `cellc_cell` in their names -------------------------- */

/* Of the cell's module. */
extern const cellc_cpu_cell cellc_cell;

INLINE int is_missing(const unsigned char* arrays, int f, int64_t rows) {
  const cellc_field* field = cellc_cell.outline.fields + f;
  return cellc_is_missing(field, cellc_word(arrays, field->word), rows);
}

INLINE int bits_of(uint64_t n) { return n ? 64 - __builtin_clzll(n) : 0; }

/* Products are as many bits long as their factors are together at most: of most calls that is few enough to say that
 * nothing is too large, and asking costs a short call less than the products do. */
INLINE int may_be_too_large(const cellc_call* c) {
  const cellc_outline* outline = &c->cell->outline;
  uint64_t rows = (uint64_t)(c->extent.rows | c->extent.sequences), parts = 1, depths = 1;
  EACH(s, c->cell->numbers.count.shapes) parts |= (uint64_t)entries(c, s);
  EACH(h, c->cell->numbers.count.histories)
  depths |= (uint64_t)cellc_depth_of(outline, lengths(c), c->cell->areas[c->cell->histories[h].area].reaches);
  EACH(s, c->cell->numbers.count.states)
  depths |= (uint64_t)cellc_depth_of(outline, lengths(c), c->cell->states[s].reaches);
  EACH(p, c->cell->numbers.count.past)
  depths |= (uint64_t)cellc_depth_of(outline, lengths(c), c->cell->past[p].reaches);
  return bits_of(rows) + bits_of(parts) + bits_of(depths) + 3 > 60; /* entries are of 8 bytes at most */
}

/* Whether any array of the caller's would have more bytes than can be counted: then places in it cannot be either. */
INLINE int is_too_large(const cellc_call* c) {
  const int64_t rows = c->extent.rows > c->extent.sequences ? c->extent.rows : c->extent.sequences;
  int64_t most = cellc_times(rows, 8);
  EACH(r, c->cell->numbers.count.rows) {
    const int64_t bytes = cellc_times(cellc_times(rows, entries(c, c->cell->rows[r].shape)), 8);
    if (bytes > most) most = bytes;
  }
  EACH(h, c->cell->numbers.count.histories) {
    const int64_t bytes = cellc_times(c->extent.sequences, area_bytes(c, c->cell->areas + c->cell->histories[h].area));
    if (bytes > most) most = bytes;
  }
  EACH(s, c->cell->numbers.count.states) {
    const cellc_state* state = c->cell->states + s;
    const int64_t depth = state->reaches.count ? cellc_depth_of(&c->cell->outline, lengths(c), state->reaches) : 1;
    const int64_t bytes =
        cellc_times(cellc_times(c->extent.sequences, depth), cellc_times(entries(c, state->shape), 8));
    if (bytes > most) most = bytes;
  }
  EACH(p, c->cell->numbers.count.past) {
    const int64_t bytes = cellc_times(past_bytes(c, c->cell->past + p), c->extent.sequences);
    if (bytes > most) most = bytes;
  }
  return most >= CELLC_MOST_BYTES;
}

static __attribute__((noinline)) int first_missing(const unsigned char* arrays, int64_t rows) {
  int f = 0;
  while (!is_missing(arrays, f, rows)) ++f;
  return CELLC_MISSING_FIELD + f;
}

/* The call, by one of the two functions below: what they do differently is decided when code is made of this. */
INLINE int call_either(const void* lengths, const unsigned char* arrays, void* workspace, int64_t workspace_bytes,
                       int32_t* status, int64_t* size_wanted, uint64_t* values, uint64_t* slots, int side_by_side);

static __attribute__((noinline)) int call_side_by_side(const void* lengths, const unsigned char* arrays,
                                                       void* workspace, int64_t workspace_bytes, int32_t* status,
                                                       int64_t* size_wanted) {
  return call_either(lengths, arrays, workspace, workspace_bytes, status, size_wanted, VALUES, SLOTS, 1);
}

/* Both: where a size is asked for, nothing else is done. */
static __attribute__((noinline)) int call_cell(const void* lengths, const unsigned char* arrays, void* workspace,
                                               int64_t workspace_bytes, int32_t* status, int64_t* size_wanted) {
  return call_either(lengths, arrays, workspace, workspace_bytes, status, size_wanted, VALUES, SLOTS, 0);
}

INLINE int call_either(const void* lengths, const unsigned char* arrays, void* workspace, int64_t workspace_bytes,
                       int32_t* status, int64_t* size_wanted, uint64_t* values, uint64_t* slots, int side_by_side) {
  const cellc_cpu_cell* cell = &cellc_cell;
  cellc_call c = {cell, arrays, values, slots, {0, 0, 0, 0, 0}, 0, 0};
  int result = read_lengths(&c, lengths);
  if (result) return result;
  section(&c, CELLC_LANES)[0] = (uint64_t)(side_by_side ? lanes_of(&c) : 0);
  if (!side_by_side && cell->numbers.lane_vector && lanes_of(&c)) {
    /* In a function of its own: short calls keep theirs as it is. It needs more memory; who has too little for it gets
     * the same bits from sequences that run one after another. */
    result = call_side_by_side(lengths, arrays, workspace, workspace_bytes, status, size_wanted);
    if (result != CELLC_SMALL_WORKSPACE) return result;
  }
  c.block_steps = block_steps(&c);
  const int64_t size = lay_out(&c, workspace);
  if (size >= CELLC_MOST_BYTES || (may_be_too_large(&c) && is_too_large(&c))) return CELLC_TOO_LARGE;
  if (size_wanted) {
    *size_wanted = size;
    return CELLC_DONE;
  }
  if (!arrays) return CELLC_NO_ARRAYS;
  /* Which it is, is asked where one is missing. */
  int missing = 0;
  EACH(f, cell->outline.field_count) missing |= is_missing(arrays, f, c.extent.rows);
  if (missing) return first_missing(arrays, c.extent.rows);
  if (!workspace) return CELLC_NO_WORKSPACE;
  if (workspace_bytes < size) return CELLC_SMALL_WORKSPACE;
  section(&c, CELLC_ZERO)[0] = 0;
  fill_in(&c);
  find_rows(&c);
  if (side_by_side)
    walk_side_by_side(&c, status);
  else
    for (int64_t s = 0; s < c.extent.sequences; ++s) run_sequence(&c, s, status);
  EACH(g, cell->numbers.count.gradients) write_gradient(&c, cell->gradients + g);
  return CELLC_DONE;
}

int cellc_cell_workspace(const void* lengths, int64_t* bytes) {
  return bytes ? call_cell(lengths, 0, 0, 0, 0, bytes) : CELLC_NO_BYTES;
}

int cellc_cell_forward(const void* lengths, const unsigned char* arrays, void* workspace, int64_t workspace_bytes,
                       int32_t* status) {
  return call_cell(lengths, arrays, workspace, workspace_bytes, status, 0);
}

/* What headers call: `layout` is that of the structs that the program was compiled with. */
int cellc_cell_workspace_as(int64_t layout, const void* lengths, int64_t* bytes) {
  return layout == cellc_cell.layout ? cellc_cell_workspace(lengths, bytes) : CELLC_OTHER_LAYOUT;
}

int cellc_cell_forward_as(int64_t layout, const void* lengths, const unsigned char* arrays, void* workspace,
                          int64_t workspace_bytes, int32_t* status) {
  if (layout != cellc_cell.layout) return CELLC_OTHER_LAYOUT;
  return call_cell(lengths, arrays, workspace, workspace_bytes, status, 0);
}

const char* cellc_cell_message(int result) {
  int w = 0;
  while (w < cellc_cell.numbers.count.words - 1 && cellc_cell.words[w].result != result) ++w;
  return cellc_cell.words[w].text;
}

const char* cellc_cell_about(void) { return cellc_cell.about; }
