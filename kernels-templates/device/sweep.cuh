// A warp's sweep over time: inputs come to shared memory ahead of their use, a thread steps its lanes, rows leave.
//
// Inputs pass through shared memory, several stages of kSteps steps ahead of their use, in a part that
// belongs to the warp alone: no barrier but that of the warp is needed, and warps of one block may be
// at different steps. Loads into registers instead cost 2-4 times as much where latency rules.
//
// Larger than most (walk): one loop, whose stages are unrolled together and share what the thread keeps in registers.
//
// Needs lanes.cuh.
#pragma once

namespace cellc {

constexpr int kWarp = 32;
constexpr int kSteps = Traits::kStepsPerCopy;    ///< steps of a stage
constexpr int kStages = Traits::kPipelineDepth;  ///< stages in flight, the one in use among them
constexpr int kWidth = Traits::kWidth;           ///< lanes of a thread
constexpr int kTile = kWarp * kWidth;            ///< lanes of a warp

/// Different entries of input e that a warp reads at a step, at most: its *columns* in shared memory. Of `u[d]` beside
/// states h[d,16] that is 4 of 64, and what is left of the memory goes to further warps: a step of `s6` with 64 lanes
/// has 40 columns in the place of 256. The unit says so, four bits an input, where the host sees it; 0: as many as
/// lanes.
CELLC_DEVICE constexpr int columns_of(int e) {
  const unsigned fours = e < 8 ? Traits::kColumns >> 4 * e & 15u : 0;
  return fours ? 2 << fours : kTile;
}
/// Of all inputs before e. Without a call of itself: where e is no constant, no compiler could tell the stack it needs.
CELLC_DEVICE constexpr int columns_before(int e) {
  if (Traits::kColumns == 0) return e * kTile;
  int all = 0;
  for (int i = 0; i < e; ++i) all += columns_of(i);
  return all;
}

/// Entries of shared memory that a warp needs.
template <class Cell>
constexpr int kStageEntries = kStages* kSteps* columns_before(Cell::kInputs ? Cell::kInputs : 1);

/// A thread's lanes from `own` on, neighbours in one segment (kWidth divides the channels); past the last one, that one
/// again.
CELLC_DEVICE void resolve_own(const Lanes& lanes, long long own, long long count, Lane (&lane)[kWidth]) {
  lane[0] = resolve_here(lanes, own < count ? own : count - 1);
  CELLC_UNROLL()
  for (int v = 1; v < kWidth; ++v) {
    lane[v] = lane[0];
    set_channel(lanes, lane[v], lane[0].channel_index + (own < count ? v : 0));
  }
}

/// Calls a function with 0, 1, … kTimes - 1, each as a constant: an unrolling that no compiler declines.
template <int kValue>
struct Place {
  static constexpr int value = kValue;
};
template <int kTimes>
struct Repeat {
  template <class Function>
  static CELLC_DEVICE void run(Function&& function) {
    Repeat<kTimes - 1>::run(function);
    function(Place<kTimes - 1>());
  }
};
template <>
struct Repeat<0> {
  template <class Function>
  static CELLC_DEVICE void run(Function&&) {}
};

/// Whether some inputs lack an axis of the channels, so that threads of a warp may read the same. The unit says so.
constexpr bool kSharedInputs = Traits::kSharedInputs;
/// Two or four lanes a thread, neighbours along an innermost axis, though not all arrays have it: bit e says that input
/// e has one number for all of them.
constexpr unsigned kUniformInputs = Traits::kUniformInputs;
constexpr bool kVectorised = kUniformInputs != 0;
static_assert(!kVectorised || ((kWidth == 2 || kWidth == 4) && sizeof(Stored) <= 4), "four to sixteen bytes a thread");
struct alignas(kVectorised ? kWidth * sizeof(Stored) : sizeof(Stored)) Neighbours {
  Stored at[kWidth];
};
#ifdef CELLC_NARROW
struct alignas(kVectorised ? kWidth * sizeof(Stored) : 4) NeighbourPairs {
  unsigned at[kWidth > 1 ? kWidth / 2 : 1];
};
#endif

/// Threads of a warp that read the same entries. They divide the steps among themselves, and all read where the first
/// of them has it: `s6` with 64 x 16 entries makes 20 copies a step instead of 96. Where what the warp reads at a step
/// is one row in memory, of `B[n]` or of `dt[d]` beside states h[d,n], it comes in rows: sixteen bytes a thread, of as
/// many steps at once as there are threads for. Columns stand in the order of the threads that have them first,
/// kEntries of a thread.
struct Sharers {
  int packed;
  CELLC_DEVICE int first() const { return packed & 0x7f; }  ///< column of the warp that this thread reads first
  CELLC_DEVICE int target() const {
    return packed >> 7 & 0x7f;
  }  ///< column that it copies to, from as many entries beside its own as it is beside first()
  CELLC_DEVICE int mine() const { return packed >> 14 & 0xff; }       ///< the first step that it copies
  CELLC_DEVICE int count() const { return packed >> 22 & 0x3f; }      ///< from one of its steps to the next
  CELLC_DEVICE bool in_rows() const { return packed >> 28 & 1; }      ///< of the whole warp
  CELLC_DEVICE bool reads_first() const { return packed >> 29 & 1; }  ///< the first thread of those that share it
  static constexpr int kNoStep = 0xff;                                ///< more than anybody has
  /// By all threads of a warp: those whose entries begin at the same place and, where lengths differ, are as many.
  /// `stride`: bytes.
  template <bool kLengthsDiffer, int kEntries = 1>
  static CELLC_DEVICE Sharers of(const void* begin, long long stride, long long many) {
    constexpr int kBytes = kEntries * static_cast<int>(sizeof(Stored));
    static_assert(kEntries <= 4, "128 columns");
    const unsigned long long at = reinterpret_cast<unsigned long long>(begin);
    const int thread = static_cast<int>(threadIdx.x) % 32;
    unsigned same = __match_any_sync(0xffffffffu, at);
    if constexpr (kLengthsDiffer) same &= __match_any_sync(0xffffffffu, static_cast<unsigned long long>(many));
    const int first = __ffs(static_cast<int>(same)) - 1, before = __popc(same & ((1u << thread) - 1));
    const unsigned firsts = __ballot_sync(0xffffffffu, before == 0);
    const unsigned long long row = __shfl_sync(0xffffffffu, at, 0);
    const int place = __popc(firsts & ((1u << first) - 1));
    bool in_rows = at == row + static_cast<unsigned>(place * kBytes) && stride % 16 == 0;
    if constexpr (kLengthsDiffer) in_rows = (many == __shfl_sync(0xffffffffu, many, 0)) & in_rows;
    const int leads = (before == 0) << 29, chunks = __popc(firsts) * kBytes / 16, column = place * kEntries;
    in_rows = in_rows && row % 16 == 0 && chunks * 16 == __popc(firsts) * kBytes;
    if (!__all_sync(0xffffffffu, in_rows)) return {column | column << 7 | before << 14 | __popc(same) << 22 | leads};
    const int at_once = 32 / chunks, step = thread / chunks;
    return {column | (thread - step * chunks) * (16 / static_cast<int>(sizeof(Stored))) << 7 |
            (step < at_once ? step : kNoStep) << 14 | at_once << 22 | 1 << 28 | leads};
  }
};

/// When inputs leave the second-level cache: in turn, as they came. Nothing is asked for.
struct InTurn {};
/// As whoever walks says, and may change from stage to stage. Where latency rules that costs a walk 2 %, and 14 % if it
/// is worked out anew for every stage.
struct AsSaid {
  const CachePolicy& policy;
};

/// One warp's stages. kRows: all its lanes are neighbouring channels of one segment, rows of which are
/// copied sixteen bytes at a time; otherwise every thread copies its own.
template <class Cell, bool kRows, class Caching>
struct Staging {
  Stored* memory;
  SharedAddress to;  ///< of this thread's first copy into stage 0
  const char*
      source[(Cell::kInputs > 0 ? Cell::kInputs : 1)];  ///< of this thread's first copy of a stage, at step `next`
  long long stride[(Cell::kInputs > 0 ? Cell::kInputs : 1)];  ///< bytes from a step to the next
  /// Of a shifted input, what is copied in the place of its row for the last step of all.
  const char* last[kShiftedInputs && Cell::kInputs > 0 ? Cell::kInputs : 1];
  const Caching caching;
  long long next, end;  ///< the step that the next stage starts with; one past the last
  long long last_step;  ///< of the sequence

  /// Of more inputs, where each of them stands takes longer to tell than its copies: steps of few lanes with 18 took a
  /// sixth longer, and those with 36, whose registers it did not fit, half as long again.
  static constexpr int kMostShared = 8;
  static constexpr bool kShares =
      kSharedInputs && !kRows && (kWidth == 1 || kVectorised) && Cell::kInputs <= kMostShared;
  static_assert(kShares || !kVectorised, "a row of columns that are not all as wide");
  /// Entries of input e that a thread reads: of all its lanes, or one for all.
  static CELLC_DEVICE constexpr int entries(int e) { return kUniformInputs >> e & 1 ? 1 : kWidth; }
  struct Shared {
    Sharers who;
    int step_in_rows, step_alone;  ///< the first step of a stage that this thread copies, sixteen bytes or an entry;
                                   ///< else more than there are
    SharedAddress to;              ///< of that copy, into stage 0
    const Stored* from;            ///< where this thread reads stage 0
  };
  Shared shared[kShares && Cell::kInputs > 0 ? Cell::kInputs : 1];
  bool more;  ///< whether there are inputs whose steps some threads have several of

  static constexpr int kChunk = 16 / sizeof(Stored);  // entries
  static constexpr int kChunks = kTile / kChunk;      // of a row
  static constexpr int kRowsAtOnce = kWarp / kChunks;
  static constexpr int kRowBytes = kTile * sizeof(Stored);
  static constexpr int kStageEntries = kSteps * columns_before(Cell::kInputs);
  static constexpr int kStageBytes = kStageEntries * static_cast<int>(sizeof(Stored));
  static_assert(kShares || columns_before(Cell::kInputs) == Cell::kInputs * kTile, "rows of all lanes");

  CELLC_DEVICE Staging(Stored* memory, const Lanes& lanes, const Lane (&lane)[kWidth], long long begin, long long end,
                       const Caching& caching)
      : memory(memory), caching(caching), next(begin), end(end), last_step(lane[0].steps - 1) {
    const int thread = threadIdx.x % kWarp;
    if constexpr (kShares) __syncwarp();
    more = false;
    to = shared_address(memory + (kRows ? thread / kChunks * kTile + thread % kChunks * kChunk : thread * kWidth));
    CELLC_UNROLL()
    for (int e = 0; e < Cell::kInputs; ++e) {
      const ArrayView& array = lanes.array[Cell::input_array(e)];
      long long at = place(array, lane[0], begin + is_shifted(e)) + offsets_of<Cell>(lanes).input[e];
      stride[e] = lane[0].direction * array.row * static_cast<long long>(sizeof(Stored));
      const int aside = kRows ? thread % kChunks * kChunk - thread * kWidth : 0;
      at += aside;
      source[e] = reinterpret_cast<const char*>(static_cast<const Stored*>(array.data) + at);
      if constexpr (kRows) source[e] += thread / kChunks * stride[e];
      if constexpr (kShares) {
        const Sharers who = kWidth == 1 || entries(e) == 1
                                ? Sharers::of<true>(source[e], stride[e], end - begin)
                                : Sharers::of<true, kWidth>(source[e], stride[e], end - begin);
        if (!is_shifted(e))
          source[e] += who.mine() * stride[e] + (who.target() - who.first()) * static_cast<long long>(sizeof(Stored));
        shared[e] = {who, who.in_rows() ? who.mine() : Sharers::kNoStep, who.in_rows() ? Sharers::kNoStep : who.mine(),
                     shared_address(memory + kSteps * columns_before(e) + who.mine() * columns_of(e) + who.target()),
                     memory + kSteps * columns_before(e) + who.first()};
        more |= !is_shifted(e) && who.count() < kSteps;
      }
    }
    if constexpr (kShiftedInputs != 0) {
      Repeat<Cell::kInputs>::run([&](auto input) {
        constexpr int e = decltype(input)::value;
        const Stored* const from = last_of_shifted<e>(lanes, lane[0]);
        last[e] = reinterpret_cast<const char*>(from + (kRows ? thread % kChunks * kChunk - thread * kWidth : 0));
      });
    }
    if constexpr (kShares) more = __any_sync(0xffffffffu, more);
  }

  template <class Offset>
  static CELLC_DEVICE void copy(Offset, SharedAddress stage, const char* from, InTurn) {
    copy_async_at<16, Offset::value>(stage, from);
  }
  template <class Offset>
  static CELLC_DEVICE void copy(Offset, SharedAddress stage, const char* from, AsSaid as) {
    copy_async_at<16, Offset::value>(stage, from, as.policy);
  }

  /// Where this thread copies step next + k from.
  template <int kInput>
  CELLC_DEVICE const char* from(int k, int row) const {
    const char* const at = source[kInput] + k * stride[kInput];
    if constexpr (is_shifted(kInput)) return next + k + row == last_step ? last[kInput] : at;
    return at;
  }

  static CELLC_DEVICE void copy_shared(bool wide, SharedAddress at, const char* from, bool in_rows, bool alone) {
    copy_async_if<16>(in_rows, at, from);
    if (kVectorised && wide)
      copy_async_if<kVectorised ? kWidth* static_cast<int>(sizeof(Stored)) : 8>(alone, at, from);
    else if constexpr (sizeof(Stored) >= 4)
      copy_async_if<sizeof(Stored) >= 4 ? sizeof(Stored) : 4>(alone, at, from);
    else if (alone)
      store_at(at, static_cast<unsigned short>(*reinterpret_cast<const Stored*>(from)));
  }

  /// Asks for the next stage, into place `slot`. Without branches, so that it is scheduled among the
  /// arithmetic of a step.
  CELLC_DEVICE void ask(int slot) {
    const int left = end - next < kSteps ? static_cast<int>(end - next) : kSteps;
    const SharedAddress stage = to + slot * kStageBytes;
    if constexpr (kRows) {
      const int row = static_cast<int>(threadIdx.x) % kWarp / kChunks;
      Repeat<Cell::kInputs>::run([&](auto input) {
        constexpr int e = decltype(input)::value;
        Repeat<(kSteps + kRowsAtOnce - 1) / kRowsAtOnce>::run([&](auto part) {
          constexpr int k = decltype(part)::value * kRowsAtOnce;
          if (k + row < left) copy(Place<(e * kSteps + k) * kRowBytes>(), stage, from<e>(k, row), caching);
        });
      });
    } else {
      Repeat<Cell::kInputs>::run([&](auto input) {
        constexpr int e = decltype(input)::value;
        if constexpr (kShares && is_shifted(e)) {
          // All steps by the first thread that reads them: the last of all is elsewhere.
          const SharedAddress here = shared_address(const_cast<Stored*>(shared[e].from)) + slot * kStageBytes;
          Repeat<kSteps>::run([&](auto step) {
            constexpr int k = decltype(step)::value;
            copy_shared(entries(e) > 1, here + k * columns_of(e) * static_cast<int>(sizeof(Stored)), from<e>(k, 0),
                        false, k < left && shared[e].who.reads_first());
          });
        } else if constexpr (kShares) {
          copy_shared(entries(e) > 1, shared[e].to + slot * kStageBytes, source[e], shared[e].step_in_rows < left,
                      shared[e].step_alone < left);
        } else {
          CELLC_UNROLL(1)
          for (int k = 0; k < left; ++k) {
            if constexpr (sizeof(Stored) * kWidth >= 4) {
              copy_async_at<sizeof(Stored) * kWidth, 0>(stage + (e * kSteps + k) * kRowBytes, from<e>(k, 0));
            } else {
              memory[((slot * Cell::kInputs + e) * kSteps + k) * kTile + threadIdx.x % kWarp] =
                  *reinterpret_cast<const Stored*>(from<e>(k, 0));
            }
          }
        }
      });
      // Mostly there are threads for all steps: sixteen of those that read delta[d] of s6. Loops for all inputs took a
      // quarter of its time.
      if constexpr (kShares) {
        if (more) {
          CELLC_UNROLL()
          for (int e = 0; e < Cell::kInputs; ++e) {
            const Sharers who = shared[e].who;
            if (is_shifted(e)) continue;
            CELLC_UNROLL(1)
            for (int k = who.count(); who.mine() + k < left; k += who.count())
              copy_shared(entries(e) > 1,
                          shared[e].to + slot * kStageBytes + k * columns_of(e) * static_cast<int>(sizeof(Stored)),
                          source[e] + k * stride[e], who.in_rows(), !who.in_rows());
          }
        }
      }
    }
    CELLC_UNROLL()
    for (int e = 0; e < Cell::kInputs; ++e) source[e] += kSteps * stride[e];
    next += kSteps;
    copy_commit();
  }

  /// What step k of the stage in `slot` reads.
  CELLC_DEVICE void read(int slot, int k, Real (&input)[kWidth][(Cell::kInputs > 0 ? Cell::kInputs : 1)]) const {
    const Stored* const stage = memory + slot * kStageEntries;
    CELLC_UNROLL()
    for (int e = 0; e < Cell::kInputs; ++e) {
      const Stored* from = stage + (e * kSteps + k) * kTile + threadIdx.x % kWarp * kWidth;
      if constexpr (kShares) from = shared[e].from + slot * kStageEntries + k * columns_of(e);
      if constexpr (kVectorised) {
        if (entries(e) == 1) {
          const Real all = widen(*from);
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) input[v][e] = all;
        } else {
#ifdef CELLC_NARROW
          const NeighbourPairs all = *reinterpret_cast<const NeighbourPairs*>(from);
          CELLC_UNROLL()
          for (int v = 0; v + 1 < kWidth; v += 2) widen_two(all.at[v / 2], input[v][e], input[v + 1][e]);
#else
          const Neighbours all = *reinterpret_cast<const Neighbours*>(from);
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) input[v][e] = widen(all.at[v]);
#endif
        }
      } else
#ifdef CELLC_NARROW
          if constexpr (kWidth == 2) {
        widen_two(*reinterpret_cast<const unsigned*>(from), input[0][e], input[kWidth - 1][e]);
      } else
#endif
      {
        CELLC_UNROLL()
        for (int v = 0; v < kWidth; ++v) input[v][e] = widen(from[v]);
      }
    }
  }
};

/// States of a step that are terms of sums over lanes, behind all others (sums.cuh).
constexpr int kSums = Traits::kSums;
constexpr int kFirstTerm = Step::kStates - kSums;

/// Where a lane's states are written. Rows that nobody wants still took 6 of a step's 75 instructions of `s6`.
struct Rows {
  static constexpr int kRows = Traits::kWritesRows ? kRowStates : 0;
  Stored* to[kRowStates];        ///< at the step that comes next
  long long stride[kRowStates];  ///< entries
  bool present[kRowStates];
  CELLC_DEVICE void begin(const Lanes& lanes, const Lane& lane, long long t) {
    CELLC_UNROLL()
    for (int e = 0; e < kRows; ++e) {
      const ArrayView& array = lanes.array[Step::state_array(e)];
      present[e] = array.data != nullptr;
      to[e] = static_cast<Stored*>(array.data) + place(array, lane, t) + lanes.step.state[e];
      stride[e] = lane.direction * array.row;
    }
  }
  /// kWidth neighbours at once, where `writes`; and on to the next step.
  template <int kStates>
  CELLC_DEVICE void write(const Real (&state)[kWidth][kStates], bool writes) {
    CELLC_UNROLL()
    for (int e = 0; e < kRows; ++e) {
      if (writes && present[e]) {
        if constexpr (kVectorised) {
          Neighbours all;
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) all.at[v] = narrow(state[v][e]);
          *reinterpret_cast<Neighbours*>(to[e]) = all;
        } else
#ifdef CELLC_NARROW
            if constexpr (kWidth == 2) {
          *reinterpret_cast<unsigned*>(to[e]) = narrow_two(state[0][e], state[1][e]);
        } else
#endif
        {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) store(to[e] + v, state[v][e]);
        }
      }
      to[e] += stride[e];
    }
  }
};

/// Of a walk of which all is there before it asks for inputs.
struct Ready {};
template <class Meanwhile>
constexpr bool kIsReady = false;
template <>
constexpr bool kIsReady<Ready> = true;

/// Whether what is called after a step takes whole stages, and is then told which step of one it was.
template <class After>
constexpr bool kTakesStages = false;

/// How many steps are one piece of code in walks that slow data take: the more, the longer they take to compile, and
/// the less of a step's time goes into counting. ParaGRU's bundles, of 33 operations a run, take 16 to 30 % more time
/// one by one, and 2 to 15 % two by two.
template <class Cell>
constexpr int kTogether = Cell::kOperations <= 48   ? kSteps
                          : Cell::kOperations <= 96 ? 4
                                                    : 2;

/// Runs steps [begin, end) of this thread's lanes. kLockstep: the warps of the block, which then all run as
/// many steps, stay together, so that memory sees longer rows (4 % where bandwidth is the limit, but a
/// loss where it is not). kPiece: so many steps are one piece of code; kSteps where all calls come by.
///
/// `before_stage(t, state)` is called by the lanes that still
/// run before every kSteps of them and says whether to go on, `after(t, state, first)` after each step, with
/// whether it is the first of those. begin and end may differ between threads unless kRows.
///
/// `meanwhile(param)` is called when the first inputs are on their way: what else a walk begins with, the states among
/// it. Where there is nothing but steps, and each waits for the one before, it is Ready: what it begins with is then
/// made before, and the compiler keeps it at hand, or a step takes 4 to 30 % longer (ParaGRU 63 ns, then 66; Lorenz'
/// equations 39 and 51).
template <class Cell, bool kRows, bool kLockstep, int kPiece, class Meanwhile, class BeforeStage, class After,
          class Caching = InTurn>
CELLC_DEVICE void walk(const Lanes& lanes, const Lane (&lane)[kWidth], long long begin, long long end,
                       Real (&state)[kWidth][Cell::kStates], Stored* memory, Meanwhile&& meanwhile,
                       BeforeStage&& before_stage, After&& after, const Caching& caching = Caching()) {
  constexpr int kInputs = Cell::kInputs ? Cell::kInputs : 1, kAtOnce = kPiece < kSteps ? kPiece : kSteps;
  static_assert(kSteps % kAtOnce == 0, "a stage is whole pieces");
  Real param[kWidth][(Cell::kInvariants > 0 ? Cell::kInvariants : 1)];
  constexpr bool kReady = kIsReady<Meanwhile>;
  if (kReady) load_params<Cell>(lanes, lane, param);
  Staging<Cell, kRows, Caching> staging(memory, lanes, lane, begin, end, caching);
  __syncwarp();  // the last walk's reads are done
  CELLC_UNROLL(1)
  for (int s = 0; s < kStages; ++s) staging.ask(s);
  if constexpr (!kReady) load_params<Cell>(lanes, lane, param);
  const Uniforms<Cell> uniforms(lanes);
  if constexpr (!kReady) meanwhile(param);
  int slot = 0;
  long long t = begin;
  Real input[kWidth][kInputs];
  const auto copy = [&](Real(&now)[kWidth][kInputs]) {
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      CELLC_UNROLL()
      for (int e = 0; e < kInputs; ++e) now[v][e] = input[v][e];
    }
  };
  const auto run = [&](const Real(&reads)[kWidth][kInputs]) {
    Real next[kWidth][Cell::kStates];
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) Cell::step(param[v], reads[v], state[v], next[v], uniforms.data);
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      CELLC_UNROLL()
      for (int e = 0; e < Cell::kStates; ++e) state[v][e] = next[v][e];
    }
  };
  copy_wait<kStages - 1>();
  __syncwarp();
  staging.read(slot, 0, input);
  for (bool open = t < end;;) {
    open = open && before_stage(t, state);
    // Votes also where all threads are known to agree: the compiler then knows it, too.
    if (!__any_sync(0xffffffffu, open)) break;
    const int after_slot = slot == kStages - 1 ? 0 : slot + 1;
    // What a step reads is on its way a step earlier, and the next stage is asked for in the last step's
    // shadow: nothing but the recurrence itself is waited for.
    const auto turn = [&] {
      copy_wait<kStages - 2>();
      if constexpr (kLockstep)
        __syncthreads();
      else
        __syncwarp();
      staging.read(after_slot, 0, input);
      staging.ask(slot);
    };
    if constexpr (kAtOnce == 1) {
      // One piece of code for stages whole and cut short.
      const int steps = !open              ? 0
                        : end - t < kSteps ? static_cast<int>(end - t)
                                           : kSteps,
                most = kRows ? steps : kSteps;
      CELLC_UNROLL(1)
      for (int k = 0; k < most; ++k) {
        Real now[kWidth][kInputs];
        copy(now);
        if (k + 1 < most)
          staging.read(slot, k + 1, input);
        else
          turn();
        if (!kRows && k >= steps) continue;
        run(now);
        after(t + k, state, k == 0);
      }
      t += steps;
    } else if (__all_sync(0xffffffffu, open && end - t >= kSteps)) {
      CELLC_UNROLL(1)
      for (int piece = 0; piece < kSteps; piece += kAtOnce) {
        Repeat<kAtOnce>::run([&](auto place) {
          constexpr int k = decltype(place)::value;
          Real now[kWidth][kInputs];
          copy(now);
          if (k + 1 < kAtOnce || (kAtOnce < kSteps && piece + kAtOnce < kSteps))
            staging.read(slot, piece + k + 1, input);
          else
            turn();
          run(now);
          if constexpr (kTakesStages<After> && kAtOnce == kSteps)
            after.template of_stage<k>(state);
          else
            after(t + piece + k, state, k == 0 && piece == 0);
        });
      }
      t += kSteps;
    } else {
      CELLC_UNROLL(1)
      for (int k = 0; k < kSteps && open && t < end; ++k, ++t) {
        staging.read(slot, k, input);
        run(input);
        after(t, state, k == 0);
      }
      // Of a warp whose threads go together this was the last stage.
      if constexpr (!kRows) copy_wait<kStages - 2>();
      __syncwarp();
      if constexpr (!kRows) {
        staging.read(after_slot, 0, input);
        staging.ask(slot);
      }
    }
    slot = after_slot;
    open = open && t < end;
  }
  copy_wait<0>();
}

}  // namespace cellc
