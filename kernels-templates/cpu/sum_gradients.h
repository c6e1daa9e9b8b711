/* Gradients of params in a backward call: sums over all steps of all sequences of products of rows, step by step in the
 * order of the run, in f64. A part of cpu_call.c.
 *
 * The factors of W@x are rows of G over d and of X over k, and the gradient is Σ_t G[d]·X[k]; that of a·h is one row
 * over d. So a product is a nest of loops, each over an axis of the factors or of the param; an array without an axis
 * stands still along it. */
enum { CELLC_MOST_LOOPS = 16 };

/* Entries from index to index of each loop in an array whose axes are these loops, in order. */
INLINE void find_strides(const cellc_call* c, cellc_dims dims, const int64_t* lengths, int64_t* strides) {
  int64_t entries = 1;
  for (int i = 0; i < CELLC_MOST_LOOPS; ++i) strides[i] = 0;
  for (int i = dims.count - 1; i >= 0; --i) {
    const int loop = c->cell->outline.axes[dims.first + i];
    strides[loop] += entries;
    entries *= lengths[loop];
  }
}

INLINE double number_at(const cellc_call* c, uint64_t row, int64_t entry) {
  return c->cell->numbers.storage == CELLC_F64 ? ((const double*)row)[entry] : (double)((const float*)row)[entry];
}

/* One step. The last loop is the innermost. */
static __attribute__((noinline)) void add_step(const cellc_call* c, double* to, uint64_t left, uint64_t right,
                                               int loops, const int64_t* lengths,
                                               const int64_t (*strides)[CELLC_MOST_LOOPS]) {
  int64_t at[CELLC_MOST_LOOPS] = {0}, place[3] = {0, 0, 0};
  const int last = loops - 1;
  const int64_t inner = loops ? lengths[last] : 1;
  const int64_t step[3] = {loops ? strides[0][last] : 0, loops ? strides[1][last] : 0, loops ? strides[2][last] : 0};
  for (;;) {
    for (int64_t i = 0; i < inner; ++i)
      to[place[0] + i * step[0]] +=
          number_at(c, left, place[1] + i * step[1]) * (right ? number_at(c, right, place[2] + i * step[2]) : 1.0);
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

/* The steps of a block. */
static __attribute__((noinline)) void add_product(const cellc_call* c, const cellc_product* p, int64_t steps) {
  const cellc_gradient* gradient = c->cell->gradients + p->gradient;
  int64_t lengths_of[CELLC_MOST_LOOPS], strides[3][CELLC_MOST_LOOPS];
  const int64_t* axes = (const int64_t*)(c->values + c->cell->places[CELLC_LENGTHS]);
  if (!cellc_word(c->arrays, c->cell->outline.fields[gradient->field].word)) return;
  for (int l = 0; l < p->loops.count; ++l) {
    lengths_of[l] = axes[c->cell->outline.axes[p->loops.first + l]];
    if (lengths_of[l] == 0) return;
  }
  find_strides(c, p->of_gradient, lengths_of, strides[0]);
  find_strides(c, p->of_left, lengths_of, strides[1]);
  find_strides(c, p->of_right, lengths_of, strides[2]);
  for (int64_t t = 0; t < steps; ++t) {
    const uint64_t* rows = c->values + c->cell->places[CELLC_ROWS];
    const uint64_t* bytes = c->values + c->cell->places[CELLC_STRIDES];
    const uint64_t left = rows[p->left] + (uint64_t)t * bytes[p->left];
    const uint64_t right = p->right < 0 ? 0 : rows[p->right] + (uint64_t)t * bytes[p->right];
    add_step(c, (double*)c->values[c->cell->places[CELLC_AREAS] + gradient->area], left, right, p->loops.count,
             lengths_of, (const int64_t(*)[CELLC_MOST_LOOPS])strides);
  }
}

static __attribute__((noinline)) void write_gradient(const cellc_call* c, const cellc_gradient* g) {
  const uint64_t to = (uint64_t)cellc_word(c->arrays, c->cell->outline.fields[g->field].word);
  const double* from = (const double*)c->values[c->cell->places[CELLC_AREAS] + g->area];
  const int64_t count = (int64_t)c->values[c->cell->places[CELLC_ENTRIES] + g->shape];
  if (!to) return;
  for (int64_t i = 0; i < count; ++i) {
    if (c->cell->numbers.storage == CELLC_F64)
      ((double*)to)[i] = from[i];
    else
      ((float*)to)[i] = (float)from[i];
  }
}
