// The places of rows, shared among the threads of a kernel (each_place, each_sum and those of tiles, of nests.cuh):
// every one is come to once, whatever there are more of, rows or places or threads.
#include <fmt/format.h>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

struct Counted {
  NestFrame frame;
  std::uint64_t seen;
  long long places;
};

constexpr const char* kCount = R"(
struct Counted {
  cellc::NestFrame frame;
  unsigned* seen;
  long long places;
};
extern "C" __global__ void __launch_bounds__(512) of_rows(const __grid_constant__ Counted a) {
  cellc::each_place<4>(a.frame, a.places, [&](auto, const long long p, const cellc::RowPlace& here) {
    atomicAdd(a.seen + here.row * a.places + p, here.chunk_row == here.row - a.frame.first_row || a.frame.window ? 1u : 1000u);
  });
}
extern "C" __global__ void __launch_bounds__(512) of_steps(const __grid_constant__ Counted a) {
  cellc::each_place<2, true>(a.frame, a.places, [&](auto, const long long p, const cellc::RowPlace& here) {
    atomicAdd(a.seen + here.row * a.places + p, here.chunk_row == here.row - a.frame.first_row || a.frame.window ? 1u : 1000u);
  });
}
extern "C" __global__ void __launch_bounds__(512) of_tiles(const __grid_constant__ Counted a) {
  for (long long tile = blockIdx.x; tile * a.frame.tile_rows < a.frame.rows; tile += gridDim.x)
    cellc::each_place_of_tile<2>(a.frame, tile, a.places, [&](auto, const long long p, const long long row, const cellc::RowPlace& here) {
      const bool right = row >= 0 && row < a.frame.tile_rows && (a.frame.window || here.row == a.frame.first_row + tile * a.frame.tile_rows + row);
      atomicAdd(a.seen + here.row * a.places + p, right ? 1u : 1000u);
    });
}
)";

/// Three sequences, the one between without steps.
constexpr long long kSteps[] = {5, 0, 8};

class PlacesOfRows : public testing::TestWithParam<const char*> {};

TEST_P(PlacesOfRows, AreComeToOnce) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"}) text += kernel_template(part);
  const GpuFunction kernel = gpu->function(gpu->load({"places.cu", text + kCount, {}}), GetParam());
  const std::vector<long long> offsets = {0, kSteps[0], kSteps[0] + kSteps[1], kSteps[0] + kSteps[1] + kSteps[2]};
  const auto at = upload(*gpu, offsets);
  const long long all = offsets.back();
  for (const long long places : {0, 1, 3, 31, 32, 63, 64, 65, 97, 200}) {
    for (const int threads : {32, 64, 96}) {
      for (const int blocks : {1, 3, 20}) {
        for (const long long window : {0, 2}) {
          SCOPED_TRACE(fmt::format("{} places, {} blocks of {} threads, window {}", places, blocks, threads, window));
          Counted a{};
          a.frame.offsets = reinterpret_cast<const long long*>(at.address());
          a.frame.sequences = 3;
          a.frame.direction = 1;
          a.frame.window = window;
          a.frame.window_begin = window ? 4 : 0;
          a.frame.rows = window ? 3 * window : all;
          a.frame.tile_rows = 4;
          a.frame.narrow = !window && blocks != 3;
          a.places = places;
          const auto seen = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(all * places + 1)));
          a.seen = seen.address();
          launch(*gpu, kernel, shape(blocks, threads), a);
          const auto count = download<unsigned>(*gpu, seen);
          for (long long row = 0; row < all; ++row) {
            // A window has the steps 4 and 5 of each sequence, of which the first has one.
            const bool inside = !window || row == 4 || row == 5 + 4 || row == 5 + 5;
            for (long long p = 0; p < places; ++p)
              ASSERT_EQ(count[static_cast<std::size_t>(row * places + p)], inside ? 1u : 0u)
                  << "row " << row << ", place " << p;
          }
        }
      }
    }
  }
}

constexpr const char* kSums = R"(
struct Summed {
  cellc::NestFrame frame;
  float* sums;
  long long places, terms;
  int threads;
};
// Term q of place p of a row: a number that only that term has; and the largest of them.
template <bool kLags>
CELLC_DEVICE void all_rows(const Summed& a) {
  const int threads = a.threads;
  const Real none[2] = {0, -1};
  cellc::each_sum<2, kLags>(a.frame, a.places, a.terms, threads, none,
    [&](auto, const long long p, const cellc::RowPlace& here) {
      return [=, &a](const long long q, Real (&term)[2]) {
        term[0] = static_cast<float>((here.row * a.places + p) * 64 + q);
        term[1] = static_cast<float>(q);
      };
    },
    [&](Real (&sum)[2], const Real (&term)[2]) {
      sum[0] += term[0];
      sum[1] = cellc::max(sum[1], term[1]);
    },
    [&](Real (&sum)[2]) {
      sum[0] = cellc::sum_of_threads(sum[0], threads);
      sum[1] = cellc::largest_of_threads(sum[1], threads);
    },
    [&](auto, const long long p, const cellc::RowPlace& here, const Real (&sum)[2]) {
      atomicAdd(a.sums + 2 * (here.row * a.places + p), sum[0] + 1);   // twice would be too much
      atomicAdd(a.sums + 2 * (here.row * a.places + p) + 1, sum[1] + 2);
    });
}
extern "C" __global__ void __launch_bounds__(512) of_rows(const __grid_constant__ Summed a) { all_rows<false>(a); }
extern "C" __global__ void __launch_bounds__(512) of_steps(const __grid_constant__ Summed a) { all_rows<true>(a); }
extern "C" __global__ void __launch_bounds__(512) of_tiles(const __grid_constant__ Summed a) {
  const int threads = a.threads;
  const Real none[2] = {0, -1};
  for (long long tile = blockIdx.x; tile * a.frame.tile_rows < a.frame.rows; tile += gridDim.x)
    cellc::each_sum_of_tile<1>(a.frame, tile, a.places, a.terms, threads, none,
      [&](auto, const long long p, const long long, const cellc::RowPlace& here) {
        return [=, &a](const long long q, Real (&term)[2]) {
          term[0] = static_cast<float>((here.row * a.places + p) * 64 + q);
          term[1] = static_cast<float>(q);
        };
      },
      [&](Real (&sum)[2], const Real (&term)[2]) {
        sum[0] += term[0];
        sum[1] = cellc::max(sum[1], term[1]);
      },
      [&](Real (&sum)[2]) {
        sum[0] = cellc::sum_of_threads(sum[0], threads);
        sum[1] = cellc::largest_of_threads(sum[1], threads);
      },
      [&](auto, const long long p, const long long row, const cellc::RowPlace& here, const Real (&sum)[2]) {
        const bool right = row >= 0 && row < a.frame.tile_rows && (a.frame.window || here.row == a.frame.first_row + tile * a.frame.tile_rows + row);
        atomicAdd(a.sums + 2 * (here.row * a.places + p), right ? sum[0] + 1 : 1e9f);
        atomicAdd(a.sums + 2 * (here.row * a.places + p) + 1, sum[1] + 2);
      });
}
)";

struct Summed {
  NestFrame frame;
  std::uint64_t sums;
  long long places, terms;
  int threads;
};

TEST_P(PlacesOfRows, HaveTheirSums) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"}) text += kernel_template(part);
  const GpuFunction kernel = gpu->function(gpu->load({"sums.cu", text + kSums, {}}), GetParam());
  const std::vector<long long> offsets = {0, kSteps[0], kSteps[0] + kSteps[1], kSteps[0] + kSteps[1] + kSteps[2]};
  const auto at = upload(*gpu, offsets);
  const long long all = offsets.back();
  for (const long long places : {0, 1, 3, 8, 33, 70}) {
    for (const long long terms : {0, 1, 3, 4, 5, 17, 40}) {
      for (const int together : {1, 2, 8, 32}) {
        for (const int blocks : {1, 3}) {
          for (const long long window : {0, 2}) {
            SCOPED_TRACE(fmt::format("{} places of {} terms by {}, {} blocks, window {}", places, terms, together,
                                     blocks, window));
            Summed a{};
            a.frame.offsets = reinterpret_cast<const long long*>(at.address());
            a.frame.sequences = 3;
            a.frame.direction = 1;
            a.frame.window = window;
            a.frame.window_begin = window ? 4 : 0;
            a.frame.rows = window ? 3 * window : all;
            a.frame.tile_rows = 4;
            a.frame.narrow = !window && together != 2;
            a.places = places;
            a.terms = terms;
            a.threads = together;
            const auto sums = upload(*gpu, std::vector<float>(static_cast<std::size_t>(2 * all * places + 1)));
            a.sums = sums.address();
            launch(*gpu, kernel, shape(blocks, 64), a);
            const auto found = download<float>(*gpu, sums);
            for (long long row = 0; row < all; ++row) {
              const bool inside = !window || row == 4 || row == 5 + 4 || row == 5 + 5;
              for (long long p = 0; p < places; ++p) {
                const long long place = row * places + p;
                ASSERT_EQ(found[static_cast<std::size_t>(2 * place)],
                          inside ? static_cast<float>(place * 64 * terms + terms * (terms - 1) / 2 + 1) : 0)
                    << "row " << row << ", place " << p;
                ASSERT_EQ(found[static_cast<std::size_t>(2 * place + 1)],
                          inside ? static_cast<float>(terms > 0 ? terms + 1 : 1) : 0)
                    << "row " << row << ", place " << p;
              }
            }
          }
        }
      }
    }
  }
}

constexpr const char* kKnown = R"(
struct Known {
  cellc::NestFrame frame;
  const Real* factors;
  unsigned* seen;  // of every place: whether its sum is right, and how many of its terms were plain
  long long places;
};
// Four terms, whose number is said; every third row, as one at the start of a sequence, is not plain.
#define CELLC_KNOWN_TERMS(row)                                                                                        \
  return cellc::terms_of(cellc::starts_vector<4>(a.factors) && (row) % 3 != 0, [=, &a](auto how, auto q, Real (&term)[2]) { \
    term[0] = cellc::read_neighbour<4>(how, a.factors + p * 4, q) * static_cast<Real>(1 << 4 * q);                     \
    term[1] = how || false ? Real(1) : Real(0);                                                                        \
  });
#define CELLC_KNOWN_REST                                                                                              \
  [&](Real (&sum)[2], const Real (&term)[2]) { sum[0] += term[0], sum[1] += term[1]; }, [&](Real (&)[2]) {}
CELLC_DEVICE void note(const Known& a, long long row, long long p, const Real (&sum)[2]) {
  const Real first = static_cast<Real>(p % 16);
  const bool right = sum[0] == first + (first + 1) * 16 + (first + 2) * 256 + (first + 3) * 4096;
  atomicAdd(a.seen + row * a.places + p, right ? 16 + static_cast<unsigned>(sum[1]) : 1000);
}
template <bool kLags>
CELLC_DEVICE void all_rows(const Known& a) {
  const Real none[2] = {0, 0};
  cellc::each_sum<2, kLags, 4>(a.frame, a.places, 4, 1, none,
    [&](auto, const auto p, const cellc::RowPlace& here) { CELLC_KNOWN_TERMS(here.row) }, CELLC_KNOWN_REST,
    [&](auto, const auto p, const cellc::RowPlace& here, const Real (&sum)[2]) { note(a, here.row, p, sum); });
}
extern "C" __global__ void __launch_bounds__(512) of_rows(const __grid_constant__ Known a) { all_rows<false>(a); }
extern "C" __global__ void __launch_bounds__(512) of_steps(const __grid_constant__ Known a) { all_rows<true>(a); }
extern "C" __global__ void __launch_bounds__(512) of_tiles(const __grid_constant__ Known a) {
  const Real none[2] = {0, 0};
  for (long long tile = blockIdx.x; tile * a.frame.tile_rows < a.frame.rows; tile += gridDim.x)
    cellc::each_sum_of_tile<1, false, 4>(a.frame, tile, a.places, 4, 1, none,
      [&](auto, const auto p, const auto, const cellc::RowPlace& here) { CELLC_KNOWN_TERMS(here.row) }, CELLC_KNOWN_REST,
      [&](auto, const auto p, const auto, const cellc::RowPlace& here, const Real (&sum)[2]) { note(a, here.row, p, sum); });
}
)";

struct Known {
  NestFrame frame;
  std::uint64_t factors, seen;
  long long places;
};

/// Of sums whose terms are counted where they are compiled: whole vectors are read where they begin at one, and
/// nobody takes a term to be plain that is not.
TEST_P(PlacesOfRows, HaveSumsOfFewTerms) {
  const auto gpu = open_emulator();
  for (const bool f64 : {false, true}) {
    std::string text = f64 ? "#define CELLC_STORAGE_F64 1\n" : "#define CELLC_STORAGE_F32 1\n";
    for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"}) text += kernel_template(part);
    const GpuFunction kernel = gpu->function(gpu->load({"known.cu", text + kKnown, {}}), GetParam());
    const std::uint64_t real = f64 ? 8 : 4;
    const long long rows = 8, most = 97;
    // Twice, the second time from one number on.
    std::vector<float> single(static_cast<std::size_t>(4 * most + 1));
    std::vector<double> doubled(single.size());
    for (const long long places : {1ll, 3ll, 64ll, most}) {
      for (const bool aligned : {true, false}) {
        for (std::size_t i = 0; i < single.size() - 1; ++i)
          doubled[i + !aligned] = single[i + !aligned] = static_cast<float>(i / 4 % 16 + i % 4);
        const auto factors = f64 ? upload(*gpu, doubled) : upload(*gpu, single);
        for (const bool narrow : {true, false}) {
          SCOPED_TRACE(fmt::format("f64 {}, {} places, aligned {}, narrow {}", f64, places, aligned, narrow));
          Known a{};
          a.frame.rows = rows;
          a.frame.direction = 1;
          a.frame.tile_rows = 3;
          a.frame.narrow = narrow;
          a.places = places;
          a.factors = factors.address() + (aligned ? 0 : real);
          const auto seen = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(rows * places)));
          a.seen = seen.address();
          launch(*gpu, kernel, shape(2, 64), a);
          const auto found = download<unsigned>(*gpu, seen);
          for (long long row = 0; row < rows; ++row) {
            for (long long p = 0; p < places; ++p) {
              const unsigned at = found[static_cast<std::size_t>(row * places + p)];
              const bool may_be_plain = aligned && narrow && row % 3 != 0;
              // One beside it that is not plain takes it along.
              ASSERT_TRUE(at == 16 || (may_be_plain && at == 20)) << "row " << row << ", place " << p << ": " << at;
              if (std::string(GetParam()) == "of_tiles") {
                ASSERT_EQ(at, may_be_plain ? 20u : 16u) << "row " << row << ", place " << p;
              }
            }
          }
        }
      }
    }
  }
}

/// Rows are divided by multiplying, which is exact as far as 30 bits go.
TEST(RowPlaces, KnowTheirSequence) {
  NestFrame frame{};
  const long long most = (1ll << 30) - 1;
  for (const long long each : {1ll, 2ll, 3ll, 5ll, 7ll, 31ll, 32ll, 33ll, 641ll, 2047ll, 2048ll, 2049ll, 65537ll,
                               1000003ll, (1ll << 29) - 1, (1ll << 29) + 1, most - 1, most}) {
    frame.steps_each = each;
    cellc_set_division(&frame);
    for (const long long near : {0ll, each, 2 * each, 1000 * each, most / each * each, most / 2 / each * each, most}) {
      for (const long long row : {near - 1, near, near + 1, near + each / 2}) {
        if (row < 0 || row > most) continue;
        EXPECT_EQ(static_cast<unsigned long long>(row) * static_cast<unsigned long long>(frame.steps_factor) >>
                      frame.steps_shift,
                  static_cast<unsigned long long>(row / each))
            << row << " / " << each;
      }
    }
  }
}

/// A row that is longer than a block is everybody's, also if there is one.
TEST(RowPlaces, AreSharedByAllBlocks) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"}) text += kernel_template(part);
  text += R"(
struct Written {
  cellc::NestFrame frame;
  unsigned* by;
  long long places;
};
extern "C" __global__ void __launch_bounds__(512) kernel(const __grid_constant__ Written a) {
  cellc::each_place<4>(a.frame, a.places, [&](auto, const long long p, const cellc::RowPlace& here) { a.by[here.row * a.places + p] = blockIdx.x + 1; });
}
)";
  const GpuFunction kernel = gpu->function(gpu->load({"shared.cu", text, {}}), "kernel");
  for (const long long rows : {1, 2, 3}) {
    Counted a{};
    a.frame.rows = rows;
    a.frame.direction = 1;
    a.frame.narrow = 1;
    a.places = 1000;
    const auto by = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(rows * a.places)));
    a.seen = by.address();
    launch(*gpu, kernel, shape(7, 64), a);
    std::vector<int> many(8);
    for (const unsigned block : download<unsigned>(*gpu, by)) ++many.at(block);
    EXPECT_EQ(many[0], 0);
    for (int block = 1; block <= 7; ++block)
      EXPECT_GT(many[static_cast<std::size_t>(block)], rows * 1000 / 7 / 2) << "block " << block << ", rows " << rows;
  }
}

/// Where earlier steps are read, a block has neighbouring rows of one part: what it reads again it has just read.
TEST(RowPlaces, GoDownTheRowsOfAPart) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"}) text += kernel_template(part);
  text += R"(
struct Written {
  cellc::NestFrame frame;
  unsigned* by;
  long long places;
};
extern "C" __global__ void __launch_bounds__(512) kernel(const __grid_constant__ Written a) {
  cellc::each_place<2, true>(a.frame, a.places, [&](auto, const long long p, const cellc::RowPlace& here) { atomicAdd(a.by + here.row * a.places + p, blockIdx.x + 1); });
}
)";
  const GpuFunction kernel = gpu->function(gpu->load({"down.cu", text, {}}), "kernel");
  for (const long long places : {5, 64, 150}) {
    for (const int blocks : {1, 6, 7, 8}) {
      for (const long long rows : {90, 97, 400}) {
        SCOPED_TRACE(fmt::format("{} rows of {} places, {} blocks", rows, places, blocks));
        const long long lanes = std::min(places, 64ll), parts = (places + lanes - 1) / lanes, columns = blocks / parts;
        const long long turn = 2 * (64 / lanes),
                        each = columns ? (rows + columns * turn - 1) / (columns * turn) * turn : 0;
        Counted a{};
        a.frame.rows = rows;
        a.frame.direction = 1;
        a.frame.narrow = 1;
        a.places = places;
        const auto by = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(rows * places)));
        a.seen = by.address();
        launch(*gpu, kernel, shape(blocks, 64), a);
        const auto found = download<unsigned>(*gpu, by);
        for (long long row = 0; row < rows; ++row) {
          for (long long p = 0; p < places; ++p) {
            const unsigned block = found[static_cast<std::size_t>(row * places + p)];
            ASSERT_GE(block, 1u);
            ASSERT_LE(block, static_cast<unsigned>(blocks));
            if (columns > 0 && rows >= 4 * turn * columns) {
              ASSERT_EQ(block, row / each * parts + p / lanes + 1) << "row " << row << ", place " << p;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlacesOfRows, testing::Values("of_rows", "of_steps", "of_tiles"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
