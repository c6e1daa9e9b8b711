// Products of rows and a matrix of params on a GPU, as a run's passes make them, in every kind of factors.
//
//   cellc_bench_cuda_products [ROWS,WIDTH,DEPTH[;…] [REPEATS]]
//
// ms, TFLOP/s, and the largest error over Σ|l·r| of some sums against f64. "of bf16": rows lie in 16 bits, and numbers
// of the matrix have as many, or, "f32 matrix", 24. "to 16 bits": sums are rounded to storage as they are written.
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <sstream>

#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/data/bind.h"

namespace {

using namespace cellc;

struct Kind {
  const char* name;
  ProductFactors factors;
  bool wide = false;  ///< by wgmma, which cards of sm_90 alone have
  Dtype storage = Dtype::F32;
  bool exact = false;   ///< the matrix has numbers of `storage`
  bool rounds = false;  ///< the results, too
  bool stored() const { return storage != Dtype::F32; }
};
constexpr Kind kKinds[] = {{"f32", ProductFactors::Real},
                           {"3xtf32", ProductFactors::Tf32x3},
                           {"3xtf32, wgmma", ProductFactors::Tf32x3, true},
                           {"tf32", ProductFactors::Tf32},
                           {"tf32, wgmma", ProductFactors::Tf32, true},
                           {"bf16", ProductFactors::BF16},
                           {"bf16, wgmma", ProductFactors::BF16, true},
                           {"f16", ProductFactors::F16},
                           {"f16, wgmma", ProductFactors::F16, true},
                           {"of bf16: default", ProductFactors::Tf32x3, false, Dtype::BF16, true},
                           {"storage", ProductFactors::BF16, false, Dtype::BF16, true},
                           {"default, wgmma", ProductFactors::Tf32x3, true, Dtype::BF16, true},
                           {"default, wgmma, f32 matrix", ProductFactors::Tf32x3, true, Dtype::BF16},
                           {"tf32, wgmma, f32 matrix", ProductFactors::Tf32, true, Dtype::BF16},
                           {"storage, wgmma", ProductFactors::BF16, true, Dtype::BF16, true},
                           {"storage, to 16 bits", ProductFactors::BF16, false, Dtype::BF16, true, true},
                           {"storage, wgmma, to 16 bits", ProductFactors::BF16, true, Dtype::BF16, true, true},
                           {"of f16: default", ProductFactors::Tf32x3, false, Dtype::F16, true},
                           {"default, wgmma", ProductFactors::Tf32x3, true, Dtype::F16, true},
                           {"default, wgmma, f32 matrix", ProductFactors::Tf32x3, true, Dtype::F16},
                           {"storage, wgmma", ProductFactors::F16, true, Dtype::F16, true},
                           {"storage, wgmma, to 16 bits", ProductFactors::F16, true, Dtype::F16, true, true}};

/// The numbers of `all` that have the bits of `storage`, as f32 and as they lie.
std::vector<float> round_to(const std::vector<float>& all, Dtype storage, std::vector<std::uint16_t>* bits = nullptr) {
  Array array = Array::uninitialised(Dtype::F32, {static_cast<std::int64_t>(all.size())});
  std::copy(all.begin(), all.end(), static_cast<float*>(array.data()));
  const Array narrow = convert(array, storage), back = convert(narrow, Dtype::F32);
  const auto* const stored = static_cast<const std::uint16_t*>(narrow.data());
  if (bits) bits->assign(stored, stored + all.size());
  return {static_cast<const float*>(back.data()), static_cast<const float*>(back.data()) + all.size()};
}

GpuModule module_of(Gpu& gpu, const Kind& kind) {
  ProductTemplate product = product_template(kind.factors, kind.storage);
  if (kind.wide) {
    for (const char* part : wide_product_parts()) product.parts.push_back(part);
    product.parts.push_back(kind.stored() ? "product_stored.cuh" : "product_wgmma.cuh");
  }
  std::string text = storage_macro(kind.storage) + product.macro;
  if (kind.stored()) text += stored_operands(false);
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"};
  parts.insert(parts.end(), product.parts.begin(), product.parts.end());
  for (const char* part : parts) text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  return gpu.load(
      {"product.cu", text, kind.wide ? std::vector<std::string>{"-arch=sm_90a"} : std::vector<std::string>{}});
}

void bench(Gpu& gpu, long long rows, long long width, long long depth, int repeats) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::vector<float> all_rows(static_cast<std::size_t>(rows * depth)),
      all_columns(static_cast<std::size_t>(width * depth)), result(static_cast<std::size_t>(rows * width));
  for (auto* all : {&all_rows, &all_columns})
    for (float& x : *all) x = numbers(random);
  std::vector<float> operand = all_rows, matrix = all_columns;
  const GpuBuffer a_operand(gpu, operand.size() * 4), a_matrix(gpu, matrix.size() * 4),
      a_result(gpu, result.size() * 4);
  ProductArguments a{};
  a.frame.sequences = a.frame.direction = 1;
  a.frame.rows = rows;
  a.operand = reinterpret_cast<const void*>(a_operand.address());
  a.operand_stride = a.depth = depth;
  a.matrix = reinterpret_cast<const void*>(a_matrix.address());
  a.sum_last = a.batch = a.shared = 1;
  a.matrix_apart = depth;
  a.width = width;
  a.result = reinterpret_cast<void*>(a_result.address());
  for (const Kind& kind : kKinds) {
    if (kind.wide && gpu.facts().major != 9) continue;
    std::vector<std::uint16_t> bits;
    if (kind.stored()) operand = round_to(all_rows, kind.storage, &bits);
    matrix = kind.exact ? round_to(all_columns, kind.storage) : all_columns;
    if (kind.stored())
      gpu.copy_in(a_operand.address(), bits.data(), bits.size() * 2, 0);
    else
      gpu.copy_in(a_operand.address(), operand.data(), a_operand.bytes(), 0);
    gpu.copy_in(a_matrix.address(), matrix.data(), a_matrix.bytes(), 0);
    const GpuModule module = module_of(gpu, kind);
    const GpuFunction kernel =
        gpu.function(module, kind.stored() ? (kind.wide ? "cellc_product_wgmma_stored" : "cellc_product_stored")
                                           : (kind.wide ? "cellc_product_wgmma" : "cellc_product"));
    const ProductTemplate form = product_template(kind.factors, kind.storage);
    a.result_is_stored = kind.rounds;
    GpuLaunch launch;
    launch.block.x = 256;
    // As runs choose them.
    long long tiles = cellc_choose_tiles(&a, 4, form.row_bytes > 0, gpu.facts().multiprocessors);
    a.stages =
        cellc_product_stages(&a, form.row_bytes, form.blocks, gpu.facts().shared_per_block, &launch.shared_bytes);
    GpuBuffer prepared;
    if (kind.wide) {  // made ready once, as of a param; not in the time
      const cellc_wide_products wide = kind.stored() ? wide_stored_products(form) : wide_products(form);
      tiles = cellc_shape_wide(&wide, &a, gpu.facts().shared_per_block, &launch.shared_bytes);
      launch.block.x = CELLC_WIDE_THREADS;
      prepared = GpuBuffer(gpu, static_cast<std::size_t>(cellc_prepared_bytes(&wide, &a)));
      a.prepared = reinterpret_cast<void*>(prepared.address());
      GpuLaunch prepare;
      prepare.block.x = 256;
      prepare.grid.x = static_cast<unsigned>(8 * gpu.facts().multiprocessors);
      void* arguments[] = {&a, nullptr};
      const GpuFunction preparing =
          gpu.function(module, kind.stored() ? "cellc_prepare_stored" : "cellc_prepare_matrix");
      fmt::print("{:>7} {:>6} {:>6}  prepared {:>6.4f}\n", rows, width, depth,
                 ms_a_call(gpu, repeats, [&] { gpu.launch(preparing, prepare, arguments); }));
    }
    launch.grid.x =
        static_cast<unsigned>(std::min<long long>(tiles, (kind.wide ? 1 : 8) * gpu.facts().multiprocessors));
    void* pointers[] = {&a, nullptr};
    const double ms = ms_a_call(gpu, repeats, [&] { gpu.launch(kernel, launch, pointers); });
    if (kind.rounds) {
      Array rounded = Array::uninitialised(kind.storage, {static_cast<std::int64_t>(result.size())});
      gpu.copy_out(rounded.data(), a_result.address(), a_result.bytes() / 2, 0);
      const Array wide = convert(rounded, Dtype::F32);
      std::copy_n(static_cast<const float*>(wide.data()), result.size(), result.data());
    } else {
      gpu.copy_out(result.data(), a_result.address(), a_result.bytes(), 0);
    }
    double worst = 0;
    for (int i = 0; i < 500; ++i) {
      const auto row = static_cast<std::size_t>(random() % static_cast<unsigned>(rows)),
                 column = static_cast<std::size_t>(random() % static_cast<unsigned>(width)),
                 terms = static_cast<std::size_t>(depth);
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < terms; ++k) {
        const double term =
            static_cast<double>(operand[row * terms + k]) * static_cast<double>(matrix[column * terms + k]);
        sum += term;
        size += std::fabs(term);
      }
      worst = std::max(worst, std::fabs(result[row * static_cast<std::size_t>(width) + column] - sum) / size);
    }
    fmt::print("{:>7} {:>6} {:>6}  {:<26} {:>8.4f} {:>7.1f}  {:.1e}\n", rows, width, depth, kind.name, ms,
               2e-9 * static_cast<double>(rows * width) * static_cast<double>(depth) / ms, worst);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string reason;
    const auto gpu = open_gpu("", reason);
    if (!gpu) {
      fmt::print(stderr, "{}\n", reason);
      return 4;
    }
    fmt::print("{}; ms, TFLOP/s, largest error\n   rows  width  depth\n", gpu->facts().name);
    std::stringstream shapes(argc > 1 ? argv[1] : "16384,1024,1024;16384,3072,1024;1024,512,512;128,1024,1024");
    for (std::string one; std::getline(shapes, one, ';');) {
      long long rows = 0, width = 0, depth = 0;
      if (std::sscanf(one.c_str(), "%lld,%lld,%lld", &rows, &width, &depth) != 3)
        throw std::runtime_error(fmt::format("\"{}\" is no shape ROWS,WIDTH,DEPTH", one));
      bench(*gpu, rows, width, depth, argc > 2 ? std::atoi(argv[2]) : 20);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", argv[0], e.what());
    return 4;
  }
  return 0;
}
