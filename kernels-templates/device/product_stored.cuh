// Rows of 16 bits, as they lie in memory, times a matrix of params, by the tensor cores of sm_90a: both factors come to
// the instruction from shared memory, and no number of a row is ever made one of 32 bits. The arguments, jobs and edges
// of product_tensor.cuh; a.operand are `Stored`.
//
// Products of such numbers are exact in f32, so all that is to be decided is what the matrix is. It is taken apart
// once, by cellc_prepare_stored, into up to kStoredParts numbers of the rows' type:
//
//   bf16   w = w1 + w2 + w3            8 bits each: exact
//   f16    w = w1 + w2/2^11 + w3/2^22  11 bits each; the second and third are kept larger, as f16 ends at 2^-24
//
// and of a matrix whose numbers have 16 bits there is one part, which is seen while it is made ready: then a product
// costs what one of 16 bits does and loses nothing. CELLC_PRODUCTS_3XTF32 takes three parts where it needs them, TF32
// two, BF16 and F16 the first alone. A part of f16 that would lose more than the largest weight near it allows is none,
// and its column is made again by multiply-adds, as is all that is not finite.
//
// Tensor cores cut sums off rather than round them: but for CELLC_PRODUCTS_BF16 and _F16 a sum leaves them after 64
// terms and is added to the others in f32, while they make the next.
//
// Rows and matrix come by copies of 16 bytes, 64 terms of 128 rows and 128 columns at a time, a *block*, into a ring of
// slots, which goes on from tile to tile: the next tile's terms are on their way while this one is written. Rows that
// copies of 16 bytes do not fit (odd lengths) come a number at a time.
//
// Prepared: [batch][128 columns][64 terms][part][8 terms][column], and behind all of them a word for each 64 terms of
// 128 columns, whose bits say which parts there are besides the first. Needs product_tensor.cuh.
#pragma once

#ifdef CELLC_NARROW

namespace cellc {

#if defined(CELLC_PRODUCTS_3XTF32)
constexpr int kStoredParts = 3;
#elif defined(CELLC_PRODUCTS_TF32)
constexpr int kStoredParts = 2;
#else
constexpr int kStoredParts = 1;
#endif
constexpr int kStoredTile = 128, kStoredTerms = 64, kChunkTerms = 8;  ///< rows and columns; terms of a block, of a copy
constexpr int kStoredChunks = kStoredTerms / kChunkTerms;
constexpr int kStoredSide = kStoredTile * kStoredTerms;  ///< numbers of either factor in a block
#ifdef CELLC_STORAGE_F16
constexpr float kPartScale = 2048;
#else
constexpr float kPartScale = 1;
#endif

struct alignas(16) StoredChunk {
  Stored at[kChunkTerms];
};

/// What of a weight a part takes, and what is left for the next.
CELLC_DEVICE Stored take_part(float& rest) {
  const Stored part = narrow(rest);
  rest = (rest - widen(part)) * kPartScale;
  return part;
}

/// 256 threads make a block ready: each 32 terms of a column.
CELLC_DEVICE void prepare_stored(const ProductArguments& a) {
  const long long tiles = (a.width + kStoredTile - 1) / kStoredTile,
                  stages = (a.depth + kStoredTerms - 1) / kStoredTerms,
                  all = quotient(a.batch, a.shared) * tiles * stages;
  StoredChunk* const to = static_cast<StoredChunk*>(a.prepared);
  unsigned* const words = reinterpret_cast<unsigned*>(to + all * kStoredParts * (kStoredSide / kChunkTerms));
  constexpr int kOwn = kStoredTerms / 2;
  const int own_column = threadIdx.x % kStoredTile, own_term = threadIdx.x / kStoredTile * kOwn;
  CELLC_UNROLL(1)
  for (long long block = blockIdx.x; block < all; block += gridDim.x) {
    const long long of_tile = quotient(block, stages), batch = quotient(of_tile, tiles);
    const long long column = (of_tile - batch * tiles) * kStoredTile + own_column,
                    first = (block - of_tile * stages) * kStoredTerms + own_term;
    const float* const at =
        static_cast<const float*>(a.matrix) + batch * a.matrix_batch + (a.sum_last ? column * a.matrix_apart : column);
    const long long apart = a.sum_last ? 1 : a.matrix_apart;
    float weights[kOwn], largest = 0;
    CELLC_UNROLL()
    for (int k = 0; k < kOwn; ++k) {
      weights[k] = column < a.width && first + k < a.depth ? at[(first + k) * apart] : 0;
      largest = magnitude(weights[k]) > largest ? magnitude(weights[k]) : largest;
    }
    unsigned more = 0;
    [[maybe_unused]] bool lost = false;
    CELLC_UNROLL()
    for (int chunk = 0; chunk < kOwn / kChunkTerms; ++chunk) {
      StoredChunk parts[kStoredParts];
      CELLC_UNROLL()
      for (int k = 0; k < kChunkTerms; ++k) {
        float rest = weights[chunk * kChunkTerms + k];
        CELLC_UNROLL()
        for (int p = 0; p < kStoredParts; ++p) {
          if (p > 0 && !(rest == 0)) more |= 1u << (p - 1);
          parts[p].at[k] = take_part(rest);
        }
#ifdef CELLC_STORAGE_F16
        if (kStoredParts > 1) {
          constexpr float kScaled = kStoredParts == 3 ? 0x1p33f : 0x1p22f,
                          kKept = kStoredParts == 3 ? 0x1p-23f : 0x1p-11f;
          lost = lost || !(magnitude(rest) <= kKept * kScaled * largest);
        }
#endif
      }
      CELLC_UNROLL()
      for (int p = 0; p < kStoredParts; ++p)
        to[((block * kStoredParts + p) * kStoredChunks + own_term / kChunkTerms + chunk) * kStoredTile + own_column] =
            parts[p];
    }
#ifdef CELLC_STORAGE_F16
    if (lost)
      to[(block * kStoredParts * kStoredChunks + own_term / kChunkTerms) * kStoredTile + own_column].at[0] = 0x7fff;
#endif
    const int first_more = __syncthreads_or(static_cast<int>(more & 1)),
              second_more = __syncthreads_or(static_cast<int>(more & 2));
    if (threadIdx.x == 0) words[block] = (first_more ? 1u : 0u) | (second_more ? 2u : 0u);
  }
}

using StoredSums = float[16][4];

#if defined(CELLC_EMULATOR)
CELLC_DEVICE void stored_arrive() {}
CELLC_DEVICE void stored_fence() {}
CELLC_DEVICE void stored_commit() {}
template <int kPending>
CELLC_DEVICE void stored_wait() {}
/// sums = or += 64 rows · 128 columns of 16 terms, from chunk 2·step of both sides on. `rows`: of these 64.
CELLC_DEVICE void stored_multiply(StoredSums& sums, const Stored* rows, const Stored* columns, int step, bool adds) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + lane / 4 + i / 2 * 8, column = 8 * j + 2 * (lane % 4) + i % 2;
      float sum = adds ? sums[j][i] : 0;
      for (int k = 0; k < 2 * kChunkTerms; ++k) {
        const int chunk = (2 * step + k / kChunkTerms) * kStoredTile;
        sum += widen(rows[(chunk + row) * kChunkTerms + k % kChunkTerms]) *
               widen(columns[(chunk + column) * kChunkTerms + k % kChunkTerms]);
      }
      sums[j][i] = sum;
    }
}
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// What threads copied to shared memory is seen by the tensor cores, which read it themselves.
CELLC_DEVICE void stored_arrive() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CELLC_DEVICE void stored_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CELLC_DEVICE void stored_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
CELLC_DEVICE void stored_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Where a factor lies: without swizzle, 16 bytes of terms 16 · 128 bytes from the next 16, groups of 8 rows 128 bytes
/// apart; all in units of 16 bytes.
CELLC_DEVICE unsigned long long stored_factor(const Stored* at) {
  const unsigned address = shared_address(const_cast<Stored*>(at));
  return static_cast<unsigned long long>(address >> 4 & 0x3fffu) | static_cast<unsigned long long>(kStoredTile) << 16 |
         8ull << 32;
}
#ifdef CELLC_STORAGE_F16
#define CELLC_STORED_TYPES "f16.f16"
#else
#define CELLC_STORED_TYPES "bf16.bf16"
#endif
#define CELLC_FOUR_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
CELLC_DEVICE void stored_multiply(StoredSums& sums, const Stored* rows, const Stored* columns, int step, bool adds) {
  const int chunk = 2 * step * kStoredTile * kChunkTerms;
  const unsigned long long l = stored_factor(rows + chunk), r = stored_factor(columns + chunk);
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CELLC_STORED_TYPES
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, adds, 1, 1, 0, 0;\n}"
      : CELLC_FOUR_SUMS(0), CELLC_FOUR_SUMS(1), CELLC_FOUR_SUMS(2), CELLC_FOUR_SUMS(3), CELLC_FOUR_SUMS(4),
        CELLC_FOUR_SUMS(5), CELLC_FOUR_SUMS(6), CELLC_FOUR_SUMS(7), CELLC_FOUR_SUMS(8), CELLC_FOUR_SUMS(9),
        CELLC_FOUR_SUMS(10), CELLC_FOUR_SUMS(11), CELLC_FOUR_SUMS(12), CELLC_FOUR_SUMS(13), CELLC_FOUR_SUMS(14),
        CELLC_FOUR_SUMS(15)
      : "l"(l), "l"(r), "r"(static_cast<int>(adds)));
}
#undef CELLC_FOUR_SUMS
#undef CELLC_STORED_TYPES
#else
CELLC_DEVICE void stored_arrive() { __trap(); }
CELLC_DEVICE void stored_fence() {}
CELLC_DEVICE void stored_commit() {}
template <int kPending>
CELLC_DEVICE void stored_wait() {}
CELLC_DEVICE void stored_multiply(StoredSums&, const Stored*, const Stored*, int, bool) {}
#endif

/// The compiler neither reads nor moves these before what was waited for.
CELLC_DEVICE void settle_stored([[maybe_unused]] StoredSums& sums) {
#ifndef CELLC_EMULATOR
  CELLC_UNROLL()
  for (int j = 0; j < 16; ++j) {
    CELLC_UNROLL()
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[j][i])::"memory");
  }
#endif
}

/// A tile's place in the result.
struct StoredPlace {
  long long first_row, column_tile, batch;
  CELLC_DEVICE StoredPlace(const ProductArguments& a, long long tile) {
    const long long column_tiles = (a.width + kStoredTile - 1) / kStoredTile, rest = quotient(tile, column_tiles),
                    row = quotient(rest, a.batch);
    column_tile = tile - rest * column_tiles;
    batch = rest - row * a.batch;
    first_row = row * kStoredTile;
  }
};

/// Asks for one block after another, of all tiles of this thread block.
struct StoredFeed {
  static constexpr int kRows = 2, kBeside = kStoredChunks / 4;  ///< of a thread; chunks of each of its rows
  const ProductArguments& a;
  const long long tiles, stages;
  const int parts;
  const bool aligned;
  long long tile, stage = 0;
  int part = 0;
  const Stored* at[kRows];  ///< own rows, at the thread's terms of the stage; null: no row
  const StoredChunk* prepared;

  CELLC_DEVICE StoredFeed(const ProductArguments& a, long long tiles, int parts)
      : a(a),
        tiles(tiles),
        stages((a.depth + kStoredTerms - 1) / kStoredTerms),
        parts(parts),
        aligned(((a.operand_stride | a.depth) & 7) == 0 && is_aligned(a.operand)),
        tile(blockIdx.x) {
    enter();
  }
  /// Eight neighbours of a warp fetch eight rows, 16 bytes each, which fall into different banks; four such groups make
  /// 64 bytes of each row.
  static CELLC_DEVICE int own_row() { return threadIdx.x / 32 * 16 + threadIdx.x % 8; }
  static CELLC_DEVICE int own_chunk() { return threadIdx.x % 32 / 8; }

  CELLC_DEVICE void enter() {
    if (tile >= tiles || stages == 0) return;
    const StoredPlace place(a, tile);
    CELLC_UNROLL()
    for (int i = 0; i < kRows; ++i) {
      const RowPlace row = place_of(a.frame, place.first_row + own_row() + 8 * i);
      at[i] = !row.used ? nullptr
                        : static_cast<const Stored*>(a.operand) +
                              (a.operand_is_chunk ? row.chunk_row : row.row) * a.operand_stride +
                              place.batch * a.depth + own_chunk() * kChunkTerms;
    }
    const long long column_tiles = (a.width + kStoredTile - 1) / kStoredTile;
    prepared = static_cast<const StoredChunk*>(a.prepared) +
               (quotient(place.batch, a.shared) * column_tiles + place.column_tile) * stages * kStoredParts *
                   (kStoredSide / kChunkTerms) +
               threadIdx.x;
  }

  CELLC_DEVICE void fetch(Stored* slot) {
    if (tile >= tiles || stages == 0) return;
    const long long terms = a.depth - stage * kStoredTerms - own_chunk() * kChunkTerms;
    CELLC_UNROLL()
    for (int i = 0; i < kRows; ++i) {
      CELLC_UNROLL()
      for (int c = 0; c < kBeside; ++c) {
        const int beside = 4 * c * kChunkTerms;
        fetch_chunk(slot + ((own_chunk() + 4 * c) * kStoredTile + own_row() + 8 * i) * kChunkTerms, at[i] + beside,
                    at[i] ? terms - beside : 0);
      }
    }
    StoredChunk* const to = reinterpret_cast<StoredChunk*>(slot + kStoredSide) + threadIdx.x;
    constexpr int kPieces = kStoredSide / kChunkTerms / kProductThreads;
    CELLC_UNROLL()
    for (int i = 0; i < kPieces; ++i)
      copy_async<16>(to + i * kProductThreads, prepared + (part * kPieces + i) * kProductThreads);
    if (++part < parts) return;
    part = 0;
    prepared += kStoredParts * (kStoredSide / kChunkTerms);
    CELLC_UNROLL()
    for (int i = 0; i < kRows; ++i)
      if (at[i]) at[i] += kStoredTerms;
    if (++stage < stages) return;
    stage = 0;
    tile += gridDim.x;
    enter();
  }

  CELLC_DEVICE void fetch_chunk(Stored* to, const Stored* from, long long count) const {
    if (count >= kChunkTerms && aligned) {
      copy_async<16>(to, from);
      return;
    }
    StoredChunk chunk;
    CELLC_UNROLL()
    for (int k = 0; k < kChunkTerms; ++k) chunk.at[k] = k < count ? from[k] : Stored(0);
    *reinterpret_cast<StoredChunk*>(to) = chunk;
  }
};

struct StoredProduct {
  using Tile = TensorTile<kStoredTile, kStoredTile, true, true, 8>;
  static constexpr int kSlot = 2 * kStoredSide;

  const ProductArguments& a;
  Stored* shared;
  StoredFeed feed;
  int now = 0, ahead = 0;  ///< slots

  /// Parts that any of the matrix has.
  static CELLC_DEVICE int parts_of(const ProductArguments& a) {
    if (kStoredParts == 1) return 1;
    const long long all = quotient(a.batch, a.shared) * ((a.width + kStoredTile - 1) / kStoredTile) *
                          ((a.depth + kStoredTerms - 1) / kStoredTerms);
    const unsigned* const words = reinterpret_cast<const unsigned*>(static_cast<const StoredChunk*>(a.prepared) +
                                                                    all * kStoredParts * (kStoredSide / kChunkTerms));
    unsigned more = 0;
    CELLC_UNROLL(1)
    for (long long i = threadIdx.x; i < all; i += blockDim.x) more |= words[i];
    const int first_more = __syncthreads_or(static_cast<int>(more & 1)),
              second_more = __syncthreads_or(static_cast<int>(more & 2));
    return second_more ? 3 : first_more ? 2 : 1;
  }

  CELLC_DEVICE void next_slot(int& slot) const { slot = slot + 1 == static_cast<int>(a.stages) ? 0 : slot + 1; }

  /// Two slots are not ahead: one is multiplied, and one may still be.
  CELLC_DEVICE void begin_copies() {
    CELLC_UNROLL(1)
    for (int i = 0; i + 2 < static_cast<int>(a.stages); ++i) {
      feed.fetch(shared + ahead * kSlot);
      copy_commit();
      next_slot(ahead);
    }
  }

  /// Begins the products of the next block; those before the last one have been waited for.
  CELLC_DEVICE void multiply(StoredSums& sums, bool adds) {
    if (a.stages == 3)
      copy_wait<0>();
    else if (a.stages == 4)
      copy_wait<1>();
    else if (a.stages == 5)
      copy_wait<2>();
    else
      copy_wait<3>();
    stored_arrive();
    __syncthreads();  // the terms are there, and those of the block before the last have been read
    feed.fetch(shared + ahead * kSlot);
    copy_commit();
    next_slot(ahead);
    const Stored* const slot = shared + now * kSlot;
    const Stored* const rows = slot + threadIdx.x / 128 * 64 * kChunkTerms;
    next_slot(now);
    settle_stored(sums);
    stored_fence();
    CELLC_UNROLL()
    for (int step = 0; step < kStoredTerms / 16; ++step)
      stored_multiply(sums, rows, slot + kStoredSide, step, adds || step > 0);
    stored_commit();
  }

  template <int kPending>
  CELLC_DEVICE void add(StoredSums& sums, StoredSums& part, int number) const {
    stored_wait<kPending>();
    settle_stored(part);
    const float scale = number == 0 ? 1 : number == 1 ? 1 / kPartScale : 1 / (kPartScale * kPartScale);
    CELLC_UNROLL()
    for (int j = 0; j < 16; ++j) {
      CELLC_UNROLL()
      for (int i = 0; i < 4; ++i) sums[j][i] += part[j][i] * scale;
    }
  }

  CELLC_DEVICE void make(StoredSums& sums) {
    const long long blocks = feed.stages * feed.parts;
    if (blocks == 0) return;
    if (kStoredParts == 1) {
      CELLC_UNROLL(1)
      for (long long b = 0; b < blocks; ++b) {
        multiply(sums, true);
        stored_wait<1>();
      }
      stored_wait<0>();
      settle_stored(sums);
      return;
    }
    StoredSums one, other;
    int number = 0;  // part of the block that was begun last
    const auto next_number = [&] { number = number + 1 == feed.parts ? 0 : number + 1; };
    multiply(one, false);
    for (long long b = 1;; b += 2) {
      if (b == blocks) return add<0>(sums, one, number);
      multiply(other, false);
      add<1>(sums, one, number);
      next_number();
      if (b + 1 == blocks) return add<0>(sums, other, number);
      multiply(one, false);
      add<1>(sums, other, number);
      next_number();
    }
  }

  CELLC_DEVICE void run() {
    begin_copies();
    CELLC_UNROLL(1)
    for (long long tile = blockIdx.x; tile < feed.tiles; tile += gridDim.x) {
      typename Tile::Sums sums = {};
      make(sums[0]);
      put(StoredPlace(a, tile), sums);
    }
    copy_wait<0>();
  }

  CELLC_DEVICE void put(const StoredPlace& place, const typename Tile::Sums& sums) const {
    const long long first_column = place.column_tile * kStoredTile;
    float* const result =
        static_cast<float*>(a.result) + (place.first_row * a.batch + place.batch) * a.width + first_column;
    const float* const matrix = static_cast<const float*>(a.matrix) + quotient(place.batch, a.shared) * a.matrix_batch;
    Tile::put(
        sums, a.width - first_column,
        [&](int row) {
          return place_of(a.frame, place.first_row + row).used ? result + row * a.batch * a.width : nullptr;
        },
        [&](int row, int column) {
          const RowPlace of = place_of(a.frame, place.first_row + row);
          const Stored* const left = static_cast<const Stored*>(a.operand) +
                                     (a.operand_is_chunk ? of.chunk_row : of.row) * a.operand_stride +
                                     place.batch * a.depth;
          const long long n = first_column + column;
          return product_in_order(left, matrix + (a.sum_last ? n * a.matrix_apart : n), a.sum_last ? 1 : a.matrix_apart,
                                  a.depth);
        });
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256)
    cellc_prepare_stored(const __grid_constant__ cellc::ProductArguments a) {
  cellc::await_stream();
  cellc::prepare_stored(a);
}
extern "C" __global__ void __launch_bounds__(256, cellc::kStoredParts == 1 ? 2 : 1)
    cellc_product_wgmma_stored(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(Stored, slots);
  cellc::await_stream();
  const long long tiles = (a.width + cellc::kStoredTile - 1) / cellc::kStoredTile *
                          ((a.frame.rows + cellc::kStoredTile - 1) / cellc::kStoredTile) * a.batch;
  cellc::StoredProduct{a, slots, cellc::StoredFeed(a, tiles, cellc::StoredProduct::parts_of(a))}.run();
}

#endif
