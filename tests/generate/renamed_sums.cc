#include "tests/generate/renamed_sums.h"

#include <algorithm>
#include <vector>

#include "tests/oracle/random.h"

namespace cellc::generate {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::string cell() {
    const bool square = random_.chance(0.6);  // a state with two axes, else with one
    std::string text = "cell renamed[n] {\n  param F[n,n], G[n,n], H[n], a[n]\n";
    text += square ? "  state P[n,n]\n  input u[n,n]\n" : "  state p[n]\n  input u[n]\n";
    matrices_ = {"F", "G"};
    vectors_ = {"H", "a"};
    (square ? matrices_ : vectors_).push_back(square ? "P" : "p");
    for (int i = 2 + random_.below(4); i > 0; --i) text += random_.chance(0.5) ? matrix_line() : vector_line();
    names_ = names();
    const std::string i = names_[0], j = names_[1];
    // What was made last is read in any case.
    const std::string state = square ? "P[" + i + "," + j + "]" : "p[" + i + "]";
    const std::string last = matrix_last_ ? entry(matrices_.back(), i, square ? j : i)
                                          : vectors_.back() + "[" + (random_.chance(0.5) && square ? j : i) + "]";
    std::string update = "0.3*" + state + " + 0.2*tanh(" + last + ")*" + factor(i, square ? j : i) + " + 0.1*u[" + i +
                         (square ? "," + j : "") + "]";
    if (random_.chance(0.5)) update += " + 0.1*" + factor(i, square ? j : i) + "*" + state;
    text += "  " + std::string(square ? "P'[" + i + "," + j + "]" : "p'[" + i + "]") + " = " + update + "\n}\n";
    return text;
  }

 private:
  /// The names of a statement, in an order of its own; n is the axis itself.
  std::vector<std::string> names() {
    std::vector<std::string> all = {"n", "i", "j", "k", "l", "m"};
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_.below(static_cast<int>(i))]);
    return all;
  }
  const std::string& matrix() { return matrices_[random_.below(static_cast<int>(matrices_.size()))]; }
  const std::string& vector() { return vectors_[random_.below(static_cast<int>(vectors_.size()))]; }

  /// A matrix at two indices, or transposed.
  std::string entry(const std::string& m, const std::string& row, const std::string& column) {
    return random_.chance(0.5) ? m + "[" + row + "," + column + "]" : m + "[" + column + "," + row + "]";
  }

  /// The left operand of a product contracts its last axis.
  std::string ending_in(const std::string& last, const std::string& first) {
    return matrix() + "[" + first + "," + last + "]";
  }

  std::string factor(const std::string& row, const std::string& column) {
    switch (random_.below(4)) {
      case 0:
        return vector() + "[" + row + "]";
      case 1:
        return vector() + "[" + column + "]";
      case 2:
        return entry(matrix(), row, row);  // a diagonal
      default:
        return entry(matrix(), row, column);
    }
  }

  /// Whether an index is read. Summed over it may be, too: inside, it is another.
  static bool reads(const std::string& value, const std::string& index) {
    for (std::size_t at = 1; at + 1 < value.size(); ++at)
      if (value[at] == index[0] && (value[at - 1] == '[' || value[at - 1] == ',') &&
          (value[at + 1] == ']' || value[at + 1] == ','))
        return true;
    return false;
  }

  std::string matrix_line() {
    names_ = names();
    const std::string i = names_[0], j = names_[1], k = names_[2], l = names_[3];
    std::string value;
    switch (random_.below(5)) {
      case 0:
        value = ending_in(k, i) + "@" + entry(matrix(), j, k);
        break;
      case 1:
        value = ending_in(k, i) + "@" + ending_in(l, k) + "@" + entry(matrix(), j, l);
        break;
      case 2:
        value = "sum[" + k + "](" + entry(matrix(), i, k) + "*" + factor(k, j) + "*" + vector() + "[" + k + "])";
        break;
      case 3:
        value = entry(matrix(), i, j) + "*" + factor(j, i);
        break;
      default:
        value = vector() + "[" + i + "]*" + vector() + "[" + j + "]";
        break;
    }
    if (!reads(value, i) || !reads(value, j)) return matrix_line();
    return define("M", true, "[" + i + "," + j + "]", value);
  }

  std::string vector_line() {
    names_ = names();
    const std::string i = names_[0], j = names_[1], k = names_[2];
    std::string value;
    switch (random_.below(5)) {
      case 0:
        value = ending_in(j, i) + "@" + vector() + "[" + j + "]";
        break;
      case 1:
        value = "sum[" + j + "](" + entry(matrix(), i, j) + "*" + vector() + "[" + j + "]*" + factor(j, i) + ")";
        break;
      case 2:
        value = "sum[" + j + "](" + vector() + "[" + j + "]*sum[" + k + "](" + entry(matrix(), j, k) + "*" +
                factor(k, i) + "))";
        break;
      case 3:
        value = entry(matrix(), i, i) + "*" + vector() + "[" + i + "]";
        break;
      default:
        value = "max[" + j + "](" + entry(matrix(), i, j) + "*" + vector() + "[" + j + "])";
        break;
    }
    if (!reads(value, i)) return vector_line();
    return define("v", false, "[" + i + "]", value);
  }

  std::string define(const char* stem, bool is_matrix, const std::string& index, const std::string& value) {
    std::vector<std::string>& all = is_matrix ? matrices_ : vectors_;
    const std::string name = stem + std::to_string(all.size());
    // Small, so that products of products stay so.
    const std::string line = "  " + name + index + " = 0.5*(" + value + ")\n";
    all.push_back(name);
    matrix_last_ = is_matrix;
    return line;
  }

  oracle::Random random_;
  std::vector<std::string> matrices_, vectors_, names_;
  bool matrix_last_ = false;
};

}  // namespace

std::string renamed_sums_cell(std::uint64_t seed) { return Generator(seed).cell(); }

}  // namespace cellc::generate
