#pragma once
// An equation that stays on the page: LaTeX breaks no displayed line by itself.
#include <string>

namespace cellc {

/// A display of `left = right`, on as many lines as it needs. `right` is as ExpressionPrinter writes LaTeX; what cannot
/// be broken, as fractions and roots, is written another way where it is too wide for a line.
std::string latex_equation(const std::string& left, const std::string& right);

/// The width of a formula in letters, roughly: what latex_equation goes by.
double latex_width(const std::string& formula);

}  // namespace cellc
