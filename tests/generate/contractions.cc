#include "tests/generate/contractions.h"

#include <algorithm>
#include <vector>

#include "tests/oracle/random.h"

namespace cellc::generate {
namespace {

using Names = std::vector<std::string>;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::string cell() {
    std::string declared, lines;
    for (int i = 0, count = 1 + random_.below(3); i < count; ++i) add_sum(std::to_string(i), declared, lines);
    return "cell contraction[a, b, c, e, f] {\n" + declared + lines + "}\n";
  }

 private:
  Names shuffled(Names names) {
    for (std::size_t i = names.size(); i > 1; --i)
      std::swap(names[i - 1], names[static_cast<std::size_t>(random_.below(static_cast<int>(i)))]);
    return names;
  }
  static std::string listed(const Names& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return names.empty() ? "" : "[" + text + "]";
  }
  static Names joined(const std::vector<Names>& parts) {
    Names all;
    for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  void add_sum(const std::string& number, std::string& declared, std::string& lines) {
    Names batch, shared, rows, sums;
    const Names axes = shuffled({"a", "b", "c", "e"});
    sums.push_back(axes[0]);
    rows.push_back(axes[1]);
    for (std::size_t i = 2; i < axes.size(); ++i) {
      Names* const roles[] = {&sums, &sums, &rows, &batch, &shared, nullptr};
      if (Names* const role = roles[random_.below(6)]) role->push_back(axes[i]);
    }
    // The matrix in groups, which are as one axis each, or anyhow.
    const std::vector<Names> orders[] = {
        {batch, rows, sums}, {batch, sums, rows}, {rows, batch, sums}, {sums, batch, rows}};
    const Names of_matrix =
        random_.chance(0.7) ? joined(orders[random_.below(4)]) : shuffled(joined({batch, rows, sums}));
    const Names of_operand =
        random_.chance(0.5) ? joined({batch, shared, sums}) : shuffled(joined({batch, shared, sums}));
    const std::string w = "W" + number, x = "x" + number, h = "h" + number, operand_axes = listed(of_operand);
    declared +=
        "  state " + h + operand_axes + "\n  input " + x + operand_axes + "\n  param " + w + listed(of_matrix) + "\n";
    lines += "  " + h + "' = 0.5*" + h + " + 0.3*tanh(" + x + ")\n";
    std::string operand = x, matrix = w;
    switch (random_.below(5)) {
      case 0:
        operand = h + "'";
        break;
      case 1:
        operand = "v" + number;
        lines += "  " + operand + " = tanh(" + x + ")\n";
        break;
      case 2: {  // what a product leaves, whose axes lie as its own matrix has them
        operand = "v" + number;
        const Names apart = shuffled(of_operand);
        const Names of_first = random_.chance(0.5) ? joined({apart, {"f"}}) : joined({{"f"}, apart});
        declared += "  input g" + number + "[f]\n  param F" + number + listed(of_first) + "\n";
        lines += "  " + operand + operand_axes + " = sum[f](F" + number + "*g" + number + ")\n";
        break;
      }
      default:
        break;
    }
    if (random_.chance(0.3)) {
      matrix = "M" + number;
      lines += "  " + matrix + " = 0.5*" + w + "\n";
    }
    const std::string product = random_.chance(0.5) ? matrix + "*" + operand : operand + "*" + matrix;
    lines += "  out y" + number + listed(shuffled(joined({batch, shared, rows}))) + " = sum" + listed(shuffled(sums)) +
             "(" + product + ")\n";
  }

  oracle::Random random_;
};

}  // namespace

std::string contraction_cell(std::uint64_t seed) { return Generator(seed).cell(); }

}  // namespace cellc::generate
