#include "runtime/cuda/kernel_templates.h"

#include <stdexcept>
#include <string>

namespace cellc {

std::string_view kernel_template(std::string_view name) {
  for (const KernelTemplate& one : kernel_templates()) {
    if (one.name == name) return one.text;
  }
  throw std::logic_error("there is no kernel template " + std::string(name));
}

}  // namespace cellc
