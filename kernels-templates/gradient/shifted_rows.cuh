// Rows of other steps, for a backward run: the state before each step, what steps read of earlier ones, and what
// earlier steps get of those that read them. Needs preamble.cuh and gradient_arguments.cuh.
#pragma once

namespace cellc {

/// Where a row stands in its sequence, in the order of the forward run.
struct StepOfRow {
  long long sequence, first, steps, step;
};

CELLC_DEVICE StepOfRow step_of(const RowsOfRun& run, long long row) {
  StepOfRow at;
  if (run.length > 0) {
    at.sequence = quotient(row, run.length);
    at.first = at.sequence * run.length;
    at.steps = run.length;
  } else {
    // The last sequence that begins at or before the row: empty ones share their offset.
    long long low = 0, high = run.sequences;
    while (low + 1 < high) {
      const long long middle = (low + high) / 2;
      (run.offsets[middle] <= row ? low : high) = middle;
    }
    at.sequence = low;
    at.first = run.offsets[low];
    at.steps = run.offsets[low + 1] - at.first;
  }
  at.step = run.reverse ? at.first + at.steps - 1 - row : row - at.first;
  return at;
}
CELLC_DEVICE long long row_of(const RowsOfRun& run, const StepOfRow& at, long long step) {
  return run.reverse ? at.first + at.steps - 1 - step : at.first + step;
}

CELLC_DEVICE void previous_rows(const PreviousRows& p) {
  each_of(p.run.rows * p.entries, [&](long long i) {
    const long long row = quotient(i, p.entries), entry = i - row * p.entries;
    const StepOfRow at = step_of(p.run, row);
    static_cast<Real*>(p.to)[i] =
        at.step == 0 ? static_cast<const Real*>(p.start)[at.sequence * p.entries + entry]
                     : static_cast<const Real*>(p.trajectory)[row_of(p.run, at, at.step - 1) * p.entries + entry];
  });
}

CELLC_DEVICE void lagged_rows(const LaggedRows& p) {
  each_of(p.run.rows * p.entries * p.along, [&](long long i) {
    const long long position = quotient(i, p.along), w = i - position * p.along;
    const long long row = quotient(position, p.entries), entry = position - row * p.entries;
    const StepOfRow at = step_of(p.run, row);
    const long long from = at.step - p.lag - w;
    static_cast<Real*>(p.rows)[i] =
        from >= 0 ? static_cast<const Real*>(p.input)[row_of(p.run, at, from) * p.entries + entry]
                  : static_cast<const Real*>(p.history)[(at.sequence * p.depth - from - 1) * p.entries + entry];
  });
}

/// Every entry of the input gathers what was read of it, in one order, so that no two threads add to one place.
CELLC_DEVICE void add_lagged_to_input(const LaggedRows& p) {
  each_of(p.run.rows * p.entries, [&](long long i) {
    const long long row = quotient(i, p.entries), entry = i - row * p.entries;
    const StepOfRow at = step_of(p.run, row);
    Real sum = 0;
    for (long long w = 0; w < p.along && at.step + p.lag + w < at.steps; ++w)
      sum +=
          static_cast<const Real*>(p.rows)[(row_of(p.run, at, at.step + p.lag + w) * p.entries + entry) * p.along + w];
    static_cast<Real*>(p.input)[i] += sum;
  });
}
CELLC_DEVICE void add_lagged_to_history(const LaggedRows& p) {
  each_of(p.run.sequences * p.depth * p.entries, [&](long long i) {
    const long long place = quotient(i, p.entries), entry = i - place * p.entries;
    const long long sequence = quotient(place, p.depth), back = place - sequence * p.depth + 1;
    StepOfRow at;
    at.sequence = sequence;
    at.first = p.run.offsets[sequence];
    at.steps = p.run.offsets[sequence + 1] - at.first;
    Real sum = 0;
    // Step t reads what was `back` steps before the first one by w = t + back - lag.
    for (long long w = 0; w < p.along; ++w) {
      const long long t = p.lag + w - back;
      if (t >= 0 && t < at.steps)
        sum += static_cast<const Real*>(p.rows)[(row_of(p.run, at, t) * p.entries + entry) * p.along + w];
    }
    static_cast<Real*>(p.history)[i] += sum;
  });
}

/// A start gets what `along` rows of its history have, from the row `lag` on.
CELLC_DEVICE void add_history_to_start(const LaggedRows& p) {
  each_of(p.run.sequences * p.entries, [&](long long i) {
    const long long sequence = quotient(i, p.entries), entry = i - sequence * p.entries;
    Real sum = 0;
    for (long long j = p.lag; j < p.lag + p.along; ++j)
      sum += static_cast<const Real*>(p.history)[(sequence * p.depth + j) * p.entries + entry];
    static_cast<Real*>(p.input)[i] += sum;
  });
}

}  // namespace cellc

extern "C" __global__ void cellc_previous_rows(const __grid_constant__ cellc::PreviousRows p) {
  cellc::await_stream();
  cellc::previous_rows(p);
}
extern "C" __global__ void cellc_lagged_rows(const __grid_constant__ cellc::LaggedRows p) {
  cellc::await_stream();
  cellc::lagged_rows(p);
}
extern "C" __global__ void cellc_add_lagged_to_input(const __grid_constant__ cellc::LaggedRows p) {
  cellc::await_stream();
  cellc::add_lagged_to_input(p);
}
extern "C" __global__ void cellc_add_lagged_to_history(const __grid_constant__ cellc::LaggedRows p) {
  cellc::await_stream();
  cellc::add_lagged_to_history(p);
}
extern "C" __global__ void cellc_add_history_to_start(const __grid_constant__ cellc::LaggedRows p) {
  cellc::await_stream();
  cellc::add_history_to_start(p);
}
