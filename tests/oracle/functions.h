#pragma once
// The elementwise functions of the language in f64, by libm, written out from docs/language.md.
#include <optional>
#include <string>
#include <vector>

namespace cellc::oracle {

/// f(args), or nullopt where the language has no elementwise function of that name and arity.
/// Operator signs are functions too: "+", "<", …; "neg" is the unary minus.
std::optional<double> apply(const std::string& f, const std::vector<double>& args);

/// Whether there is an elementwise function `f` of `arity` operands.
bool is_function(const std::string& f, std::size_t arity);

}  // namespace cellc::oracle
