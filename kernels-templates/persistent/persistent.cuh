// What kernels that live through all steps call (compiler/plan/persistent_kernel.h says what they are): the sequences
// of a cluster, what its blocks tell each other, products with weights that rest in registers and shared memory.
//
// A cluster runs `Persistent::kSlots` sequences side by side. Its blocks share the places of one axis, and each has
// every value of its own places in shared memory. A value that products read at all places is *told*: after the nest
// that makes it, or after the step if it is a state, a block writes its part into the memory of all blocks, sixteen
// bytes at a time, and each write counts on the mailbox of the block that gets it (st.async, mbarrier). There are two
// copies, used in turn: who tells a step's value has read all of the step before, and so has everybody whose next value
// it needs. Nothing waits for a block that may not run: the blocks of a cluster are resident together, or not yet.
//
// Needs nests.cuh, and tensor_parts.cuh where factors are not numbers of the arithmetic.
#pragma once

namespace cellc {

constexpr int kPersistentWarps = Persistent::kThreads / 32;
static_assert(sizeof(Mailbox) == 16);

/// A sequence of the cluster.
struct Slot {
  long long row, chunk_row;  ///< of its first step in the window
  long long begin;           ///< steps before the window
  long long steps;           ///< in the window; -1 of a slot without a sequence
  long long sequence;
};
static_assert(sizeof(Slot) <= 48);

CELLC_DEVICE Slot slot_of(const NestFrame& f, long long number) {
  Slot s = {};
  s.steps = -1;
  if (number >= f.sequences) return s;
  s.sequence = f.first_sequence + number;
  const Stretch stretch = stretch_of(f, s.sequence);
  s.begin = stretch.begin;
  s.steps = stretch.steps;
  s.row = f.direction > 0 ? stretch.low : stretch.low + stretch.steps - 1;
  s.chunk_row = f.window != 0 ? number * f.window + (s.row - stretch.low) : s.row - f.first_row;
  return s;
}
CELLC_DEVICE long long longest_of(const Slot* slots) {
  long long steps = 0;
  for (int i = 0; i < Persistent::kSlots; ++i) steps = slots[i].steps > steps ? slots[i].steps : steps;
  return steps;
}

/// Of this block in its cluster or group.
CELLC_DEVICE int persistent_rank() {
  if constexpr (Persistent::kGrouped) return static_cast<int>(blockIdx.x % Persistent::kBlocks);
  return Persistent::kBlocks > 1 ? static_cast<int>(cluster_rank()) : 0;
}

/// Before any block writes to another: mailboxes are open, and all blocks have begun.
CELLC_DEVICE void persistent_arrive() {
  if constexpr (Persistent::kBlocks > 1) cluster_arrive();
}
CELLC_DEVICE void persistent_wait() {
  if constexpr (Persistent::kBlocks > 1) cluster_wait();
}

/// Entries that blocks tell: numbers of the arithmetic, or halves as products take them.
struct Half {
  unsigned short bits;
};
CELLC_DEVICE void put(Real* at, Real value) { *at = value; }
#ifdef CELLC_PRODUCTS_16BIT
CELLC_DEVICE void put(Half* at, Real value) { at->bits = static_cast<unsigned short>(two_halves(value, 0.0f)); }
#endif
template <class Entry>
CELLC_DEVICE void pack(Piece& piece, const Real* from) {
  if constexpr (sizeof(Entry) == sizeof(Real)) {
    const unsigned* const bits = reinterpret_cast<const unsigned*>(from);
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) piece.at[i] = bits[i];
  } else {
#ifdef CELLC_PRODUCTS_16BIT
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) piece.at[i] = two_halves(from[2 * i], from[2 * i + 1]);
#endif
  }
}

/// What the blocks of a cluster tell each other of one value: kPart entries of each, of every slot.
template <class Entry, int kPart, int kPitch>
struct Told {
  static constexpr int kEach = 16 / static_cast<int>(sizeof(Entry)), kPiecesOfSlot = kPart / kEach;
  static constexpr int kPieces = kPiecesOfSlot * Persistent::kSlots, kSize = kPitch * Persistent::kSlots;
  static constexpr int kBytes = kPieces * Persistent::kBlocks * 16;
  static_assert(kPart % kEach == 0, "parts are whole pieces");

  Entry* memory;       ///< [copy][slot][kPitch]
  Mailbox* mailboxes;  ///< by copy
  int rank;

  CELLC_DEVICE void open() const {
    for (int copy = 0; copy < 2; ++copy) open_exchange(mailboxes + copy);
  }
  /// The n-th copy: of a state after n steps, of another value in step n - 1.
  CELLC_DEVICE Entry* at(long long n) const { return memory + (n & 1) * kSize; }

  /// Own part, [slot][kPart]. All threads call it, when all of them have written theirs.
  CELLC_DEVICE void tell(const Real* own, long long n) const {
    Entry* const to = at(n);
    Mailbox* const mailbox = mailboxes + (n & 1);
    if (Persistent::kBlocks > 1 && threadIdx.x == 0) expect_pieces(mailbox, kBytes);
    CELLC_UNROLL()
    for (int first = 0; first < kPieces * Persistent::kBlocks; first += Persistent::kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      if (i >= kPieces * Persistent::kBlocks) break;
      const int number = i % kPieces, slot = number / kPiecesOfSlot, place = number % kPiecesOfSlot * kEach;
      Piece piece;
      pack<Entry>(piece, own + slot * kPart + place);
      Entry* const there = to + slot * kPitch + rank * kPart + place;
      if constexpr (Persistent::kBlocks == 1) {
        *reinterpret_cast<Piece*>(there) = piece;
      } else {
        // Nobody is written to by all at once.
        send_piece(mailbox, there, (i / kPieces + rank) % Persistent::kBlocks, piece);
      }
    }
  }
  CELLC_DEVICE void await(long long n) const {
    if constexpr (Persistent::kBlocks == 1)
      __syncthreads();
    else
      await_pieces(mailboxes + (n & 1), (n - 1) / 2, kBytes);
  }
};

/// Told between the blocks of a group, through memory (group_exchange.cuh). `exchange` holds two copies of what all
/// blocks tell; the block has one, which it fills when it waits: by then it has read what was there.
template <class Entry, int kPart, int kPitch>
struct ToldInGroup {
  static constexpr int kEach = 12 / static_cast<int>(sizeof(Entry)), kPiecesOfSlot = (kPart + kEach - 1) / kEach;
  static constexpr int kPieces = kPiecesOfSlot * Persistent::kSlots, kAll = kPieces * Persistent::kBlocks;
  static constexpr int kTurns = (kAll + Persistent::kThreads - 1) / Persistent::kThreads;
  /// Pieces that a thread waits for at the same time: 8 at most, and about as many each time.
  static constexpr int kAtOnce = (kTurns + (kTurns + 7) / 8 - 1) / ((kTurns + 7) / 8);

  Entry* memory;    ///< [slot][kPitch]
  Piece* exchange;  ///< [copy][block][slot][piece]
  int rank;

  CELLC_DEVICE Entry* at(long long) const { return memory; }

  /// Own part, [slot][kPart]. All threads call it, when all of them have written theirs.
  CELLC_DEVICE void tell(const Real* own, long long n) const {
    Piece* const to = exchange + (n & 1) * kAll + rank * kPieces;
    CELLC_UNROLL()
    for (int first = 0; first < kPieces; first += Persistent::kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      if (i >= kPieces) break;
      const int place = i % kPiecesOfSlot * kEach;
      Piece piece = {};
      piece.at[3] = tag_of(n);
      const Real* const from = own + i / kPiecesOfSlot * kPart + place;
      if constexpr (sizeof(Entry) == sizeof(Real)) {
        constexpr int kWords = static_cast<int>(sizeof(Entry) / 4);
        CELLC_UNROLL()
        for (int j = 0; j < kEach; ++j) {
          if (kPart % kEach != 0 && place + j >= kPart) continue;
          CELLC_UNROLL()
          for (int w = 0; w < kWords; ++w) piece.at[kWords * j + w] = reinterpret_cast<const unsigned*>(from + j)[w];
        }
      } else {
#ifdef CELLC_PRODUCTS_16BIT
        CELLC_UNROLL()
        for (int j = 0; j < kEach; j += 2)
          if (kPart % kEach == 0 || place + j < kPart) piece.at[j / 2] = two_halves(from[j], from[j + 1]);
#endif
      }
      put_piece(to + i, piece);
    }
  }
  CELLC_DEVICE void await(long long n) const {
    const Piece* const from = exchange + (n & 1) * kAll;
    const unsigned tag = tag_of(n);
    CELLC_UNROLL(1)
    for (int turn = 0; turn < kTurns; turn += kAtOnce) {
      const int first = turn * Persistent::kThreads + static_cast<int>(threadIdx.x);
      Piece pieces[kAtOnce];
      CELLC_UNROLL()
      for (int j = 0; j < kAtOnce; ++j) pieces[j].at[3] = first + j * Persistent::kThreads < kAll ? 0 : tag;
      for (;;) {
        CELLC_UNROLL()
        for (int j = 0; j < kAtOnce; ++j)
          if (pieces[j].at[3] != tag) get_piece(pieces[j], from + first + j * Persistent::kThreads);
        bool there = true;
        CELLC_UNROLL()
        for (int j = 0; j < kAtOnce; ++j) there = there && pieces[j].at[3] == tag;
        if (there) break;
        let_others_tell();
      }
      CELLC_UNROLL()
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * Persistent::kThreads;
        if (kAll % (kAtOnce * Persistent::kThreads) == 0 || i < kAll) unpack(pieces[j], i);
      }
    }
    __syncthreads();
  }

  CELLC_DEVICE void unpack(const Piece& piece, int i) const {
    const int slot = i / kPiecesOfSlot % Persistent::kSlots, place = i % kPiecesOfSlot * kEach;
    Entry* const to = memory + slot * kPitch + i / kPieces * kPart + place;
    constexpr int kWords = sizeof(Entry) == 8 ? 2 : 3, kOfWord = sizeof(Entry) == 2 ? 2 : 1;
    CELLC_UNROLL()
    for (int w = 0; w < kWords; ++w)
      if (kPart % kEach == 0 || place + w * kOfWord < kPart) reinterpret_cast<unsigned*>(to)[w] = piece.at[w];
  }
};

/// Matrices of a product, [factor]: where row 0 of the block's part and term 0 stand.
template <int kFactors>
struct Weights {
  const Real* matrix[kFactors];
  long long row_stride[kFactors], term_stride[kFactors];
  long long rows, terms;  ///< that are there

  CELLC_DEVICE Real at(int factor, long long row, long long term) const {
    return row < rows && term < terms ? matrix[factor][row * row_stride[factor] + term * term_stride[factor]] : Real(0);
  }
};

/// Weights of multiply-adds, in shared memory: a thread makes a sum.
template <int kFactors, int kPart, int kTerms, int kPitch>
struct StationaryRows {
  static constexpr int kApart = kTerms + 1;  ///< neighbouring rows begin in different banks
  Real* weights;

  CELLC_DEVICE void load(const Weights<kFactors>& from, void* shared) {
    weights = static_cast<Real*>(shared);
    CELLC_UNROLL(1)
    for (int i = threadIdx.x; i < kFactors * kPart * kTerms; i += Persistent::kThreads) {
      const int row = i / kTerms, term = i % kTerms;
      weights[row * kApart + term] = from.at(row / kPart, row % kPart, term);
    }
  }
  /// `results`: [factor][slot][kPart].
  CELLC_DEVICE void multiply(const Real* const (&values)[kFactors], Real* results, const Weights<kFactors>&) const {
    constexpr int kSums = kFactors * kPart * Persistent::kSlots;
    CELLC_UNROLL(1)
    for (int i = threadIdx.x; i < kSums; i += Persistent::kThreads) {
      const int row = i % kPart, slot = i / kPart % Persistent::kSlots, factor = i / (kPart * Persistent::kSlots);
      const Real* const w = weights + (factor * kPart + row) * kApart;
      const Real* const v = values[factor] + slot * kPitch;
      Real sum[4] = {};
      int k = 0;
      CELLC_UNROLL(4)
      for (; k + 4 <= kTerms; k += 4) {
        CELLC_UNROLL()
        for (int j = 0; j < 4; ++j) sum[j] += w[k + j] * v[k + j];
      }
      for (; k < kTerms; ++k) sum[0] += w[k] * v[k];
      results[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
  }
};

/// So many steps before a row is fetched, it is asked for from memory.
constexpr int kPersistentAhead = 6;
CELLC_DEVICE void ask_for(const void* at) {
#ifndef CELLC_EMULATOR
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  static_cast<void>(at);
#endif
}

/// Sixteen bytes of shared memory, or whatever was there: no choice between two numbers stands behind the load. Where
/// weights come from shared memory, too, the compiler knows better when to load (kChoose): of an LSTM of 768 units a
/// step takes 3.6 us instead of 4.1, of one of 512 units whose weights are all in registers 1.4 instead of 1.15 (H100).
template <bool kChoose>
CELLC_DEVICE void read_if(Piece& piece, const void* at, bool there) {
#ifndef CELLC_EMULATOR
  if constexpr (kChoose)
#endif
  {
    piece = {};
    if (there) piece = *static_cast<const Piece*>(at);
  }
#ifndef CELLC_EMULATOR
  else
    asm volatile("{ .reg .pred yes;\n setp.ne.u32 yes, %5, 0;\n @yes ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=r"(piece.at[0]), "=r"(piece.at[1]), "=r"(piece.at[2]), "=r"(piece.at[3])
                 : "r"(shared_address(const_cast<void*>(at))), "r"(static_cast<unsigned>(there)));
#endif
}

#ifdef CELLC_PERSISTENT_TENSOR
/// Weights of tensor cores: tiles of sixteen rows go round the warps, of which kShares have a tile together, each some
/// of its terms. Of the kSteps instructions along those the weights of the first kHeld rest in registers, the others in
/// shared memory, as lanes hold them. Columns are slots. Rows of products of one value follow one after another. Which
/// terms an instruction multiplies does not matter as long as both sides agree: a lane's terms of two instructions are
/// sixteen bytes of a value, read at once, and by no lane whose column has no slot.
template <int kFactors, int kPart, int kTerms, int kPitch, class Entry, int kHeld, bool kOneValue, int kShares>
struct StationaryTiles {
  static constexpr int kRows = kFactors * kPart, kTilesOfFactor = (kPart + 15) / 16;
  static constexpr int kTiles = kOneValue ? (kRows + 15) / 16 : kFactors * kTilesOfFactor;
  static constexpr int kWarpsOfShare = kPersistentWarps / kShares;
  static constexpr int kTilesOfWarp = (kTiles + kWarpsOfShare - 1) / kWarpsOfShare;
  static constexpr int kPairs = (kTerms + 2 * kTermsAtOnce - 1) / (2 * kTermsAtOnce);
  static constexpr int kSteps = (kPairs + kShares - 1) / kShares * 2;
  static constexpr int kColumns = (Persistent::kSlots + 7) / 8;
  /// Sums that are added up in the end, so that an instruction need not wait for the one before.
  static constexpr int kChains = kTilesOfWarp * kColumns >= 3 ? 1 : kTilesOfWarp * kColumns >= 2 ? 2 : 4;

  static constexpr bool kChoose = kHeld < kSteps || Persistent::kBlocks == 1;

  static constexpr int kApart = kTiles * 16 + 8;  ///< from slot to slot of partial sums: other banks

  LeftPart held[kTilesOfWarp][kHeld > 0 ? kHeld : 1];
  const LeftPart* rest;  ///< [tile][share][step - kHeld][lane]
  float* partial;        ///< [share][slot][kApart]
  TensorScratch* scratch;

  /// A row of a tile.
  struct Row {
    int factor, row;
    bool there;
  };
  static CELLC_DEVICE Row row_of(int tile, int row) {
    if constexpr (kOneValue) {
      const int number = tile * 16 + row;
      return {number / kPart, number % kPart, number < kRows};
    }
    const int of_factor = tile % kTilesOfFactor * 16 + row;
    return {tile / kTilesOfFactor, of_factor, tile < kTiles && of_factor < kPart};
  }
  static CELLC_DEVICE int share_of_warp() { return static_cast<int>(threadIdx.x) / 32 / kWarpsOfShare; }
  static CELLC_DEVICE int first_tile() { return static_cast<int>(threadIdx.x) / 32 % kWarpsOfShare; }

  /// The first of those that half `p` of an instruction's terms has in this lane.
  static CELLC_DEVICE int term_of(int step, int p) {
    constexpr int kOwn = kTermsAtOnce / 8;  // 2 of 16 bits, 1 of 32
    return (step / 2 * 8 + threadIdx.x % 4 * 2 + step % 2) * 2 * kOwn + p * kOwn;
  }

  /// `step`: of all shares.
  static CELLC_DEVICE LeftPart part_of(const Weights<kFactors>& from, int tile, int step) {
    const int group = threadIdx.x % 32 / 4;
    LeftPart part;
    CELLC_UNROLL()
    for (int p = 0; p < 4; ++p) {
      const Row r = row_of(tile, group + 8 * (p % 2));
#ifdef CELLC_PRODUCTS_16BIT
      const int term = term_of(step, p / 2);
      part.at[p] = r.there ? two_halves(from.at(r.factor, r.row, term), from.at(r.factor, r.row, term + 1)) : 0u;
#else
      const int term = term_of(step, p / 2);
      part.at[p] = bits_of(r.there ? from.at(r.factor, r.row, term) : 0.0f);
#endif
    }
    return part;
  }

  CELLC_DEVICE void load(const Weights<kFactors>& from, void* shared, float* of_shares, TensorScratch* of_emulator) {
    scratch = of_emulator;
    partial = of_shares;
    const int lane = threadIdx.x % 32, share = share_of_warp();
    CELLC_UNROLL()
    for (int i = 0; i < kTilesOfWarp; ++i) {
      CELLC_UNROLL()
      for (int step = 0; step < kHeld; ++step)
        held[i][step] = part_of(from, first_tile() + i * kWarpsOfShare, share * kSteps + step);
    }
    LeftPart* const to = static_cast<LeftPart*>(shared);
    rest = to;
    CELLC_UNROLL(1)
    for (int tile = first_tile(); tile < kTiles; tile += kWarpsOfShare) {
      CELLC_UNROLL(1)
      for (int step = kHeld; step < kSteps; ++step)
        to[((tile * kShares + share) * (kSteps - kHeld) + step - kHeld) * 32 + lane] =
            part_of(from, tile, share * kSteps + step);
    }
  }

  /// What two instructions multiply, of the column of the lane's group; `there`: whether it has a slot.
  static CELLC_DEVICE void rights_of(RightPart (&to)[2], const Entry* value, bool there, int step) {
    Piece piece;
    const Entry* const at = value + term_of(step, 0);
#ifdef CELLC_PRODUCTS_16BIT
    if constexpr (sizeof(Entry) == 2) {
      read_if<kChoose>(piece, at, there);
    } else {
      CELLC_UNROLL()
      for (int i = 0; i < 4; ++i) piece.at[i] = two_halves(at[2 * i], at[2 * i + 1]);
    }
#else
    read_if<kChoose>(piece, at, there);
#endif
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) to[i / 2].at[i % 2] = piece.at[i];
  }

  /// Both parts of a weight are made where they are needed: made once for all steps, they would take twice the
  /// registers, which there are not.
  static CELLC_DEVICE unsigned at_rest(unsigned weight) {
#if defined(CELLC_PRODUCTS_3XTF32) && !defined(CELLC_EMULATOR)
    asm volatile("" : "+r"(weight));
#endif
    return weight;
  }

  /// sums += left · right, as exactly as factors are meant to be.
  CELLC_DEVICE void add(float (&sums)[4], const LeftPart& left, const RightPart& right) const {
#ifdef CELLC_PRODUCTS_16BIT
    multiply_add(sums, left, right, scratch);
#else
    LeftPart high, low;
    RightPart r, r_low;
    CELLC_UNROLL()
    for (int p = 0; p < 4; ++p) split(__uint_as_float(at_rest(left.at[p])), high.at[p], low.at[p]);
    CELLC_UNROLL()
    for (int p = 0; p < 2; ++p) split(__uint_as_float(right.at[p]), r.at[p], r_low.at[p]);
#ifdef CELLC_PRODUCTS_3XTF32
    // Tensor cores cut sums off; what leaves them after a few terms is rounded.
    float part[4] = {};
    multiply_add(part, low, r, scratch);
    multiply_add(part, high, r_low, scratch);
    multiply_add(part, high, r, scratch);
    CELLC_UNROLL()
    for (int s = 0; s < 4; ++s) sums[s] += part[s];
#else
    multiply_add(sums, high, r, scratch);
#endif
#endif
  }

  /// `results`: [factor][slot][kPart]. All threads call it.
  CELLC_DEVICE void multiply(const Entry* const (&values)[kFactors], Real* results,
                             const Weights<kFactors>& from) const {
    const int first = first_tile(), share = share_of_warp();
    const int lane = threadIdx.x % 32, group = lane / 4, of_group = lane % 4;
    float sums[kChains][kTilesOfWarp][kColumns][4] = {};
    const Entry* value[kTilesOfWarp][kColumns];
    bool there[kColumns];
    CELLC_UNROLL()
    for (int i = 0; i < kTilesOfWarp; ++i) {
      const int tile = first + i * kWarpsOfShare, factor = kOneValue || tile >= kTiles ? 0 : tile / kTilesOfFactor;
      const Entry* of_factor = values[0];
      CELLC_UNROLL()
      for (int f = 1; f < kFactors && !kOneValue; ++f) of_factor = f == factor ? values[f] : of_factor;
      CELLC_UNROLL()
      for (int c = 0; c < kColumns; ++c) {
        there[c] = 8 * c + group < Persistent::kSlots;
        value[i][c] = of_factor + (there[c] ? 8 * c + group : 0) * kPitch + share * kSteps * kTermsAtOnce;
      }
    }
    const auto pair = [&](int step, const auto& left_of) {
      RightPart right[kColumns][2];
      CELLC_UNROLL()
      for (int i = 0; i < kTilesOfWarp; ++i) {
        if (i == 0 || !kOneValue) {
          CELLC_UNROLL()
          for (int c = 0; c < kColumns; ++c) rights_of(right[c], value[i][c], there[c], step);
        }
        CELLC_UNROLL()
        for (int half = 0; half < 2; ++half) {
          const LeftPart left = left_of(i, step + half);
          CELLC_UNROLL()
          for (int c = 0; c < kColumns; ++c) add(sums[(step + half) % kChains][i][c], left, right[c][half]);
        }
      }
    };
    if (first < kTiles) {
      CELLC_UNROLL()
      for (int step = 0; step < kHeld; step += 2) pair(step, [&](int i, int at) { return held[i][at]; });
      constexpr int kRest = kSteps - kHeld;
      const LeftPart* from_rest[kTilesOfWarp];
      CELLC_UNROLL()
      for (int i = 0; i < kTilesOfWarp; ++i) {
        const int tile = first + i * kWarpsOfShare;
        from_rest[i] = rest + ((tile < kTiles ? tile : first) * kShares + share) * kRest * 32 + lane;
      }
      CELLC_UNROLL(4)
      for (int step = 0; step < kRest; step += 2)
        pair(kHeld + step, [&](int i, int at) { return from_rest[i][(at - kHeld) * 32]; });
    }
    CELLC_UNROLL()
    for (int i = 0; i < kTilesOfWarp; ++i) {
      const int tile = first + i * kWarpsOfShare;
      CELLC_UNROLL()
      for (int c = 0; c < kColumns; ++c) {
        CELLC_UNROLL()
        for (int s = 0; s < 4; ++s) {
          float sum = sums[0][i][c][s];
          CELLC_UNROLL()
          for (int chain = 1; chain < kChains; ++chain) sum += sums[chain][i][c][s];
          const int row = group + 8 * (s / 2), slot = 8 * c + 2 * of_group + s % 2;
          if (tile >= kTiles || slot >= Persistent::kSlots) continue;
          if constexpr (kShares > 1)
            partial[(share * Persistent::kSlots + slot) * kApart + tile * 16 + row] = sum;
          else if (const Row r = row_of(tile, row); r.there)
            keep(sum, values, results, from, r.factor, r.row, slot);
        }
      }
    }
    if constexpr (kShares > 1) {
      __syncthreads();
      constexpr int kSums = kRows * Persistent::kSlots;
      CELLC_UNROLL()
      for (int begin = 0; begin < kSums; begin += Persistent::kThreads) {
        const int i = begin + static_cast<int>(threadIdx.x);
        if (i >= kSums) break;
        const int row = i % kPart, slot = i / kPart % Persistent::kSlots, factor = i / (kPart * Persistent::kSlots);
        const int at = kOneValue ? factor * kPart + row : factor * kTilesOfFactor * 16 + row;
        float sum = partial[slot * kApart + at];
        CELLC_UNROLL()
        for (int j = 1; j < kShares; ++j) sum += partial[(j * Persistent::kSlots + slot) * kApart + at];
        keep(sum, values, results, from, factor, row, slot);
      }
    }
  }

  static CELLC_DEVICE void keep(float sum, [[maybe_unused]] const Entry* const (&values)[kFactors], Real* results,
                                [[maybe_unused]] const Weights<kFactors>& from, int factor, int row, int slot) {
#ifndef CELLC_PRODUCTS_16BIT
    if (!is_finite(sum)) sum = in_order(values, from, factor, row, slot);
#endif
    results[(factor * Persistent::kSlots + slot) * kPart + row] = sum;
  }

  /// One sum by multiply-adds: the parts of a number that is not finite are not what it is the sum of.
  static __device__ __noinline__ float in_order(const Entry* const (&values)[kFactors], const Weights<kFactors>& from,
                                                int factor, int row, int slot) {
    float sum = 0;
    CELLC_UNROLL(1)
    for (long long k = 0; k < from.terms && row < from.rows; ++k)
      sum += from.at(factor, row, k) * values[factor][slot * kPitch + k];
    return sum;
  }
};
#endif

}  // namespace cellc
