// Products summed over steps on tensor cores (step_sums_tensor.cuh): entries wherever they lie in a row, parts of rows,
// batches, further axes that are summed over. Sums are whole numbers, so that they are exact in any order and in any
// factors; errors of others against f64.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels-templates/gradient/gradient_arguments.cuh"
#include "runtime/cuda/build/kernel_templates.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

struct Shape {
  long long rows, m, n, batch, summed, parts;
};

/// Offsets 0, apart, 2·apart, …
std::vector<long long> places(long long count, long long apart) {
  std::vector<long long> at;
  for (long long i = 0; i < count; ++i) at.push_back(i * apart);
  return at;
}

class TensorSums {
 public:
  TensorSums(Gpu& gpu, ProductFactors factors) : gpu_(gpu), form_(product_template(factors, Dtype::F32)) {
    std::string text = storage_macro(Dtype::F32) + form_.macro;
    for (const char* part : {"preamble.cuh", "gradient_arguments.cuh", "shifted_rows.cuh", "step_sums.cuh",
                             "tensor_parts.cuh", "tensor_tile.cuh", "step_sums_tensor.cuh"})
      text += kernel_template(part);
    const GpuModule module = gpu.load({"sums.cu", text, {}});
    sum_ = gpu.function(module, "cellc_sum_products_tensor");
    finish_ = gpu.function(module, "cellc_finish_sums");
  }

  /// Rows of the left factor are [batch][summed][m], of the right one [summed][n][batch]; `gap`: entries between rows.
  std::vector<float> run(const Shape& s, const std::vector<float>& left, const std::vector<float>& right, long long gap,
                         long long tile, long long stages) {
    const long long entries = s.batch * s.m * s.n;
    const auto a_left = upload(gpu_, left), a_right = upload(gpu_, right);
    const auto into = upload(gpu_, std::vector<float>(static_cast<std::size_t>(entries), 3));
    const GpuBuffer partial(gpu_, static_cast<std::size_t>(s.parts * entries) * 4);
    std::vector<GpuBuffer> tables;
    const auto table = [&](const std::vector<long long>& values) {
      tables.push_back(upload(gpu_, values));
      return reinterpret_cast<const long long*>(tables.back().address());
    };
    StepSums a{};
    a.left = reinterpret_cast<const void*>(a_left.address());
    a.right = reinterpret_cast<const void*>(a_right.address());
    a.partial = reinterpret_cast<void*>(partial.address());
    a.into = reinterpret_cast<void*>(into.address());
    a.rows = s.rows;
    a.left_row = s.batch * s.summed * s.m + gap;
    a.right_row = s.batch * s.summed * s.n + gap;
    a.m = s.m;
    a.n = s.n;
    a.batch = s.batch;
    a.summed = s.summed;
    a.parts = s.parts;
    a.repeated = 1;
    a.m_left = table(places(s.m, 1));
    a.m_into = table(places(s.m, s.n));
    a.n_right = table(places(s.n, s.batch));
    a.n_into = table(places(s.n, 1));
    a.batch_left = table(places(s.batch, s.summed * s.m));
    a.batch_right = table(places(s.batch, 1));
    a.batch_into = table(places(s.batch, s.m * s.n));
    a.summed_left = table(places(s.summed, s.m));
    a.summed_right = table(places(s.summed, s.n * s.batch));
    a.repeated_into = table({0});
    a.tile = tile;
    a.stages = stages;
    a.left_runs = s.m % 4 == 0 && a.left_row % 4 == 0;
    a.right_runs = s.batch == 1 && s.n % 4 == 0 && a.right_row % 4 == 0;
    GpuLaunch grid = shape(static_cast<unsigned>((s.m + tile - 1) / tile * ((s.n + tile - 1) / tile)), 256,
                           stages * 2 * tile * form_.row_bytes);
    grid.grid.y = static_cast<unsigned>(std::min(s.batch, 2ll));
    grid.grid.z = static_cast<unsigned>(s.parts);
    launch(gpu_, sum_, grid, a);
    launch(gpu_, finish_, shape(2, 256), a);
    return download<float>(gpu_, into);
  }

  /// The sum at (b, m, n), by `add(l, r)` term by term.
  template <class Add>
  static void each_term(const Shape& s, const std::vector<float>& left, const std::vector<float>& right, long long gap,
                        long long b, long long m, long long n, const Add& add) {
    const long long left_row = s.batch * s.summed * s.m + gap, right_row = s.batch * s.summed * s.n + gap;
    for (long long row = 0; row < s.rows; ++row)
      for (long long k = 0; k < s.summed; ++k)
        add(static_cast<double>(left[static_cast<std::size_t>(row * left_row + (b * s.summed + k) * s.m + m)]),
            static_cast<double>(right[static_cast<std::size_t>(row * right_row + (k * s.n + n) * s.batch + b)]));
  }
  static std::vector<float> array(const Shape& s, long long entries, long long gap) {
    return std::vector<float>(static_cast<std::size_t>(s.rows * (s.batch * s.summed * entries + gap)));
  }

 private:
  Gpu& gpu_;
  const ProductTemplate form_;
  GpuFunction sum_, finish_;
};

class StepSumsOnTensorCores : public testing::TestWithParam<ProductFactors> {};

TEST_P(StepSumsOnTensorCores, OfEveryShape) {
  const auto gpu = open_device().gpu;
  TensorSums sums(*gpu, GetParam());
  for (const long long tile : {64, 128})
    for (const Shape& s : {Shape{1, 1, 1, 1, 1, 1}, Shape{40, 3, 5, 1, 1, 2}, Shape{33, 64, 64, 1, 1, 1},
                           Shape{67, 132, 68, 1, 1, 3}, Shape{70, 20, 12, 3, 1, 2}, Shape{37, 9, 70, 2, 3, 2}})
      for (const long long gap : {0, 3}) {
        SCOPED_TRACE(fmt::format("{} rows, {} by {}, batch {}, {} summed, {} parts, tiles of {}, gap {}", s.rows, s.m,
                                 s.n, s.batch, s.summed, s.parts, tile, gap));
        std::vector<float> left = TensorSums::array(s, s.m, gap), right = TensorSums::array(s, s.n, gap);
        for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
        for (std::size_t i = 0; i < right.size(); ++i) right[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
        const std::vector<float> found = sums.run(s, left, right, gap, tile, tile == 64 ? 3 : 2);
        for (long long b = 0; b < s.batch; ++b)
          for (long long m = 0; m < s.m; ++m)
            for (long long n = 0; n < s.n; ++n) {
              double sum = 3;
              TensorSums::each_term(s, left, right, gap, b, m, n, [&](double l, double r) { sum += l * r; });
              ASSERT_EQ(found[static_cast<std::size_t>((b * s.m + m) * s.n + n)], sum) << b << " " << m << " " << n;
            }
      }
}

/// An infinite factor has no second part, and its sums are what multiply-adds make of it. Others do not see it.
TEST_P(StepSumsOnTensorCores, OfInfiniteNumbers) {
  const auto gpu = open_device().gpu;
  const Shape s{35, 4, 8, 1, 1, 2};
  std::vector<float> left = TensorSums::array(s, s.m, 0), right = TensorSums::array(s, s.n, 0);
  for (float& x : left) x = 1;
  for (float& x : right) x = 1;
  left[5 * 4 + 2] = std::numeric_limits<float>::infinity();
  const std::vector<float> found = TensorSums(*gpu, GetParam()).run(s, left, right, 0, 64, 2);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], i / 8 == 2 ? std::numeric_limits<float>::infinity() : 38) << i;
}

INSTANTIATE_TEST_SUITE_P(Factors, StepSumsOnTensorCores,
                         testing::Values(ProductFactors::Tf32x3, ProductFactors::Tf32, ProductFactors::BF16));

/// Over Σ|l·r|, of numbers that do not fit 11 bits.
double largest_error(ProductFactors factors) {
  const auto gpu = open_device().gpu;
  const Shape s{300, 20, 30, 1, 1, 2};
  std::mt19937 random(5);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::uniform_int_distribution<int> sizes(-12, 12);
  std::vector<float> left = TensorSums::array(s, s.m, 0), right = TensorSums::array(s, s.n, 0);
  for (auto* all : {&left, &right})
    for (float& x : *all) x = std::ldexp(numbers(random), sizes(random));
  const std::vector<float> found = TensorSums(*gpu, factors).run(s, left, right, 0, 64, 3);
  double worst = 0;
  for (long long m = 0; m < s.m; ++m)
    for (long long n = 0; n < s.n; ++n) {
      double sum = 3, size = 3;
      TensorSums::each_term(s, left, right, 0, 0, m, n, [&](double l, double r) {
        sum += l * r;
        size += std::fabs(l * r);
      });
      worst = std::max(worst, std::fabs(found[static_cast<std::size_t>(m * s.n + n)] - sum) / size);
    }
  return worst;
}

TEST(StepSumErrors, AreThoseOfTheFactors) {
  EXPECT_LE(largest_error(ProductFactors::Tf32x3), 0x1p-21);
  const double of_11_bits = largest_error(ProductFactors::Tf32);
  EXPECT_LE(of_11_bits, 0x1p-10);
  EXPECT_GT(of_11_bits, 0x1p-17);
}

}  // namespace
}  // namespace cellc
