#include "cli/names.h"

#include <fmt/format.h>

#include <charconv>

#include "runtime/build/compile_orc.h"
#include "runtime/data/bind.h"

namespace cellc {

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16})
    if (name == to_string(dtype)) return dtype;
  throw UsageError(fmt::format("--dtype {}: expected f32, f64, bf16 or f16", name));
}

void check_processor(const std::string& name) {
  if (!is_processor(name))
    throw UsageError(
        fmt::format("--cpu {}: LLVM knows no processor of that name; expected native, or one such as x86-64-v3", name));
}

std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size())
    throw UsageError(fmt::format("{} {}: expected NAME=VALUE", option, text));
  return {text.substr(0, sign), text.substr(sign + 1)};
}

std::map<std::string, std::int64_t> dims_named(const std::vector<std::string>& texts) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& text : texts) {
    const auto [name, number] = split_assignment("--dim", text);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size() || value < 1)
      throw UsageError(fmt::format("--dim {}: expected a length of at least 1", text));
    if (!dims.emplace(name, value).second) throw UsageError(fmt::format("--dim {} is given twice", name));
  }
  return dims;
}

}  // namespace cellc
