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
  if (factors == ProductFactors::Real || storage == Dtype::F64) return {{"product.cuh"}, ""};
  const char* name = factors == ProductFactors::Tf32x3 ? "3XTF32"
                     : factors == ProductFactors::Tf32 ? "TF32"
                     : factors == ProductFactors::BF16 ? "BF16"
                                                       : "F16";
  return {{"tensor_parts.cuh", "product_tensor.cuh"}, std::string("#define CELLC_PRODUCTS_") + name + " 1\n"};
}

std::string storage_macro(Dtype storage) {
  const char* name = storage == Dtype::F64    ? "F64"
                     : storage == Dtype::F16  ? "F16"
                     : storage == Dtype::BF16 ? "BF16"
                                              : "F32";
  return std::string("#define CELLC_STORAGE_") + name + " 1\n";
}

}  // namespace cellc
