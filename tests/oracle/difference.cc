#include "tests/oracle/difference.h"

#include <cmath>

namespace cellc::oracle {
namespace {

using States = std::map<std::string, std::vector<double>>;

// How far the stencil reaches, and so how far away a kink must lie.
constexpr double kReach = 1e-3;

/// Second differences of a smooth function at reach r, r/2 and r/4 are as 16 : 4 : 1 up to the
/// fourth order. At a kink or a jump inside the reach they cannot all be.
bool smooth(double centre, double plus, double minus, double plus2, double minus2, double plus4, double minus4) {
  const double s = plus - 2 * centre + minus, s2 = plus2 - 2 * centre + minus2, s4 = plus4 - 2 * centre + minus4;
  const double tolerance = 2e-9 * (1 + std::fabs(centre));
  return std::fabs(s - 4 * s2) <= tolerance && std::fabs(s - 16 * s4) <= tolerance;
}

}  // namespace

std::optional<DifferenceJacobian> difference_jacobian(const Cell& cell, const Data& point,
                                                      const std::map<std::string, int>& depths) {
  Data data = point;
  data.steps = 1;
  for (const Declaration& d : cell.tree().declarations)
    if (d.kind == SymbolKind::State) data.starts[d.name] = initial_value(cell, data, d.name);
  const States centre = step(cell, data);
  DifferenceJacobian result;
  for (const Declaration& d : cell.tree().declarations) {
    if (d.kind != SymbolKind::State) continue;
    const auto depth = depths.find(d.name);
    const std::int64_t n = cell.count(d, data);
    for (int lag = 0; lag <= (depth == depths.end() ? 0 : depth->second); ++lag) {
      for (const auto& [row, value] : centre) {
        Difference& block = result[{row, {d.name, lag}}];
        block.rows = static_cast<std::int64_t>(value.size());
        block.columns = n;
        block.values.resize(value.size() * n);
      }
      for (std::int64_t j = 0; j < n; ++j) {
        double& entry = lag == 0 ? data.starts.at(d.name).at(j) : data.histories.at(d.name).at((lag - 1) * n + j);
        const double at = entry;
        auto moved = [&](double by) {
          entry = at + by;
          States s = step(cell, data);
          entry = at;
          return s;
        };
        const States plus = moved(kReach), minus = moved(-kReach), plus2 = moved(kReach / 2),
                     minus2 = moved(-kReach / 2), plus4 = moved(kReach / 4), minus4 = moved(-kReach / 4);
        for (const auto& [row, value] : centre) {
          Difference& block = result.at({row, {d.name, lag}});
          for (std::size_t i = 0; i < value.size(); ++i) {
            const double p = plus.at(row)[i], m = minus.at(row)[i], p2 = plus2.at(row)[i], m2 = minus2.at(row)[i];
            if (!std::isfinite(p) || !std::isfinite(m) || !std::isfinite(value[i])) return std::nullopt;
            if (!smooth(value[i], p, m, p2, m2, plus4.at(row)[i], minus4.at(row)[i])) return std::nullopt;
            // Central differences at two reaches, extrapolated: an error of fourth order.
            const double wide = (p - m) / (2 * kReach), narrow = (p2 - m2) / kReach;
            block.values[i * n + j] = (4 * narrow - wide) / 3;
          }
        }
      }
    }
  }
  return result;
}

}  // namespace cellc::oracle
