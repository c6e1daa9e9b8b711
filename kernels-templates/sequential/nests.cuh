// What emitted row kernels (compiler/codegen_cuda/emit_cuda_nests.h) call: where a row lies, where a block's memory is,
// how many threads share a sum. Needs preamble.cuh and nest_frame.cuh.
#pragma once

namespace cellc {

/// Threads of a block, at most: what emitted kernels are compiled for.
constexpr int kNestThreads = 512;

/// Terms of a sum that a thread adds up where rows are many.
constexpr int kTermsOfThread = 4;

/// The steps of one sequence in a window, and where their rows are.
struct Stretch {
  long long begin, steps;  ///< in steps of the sequence
  long long low;           ///< the lowest row: of the first step, or of the last where time runs backwards
  long long start, end;    ///< rows of the whole sequence
};

CELLC_DEVICE Stretch stretch_of(const NestFrame& f, long long sequence) {
  Stretch s;
  s.start = f.offsets[sequence];
  s.end = f.offsets[sequence + 1];
  const long long length = s.end - s.start, begin = f.window_begin + (f.steps_before != nullptr ? *f.steps_before : 0);
  s.begin = begin < length ? begin : length;
  const long long rest = length - s.begin;
  s.steps = f.window != 0 && f.window < rest ? f.window : rest;
  s.low = f.direction > 0 ? s.start + s.begin : s.end - s.begin - s.steps;
  return s;
}

/// What tells places apart: numbers of 32 bits where they do (NestFrame::narrow), for a division of 64 is ten times as
/// many instructions, and the place of an entry four times as many.
struct Narrow {
  using Number = int;
  static constexpr bool kEven = true;  ///< sequences are equally long, where anybody asks for steps
  static CELLC_DEVICE int number(long long value) { return static_cast<int>(value); }
  static CELLC_DEVICE int sequence_of(const NestFrame& f, long long row) {
    return static_cast<int>(static_cast<unsigned long long>(static_cast<unsigned>(row)) *
                                static_cast<unsigned>(f.steps_factor) >>
                            static_cast<unsigned>(f.steps_shift));
  }
  static CELLC_DEVICE int quotient(long long a, long long b) { return static_cast<int>(narrow_quotient(a, b)); }
  /// Of a row and the entries from row to row: one instruction, in the place of five.
  static CELLC_DEVICE long long product(long long a, long long b) {
    return static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(a)) * static_cast<unsigned>(b));
  }
};
/// Of rows whose sequences differ.
struct Uneven : Narrow {
  static constexpr bool kEven = false;
};
struct Wide {
  using Number = long long;
  static constexpr bool kEven = false;
  static CELLC_DEVICE long long sequence_of(const NestFrame& f, long long row) {
    return cellc::quotient(row, f.steps_each);
  }
  static CELLC_DEVICE long long number(long long value) { return value; }
  static CELLC_DEVICE long long quotient(long long a, long long b) { return cellc::quotient(a, b); }
  static CELLC_DEVICE long long product(long long a, long long b) { return a * b; }
};

/// The row of a job.
struct RowPlace {
  long long row, chunk_row;
  bool used;  ///< false: the job has no row; `row` is then some row of the run
};

/// `divide` as quotient() does.
template <class Divide>
CELLC_DEVICE RowPlace place_of(const NestFrame& f, long long job, const Divide& divide) {
  if (f.window == 0) return {job < f.rows ? f.first_row + job : f.first_row, job, job < f.rows};
  if (job >= f.rows) return {f.first_row, 0, false};
  const long long sequence = divide(job, f.window), step = job - sequence * f.window;
  const Stretch s = stretch_of(f, f.first_sequence + sequence);
  return {step < s.steps ? s.low + step : f.first_row, job, step < s.steps};
}
CELLC_DEVICE RowPlace place_of(const NestFrame& f, long long job) {
  return place_of(f, job, [](long long a, long long b) { return quotient(a, b); });
}

/// Calls `put` with the rows of a product's result, of `Number` or of 16 bits.
template <class Number, class Put>
CELLC_DEVICE void put_result(const ProductArguments& a, const Put& put) {
#ifdef CELLC_NARROW
  if (a.result_is_stored) return put(static_cast<Stored*>(a.result));
#endif
  put(static_cast<Number*>(a.result));
}
/// The row of a product's result that a job's operand gives.
CELLC_DEVICE long long result_row(const ProductArguments& a, const RowPlace& place) {
  return a.result_in_rows ? place.row : place.chunk_row;
}

/// The sequence that a row belongs to, and the steps before it.
template <class Number>
struct StepPlace {
  Number sequence, elapsed;
};

/// The last sequence that starts at or before the row: one without rows starts where the next does.
CELLC_DEVICE long long sequence_among(const NestFrame& f, long long row) {
  long long low = f.first_sequence, high = f.first_sequence + f.sequences;
  while (high - low > 1) {
    const long long middle = low + (high - low) / 2;
    if (f.offsets[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class Divide = Wide>
CELLC_DEVICE StepPlace<typename Divide::Number> step_of(const NestFrame& f, long long row, Divide = Divide()) {
  using Number = typename Divide::Number;
  StepPlace<Number> p;
  if (Divide::kEven || f.steps_each != 0) {
    const Number each = Divide::number(f.steps_each);
    p.sequence = Divide::sequence_of(f, row);
    const Number after = Divide::number(row) - p.sequence * each;
    p.elapsed = f.direction > 0 ? after : each - 1 - after;
  } else {
    const long long low = sequence_among(f, row);
    p.sequence = Divide::number(low);
    p.elapsed = Divide::number(f.direction > 0 ? row - f.offsets[low] : f.offsets[low + 1] - 1 - row);
  }
  return p;
}

/// Entries from a step to the one before it.
CELLC_DEVICE long long step_back(const NestFrame& f, long long stride) { return f.direction > 0 ? -stride : stride; }

/// Chosen, without a branch that loads of other places would have to wait behind.
template <class Number>
CELLC_DEVICE const Number* either(bool first, const Number* a, const Number* b) {
  return first ? a : b;
}

/// Of an array that the kernel does not write: loads of several places may then be under way before what comes of the
/// first is stored.
template <class Number>
CELLC_DEVICE Real read(const Number* at) {
  if constexpr (sizeof(Number) == sizeof(Real))
    return __ldg(at);
  else
    return widen(__ldg(at));
}

/// How terms of a sum are made: Plain, where all that they read of earlier steps lies in this sequence and whole
/// vectors begin where they must, or in General, where every term asks.
struct Plain {
  static constexpr bool kPlain = true;
  CELLC_DEVICE constexpr operator bool() const { return true; }
};
struct General {
  static constexpr bool kPlain = false;
  CELLC_DEVICE constexpr operator bool() const { return false; }
};

/// What makes the terms of a place, of which those are plain that do not belong to the first steps of a sequence.
template <class Make>
struct Terms {
  bool plain;
  Make make;  ///< (how, q, term)
};
template <class Make>
CELLC_DEVICE Terms<Make> terms_of(bool plain, const Make& make) {
  return {plain, make};
}
template <class Make>
CELLC_DEVICE bool is_plain(const Terms<Make>& terms) {
  return terms.plain;
}
template <class Make>
CELLC_DEVICE bool is_plain(const Make&) {
  return true;
}
template <class How, class Make, class Number, int kSums>
CELLC_DEVICE void make_term(How how, const Terms<Make>& terms, Number q, Real (&term)[kSums]) {
  terms.make(how, q, term);
}
template <class How, class Make, class Number, int kSums>
CELLC_DEVICE void make_term(How, const Make& make, Number q, Real (&term)[kSums]) {
  make(q, term);
}

/// Numbers that one instruction loads, of `kLength` neighbours.
template <int kLength>
constexpr int kVector = kLength % 4 == 0 && sizeof(Real) == 4 ? 4
                        : kLength % 2 == 0                    ? 2
                                                              : 1;

template <int kLength>
CELLC_DEVICE bool starts_vector(const Real* at) {
  return reinterpret_cast<unsigned long long>(at) % (kVector<kLength> * sizeof(Real)) == 0;
}
CELLC_DEVICE Real entry_of(float2 v, int i) { return static_cast<Real>(i == 0 ? v.x : v.y); }
CELLC_DEVICE Real entry_of(double2 v, int i) { return static_cast<Real>(i == 0 ? v.x : v.y); }
CELLC_DEVICE Real entry_of(float4 v, int i) {
  return static_cast<Real>(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w);
}

/// Entry i of `kLength` neighbours. Plain: `at` starts a vector, and i is known where this is compiled; loads of the
/// same vector become one.
template <int kLength, class How, class Number>
CELLC_DEVICE Real read_neighbour(How, const Real* at, Number i) {
  constexpr int kWide = kVector<kLength>;
  if constexpr (How::kPlain && kWide == 4) {
    return entry_of(__ldg(reinterpret_cast<const float4*>(at) + i / 4), static_cast<int>(i % 4));
  } else if constexpr (How::kPlain && kWide == 2 && sizeof(Real) == 4) {
    return entry_of(__ldg(reinterpret_cast<const float2*>(at) + i / 2), static_cast<int>(i % 2));
  } else if constexpr (How::kPlain && kWide == 2) {
    return entry_of(__ldg(reinterpret_cast<const double2*>(at) + i / 2), static_cast<int>(i % 2));
  } else {
    return read(at + i);
  }
}

/// The places of rows that a thread comes to, one after the other. A block has a part of a row at a time, as many
/// places as it has threads, or whole rows side by side; parts go round the blocks. Nothing is divided on the way.
struct Places {
  static constexpr unsigned kNoRow = 1u << 31;  ///< of threads that are left over
  unsigned places, lanes, parts;                ///< of a row; places of a part; parts of a row
  unsigned at_once;                             ///< parts of a row that a block has side by side
  unsigned rows_on, parts_on;                   ///< from one of a thread's to the next
  unsigned row, part, lane;

  /// Of `threads` neighbours as one.
  CELLC_DEVICE Places(unsigned places, unsigned block, unsigned blocks, unsigned threads = 1) : places(places) {
    const unsigned all = blockDim.x / threads, thread = threadIdx.x / threads;
    lanes = places < all ? places : all;
    parts = (places + lanes - 1) / lanes;
    at_once = all / lanes;
    const unsigned own = thread / lanes, first = block * at_once + own, apart = blocks * at_once;
    lane = thread - own * lanes;
    row = own < at_once ? first / parts : kNoRow;
    part = first % parts;
    rows_on = apart / parts;
    parts_on = apart % parts;
  }
  /// Where rows are read again some steps later: a block keeps to one part of them, and goes down neighbouring rows, so
  /// that what it has read is still at hand. With few rows a block the parts go on going round. Returns the row to end
  /// before.
  template <int kTogether>
  CELLC_DEVICE unsigned go_down(unsigned rows, unsigned block, unsigned blocks, unsigned threads = 1) {
    const unsigned columns = blocks / parts, turn = kTogether * at_once;
    if (columns == 0 || rows < 4 * turn * columns || row == kNoRow) return rows;
    const unsigned column = block / parts, each = (rows + columns * turn - 1) / (columns * turn) * turn;
    const unsigned begin = column * each, end = begin + each;
    part = block - column * parts;
    row = begin + threadIdx.x / threads / lanes;
    rows_on = at_once;
    parts_on = 0;
    return end < rows ? end : rows;
  }
  CELLC_DEVICE unsigned place() const { return part * lanes + lane; }
  CELLC_DEVICE bool is_there(unsigned rows) const { return row < rows && place() < places; }
  CELLC_DEVICE void advance() {
    part += parts_on;
    const bool carries = part >= parts;
    part -= carries ? parts : 0;
    row += rows_on + carries;
  }
};
/// Calls `body(row, p)` for them, kTogether at a time as one piece of code, so that as many loads are under way.
template <int kTogether, class Body>
CELLC_DEVICE void each_of(Places at, unsigned rows, const Body& body) {
  while (at.row < rows) {
    Places ahead = at;
    unsigned row[kTogether], p[kTogether];
    bool all = true;
    CELLC_UNROLL()
    for (int k = 0; k < kTogether; ++k) {
      row[k] = ahead.row;
      p[k] = ahead.place();
      all = all & ahead.is_there(rows);
      ahead.advance();
    }
    if (all) {
      CELLC_UNROLL()
      for (int k = 0; k < kTogether; ++k) body(row[k], p[k]);
    } else {
      CELLC_UNROLL(1)
      for (int k = 0; k < kTogether; ++k, at.advance())
        if (at.is_there(rows)) body(at.row, at.place());
    }
    at = ahead;
  }
}

/// Calls `use` with what tells places apart where 30 bits hold all numbers. kLags: steps are asked for.
template <bool kLags, class Use>
CELLC_DEVICE void narrowly(const NestFrame& f, const Use& use) {
  if constexpr (kLags) {
    if (f.steps_each == 0) {
      use(Uneven());
      return;
    }
  }
  use(Narrow());
}

/// Calls `body(divide, p, here)` for the `places` of every row.
template <int kTogether, bool kLags = false, class Body>
CELLC_DEVICE void each_place(const NestFrame& f, long long places, const Body& body) {
  if (places == 0) return;
  if (f.narrow) {
    narrowly<kLags>(f, [&](auto divide) {
      Places at(static_cast<unsigned>(places), blockIdx.x, gridDim.x);
      unsigned rows = static_cast<unsigned>(f.rows);
      if constexpr (kLags) rows = at.go_down<kTogether>(rows, blockIdx.x, gridDim.x);
      each_of<kTogether>(at, rows, [&](unsigned job, unsigned p) {
        body(divide, static_cast<int>(p), RowPlace{f.first_row + job, job, true});
      });
    });
    return;
  }
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x, all = places * f.rows;
  CELLC_UNROLL(1)
  for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += threads) {
    const long long job = quotient(at, places);
    const RowPlace here = place_of(f, job);
    if (here.used) body(Wide(), at - job * places, here);
  }
}
/// Of every row of a tile, which `body(divide, p, tile_row, here)` is told as well.
template <int kTogether, bool kLags = false, class Body>
CELLC_DEVICE void each_place_of_tile(const NestFrame& f, long long tile, long long places, const Body& body) {
  const long long before = tile * f.tile_rows, left = f.rows - before, rows = left < f.tile_rows ? left : f.tile_rows;
  if (places == 0) return;
  if (f.narrow) {
    narrowly<kLags>(f, [&](auto divide) {
      each_of<kTogether>(Places(static_cast<unsigned>(places), 0, 1), static_cast<unsigned>(rows),
                         [&](unsigned row, unsigned p) {
                           body(divide, static_cast<int>(p), static_cast<int>(row),
                                RowPlace{f.first_row + before + row, before + row, true});
                         });
    });
    return;
  }
  CELLC_UNROLL(1)
  for (long long at = threadIdx.x; at < places * rows; at += blockDim.x) {
    const long long row = quotient(at, places);
    const RowPlace here = place_of(f, before + row);
    if (here.used) body(Wide(), at - row * places, row, here);
  }
}

/// A pointer that the compiler does not take apart again: it would add the place of every entry to that of the row
/// before it adds the array's own, all in 64 bits and once more at every turn (16 instructions for a load instead of
/// 3).
template <class Number>
CELLC_DEVICE Number* kept(Number* at) {
#ifndef CELLC_EMULATOR
  asm("" : "+l"(at));
#endif
  return at;
}

/// Adds up `own` terms of places, share, share + threads and so on; kTerms of them, if not 0, is known to be all. A
/// term of each place is made before one is added.
template <class Number, int kTerms, int kTogether, int kSums, class How, class Make, class Add>
CELLC_DEVICE void add_terms(How how, unsigned share, unsigned own, int threads, Real (&sum)[kTogether][kSums],
                            const Make& make, const Add& add) {
  const auto turn = [&](Number q) {
    Real term[kTogether][kSums];
    make(how, q, term);
    CELLC_UNROLL()
    for (int k = 0; k < kTogether; ++k) add(sum[k], term[k]);
  };
  if constexpr (kTerms != 0 && How::kPlain) {
    CELLC_UNROLL()
    for (int q = 0; q < kTerms; ++q) turn(q);
  } else if constexpr (kTerms != 0) {
    CELLC_UNROLL(1)
    for (int q = 0; q < kTerms; ++q) turn(q);
  } else {
    CELLC_UNROLL(4)
    for (unsigned done = 0, q = share; done < own; ++done, q += static_cast<unsigned>(threads))
      turn(static_cast<Number>(q));
  }
}

/// Sums at the places of rows, of `terms` terms each, by `threads` neighbours of a warp (threads_of_sum). `place(row,
/// p)` returns what makes term q, (q, term), or Terms; `add(sum, term)` adds it to the numbers of a sum, which are
/// `none` to begin with; `join(sum)` puts together what the threads have; `end(row, p, sum)` is called by one of them.
/// A thread has kTogether places under way: with the four terms of one place, or added one by one, it would wait for
/// memory at every turn. kTerms, if not 0: `terms`, which a thread then has alone.
template <int kTogether, int kTerms, class Number, int kSums, class PlaceOf, class Add, class Join, class End>
CELLC_DEVICE void sums_of(Places at, unsigned rows, unsigned terms, int threads, const Real (&none)[kSums],
                          const PlaceOf& place, const Add& add, const Join& join, const End& end) {
  static_assert(kTogether == 1 || kTogether == 2);
  const unsigned share = threadIdx.x % static_cast<unsigned>(threads);
  // A power of two; the number of turns is said, so that they are unrolled without a question between them.
  const unsigned own = share < terms ? (terms - share + static_cast<unsigned>(threads) - 1) >> (__ffs(threads) - 1) : 0;
  const auto begin = [&](Real(&sum)[kSums]) {
    CELLC_UNROLL()
    for (int i = 0; i < kSums; ++i) sum[i] = none[i];
  };
  while (__any_sync(0xffffffffu, at.row < rows)) {  // all threads of a warp join
    Places ahead = at;
    unsigned row[kTogether], p[kTogether];
    bool all = true;
    CELLC_UNROLL()
    for (int k = 0; k < kTogether; ++k) {
      row[k] = ahead.row;
      p[k] = ahead.place();
      all = all & ahead.is_there(rows);
      ahead.advance();
    }
    if (__all_sync(0xffffffffu, all)) {
      Real sum[kTogether][kSums];
      CELLC_UNROLL()
      for (int k = 0; k < kTogether; ++k) begin(sum[k]);
      const auto terms_by = [&](bool plain, const auto& make) {
        if (plain) {
          add_terms<Number, kTerms>(Plain(), share, own, threads, sum, make, add);
        } else {
          add_terms<Number, kTerms>(General(), share, own, threads, sum, make, add);
        }
      };
      const auto first = place(row[0], p[0]);
      if constexpr (kTogether == 1) {
        terms_by(is_plain(first),
                 [&](auto how, Number q, Real(&term)[1][kSums]) { make_term(how, first, q, term[0]); });
      } else {
        const auto second = place(row[1], p[1]);
        terms_by(is_plain(first) & is_plain(second), [&](auto how, Number q, Real(&term)[2][kSums]) {
          make_term(how, first, q, term[0]);
          make_term(how, second, q, term[1]);
        });
      }
      CELLC_UNROLL()
      for (int k = 0; k < kTogether; ++k) join(sum[k]);
      CELLC_UNROLL()
      for (int k = 0; k < kTogether; ++k)
        if (share == 0) end(row[k], p[k], sum[k]);
    } else {
      CELLC_UNROLL(1)
      for (int k = 0; k < kTogether; ++k, at.advance()) {
        const bool there = at.is_there(rows);
        Real sum[1][kSums];
        begin(sum[0]);
        if (there) {
          const auto make = place(at.row, at.place());
          const auto one = [&](auto how, Number q, Real(&term)[1][kSums]) { make_term(how, make, q, term[0]); };
          if (is_plain(make)) {
            add_terms<Number, kTerms>(Plain(), share, own, threads, sum, one, add);
          } else {
            add_terms<Number, kTerms>(General(), share, own, threads, sum, one, add);
          }
        }
        join(sum[0]);
        if (there && share == 0) end(at.row, at.place(), sum[0]);
      }
    }
    at = ahead;
  }
}
/// The same where numbers are wide, or rows are not all there: `row_at(row)` tells which they are.
template <int kSums, class RowAt, class PlaceOf, class Add, class Join, class End>
CELLC_DEVICE void wide_sums_of(long long begin, long long end_of_all, long long apart, long long places,
                               long long terms, int threads, const Real (&none)[kSums], const RowAt& row_at,
                               const PlaceOf& place, const Add& add, const Join& join, const End& end) {
  const int share = static_cast<int>(threadIdx.x) % threads;
  CELLC_UNROLL(1)
  for (long long first = begin; first < end_of_all; first += apart) {
    const long long at = first + static_cast<int>(threadIdx.x) / threads, row = quotient(at, places),
                    p = at - row * places;
    const RowPlace here = row_at(row);
    Real sum[kSums], term[kSums];
    CELLC_UNROLL()
    for (int i = 0; i < kSums; ++i) sum[i] = none[i];
    if (here.used) {
      const auto make = place(p, row, here);
      CELLC_UNROLL(1)
      for (long long q = share; q < terms; q += threads) {
        make_term(General(), make, q, term);
        add(sum, term);
      }
    }
    join(sum);
    if (here.used && share == 0) end(p, row, here, sum);
  }
}

/// Sums at the `places` of every row: `place(divide, p, here)`, `add(sum, term)`, `join(sum)`, `end(divide, p, here,
/// sum)`.
template <int kTogether, bool kLags = false, int kTerms = 0, int kSums, class PlaceOf, class Add, class Join, class End>
CELLC_DEVICE void each_sum(const NestFrame& f, long long places, long long terms, int threads,
                           const Real (&none)[kSums], const PlaceOf& place, const Add& add, const Join& join,
                           const End& end) {
  if (places == 0) return;
  if (f.narrow) {
    const auto row_of = [&](unsigned job) { return RowPlace{f.first_row + job, job, true}; };
    narrowly<kLags>(f, [&](auto divide) {
      Places at(static_cast<unsigned>(places), blockIdx.x, gridDim.x, static_cast<unsigned>(threads));
      unsigned rows = static_cast<unsigned>(f.rows);
      if constexpr (kLags) rows = at.go_down<kTogether>(rows, blockIdx.x, gridDim.x, static_cast<unsigned>(threads));
      sums_of<kTogether, kTerms, int>(
          at, rows, static_cast<unsigned>(terms), threads, none,
          [&](unsigned job, unsigned p) { return place(divide, static_cast<int>(p), row_of(job)); }, add, join,
          [&](unsigned job, unsigned p, const Real(&sum)[kSums]) {
            end(divide, static_cast<int>(p), row_of(job), sum);
          });
    });
    return;
  }
  const long long sums = static_cast<int>(blockDim.x) / threads;
  wide_sums_of(
      blockIdx.x * sums, places * f.rows, gridDim.x * sums, places, terms, threads, none,
      [&](long long job) { return place_of(f, job); },
      [&](long long p, long long, const RowPlace& here) { return place(Wide(), p, here); }, add, join,
      [&](long long p, long long, const RowPlace& here, const Real(&sum)[kSums]) { end(Wide(), p, here, sum); });
}
/// Of every row of a tile, which `place` and `end` are told as well.
template <int kTogether, bool kLags = false, int kTerms = 0, int kSums, class PlaceOf, class Add, class Join, class End>
CELLC_DEVICE void each_sum_of_tile(const NestFrame& f, long long tile, long long places, long long terms, int threads,
                                   const Real (&none)[kSums], const PlaceOf& place, const Add& add, const Join& join,
                                   const End& end) {
  const long long before = tile * f.tile_rows, left = f.rows - before, rows = left < f.tile_rows ? left : f.tile_rows;
  if (places == 0) return;
  if (f.narrow) {
    const auto row_of = [&](unsigned row) { return RowPlace{f.first_row + before + row, before + row, true}; };
    narrowly<kLags>(f, [&](auto divide) {
      sums_of<kTogether, kTerms, int>(
          Places(static_cast<unsigned>(places), 0, 1, static_cast<unsigned>(threads)), static_cast<unsigned>(rows),
          static_cast<unsigned>(terms), threads, none,
          [&](unsigned row, unsigned p) {
            return place(divide, static_cast<int>(p), static_cast<int>(row), row_of(row));
          },
          add, join,
          [&](unsigned row, unsigned p, const Real(&sum)[kSums]) {
            end(divide, static_cast<int>(p), static_cast<int>(row), row_of(row), sum);
          });
    });
    return;
  }
  const long long sums = static_cast<int>(blockDim.x) / threads;
  wide_sums_of(
      0, places * rows, sums, places, terms, threads, none,
      [&](long long row) {
        RowPlace here = place_of(f, before + row);
        here.used = here.used && row < rows;
        return here;
      },
      [&](long long p, long long row, const RowPlace& here) { return place(Wide(), p, row, here); }, add, join,
      [&](long long p, long long row, const RowPlace& here, const Real(&sum)[kSums]) {
        end(Wide(), p, row, here, sum);
      });
}

/// A block's own memory: `at` counts entries, in shared memory, or from -1 downwards in global memory.
CELLC_DEVICE Real* block_memory(const NestFrame& f, Real* shared, long long at) {
  if (at >= 0) return shared + at;
  return static_cast<Real*>(f.scratch) + blockIdx.x * f.scratch_stride + (-1 - at);
}

/// Threads that share a sum of `length` terms when there are `sums` of them: a power of two, part of a
/// warp. Follows from sizes alone, so that the bits of a sum do not depend on how a kernel was launched.
/// `least`: terms that each of them has, if there are so many. Where terms are apart, threads of as many neighbouring
/// sums as fill a sector of memory stand between those of one.
CELLC_DEVICE int threads_of_sum(long long sums, long long length, bool terms_are_neighbours, int least) {
  int threads = 1;
  if (least > 1 && !terms_are_neighbours) least *= 4;
  while (threads < 32 && threads * least < length && (terms_are_neighbours || 2 * threads * sums <= kNestThreads)) {
    threads *= 2;
  }
  return threads;
}

/// Over `threads` neighbours, a power of two; every thread of the warp must come here.
CELLC_DEVICE Real sum_of_threads(Real value, int threads) {
  for (int other = threads >> 1; other > 0; other >>= 1) value += __shfl_xor_sync(0xffffffffu, value, other);
  return value;
}

CELLC_DEVICE Real largest_of_threads(Real value, int threads) {
  for (int other = threads >> 1; other > 0; other >>= 1) {
    value = cellc::max(value, __shfl_xor_sync(0xffffffffu, value, other));
  }
  return value;
}

/// A number by its bits: infinities and NaN have no spelling of their own without a header.
CELLC_DEVICE Real number_of_bits(unsigned long long bits) {
  union {
    unsigned long long bits;
    double number;
  } both;
  both.bits = bits;
  return static_cast<Real>(both.number);
}

}  // namespace cellc
