#pragma once
// The elementwise functions of the language in f64, by libm, written out from docs/language.md.
#include <optional>
#include <string>
#include <vector>

namespace cellc::oracle {

using Elementwise = double (*)(const std::vector<double>&);

/// The elementwise function `f` of `arity` operands; nullptr where the language has none. To be looked up once for many
/// values. Operator signs are functions too: "+", "<", …; "neg" is the unary minus.
Elementwise find_elementwise(const std::string& f, std::size_t arity);

/// f(args), or nullopt where the language has no elementwise function of that name and arity.
std::optional<double> apply(const std::string& f, const std::vector<double>& args);

/// As "max" and "min": a NaN goes through.
double maximum(double a, double b);
double minimum(double a, double b);

}  // namespace cellc::oracle
