#include "runtime/cuda/build/kernel_templates.h"

#include <stdexcept>

#include "kernels-templates/abi/wide_products.h"

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
  constexpr int kTerms = 32, kWideTile = CELLC_WIDE_TILE, kRingSide = kWideTile * (128 + 16);
  result.row_bytes = 4 * (kTerms + (pairs_terms ? 8 : 4));
  result.blocks = factors == ProductFactors::Tf32x3 ? 1 : 2;
  // Where sums leave the tensor cores after each slot, a tile has half as many columns.
  result.wide_columns = kWideTile * (factors == ProductFactors::Tf32x3 ? 1 : 2);
  result.wide_matrix_bytes = kWideTile * kTerms * (pairs_terms ? 2 : factors == ProductFactors::Tf32x3 ? 8 : 4);
  result.wide_slot_bytes = kRingSide + result.wide_columns / kWideTile * result.wide_matrix_bytes;
  if (storage == Dtype::F16 || storage == Dtype::BF16) {
    const int parts = factors == ProductFactors::Tf32x3 ? 3 : factors == ProductFactors::Tf32 ? 2 : 1;
    const int matrix_bytes = parts * kWideTile * 64 * 2;
    result.stored_columns = kWideTile * (parts == 1 ? 2 : 1);
    result.stored_slot_bytes = kRingSide + result.stored_columns / kWideTile * matrix_bytes;
    result.stored_matrix_bytes = matrix_bytes + 16;  // and a word, by sixteens
  }
  return result;
}

std::vector<const char*> wide_product_parts() { return {"wgmma.cuh", "product_ring.cuh"}; }

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
