#include "tests/generate/semiring_cell.h"

#include <fmt/format.h>

#include <array>

#include "tests/oracle/random.h"

namespace cellc::generate {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed), kind_(random_.below(4)) {}

  std::string cell() {
    const std::string h = sum(3, false), g = sum(3, false), row = inside(), rest = sum(1, true);
    // An entry of it along j, whatever else.
    const std::string v = kind_ == 0   ? fmt::format("max({}, {})", row, rest)
                          : kind_ == 1 ? fmt::format("min({}, {})", row, rest)
                                       : fmt::format("log(exp({}) + exp({}))", row, rest);
    return fmt::format(
        "cell semiring[s] {{\n  state h, g, v[s]\n  input x, y, r\n  param A[s,s], w in (0.1, 2)\n  h' = {}\n  g' = "
        "{}\n"
        "  v'[j] = {}\n}}\n",
        h, g, v);
  }

 private:
  bool chance(double p) { return random_.chance(p); }

  /// Of a state with something added, or of inputs alone.
  std::string leaf(bool along) {
    static constexpr std::array of_states = {"h", "g", "h + x", "y + g", "h - 0.5", "g - x*y"};
    static constexpr std::array free = {"x", "y - 1", "0.3", "x*y"};
    if (along && chance(0.6)) return inside();
    return chance(0.7) ? of_states[static_cast<std::size_t>(random_.below(of_states.size()))]
                       : free[static_cast<std::size_t>(random_.below(free.size()))];
  }

  /// A sum along the axis, for `j`.
  std::string inside() {
    const char* const term = chance(0.7) ? "v[i] + A[i,j]" : "A[i,j] + v[i] - x";
    if (kind_ == 0) return fmt::format("max[i]({})", term);
    if (kind_ == 1) return fmt::format("(-max[i](-({})))", term);
    if (chance(0.5)) return fmt::format("logsumexp[i]({})", term);
    return fmt::format("log(sum[i](w*exp({})))", term);
  }

  std::string sum(int depth, bool along) {
    if (depth == 0 || chance(0.15)) return leaf(along);
    const std::string p = sum(depth - 1, along), q = sum(depth - 1, along);
    if (chance(0.1)) return fmt::format("({} + {})", p, chance(0.8) ? "y" : "h");
    if (chance(0.1)) return fmt::format("where(r > 0, {}, {})", p, q);
    // A few of another kind, which are none of this one.
    const int kind = chance(0.05) ? random_.below(4) : kind_;
    if (kind == 0) return fmt::format("max({}, {})", p, q);
    if (kind == 1) return fmt::format("min({}, {})", p, q);
    switch (random_.below(7)) {
      case 0:
        return fmt::format("log(exp({}) + exp({}))", p, q);
      case 1:
        return fmt::format("log(w*exp({}) + 2*exp({}) + 0.5)", p, q);
      case 2:
        return fmt::format("softplus({})", p);
      case 3:
        return fmt::format("({0} + softplus({1} - ({0})))", p, q);
      case 4:
        return fmt::format("(max({0}, {1}) + log(1 + exp(-abs({1} - ({0})))))", p, q);
      case 5:
        return fmt::format("(max({0}, {1}) + softplus(min({0}, {1}) - max({0}, {1})))", p, q);
      default:
        return fmt::format("where({0} > {1}, {0} + log(1 + exp({1} - ({0}))), {1} + softplus({0} - ({1})))", p, q);
    }
  }

  oracle::Random random_;
  const int kind_;  ///< the maximum, the minimum, or twice as often the log
};

}  // namespace

std::string semiring_cell(std::uint64_t seed) { return Generator(seed ^ 0x5e41).cell(); }

}  // namespace cellc::generate
