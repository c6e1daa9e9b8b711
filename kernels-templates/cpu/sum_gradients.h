/* Gradients of params in a backward call: sums over all steps of all sequences of products of rows, step by step in the
 * order of the run, in f64. A part of cpu_call.c. Functions that are not inlined never see the call's own memory:
 * where one could, nothing of it would become a register or a constant, in cells without gradients either.
 *
 * The factors of W@x are rows of G over d and of X over k, and the gradient is Σ_t G[d]·X[k]; that of a·h is one row
 * over d. So a product is a nest of loops, each over an axis of the factors or of the param; an array without an axis
 * stands still along it. */
enum { CELLC_MOST_LOOPS = 16 };

/* Entries from index to index of each loop in an array whose axes are these loops, in order. */
INLINE void find_strides(const cellc_cpu_cell* cell, cellc_dims dims, const int64_t* lengths, int64_t* strides) {
  int64_t entries = 1;
  for (int i = 0; i < CELLC_MOST_LOOPS; ++i) strides[i] = 0;
  for (int i = dims.count - 1; i >= 0; --i) {
    const int loop = cell->outline.axes[dims.first + i];
    strides[loop] += entries;
    entries *= lengths[loop];
  }
}

INLINE double number_at(const cellc_cpu_cell* cell, uint64_t row, int64_t entry) {
  return cell->numbers.storage == CELLC_F64 ? ((const double*)row)[entry] : (double)((const float*)row)[entry];
}

/* One step. The last loop is the innermost. */
static __attribute__((noinline)) void add_step(const cellc_cpu_cell* cell, double* to, uint64_t left, uint64_t right,
                                               int loops, const int64_t* lengths,
                                               const int64_t (*strides)[CELLC_MOST_LOOPS]) {
  int64_t at[CELLC_MOST_LOOPS] = {0}, place[3] = {0, 0, 0};
  const int last = loops - 1;
  const int64_t inner = loops ? lengths[last] : 1;
  const int64_t step[3] = {loops ? strides[0][last] : 0, loops ? strides[1][last] : 0, loops ? strides[2][last] : 0};
  for (;;) {
    for (int64_t i = 0; i < inner; ++i)
      to[place[0] + i * step[0]] += number_at(cell, left, place[1] + i * step[1]) *
                                    (right ? number_at(cell, right, place[2] + i * step[2]) : 1.0);
    int l = last - 1;
    for (; l >= 0; --l) {
      for (int a = 0; a < 3; ++a) place[a] += strides[a][l];
      if (++at[l] < lengths[l]) break;
      for (int a = 0; a < 3; ++a) place[a] -= lengths[l] * strides[a][l];
      at[l] = 0;
    }
    if (l < 0) return;
  }
}

/* Of each factor the row of the first step, and bytes from step to step. `right` 0: there is none. No structs: by value
 * they need attributes of LLVM, which link_call.cc takes away. */
static __attribute__((noinline)) void add_steps(const cellc_cpu_cell* cell, const cellc_step_product* p, int64_t steps,
                                                const int64_t* lengths, double* to, uint64_t left, uint64_t left_bytes,
                                                uint64_t right, uint64_t right_bytes) {
  int64_t strides[3][CELLC_MOST_LOOPS];
  for (int l = 0; l < p->loops.count; ++l)
    if (lengths[l] == 0) return;
  find_strides(cell, p->of_gradient, lengths, strides[0]);
  find_strides(cell, p->of_left, lengths, strides[1]);
  find_strides(cell, p->of_right, lengths, strides[2]);
  for (int64_t t = 0; t < steps; ++t, left += left_bytes, right += right_bytes)
    add_step(cell, to, left, right, p->loops.count, lengths, (const int64_t(*)[CELLC_MOST_LOOPS])strides);
}

/* The steps of a block. */
INLINE void add_product(const cellc_call* c, const cellc_step_product* p, int64_t steps) {
  const cellc_gradient* gradient = c->cell->gradients + p->gradient;
  const uint64_t *rows = section(c, CELLC_ROWS), *bytes = section(c, CELLC_STRIDES);
  int64_t lengths_of[CELLC_MOST_LOOPS];
  if (!given(c, gradient->field)) return;
  EACH(l, p->loops.count) lengths_of[l] = lengths(c)[c->cell->outline.axes[p->loops.first + l]];
  add_steps(c->cell, p, steps, lengths_of, (double*)area(c, gradient->area), rows[p->left], bytes[p->left],
            p->right < 0 ? 0 : rows[p->right], p->right < 0 ? 0 : bytes[p->right]);
}

/* The same of sequences side by side: each lane has a sum of its own, of all sequences that it walks, and they are
 * added up at the end. What a lane computes behind the end of its sequence may be anything, and is left out. */
typedef double cellc_sums __attribute__((vector_size(64), aligned(8)));
typedef int64_t cellc_marks __attribute__((vector_size(64), aligned(8)));
typedef float cellc_singles __attribute__((vector_size(32), aligned(4)));
enum { CELLC_SUM_LANES = 8 };

INLINE void read_numbers(int wide, uint64_t at, cellc_sums* to) {
  *to = wide ? *(const cellc_sums*)at : __builtin_convertvector(*(const cellc_singles*)at, cellc_sums);
}

/* One place of each factor, of all lanes: `steps` of them. */
INLINE void add_lanes(int wide, double* to, const int64_t* counts, int64_t lanes, int64_t steps, uint64_t left,
                      int64_t left_bytes, uint64_t right, int64_t right_bytes) {
  const int bytes = wide ? 8 : 4;
  int64_t l = 0, i;
  for (; l + CELLC_SUM_LANES <= lanes; l += CELLC_SUM_LANES) {
    const cellc_marks inside = *(const cellc_marks*)(counts + l);
    cellc_sums sum = *(cellc_sums*)(to + l);
    for (i = 0; i < steps; ++i) {
      cellc_sums product, factor;
      read_numbers(wide, left + (uint64_t)(i * left_bytes + l * bytes), &product);
      if (right) {
        read_numbers(wide, right + (uint64_t)(i * right_bytes + l * bytes), &factor);
        product *= factor;
      }
      sum += (cellc_sums)((cellc_marks)product & (inside > i));
    }
    *(cellc_sums*)(to + l) = sum;
  }
  for (; l < lanes; ++l)
    for (i = 0; i < steps && i < counts[l]; ++i) {
      const uint64_t a = left + (uint64_t)(i * left_bytes + l * bytes),
                     b = right + (uint64_t)(i * right_bytes + l * bytes);
      to[l] += (wide ? *(const double*)a : (double)*(const float*)a) * (!right ? 1.0
                                                                        : wide ? *(const double*)b
                                                                               : (double)*(const float*)b);
    }
}

/* As add_steps(): `most` sums an entry of the gradient, of which `lanes` are in use. */
static __attribute__((noinline)) void add_steps_of_lanes(const cellc_cpu_cell* cell, const cellc_step_product* p,
                                                         int64_t steps, const int64_t* lengths, const int64_t* counts,
                                                         int64_t lanes, int64_t most, double* to, uint64_t left,
                                                         int64_t left_bytes, uint64_t right, int64_t right_bytes) {
  int64_t strides[3][CELLC_MOST_LOOPS], at[CELLC_MOST_LOOPS] = {0}, place[3] = {0, 0, 0};
  const int loops = p->loops.count, wide = cell->numbers.storage == CELLC_F64;
  for (int l = 0; l < loops; ++l)
    if (lengths[l] == 0) return;
  find_strides(cell, p->of_gradient, lengths, strides[0]);
  find_strides(cell, p->of_left, lengths, strides[1]);
  find_strides(cell, p->of_right, lengths, strides[2]);
  for (;;) {
    const int64_t apart = lanes * (wide ? 8 : 4);
    const uint64_t a = left + (uint64_t)(place[1] * apart), b = right ? right + (uint64_t)(place[2] * apart) : 0;
    if (wide)
      add_lanes(1, to + place[0] * most, counts, lanes, steps, a, left_bytes, b, right_bytes);
    else
      add_lanes(0, to + place[0] * most, counts, lanes, steps, a, left_bytes, b, right_bytes);
    int l = loops - 1;
    for (; l >= 0; --l) {
      for (int k = 0; k < 3; ++k) place[k] += strides[k][l];
      if (++at[l] < lengths[l]) break;
      for (int k = 0; k < 3; ++k) place[k] -= lengths[l] * strides[k][l];
      at[l] = 0;
    }
    if (l < 0) return;
  }
}

static __attribute__((noinline)) void add_up_lanes(double* to, const double* from, int64_t count, int64_t lanes) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t l = 0; l < lanes; ++l) to[i] += from[i * lanes + l];
}

INLINE void add_product_of_lanes(const cellc_call* c, const cellc_step_product* p, const int64_t* counts, int64_t lanes,
                                 int64_t most, int64_t steps) {
  const cellc_cpu_cell* cell = c->cell;
  const cellc_gradient* gradient = cell->gradients + p->gradient;
  const uint64_t* bytes = section(c, CELLC_LANE_STEPS);
  int64_t lengths_of[CELLC_MOST_LOOPS];
  if (!given(c, gradient->field)) return;
  EACH(l, p->loops.count) lengths_of[l] = lengths(c)[cell->outline.axes[p->loops.first + l]];
  add_steps_of_lanes(cell, p, steps, lengths_of, counts, lanes, most, (double*)area(c, gradient->lane_area),
                     area(c, cell->lane_rows[p->lane_left].area), (int64_t)bytes[p->lane_left],
                     p->right < 0 ? 0 : area(c, cell->lane_rows[p->lane_right].area),
                     p->right < 0 ? 0 : (int64_t)bytes[p->lane_right]);
}

static __attribute__((noinline)) void write_sums(int storage, uint64_t to, const double* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (storage == CELLC_F64)
      ((double*)to)[i] = from[i];
    else
      ((float*)to)[i] = (float)from[i];
  }
}

INLINE void write_gradient(const cellc_call* c, const cellc_gradient* g) {
  const uint64_t to = given(c, g->field);
  if (to) write_sums(c->cell->numbers.storage, to, (const double*)area(c, g->area), entries(c, g->shape));
}
