#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "compiler/analysis/semiring.h"
#include "compiler/graph/axes.h"
#include "runtime/check/check_claims.h"
#include "runtime/check/sampled_step.h"

namespace cellc {
namespace {

class FormChecker {
 public:
  FormChecker(SampledStep& of, int stage, std::vector<CheckItem>& items) : of_(of), stage_(stage), items_(items) {}

  void run() {
    const Stage& stage = of_.structure.stages[stage_];
    if (stage.linear) check_linear(stage);
    if (stage.time_invariant) check_time_invariant(stage);
    if (!stage.linear && stage.scannable == Scannable::Clip) check_scannable(stage, true);
    if (!stage.linear && stage.scannable == Scannable::Moebius) check_scannable(stage, false);
    if (!stage.linear && is_semiring(stage.scannable)) check_semiring(stage);
    if (stage.rank) check_low_rank(stage);
  }

 private:
  /// f(a + b - c) = f(a) + f(b) - f(c) where only the stage's own states move.
  void check_linear(const Stage& stage) {
    ClaimTally tally(of_.stage_text(stage_) + " is linear");
    for (const Point& point : of_.points) {
      of_.step.at(point.row);
      const States a = mix(point.states, of_.random_states(), stage), b = mix(point.states, of_.random_states(), stage);
      States sum = point.states;
      for (const int u : stage.states)
        for (std::size_t i = 0; i < sum[u].size(); ++i) sum[u][i] = a[u][i] + b[u][i] - point.states[u][i];
      const States fa = of_.step(a), fb = of_.step(b), fc = of_.step(point.states), fs = of_.step(sum);
      const States na = of_.step.noise(a), nb = of_.step.noise(b), nc = of_.step.noise(point.states),
                   ns = of_.step.noise(sum);
      for (const int u : stage.states)
        for (std::size_t i = 0; i < sum[u].size(); ++i) {
          const double scale = 1 + std::abs(fa[u][i]) + std::abs(fb[u][i]) + std::abs(fc[u][i]);
          const double error = std::abs(fs[u][i] - (fa[u][i] + fb[u][i] - fc[u][i]));
          const double rounding = 4 * (na[u][i] + nb[u][i] + nc[u][i] + ns[u][i]);
          if (!std::isfinite(scale) || !std::isfinite(rounding))
            tally.skip();
          else
            tally.compare(error, 1e-10 * scale + rounding, [&] {
              return fmt::format("{} is off a linear map by {:.3g}",
                                 of_.step.entry_text(u, static_cast<std::int64_t>(i), true), error);
            });
        }
    }
    items_.push_back(tally.finish());
  }

  static States mix(const States& base, const States& other, const Stage& stage) {
    States mixed = base;
    for (const int u : stage.states) mixed[u] = other[u];
    return mixed;
  }

  /// The stage's own block is the same at every point: only params are in it.
  void check_time_invariant(const Stage& stage) {
    ClaimTally tally(of_.stage_text(stage_) + " is time-invariant");
    for (const int r : stage.states)
      for (const int c : stage.states)
        for (const Point& point : of_.points) {
          const Values& first = of_.points[0].slopes[r][c];
          const Values& here = point.slopes[r][c];
          const Values &first_rounding = of_.points[0].rounding[r][c], &rounding = point.rounding[r][c];
          for (std::size_t i = 0; i < here.size(); ++i) {
            if (std::isnan(here[i]) || std::isnan(first[i]))
              tally.skip();
            else
              tally.compare(std::abs(here[i] - first[i]),
                            1e-6 * (1 + std::abs(first[i])) + first_rounding[i] + rounding[i], [&] {
                              return fmt::format("d {}'/d {} changes from {:.9g} to {:.9g}", of_.name(r), of_.name(c),
                                                 first[i], here[i]);
                            });
          }
        }
    items_.push_back(tally.finish());
  }

  /// The step is the map that the stage was recognised to be: a scan composes that, and not the step. What it gets
  /// wrong repair would make right again, so that results tell nothing of it.
  void check_map(ClaimTally& tally, const Stage& stage, const States& states) {
    const States made = of_.step(states), noise = of_.step.noise(states);
    for (const int u : stage.states) {
      const auto map = of_.maps.find(u);
      if (map == of_.maps.end()) continue;
      const Tensor claimed = of_.step.value(map->second, of_.cell.symbol_of(of_.cell.updates[u]).index, states);
      for (std::size_t i = 0; i < made[u].size(); ++i) {
        if (!std::isfinite(made[u][i]) || !std::isfinite(noise[u][i])) {
          tally.skip();
          continue;
        }
        const double rounding = 1e-9 * (1 + std::abs(made[u][i])) + 8 * noise[u][i];
        tally.compare(std::abs(claimed.data[i] - made[u][i]), rounding, [&] {
          return fmt::format("{} is {:.9g} by the map that scans compose, {:.9g} by the step",
                             of_.step.entry_text(u, static_cast<std::int64_t>(i), true), claimed.data[i], made[u][i]);
        });
      }
    }
  }

  /// Where all states of the stage are larger by one number, and everything else was out of reach, so is the step; a
  /// sum of a semiring is never below (of the minimum never above) what it was of smaller states, nor further from it.
  void check_semiring(const Stage& stage) {
    ClaimTally tally(fmt::format("{} is linear over {}", of_.stage_text(stage_), semiring_text(stage.scannable)));
    const bool has_offset = !stage.semiring || !stage.semiring->offsets.empty();
    for (const Point& point : of_.points) {
      of_.step.at(point.row);
      check_map(tally, stage, point.states);
      for (const double by : {0.37, 1.25}) {
        States moved = point.states;
        for (const int u : stage.states)
          for (double& value : moved[u]) value += by;
        const States before = of_.step(point.states), after = of_.step(moved), noise = of_.step.noise(moved);
        for (const int u : stage.states)
          for (std::size_t i = 0; i < after[u].size(); ++i) {
            const double rise = after[u][i] - before[u][i];
            if (!std::isfinite(rise) || !std::isfinite(noise[u][i])) {
              tally.skip();
              continue;
            }
            const double rounding = 1e-10 * (1 + std::abs(after[u][i])) + 8 * noise[u][i];
            const double off = has_offset ? std::max({0.0, rise - by, -rise}) : std::abs(rise - by);
            tally.compare(off, rounding, [&] {
              return fmt::format("{} rises by {:.6g} where all states rise by {:.6g}",
                                 of_.step.entry_text(u, static_cast<std::int64_t>(i), true), rise, by);
            });
          }
      }
    }
    items_.push_back(tally.finish());
  }

  /// Along one entry of the state: clip(a*s + b, lo, hi) has one slope beside zero, and the
  /// cross-ratio of four points is what a Möbius map keeps.
  void check_scannable(const Stage& stage, bool clip) {
    if (stage.states.size() != 1) return;
    ClaimTally tally(fmt::format("{} is {}", of_.stage_text(stage_), clip ? "a clipped affine map" : "a Möbius map"));
    const int u = stage.states[0];
    for (const Point& point : of_.points) {
      of_.step.at(point.row);
      check_map(tally, stage, point.states);
      for (std::size_t i = 0; i < std::min<std::size_t>(point.states[u].size(), 8); ++i) {
        const auto where = [&](const char* what) {
          return [this, u, i, what] {
            return fmt::format("{} {}", of_.step.entry_text(u, static_cast<std::int64_t>(i), true), what);
          };
        };
        States moved = point.states;
        const auto f = [&](double x) {
          moved[u][i] = x;
          return of_.step(moved)[u][i];
        };
        if (clip) {
          constexpr int kSamples = 61;
          Values slopes;
          double steepest = 0;
          for (int k = 0; k < kSamples; ++k) {
            const double x = -6 + 0.2 * k;
            slopes.push_back((f(x + 0.2) - f(x)) / 0.2);
            if (std::abs(slopes.back()) > std::abs(steepest)) steepest = slopes.back();
          }
          // An interval with a corner inside has a slope in between: at most two of them.
          const auto odd = std::count_if(slopes.begin(), slopes.end(), [&](double v) {
            return !(std::abs(v) < 1e-9 || std::abs(v - steepest) < 1e-9 * (1 + std::abs(steepest)));
          });
          tally.compare(static_cast<double>(odd), 2, where("bends more than a clipped line"));
        } else {
          const double x0 = point.states[u][i];
          const double x[4] = {x0, x0 + 0.37, x0 + 0.81, x0 + 1.3};
          double y[4];
          for (int k = 0; k < 4; ++k) y[k] = f(x[k]);
          const double before = (x[0] - x[2]) * (x[1] - x[3]) / ((x[1] - x[2]) * (x[0] - x[3]));
          const double after = (y[0] - y[2]) * (y[1] - y[3]) / ((y[1] - y[2]) * (y[0] - y[3]));
          if (!std::isfinite(after))
            tally.skip();  // constant along this entry, or at a pole
          else
            tally.compare(std::abs(after - before), 1e-6 * (1 + std::abs(before)), where("does not keep cross-ratios"));
        }
      }
    }
    items_.push_back(tally.finish());
  }

  /// Positions of the stage's one state, by lane: entries that differ only along mixed axes.
  std::vector<std::vector<std::int64_t>> lanes(int u, const Stage& stage) const {
    std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> groups;
    const auto& index = of_.cell.symbol_of(of_.cell.updates[u]).index;
    for (std::int64_t i = 0; i < of_.step.entries(u); ++i) {
      const auto at = of_.step.position(u, i);
      std::vector<std::int64_t> key;
      for (std::size_t p = 0; p < index.size(); ++p)
        if (std::find(stage.channel_axes.begin(), stage.channel_axes.end(), index[p]) != stage.channel_axes.end())
          key.push_back(at[p]);
      groups[key].push_back(i);
    }
    std::vector<std::vector<std::int64_t>> result;
    for (auto& [key, members] : groups) result.push_back(std::move(members));
    return result;
  }

  /// J = D + U V with r columns in U. Rows R and columns C, r of each and disjoint, miss the
  /// diagonal; where J[R,C] is regular, J[i,j] - J[i,C] J[R,C]^-1 J[R,j] is D[i] on the diagonal
  /// and zero off it.
  void check_low_rank(const Stage& stage) {
    if (stage.states.size() != 1 || !stage.rank) return;
    const std::int64_t rank = stage.rank->value(of_.run.sizes);
    if (rank > kMostRank) return;
    const bool none = stage.kind == StructureClass::LowRank,
               uniform = stage.kind == StructureClass::IdentityPlusLowRank;
    ClaimTally tally(fmt::format("{} is {} plus rank {}", of_.stage_text(stage_),
                                 none      ? "zero"
                                 : uniform ? "identity"
                                           : "diagonal",
                                 stage.rank->text));
    const int u = stage.states[0];
    const std::int64_t columns = of_.step.entries(u);
    const auto r = static_cast<std::size_t>(rank);
    for (const Point& point : of_.points)
      for (const auto& lane : lanes(u, stage)) {
        if (lane.size() < 2 * r + 2) continue;
        const auto entry = [&](std::size_t i, std::size_t j) {
          return point.slopes[u][u][static_cast<std::size_t>(lane[i] * columns + lane[j])];
        };
        // R = the last r places, C = the r before them.
        const std::size_t n = lane.size(), first_row = n - r, first_column = n - 2 * r;
        std::vector<double> factors;  // per remaining column j: J[R,C]^-1 J[R,j]
        double diagonal = NAN;
        for (std::size_t j = 0; j < first_column; ++j) {
          const auto solution = solve(
              r, [&](std::size_t a, std::size_t b) { return entry(first_row + a, first_column + b); },
              [&](std::size_t a) { return entry(first_row + a, j); });
          if (!solution) {
            tally.skip();
            continue;
          }
          for (std::size_t i = 0; i < first_column; ++i) {
            double rest = entry(i, j), scale = 1 + std::abs(rest);
            for (std::size_t a = 0; a < r; ++a) {
              const double product = entry(i, first_column + a) * (*solution)[a];
              rest -= product;
              scale += std::abs(product);
            }
            if (!std::isfinite(rest)) {
              tally.skip();
              continue;
            }
            if (i != j || none) {
              tally.compare(std::abs(rest), 1e-5 * scale,
                            [&] { return fmt::format("entry [{},{}] of a lane is off by {:.3g}", i, j, rest); });
            } else if (uniform) {
              if (std::isnan(diagonal)) diagonal = rest;
              tally.compare(std::abs(rest - diagonal), 1e-5 * scale,
                            [&] { return fmt::format("the diagonal has {:.9g} and {:.9g}", diagonal, rest); });
            }
          }
        }
      }
    items_.push_back(tally.finish());
  }

  /// Gaussian elimination with row pivots; nullopt for a matrix that is near to singular (then the
  /// rank is lower still, and nothing can be concluded this way).
  template <class Matrix, class Right>
  static std::optional<Values> solve(std::size_t n, Matrix matrix, Right right) {
    std::vector<Values> m(n, Values(n + 1));
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(m[i][j] = matrix(i, j)));
      m[i][n] = right(i);
    }
    for (std::size_t k = 0; k < n; ++k) {
      std::size_t pivot = k;
      for (std::size_t i = k; i < n; ++i)
        if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
      if (!(std::abs(m[pivot][k]) > 1e-3 * largest) || largest < 1e-4) return std::nullopt;
      std::swap(m[k], m[pivot]);
      for (std::size_t i = 0; i < n; ++i) {
        if (i == k) continue;
        const double factor = m[i][k] / m[k][k];
        for (std::size_t j = k; j <= n; ++j) m[i][j] -= factor * m[k][j];
      }
    }
    Values x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = m[i][n] / m[i][i];
    return x;
  }

  SampledStep& of_;
  const int stage_;
  std::vector<CheckItem>& items_;
};

}  // namespace

std::map<int, NodeId> values_of_maps(CellGraph& cell, const Structure& structure) {
  Graph& g = cell.graph;
  std::map<int, NodeId> values;
  for (const Stage& stage : structure.stages) {
    const auto affine = [&](NodeId a, NodeId b) {
      const Symbol& state = cell.symbol_of(cell.updates[static_cast<std::size_t>(stage.states[0])]);
      const NodeId read =
          g.read(cell.updates[static_cast<std::size_t>(stage.states[0])].symbol, plain_index(state.index));
      return g.op(Op::Add, {g.op(Op::Mul, {a, read}), b});
    };
    if (const auto& m = stage.clip) values[stage.states[0]] = g.op(Op::Clip, {affine(m->a, m->b), m->low, m->high});
    if (const auto& m = stage.moebius)
      values[stage.states[0]] = g.op(Op::Div, {affine(m->a, m->b), affine(m->c, m->d)});
    if (!stage.semiring) continue;
    for (const int u : stage.states) {
      NodeId total = kNoNode;
      const auto add = [&](NodeId term) {
        total = total == kNoNode ? term : semiring_sum(g, stage.scannable, total, term);
      };
      for (const SemiringMap::Term& t : stage.semiring->terms)
        if (t.row == u)
          add(semiring_sum_over(
              g, stage.scannable, t.bound,
              g.op(Op::Add, {t.coefficient, g.read(cell.updates[static_cast<std::size_t>(t.column)].symbol, t.at)})));
      for (const SemiringMap::Offset& o : stage.semiring->offsets)
        if (o.row == u) add(o.value);
      values[u] = total == kNoNode ? g.constant(semiring_zero(stage.scannable)) : total;
    }
  }
  return values;
}

void check_forms(SampledStep& sampled, int stage, std::vector<CheckItem>& items) {
  FormChecker(sampled, stage, items).run();
}

}  // namespace cellc
