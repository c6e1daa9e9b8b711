// Products of rows and a matrix of params on a GPU, as a run's passes make them, in every kind of factors.
//
//   cellc_bench_cuda_products [ROWS,WIDTH,DEPTH[;…] [REPEATS]]
//
// ms, TFLOP/s, and the largest error over Σ|l·r| of some sums against f64.
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <sstream>

#include "kernels-templates/host/host_tiles.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"

namespace {

using namespace cellc;

struct Kind {
  const char* name;
  ProductFactors factors;
  bool wide = false;  ///< by wgmma, which cards of sm_90 alone have
};
constexpr Kind kKinds[] = {{"f32", ProductFactors::Real},
                           {"3xtf32", ProductFactors::Tf32x3},
                           {"3xtf32, wgmma", ProductFactors::Tf32x3, true},
                           {"tf32", ProductFactors::Tf32},
                           {"tf32, wgmma", ProductFactors::Tf32, true},
                           {"bf16", ProductFactors::BF16},
                           {"bf16, wgmma", ProductFactors::BF16, true},
                           {"f16", ProductFactors::F16},
                           {"f16, wgmma", ProductFactors::F16, true}};

GpuModule module_of(Gpu& gpu, const Kind& kind) {
  ProductTemplate product = product_template(kind.factors, Dtype::F32);
  if (kind.wide) product.parts.push_back("product_wgmma.cuh");
  std::string text = storage_macro(Dtype::F32) + product.macro;
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"};
  parts.insert(parts.end(), product.parts.begin(), product.parts.end());
  for (const char* part : parts) text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  return gpu.load(
      {"product.cu", text, kind.wide ? std::vector<std::string>{"-arch=sm_90a"} : std::vector<std::string>{}});
}

void bench(Gpu& gpu, long long rows, long long width, long long depth, int repeats) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::vector<float> operand(static_cast<std::size_t>(rows * depth)), matrix(static_cast<std::size_t>(width * depth)),
      result(static_cast<std::size_t>(rows * width));
  for (auto* all : {&operand, &matrix})
    for (float& x : *all) x = numbers(random);
  const GpuBuffer a_operand(gpu, operand.size() * 4), a_matrix(gpu, matrix.size() * 4),
      a_result(gpu, result.size() * 4);
  gpu.copy_in(a_operand.address(), operand.data(), a_operand.bytes(), 0);
  gpu.copy_in(a_matrix.address(), matrix.data(), a_matrix.bytes(), 0);
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
    const GpuModule module = module_of(gpu, kind);
    const GpuFunction kernel = gpu.function(module, kind.wide ? "cellc_product_wgmma" : "cellc_product");
    const ProductTemplate form = product_template(kind.factors, Dtype::F32);
    GpuLaunch launch;
    launch.block.x = 256;
    // As runs choose them.
    long long tiles = cellc_choose_tiles(&a, 4, form.row_bytes > 0, gpu.facts().multiprocessors);
    a.stages =
        cellc_product_stages(&a, form.row_bytes, form.blocks, gpu.facts().shared_per_block, &launch.shared_bytes);
    GpuBuffer prepared;
    if (kind.wide) {  // made ready once, as of a param; not in the time
      cellc_wide_products wide{};
      wide.stage_bytes = form.wide_stage_bytes;
      wide.matrix_bytes = form.wide_matrix_bytes;
      wide.blocks = form.blocks;
      tiles = cellc_wide_tiles(&a, rows);
      a.stages = cellc_wide_stages(&wide, gpu.facts().shared_per_block, &launch.shared_bytes);
      prepared = GpuBuffer(gpu, static_cast<std::size_t>(cellc_prepared_bytes(&wide, &a)));
      a.prepared = reinterpret_cast<void*>(prepared.address());
      GpuLaunch prepare;
      prepare.block.x = 256;
      prepare.grid.x = static_cast<unsigned>(8 * gpu.facts().multiprocessors);
      void* arguments[] = {&a, nullptr};
      const GpuFunction preparing = gpu.function(module, "cellc_prepare_matrix");
      fmt::print("{:>7} {:>6} {:>6}  prepared {:>6.4f}\n", rows, width, depth,
                 ms_a_call(gpu, repeats, [&] { gpu.launch(preparing, prepare, arguments); }));
    }
    launch.grid.x = static_cast<unsigned>(std::min(tiles, 8ll * gpu.facts().multiprocessors));
    void* pointers[] = {&a, nullptr};
    const double ms = ms_a_call(gpu, repeats, [&] { gpu.launch(kernel, launch, pointers); });
    gpu.copy_out(result.data(), a_result.address(), a_result.bytes(), 0);
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
    fmt::print("{:>7} {:>6} {:>6}  {:<13} {:>8.4f} {:>7.1f}  {:.1e}\n", rows, width, depth, kind.name, ms,
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
