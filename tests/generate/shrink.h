#pragma once
// Makes a failing cell small: lines, declarations and functions are dropped and subexpressions
// replaced by their own parts or by numbers, as long as the cell keeps failing.
#include <functional>
#include <string>

namespace cellc::generate {

/// `fails` says why a text fails, or gives an empty text for one that passes or is no valid file.
/// The smallest text found that fails for the same reason (up to the first ':').
std::string shrink(const std::string& text, const std::function<std::string(const std::string&)>& fails);

}  // namespace cellc::generate
