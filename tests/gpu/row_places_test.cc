// The places of rows, shared among the threads of a kernel (each_place and each_place_of_tile of rows.cuh): every one is come to once,
// whatever there are more of, rows or places or threads.
#include <fmt/format.h>

#include "kernels-templates/rows_frame.cuh"
#include "runtime/cuda/kernel_templates.h"
#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

struct Counted {
  RowsFrame frame;
  std::uint64_t seen;
  long long places;
};

constexpr const char* kCount = R"(
struct Counted {
  cellc::RowsFrame frame;
  unsigned* seen;
  long long places;
};
extern "C" __global__ void __launch_bounds__(512) of_rows(const __grid_constant__ Counted a) {
  cellc::each_place<4>(a.frame, a.places, [&](auto, const long long p, const cellc::RowPlace& here) {
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
  for (const char* part : {"preamble.cuh", "math.cuh", "rows_frame.cuh", "rows.cuh"}) text += kernel_template(part);
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
          a.places = places;
          const auto seen = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(all * places + 1)));
          a.seen = seen.address();
          launch(*gpu, kernel, shape(blocks, threads), a);
          const auto count = download<unsigned>(*gpu, seen);
          for (long long row = 0; row < all; ++row) {
            // A window has the steps 4 and 5 of each sequence, of which the first has one.
            const bool inside = !window || row == 4 || row == 5 + 4 || row == 5 + 5;
            for (long long p = 0; p < places; ++p)
              ASSERT_EQ(count[static_cast<std::size_t>(row * places + p)], inside ? 1u : 0u) << "row " << row << ", place " << p;
          }
        }
      }
    }
  }
}

/// A row that is longer than a block is everybody's, also if there is one.
TEST(RowPlaces, AreSharedByAllBlocks) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "rows_frame.cuh", "rows.cuh"}) text += kernel_template(part);
  text += R"(
struct Written {
  cellc::RowsFrame frame;
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
    a.places = 1000;
    const auto by = upload(*gpu, std::vector<unsigned>(static_cast<std::size_t>(rows * a.places)));
    a.seen = by.address();
    launch(*gpu, kernel, shape(7, 64), a);
    std::vector<int> many(8);
    for (const unsigned block : download<unsigned>(*gpu, by)) ++many.at(block);
    EXPECT_EQ(many[0], 0);
    for (int block = 1; block <= 7; ++block) EXPECT_GT(many[static_cast<std::size_t>(block)], rows * 1000 / 7 / 2) << "block " << block << ", rows " << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlacesOfRows, testing::Values("of_rows", "of_tiles"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
