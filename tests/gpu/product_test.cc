// Products of rows and a matrix (product.cuh): every shape of tile and of its edges, both ways that a matrix lies, rows
// of a window of which some are not there; by multiply-adds and by tensor cores. Sums are whole numbers, so that they
// are exact in any order and in any factors.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/data/bind.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

struct Shape {
  long long rows, width, depth, batch;
  long long shared = 1;       ///< neighbours of the batch with one matrix
  bool batch_inside = false;  ///< of the matrix
};
struct Tile {
  long long rows, columns, stages;
};
constexpr Tile kSmall{64, 64, 2};

bool is_narrow(Dtype storage) { return size_of(storage) == 2; }

/// The module of a product; `wide`: with the kernels for sm_90a. Of storage of 16 bits rows are, too.
GpuModule product_module(Gpu& gpu, ProductFactors factors, Dtype storage, bool wide) {
  ProductTemplate product = product_template(factors, storage);
  std::string text = storage_macro(storage) + product.macro;
  if (is_narrow(storage)) text += stored_operands(false);
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"};
  if (wide) {
    for (const char* part : wide_product_parts()) product.parts.push_back(part);
    product.parts.push_back(is_narrow(storage) ? "product_stored.cuh" : "product_wgmma.cuh");
  }
  parts.insert(parts.end(), product.parts.begin(), product.parts.end());
  for (const char* part : parts) text += kernel_template(part);
  return gpu.load(
      {"product.cu", text, wide && on_card() ? std::vector<std::string>{"-arch=sm_90a"} : std::vector<std::string>{}});
}
const char* product_name(Dtype storage, bool wide) {
  return is_narrow(storage) ? (wide ? "cellc_product_wgmma_stored" : "cellc_product_stored")
                            : (wide ? "cellc_product_wgmma" : "cellc_product");
}
const char* prepare_name(Dtype storage) { return is_narrow(storage) ? "cellc_prepare_stored" : "cellc_prepare_matrix"; }

/// Rows of the operand as they lie on the device.
template <class Real>
GpuBuffer upload_rows(Gpu& gpu, const std::vector<Real>& rows, Dtype storage) {
  if (!is_narrow(storage)) return upload(gpu, rows);
  Array array = Array::uninitialised(Dtype::F32, {static_cast<std::int64_t>(rows.size())});
  for (std::size_t i = 0; i < rows.size(); ++i) static_cast<float*>(array.data())[i] = static_cast<float>(rows[i]);
  const Array narrow = convert(array, storage);
  const auto* const bits = static_cast<const std::uint16_t*>(narrow.data());
  return upload(gpu, std::vector<std::uint16_t>(bits, bits + rows.size()));
}

template <class Of>
class HoistedProducts : public testing::Test {
 protected:
  using Real = typename Of::Real;

  static constexpr Dtype kStorage = sizeof(Real) == 8 ? Dtype::F64 : Of::kStorage;
  static constexpr bool kStored = kStorage == Dtype::BF16 || kStorage == Dtype::F16;

  // One kernel for many products: it runs longer than it compiles.
  HoistedProducts() : gpu_(open_device(4, 1).gpu) {
    row_bytes_ = product_template(Of::kFactors, kStorage).row_bytes;
    if (Of::kWide && on_card() && gpu_->facts().major != 9) return;
    const GpuModule module = product_module(*gpu_, Of::kFactors, kStorage, Of::kWide);
    kernel_ = gpu_->function(module, product_name(kStorage, Of::kWide));
    if (Of::kWide) prepare_ = gpu_->function(module, prepare_name(kStorage));
  }
  void SetUp() override {
    if (!kernel_) GTEST_SKIP() << "a kernel for sm_90a alone";
  }

  /// Compares with sums in order. Between rows of the operand are `beyond` entries.
  void check(const Shape& s, Tile tile, bool sum_last, bool windowed, unsigned blocks, long long special_term = -1,
             Real special = std::numeric_limits<Real>::infinity(), long long beyond = 3) {
    SCOPED_TRACE(fmt::format("{} rows, {} columns of {} terms, batch {}, tiles of {} by {}, {} stages, {}{}, {} blocks",
                             s.rows, s.width, s.depth, s.batch, tile.rows, tile.columns, tile.stages,
                             sum_last ? "terms last" : "columns last", windowed ? ", windowed" : "", blocks));
    const long long apart = s.batch * s.depth + beyond;
    std::vector<Real> operand(static_cast<std::size_t>(s.rows * apart)),
        matrix(static_cast<std::size_t>(s.batch / s.shared * s.width * s.depth));
    const long long along = sum_last ? s.depth : s.width,
                    matrix_apart = s.batch_inside ? s.batch / s.shared * along : along,
                    matrix_batch = s.batch_inside ? along : s.width * s.depth;
    for (std::size_t i = 0; i < operand.size(); ++i) operand[i] = static_cast<Real>(static_cast<int>(i * 7 % 11) - 5);
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<Real>(static_cast<int>(i * 5 % 13) - 6);
    // Numbers that have no 16 bits, where these do not do.
    if (many_bits_ &&
        (Of::kFactors == ProductFactors::Tf32x3 || (kStored && Of::kWide && Of::kFactors == ProductFactors::Tf32)))
      for (std::size_t i = 0; i < matrix.size(); ++i)
        matrix[i] += static_cast<Real>(4096 * (static_cast<int>(i * 3 % 7) - 3));
    if (special_term >= 0) operand[static_cast<std::size_t>(special_term)] = special;
    // Of a window every sequence has two jobs, and the second sequence one step.
    const std::vector<long long> offsets = {0, s.rows - 1, s.rows};
    const long long jobs = windowed ? 4 : s.rows;
    const auto a_operand = upload_rows(*gpu_, operand, kStorage), a_matrix = upload(*gpu_, matrix),
               a_offsets = upload(*gpu_, offsets);
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
    a.shared = s.shared;
    a.matrix_apart = matrix_apart;
    a.matrix_batch = matrix_batch;
    a.width = s.width;
    a.depth = s.depth;
    a.tile = tile.rows;
    a.tile_columns = tile.columns;
    a.stages = tile.stages;
    a.result = reinterpret_cast<void*>(a_result.address());
    const ProductTemplate form = product_template(Of::kFactors, kStorage);
    const long long terms = kStored ? 64 : 32;
    const int matrix_bytes = kStored ? form.stored_matrix_bytes : form.wide_matrix_bytes,
              slot_bytes = kStored ? form.stored_slot_bytes : form.wide_slot_bytes;
    const GpuBuffer prepared(*gpu_, static_cast<std::size_t>(s.batch / s.shared * ((s.width + 127) / 128) *
                                                             ((s.depth + terms - 1) / terms) * matrix_bytes));
    a.prepared = reinterpret_cast<void*>(prepared.address());
    GpuLaunch multiply = shape(blocks, 256, a.stages * (tile.rows + tile.columns) * row_bytes_);
    if (Of::kWide) {
      launch(*gpu_, prepare_, shape(blocks, 256), a);
      a.stages = std::min<long long>(a.stages, (gpu_->facts().shared_per_block - CELLC_WIDE_HEAD_BYTES) / slot_bytes);
      multiply = shape(blocks, CELLC_WIDE_THREADS, CELLC_WIDE_HEAD_BYTES + a.stages * slot_bytes);
    }
    launch(*gpu_, kernel_, multiply, a);
    const auto found = download<Real>(*gpu_, a_result);
    for (long long job = 0; job < jobs; ++job) {
      const long long row = !windowed ? job : job < 2 ? job : s.rows - 1;
      const bool used = !windowed || job != 3;
      for (long long b = 0; b < s.batch; ++b) {
        for (long long n = 0; n < s.width; ++n) {
          Real sum = 0;
          for (long long k = 0; k < s.depth; ++k)
            sum += operand[static_cast<std::size_t>(row * apart + b * s.depth + k)] *
                   matrix[static_cast<std::size_t>(b / s.shared * matrix_batch +
                                                   (sum_last ? n * matrix_apart + k : k * matrix_apart + n))];
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
  GpuFunction kernel_, prepare_;
  std::int64_t row_bytes_ = 0;
  bool many_bits_ = false;
};

template <class R, ProductFactors factors, bool wide = false, Dtype storage = Dtype::F32>
struct Of {
  using Real = R;
  static constexpr ProductFactors kFactors = factors;
  static constexpr bool kWide = wide;
  static constexpr Dtype kStorage = storage;
};
template <ProductFactors factors, bool wide, Dtype storage>
using Rows = Of<float, factors, wide, storage>;  ///< of 16 bits
using Kinds =
    testing::Types<Of<float, ProductFactors::Real>, Of<double, ProductFactors::Real>, Of<float, ProductFactors::Tf32x3>,
                   Of<float, ProductFactors::Tf32>, Of<float, ProductFactors::BF16>, Of<float, ProductFactors::F16>,
                   Of<float, ProductFactors::Tf32x3, true>, Of<float, ProductFactors::Tf32, true>,
                   Of<float, ProductFactors::BF16, true>, Of<float, ProductFactors::F16, true>,
                   Rows<ProductFactors::Tf32x3, false, Dtype::BF16>, Rows<ProductFactors::Tf32, false, Dtype::F16>,
                   Rows<ProductFactors::BF16, false, Dtype::BF16>, Rows<ProductFactors::F16, false, Dtype::F16>,
                   Rows<ProductFactors::Tf32x3, true, Dtype::BF16>, Rows<ProductFactors::Tf32x3, true, Dtype::F16>,
                   Rows<ProductFactors::Tf32, true, Dtype::BF16>, Rows<ProductFactors::Tf32, true, Dtype::F16>,
                   Rows<ProductFactors::BF16, true, Dtype::BF16>, Rows<ProductFactors::F16, true, Dtype::F16>>;
TYPED_TEST_SUITE(HoistedProducts, Kinds);

TYPED_TEST(HoistedProducts, OfEveryShape) {
  for (const Tile tile : {kSmall, Tile{128, 64, 3}, Tile{128, 128, 4}}) {
    if (this->row_bytes_ == 0 &&
        (tile.rows != tile.columns || (tile.rows == 128 && sizeof(typename TypeParam::Real) == 8)))
      continue;  // tiles of multiply-adds are square, and in f64 not large
    if (TypeParam::kWide && tile.columns == 64) continue;
    for (const Shape& s :
         {Shape{1, 1, 1, 1}, Shape{3, 5, 7, 1}, Shape{64, 64, 8, 1}, Shape{65, 63, 9, 2}, Shape{128, 128, 16, 1},
          Shape{129, 127, 17, 1}, Shape{131, 200, 24, 1}, Shape{7, 300, 1, 3}, Shape{200, 3, 33, 1},
          Shape{3, 5, 167, 1}, Shape{5, 6, 7, 6, 2}, Shape{9, 12, 20, 4, 1, true}, Shape{9, 8, 36, 6, 3, true}}) {
      for (const bool sum_last : {true, false}) this->check(s, tile, sum_last, false, 2);
    }
  }
}

/// Rows that copies of 16 bytes fit, and numbers of the matrix that take several parts.
TYPED_TEST(HoistedProducts, OfManyBits) {
  if (!TestFixture::kStored && TypeParam::kFactors != ProductFactors::Tf32x3) return;
  this->many_bits_ = true;
  for (const Shape& s : {Shape{131, 130, 64, 1}, Shape{3, 257, 65, 1}, Shape{70, 5, 200, 2}, Shape{129, 131, 8, 1}})
    for (const bool aligned : {false, true})
      this->check(s, {128, 128, aligned ? 4 : 2}, !aligned, false, 2, -1, 0, aligned ? 8 : 3);
}

TYPED_TEST(HoistedProducts, OfRowsThatAreThere) {
  for (const bool sum_last : {true, false}) this->check({5, 70, 10, 1}, kSmall, sum_last, true, 1);
}

TYPED_TEST(HoistedProducts, OfNoTerms) { this->check({5, 70, 0, 1}, kSmall, true, false, 1); }

/// What is past the last term is no factor: 0 times infinity is not 0.
TYPED_TEST(HoistedProducts, OfInfiniteNumbers) {
  for (const long long depth : {1, 8, 9, 15}) this->check({3, 4, depth, 1}, kSmall, true, false, 1, depth - 1);
}

/// What is no number stays none, also where all of its bits are set, as those of a card are: to 11 bits it is rounded
/// to another number.
TYPED_TEST(HoistedProducts, OfWhatIsNoNumber) {
  using Real = typename TypeParam::Real;
  std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t> bits = ~0u >> 1;
  if (sizeof(Real) == 8) bits = static_cast<decltype(bits)>(~std::uint64_t{0} >> 1);
  Real none;
  std::memcpy(&none, &bits, sizeof none);
  this->check({3, 4, 9, 1}, kSmall, true, false, 1, 8, none);
}

// Errors against sums in f64, over Σ|l·r|, which bounds what rounding can do: of numbers that do not fit 11 bits, some
// of them large or small.
/// Numbers that are also of `storage`.
void round_to(std::vector<float>& all, Dtype storage) {
  Array array = Array::uninitialised(Dtype::F32, {static_cast<std::int64_t>(all.size())});
  std::copy(all.begin(), all.end(), static_cast<float*>(array.data()));
  const Array back = convert(convert(array, storage), Dtype::F32);
  std::copy_n(static_cast<const float*>(back.data()), all.size(), all.begin());
}

/// `matrix_storage`: what its numbers have the bits of.
template <class Of>
double largest_error(std::int64_t rows, std::int64_t width, std::int64_t depth, Dtype matrix_storage = Dtype::F32) {
  const auto gpu = open_device().gpu;
  const GpuModule module = product_module(*gpu, Of::kFactors, Of::kStorage, Of::kWide);
  const GpuFunction kernel = gpu->function(module, product_name(Of::kStorage, Of::kWide));
  std::mt19937 random(3);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::uniform_int_distribution<int> sizes(-12, 12);
  std::vector<float> operand(static_cast<std::size_t>(rows * depth)), matrix(static_cast<std::size_t>(width * depth));
  for (float& x : operand) x = std::ldexp(numbers(random), sizes(random));
  for (float& x : matrix) x = std::ldexp(numbers(random), sizes(random));
  round_to(operand, Of::kStorage);
  round_to(matrix, matrix_storage);
  const std::vector<long long> offsets = {0, rows};
  const auto a_operand = upload_rows(*gpu, operand, Of::kStorage), a_matrix = upload(*gpu, matrix),
             a_offsets = upload(*gpu, offsets);
  const auto a_result = upload(*gpu, std::vector<float>(static_cast<std::size_t>(rows * width)));
  ProductArguments a{};
  a.frame.offsets = reinterpret_cast<const long long*>(a_offsets.address());
  a.frame.sequences = a.frame.direction = 1;
  a.frame.rows = rows;
  a.operand = reinterpret_cast<const void*>(a_operand.address());
  a.operand_stride = a.depth = depth;
  a.matrix = reinterpret_cast<const void*>(a_matrix.address());
  a.sum_last = a.batch = a.shared = 1;
  a.matrix_apart = depth;
  a.width = width;
  a.tile = a.tile_columns = 64;
  a.stages = 3;
  a.result = reinterpret_cast<void*>(a_result.address());
  const ProductTemplate form = product_template(Of::kFactors, Of::kStorage);
  const GpuBuffer prepared(*gpu, static_cast<std::size_t>((width + 127) / 128 * ((depth + 63) / 64) *
                                                          std::max(1, form.stored_matrix_bytes)));
  a.prepared = reinterpret_cast<void*>(prepared.address());
  GpuLaunch multiply = shape(2, 256, 3 * 128 * form.row_bytes);
  if (Of::kWide) {
    launch(*gpu, gpu->function(module, prepare_name(Of::kStorage)), shape(2, 256), a);
    multiply = shape(2, CELLC_WIDE_THREADS, CELLC_WIDE_HEAD_BYTES + 3 * form.stored_slot_bytes);
  }
  launch(*gpu, kernel, multiply, a);
  const auto found = download<float>(*gpu, a_result);
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t n = 0; n < width; ++n) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const double term = static_cast<double>(operand[static_cast<std::size_t>(r * depth + k)]) *
                            static_cast<double>(matrix[static_cast<std::size_t>(n * depth + k)]);
        sum += term;
        size += std::fabs(term);
      }
      worst = std::max(worst, std::fabs(found[static_cast<std::size_t>(r * width + n)] - sum) / size);
    }
  return worst;
}

TEST(ProductErrors, AreThoseOfTheFactors) {
  for (const std::int64_t depth : {1, 16, 300}) {
    SCOPED_TRACE(depth);
    const double plain = largest_error<Of<float, ProductFactors::Real>>(33, 20, depth);
    const double split = largest_error<Of<float, ProductFactors::Tf32x3>>(33, 20, depth);
    // One product alone is rounded once by multiply-adds, to 2^-24; of the three parts some 2^-22 is left out.
    EXPECT_LE(split, std::max(2 * plain, 0x1p-21));
    EXPECT_LE((largest_error<Of<float, ProductFactors::Tf32>>(33, 20, depth)), 0x1p-10);
    EXPECT_LE((largest_error<Of<float, ProductFactors::F16>>(33, 20, depth)), 0x1p-9);
    EXPECT_LE((largest_error<Of<float, ProductFactors::BF16>>(33, 20, depth)), 0x1p-7);
    EXPECT_GT((largest_error<Of<float, ProductFactors::Tf32>>(33, 20, depth)), 0x1p-17);
  }
}

/// Rows of 16 bits are no less exact than rounded ones were, and lose nothing by their factors where the matrix has 16
/// bits, too.
template <bool wide, Dtype storage>
void check_errors_of_rows() {
  constexpr ProductFactors kOwn = storage == Dtype::BF16 ? ProductFactors::BF16 : ProductFactors::F16;
  for (const std::int64_t depth : {1, 16, 300}) {
    SCOPED_TRACE(fmt::format("{} terms of {}{}", depth, to_string(storage), wide ? ", wgmma" : ""));
    const double plain = largest_error<Of<float, ProductFactors::Real>>(33, 20, depth);
    for (const Dtype matrix : {Dtype::F32, storage})
      EXPECT_LE((largest_error<Rows<ProductFactors::Tf32x3, wide, storage>>(33, 20, depth, matrix)),
                std::max(2 * plain, matrix == storage ? 0x1p-23 : 0x1p-21));
    EXPECT_LE((largest_error<Rows<ProductFactors::Tf32, wide, storage>>(33, 20, depth)), 0x1p-11);
    EXPECT_LE((largest_error<Rows<kOwn, wide, storage>>(33, 20, depth)), storage == Dtype::BF16 ? 0x1p-8 : 0x1p-11);
    EXPECT_LE((largest_error<Rows<kOwn, wide, storage>>(33, 20, depth, storage)), std::max(2 * plain, 0x1p-23));
  }
}
TEST(ProductErrors, OfRowsOf16Bits) {
  check_errors_of_rows<false, Dtype::BF16>();
  check_errors_of_rows<false, Dtype::F16>();
  const bool has_them = !on_card() || open_device().gpu->facts().major == 9;
  if (!has_them) return;
  check_errors_of_rows<true, Dtype::BF16>();
  check_errors_of_rows<true, Dtype::F16>();
}

}  // namespace
}  // namespace cellc
