#include "compiler/analysis/normal_form.h"

namespace cellc {

std::int64_t SizeExpression::value(const std::map<AxisId, std::int64_t>& sizes) const {
  std::int64_t sum = 0;
  for (const Term& term : terms) {
    std::int64_t product = term.factor;
    for (const AxisId a : term.axes) product *= sizes.at(a);
    sum += product;
  }
  return sum;
}

SizeExpression size_expression(const Graph& graph, const std::map<std::vector<AxisId>, std::int64_t>& terms) {
  SizeExpression size;
  std::int64_t plain = 0;
  for (const auto& [axes, factor] : terms) {
    if (axes.empty()) {
      plain = factor;
      continue;
    }
    size.terms.push_back({factor, axes});
    if (!size.text.empty()) size.text += " + ";
    if (factor != 1) size.text += std::to_string(factor) + "*";
    for (std::size_t i = 0; i < axes.size(); ++i) size.text += (i ? "*" : "") + graph.axis(axes[i]).name;
  }
  if (size.terms.empty()) return size_expression(plain);
  if (plain) {
    size.terms.push_back({plain, {}});
    size.text += " + " + std::to_string(plain);
  }
  return size;
}

SizeExpression size_expression(std::int64_t number) { return {{{number, {}}}, number, std::to_string(number)}; }

std::vector<std::string> mask_text(const Mask& mask) {
  std::vector<std::string> text;
  for (const std::vector<Coupling>& row : mask) {
    text.emplace_back();
    for (const Coupling c : row) text.back() += c == Coupling::None ? '0' : c == Coupling::Diagonal ? 'd' : 'F';
  }
  return text;
}

}  // namespace cellc
