// Rows times a matrix of params by the tensor cores of sm_90a, for product_wgmma.cuh and product_stored.cuh, which say
// what numbers are (`Rows`). The arguments, jobs and edges of product_tensor.cuh.
//
// Four warps *feed* and eight *multiply*, which have registers of the former; between them is a ring of slots in shared
// memory, each of which has 128 bytes of 128 rows and as many terms of the matrix's columns. Rows come by copies of 16
// bytes a thread, as they may lie anywhere: sequences of a window have places of their own. The matrix, which was
// prepared, comes by the copy engine. (The engine is no way for rows: 128 copies of 128 bytes a slot take 1.7 times as
// long. Blocks of a cluster that share what they fetch of the matrix are no faster: H200, 2 and 4.)
//
// A gate is an mbarrier. A slot's *full* one opens when its rows and columns have arrived, its *empty* one when all
// warps have read it. The ring goes on from tile to tile: the next one's terms come while this one is written.
//
// Rows::kPromotes: tensor cores cut sums off rather than round them, so sums leave them after each slot and are added
// to others in f32. One half of the multiplying warps adds while the other's products run. Registers then hold 128
// columns of a row, else 256. Needs product_tensor.cuh and wgmma.cuh.
#pragma once

#include "kernels-templates/abi/wide_products.h"

namespace cellc {

constexpr int kFeeders = 128, kMultipliers = 256;
static_assert(kFeeders + kMultipliers == CELLC_WIDE_THREADS && kWideTile == CELLC_WIDE_TILE);
constexpr int kRingRowBytes = 128,
              kRingPitch = kRingRowBytes + 16;  ///< rows that are read together fall into other banks
constexpr int kRingSide = kWideTile * kRingPitch;
constexpr int kMostSlots = CELLC_WIDE_SLOTS;

#if defined(CELLC_EMULATOR)
struct RingGate {
  long long uses;  ///< that have ended
  int arrivals, pending;
  long long bytes;
};
CELLC_DEVICE void gate_open(RingGate* gate, int arrivals) { *gate = {0, arrivals, arrivals, 0}; }
CELLC_DEVICE void gate_turn(RingGate* gate) {
  if (gate->pending != 0 || gate->bytes != 0) return;
  gate->pending = gate->arrivals;
  cellc_emulator::store_volatile(&gate->uses, gate->uses + 1);
}
CELLC_DEVICE void gate_arrive(RingGate* gate) {
  --gate->pending;
  gate_turn(gate);
}
CELLC_DEVICE void gate_expect(RingGate* gate, int bytes) {
  gate->bytes += bytes;
  gate_arrive(gate);
}
CELLC_DEVICE void gate_arrive_copied(RingGate* gate) {
  copy_commit();
  copy_wait<0>();
  gate_arrive(gate);
}
CELLC_DEVICE void gate_await(RingGate* gate, long long use) {
  while (cellc_emulator::load_volatile(&gate->uses) <= use) {
  }
}
CELLC_DEVICE void ring_copy(void* to, const void* from, int bytes, RingGate* gate) {
  __builtin_memcpy(to, from, static_cast<unsigned>(bytes));
  gate->bytes -= bytes;
  gate_turn(gate);
}
CELLC_DEVICE void ring_opened() {}
CELLC_DEVICE void feeders_meet() { cellc_emulator::named_barrier(1, kFeeders); }
CELLC_DEVICE void give_registers() {}
CELLC_DEVICE void take_registers() {}
#else
struct RingGate {
  unsigned long long barrier;
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
CELLC_DEVICE void gate_open(RingGate* gate, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(gate)), "r"(arrivals) : "memory");
}
/// What was opened is so for the copy engine, before the block's barrier.
CELLC_DEVICE void ring_opened() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
CELLC_DEVICE void gate_arrive(RingGate* gate) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(gate)) : "memory");
}
CELLC_DEVICE void gate_expect(RingGate* gate, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(gate)), "r"(bytes)
               : "memory");
}
/// Arrives once all copies are there that this thread has asked for.
CELLC_DEVICE void gate_arrive_copied(RingGate* gate) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(gate)) : "memory");
}
CELLC_DEVICE void gate_await(RingGate* gate, long long use) {
  asm volatile(
      "{\n.reg .pred there;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n@!there bra "
      "again;\n}" ::"r"(shared_address(gate)),
      "r"(static_cast<unsigned>(use & 1))
      : "memory");
}
/// By the copy engine; the gate counts the bytes.
CELLC_DEVICE void ring_copy(void* to, const void* from, int bytes, RingGate* gate) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(gate))
               : "memory");
}
#else
CELLC_DEVICE void gate_open(RingGate*, int) { __trap(); }
CELLC_DEVICE void ring_opened() {}
CELLC_DEVICE void gate_arrive(RingGate*) {}
CELLC_DEVICE void gate_expect(RingGate*, int) {}
CELLC_DEVICE void gate_arrive_copied(RingGate*) {}
CELLC_DEVICE void gate_await(RingGate*, long long) {}
CELLC_DEVICE void ring_copy(void*, const void*, int, RingGate*) {}
#endif
#endif

#if !defined(CELLC_EMULATOR)
CELLC_DEVICE void feeders_meet() { asm volatile("bar.sync 1, %0;" ::"n"(kFeeders) : "memory"); }
/// Of the 168 that a thread of three groups of four warps has.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CELLC_DEVICE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 88;"); }
CELLC_DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 208;"); }
#else
CELLC_DEVICE void give_registers() {}
CELLC_DEVICE void take_registers() {}
#endif
#endif

/// Before the slots.
struct alignas(128) RingHead {
  RingGate full[kMostSlots], empty[kMostSlots];
  long long rows[kWideTile];  ///< of the tile that is fed: where each begins in the operand; below 0: nowhere
};
static_assert(sizeof(RingHead) <= CELLC_WIDE_HEAD_BYTES);

/// Without a call, as quotient() may be one: around it a thread would have to put its sums aside.
struct DivideHere {
  CELLC_DEVICE long long operator()(long long a, long long b) const {
    return ((a | b) >> 32) == 0 ? narrow_quotient(a, b) : a / b;
  }
};

/// Where the result's tile lies: 128 rows by kHalves times 128 columns.
template <int kHalves>
struct RingTiles {
  long long columns, across, all;  ///< 128 columns; tiles beside each other; tiles
  CELLC_DEVICE explicit RingTiles(const ProductArguments& a)
      : columns((a.width + kWideTile - 1) / kWideTile), across((columns + kHalves - 1) / kHalves) {
    all = across * ((a.frame.rows + kWideTile - 1) / kWideTile) * a.batch;
  }
};
struct RingPlace {
  long long first_row, column_tile, batch;
  template <int kHalves>
  CELLC_DEVICE RingPlace(const ProductArguments& a, const RingTiles<kHalves>& tiles, long long tile) {
    const long long rest = DivideHere()(tile, tiles.across), row = DivideHere()(rest, a.batch);
    column_tile = (tile - rest * tiles.across) * kHalves;
    batch = rest - row * a.batch;
    first_row = row * kWideTile;
  }
};

/// Goes through the slots, again and again.
struct RingSlot {
  int slots, number = 0;
  long long use = 0;
  CELLC_DEVICE void next() {
    if (++number < slots) return;
    number = 0;
    ++use;
  }
};

template <class Rows>
struct RingProduct {
  using Number = typename Rows::Number;
  using Tile = TensorTile<kWideTile, kWideTile, true, true, 8>;
  static constexpr int kHalves = Rows::kHalves;
  static constexpr int kTerms = kRingRowBytes / static_cast<int>(sizeof(Number)),
                       kNear = 16 / static_cast<int>(sizeof(Number));
  static constexpr int kSlotMost = kRingSide + kHalves * Rows::kParts * Rows::kMatrixBytes;

  const ProductArguments& a;
  char* shared;
  WideScratch* scratch;
  const int parts;  ///< of the matrix, those that are there
  const RingTiles<kHalves> tiles;
  const long long stages;  ///< slots of a tile
  const int matrix_bytes, slot_bytes;
  RingSlot slot;

  CELLC_DEVICE RingProduct(const ProductArguments& a, char* shared, WideScratch* scratch)
      : a(a),
        shared(shared),
        scratch(scratch),
        parts(Rows::parts_of(a)),
        tiles(a),
        stages((a.depth + kTerms - 1) / kTerms),
        matrix_bytes(parts * Rows::kMatrixBytes),
        slot_bytes(kRingSide + kHalves * matrix_bytes) {
    const int fit = static_cast<int>(a.stages) * kSlotMost / slot_bytes;
    slot.slots = fit < kMostSlots ? fit : kMostSlots;
  }

  CELLC_DEVICE RingHead* head() const { return reinterpret_cast<RingHead*>(shared); }
  CELLC_DEVICE char* slot_at() const { return shared + CELLC_WIDE_HEAD_BYTES + slot.number * slot_bytes; }

  CELLC_DEVICE void run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < slot.slots; ++i) {
        gate_open(head()->full + i, kFeeders + 1);
        gate_open(head()->empty + i, kMultipliers);
      }
      ring_opened();
    }
    __syncthreads();
    if (threadIdx.x >= kMultipliers) {
      give_registers();
      feed();
    } else {
      take_registers();
      multiply();
    }
  }

  // Feeding ------------------------------------------------------------------------------------------------

  static constexpr int kRowsEach = kWideTile * kRingRowBytes / 16 / kFeeders, kRowsApart = kWideTile / kRowsEach;

  CELLC_DEVICE void feed() {
    const int thread = threadIdx.x - kMultipliers, chunk = thread % (kRingRowBytes / 16),
              own_row = thread / (kRingRowBytes / 16);
    const bool aligned = ((a.operand_stride | a.depth) & (kNear - 1)) == 0 && is_aligned(a.operand);
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < tiles.all; tile += gridDim.x) {
      const RingPlace place(a, tiles, tile);
      feeders_meet();  // who was here has read the rows before
      if (thread < kWideTile) {
        const RowPlace row = place_of(a.frame, place.first_row + thread, DivideHere());
        head()->rows[thread] = row.used ? (a.operand_is_chunk ? row.chunk_row : row.row) * a.operand_stride : -1;
      }
      feeders_meet();
      const Number* const operand = static_cast<const Number*>(a.operand) + place.batch * a.depth + chunk * kNear;
      const Number* at[kRowsEach];  // own rows, at the thread's terms of the slot; null: no row
      CELLC_UNROLL()
      for (int i = 0; i < kRowsEach; ++i) {
        const long long row = head()->rows[own_row + kRowsApart * i];
        at[i] = row < 0 ? nullptr : operand + row;
      }
      const char* prepared = static_cast<const char*>(a.prepared) +
                             (DivideHere()(place.batch, a.shared) * tiles.columns + place.column_tile) * stages *
                                 Rows::kParts * Rows::kMatrixBytes;
      CELLC_UNROLL(1)
      for (long long stage = 0; stage < stages; ++stage) {
        if (slot.use > 0) gate_await(head()->empty + slot.number, slot.use - 1);
        RingGate* const full = head()->full + slot.number;
        char* const to = slot_at();
        if (thread == 0) feed_matrix(to + kRingSide, prepared, place.column_tile, full);
        prepared += Rows::kParts * Rows::kMatrixBytes;
        const long long terms = a.depth - stage * kTerms - chunk * kNear;
        char* const own = to + own_row * kRingPitch + chunk * 16;
        if (aligned && terms >= kNear) {
          CELLC_UNROLL()
          for (int i = 0; i < kRowsEach; ++i)
            if (at[i]) copy_async<16>(own + kRowsApart * i * kRingPitch, at[i]);
          gate_arrive_copied(full);
        } else {
          CELLC_UNROLL(1)
          for (int i = 0; i < kRowsEach; ++i) {
            const long long row = head()->rows[own_row + kRowsApart * i];
            fetch_some(own + kRowsApart * i * kRingPitch, operand + row + stage * kTerms, row < 0 ? 0 : terms);
          }
          gate_arrive(full);
        }
        CELLC_UNROLL()
        for (int i = 0; i < kRowsEach; ++i)
          if (at[i]) at[i] += kTerms;
        slot.next();
      }
    }
  }

  CELLC_DEVICE void feed_matrix(char* to, const char* from, long long column_tile, RingGate* full) const {
    const int halves = kHalves == 1 || column_tile + 1 == tiles.columns ? 1 : kHalves;
    gate_expect(full, halves * matrix_bytes);
    for (int h = 0; h < halves; ++h)
      ring_copy(to + h * matrix_bytes, from + h * stages * (Rows::kParts * Rows::kMatrixBytes), matrix_bytes, full);
  }

  /// Sixteen bytes, of which `count` numbers are there: rows of an odd length begin between two copies.
  static CELLC_DEVICE void fetch_some(char* to, const Number* from, long long count) {
    struct alignas(16) {
      Number at[kNear];
    } near;
    CELLC_UNROLL()
    for (int k = 0; k < kNear; ++k) near.at[k] = k < count ? from[k] : Number(0);
    *reinterpret_cast<decltype(near)*>(to) = near;
  }

  // Multiplying ----------------------------------------------------------------------------------------------

  CELLC_DEVICE void multiply() {
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < tiles.all; tile += gridDim.x) {
      typename Tile::Sums sums[kHalves] = {};
      if constexpr (Rows::kPromotes) {
        CELLC_UNROLL(1)
        for (long long stage = 0; stage < stages; ++stage) add_slot(sums[0][0]);
      } else if (stages > 0) {
        multiply_slots(sums);
      }
      const RingPlace place(a, tiles, tile);
      CELLC_UNROLL()
      for (int h = 0; h < kHalves; ++h)
        if (place.column_tile + h < tiles.columns) put(place, (place.column_tile + h) * kWideTile, sums[h]);
    }
  }

  /// What load_blocks is told: lane 8·i + r names row r of block i, blocks of 8 rows by 16 bytes below and beside each
  /// other.
  static CELLC_DEVICE int own_place() {
    const int lane = threadIdx.x % 32;
    return (threadIdx.x / 32 * 16 + lane / 8 % 2 * 8 + lane % 8) * kRingPitch + lane / 16 * 16;
  }
  /// Each lane for what it has read itself: a look for races cannot know that one arrives for its warp. What comes next
  /// is of whole warps.
  CELLC_DEVICE void leave(int number) const {
    __syncwarp();
    gate_arrive(head()->empty + number);
  }

  /// A slot's products run while the next one's rows are read.
  CELLC_DEVICE void multiply_slots(typename Tile::Sums (&sums)[kHalves]) {
    typename Rows::Left left[2];
    int before = -1;
    const auto begin = [&](typename Rows::Left& own) {
      gate_await(head()->full + slot.number, slot.use);
      const char* const at = slot_at();
      Rows::load(own, at + own_place());
      CELLC_UNROLL()
      for (int h = 0; h < kHalves; ++h) settle(sums[h][0]);
      wide_fence();
      CELLC_UNROLL()
      for (int h = 0; h < kHalves; ++h)
        Rows::multiply(sums[h][0], own, at + kRingSide + h * matrix_bytes, 0, true, scratch);
      wide_commit();
      if (before >= 0) {
        wide_wait<1>();
        leave(before);
      }
      before = slot.number;
      slot.next();
    };
    CELLC_UNROLL(1)
    for (long long stage = 0; stage < stages; stage += 2) {
      begin(left[0]);
      if (stage + 1 < stages) begin(left[1]);
    }
    wide_wait<0>();
    CELLC_UNROLL()
    for (int h = 0; h < kHalves; ++h) settle(sums[h][0]);
    leave(before);
  }

  CELLC_DEVICE void add_slot(WideSums& sums) {
    gate_await(head()->full + slot.number, slot.use);
    const char* const at = slot_at();
    typename Rows::Left left;
    Rows::load(left, at + own_place());
    CELLC_UNROLL(1)
    for (int pass = 0; pass < Rows::passes(parts); ++pass) {
      WideSums part;
      settle(part);
      wide_fence();
      Rows::multiply(part, left, at + kRingSide, pass, false, scratch);
      wide_commit();
      wide_wait<0>();
      settle(part);
      const float scale = Rows::scale(pass);
      CELLC_UNROLL()
      for (int j = 0; j < 16; ++j) {
        CELLC_UNROLL()
        for (int i = 0; i < 4; ++i) sums[j][i] += part[j][i] * scale;
      }
    }
    leave(slot.number);
    slot.next();
  }

  CELLC_DEVICE void put(const RingPlace& place, long long first_column, const typename Tile::Sums& sums) const {
    // One division for both, and none in what follows.
    const int own_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    long long own[2];  // where they begin; below 0: nowhere
    CELLC_UNROLL(1)
    for (int below = 0; below < 2; ++below) {
      const RowPlace row = place_of(a.frame, place.first_row + own_row + 8 * below, DivideHere());
      const long long to = row.used ? (result_row(a, row) * a.batch + place.batch) * a.width + first_column : -1;
      own[0] = below == 0 ? to : own[0];
      own[1] = to;
    }
    float nothing = 0;  // or no number, where one of the sums is not finite
    CELLC_UNROLL()
    for (int j = 0; j < 16; ++j) {
      CELLC_UNROLL()
      for (int i = 0; i < 4; ++i) nothing = __fmaf_rn(sums[0][j][i], 0.f, nothing);
    }
    const bool in_fours = (a.width & 3) == 0 && is_aligned(a.result) && __ballot_sync(0xffffffffu, nothing != 0) == 0;
    const float* const matrix =
        static_cast<const float*>(a.matrix) + DivideHere()(place.batch, a.shared) * a.matrix_batch;
    put_result<float>(a, [&](auto* result) {
      const auto row_at = [&](int row) {
        const long long to = row == own_row ? own[0] : own[1];
        return to < 0 ? nullptr : result + to;
      };
      if (in_fours) {
        put_fours(a.width - first_column, sums[0], row_at);
        return;
      }
      Tile::put(sums, a.width - first_column, row_at, [&](int row, int column) {
        const RowPlace of = place_of(a.frame, place.first_row + row, DivideHere());
        const Number* const left = static_cast<const Number*>(a.operand) +
                                   (a.operand_is_chunk ? of.chunk_row : of.row) * a.operand_stride +
                                   place.batch * a.depth;
        const long long n = first_column + column;
        return product_in_order(left, matrix + (a.sum_last ? n * a.matrix_apart : n), a.sum_last ? 1 : a.matrix_apart,
                                a.depth);
      });
    });
  }

  struct alignas(16) FourReals {
    float at[4];
  };
  static CELLC_DEVICE void put_four(float* to, const FourReals& four) { *reinterpret_cast<FourReals*>(to) = four; }
#ifdef CELLC_NARROW
  static CELLC_DEVICE void put_four(Stored* to, const FourReals& four) {
    struct alignas(8) {
      unsigned at[2];
    } stored{{narrow_two(four.at[0], four.at[1]), narrow_two(four.at[2], four.at[3])}};
    *reinterpret_cast<decltype(stored)*>(to) = stored;
  }
#endif

  /// Of two neighbours of two instructions each, a lane takes four of one: what is stored at once is 16 bytes, or 8.
  template <class RowAt>
  static CELLC_DEVICE void put_fours(long long columns, const WideSums& sums, const RowAt& row_at) {
    const int lane = threadIdx.x % 32, odd = lane % 2, row = threadIdx.x / 32 * 16 + lane / 4,
              column = 8 * odd + lane % 4 / 2 * 4;
    CELLC_UNROLL()
    for (int below = 0; below < 2; ++below) {
      auto* const to = row_at(row + 8 * below);
      CELLC_UNROLL()
      for (int j = 0; j < 16; j += 2) {
        float own[2], other[2];
        CELLC_UNROLL()
        for (int i = 0; i < 2; ++i) {
          const float first = sums[j][2 * below + i], second = sums[j + 1][2 * below + i];
          own[i] = odd ? second : first;
          other[i] = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        }
        const FourReals four =
            odd ? FourReals{{other[0], other[1], own[0], own[1]}} : FourReals{{own[0], own[1], other[0], other[1]}};
        if (to && column + 8 * j < columns) put_four(to + column + 8 * j, four);
      }
    }
  }
};

}  // namespace cellc
