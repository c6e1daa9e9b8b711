// Rows of other steps as shipped backward calls have them: read where the caller's arrays lie, with the gaps and in the
// numbers that these have, and added there. The arguments are those of host/host_shifts.h. Needs shifted_rows.cuh and
// call.cuh.
#pragma once

namespace cellc {

struct ShiftedRows {
  RowsOfRun run;              ///< offsets null: all sequences are as long
  unsigned long long rows;    ///< [rows, entries, along], without gaps
  unsigned long long others;  ///< the caller's rows: those that are read, or added to
  long long sequence, step, type;
  unsigned long long start, history;  ///< [sequences, entries], [sequences, depth, entries]; null: there is none
  long long entries, back, along, depth;
  long long is_state;  ///< one step before the first it has its start, and then its history
  long long first;     ///< of what is under way: the first step whose part the start gets
};

CELLC_DEVICE StepOfRow sequence_of(const RowsOfRun& run, long long sequence) {
  StepOfRow at;
  at.sequence = sequence;
  at.first = run.offsets ? run.offsets[sequence] : sequence * run.length;
  at.steps = run.offsets ? run.offsets[sequence + 1] - at.first : run.length;
  at.step = 0;
  return at;
}
CELLC_DEVICE long long others_row(const ShiftedRows& p, const StepOfRow& at, long long step) {
  const long long row = row_of(p.run, at, step);
  return p.run.offsets ? row * p.step : at.sequence * p.sequence + (row - at.first) * p.step;
}
CELLC_DEVICE Real load_real(unsigned long long from, long long at, long long type) {
  const auto* const data = reinterpret_cast<const void*>(from);
  if (type == (sizeof(Real) == 8 ? kCopyF64 : kCopyF32)) return static_cast<const Real*>(data)[at];
  return static_cast<Real>(load_as(data, at, static_cast<int>(type)));
}

/// What a step reads `back` + w steps before.
CELLC_DEVICE void earlier_rows(const ShiftedRows& p) {
  Real* const to = reinterpret_cast<Real*>(p.rows);
  each_of(p.run.rows * p.entries * p.along, [&](long long i) {
    const long long position = quotient(i, p.along), w = i - position * p.along;
    const long long row = quotient(position, p.entries), entry = position - row * p.entries;
    const StepOfRow at = step_of(p.run, row);
    const long long step = at.step - p.back - w, before = -step - p.is_state;  // before the history begins: 0
    Real value = 0;
    if (step >= 0)
      value = load_real(p.others, others_row(p, at, step) + entry, p.type);
    else if (p.history && before > 0)
      value = load_real(p.history, (at.sequence * p.depth + before - 1) * p.entries + entry,
                        p.is_state ? (sizeof(Real) == 8 ? kCopyF64 : kCopyF32) : p.type);
    else if (p.start)
      value = reinterpret_cast<const Real*>(p.start)[at.sequence * p.entries + entry];
    to[i] = value;
  });
}

/// The way back: every entry gathers what later steps read of it, in one order.
CELLC_DEVICE void add_later_rows(const ShiftedRows& p) {
  const Real* const rows = reinterpret_cast<const Real*>(p.rows);
  each_of(p.run.rows * p.entries, [&](long long i) {
    const long long row = quotient(i, p.entries), entry = i - row * p.entries;
    const StepOfRow at = step_of(p.run, row);
    Real sum = 0;
    for (long long w = 0; w < p.along && at.step + p.back + w < at.steps; ++w)
      sum += rows[(row_of(p.run, at, at.step + p.back + w) * p.entries + entry) * p.along + w];
    reinterpret_cast<Real*>(p.others)[others_row(p, at, at.step) + entry] += sum;
  });
}
CELLC_DEVICE void add_later_history(const ShiftedRows& p) {
  const Real* const rows = reinterpret_cast<const Real*>(p.rows);
  each_of(p.run.sequences * p.depth * p.entries, [&](long long i) {
    const long long place = quotient(i, p.entries), entry = i - place * p.entries;
    const long long sequence = quotient(place, p.depth), before = place - sequence * p.depth + 1;
    const StepOfRow at = sequence_of(p.run, sequence);
    Real sum = 0;
    for (long long w = 0; w < p.along; ++w) {
      const long long step = p.back + w - before;
      if (step >= 0 && step < at.steps) sum += rows[(row_of(p.run, at, step) * p.entries + entry) * p.along + w];
    }
    reinterpret_cast<Real*>(p.history)[i] += sum;
  });
}

/// A start gets what is under way of it: parts of the steps from `first` on, below `back`.
CELLC_DEVICE void add_past_to_start(const ShiftedRows& p) {
  const Real* const rows = reinterpret_cast<const Real*>(p.rows);
  each_of(p.run.sequences * p.entries, [&](long long i) {
    const long long sequence = quotient(i, p.entries), entry = i - sequence * p.entries;
    const StepOfRow at = sequence_of(p.run, sequence);
    Real sum = 0;
    for (long long step = p.first; step < p.back && step < at.steps; ++step)
      sum += rows[row_of(p.run, at, step) * p.entries + entry];
    reinterpret_cast<Real*>(p.start)[i] += sum;
  });
}

}  // namespace cellc
