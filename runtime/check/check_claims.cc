#include "runtime/check/check_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/check_step.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

/// Collects one claim's comparisons.
class Tally {
 public:
  explicit Tally(std::string what) { item_.what = std::move(what); }
  void compare(double error, double allowed, const std::function<std::string()>& where) {
    ++item_.tried;
    const double ratio = std::isfinite(error) ? error / allowed : INFINITY;
    if (ratio > item_.worst) {
      item_.worst = ratio;
      if (ratio > 1) item_.detail = where();
    }
    if (!(ratio <= 1)) item_.passed = false;
  }
  void skip() { ++item_.skipped; }
  CheckItem finish() { return item_; }

 private:
  CheckItem item_;
};

/// A block with all its entries: 0 off an identity also where the slope on it is infinite or no number, as
/// that of sqrt(h) at 0 is, since a product with the identity would be no number there.
NodeId entries_of(CellGraph& cell, const JacobianBlock& block) {
  Graph& g = cell.graph;
  NodeId total = g.constant(0);
  for (const JacobianTerm& term : block.terms) {
    NodeId value = term.coefficient;
    for (const auto& [place, axis] : term.identities)
      value = g.op(Op::Where, {g.eye({axis, 0}, {block.column_axes[place], 0}), value, g.constant(0)});
    total = g.op(Op::Add, {total, value});
  }
  return total;
}

class ClaimChecker {
 public:
  ClaimChecker(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, const BoundRun& run,
               std::uint64_t seed, std::vector<CheckItem>& items)
      : cell_(cell), jacobian_(jacobian), structure_(structure), run_(run), random_(seed, "check"), items_(items) {}

  void run() {
    // Blocks become nodes before the evaluator looks at the graph.
    for (const JacobianBlock& block : jacobian_.blocks) block_nodes_.push_back(entries_of(cell_, block));
    const RunOutput trajectory = reference_run(cell_, run_);
    for (const DelayLine& line : delay_lines(cell_))
      for (std::size_t u = 0; u < cell_.updates.size(); ++u)
        if (cell_.updates[u].symbol == line.state)
          run_.symbols[static_cast<std::size_t>(line.symbol)] = trajectory.states[u];
    step_ = std::make_unique<Step>(cell_, run_);
    make_points(trajectory);
    check_blocks();
    for (std::size_t s = 0; s < structure_.stages.size(); ++s) check_stage(static_cast<int>(s));
  }

 private:
  std::string name(int update) const { return cell_.symbol_of(cell_.updates[update]).name; }

  std::string stage_text(int s) const {
    std::vector<std::string> names;
    for (const int u : structure_.stages[s].states) names.push_back(name(u));
    return fmt::format("stage {{{}}}", fmt::join(names, ", "));
  }

  States random_states() {
    States states;
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const Symbol& symbol = cell_.symbol_of(cell_.updates[u]);
      Values values(static_cast<std::size_t>(step_->entries(static_cast<int>(u))));
      for (double& v : values)
        v = symbol.range ? random_.uniform(symbol.range->low, symbol.range->high) : random_.uniform(-1, 1);
      states.push_back(std::move(values));
    }
    return states;
  }

  /// Points on a trajectory are where the cell lives (a variance there is positive); random ones
  /// are where mistakes show that a trajectory hides (a state that stays 0).
  void make_points(const RunOutput& trajectory) {
    const std::int64_t rows = run_.offsets.back();
    for (const std::int64_t row : {std::int64_t{1}, std::int64_t{4}, rows - 1}) {
      Point point{{}, row};
      for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
        const std::int64_t n = step_->entries(static_cast<int>(u));
        Values values;
        for (std::int64_t i = 0; i < n; ++i) values.push_back(trajectory.states[u].get((row - 1) * n + i));
        point.states.push_back(std::move(values));
      }
      points_.push_back(std::move(point));
    }
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{2}, std::int64_t{7}})
      points_.push_back({random_states(), row});
    for (Point& point : points_) differentiate_at(*step_, point);
  }

  /// Every block against finite differences; a block that was left out is claimed to be zero.
  void check_blocks() {
    Tally zeros("blocks proved zero are zero");
    bool any_zero = false;
    for (int r = 0; r < static_cast<int>(cell_.updates.size()); ++r)
      for (int c = 0; c < static_cast<int>(cell_.updates.size()); ++c) {
        const JacobianBlock* block = jacobian_.find(r, c);
        if (!block) {
          any_zero = true;
          for (const Point& point : points_)
            expect_zero(zeros, point, r, c, [](std::int64_t, std::int64_t) { return true; });
          continue;
        }
        // Companions are copies of what stands before them; one line each would bury the rest.
        Tally tally(fmt::format("d {}'/d {}", name(r), name(c)));
        const NodeId node = block_nodes_[static_cast<std::size_t>(block - jacobian_.blocks.data())];
        std::vector<AxisId> axes = cell_.symbol_of(cell_.updates[r]).index;
        axes.insert(axes.end(), block->column_axes.begin(), block->column_axes.end());
        for (const Point& point : points_) {
          step_->at(point.row);
          const Tensor claimed = step_->value(node, axes, point.states);
          const Values& found = point.slopes[r][c];
          const std::int64_t columns = step_->entries(c);
          for (std::size_t i = 0; i < found.size(); ++i) {
            if (std::isnan(found[i])) {
              tally.skip();
              continue;
            }
            tally.compare(std::abs(claimed.data[i] - found[i]),
                          1e-6 * (1 + std::abs(found[i])) + point.rounding[r][c][i], [&] {
                            const auto flat = static_cast<std::int64_t>(i);
                            return fmt::format("d {}/d {} is {:.9g} by formula, {:.9g} by differences",
                                               step_->entry_text(r, flat / columns, true),
                                               step_->entry_text(c, flat % columns, false), claimed.data[i], found[i]);
                          });
          }
        }
        items_.push_back(tally.finish());
      }
    if (any_zero) items_.push_back(zeros.finish());
  }

  /// The entries of a block that `claimed` selects (by row and column entry) must be zero.
  template <class Claimed>
  void expect_zero(Tally& tally, const Point& point, int r, int c, Claimed claimed) {
    const Values& found = point.slopes[r][c];
    const std::int64_t columns = step_->entries(c);
    for (std::size_t k = 0; k < found.size(); ++k) {
      const std::int64_t i = static_cast<std::int64_t>(k) / columns, j = static_cast<std::int64_t>(k) % columns;
      if (!claimed(i, j)) continue;
      if (std::isnan(found[k])) {
        tally.skip();
        continue;
      }
      tally.compare(std::abs(found[k]), 1e-8, [&] {
        return fmt::format("d {}/d {} is {:.3g}, claimed zero", step_->entry_text(r, i, true),
                           step_->entry_text(c, j, false), found[k]);
      });
    }
  }

  /// Places of two states with one index variable: in P[d,d] the two d are apart, and only one may be a lane.
  std::vector<std::pair<std::size_t, std::size_t>> shared_places(int r, int c, const std::vector<AxisId>* only) const {
    const auto& rows = cell_.symbol_of(cell_.updates[r]).index;
    const auto& columns = cell_.symbol_of(cell_.updates[c]).index;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (only && std::find(only->begin(), only->end(), rows[i]) == only->end()) continue;
      const auto j = std::find(columns.begin(), columns.end(), rows[i]);
      if (j != columns.end()) pairs.emplace_back(i, j - columns.begin());
    }
    return pairs;
  }

  void check_stage(int s) {
    const Stage& stage = structure_.stages[s];
    check_order(s);
    check_mask(s, stage);
    check_lanes(s, stage);
    if (stage.linear) check_linear(s, stage);
    if (stage.time_invariant) check_time_invariant(s, stage);
    if (!stage.linear && stage.scannable == Scannable::Clip) check_scannable(s, stage, true);
    if (!stage.linear && stage.scannable == Scannable::Moebius) check_scannable(s, stage, false);
    if (stage.rank) check_low_rank(s, stage);
  }

  void check_order(int s) {
    if (structure_.stages.size() == 1 || s + 1 == static_cast<int>(structure_.stages.size())) return;
    Tally tally(stage_text(s) + " reads no later stage");
    for (const int r : structure_.stages[s].states)
      for (std::size_t c = 0; c < cell_.updates.size(); ++c)
        if (structure_.stage_of[c] > s)
          for (const Point& point : points_)
            expect_zero(tally, point, r, static_cast<int>(c), [](std::int64_t, std::int64_t) { return true; });
    items_.push_back(tally.finish());
  }

  void check_mask(int s, const Stage& stage) {
    if (stage.mask.size() != stage.states.size()) return;
    Tally tally(fmt::format("{} has the mask [{}]", stage_text(s), fmt::join(mask_text(stage.mask), "; ")));
    bool any = false;
    for (std::size_t a = 0; a < stage.states.size(); ++a)
      for (std::size_t b = 0; b < stage.states.size(); ++b) {
        const Coupling coupling = stage.mask[a][b];
        if (coupling == Coupling::Full) continue;
        const int r = stage.states[a], c = stage.states[b];
        const auto pairs = shared_places(r, c, nullptr);
        for (const Point& point : points_)
          expect_zero(tally, point, r, c, [&](std::int64_t i, std::int64_t j) {
            if (coupling == Coupling::None) return any = true;
            return any |= differ(r, i, c, j, pairs), differ(r, i, c, j, pairs);
          });
      }
    if (any) items_.push_back(tally.finish());
  }

  bool differ(int r, std::int64_t i, int c, std::int64_t j,
              const std::vector<std::pair<std::size_t, std::size_t>>& pairs) const {
    const auto at = step_->position(r, i), from = step_->position(c, j);
    return std::any_of(pairs.begin(), pairs.end(), [&](const auto& p) { return at[p.first] != from[p.second]; });
  }

  void check_lanes(int s, const Stage& stage) {
    if (stage.channel_axes.empty()) return;
    std::vector<std::string> names;
    for (const AxisId a : stage.channel_axes) names.push_back(cell_.graph.axis(cell_.graph.axis(a).extent_of).name);
    Tally tally(fmt::format("{} moves nothing along {}", stage_text(s), fmt::join(names, ", ")));
    bool any = false;
    for (const int r : stage.states)
      for (const int c : stage.states) {
        const auto pairs = shared_places(r, c, &stage.channel_axes);
        for (const Point& point : points_)
          expect_zero(tally, point, r, c, [&](std::int64_t i, std::int64_t j) {
            const bool apart = differ(r, i, c, j, pairs);
            any |= apart;
            return apart;
          });
      }
    if (any) items_.push_back(tally.finish());
  }

  /// f(a + b - c) = f(a) + f(b) - f(c) where only the stage's own states move.
  void check_linear(int s, const Stage& stage) {
    Tally tally(stage_text(s) + " is linear");
    for (const Point& point : points_) {
      step_->at(point.row);
      const States a = mix(point.states, random_states(), stage), b = mix(point.states, random_states(), stage);
      States sum = point.states;
      for (const int u : stage.states)
        for (std::size_t i = 0; i < sum[u].size(); ++i) sum[u][i] = a[u][i] + b[u][i] - point.states[u][i];
      const States fa = (*step_)(a), fb = (*step_)(b), fc = (*step_)(point.states), fs = (*step_)(sum);
      const States na = step_->noise(a), nb = step_->noise(b), nc = step_->noise(point.states), ns = step_->noise(sum);
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
                                 step_->entry_text(u, static_cast<std::int64_t>(i), true), error);
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
  void check_time_invariant(int s, const Stage& stage) {
    Tally tally(stage_text(s) + " is time-invariant");
    for (const int r : stage.states)
      for (const int c : stage.states)
        for (const Point& point : points_) {
          const Values& first = points_[0].slopes[r][c];
          const Values& here = point.slopes[r][c];
          const Values &first_rounding = points_[0].rounding[r][c], &rounding = point.rounding[r][c];
          for (std::size_t i = 0; i < here.size(); ++i) {
            if (std::isnan(here[i]) || std::isnan(first[i]))
              tally.skip();
            else
              tally.compare(
                  std::abs(here[i] - first[i]), 1e-6 * (1 + std::abs(first[i])) + first_rounding[i] + rounding[i], [&] {
                    return fmt::format("d {}'/d {} changes from {:.9g} to {:.9g}", name(r), name(c), first[i], here[i]);
                  });
          }
        }
    items_.push_back(tally.finish());
  }

  /// Along one entry of the state: clip(a*s + b, lo, hi) has one slope beside zero, and the
  /// cross-ratio of four points is what a Möbius map keeps.
  void check_scannable(int s, const Stage& stage, bool clip) {
    if (stage.states.size() != 1) return;
    Tally tally(fmt::format("{} is {}", stage_text(s), clip ? "a clipped affine map" : "a Möbius map"));
    const int u = stage.states[0];
    for (const Point& point : points_) {
      step_->at(point.row);
      for (std::size_t i = 0; i < std::min<std::size_t>(point.states[u].size(), 8); ++i) {
        const auto where = [&](const char* what) {
          return [this, u, i, what] {
            return fmt::format("{} {}", step_->entry_text(u, static_cast<std::int64_t>(i), true), what);
          };
        };
        States moved = point.states;
        const auto f = [&](double x) {
          moved[u][i] = x;
          return (*step_)(moved)[u][i];
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
    const auto& index = cell_.symbol_of(cell_.updates[u]).index;
    for (std::int64_t i = 0; i < step_->entries(u); ++i) {
      const auto at = step_->position(u, i);
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
  void check_low_rank(int s, const Stage& stage) {
    if (stage.states.size() != 1 || !stage.rank) return;
    const std::int64_t rank = stage.rank->value(run_.sizes);
    if (rank > kMostRank) return;
    const bool none = stage.kind == StructureClass::LowRank,
               uniform = stage.kind == StructureClass::IdentityPlusLowRank;
    Tally tally(fmt::format("{} is {} plus rank {}", stage_text(s),
                            none      ? "zero"
                            : uniform ? "identity"
                                      : "diagonal",
                            stage.rank->text));
    const int u = stage.states[0];
    const std::int64_t columns = step_->entries(u);
    const auto r = static_cast<std::size_t>(rank);
    for (const Point& point : points_)
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

  CellGraph& cell_;
  const Jacobian& jacobian_;
  const Structure& structure_;
  BoundRun run_;  ///< with the rows of delay lines
  RandomStream random_;
  std::vector<CheckItem>& items_;
  std::vector<NodeId> block_nodes_;
  std::unique_ptr<Step> step_;
  std::vector<Point> points_;
};

}  // namespace

void check_claims(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, const Binding& binding,
                  std::uint64_t seed, std::vector<CheckItem>& items) {
  ClaimChecker(cell, jacobian, structure, binding.run, seed, items).run();
}

}  // namespace cellc
