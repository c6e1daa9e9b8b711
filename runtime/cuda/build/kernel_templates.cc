#include "runtime/cuda/build/kernel_templates.h"

#include <stdexcept>

namespace cellc {

std::string_view kernel_template(std::string_view name) {
  for (const KernelTemplate& one : kernel_templates()) {
    if (one.name == name) return one.text;
  }
  throw std::logic_error("there is no kernel template " + std::string(name));
}

std::string storage_macro(Dtype storage) {
  const char* name = storage == Dtype::F64    ? "F64"
                     : storage == Dtype::F16  ? "F16"
                     : storage == Dtype::BF16 ? "BF16"
                                              : "F32";
  return std::string("#define CELLC_STORAGE_") + name + " 1\n";
}

}  // namespace cellc
