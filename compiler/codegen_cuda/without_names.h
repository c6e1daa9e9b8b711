#pragma once
// Emitted text as it is compared.
#include <string>

namespace cellc {

/// What emit_cuda_lane wrote, without lines and comments of the cell, its values numbered in the order in which they
/// stand there: two texts that are the same now are the same code, under other names.
std::string without_names(const std::string& text);

}  // namespace cellc
