#include "runtime/cuda/build/kernel_templates.h"

#include <stdexcept>

namespace cellc {

std::string_view kernel_template(std::string_view name) {
  for (const KernelTemplate& one : kernel_templates()) {
    if (one.name == name) return one.text;
  }
  throw std::logic_error("there is no kernel template " + std::string(name));
}

ProductTemplate product_template(ProductFactors factors, Dtype storage) {
  if (factors == ProductFactors::Real || storage == Dtype::F64) return {{"product.cuh"}, "", 0, 0, 0, 0, 0};
  const char* name = factors == ProductFactors::Tf32x3 ? "3XTF32"
                     : factors == ProductFactors::Tf32 ? "TF32"
                     : factors == ProductFactors::BF16 ? "BF16"
                                                       : "F16";
  const bool pairs_terms = factors == ProductFactors::BF16 || factors == ProductFactors::F16;
  ProductTemplate result{{"tensor_parts.cuh", "tensor_tile.cuh", "product_tensor.cuh"},
                         std::string("#define CELLC_PRODUCTS_") + name + " 1\n"};
  constexpr int kTerms = 32, kWideTile = 128;
  result.row_bytes = 4 * (kTerms + (pairs_terms ? 8 : 4));
  result.blocks = factors == ProductFactors::Tf32x3 ? 1 : 2;
  result.wide_matrix_bytes = kWideTile * kTerms * (pairs_terms ? 2 : factors == ProductFactors::Tf32x3 ? 8 : 4);
  result.wide_least_products = std::int64_t{1} << (factors == ProductFactors::Tf32x3 ? 31 : 32);
  // 65536 rows by 256 by 256, H100: bf16 0.083 ms by mma.sync, 0.092 by wgmma; 3xTF32 0.213 and 0.157.
  result.wide_least_depth = factors == ProductFactors::Tf32x3 ? 128 : 512;
  result.wide_stage_bytes = kWideTile * result.row_bytes + result.wide_matrix_bytes;
  if (storage == Dtype::F16 || storage == Dtype::BF16) {
    constexpr int kSideBytes = kWideTile * 64 * 2;
    const int parts = factors == ProductFactors::Tf32x3 ? 3 : factors == ProductFactors::Tf32 ? 2 : 1;
    result.stored_slot_bytes = 2 * kSideBytes;
    result.stored_matrix_bytes = parts * kSideBytes + 16;  // and a word, by sixteens
    result.stored_blocks = parts == 1 ? 2 : 1;
  }
  return result;
}

std::string stored_operands(bool others) {
  return std::string("#define CELLC_STORED_OPERANDS ") + (others ? "1\n" : "2\n");
}

std::string storage_macro(Dtype storage) {
  const char* name = storage == Dtype::F64    ? "F64"
                     : storage == Dtype::F16  ? "F16"
                     : storage == Dtype::BF16 ? "BF16"
                                              : "F32";
  return std::string("#define CELLC_STORAGE_") + name + " 1\n";
}

}  // namespace cellc
