/* Rows of sequences that lie side by side: entry e of step i of lane l stands at (i * entries + e) * lanes + l. A part
 * of cpu_call.c. */

typedef uint32_t cellc_eight __attribute__((vector_size(32), aligned(4)));
typedef uint64_t cellc_four __attribute__((vector_size(32), aligned(8)));

/* Rows and columns of a square of numbers change places: `from` has rows that lie `apart` bytes from each other, or are
 * anywhere (`rows`); likewise where it goes. */
INLINE void turn_eight(cellc_eight* r) {
  cellc_eight t[8];
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
  EACH(i, 4) t[2 * i] = LOW(r[2 * i], r[2 * i + 1]), t[2 * i + 1] = HIGH(r[2 * i], r[2 * i + 1]);
#undef LOW
#undef HIGH
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
  EACH(h, 2) {
    r[4 * h] = LOW(t[4 * h], t[4 * h + 2]), r[4 * h + 1] = HIGH(t[4 * h], t[4 * h + 2]);
    r[4 * h + 2] = LOW(t[4 * h + 1], t[4 * h + 3]), r[4 * h + 3] = HIGH(t[4 * h + 1], t[4 * h + 3]);
  }
#undef LOW
#undef HIGH
  EACH(k, 4) {
    t[k] = __builtin_shufflevector(r[k], r[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[k + 4] = __builtin_shufflevector(r[k], r[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  EACH(k, 8) r[k] = t[k];
}
INLINE void turn_four(cellc_four* r) {
  cellc_four t[4];
  EACH(h, 2) {
    t[2 * h] = __builtin_shufflevector(r[2 * h], r[2 * h + 1], 0, 4, 2, 6);
    t[2 * h + 1] = __builtin_shufflevector(r[2 * h], r[2 * h + 1], 1, 5, 3, 7);
  }
  EACH(k, 2) {
    r[k] = __builtin_shufflevector(t[k], t[k + 2], 0, 1, 4, 5);
    r[k + 2] = __builtin_shufflevector(t[k], t[k + 2], 2, 3, 6, 7);
  }
}

/* One number, from its row to its lane or back. */
INLINE void move_number(int bytes, int gathers, uint64_t lane, uint64_t row) {
  void* to = (void*)(gathers ? lane : row);
  const void* from = (const void*)(gathers ? row : lane);
  if (bytes == 2)
    memcpy(to, from, 2);
  else if (bytes == 4)
    memcpy(to, from, 4);
  else
    memcpy(to, from, 8);
}

/* `steps` of one lane. */
INLINE void move_lane(int bytes, int gathers, uint64_t lane, int64_t lane_row, int64_t lanes, uint64_t row,
                      int64_t stride, int64_t count, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i)
    for (int64_t e = 0; e < count; ++e)
      move_number(bytes, gathers, lane + (uint64_t)(i * lane_row + e * lanes * bytes),
                  row + (uint64_t)(i * stride + e * bytes));
}

/* Eight lanes, or four of eight bytes, whose rows are one number: one behind another in memory from step to step, or
 * one before another (`down`), as where time runs backwards. */
INLINE void turn_lanes(int bytes, int gathers, int down, uint64_t lane, int64_t lane_row, const uint64_t* rows,
                       int64_t steps) {
  const int wide = 32 / bytes;
  const uint64_t stride = (uint64_t)(down ? -bytes : bytes);
  int64_t i = 0;
  for (; i + wide <= steps; i += wide) {
    const uint64_t first = (uint64_t)(down ? i + wide - 1 : i) * stride; /* in memory */
    const uint64_t step = lane + (uint64_t)((down ? i + wide - 1 : i) * lane_row);
    const uint64_t next = (uint64_t)(down ? -lane_row : lane_row);
    if (bytes == 4) {
      cellc_eight r[8];
      EACH(k, 8) r[k] = *(const cellc_eight*)(gathers ? rows[k] + first : step + (uint64_t)k * next);
      turn_eight(r);
      EACH(k, 8) * (cellc_eight*)(gathers ? step + (uint64_t)k * next : rows[k] + first) = r[k];
    } else {
      cellc_four r[4];
      EACH(k, 4) r[k] = *(const cellc_four*)(gathers ? rows[k] + first : step + (uint64_t)k * next);
      turn_four(r);
      EACH(k, 4) * (cellc_four*)(gathers ? step + (uint64_t)k * next : rows[k] + first) = r[k];
    }
  }
  for (; i < steps; ++i) EACH(k, wide)
  move_number(bytes, gathers, lane + (uint64_t)(i * lane_row + k * bytes), rows[k] + (uint64_t)i * stride);
}

/* The same of neighbours in memory: nothing has to be turned. */
INLINE void copy_lanes(int gathers, uint64_t lane, int64_t lane_row, uint64_t row, int64_t stride, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) {
    const uint64_t here = lane + (uint64_t)(i * lane_row), there = row + (uint64_t)(i * stride);
    memcpy((void*)(gathers ? here : there), (const void*)(gathers ? there : here), 32);
  }
}

/* `counts` steps of each lane, `steps` at most, to the lanes' rows or back. `rows`: by lane, where its first one is. */
INLINE void move_lanes(int bytes, int gathers, uint64_t to, const uint64_t* rows, const int64_t* counts, int64_t stride,
                       int64_t count, int64_t lanes, int64_t steps) {
  const int wide = 32 / bytes;
  const int64_t lane_row = count * lanes * bytes;
  for (int64_t l = 0; l < lanes;) {
    const uint64_t lane = to + (uint64_t)(l * bytes);
    int whole = bytes > 2 && count == 1 && l + wide <= lanes, next = 1;
    for (int k = 0; whole && k < wide; ++k) {
      whole = counts[l + k] == steps;
      next &= rows[l + k] == rows[l] + (uint64_t)(k * bytes);
    }
    if (whole && (next || stride == bytes || stride == -bytes)) {
      if (next)
        copy_lanes(gathers, lane, lane_row, rows[l], stride, steps);
      else if (stride == bytes)
        turn_lanes(bytes, gathers, 0, lane, lane_row, rows + l, steps);
      else
        turn_lanes(bytes, gathers, 1, lane, lane_row, rows + l, steps);
      l += wide;
    } else {
      move_lane(bytes, gathers, lane, lane_row, lanes, rows[l], stride, count, counts[l]);
      ++l;
    }
  }
}

/* Of a cell's one width of numbers: values alone, since a function that is not inlined must not see the call. */
static __attribute__((noinline)) void take_lanes(int bytes, uint64_t to, const uint64_t* rows, const int64_t* counts,
                                                 int64_t stride, int64_t count, int64_t lanes, int64_t steps) {
  if (bytes == 2)
    move_lanes(2, 1, to, rows, counts, stride, count, lanes, steps);
  else if (bytes == 4)
    move_lanes(4, 1, to, rows, counts, stride, count, lanes, steps);
  else
    move_lanes(8, 1, to, rows, counts, stride, count, lanes, steps);
}
static __attribute__((noinline)) void give_lanes(int bytes, uint64_t from, const uint64_t* rows, const int64_t* counts,
                                                 int64_t stride, int64_t count, int64_t lanes, int64_t steps) {
  if (bytes == 2)
    move_lanes(2, 0, from, rows, counts, stride, count, lanes, steps);
  else if (bytes == 4)
    move_lanes(4, 0, from, rows, counts, stride, count, lanes, steps);
  else
    move_lanes(8, 0, from, rows, counts, stride, count, lanes, steps);
}
/* One lane. */
static __attribute__((noinline)) void take_lane(int bytes, uint64_t lane, int64_t lanes, uint64_t row, int64_t stride,
                                                int64_t count, int64_t steps) {
  move_lane(bytes, 1, lane, count * lanes * bytes, lanes, row, stride, count, steps);
}
static __attribute__((noinline)) void give_lane(int bytes, uint64_t lane, int64_t lanes, uint64_t row, int64_t count) {
  move_lane(bytes, 0, lane, 0, lanes, row, 0, count, 1);
}
