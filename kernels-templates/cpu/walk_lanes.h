/* Sequences side by side, in kernels over one axis more (compiler/derive/sequences_cell.h). A part of cpu_call.c.
 *
 * A lane walks one sequence after another: where one ends, the next of the batch takes its place with the next block of
 * steps, so lengths may differ and need no order. What a lane computes behind the end of its sequence is never looked
 * at. When no sequence is left, lanes move up, and vectors that have become empty are not walked. */

typedef struct cellc_walk {
  int64_t next, most, active; /* most: lanes at first */
  int64_t sequence[CELLC_MOST_LANES], steps[CELLC_MOST_LANES], done[CELLC_MOST_LANES], left[CELLC_MOST_LANES];
} cellc_walk;

/* How many lie side by side; 0: they are walked one after another. Whole vectors. */
INLINE int64_t lanes_of(const cellc_call* c) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t wide = cell->numbers.lane_vector;
  int64_t all = 0, largest = 0;
  EACH(s, cell->numbers.count.states) {
    const int64_t n = least(entries(c, cell->states[s].shape), CELLC_MOST_BYTES / 64);
    all = least(all + n, CELLC_MOST_BYTES / 2);
    if (n > largest) largest = n;
  }
  EACH(r, cell->numbers.count.lane_rows)
  if (entries(c, cell->rows[cell->lane_rows[r].rows].shape) > CELLC_MOST_LANE_ENTRIES) return 0;
  EACH(g, cell->numbers.count.gradients)
  if (entries(c, cell->gradients[g].shape) > CELLC_MOST_LANE_ENTRIES) return 0;
  if (!cellc_lie_side_by_side(all, largest, cell->numbers.in_registers, wide, c->extent.sequences, c->extent.rows))
    return 0;
  return least((c->extent.sequences + wide - 1) / wide * wide, CELLC_MOST_LANES);
}

INLINE int64_t lanes_now(const cellc_call* c) { return (int64_t)section(c, CELLC_LANES)[0]; }
/* Of a row of all lanes. */
INLINE int64_t lane_row_bytes(const cellc_call* c, const cellc_lane_rows* rows) {
  return entries(c, c->cell->rows[rows->rows].shape) * lanes_now(c) * c->cell->rows[rows->rows].bytes;
}
INLINE void set_lanes(const cellc_call* c, int64_t lanes) {
  section(c, CELLC_LANES)[0] = (uint64_t)lanes;
  EACH(r, c->cell->numbers.count.lane_rows)
  section(c, CELLC_LANE_STEPS)[r] = (uint64_t)lane_row_bytes(c, c->cell->lane_rows + r);
}
/* Steps from that at hand to the one whose row is read. */
INLINE int64_t first_row(const cellc_call* c, const cellc_lane_rows* rows) {
  return c->cell->rows[rows->rows].start_area < 0 ? -(int64_t)rows->back : 1;
}
/* By lane: the row of its next step. */
INLINE uint64_t* places_of(const cellc_call* c, const cellc_lane_rows* rows) {
  return (uint64_t*)area(c, rows->places);
}

/* States of lane `l` go to where they are wanted: from a row of states of all lanes, in arithmetic precision. */
INLINE void end_lane(const cellc_call* c, cellc_walk* w, int64_t l, int32_t* status) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t s = w->sequence[l], n = w->steps[l], lanes = lanes_now(c);
  EACH(u, cell->numbers.count.states) {
    const cellc_lane_state* state = cell->lane_states + u;
    const uint64_t to = final_of(c, u, s);
    const int64_t count = entries(c, cell->states[u].shape);
    const cellc_lane_rows* rows = cell->lane_rows + state->lane_rows;
    /* Its last step may lie in the middle of the block. */
    const uint64_t last = is_narrow(cell)
                              ? area(c, state->held)
                              : area(c, rows->area) + (uint64_t)((w->left[l] - 1) * lane_row_bytes(c, rows));
    if (to) give_lane(real_bytes(cell), last + (uint64_t)(l * real_bytes(cell)), lanes, to, count);
    if (cell->numbers.count.onward)
      give_lane(real_bytes(cell), last + (uint64_t)(l * real_bytes(cell)), lanes, area(c, cell->states[u].carried),
                count);
  }
  EACH(o, cell->numbers.count.onward) pass_onward(c, cell->onward + o, s, n);
  if (cell->numbers.count.histories) find_sequence(c, s);
  EACH(h, cell->numbers.count.histories) write_final_history(c, h, s, n);
  if (status) status[s] = 0;
}

/* The next sequence of the batch that has steps takes the lane. */
INLINE void begin_lane(const cellc_call* c, cellc_walk* w, int64_t l, int32_t* status) {
  const cellc_cpu_cell* cell = c->cell;
  while (w->next < c->extent.sequences) {
    const int64_t s = w->next++, n = find_sequence(c, s);
    begin_gradients(c, s, n);
    if (n == 0) {
      end_sequence(c, s, 0, 0, status);
      continue;
    }
    w->sequence[l] = s;
    w->steps[l] = w->left[l] = n;
    w->done[l] = 0;
    ++w->active;
    EACH(u, cell->numbers.count.states)
    take_lane(real_bytes(cell), area(c, cell->lane_states[u].held) + (uint64_t)(l * real_bytes(cell)), lanes_now(c),
              section(c, CELLC_STARTS)[u], 0, entries(c, cell->states[u].shape), 1);
    EACH(r, cell->numbers.count.lane_rows) {
      const cellc_lane_rows* rows = cell->lane_rows + r;
      places_of(c, rows)[l] = is_absent(c, rows->rows) ? 0 : row_at(c, rows->rows, first_row(c, rows));
    }
    return;
  }
}

/* Lanes that still have steps, to the front; and no more lanes than they fill vectors. */
INLINE void move_up(const cellc_call* c, cellc_walk* w) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t before = lanes_now(c), wide = cell->numbers.lane_vector;
  const int64_t lanes = (w->active + wide - 1) / wide * wide;
  int64_t l, k, e;
  if (lanes >= before) return;
  /* Nothing is written before it is read: a lane moves to a smaller place, or stays. */
  EACH(u, cell->numbers.count.states) {
    const uint64_t held = area(c, cell->lane_states[u].held);
    for (e = 0; e < entries(c, cell->states[u].shape); ++e)
      for (l = k = 0; l < before; ++l) {
        if (w->left[l] == 0) continue;
        if (real_bytes(cell) == 8)
          ((double*)held)[e * lanes + k] = ((const double*)held)[e * before + l];
        else
          ((float*)held)[e * lanes + k] = ((const float*)held)[e * before + l];
        ++k;
      }
  }
  EACH(r, cell->numbers.count.lane_rows) {
    uint64_t* places = places_of(c, cell->lane_rows + r);
    for (l = k = 0; l < before; ++l)
      if (w->left[l] > 0) places[k++] = places[l];
  }
  for (l = k = 0; l < before; ++l) {
    if (w->left[l] == 0) continue;
    w->sequence[k] = w->sequence[l];
    w->steps[k] = w->steps[l];
    w->done[k] = w->done[l];
    w->left[k++] = w->left[l];
  }
  for (; k < before; ++k) w->left[k] = 0;
  set_lanes(c, lanes);
}

/* What lanes read of an input: this step's, or that of some steps back, which the first steps have from before the
 * sequence. */
INLINE void take_inputs(const cellc_call* c, const cellc_walk* w, const cellc_lane_rows* rows, const int64_t* counts,
                        int64_t steps) {
  const cellc_cpu_cell* cell = c->cell;
  const cellc_rows* of = cell->rows + rows->rows;
  const uint64_t to = area(c, rows->area), *places = places_of(c, rows);
  const int64_t stride = (int64_t)section(c, CELLC_STRIDES)[rows->rows], count = entries(c, of->shape);
  const int64_t lanes = lanes_now(c);
  int64_t inside[CELLC_MOST_LANES], l;
  if (of->start_area >= 0) { /* the state before each step: the last one reads a start */
    int64_t most = 0;
    for (l = 0; l < lanes; ++l) {
      const int ends = w->left[l] > 0 && w->left[l] == counts[l];
      inside[l] = counts[l] - ends;
      if (inside[l] > most) most = inside[l];
      if (ends)
        take_lane(of->bytes, to + (uint64_t)(inside[l] * count * lanes * of->bytes + l * of->bytes), lanes,
                  shifted_start(c, of, w->sequence[l]), 0, count, 1);
    }
    take_lanes(of->bytes, to, places, inside, stride, count, lanes, most);
    return;
  }
  if (!rows->back) {
    take_lanes(of->bytes, to, places, counts, stride, count, lanes, steps);
    return;
  }
  const cellc_history* history = cell->histories + rows->history;
  const int64_t depth = cellc_depth_of(&cell->outline, lengths(c), cell->areas[history->area].reaches);
  const uint64_t given_at = given(c, history->field);
  for (l = 0; l < lanes; ++l) {
    const int64_t before = least(counts[l], rows->back - w->done[l]); /* steps that read what was before the sequence */
    inside[l] = counts[l];
    if (before <= 0) continue;
    inside[l] = 0;
    for (int64_t i = 0; i < counts[l]; ++i) {
      const int64_t past = rows->back - w->done[l] - i - 1;
      const uint64_t at = i >= before ? places[l] + (uint64_t)(i * stride)
                                      : (given_at ? given_at + (uint64_t)(w->sequence[l] * depth * count * of->bytes)
                                                  : area(c, history->area)) +
                                            (uint64_t)(past * count * of->bytes);
      take_lane(of->bytes, to + (uint64_t)(i * count * lanes * of->bytes + l * of->bytes), lanes, at, 0, count, 1);
    }
  }
  take_lanes(of->bytes, to, places, inside, stride, count, lanes, steps);
}

/* Of a backward call: what it reads of other steps, and rows of 16 bits, come by the rows of one sequence. */
INLINE void take_earlier_of_lanes(const cellc_call* c, const cellc_walk* w, const int64_t* counts) {
  const cellc_cpu_cell* cell = c->cell;
  for (int64_t l = 0; cell->numbers.count.earlier && l < lanes_now(c); ++l) {
    if (counts[l] == 0) continue;
    find_sequence(c, w->sequence[l]);
    EACH(e, cell->numbers.count.earlier) {
      const cellc_earlier* earlier = cell->earlier + e;
      if (earlier->lane_rows < 0) continue;
      const int64_t count = entries(c, cell->rows[earlier->rows].shape);
      take_earlier(c, earlier, w->sequence[l], w->steps[l], w->done[l], counts[l]);
      take_lane(real_bytes(cell), area(c, cell->lane_rows[earlier->lane_rows].area) + (uint64_t)(l * real_bytes(cell)),
                lanes_now(c), own_row(c, earlier->rows, 0), count * real_bytes(cell), count, counts[l]);
    }
  }
}
INLINE void add_later_of_lanes(const cellc_call* c, const cellc_walk* w, const int64_t* counts) {
  const cellc_cpu_cell* cell = c->cell;
  for (int64_t l = 0; cell->numbers.count.later && l < lanes_now(c); ++l) {
    if (counts[l] == 0) continue;
    find_sequence(c, w->sequence[l]);
    for (int64_t i = 0; i < counts[l]; ++i) EACH(k, cell->numbers.count.later) {
        const cellc_later* later = cell->later + k;
        const cellc_lane_rows* rows = cell->lane_rows + later->lane_rows;
        give_lane(real_bytes(cell),
                  area(c, rows->area) + (uint64_t)(i * lane_row_bytes(c, rows) + l * real_bytes(cell)), lanes_now(c),
                  own_row(c, later->rows, i), entries(c, cell->rows[later->rows].shape));
        add_later(c, later, w->sequence[l], w->steps[l], w->done[l], i);
      }
  }
}

/* A block of steps of all lanes. */
INLINE void walk_block(const cellc_call* c, cellc_walk* w, int64_t steps) {
  const cellc_cpu_cell* cell = c->cell;
  const int64_t lanes = lanes_now(c);
  int64_t counts[CELLC_MOST_LANES], l;
  for (l = 0; l < lanes; ++l) counts[l] = least(w->left[l], steps);
  EACH(r, cell->numbers.count.lane_rows)
  if (cell->rows[cell->lane_rows[r].rows].reads && !is_absent(c, cell->lane_rows[r].rows))
    take_inputs(c, w, cell->lane_rows + r, counts, steps);
  take_earlier_of_lanes(c, w, counts);
  EACH(k, cell->numbers.lane_kernels) run(c, cell->numbers.first_lane_kernel + k, steps);
  add_later_of_lanes(c, w, counts);
  EACH(p, cell->numbers.count.products) add_product_of_lanes(c, cell->products + p, counts, lanes, w->most, steps);
  EACH(r, cell->numbers.count.lane_rows) {
    const cellc_lane_rows* rows = cell->lane_rows + r;
    const cellc_rows* of = cell->rows + rows->rows;
    const int64_t stride = (int64_t)section(c, CELLC_STRIDES)[rows->rows];
    uint64_t* places = places_of(c, rows);
    if (is_absent(c, rows->rows)) continue;
    if (!of->reads)
      give_lanes(of->bytes, area(c, rows->area), places, counts, stride, entries(c, of->shape), lanes, steps);
    for (l = 0; l < lanes; ++l) places[l] += (uint64_t)(counts[l] * stride);
  }
  /* Where the next block begins. */
  EACH(u, cell->numbers.count.states) {
    const cellc_lane_state* state = cell->lane_states + u;
    const cellc_lane_rows* rows = cell->lane_rows + state->lane_rows;
    const int64_t bytes = entries(c, cell->states[u].shape) * lanes * real_bytes(cell);
    if (!is_narrow(cell))
      move(area(c, state->held), area(c, rows->area) + (uint64_t)((steps - 1) * lane_row_bytes(c, rows)), bytes);
    else if (steps % 2) /* after an even number the kernel has left it there */
      move(area(c, state->held), area(c, state->carried), bytes);
  }
}

/* All sequences of a call. */
INLINE void walk_side_by_side(const cellc_call* c, int32_t* status) {
  const cellc_cpu_cell* cell = c->cell;
  cellc_walk w;
  int64_t l;
  int finals = 0;
  w.next = w.active = 0;
  w.most = lanes_now(c);
  set_lanes(c, w.most);
  EACH(u, cell->numbers.count.states) {
    finals |= given(c, cell->states[u].final) != 0;
    clear(area(c, cell->lane_states[u].held), area_bytes(c, cell->areas + cell->lane_states[u].held));
  }
  /* Lanes without a sequence compute with these, and with what is left of others. */
  EACH(r, cell->numbers.count.lane_rows)
  if (cell->rows[cell->lane_rows[r].rows].reads)
    clear(area(c, cell->lane_rows[r].area), area_bytes(c, cell->areas + cell->lane_rows[r].area));
  EACH(g, cell->numbers.count.gradients)
  clear(area(c, cell->gradients[g].lane_area), area_bytes(c, cell->areas + cell->gradients[g].lane_area));
  if (cell->numbers.lane_once >= 0) run(c, cell->numbers.lane_once, 1);
  for (l = 0; l < CELLC_MOST_LANES; ++l) w.left[l] = w.done[l] = 0;
  for (;;) {
    int64_t most = 0, fewest = INT64_MAX, steps;
    for (l = 0; l < lanes_now(c); ++l)
      if (w.left[l] == 0 && w.next < c->extent.sequences) begin_lane(c, &w, l, status);
    if (w.active == 0) break;
    if (w.next == c->extent.sequences) move_up(c, &w);
    for (l = 0; l < lanes_now(c); ++l) {
      if (w.left[l] == 0) continue;
      if (w.left[l] > most) most = w.left[l];
      fewest = least(fewest, w.left[l]);
    }
    /* Rows of 16 bits do not have what a final value has: blocks end with sequences. */
    steps = least(c->block_steps, is_narrow(cell) && finals ? fewest : most);
    walk_block(c, &w, steps);
    for (l = 0; l < lanes_now(c); ++l) {
      if (w.left[l] == 0) continue;
      w.done[l] += steps;
      if (w.left[l] > steps) {
        w.left[l] -= steps;
        continue;
      }
      end_lane(c, &w, l, status);
      w.left[l] = 0;
      --w.active;
    }
  }
  EACH(g, cell->numbers.count.gradients) {
    const cellc_gradient* gradient = cell->gradients + g;
    add_up_lanes((double*)area(c, gradient->area), (const double*)area(c, gradient->lane_area),
                 entries(c, gradient->shape), w.most);
  }
}
