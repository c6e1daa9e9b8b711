/* What a backward call reads of other steps than the one at hand, and the gradients of that. A part of cpu_call.c. Rows
 * of 16 bits become f32 here too: of a cell with such rows all that the adjoint reads is brought to the workspace.
 *
 * A call goes from the last step to the first: its step t is the forward run's n - 1 - t, and what that read `back`
 * steps before is the call's own row t + back. */

/* Numbers of a row, one every `apart` entries, in arithmetic precision. `from` 0: zeros. */
static __attribute__((noinline)) void take_row(int storage, int wide, uint64_t to, int64_t apart, uint64_t from,
                                               int64_t count) {
  int64_t i;
  for (i = 0; i < count; ++i) {
    if (wide) {
      ((double*)to)[i * apart] = from ? ((const double*)from)[i] : 0;
    } else if (!from || storage == CELLC_F32) {
      ((float*)to)[i * apart] = from ? ((const float*)from)[i] : 0;
    } else if (storage == CELLC_F16) {
      ((float*)to)[i * apart] = (float)((const _Float16*)from)[i];
    } else {
      const uint32_t bits = (uint32_t)((const uint16_t*)from)[i] << 16;
      memcpy((float*)to + i * apart, &bits, 4);
    }
  }
}

/* As rows of 16 bits would hold them. */
static __attribute__((noinline)) void round_row(int storage, uint64_t at, int64_t apart, int64_t count) {
  int64_t i;
  for (i = 0; i < count; ++i) ((float*)at)[i * apart] = narrowed(storage, ((float*)at)[i * apart]);
}

static __attribute__((noinline)) void add_row(int wide, uint64_t to, uint64_t from, int64_t apart, int64_t count) {
  int64_t i;
  for (i = 0; i < count; ++i) {
    if (wide)
      ((double*)to)[i] += ((const double*)from)[i * apart];
    else
      ((float*)to)[i] += ((const float*)from)[i * apart];
  }
}

INLINE int is_wide(const cellc_cpu_cell* cell) { return cell->numbers.storage == CELLC_F64; }

INLINE void take_earlier(const cellc_call* c, const cellc_earlier* e, int64_t s, int64_t n, int64_t t, int64_t steps) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t count = entries(c, cell->rows[e->source].shape), along = e->along < 0 ? 1 : lengths(c)[e->along];
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), e->reaches);
  const uint64_t to = own_row(c, e->rows, 0), start = given(c, e->start), history = given(c, e->history);
  int64_t i, w;
  for (i = 0; i < steps; ++i)
    for (w = 0; w < along; ++w) {
      const int64_t before = e->back + w - (n - 1 - t - i); /* the first step: 1 is the one before it */
      const uint64_t here = to + (uint64_t)((i * count * along + w) * real_bytes(cell));
      int storage = cell->numbers.rows_storage;
      uint64_t from = 0;
      if (before <= 0) {
        if (section(c, CELLC_GIVEN)[e->source]) from = row_at(c, e->source, t + i + e->back + w);
      } else if (e->is_state) {
        storage = cell->numbers.storage;
        if (before > 1 && history)
          from = history + (uint64_t)((s * depth + before - 2) * count * real_bytes(cell));
        else if (start)
          from = start + (uint64_t)(s * count * real_bytes(cell));
      } else if (history) {
        from = history + (uint64_t)((s * depth + before - 1) * count * cell->rows[e->source].bytes);
      }
      take_row(storage, is_wide(cell), here, along, from, count);
      if (e->in_line && before > 0 &&
          (cell->numbers.rows_storage == CELLC_F16 || cell->numbers.rows_storage == CELLC_BF16))
        round_row(cell->numbers.rows_storage, here, along, count);
    }
}

/* One step of a block: so the order of a sum is that of the run, however it is cut into blocks. */
INLINE void add_later(const cellc_call* c, const cellc_later* l, int64_t s, int64_t n, int64_t t, int64_t step) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t count = entries(c, cell->rows[l->target].shape), along = l->along < 0 ? 1 : lengths(c)[l->along];
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), l->reaches);
  const uint64_t from = own_row(c, l->rows, step), history = given(c, l->history);
  int64_t w;
  for (w = 0; w < along; ++w) {
    const int64_t before = l->back + w - (n - 1 - t - step);
    uint64_t to = 0;
    if (before <= 0) {
      if (section(c, CELLC_GIVEN)[l->target]) to = row_at(c, l->target, t + step + l->back + w);
    } else if (history) {
      to = history + (uint64_t)((s * depth + before - 1) * count * real_bytes(cell));
    }
    if (to) add_row(is_wide(cell), to, from + (uint64_t)(w * real_bytes(cell)), along, count);
  }
}

/* Of one sequence. */
INLINE int64_t past_bytes(const cellc_call* c, const cellc_past* p) {
  return cellc_times(cellc_times(cellc_depth_of(&c->cell->outline, lengths(c), p->reaches), entries(c, p->shape)),
                     real_bytes(c->cell));
}

INLINE void begin_past(const cellc_call* c, const cellc_past* p, int64_t s) {
  const uint64_t to = given(c, p->field);
  if (to && p->adds) clear(to + (uint64_t)(s * past_bytes(c, p)), past_bytes(c, p));
}

/* What nothing but sums is written to. */
INLINE void begin_gradients(const cellc_call* c, int64_t s, int64_t n) {
  const cellc_cpu_cell* cell = c->cell;
  int64_t t;
  EACH(k, cell->numbers.count.cleared) {
    const int r = cell->cleared[k];
    if (section(c, CELLC_GIVEN)[r])
      for (t = 0; t < n; ++t) clear(row_at(c, r, t), entries(c, cell->rows[r].shape) * storage_bytes(cell));
  }
  EACH(p, cell->numbers.count.past) begin_past(c, cell->past + p, s);
}

/* After all states are written. */
INLINE void pass_onward(const cellc_call* c, const cellc_onward* o, int64_t s, int64_t n) {
  const cellc_cpu_cell* cell = c->cell;
  const cellc_state* state = cell->states + o->state;
  const int64_t count = entries(c, state->shape), bytes = count * real_bytes(cell);
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), o->reaches);
  const uint64_t start = given(c, o->start), history = given(c, o->history), has_past = given(c, o->given);
  const int64_t parts = o->is_line ? least(n, o->lag) : 1;
  int64_t f;
  for (f = 0; f < parts; ++f) {
    const int64_t before = o->is_line ? o->lag - 1 - f : o->lag; /* 0: the start */
    const uint64_t from = o->is_line ? own_row(c, state->rows, -1 - f)
                          : n == 0   ? section(c, CELLC_STARTS)[o->state]
                                     : area(c, state->carried);
    if (start && (before == 0 || !has_past)) add_row(is_wide(cell), start + (uint64_t)(s * bytes), from, 1, count);
    if (history && before > 0)
      add_row(is_wide(cell), history + (uint64_t)((s * depth + before - 1) * bytes), from, 1, count);
  }
}
