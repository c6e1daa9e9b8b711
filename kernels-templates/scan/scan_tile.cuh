// What a block of a scan (scan.cuh) does with the tile of time that it holds on chip: its inputs come to shared
// memory and stay there, a thread runs its steps over them as often as it likes, and rows leave.
//
// Larger than most (the file, ScanTile): one struct, which three kinds of scans take their steps from; loads, sweeps,
// looks and rows work on the same few registers and the same part of shared memory.
#pragma once

namespace cellc {

constexpr int kScanChannels = Traits::kScanChannels;  ///< of a block: 1, 2, 4, … 32
constexpr int kScanSteps = Traits::kScanSteps;        ///< of a thread
constexpr bool kForward = Traits::kScanForward;       ///< no sequence runs backwards
/// Predecessors that a thread looks at together: enough that a window is not what a long sequence of few channels waits
/// for; more costs reads and registers.
constexpr int kLookBack = kCarried > 2 || kScanChannels < 4 ? 1 : kCarried == 2 || kScanChannels < 16 ? 2 : 4;

struct Scan {
  Lanes lanes;
  ScanControl* control;
  unsigned long long*
      words;        ///< [group of channels of a sequence][tile][word][channel]; zeroed with `control`, and only with it
  unsigned* marks;  ///< what scan_repair.cuh keeps: zeros to begin with, and whatever happens as many to the next call;
                    ///< or numbers of calls (kRewalks)
  Real tolerance;   ///< of a step's residual, over |h| and the largest |h| before, as far as that is known
  Real ground[Step::kStates];  ///< what is tolerated besides, over the tolerance: a size that every row has
  int tiles;                   ///< of the longest sequence
  int groups;                  ///< of channels of a sequence
  int carry_blocks;  ///< blocks of a stream that carry states from tile to tile, of kCarryChannels of a chain each
  int look;          ///< tiles of a sequence that may well be under way at once; 0: each waits for the state before it
  unsigned long long*
      first_bad;  ///< null: rows that are off are walked. Otherwise they are written down, by sequence: the first step
  unsigned* residual;  ///< and bits of a float, the largest residual of them
};

/// How inputs come to shared memory.
enum class ScanCopy {
  Each,        ///< entry by entry: whatever their strides
  Contiguous,  ///< rows of kScanChannels neighbours, 16 bytes at a time: channels fill the groups
  Time,  ///< steps of kScanChannels neighbours follow each other without gaps, 16 bytes at a time; inputs are aligned
         ///< alike
};

constexpr int kScanParts = kWarp / kScanChannels;              // parts of time of a warp
constexpr int kChunk = 16 / static_cast<int>(sizeof(Stored));  // entries of 16 bytes
constexpr bool kStaged = kScanChannels < kWarp;                // rows leave through shared memory
constexpr bool kChunked = kScanChannels < kChunk;              // 16 bytes hold several steps, and are read at once
// Threads that read meet in no bank where each has an odd number of 16 bytes; otherwise those are permuted.
constexpr bool kSwizzled = kChunked && kScanSteps * kScanChannels / kChunk % 2 == 0;
// Otherwise parts begin as many banks apart as they have channels.
constexpr int kPartPad = kStaged && !kChunked ? kScanChannels : 0;
constexpr int kPartPitch = kScanSteps * kScanChannels + kPartPad;  // entries
constexpr int kSlotPitch = kPartPitch * kScanParts;
constexpr int kSlots = kStaged && kRowStates > Step::kInputs ? kRowStates : Step::kInputs > 0 ? Step::kInputs : 1;
constexpr int kMapReals = Transitions::Map::count();
constexpr int kScanWords = (kCarried + kMapReals) * kHalves;  // that a tile publishes for a channel
constexpr bool kChecks = Traits::kScanChecks;  ///< whether starts from composed maps were right: scan_repair.cuh
/// What is off is walked by a kernel of its own (scan_rewalk.cuh), which makes outs and what is added up again, too:
/// tiles are marked by the call, and not by warp.
constexpr bool kRewalks = kChecks && kCarried != Step::kStates;
constexpr int kFollowing = kChecks ? Step::kInputs * kScanChannels : 0;  // entries of the step after a warp's own
constexpr int kFollowingBytes = (kFollowing * static_cast<int>(sizeof(Stored)) + 15) / 16 * 16;

/// Dynamic shared memory of a block.
constexpr int scan_shared_bytes(int warps) {
  return warps * (kSlots * kSlotPitch * static_cast<int>(sizeof(Stored)) +
                  kScanChannels * static_cast<int>(2 * kMapReals * sizeof(Real) + sizeof(unsigned))) +
         (kStaged ? warps : 1) * kFollowingBytes + kScanChannels * kCarried * static_cast<int>(sizeof(Real)) +
         (kChecks ? 3 : 2) * static_cast<int>(sizeof(unsigned));
}

CELLC_DEVICE unsigned stored_word(const uint4& chunk, int word) {
  return word == 0 ? chunk.x : word == 1 ? chunk.y : word == 2 ? chunk.z : chunk.w;
}
CELLC_DEVICE Stored stored_at(const uint4& chunk, int place) {
#if defined(CELLC_NARROW)
  return static_cast<Stored>(stored_word(chunk, place / 2) >> (16 * (place % 2)));
#elif defined(CELLC_STORAGE_F64)
  return __hiloint2double(static_cast<int>(stored_word(chunk, 2 * place + 1)),
                          static_cast<int>(stored_word(chunk, 2 * place)));
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

/// Where a step's entry of a channel lies in a warp's slot.
CELLC_DEVICE int place_in_slot(int of_part, int step, int of_channel) {
  if constexpr (!kSwizzled) return of_part * kPartPitch + step * kScanChannels + of_channel;
  const int entry = (of_part * kScanSteps + step) * kScanChannels + of_channel, chunk = entry / kChunk;
  return (chunk ^ (chunk / 8 % 8)) * kChunk + entry % kChunk;
}

/// kBuffers tiles lie on chip at once.
template <ScanCopy kCopy, int kBuffers = 1>
struct ScanTile {
  static constexpr bool kTime = kCopy == ScanCopy::Time;
  static constexpr int kInputs = Step::kInputs > 0 ? Step::kInputs : 1;
  /// Steps in 16 bytes, where steps are neighbours.
  static constexpr int kChunkSteps = kChunked ? kChunk / kScanChannels : 1;
  /// Steps whose inputs are read together.
  static constexpr int kBatch = kScanSteps % 8 == 0 && (kChunkSteps == 8 || Step::kInputs <= 2) ? 8
                                : kScanSteps % 4 == 0 && kChunkSteps <= 4                       ? 4
                                : kScanSteps % 6 == 0                                           ? 6
                                                                                                : 2;
  static_assert(kScanSteps % kBatch == 0 && kBatch % kChunkSteps == 0);
  static constexpr bool kShares = kSharedInputs && kCopy == ScanCopy::Each && kBuffers == 1 && kScanChannels == kWarp;

  const Scan& scan;
  const Lanes& lanes;
  int thread, warp, warps;  // thread of its warp
  int channel, part;        // of the group; of the warp's time
  char* shared;
  int buffer = 0;  // of the tile at hand
  unsigned call;

  // The tile at hand
  Lane lane[1];
  bool real;  // a channel of the cell
  int tile;
  long long begin;                    // step of the thread's first place; below 0 or past the end, where there is none
  int low, high;                      // places of the thread that are steps
  const Stored* input_base[kInputs];  // of step 0 of the thread's channel
  const Stored* last_input[kShiftedInputs ? kInputs : 1];  // by shifted input: of the last step
  Sharers sharers[kShares ? kInputs : 1];
  Stored* row_base[kRowStates];  // null: not written
  static constexpr bool kMeasures = kRewalks && !kStaged;
  Real seen[kCarried];        // where rows are not on chip: the largest of some that the thread has made
  unsigned long long* words;  // of the chain's first tile and the thread's channel

  CELLC_DEVICE ScanTile(const Scan& scan, char* shared) : scan(scan), lanes(scan.lanes), shared(shared) {
    thread = threadIdx.x % kWarp;
    warp = threadIdx.x / kWarp;
    warps = blockDim.x / kWarp;
    channel = thread % kScanChannels;
    part = thread / kScanChannels;
    call = call_after(scan.control->calls);
  }

  /// The threads of the warp that have the same steps, of all channels.
  CELLC_DEVICE unsigned of_part() const { return (0xffffffffu >> (kWarp - kScanChannels)) << (part * kScanChannels); }

  // Shared memory: what is cheaper to tell again than to keep.
  /// Of the warp: [slot][part][step][channel].
  CELLC_DEVICE Stored* region() const {
    const int at = kBuffers > 1 ? buffer * warps + warp : warp;
    return reinterpret_cast<Stored*>(shared) + at * (kSlots * kSlotPitch);
  }
  /// Step k of the thread, of input e.
  CELLC_DEVICE const Stored* own_input(int e, int k) const {
    return region() + e * kSlotPitch + place_in_slot(part, within(k), column(e));
  }
  /// Of the channels in a slot, the one that stands for this thread's.
  CELLC_DEVICE int column(int e) const {
    if constexpr (kShares)
      return sharers[e].first();
    else
      return channel;
  }
  /// Step k of the thread, of state e.
  CELLC_DEVICE Stored* own(int e, int k) const {
    return region() + e * kSlotPitch + place_in_slot(part, within(k), channel);
  }
  /// The 16 bytes that hold step k of the thread.
  CELLC_DEVICE uint4* own_chunk(int e, int k) const {
    return reinterpret_cast<uint4*>(region() + e * kSlotPitch + place_in_slot(part, k, 0));
  }
  /// Whether what the step after a warp's own reads may be gone from where the next warp has it: rows, or what comes
  /// next, take its place.
  static constexpr bool kEach = kStaged || kBuffers > 1;
  /// What the step after the warp's own reads: [input][channel]. Every warp has its own, or only the last one, and
  /// others read what the next warp has.
  CELLC_DEVICE Stored* following() const {
    const int at = !kEach ? 0 : kBuffers > 1 ? buffer * warps + warp : warp;
    return reinterpret_cast<Stored*>(
        shared + kBuffers * warps * (kSlots * kSlotPitch * static_cast<int>(sizeof(Stored))) + at * kFollowingBytes);
  }
  /// By warp: the map of its steps.
  CELLC_DEVICE Real* totals() const {
    return reinterpret_cast<Real*>(shared +
                                   kBuffers * warps * (kSlots * kSlotPitch * static_cast<int>(sizeof(Stored))) +
                                   (kEach || kBuffers == 0 ? kBuffers * warps : 1) * kFollowingBytes);
  }
  /// By warp: the map of the predecessors that it has looked at.
  CELLC_DEVICE Real* looks() const { return totals() + warps * (kMapReals * kScanChannels); }
  /// The state at the start of the tile, where it was there at once.
  CELLC_DEVICE Real* known() const { return looks() + warps * (kMapReals * kScanChannels); }
  /// By warp: whether its predecessors led back to a state.
  CELLC_DEVICE unsigned* ended() const { return reinterpret_cast<unsigned*>(known() + kScanChannels * kCarried); }
  CELLC_DEVICE unsigned* is_known() const { return ended() + warps * kScanChannels; }
  CELLC_DEVICE unsigned* ticket() const { return is_known() + 1; }
  /// Whether a start of this block's was off.
  CELLC_DEVICE unsigned* flagged() const { return ticket() + 1; }

  // Inputs -------------------------------------------------------------------------------------------

  CELLC_DEVICE long long input_stride(int e) const { return lane[0].direction * lanes.array[Step::input_array(e)].row; }
  CELLC_DEVICE long long row_stride(int e) const { return lane[0].direction * lanes.array[Step::state_array(e)].row; }
  CELLC_DEVICE const Stored* input_at(int e, long long t) const {
    if (is_shifted(e) && t + 1 >= lane[0].steps) return last_input[kShiftedInputs ? e : 0];
    return input_base[e] + (t + is_shifted(e)) * input_stride(e);
  }
  CELLC_DEVICE Stored* row_at(int e, long long t) const { return row_base[e] + t * row_stride(e); }
  /// Places before step 0, so that chunks of time are aligned.
  CELLC_DEVICE int skew() const {
    if constexpr (!kTime || Step::kInputs == 0) return 0;
    const unsigned long long base =
        reinterpret_cast<unsigned long long>(input_base[0] - (kScanChannels > 1 ? channel : 0));
    const int at = static_cast<int>(base / (sizeof(Stored) * kScanChannels) % kChunkSteps);
    return lanes.reverse ? kChunkSteps - 1 - at : at;
  }
  /// Where the warp's row begins in a slot.
  static CELLC_DEVICE int row_place(int row) { return place_in_slot(row / kScanSteps, row % kScanSteps, 0); }
  /// Chunks of time that runs backwards are kept as they stand in memory.
  CELLC_DEVICE bool turned() const { return kTime && !kForward && lanes.reverse; }
  CELLC_DEVICE int within(int step) const { return turned() ? step ^ (kChunkSteps - 1) : step; }

  /// Asks for what the step after the warp's own reads, in the same group of copies.
  CELLC_DEVICE void ask_following(long long first) {
    const long long t = first + kScanSteps * kScanParts;
    if constexpr (kChecks) {
      if (part != 0 || !real || t >= lane[0].steps || (!kEach && warp + 1 < warps)) return;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) {
        Stored* const to = following() + e * kScanChannels + channel;
        if constexpr (kNarrow)
          *to = *input_at(e, t);  // copies are of four bytes at least
        else
          copy_async<sizeof(Stored)>(to, input_at(e, t));
      }
    }
  }
  /// Asks for the inputs of the warp's rows, the first of which is step `first`.
  CELLC_DEVICE void ask(long long first) {
    constexpr int kRows = kScanSteps * kScanParts;
    const long long steps = lane[0].steps;
    ask_following(first);
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      Stored* const to = region() + e * kSlotPitch;
      const long long stride = input_stride(e);
      if constexpr (kCopy == ScanCopy::Contiguous) {
        constexpr int kChunks = kScanChannels >= kChunk ? kScanChannels / kChunk : 1, kAtOnce = kWarp / kChunks;
        const int row = thread / kChunks, place = thread % kChunks * kChunk;
        const Stored* from = input_at(e, first + row) + (place - channel);
        CELLC_UNROLL()
        for (int k = 0; k < kRows; k += kAtOnce)
          if (first + row + k < steps)
            copy_async<16>(to + row_place(row + k) + place,
                           is_shifted(e) ? input_at(e, first + row + k) + (place - channel) : from + k * stride);
      } else if constexpr (kTime) {
        CELLC_UNROLL()
        for (int k = 0; k < kRows; k += kWarp * kChunkSteps) {
          const int row = k + thread * kChunkSteps;
          const long long t = first + row;
          if (kRows % (kWarp * kChunkSteps) != 0 && row >= kRows) break;
          if (t >= 0 && t + kChunkSteps + is_shifted(e) <= steps) {
            copy_async<16>(to + row_place(row),
                           input_at(e, lanes.reverse ? t + kChunkSteps - 1 : t) - (kScanChannels > 1 ? channel : 0));
          } else {
            copy_ragged(to + row_place(row), e, t);
          }
        }
      } else if constexpr (kShares) {
        const int left = steps - first < kScanSteps ? static_cast<int>(steps - first) : kScanSteps,
                  count = sharers[e].count();
        const Stored* from = input_at(e, first + sharers[e].mine()) + (sharers[e].target() - sharers[e].first());
        const bool in_rows = sharers[e].in_rows();
        CELLC_UNROLL(4)
        for (int k = sharers[e].mine(); k < left; k += count, from += count * stride) {
          Stored* const at = to + place_in_slot(0, k, sharers[e].target());
          if (in_rows)
            copy_async<16, true>(at, from);
          else if constexpr (sizeof(Stored) >= 4)
            copy_async<sizeof(Stored) >= 4 ? sizeof(Stored) : 4>(at, from);
          else
            *at = *from;
        }
      } else {
        const Stored* from = input_at(e, first + part);
        CELLC_UNROLL(sizeof(Stored) >= 4 ? 4 : 8)
        for (int k = 0; k < kScanSteps; ++k) {
          const int row = k * kScanParts + part;
          if (!real || first + row < 0 || first + row >= steps) continue;
          Stored* const at = to + place_in_slot(row / kScanSteps, row % kScanSteps, channel);
          const Stored* const here = is_shifted(e) ? input_at(e, first + row) : from + k * kScanParts * stride;
          if constexpr (sizeof(Stored) >= 4) {
            copy_async<sizeof(Stored) >= 4 ? sizeof(Stored) : 4>(at, here);
          } else {
            *at = *here;
          }
        }
      }
    }
    copy_commit();
  }
  /// A chunk that begins before the sequence or ends after it.
  CELLC_DEVICE void copy_ragged(Stored* to, int e, long long t) {
    CELLC_UNROLL(1)
    for (int k = 0; k < kChunkSteps; ++k) {
      if (t + k < 0 || t + k >= lane[0].steps) continue;
      CELLC_UNROLL()
      for (int c = 0; c < kScanChannels; ++c) to[within(k) * kScanChannels + c] = input_at(e, t + k)[c - channel];
    }
  }

  /// Entry of the thread's channel in 16 bytes of steps.
  CELLC_DEVICE Stored own_of(const uint4& chunk, int step) const {
    Stored value = stored_at(chunk, step * kScanChannels);
    CELLC_UNROLL()
    for (int c = 1; c < kScanChannels; ++c)
      if (channel == c) value = stored_at(chunk, step * kScanChannels + c);
    return value;
  }

  CELLC_DEVICE void read(int k, Real (&input)[kInputs]) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) input[e] = widen(*own_input(e, k));
  }
  CELLC_DEVICE void read(int k, Real (&input)[kBatch][kInputs]) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      CELLC_UNROLL()
      for (int i = 0; i < kBatch; i += kChunkSteps) {
        if constexpr (kChunked) {
          const uint4 chunk = *own_chunk(e, k + i);
          CELLC_UNROLL()
          for (int j = 0; j < kChunkSteps; ++j)
            input[i + j][e] = widen(turned() ? own_of(chunk, kChunkSteps - 1 - j) : own_of(chunk, j));
        } else {
          input[i][e] = widen(*own_input(e, k + i));
        }
      }
    }
  }

  // Steps --------------------------------------------------------------------------------------------

  /// Runs the thread's steps; after(k, states) for every step or, with kBatch of them, for a batch.
  template <class Cell, class After>
  CELLC_DEVICE void sweep(const Real (&param)[1][(Cell::kInvariants > 0 ? Cell::kInvariants : 1)],
                          const Uniforms<Cell>& uniforms, Real (&state)[Cell::kStates], After&& after) {
    const auto run = [&](const Real(&input)[kInputs]) {
      Real next[Cell::kStates];
      Cell::step(param[0], input, state, next, uniforms.data);
      CELLC_UNROLL()
      for (int e = 0; e < Cell::kStates; ++e) state[e] = next[e];
    };
    constexpr int kKept = Cell::kStates < Step::kStates ? Cell::kStates : Step::kStates;
    if (low == 0 && high == kScanSteps) {
      CELLC_UNROLL(1)
      for (int k = 0; k < kScanSteps; k += kBatch) {
        Real input[kBatch][kInputs], rows[kBatch][kKept];
        read(k, input);
        Repeat<kBatch>::run([&](auto place) {
          constexpr int i = decltype(place)::value;
          run(input[i]);
          CELLC_UNROLL()
          for (int e = 0; e < kKept; ++e) rows[i][e] = state[e];
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

  /// Where the part of time after the thread's own starts, and what its first step reads.
  struct Following {
    bool there;
    Real start[kCarried], input[kInputs];
  };
  /// Of a thread that starts from `start`, while inputs are on chip, and long before it is asked for: at the end of a
  /// tile all would wait for it. Of the last part of a warp, whom another warp follows, the start is still to be told.
  CELLC_DEVICE Following follow(const Real (&start)[kCarried]) const {
    Following next;
    next.there = kChecks && real && low < high && high == kScanSteps && begin + kScanSteps < lane[0].steps;
    if constexpr (kChecks) {
      const bool last = part == kScanParts - 1;
      if constexpr (kStaged) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) next.start[e] = __shfl_down_sync(0xffffffffu, start[e], kScanChannels);
      }
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) {
        const Stored* const there = !last ? region() + e * kSlotPitch + place_in_slot(part + 1, within(0), channel)
                                    : !kEach && warp + 1 < warps
                                        ? region() + (kSlots + e) * kSlotPitch + within(0) * kScanChannels + column(e)
                                        : following() + e * kScanChannels + channel;
        if (next.there) next.input[e] = widen(*there);
      }
      if constexpr (kStaged) __syncwarp();  // rows may take the place of inputs
    }
    return next;
  }
  /// The largest of some of the thread's rows, which it has made.
  CELLC_DEVICE Real largest_own(int e) const {
    constexpr int kEvery = kScanSteps / 8 > 0 ? kScanSteps / 8 : 1;
    if constexpr (kMeasures) return seen[e];
    Real size = 0;
    if (!kStaged && !row_base[e]) return size;
    CELLC_UNROLL(1)
    for (int k = high - 1; k >= low; k -= kEvery)
      size = larger(size, finite_size(load(kStaged ? own(e, k) : row_at(e, begin + k))));
    return size;
  }
  /// Whether the first row of the part after the thread's own follows from `end` to within `tolerance`. Mostly it does
  /// beside these rows alone. An out that reads a state as it was before the step is made of `start` itself, which a
  /// step that forgets says nothing of: then that is compared, too. Where a state passes zero `size_before(e)` is
  /// asked, of some earlier rows.
  template <class SizeBefore>
  CELLC_DEVICE bool agrees(const Real (&param)[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)],
                           const Uniforms<Step>& uniforms, const Real (&end)[kCarried], const Real (&start)[kCarried],
                           const Real (&input)[kInputs], Real tolerance, const SizeBefore& size_before) const {
    Real written[Step::kStates], made[Step::kStates];
    Step::step(param[0], input, start, written, uniforms.data);
    Step::step(param[0], input, end, made, uniforms.data);
    bool near = true;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e)
      near = near & are_near(written[e], made[e], tolerance, magnitude(end[e]) + scan.ground[e]) &
             (!Traits::kOutsReadStates || are_near(start[e], end[e], tolerance, scan.ground[e]));
    if (near) return true;
    near = true;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      const Real size = larger(larger(finite_size(end[e]), finite_size(made[e])), size_before(e));
      near = near & are_near(written[e], made[e], tolerance, size + scan.ground[e]) &
             (!Traits::kOutsReadStates || are_near(start[e], end[e], tolerance, size + scan.ground[e]));
    }
    return near;
  }
  /// The same at the end of the thread's own steps. Marks the boundary where it does not, and says so.
  CELLC_DEVICE bool is_off(const Real (&param)[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)],
                           const Uniforms<Step>& uniforms, const Real (&end)[kCarried], const Following& next,
                           int chain) const {
    if constexpr (kChecks) {
      if (!next.there) return false;
      const bool last = part == kScanParts - 1, of_tile = last && warp == warps - 1;
      // Of what is left where a tile starts, the tile may leave half itself.
      if (!agrees(param, uniforms, end, next.start, next.input, of_tile ? scan.tolerance / 2 : scan.tolerance,
                  [&](int e) { return largest_own(e); }))
        return mark(chain, of_tile ? tile + 1 : tile, of_tile ? 0 : last ? warp + 1 : warp) && mark_chain(chain);
    }
    return false;
  }
  /// By tile and channel a bit for every warp, in whose steps, the first among them, a row does not follow from the
  /// row before it; and first by chain a block that has found any, and one more.
  CELLC_DEVICE unsigned* marks_of(int chain) const {
    return scan.marks + static_cast<long long>(lanes.sequences) * scan.groups +
           static_cast<long long>(chain) * scan.tiles * kScanChannels + channel;
  }
  CELLC_DEVICE bool mark(int chain, int of_tile, int of_warp) const {
    // Of a start that is off because the tile before ended elsewhere it is that one's end that is right.
    if constexpr (kRewalks) atomicExch(marks_of(chain) + static_cast<long long>(tile) * kScanChannels, call);
    if constexpr (!kRewalks) {
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e)
        if (!row_base[e]) return false;  // nobody can tell
      atomicOr(marks_of(chain) + static_cast<long long>(of_tile) * kScanChannels, 1u << of_warp);
    }
    return true;
  }
  CELLC_DEVICE bool mark_chain(int chain) const {
    atomicExch(scan.marks + chain, kRewalks ? call : blockIdx.x + 1);
    return true;
  }

  struct Nothing {
    template <int kStates>
    CELLC_DEVICE void batch(int, const Real (&)[kBatch][kStates]) {}
    template <int kStates>
    CELLC_DEVICE void one(int, const Real (&)[kStates]) {}
  };

  /// Rows straight to memory.
  struct Direct {
    Stored* to[kRowStates];
    long long stride[kRowStates];
    CELLC_DEVICE explicit Direct(const ScanTile& work) {
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e) {
        to[e] = work.real && work.row_base[e] ? work.row_at(e, work.begin) : nullptr;
        stride[e] = work.row_stride(e);
      }
    }
    CELLC_DEVICE void batch(int k, const Real (&rows)[kBatch][Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e) {
        if (!to[e]) continue;
        Stored* at = to[e] + k * stride[e];
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i, at += stride[e]) store(at, rows[i][e]);
      }
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e)
        if (to[e]) store(to[e] + k * stride[e], state[e]);
    }
  };
  /// Rows to where the inputs of their steps stood. Where 16 bytes hold entries of several channels, the threads of all
  /// of them have read before one writes.
  struct Staged {
    const ScanTile& work;
    CELLC_DEVICE explicit Staged(const ScanTile& work) : work(work) {}
    CELLC_DEVICE void batch(int k, const Real (&rows)[kBatch][Step::kStates]) {
      if constexpr (kChunked && kScanChannels > 1) __syncwarp(work.of_part());
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e) {
        if constexpr (kChunked && kScanChannels == 1) {
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; i += kChunk) {
            unsigned words[4];
            CELLC_UNROLL()
            for (int j = 0; j < kChunk; ++j)
              put(words, j, narrow(work.turned() ? rows[i + kChunk - 1 - j][e] : rows[i + j][e]));
            *work.own_chunk(e, k + i) = make_uint4(words[0], words[1], words[2], words[3]);
          }
        } else {
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; ++i) store(work.own(e, k + i), rows[i][e]);
        }
      }
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e) store(work.own(e, k), state[e]);
    }
  };
  /// And what is added up over steps.
  template <class Rows>
  struct Summing {
    Rows rows;
    Accumulators<1>& all;
    CELLC_DEVICE void batch(int k, const Real (&states)[kBatch][Step::kStates]) {
      rows.batch(k, states);
      CELLC_UNROLL()
      for (int i = 0; i < kBatch; ++i) all.add(0, states[i]);
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      rows.one(k, state);
      all.add(0, state);
    }
  };
  /// And how large some of them are, where nobody need have written them.
  template <class Rows>
  struct Measuring {
    Rows rows;
    Real (&seen)[kCarried];
    CELLC_DEVICE void batch(int k, const Real (&states)[kBatch][Step::kStates]) {
      rows.batch(k, states);
      one_of(states[kBatch - 1]);
    }
    CELLC_DEVICE void one(int k, const Real (&state)[Step::kStates]) {
      rows.one(k, state);
      one_of(state);
    }
    CELLC_DEVICE void one_of(const Real (&state)[Step::kStates]) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) seen[e] = larger(seen[e], finite_size(state[e]));
    }
  };
  /// Runs the thread's steps from `state`, which ends where they do. `warp_number`: of the warp's steps among all of
  /// its sequence, for the part that it leaves of what is added up.
  template <class Rows>
  CELLC_DEVICE void sweep_from(const Real (&param)[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)],
                               const Uniforms<Step>& uniforms, Real (&state)[kCarried], long long warp_number,
                               Rows rows) {
    if constexpr (kCarried == Step::kStates) {
      sweep<Step>(param, uniforms, state, rows);
    } else {
      Real now[Step::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) now[e] = e < kCarried ? state[e < kCarried ? e : 0] : Real(0);
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) seen[e] = 0;
      if constexpr (kAccumulated > 0) {
        Accumulators<1> all;
        if constexpr (kMeasures)
          sweep<Step>(param, uniforms, now, Measuring<Summing<Rows>>{{rows, all}, seen});
        else
          sweep<Step>(param, uniforms, now, Summing<Rows>{rows, all});
        all.join(kScanChannels);
        if (part == 0 && real)
          all.leave_part(lanes, lane[0], 0,
                         (static_cast<long long>(lane[0].sequence) * scan.tiles) * warps + warp_number);
      } else if constexpr (kMeasures) {
        sweep<Step>(param, uniforms, now, Measuring<Rows>{rows, seen});
      } else {
        sweep<Step>(param, uniforms, now, rows);
      }
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) state[e] = now[e];
    }
  }

  /// Whether the chunks of time of a state lie in memory as those of the inputs.
  CELLC_DEVICE bool is_chunked(int e, long long first) const {
    const ArrayView& array = lanes.array[Step::state_array(e)];
    if (array.row != kScanChannels || (kScanChannels > 1 && array.channel[0] != 1)) return false;
    const Stored* const at =
        row_at(e, lanes.reverse ? first + kChunkSteps - 1 : first) - (kScanChannels > 1 ? channel : 0);
    return reinterpret_cast<unsigned long long>(at) % 16 == 0;
  }
  /// Neighbours in memory by neighbours of the warp.
  CELLC_DEVICE void write_staged(long long first) {
    __syncwarp();
    CELLC_UNROLL()
    for (int e = 0; e < kRowStates; ++e) {
      if (!row_base[e] || !real) continue;
      if constexpr (kTime && kBuffers > 1) {
        if (first >= 0 && first + kScanSteps * kScanParts <= lane[0].steps && is_chunked(e, first)) {
          const int begin_row = thread * kChunkSteps;
          Stored* const at =
              row_at(e, first + begin_row + (lanes.reverse ? kChunkSteps - 1 : 0)) - (kScanChannels > 1 ? channel : 0);
          const long long pitch = row_stride(e) * (kWarp * kChunkSteps);
          CELLC_UNROLL()
          for (int k = 0; k < kScanSteps; k += kChunk)
            if (k + kChunk <= kScanSteps || k / kChunk * (kWarp * kChunkSteps) + begin_row < kScanSteps * kScanParts)
              *reinterpret_cast<uint4*>(at + k / kChunk * pitch) = *reinterpret_cast<const uint4*>(
                  region() + e * kSlotPitch + row_place(k / kChunk * (kWarp * kChunkSteps) + begin_row));
          continue;
        }
      }
      Stored* const to = row_at(e, first + part);
      const long long stride = row_stride(e) * kScanParts;
      const Stored* const from = region() + e * kSlotPitch;
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
  CELLC_DEVICE int place_of_row(int row) const {
    return place_in_slot(row / kScanSteps, within(row % kScanSteps), channel);
  }

  CELLC_DEVICE void resolve(int sequence, int chain, long long at_channel) {
    Lane& l = lane[0];
    set_channel(lanes, l, at_channel);
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
    find_words(chain);
    find_inputs();
    find_rows();
  }
  /// Where the arrays of the lane begin.
  CELLC_DEVICE void find_inputs() {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      const ArrayView& array = lanes.array[Step::input_array(e)];
      input_base[e] = static_cast<const Stored*>(array.data) + place(array, lane[0], 0) + lanes.step.input[e];
      if constexpr (kShares)
        sharers[e] = Sharers::of<false>(input_base[e], input_stride(e) * static_cast<long long>(sizeof(Stored)), 0);
    }
    static_assert(!kShares || kShiftedInputs == 0, "shared entries are copied for a part of the steps each");
    if constexpr (kShiftedInputs != 0)
      Repeat<kInputs>::run([&](auto input) {
        constexpr int e = decltype(input)::value;
        last_input[e] = last_of_shifted<e>(lanes, lane[0]);
      });
  }
  CELLC_DEVICE void find_rows() {
    CELLC_UNROLL()
    for (int e = 0; e < kRowStates; ++e) {
      const ArrayView& array = lanes.array[Step::state_array(e)];
      row_base[e] =
          array.data ? static_cast<Stored*>(array.data) + place(array, lane[0], 0) + lanes.step.state[e] : nullptr;
    }
  }
  CELLC_DEVICE void find_words(int chain) {
    words = scan.words + static_cast<long long>(chain) * scan.tiles * (kScanWords * kScanChannels) + channel;
  }
};

}  // namespace cellc
