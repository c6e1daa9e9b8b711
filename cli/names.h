#pragma once
// Words of the command line that stand for values.
#include <string>
#include <utility>

#include "runtime/array.h"

namespace cellc {

/// "f32", "f64", "f16" or "bf16"; throws UsageError.
Dtype dtype_named(const std::string& name);

/// "h=file" -> {"h", "file"}; throws UsageError, which names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text);

}  // namespace cellc
