#pragma once
// Words of the command line that stand for values.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/array.h"

namespace cellc {

/// "f32", "f64", "f16" or "bf16"; throws UsageError.
Dtype dtype_named(const std::string& name);

/// Throws UsageError where --cpu names no processor.
void check_processor(const std::string& name);

/// "h=file" -> {"h", "file"}; throws UsageError, which names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text);

/// "d=64" for every axis that is named; throws UsageError.
std::map<std::string, std::int64_t> dims_named(const std::vector<std::string>& texts);

}  // namespace cellc
