// Products of rows and a matrix (product.cuh): every shape of tile and of its edges, both ways that a matrix lies, rows
// of a window of which some are not there. Sums are whole numbers, so that they are exact in any order.
#include <fmt/format.h>

#include <limits>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

struct Shape {
  long long rows, width, depth, batch;
};

template <class Real>
class Products : public testing::Test {
 protected:
  Products() : gpu_(open_emulator()) {
    std::string text = sizeof(Real) == 4 ? "#define CELLC_STORAGE_F32 1\n" : "#define CELLC_STORAGE_F64 1\n";
    for (const char* part : {"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh", "product.cuh"})
      text += kernel_template(part);
    kernel_ = gpu_->function(gpu_->load({"product.cu", text, {}}), "cellc_product");
  }

  /// Compares with sums in order. Rows of the operand are `apart` entries apart.
  void check(const Shape& s, long long tile, bool sum_last, bool windowed, unsigned blocks,
             long long infinite_term = -1) {
    SCOPED_TRACE(fmt::format("{} rows, {} columns of {} terms, batch {}, tiles of {}, {}{}, {} blocks", s.rows, s.width,
                             s.depth, s.batch, tile, sum_last ? "terms last" : "columns last",
                             windowed ? ", windowed" : "", blocks));
    const long long apart = s.batch * s.depth + 3;
    std::vector<Real> operand(static_cast<std::size_t>(s.rows * apart)),
        matrix(static_cast<std::size_t>(s.batch * s.width * s.depth));
    for (std::size_t i = 0; i < operand.size(); ++i) operand[i] = static_cast<Real>(static_cast<int>(i * 7 % 11) - 5);
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<Real>(static_cast<int>(i * 5 % 13) - 6);
    if (infinite_term >= 0) operand[static_cast<std::size_t>(infinite_term)] = std::numeric_limits<Real>::infinity();
    // Of a window every sequence has two jobs, and the second sequence one step.
    const std::vector<long long> offsets = {0, s.rows - 1, s.rows};
    const long long jobs = windowed ? 4 : s.rows;
    const auto a_operand = upload(*gpu_, operand), a_matrix = upload(*gpu_, matrix), a_offsets = upload(*gpu_, offsets);
    const auto a_result =
        upload(*gpu_, std::vector<Real>(static_cast<std::size_t>(jobs * s.batch * s.width + 1), Real(-777)));
    ProductArguments a{};
    a.frame.offsets = reinterpret_cast<const long long*>(a_offsets.address());
    a.frame.sequences = 2;
    a.frame.direction = 1;
    a.frame.rows = jobs;
    a.frame.window = windowed ? 2 : 0;
    a.operand = reinterpret_cast<const void*>(a_operand.address());
    a.operand_stride = apart;
    a.matrix = reinterpret_cast<const void*>(a_matrix.address());
    a.sum_last = sum_last;
    a.batch = s.batch;
    a.width = s.width;
    a.depth = s.depth;
    a.tile = tile;
    a.result = reinterpret_cast<void*>(a_result.address());
    launch(*gpu_, kernel_, shape(blocks, 256), a);
    const auto found = download<Real>(*gpu_, a_result);
    for (long long job = 0; job < jobs; ++job) {
      const long long row = !windowed ? job : job < 2 ? job : s.rows - 1;
      const bool used = !windowed || job != 3;
      for (long long b = 0; b < s.batch; ++b) {
        for (long long n = 0; n < s.width; ++n) {
          Real sum = 0;
          for (long long k = 0; k < s.depth; ++k)
            sum += operand[static_cast<std::size_t>(row * apart + b * s.depth + k)] *
                   matrix[static_cast<std::size_t>(b * s.width * s.depth +
                                                   (sum_last ? n * s.depth + k : k * s.width + n))];
          const Real is = found[static_cast<std::size_t>((job * s.batch + b) * s.width + n)];
          if (used && sum != sum)
            ASSERT_NE(is, is) << "job " << job << ", column " << n;
          else
            ASSERT_EQ(is, used ? sum : Real(-777)) << "job " << job << ", batch " << b << ", column " << n;
        }
      }
    }
    ASSERT_EQ(found.back(), Real(-777)) << "written past the end";
  }

  std::unique_ptr<Gpu> gpu_;
  GpuFunction kernel_;
};

using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Products, Reals);

TYPED_TEST(Products, OfEveryShape) {
  for (const long long tile : {64, sizeof(TypeParam) == 4 ? 128 : 64}) {
    for (const Shape& s :
         {Shape{1, 1, 1, 1}, Shape{3, 5, 7, 1}, Shape{64, 64, 8, 1}, Shape{65, 63, 9, 2}, Shape{128, 128, 16, 1},
          Shape{129, 127, 17, 1}, Shape{131, 200, 24, 1}, Shape{7, 300, 1, 3}, Shape{200, 3, 33, 1}}) {
      for (const bool sum_last : {true, false}) this->check(s, tile, sum_last, false, 2);
    }
  }
}

TYPED_TEST(Products, OfRowsThatAreThere) {
  for (const bool sum_last : {true, false}) this->check({5, 70, 10, 1}, 64, sum_last, true, 1);
}

TYPED_TEST(Products, OfNoTerms) { this->check({5, 70, 0, 1}, 64, true, false, 1); }

/// What is past the last term is no factor: 0 times infinity is not 0.
TYPED_TEST(Products, OfInfiniteNumbers) {
  for (const long long depth : {1, 8, 9, 15}) this->check({3, 4, depth, 1}, 64, true, false, 1, depth - 1);
}

}  // namespace
}  // namespace cellc
