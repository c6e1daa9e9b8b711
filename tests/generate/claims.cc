#include "tests/generate/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/analysis/jacobian.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"
#include "tests/oracle/difference.h"
#include "tests/oracle/printed_jacobian.h"

namespace cellc::generate {
namespace {

using oracle::Data;
using oracle::Source;

using Values = std::vector<std::vector<double>>;  ///< by position in updates

class Checker {
 public:
  Checker(CellGraph& graph, const SourceText& source, const File& tree, const oracle::Ranges& ranges,
          oracle::Random& random)
      : graph_(graph),
        cell_(tree, graph.name),
        ranges_(ranges),
        random_(random),
        printed_(graph, source),
        structure_(analyse(graph, differentiate(graph))) {}

  ClaimReport run(int points) {
    if (!parses_back()) return report_;
    for (int tries = 0; report_.jacobian_points < points && tries < 8 * points; ++tries)
      if (!jacobian(point())) return report_;
    for (int i = 0; i < points; ++i) {
      data_ = point();
      before_ = step();
      for (int stage = 0; stage < static_cast<int>(structure_.stages.size()); ++stage)
        if (!linear(structure_.stages[stage])) return report_;
      for (int u = 0; u < count(); ++u)
        if (!moves(u)) return report_;
    }
    return report_;
  }

 private:
  int count() const { return static_cast<int>(graph_.updates.size()); }
  bool wrong(const std::string& text) { return report_.wrong = text, false; }
  const std::string& name(int update) const { return graph_.symbol_of(graph_.updates[update]).name; }

  /// What is printed must be right for the compiler as well as for the oracle.
  bool parses_back() {
    const SourceText source("printed", printed_.text());
    Diagnostics diagnostics;
    const File file = parse(source, diagnostics);
    if (diagnostics.empty()) (void)lower_all(file, diagnostics);
    if (diagnostics.empty()) return true;
    const Diagnostic& first = diagnostics.list().front();
    return wrong("printed: the Jacobian's text does not parse back: " + first.message);
  }

  Data point() {
    Data data = oracle::draw_data(cell_, oracle::axis_lengths(cell_, {3, 2, 4, 2}), 1, ranges_, random_, true);
    for (const auto& [name, depth] : oracle::history_depths(graph_)) {
      const Declaration& d = *cell_.find(name);
      data.histories[name] = oracle::draw_values(d, depth * cell_.count(d, data), 1, ranges_, random_);
    }
    return data;
  }

  /// The entries of an update's state, or of a lagged copy, before the step.
  double* entry(int update, std::int64_t i) {
    const Source s = oracle::source_of(graph_, update);
    if (s.second == 0) return &data_.starts.at(s.first).at(i);
    return &data_.histories.at(s.first).at((s.second - 1) * entries(update) + i);
  }
  std::int64_t entries(int update) const {
    return cell_.count(*cell_.find(oracle::source_of(graph_, update).first), data_);
  }

  Values step() {
    ++report_.moves;
    const auto states = oracle::step(cell_, data_);
    Values values;
    for (int u = 0; u < count(); ++u) {
      const Source s = oracle::source_of(graph_, u);
      if (s.second == 0) {
        values.push_back(states.at(s.first));
      } else {  // a copy takes what the copy before it was
        const int newer = u - 1;
        values.emplace_back();
        for (std::int64_t i = 0; i < entries(u); ++i) values.back().push_back(*entry(newer, i));
      }
    }
    return values;
  }

  bool jacobian(const Data& data) {
    const auto expected = oracle::difference_jacobian(cell_, data, oracle::history_depths(graph_));
    if (!expected) return true;  // a kink is near
    ++report_.jacobian_points;
    const auto got = printed_.evaluate(data);
    for (int r = 0; r < count(); ++r) {
      if (oracle::source_of(graph_, r).second > 0) continue;
      for (int c = 0; c < count(); ++c) {
        const Source row = oracle::source_of(graph_, r), column = oracle::source_of(graph_, c);
        const oracle::Difference& truth = expected->at({row.first, column});
        const auto block = got.find({row, column});
        for (std::size_t i = 0; i < truth.values.size(); ++i) {
          const double want = truth.values[i], have = block == got.end() ? 0 : block->second.values.at(i);
          const double tolerance = block == got.end() ? 1e-9 : 1e-6 * (1 + std::fabs(want));
          if (!(std::fabs(have - want) <= tolerance))
            return wrong(fmt::format("jacobian: d {}'/d {}, entry {}: printed {}, differences {}", name(r), name(c), i,
                                     have, want));
        }
      }
    }
    return true;
  }

  /// Positions on the places of an update's state.
  std::vector<std::int64_t> position(int update, std::int64_t flat) const {
    const std::vector<std::int64_t> shape = cell_.shape(*cell_.find(oracle::source_of(graph_, update).first), data_);
    std::vector<std::int64_t> at(shape.size());
    for (std::size_t p = shape.size(); p-- > 0; flat /= shape[p]) at[p] = flat % shape[p];
    return at;
  }

  /// Whether entries i of update a and j of update b agree on the axes in `axes` that both have.
  bool agree(int a, std::int64_t i, int b, std::int64_t j, const std::vector<AxisId>* axes) const {
    const auto &first = graph_.symbol_of(graph_.updates[a]).index, &second = graph_.symbol_of(graph_.updates[b]).index;
    const auto p = position(a, i), q = position(b, j);
    for (std::size_t x = 0; x < first.size(); ++x) {
      if (axes && std::find(axes->begin(), axes->end(), first[x]) == axes->end()) continue;
      const auto place = std::find(second.begin(), second.end(), first[x]);
      if (place != second.end() && p[x] != q[place - second.begin()]) return false;
    }
    return true;
  }

  /// Moves single entries of one state far and looks at what follows.
  bool moves(int column) {
    const std::int64_t n = entries(column);
    for (int trial = 0; trial < 3; ++trial) {
      const std::int64_t j = random_.below(static_cast<int>(n));
      double* moved = entry(column, j);
      const double was = *moved;
      *moved = was + random_.uniform(-2, 2);
      const Values after = step();
      *entry(column, j) = was;
      const int column_stage = structure_.stage_of[column];
      const Stage& stage = structure_.stages[column_stage];
      for (int row = 0; row < count(); ++row)
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(after[row].size()); ++i) {
          const double a = after[row][i], b = before_[row][i];
          if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-12 * (1 + std::fabs(b))) continue;
          if (structure_.stage_of[row] < column_stage)
            return wrong(fmt::format("stages: {}' moves with {}, which is in a later stage", name(row), name(column)));
          if (structure_.stage_of[row] != column_stage) continue;
          if (!agree(row, i, column, j, &stage.channel_axes))
            return wrong(
                fmt::format("lanes: entry {} of {}' moves with entry {} of {}", i, name(row), j, name(column)));
          const auto place = [&](int u) {
            return std::find(stage.states.begin(), stage.states.end(), u) - stage.states.begin();
          };
          const Coupling coupling = stage.mask.at(place(row)).at(place(column));
          if (coupling == Coupling::None)
            return wrong(fmt::format("mask: {}' moves with {}, claimed zero", name(row), name(column)));
          if (coupling == Coupling::Diagonal && !agree(row, i, column, j, nullptr))
            return wrong(fmt::format("mask: entry {} of {}' moves with entry {} of {}, claimed diagonal", i, name(row),
                                     j, name(column)));
        }
    }
    return true;
  }

  /// Second differences of a linear stage along a random direction of its own states.
  bool linear(const Stage& stage) {
    if (!stage.linear) return true;
    std::vector<std::vector<double>> direction;
    for (int u : stage.states) {
      direction.emplace_back();
      for (std::int64_t i = 0; i < entries(u); ++i) direction.back().push_back(random_.uniform(-2, 2));
    }
    const auto shift = [&](double by) {
      for (std::size_t s = 0; s < stage.states.size(); ++s)
        for (std::size_t i = 0; i < direction[s].size(); ++i)
          *entry(stage.states[s], static_cast<std::int64_t>(i)) += by * direction[s][i];
    };
    const Data saved = data_;
    shift(1);
    const Values once = step();
    shift(1);
    const Values twice = step();
    data_ = saved;
    for (int u : stage.states)
      for (std::size_t i = 0; i < before_[u].size(); ++i) {
        const double a = before_[u][i], b = once[u][i], c = twice[u][i];
        if (std::fabs(a - 2 * b + c) > 1e-11 * (1 + std::fabs(a) + std::fabs(b) + std::fabs(c)))
          return wrong(fmt::format("linear: {}' at x, x+v, x+2v is {}, {}, {}", name(u), a, b, c));
      }
    return true;
  }

  CellGraph& graph_;
  oracle::Cell cell_;
  const oracle::Ranges& ranges_;
  oracle::Random& random_;
  oracle::PrintedJacobian printed_;
  Structure structure_;
  Data data_;
  Values before_;
  ClaimReport report_;
};

}  // namespace

ClaimReport check_claims(CellGraph& graph, const SourceText& source, const File& tree, const oracle::Ranges& ranges,
                         oracle::Random& random, int points) {
  return Checker(graph, source, tree, ranges, random).run(points);
}

}  // namespace cellc::generate
