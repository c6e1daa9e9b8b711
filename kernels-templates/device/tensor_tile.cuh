// Tiles of matrix products by the tensor cores, for arithmetic of 32 bits: what product_tensor.cuh and
// step_sums_tensor.cuh share.
//
// CELLC_PRODUCTS_3XTF32: each factor is a sum of two numbers of 11 bits, x = high + low, and x·y = high·high + high·low
// + low·high: what is left out is some 2^-22 of the product, and the result is as good as one of 32 bits. Tensor cores
// cut sums off rather than round them, so a sum leaves them after 8 terms and is added to the others in f32.
// CELLC_PRODUCTS_TF32: the high parts alone. CELLC_PRODUCTS_BF16, CELLC_PRODUCTS_F16: factors rounded to 16 bits, which
// changes none that comes from such storage.
// Rows that lie in 16 bits are such factors as they are, of 11 bits or of their own type: of 3xTF32 two products are
// left. (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores, 2022, section 3.)
//
// A warp makes a part of the tile, 16 by 8 sums at a time. Factors come to shared memory 32 terms at a time, a *stage*,
// by copies that run beside the products of the stages before; rows and columns that are not there, and terms past the
// last one, are zeros on both sides. Needs tensor_parts.cuh.
#pragma once

namespace cellc {

// Blocks that a multiprocessor has room for: taking factors apart takes registers.
#ifdef CELLC_PRODUCTS_3XTF32
#define CELLC_PRODUCT_BLOCKS 1
#else
#define CELLC_PRODUCT_BLOCKS 2
#endif

constexpr int kProductThreads = 256, kTensorTerms = 32;
constexpr bool kPairsTerms = kTermsAtOnce == 16;  ///< a lane holds neighbouring terms in one number
/// Shared memory of a stage for each row and column of a tile; kernel_templates.cc tells the host.
constexpr int kTensorRowBytes = 4 * (kTensorTerms + (kPairsTerms ? 8 : 4));

/// A factor, or a sum, as it lies in memory.
CELLC_DEVICE float number_of(float number) { return number; }
CELLC_DEVICE void put_number(float* to, float number) { *to = number; }
#ifdef CELLC_NARROW
CELLC_DEVICE float number_of(Stored number) { return widen(number); }
CELLC_DEVICE void put_number(Stored* to, float number) { *to = narrow(number); }
#endif

/// One side of a tile in shared memory: kLength rows, of the right factor columns, of kTensorTerms terms each.
template <bool kTermsLastOf, int kLengthOf>
struct TensorSide {
  using Number = float;
  static constexpr bool kTermsLast = kTermsLastOf, kStored = false;
  static constexpr int kLength = kLengthOf, kNeighbours = 4;
  // Lanes of an instruction fall into different banks: 8 rows and 4 terms, or of pairs of terms 4 rows and 8 terms.
  static constexpr int kPitch = (kTermsLast ? kTensorTerms : kLength) + (kPairsTerms == kTermsLast ? 8 : 4);
  static constexpr int kEntries = kLength * kTensorRowBytes / 4;
  static_assert((kTermsLast ? kLength : kTensorTerms) * kPitch <= kEntries);
  static_assert(kPitch % 4 == 0);  // copies of 16 bytes

  /// A thread fetches kFetches times four neighbours in memory: the first at its own row and term, and on from there.
  static constexpr int kFetches = kLength * kTensorTerms / 4 / kProductThreads;
  static constexpr int kFours = (kTermsLast ? kTensorTerms : kLength) / 4, kApart = kProductThreads / kFours;
  static CELLC_DEVICE int own_beside(int thread) { return thread % kFours * 4; }  ///< of terms, or of rows
  static CELLC_DEVICE int own_below(int thread) { return thread / kFours; }       ///< of rows, or of terms
};

/// The same of rows of 16 bits, which come there as they lie in memory: eight neighbours a copy.
template <int kLengthOf>
struct StoredSide {
  using Number = Stored;
  static constexpr bool kTermsLast = true, kStored = true;
  static constexpr int kLength = kLengthOf, kNeighbours = 8;
  static constexpr int kPitch = kTensorTerms + 8;  // 8 rows and 8 terms fall into different banks
  static constexpr int kEntries = kLength * kTensorRowBytes / 4;
  static_assert(kPitch * 2 <= kTensorRowBytes);
  static constexpr int kEights = kTensorTerms / 8, kApart = kProductThreads / kEights, kFetches = kLength / kApart;
  static CELLC_DEVICE int own_beside(int thread) { return thread % kEights * 8; }
  static CELLC_DEVICE int own_below(int thread) { return thread / kEights; }
};
template <bool kStored, bool kTermsLast, int kLength>
struct ChooseSide {
  using Side = TensorSide<kTermsLast, kLength>;
};
template <bool kTermsLast, int kLength>
struct ChooseSide<true, kTermsLast, kLength> {
  using Side = StoredSide<kLength>;
};

#ifdef CELLC_EMULATOR
#define CELLC_TENSOR_SCRATCH(name) __shared__ cellc::TensorScratch name[1]
#else
#define CELLC_TENSOR_SCRATCH(name) cellc::TensorScratch* const name = nullptr
#endif

CELLC_DEVICE bool is_aligned(const void* at) { return (reinterpret_cast<unsigned long long>(at) & 15) == 0; }

/// 16 bytes of neighbours in memory, of which `count` are there.
CELLC_DEVICE void fetch_neighbours(float* to, const float* from, long long count, bool aligned) {
  if (count >= 4 && aligned) {
    copy_async<16>(to, from);
    return;
  }
  CELLC_UNROLL()
  for (int i = 0; i < 4; ++i) {
    if (i < count)
      copy_async<4>(to + i, from + i);
    else
      to[i] = 0;
  }
}

#ifdef CELLC_NARROW
/// Rows of an odd length begin between two copies of 16 bytes, and come a number at a time.
CELLC_DEVICE void fetch_neighbours(Stored* to, const Stored* from, long long count, bool aligned) {
  if (count >= 8 && aligned) {
    copy_async<16>(to, from);
    return;
  }
  struct alignas(16) Eight {
    Stored at[8];
  } eight;
  CELLC_UNROLL()
  for (int i = 0; i < 8; ++i) eight.at[i] = i < count ? from[i] : Stored(0);
  *reinterpret_cast<Eight*>(to) = eight;
}
#endif

/// Calls multiply(stage) for `count` stages, one after the other. `fetch(stage)` asks for the copies of the next one;
/// arrive() is for what a thread has copied, before others read it.
template <int kStage, class Fetch, class Arrive, class Multiply>
CELLC_DEVICE void run_stages(float* shared, int stages, long long count, const Fetch& fetch, const Arrive& arrive,
                             const Multiply& multiply) {
  __syncthreads();  // the last tile has been read
  CELLC_UNROLL(1)
  for (int stage = 0; stage + 1 < stages; ++stage) {
    if (stage < count) fetch(shared + stage * kStage);
    copy_commit();
  }
  int now = 0, ahead = stages - 1;
  CELLC_UNROLL(1)
  for (long long i = 0; i < count; ++i) {
    if (stages == 2)
      copy_wait<0>();
    else if (stages == 3)
      copy_wait<1>();
    else
      copy_wait<2>();
    arrive();
    __syncthreads();  // the terms are there, and those before them have been read
    if (i + stages - 1 < count) fetch(shared + ahead * kStage);
    copy_commit();
    multiply(shared + now * kStage);
    now = now + 1 == stages ? 0 : now + 1;
    ahead = ahead + 1 == stages ? 0 : ahead + 1;
  }
  copy_wait<0>();
}

/// A tile of kRows by kColumns sums by 8 warps, kWarpsDown of them below each other.
template <int kRowsOf, int kColumnsOf, bool kLeftTermsLast, bool kRightTermsLast,
          int kWarpsDown = (kRowsOf > kColumnsOf ? 4 : 2), bool kStoredLeft = false>
struct TensorTile {
  using Left = typename ChooseSide<kStoredLeft, kLeftTermsLast, kRowsOf>::Side;
  using Right = TensorSide<kRightTermsLast, kColumnsOf>;
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf;
  static constexpr int kWarpsAcross = 8 / kWarpsDown;
  static constexpr int kDown = kRows / kWarpsDown / 16, kAcross = kColumns / kWarpsAcross / 8;  // of a warp
  static constexpr int kStage = Left::kEntries + Right::kEntries;
  static_assert(kAcross % 2 == 0);

  /// Sums of a lane: [16 rows][8 columns], of which it has two neighbours of two rows.
  using Sums = float[kDown][kAcross][4];

  float* shared;  ///< [stage][left, right]
  int stages;     ///< 2, 3 or 4
  TensorScratch* scratch;

  /// Rows and columns of the tile that a lane's sums begin at.
  static CELLC_DEVICE int warp_row() { return threadIdx.x / 32 / kWarpsAcross * (kRows / kWarpsDown); }
  static CELLC_DEVICE int warp_column() { return threadIdx.x / 32 % kWarpsAcross * (kColumns / kWarpsAcross); }

  /// Puts a lane's sums to where `row_at(row)` and its column say; null: nowhere. What is not finite is made again by
  /// `again(row, column)`, as an infinite factor has no second part.
  template <class RowAt, class Again>
  static CELLC_DEVICE void put(const Sums& sums, long long columns, const RowAt& row_at, const Again& again) {
    const int row = warp_row() + threadIdx.x % 32 / 4, column = warp_column() + 2 * (threadIdx.x % 4);
    bool finite = true;
    CELLC_UNROLL()
    for (int i = 0; i < 2 * kDown; ++i) {
      auto* const to = row_at(row + 8 * i);
      if (!to) continue;
      CELLC_UNROLL()
      for (int j = 0; j < kAcross; ++j) {
        CELLC_UNROLL()
        for (int k = 0; k < 2; ++k) {
          if (column + 8 * j + k >= columns) continue;
          const float sum = sums[i / 2][j][2 * (i % 2) + k];
          put_number(to + column + 8 * j + k, sum);
          finite = finite & is_finite(sum);
        }
      }
    }
    if (finite) return;
    CELLC_UNROLL(1)
    for (int i = 0; i < 2 * kDown; ++i) {
      auto* const to = row_at(row + 8 * i);
      CELLC_UNROLL(1)
      for (int j = 0; to && j < 2 * kAcross; ++j) {
        const int n = column + j / 2 * 8 + j % 2;
        if (n < columns && !is_finite(number_of(to[n]))) put_number(to + n, again(row + 8 * i, n));
      }
    }
  }

  /// Adds so many stages. `fetch(left, right)` asks for the copies of the next one.
  template <class Fetch>
  CELLC_DEVICE void add(Sums& sums, long long count, const Fetch& fetch) const {
    run_stages<kStage>(
        shared, stages, count, [&](float* stage) { fetch(stage, stage + Left::kEntries); }, [] {},
        [&](const float* stage) { multiply(sums, stage, stage + Left::kEntries); });
  }

  /// What one instruction takes of a warp's first 16 rows, from term k on.
  static CELLC_DEVICE void load_left(const float* left, int k, LeftPart& high, [[maybe_unused]] LeftPart& low) {
#ifdef CELLC_PRODUCTS_16BIT
    const int group = threadIdx.x % 32 / 4, of_group = threadIdx.x % 4;
    CELLC_UNROLL()
    for (int p = 0; p < 4; ++p)
      high.at[p] = two_terms<Left>(left, warp_row() + 8 * (p % 2) + group, k + 8 * (p / 2) + 2 * of_group);
#else
    float numbers[4];
    load_left_numbers(numbers, left, 0, k);
    CELLC_UNROLL()
    for (int p = 0; p < 4; ++p) split(numbers[p], high.at[p], low.at[p]);
#endif
  }

 private:
#ifdef CELLC_PRODUCTS_16BIT
  CELLC_DEVICE void multiply(Sums& sums, const float* left, const float* right) const {
    const int group = threadIdx.x % 32 / 4, of_group = threadIdx.x % 4;
    CELLC_UNROLL()
    for (int k = 0; k < kTensorTerms; k += kTermsAtOnce) {
      LeftPart l[kDown];
      CELLC_UNROLL()
      for (int i = 0; i < kDown; ++i) {
        CELLC_UNROLL()
        for (int p = 0; p < 4; ++p)
          l[i].at[p] = two_terms<Left>(left, warp_row() + 16 * i + 8 * (p % 2) + group, k + 8 * (p / 2) + 2 * of_group);
      }
      CELLC_UNROLL()
      for (int j = 0; j < kAcross; ++j) {
        RightPart r;
        CELLC_UNROLL()
        for (int p = 0; p < 2; ++p)
          r.at[p] = two_terms<Right>(right, warp_column() + 8 * j + group, k + 8 * p + 2 * of_group);
        CELLC_UNROLL()
        for (int i = 0; i < kDown; ++i) multiply_add(sums[i][j], l[i], r, scratch);
      }
    }
  }
  template <class Side>
  static CELLC_DEVICE unsigned two_terms(const float* side, int row, int term) {
    if (Side::kStored)  // pairs are as the instruction wants them
      return *reinterpret_cast<const unsigned*>(reinterpret_cast<const Stored*>(side) + row * Side::kPitch + term);
    const float* const at = side + (Side::kTermsLast ? row * Side::kPitch + term : term * Side::kPitch + row);
    return two_halves(at[0], at[Side::kTermsLast ? 1 : Side::kPitch]);
  }
#else
  /// What a lane holds of 8 terms, as numbers. Of columns two instructions at a time: terms 0 and 4 of the first, then
  /// of the second.
  struct Numbers {
    float left[kDown][4], right[kAcross / 2][4];
  };
  static CELLC_DEVICE void load_left_numbers(float (&to)[4], const float* left, int i, int k) {
    const int lane = threadIdx.x % 32, block = lane / 8, group = lane / 4, of_group = lane % 4;
    const int row = warp_row() + 16 * i;
    if (Left::kStored) {
      const auto* const numbers = reinterpret_cast<const typename Left::Number*>(left);
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p)
        to[p] = number_of(numbers[(row + group + 8 * (p % 2)) * Left::kPitch + k + of_group + 4 * (p / 2)]);
    } else if (kLeftTermsLast) {  // the row that a lane names: 8 by 4, below and beside each other
      load_blocks(to, left + (row + block % 2 * 8 + lane % 8) * Left::kPitch + block / 2 * 4 + k);
    } else {
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p) to[p] = left[(k + of_group + 4 * (p / 2)) * Left::kPitch + row + group + 8 * (p % 2)];
    }
  }
  static CELLC_DEVICE void load_numbers(Numbers& to, const float* left, const float* right, int k) {
    const int lane = threadIdx.x % 32, block = lane / 8, group = lane / 4, of_group = lane % 4;
    CELLC_UNROLL()
    for (int i = 0; i < kDown; ++i) load_left_numbers(to.left[i], left, i, k);
    CELLC_UNROLL()
    for (int j = 0; j < kAcross / 2; ++j) {
      const int column = warp_column() + 16 * j;
      if (kRightTermsLast) {
        load_blocks(to.right[j], right + (column + block / 2 * 8 + lane % 8) * Right::kPitch + block % 2 * 4 + k);
      } else {
        CELLC_UNROLL()
        for (int n = 0; n < 4; ++n)
          to.right[j][n] = right[(k + of_group + 4 * (n % 2)) * Right::kPitch + column + group + 8 * (n / 2)];
      }
    }
  }

  CELLC_DEVICE void multiply(Sums& sums, const float* left, const float* right) const {
    // Where a block has the multiprocessor's registers, the next numbers are on their way while these are multiplied.
    constexpr int kSets = CELLC_PRODUCT_BLOCKS == 1 ? 2 : 1;
    Numbers numbers[kSets];
    if (kSets == 2) load_numbers(numbers[0], left, right, 0);
    CELLC_UNROLL()
    for (int k = 0; k < kTensorTerms; k += 8) {
      if (kSets == 1)
        load_numbers(numbers[0], left, right, k);
      else if (k + 8 < kTensorTerms)
        load_numbers(numbers[(k / 8 + 1) % kSets], left, right, k + 8);
      multiply_eight(sums, numbers[k / 8 % kSets]);
    }
  }

  CELLC_DEVICE void multiply_eight(Sums& sums, const Numbers& numbers) const {
    LeftPart high[kDown], low[kDown];
    CELLC_UNROLL()
    for (int i = 0; i < kDown; ++i) {
      CELLC_UNROLL()
      for (int p = 0; p < 4; ++p) split(numbers.left[i][p], high[i].at[p], low[i].at[p]);
    }
    // Two columns of instructions at a time: none waits for the one before.
    CELLC_UNROLL()
    for (int j = 0; j < kAcross; j += 2) {
      RightPart r[2], r_low[2];
      CELLC_UNROLL()
      for (int n = 0; n < 4; ++n) split(numbers.right[j / 2][n], r[n / 2].at[n % 2], r_low[n / 2].at[n % 2]);
#ifdef CELLC_PRODUCTS_3XTF32
      float part[2][kDown][4] = {};
      const auto add_part = [&](const LeftPart(&l)[kDown], const RightPart(&of)[2]) {
        CELLC_UNROLL()
        for (int n = 0; n < 2; ++n) {
          CELLC_UNROLL()
          for (int i = 0; i < kDown; ++i) multiply_add(part[n][i], l[i], of[n], scratch);
        }
      };
      if (!Left::kStored) add_part(low, r);  // of 16 bits none is left
      add_part(high, r_low);
      add_part(high, r);
      CELLC_UNROLL()
      for (int n = 0; n < 2; ++n) {
        CELLC_UNROLL()
        for (int i = 0; i < kDown; ++i) {
          CELLC_UNROLL()
          for (int s = 0; s < 4; ++s) sums[i][j + n][s] += part[n][i][s];
        }
      }
#else
      CELLC_UNROLL()
      for (int n = 0; n < 2; ++n) {
        CELLC_UNROLL()
        for (int i = 0; i < kDown; ++i) multiply_add(sums[i][j + n], high[i], r[n], scratch);
      }
#endif
    }
  }
#endif
};

}  // namespace cellc
