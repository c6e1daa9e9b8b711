// Stages whose map over any number of steps is known exactly (linear, clip, Möbius): one pass over memory.
//
// A block takes a piece of time of a group of channels, copies its inputs to shared memory and keeps them
// there. Each of its threads owns kScanSteps steps of one channel: it sweeps them with carriers from
// nowhere in particular, the maps of all threads are composed, and that of the whole piece is published.
// Once the state at the piece's start is known, each thread runs its steps again, exactly, from its own
// start, over the inputs that are still on chip, and writes the rows. So memory is read once and written
// once, and every row is made by the step code from the row before it, but for the first of a thread.
//
// The start of a piece comes from the pieces on its left (decoupled look-back: Merrill and Garland, 2016):
// all threads of the block look at as many predecessors at once, and compose what they find until one of
// them has published the state at its end. Pieces are handed out in order of time by a counter, so that
// whoever is waited for is running: any grid will do, and the launch need not be cooperative.
//
// What is published is told from what stood there before by the number of the call beside every 32 bits,
// in one word of 64: no flag is waited for first and no fence stands between.
//
// Lanes::segments is 1 here.
#pragma once

namespace cellc {

#ifndef CELLC_SCAN_CHANNELS
#define CELLC_SCAN_CHANNELS 32
#endif
#ifndef CELLC_SCAN_STEPS
#define CELLC_SCAN_STEPS 16
#endif
#ifndef CELLC_SCAN_LOOK
#define CELLC_SCAN_LOOK (Step::kStates == 1 ? 4 : Step::kStates == 2 ? 2 : 1)
#endif
constexpr int kScanChannels = CELLC_SCAN_CHANNELS;  ///< of a block: 1, 2, 4, … 32
constexpr int kScanSteps = CELLC_SCAN_STEPS;        ///< of a thread: a multiple of 8
constexpr int kLook = CELLC_SCAN_LOOK;              ///< predecessors that a thread looks at together

/// Zeroed once, when it is allocated; kept from call to call.
struct ScanControl {
  unsigned calls;
  unsigned drawn;  ///< tickets of this call
};

struct Scan {
  Lanes lanes;
  ScanControl* control;
  unsigned long long* words;  ///< [group of channels of a sequence][piece][word][channel]; zeroed when allocated
  int pieces;                 ///< of the longest sequence
  int groups;                 ///< of channels of a sequence
  int look;                   ///< pieces of a sequence that may well be under way at once
};

/// How inputs come to shared memory.
enum class ScanCopy {
  Each,  ///< entry by entry: whatever their strides
  Rows,  ///< rows of kScanChannels neighbours, 16 bytes at a time: channels fill the groups
  Time,  ///< kScanChannels is 1 and steps are neighbours, 16 bytes at a time; inputs are aligned alike
};

constexpr int kScanParts = kWarp / kScanChannels;                  // parts of time of a warp
constexpr int kChunk = 16 / static_cast<int>(sizeof(Stored));      // entries of 16 bytes
constexpr bool kStaged = kScanChannels < kWarp;                    // rows leave through shared memory
// Parts begin as many banks apart as they have channels.
constexpr int kPartPad = !kStaged ? 0 : kScanChannels > kChunk ? kScanChannels : kChunk;
constexpr int kPartPitch = kScanSteps * kScanChannels + kPartPad;  // entries
constexpr int kSlotPitch = kPartPitch * kScanParts;
constexpr int kSlots = kStaged && Step::kStates > Step::kInputs ? Step::kStates : Step::kInputs > 0 ? Step::kInputs : 1;
constexpr int kMapReals = Carriers::Map::count();
constexpr int kHalves = sizeof(Real) / 4;                          // words of a number
constexpr int kScanWords = (Step::kStates + kMapReals) * kHalves;  // that a piece publishes for a channel

/// Dynamic shared memory of a block.
constexpr int scan_shared_bytes(int warps) {
  return warps * (kSlots * kSlotPitch * static_cast<int>(sizeof(Stored)) +
                  kScanChannels * static_cast<int>(2 * kMapReals * sizeof(Real) + sizeof(unsigned))) +
         kScanChannels * Step::kStates * static_cast<int>(sizeof(Real)) + 2 * static_cast<int>(sizeof(unsigned));
}

CELLC_DEVICE unsigned stored_word(const uint4& chunk, int word) {
  return word == 0 ? chunk.x : word == 1 ? chunk.y : word == 2 ? chunk.z : chunk.w;
}
CELLC_DEVICE Stored stored_at(const uint4& chunk, int place) {
#if defined(CELLC_NARROW)
  return static_cast<Stored>(stored_word(chunk, place / 2) >> (16 * (place % 2)));
#elif defined(CELLC_STORAGE_F64)
  return __hiloint2double(static_cast<int>(stored_word(chunk, 2 * place + 1)), static_cast<int>(stored_word(chunk, 2 * place)));
#else
  return __uint_as_float(stored_word(chunk, place));
#endif
}
CELLC_DEVICE void put(unsigned (&words)[4], int place, Stored value) {
#if defined(CELLC_NARROW)
  words[place / 2] = place % 2 ? words[place / 2] | static_cast<unsigned>(value) << 16 : value;
#elif defined(CELLC_STORAGE_F64)
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(value));
  words[2 * place] = static_cast<unsigned>(bits);
  words[2 * place + 1] = static_cast<unsigned>(bits >> 32);
#else
  words[place] = __float_as_uint(value);
#endif
}

/// A number at `at`, kScanChannels words from half to half, marked with the call.
CELLC_DEVICE void publish(unsigned long long* at, unsigned call, Real value) {
  const unsigned long long mark = static_cast<unsigned long long>(call) << 32;
#ifdef CELLC_STORAGE_F64
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(value));
  store_relaxed(at, mark | (bits & 0xffffffffu));
  store_relaxed(at + kScanChannels, mark | bits >> 32);
#else
  store_relaxed(at, mark | __float_as_uint(value));
#endif
}
/// Whether this call has published it.
CELLC_DEVICE bool look_at(const unsigned long long* at, unsigned call, Real& value) {
  const unsigned long long low = load_relaxed(at);
#ifdef CELLC_STORAGE_F64
  const unsigned long long high = load_relaxed(at + kScanChannels);
  value = __hiloint2double(static_cast<int>(high), static_cast<int>(low));
  return low >> 32 == call && high >> 32 == call;
#else
  value = __uint_as_float(static_cast<unsigned>(low));
  return low >> 32 == call;
#endif
}

template <ScanCopy kCopy>
struct ScanRun {
  static constexpr bool kTime = kCopy == ScanCopy::Time;
  static constexpr int kInputs = Step::kInputs > 0 ? Step::kInputs : 1;
  /// Steps whose inputs are read together.
  static constexpr int kBatch = kTime && kChunk > 4 ? kChunk : Step::kInputs <= 2 ? 8 : 4;
  using Map = Carriers::Map;

  const Scan& scan;
  const Lanes& lanes;
  int thread, warp, warps;  // thread of its warp
  int channel, part;        // of the group; of the warp's time
  char* shared;
  unsigned call;

  // The piece at hand
  Lane lane[1];
  bool real;                // a channel of the cell
  int piece;
  long long begin;          // step of the thread's first place; below 0 or past the end, where there is none
  int low, high;            // places of the thread that are steps
  const Stored* input_base[kInputs];  // of step 0 of the thread's channel
  Stored* row_base[Step::kStates];    // null: not written
  unsigned long long* words;          // of the chain's first piece and the thread's channel

  CELLC_DEVICE ScanRun(const Scan& scan, char* shared) : scan(scan), lanes(scan.lanes), shared(shared) {
    thread = threadIdx.x % kWarp;
    warp = threadIdx.x / kWarp;
    warps = blockDim.x / kWarp;
    channel = thread % kScanChannels;
    part = thread / kScanChannels;
    call = scan.control->calls + 1;
  }

  // Shared memory: what is cheaper to tell again than to keep.
  /// Of the warp: [slot][part][step][channel].
  CELLC_DEVICE Stored* region() const { return reinterpret_cast<Stored*>(shared) + warp * (kSlots * kSlotPitch); }
  /// Of the thread, in the first slot.
  CELLC_DEVICE Stored* own() const { return region() + part * kPartPitch + (kTime ? 0 : channel); }
  /// By warp: the map of its steps.
  CELLC_DEVICE Real* totals() const {
    return reinterpret_cast<Real*>(shared + warps * (kSlots * kSlotPitch * static_cast<int>(sizeof(Stored))));
  }
  /// By warp: the map of the predecessors that it has looked at.
  CELLC_DEVICE Real* looks() const { return totals() + warps * (kMapReals * kScanChannels); }
  /// The state at the start of the piece, where it was there at once.
  CELLC_DEVICE Real* known() const { return looks() + warps * (kMapReals * kScanChannels); }
  /// By warp: whether its predecessors led back to a state.
  CELLC_DEVICE unsigned* ended() const { return reinterpret_cast<unsigned*>(known() + kScanChannels * Step::kStates); }
  CELLC_DEVICE unsigned* is_known() const { return ended() + warps * kScanChannels; }
  CELLC_DEVICE unsigned* ticket() const { return is_known() + 1; }

  // Inputs -------------------------------------------------------------------------------------------

  CELLC_DEVICE long long input_stride(int e) const { return lane[0].direction * lanes.array[Step::input_array(e)].row; }
  CELLC_DEVICE long long row_stride(int e) const { return lane[0].direction * lanes.array[Step::state_array(e)].row; }
  CELLC_DEVICE const Stored* input_at(int e, long long t) const { return input_base[e] + t * input_stride(e); }
  CELLC_DEVICE Stored* row_at(int e, long long t) const { return row_base[e] + t * row_stride(e); }
  /// Places before step 0, so that chunks of time are aligned.
  CELLC_DEVICE int skew() const {
    if constexpr (!kTime || Step::kInputs == 0) return 0;
    const int at = static_cast<int>(reinterpret_cast<unsigned long long>(input_base[0]) / sizeof(Stored) % kChunk);
    return lanes.reverse ? kChunk - 1 - at : at;
  }
  /// Where the warp's row lies in a slot.
  static CELLC_DEVICE int row_place(int row) { return row / kScanSteps * kPartPitch + row % kScanSteps * kScanChannels; }
  /// Chunks of time that runs backwards are kept as they stand in memory.
  CELLC_DEVICE int within(int step) const {
    if constexpr (!kTime) return step * kScanChannels;
    return lanes.reverse ? step ^ (kChunk - 1) : step;
  }

  /// Asks for the inputs of the warp's rows, the first of which is step `first`.
  CELLC_DEVICE void ask(long long first) {
    constexpr int kRows = kScanSteps * kScanParts;
    const long long steps = lane[0].steps;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      Stored* const to = region() + e * kSlotPitch;
      const long long stride = input_stride(e);
      if constexpr (kCopy == ScanCopy::Rows) {
        constexpr int kChunks = kScanChannels >= kChunk ? kScanChannels / kChunk : 1, kAtOnce = kWarp / kChunks;
        const int row = thread / kChunks, place = thread % kChunks * kChunk;
        const Stored* from = input_at(e, first + row) + (place - channel);
        CELLC_UNROLL()
        for (int k = 0; k < kRows; k += kAtOnce)
          if (first + row + k < steps) copy_async<16>(to + row_place(row + k) + place, from + k * stride);
      } else if constexpr (kTime) {
        CELLC_UNROLL()
        for (int k = 0; k < kRows; k += kWarp * kChunk) {
          const int row = k + thread * kChunk;
          const long long t = first + row;
          if (t >= 0 && t + kChunk <= steps) {
            copy_async<16>(to + row_place(row), input_at(e, lanes.reverse ? t + kChunk - 1 : t));
          } else {
            copy_ragged(to + row_place(row), e, t);
          }
        }
      } else {
        const Stored* from = input_at(e, first + part);
        CELLC_UNROLL(sizeof(Stored) >= 4 ? 4 : 8)
        for (int k = 0; k < kScanSteps; ++k) {
          const int row = k * kScanParts + part;
          if (!real || first + row < 0 || first + row >= steps) continue;
          Stored* const at = to + row_place(row) + channel;
          if constexpr (sizeof(Stored) >= 4) {
            copy_async<sizeof(Stored) >= 4 ? sizeof(Stored) : 4>(at, from + k * kScanParts * stride);
          } else {
            *at = from[k * kScanParts * stride];
          }
        }
      }
    }
    copy_commit();
  }
  /// A chunk that begins before the sequence or ends after it.
  CELLC_DEVICE void copy_ragged(Stored* to, int e, long long t) {
    CELLC_UNROLL(1)
    for (int k = 0; k < kChunk; ++k)
      if (t + k >= 0 && t + k < lane[0].steps) to[within(k)] = *input_at(e, t + k);
  }

  CELLC_DEVICE void read(int k, Real (&input)[kInputs]) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) input[e] = widen(own()[e * kSlotPitch + within(k)]);
  }
  CELLC_DEVICE void read(int k, Real (&input)[kBatch][kInputs]) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      if constexpr (kTime) {
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; i += kChunk) {
          const uint4 chunk = *reinterpret_cast<const uint4*>(own() + e * kSlotPitch + k + i);
          CELLC_UNROLL()
          for (int j = 0; j < kChunk; ++j)
            input[i + j][e] = widen(lanes.reverse ? stored_at(chunk, kChunk - 1 - j) : stored_at(chunk, j));
        }
      } else {
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i) input[i][e] = widen(own()[e * kSlotPitch + (k + i) * kScanChannels]);
      }
    }
  }

  // Steps --------------------------------------------------------------------------------------------

  /// Runs the thread's steps; after(k, states) for every step or, with kBatch of them, for a batch.
  template <class Cell, class After>
  CELLC_DEVICE void sweep(const Real (&param)[1][(Cell::kParams > 0 ? Cell::kParams : 1)], const Uniforms<Cell>& uniforms,
                          Real (&state)[Cell::kStates], After&& after) {
    const auto run = [&](const Real (&input)[kInputs]) {
      Real next[Cell::kStates];
      Cell::step(param[0], input, state, next, uniforms.data);
      CELLC_UNROLL()
      for (int e = 0; e < Cell::kStates; ++e) state[e] = next[e];
    };
    if (low == 0 && high == kScanSteps) {
      CELLC_UNROLL(1)
      for (int k = 0; k < kScanSteps; k += kBatch) {
        Real input[kBatch][kInputs], rows[kBatch][Step::kStates];
        read(k, input);
        Repeat<kBatch>::run([&](auto place) {
          constexpr int i = decltype(place)::value;
          run(input[i]);
          CELLC_UNROLL()
          for (int e = 0; e < Step::kStates; ++e) rows[i][e] = state[e];
        });
        after.batch(k, rows);
      }
    } else {
      CELLC_UNROLL(1)
      for (int k = low; k < high; ++k) {
        Real input[kInputs];
        read(k, input);
        run(input);
        after.one(k, state);
      }
    }
  }

  struct Nothing {
    CELLC_DEVICE void batch(int, const Real (&)[kBatch][Step::kStates]) {}
    template <int kStates>
    CELLC_DEVICE void one(int, const Real (&)[kStates]) {}
  };

  /// Rows straight to memory.
  struct Direct {
    Stored* to[Step::kStates];
    long long stride[Step::kStates];
    CELLC_DEVICE explicit Direct(const ScanRun& work) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        to[e] = work.real && work.row_base[e] ? work.row_at(e, work.begin) : nullptr;
        stride[e] = work.row_stride(e);
      }
    }
    CELLC_DEVICE void batch(int k, const Real (&rows)[kBatch][Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        if (!to[e]) continue;
        Stored* at = to[e] + k * stride[e];
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i, at += stride[e]) store(at, rows[i][e]);
      }
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e)
        if (to[e]) store(to[e] + k * stride[e], state[e]);
    }
  };
  /// Rows to where the inputs of their steps stood.
  struct Staged {
    const ScanRun& work;
    CELLC_DEVICE explicit Staged(const ScanRun& work) : work(work) {}
    CELLC_DEVICE void batch(int k, const Real (&rows)[kBatch][Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        Stored* const to = work.own() + e * kSlotPitch;
        if constexpr (kTime) {
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; i += kChunk) {
            unsigned words[4];
            CELLC_UNROLL()
            for (int j = 0; j < kChunk; ++j)
              put(words, j, narrow(work.lanes.reverse ? rows[i + kChunk - 1 - j][e] : rows[i + j][e]));
            *reinterpret_cast<uint4*>(to + k + i) = make_uint4(words[0], words[1], words[2], words[3]);
          }
        } else {
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; ++i) store(to + (k + i) * kScanChannels, rows[i][e]);
        }
      }
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) store(work.own() + e * kSlotPitch + work.within(k), state[e]);
    }
  };

  /// Neighbours in memory by neighbours of the warp.
  CELLC_DEVICE void write_staged(long long first) {
    __syncwarp();
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      if (!row_base[e] || !real) continue;
      Stored* const to = row_at(e, first + part);
      const long long stride = row_stride(e) * kScanParts;
      const Stored* const from = region() + e * kSlotPitch + (kTime ? 0 : channel);
      if (first >= 0 && first + kScanSteps * kScanParts <= lane[0].steps) {
        CELLC_UNROLL(8)
        for (int k = 0; k < kScanSteps; ++k) to[k * stride] = from[place_of_row(k * kScanParts + part)];
      } else {
        CELLC_UNROLL(1)
        for (int k = 0; k < kScanSteps; ++k) {
          const int row = k * kScanParts + part;
          if (first + row >= 0 && first + row < lane[0].steps) to[k * stride] = from[place_of_row(row)];
        }
      }
    }
  }
  CELLC_DEVICE int place_of_row(int row) const { return row / kScanSteps * kPartPitch + within(row % kScanSteps); }

  // Maps ---------------------------------------------------------------------------------------------

  CELLC_DEVICE void keep(Real* table, Map& map) const {
    Real* at = table + warp * (kMapReals * kScanChannels) + channel;
    map.each([&](Real& value) {
      *at = value;
      at += kScanChannels;
    });
  }
  CELLC_DEVICE void fetch(const Real* table, int of_warp, Map& map) const {
    const Real* at = table + of_warp * (kMapReals * kScanChannels) + channel;
    map.identity();
    map.each([&](Real& value) {
      value = *at;
      at += kScanChannels;
    });
  }

  CELLC_DEVICE unsigned long long* words_of(int of_piece) const {
    return words + static_cast<long long>(of_piece) * (kScanWords * kScanChannels);
  }
  CELLC_DEVICE bool look_at_state(int of_piece, Real (&state)[Step::kStates]) const {
    const unsigned long long* const at = words_of(of_piece);
    bool there = true;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) there = look_at(at + e * kHalves * kScanChannels, call, state[e]) && there;
    return there;
  }
  CELLC_DEVICE bool look_at_map(int of_piece, Map& map) const {
    const unsigned long long* at = words_of(of_piece) + Step::kStates * kHalves * kScanChannels;
    bool there = true;
    map.identity();
    map.each([&](Real& value) {
      there = look_at(at, call, value) && there;
      at += kHalves * kScanChannels;
    });
    return there;
  }
  CELLC_DEVICE void publish_state(const Real (&state)[Step::kStates]) const {
    unsigned long long* const at = words_of(piece);
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) publish(at + e * kHalves * kScanChannels, call, state[e]);
  }
  CELLC_DEVICE void publish_map(Map& map) const {
    unsigned long long* at = words_of(piece) + Step::kStates * kHalves * kScanChannels;
    map.each([&](Real& value) {
      publish(at, call, value);
      at += kHalves * kScanChannels;
    });
  }
  CELLC_DEVICE void first_state(Real (&state)[Step::kStates]) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) state[e] = real ? start_of(lanes, lane[0], e) : Real(0);
  }

  /// Composes kLook predecessors, nearest, nearest - 1, …, as they appear; whether they led back to a state.
  /// The first piece always has its state.
  CELLC_DEVICE bool look(int nearest, Map& all) const {
    int seen = 0;
    while (seen < kLook) {
      bool has_state[kLook], has_map[kLook];
      Real state[kLook][Step::kStates];
      Map map[kLook];
      CELLC_UNROLL()
      for (int i = 0; i < kLook; ++i) {
        const int other = nearest - i > 0 ? nearest - i : 0;
        has_state[i] = look_at_state(other, state[i]);
        has_map[i] = look_at_map(other, map[i]);
      }
      CELLC_UNROLL()
      for (int i = 0; i < kLook; ++i) {
        if (i != seen) continue;
        if (has_state[i]) map[i].constant(state[i]);
        else if (!has_map[i]) continue;
        all.after(map[i]);
        if (has_state[i]) return true;
        ++seen;
      }
    }
    return false;
  }

  /// The state at the start of the piece, from the pieces on its left.
  CELLC_DEVICE void look_back(Real (&state)[Step::kStates]) {
    const int parts = warps * kScanParts, mine = warp * kScanParts + part;
    const int reach = scan.look < parts * kLook ? (scan.look + kLook - 1) / kLook * kLook : parts * kLook;
    Map all;
    all.identity();
    bool found = !real;
    for (int base = 0;; base += reach) {
      Map map;
      map.identity();
      const int nearest = piece - 1 - base - mine * kLook;
      const bool looks_on = !found && mine * kLook < reach && nearest >= 0;
      bool done = found;
      if (looks_on) done = look(nearest, map);
      __syncwarp();
      CELLC_UNROLL()
      for (int by = kScanChannels; by < kWarp; by *= 2) {
        Map before = map;
        before.shuffle_down(by);
        const int before_done = __shfl_down_sync(0xffffffffu, static_cast<int>(done), by);
        if (!done && thread + by < kWarp) {
          map.after(before);
          done = before_done;
        }
      }
      if (part == 0) {
        keep(looks(), map);
        ended()[warp * kScanChannels + channel] = done;
      }
      __syncthreads();
      CELLC_UNROLL(1)
      for (int w = 0; w < warps && !found; ++w) {
        fetch(looks(), w, map);
        all.after(map);
        found = ended()[w * kScanChannels + channel];
      }
      if (__syncthreads_and(found)) break;
    }
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) state[e] = 0;
    all.move(state);
  }

  // Pieces -------------------------------------------------------------------------------------------

  CELLC_DEVICE unsigned draw() const { return atomicAdd(&scan.control->drawn, 1u); }

  CELLC_DEVICE void run(unsigned number) {
    const unsigned chains = static_cast<unsigned>(lanes.sequences * scan.groups);
    piece = static_cast<int>(number / chains);
    const int chain = static_cast<int>(number - piece * chains);
    const int sequence = chain / scan.groups;
    const long long at_channel = static_cast<long long>(chain - sequence * scan.groups) * kScanChannels + channel;
    real = at_channel < lanes.channels;
    resolve(sequence, chain, real ? at_channel : lanes.channels - 1);
    const int skewed = skew();
    const int block_steps = warps * (kScanSteps * kScanParts);
    const long long block_first = static_cast<long long>(piece) * block_steps - skewed, steps = lane[0].steps;
    const long long first = block_first + warp * (kScanSteps * kScanParts);
    begin = first + part * kScanSteps;
    low = begin < 0 ? static_cast<int>(-begin) : 0;
    high = steps - begin < kScanSteps ? static_cast<int>(steps - begin) : kScanSteps;
    if (block_first >= steps || steps == 0) {
      if (piece == 0 && warp == 0 && part == 0 && real) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane[0], e, start_of(lanes, lane[0], e));
      }
      __syncthreads();  // all know their ticket
      if (threadIdx.x == 0) *ticket() = draw();
      return;
    }
    ask(first);
    // Looked at while the inputs are on their way: mostly the start is there by then, where channels abound.
    const bool nearest = warp == 0 && part == 0;
    Real state[Step::kStates];
    bool there = true;
    if (nearest && real) {
      if (piece == 0) first_state(state);
      else there = look_at_state(piece - 1, state);
    }
    Map own_map;
    {
      Real param[1][(Carried::kParams > 0 ? Carried::kParams : 1)];
      load_params<Carried>(lanes, lane, param);
      const Uniforms<Carried> uniforms(lanes);
      Real carried[Carried::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) carried[e] = 0;
      Carriers::identity(&carried[Step::kStates]);
      copy_wait<0>();
      __syncwarp();
      sweep<Carried>(param, uniforms, carried, Nothing());
      own_map.identity();
      if (low < high) own_map.from(carried, &carried[Step::kStates]);
    }
    // What the warp's parts make of what they start from.
    CELLC_UNROLL()
    for (int by = kScanChannels; by < kWarp; by *= 2) {
      Map before = own_map;
      before.shuffle_up(by);
      if (thread >= by) own_map.after(before);
    }
    if (part == kScanParts - 1) keep(totals(), own_map);
    if constexpr (kStaged) own_map.shuffle_up(kScanChannels);
    if (nearest) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) known()[e * kScanChannels + channel] = state[e];
    }
    if (warp == 0) {
      const bool all_there = __all_sync(0xffffffffu, there);
      if (thread == 0) *is_known() = all_there;
    }
    __syncthreads();
    const bool is_last = block_first + block_steps >= steps;
    const bool publishes = warp == warps - 1 && part == 0 && real && !is_last;
    const bool starts_known = *is_known();
    unsigned next = 0;
    if (threadIdx.x == 0) next = draw();
    Map before;
    before.identity();
    CELLC_UNROLL(1)
    for (int w = 0; w < warp; ++w) {
      Map one;
      fetch(totals(), w, one);
      one.after(before);
      before = one;
    }
    Map whole;
    if (warp == warps - 1) {
      fetch(totals(), warp, whole);
      whole.after(before);
      if (publishes && !starts_known) publish_map(whole);
    }
    if (starts_known) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) state[e] = known()[e * kScanChannels + channel];
    } else {
      look_back(state);
    }
    if (publishes) {
      Real end[Step::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) end[e] = state[e];
      whole.move(end);
      publish_state(end);
    }
    if (warp > 0) before.move(state);
    if (kStaged && part > 0) own_map.move(state);
    {
      Real param[1][(Step::kParams > 0 ? Step::kParams : 1)];
      load_params<Step>(lanes, lane, param);
      const Uniforms<Step> uniforms(lanes);
      if constexpr (kStaged) {
        sweep<Step>(param, uniforms, state, Staged(*this));
        write_staged(first);
      } else {
        sweep<Step>(param, uniforms, state, Direct(*this));
      }
    }
    if (real && low < high && begin + high == steps) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane[0], e, state[e]);
    }
    if (threadIdx.x == 0) *ticket() = next;
  }

  CELLC_DEVICE void resolve(int sequence, int chain, long long at_channel) {
    Lane& l = lane[0];
    l.channel_index = at_channel;
    l.sequence = sequence;
    l.segment = 0;
    long long first = 0;
    l.steps = lanes.length;
    if (lanes.offsets) {
      first = lanes.offsets[sequence];
      l.steps = lanes.offsets[sequence + 1] - first;
    }
    l.first_row = lanes.reverse ? first + l.steps - 1 : first;
    l.direction = lanes.reverse ? -1 : 1;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      const ArrayView& array = lanes.array[Step::input_array(e)];
      input_base[e] = static_cast<const Stored*>(array.data) + place(lanes, array, l, 0) + lanes.step.input[e];
    }
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const ArrayView& array = lanes.array[Step::state_array(e)];
      row_base[e] = array.data ? static_cast<Stored*>(array.data) + place(lanes, array, l, 0) + lanes.step.state[e] : nullptr;
    }
    words = scan.words + static_cast<long long>(chain) * scan.pieces * (kScanWords * kScanChannels) + channel;
  }
};

/// Blocks of any number of whole warps, in any number.
template <ScanCopy kCopy>
CELLC_DEVICE void scan(const Scan& scan) {
  static_assert(kScanChannels >= 1 && kScanChannels <= kWarp && (kScanChannels & (kScanChannels - 1)) == 0);
  static_assert(kScanSteps % 8 == 0 && (kCopy != ScanCopy::Time || kScanChannels == 1));
  static_assert(kCopy != ScanCopy::Rows || kScanChannels * sizeof(Stored) >= 16);
  CELLC_DYNAMIC_SHARED(char, scan_shared);
  ScanRun<kCopy> work(scan, scan_shared);
  if (threadIdx.x == 0) *work.ticket() = work.draw();
  const unsigned all = static_cast<unsigned>(scan.lanes.sequences) * scan.groups * scan.pieces;
  for (;;) {
    __syncthreads();
    const unsigned number = *work.ticket();
    if (number >= all) {
      // Every block draws one ticket in vain; who draws the last leaves the counter to the next call.
      if (threadIdx.x == 0 && number == all + gridDim.x - 1) {
        scan.control->drawn = 0;
        scan.control->calls = work.call;
      }
      return;
    }
    work.run(number);
  }
}

}  // namespace cellc
