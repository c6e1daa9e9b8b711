#include "cli/names.h"

#include <fmt/format.h>

#include "runtime/bind.h"

namespace cellc {

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16})
    if (name == to_string(dtype)) return dtype;
  throw UsageError(fmt::format("--dtype {}: expected f32, f64, bf16 or f16", name));
}

std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size())
    throw UsageError(fmt::format("{} {}: expected NAME=VALUE", option, text));
  return {text.substr(0, sign), text.substr(sign + 1)};
}

}  // namespace cellc
