// Rows of 16 bits for product_ring.cuh, as they lie in memory: no number of a row is ever made one of 32 bits.
// a.operand are `Stored`.
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
// But for CELLC_PRODUCTS_BF16 and _F16 a sum leaves the tensor cores after 64 terms and is added to the others in f32.
//
// Prepared: [batch][128 columns][64 terms][part][8 terms][column], and behind all of them a word for each 64 terms of
// 128 columns, whose bits say which parts there are besides the first. Needs product_ring.cuh.
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
constexpr int kStoredTile = kWideTile, kStoredTerms = 64,
              kChunkTerms = 8;  ///< rows and columns; terms of a block, of a copy
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

/// Of product_ring.cuh.
struct StoredRows {
  using Number = Stored;
#ifdef CELLC_STORAGE_F16
  static constexpr WideFactors kFactors = WideFactors::F16;
#else
  static constexpr WideFactors kFactors = WideFactors::BF16;
#endif
  static constexpr int kParts = kStoredParts, kMatrixBytes = kStoredSide * 2, kSteps = kStoredTerms / 16;
  static constexpr bool kPromotes = kParts > 1;
  static constexpr int kHalves = kPromotes ? 1 : 2;
  static CELLC_DEVICE int passes(int parts) { return parts; }
  static CELLC_DEVICE float scale(int part) {
    return part == 0 ? 1 : part == 1 ? 1 / kPartScale : 1 / (kPartScale * kPartScale);
  }
  /// Parts that any of the matrix has.
  static CELLC_DEVICE int parts_of(const ProductArguments& a) {
    if (kParts == 1) return 1;
    const long long all = quotient(a.batch, a.shared) * ((a.width + kWideTile - 1) / kWideTile) *
                          ((a.depth + kStoredTerms - 1) / kStoredTerms);
    const unsigned* const words = reinterpret_cast<const unsigned*>(static_cast<const StoredChunk*>(a.prepared) +
                                                                    all * kParts * (kStoredSide / kChunkTerms));
    unsigned more = 0;
    CELLC_UNROLL(1)
    for (long long i = threadIdx.x; i < all; i += blockDim.x) more |= words[i];
    const int first_more = __syncthreads_or(static_cast<int>(more & 1)),
              second_more = __syncthreads_or(static_cast<int>(more & 2));
    return second_more ? 3 : first_more ? 2 : 1;
  }

  struct Left {
    LeftPart at[kSteps];
  };
  /// Pairs lie as the instruction wants them: eight rows by sixteen bytes are what load_blocks takes for four numbers.
  static CELLC_DEVICE void load(Left& left, const char* at) {
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step) {
      float pairs[4];
      load_blocks(pairs, reinterpret_cast<const float*>(at + step * 32));
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p) left.at[step].at[p] = bits_of(pairs[p]);
    }
  }
  static CELLC_DEVICE void multiply(WideSums& sums, const Left& left, const char* matrix, int part, bool adds,
                                    WideScratch* scratch) {
    CELLC_UNROLL()
    for (int step = 0; step < kSteps; ++step)
      wide_multiply<kFactors>(sums, left.at[step], columns_at(matrix + part * kMatrixBytes + step * 2 * kWideTile * 16),
                              adds || step > 0, scratch);
  }
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(256)
    cellc_prepare_stored(const __grid_constant__ cellc::ProductArguments a) {
  cellc::await_stream();
  cellc::prepare_stored(a);
}
extern "C" __global__ void __launch_bounds__(CELLC_WIDE_THREADS, 1)
    cellc_product_wgmma_stored(const __grid_constant__ cellc::ProductArguments a) {
  CELLC_DYNAMIC_SHARED(char, ring);
  CELLC_WIDE_SCRATCH(scratch);
  cellc::await_stream();
  cellc::RingProduct<cellc::StoredRows>(a, ring, scratch).run();
}

#endif
