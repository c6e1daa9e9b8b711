#pragma once
// A cell's step as a function from states to states, and its derivatives by finite differences.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/graph/evaluate.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/rounding.h"

namespace cellc {

using Values = std::vector<double>;
using States = std::vector<Values>;  ///< by position in updates

/// The step as a function of the states, at one time of one sequence.
class Step {
 public:
  Step(const CellGraph& cell, const BoundRun& run) : cell_(cell), run_(run) {
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      sizes_.push_back(lengths(cell, run, cell.symbols[s].axes));
      entries_.push_back(std::accumulate(sizes_[s].begin(), sizes_[s].end(), std::int64_t{1}, std::multiplies<>()));
    }
    update_of_.assign(cell.symbols.size(), -1);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) update_of_[cell.updates[u].symbol] = static_cast<int>(u);
    Environment environment;
    environment.sizes = run.sizes;
    environment.read = [this](int s, const std::vector<std::int64_t>& position, int lag) {
      std::int64_t flat = 0;
      for (std::size_t i = 0; i < position.size(); ++i) flat = flat * sizes_[s][i] + position[i];
      switch (cell_.symbols[s].kind) {
        case SymbolKind::Param:
          return run_.symbols[s].get(flat);
        case SymbolKind::State:
          return (*states_)[update_of_[s]][static_cast<std::size_t>(flat)];
        case SymbolKind::Input:
          break;
      }
      // Of a delay line whoever asks has put the rows into the run.
      if (lag <= elapsed_) return run_.symbols[s].get((row_ + (run_.reverse ? lag : -lag)) * entries_[s] + flat);
      return run_.histories[s].get((sequence_ * run_.histories[s].shape()[1] + lag - elapsed_ - 1) * entries_[s] +
                                   flat);
    };
    evaluator_ = std::make_unique<Evaluator>(cell, environment);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      environment.rounded = rounding_of(Dtype::F64, 2.3e-16, seed);
      rounded_.push_back(std::make_unique<Evaluator>(cell, environment));
    }
  }

  /// A row of the run, of whichever sequence.
  void at(std::int64_t row) {
    row_ = row;
    sequence_ = std::upper_bound(run_.offsets.begin(), run_.offsets.end(), row) - run_.offsets.begin() - 1;
    elapsed_ = run_.reverse ? run_.offsets[static_cast<std::size_t>(sequence_) + 1] - 1 - row
                            : row - run_.offsets[static_cast<std::size_t>(sequence_)];
  }

  States operator()(const States& states) {
    prepare(states);
    States result;
    for (const StateUpdate& u : cell_.updates)
      result.push_back(evaluator_->value_over(u.value, cell_.symbols[u.symbol].index).data);
    return result;
  }

  /// By how much rounding on the way may move what the step gives: more than a rounding of it where terms cancel.
  /// Infinite where it leaves the numbers.
  States noise(const States& states) {
    const States value = (*this)(states);
    States noise = value;
    for (Values& of_state : noise) std::fill(of_state.begin(), of_state.end(), 0.0);
    for (const auto& evaluator : rounded_) {
      evaluator->reset();
      for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
        const StateUpdate& update = cell_.updates[u];
        const Tensor moved = evaluator->value_over(update.value, cell_.symbols[update.symbol].index);
        for (std::size_t i = 0; i < noise[u].size(); ++i) {
          const double by = std::abs(moved.data[i] - value[u][i]);
          noise[u][i] = std::isnan(by) ? std::numeric_limits<double>::infinity() : std::max(noise[u][i], by);
        }
      }
    }
    return noise;
  }

  /// A node's values at these states.
  Tensor value(NodeId node, const std::vector<AxisId>& axes, const States& states) {
    prepare(states);
    return evaluator_->value_over(node, axes);
  }

  std::int64_t entries(int update) const { return entries_[cell_.updates[update].symbol]; }
  /// Position of an entry, by place.
  std::vector<std::int64_t> position(int update, std::int64_t flat) const {
    const auto& shape = sizes_[cell_.updates[update].symbol];
    std::vector<std::int64_t> at(shape.size());
    for (std::size_t i = shape.size(); i-- > 0;) {
      at[i] = flat % shape[i];
      flat /= shape[i];
    }
    return at;
  }
  std::string entry_text(int update, std::int64_t flat, bool primed) const {
    const Symbol& symbol = cell_.symbol_of(cell_.updates[update]);
    std::string text = symbol.name + (primed ? "'" : "");
    if (!symbol.axes.empty()) text += fmt::format("[{}]", fmt::join(position(update, flat), ","));
    return text;
  }

 private:
  void prepare(const States& states) {
    states_ = &states;
    evaluator_->reset();
  }

  const CellGraph& cell_;
  const BoundRun& run_;
  std::vector<std::vector<std::int64_t>> sizes_;
  std::vector<std::int64_t> entries_;
  std::vector<int> update_of_;
  std::int64_t row_ = 0, sequence_ = 0, elapsed_ = 0;  ///< elapsed: steps of the sequence before the row's
  const States* states_ = nullptr;
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<std::unique_ptr<Evaluator>> rounded_;  ///< the same, each with roundings of its own
};

/// One point of state space, the time of its inputs, and all derivatives there.
struct Point {
  States states;
  std::int64_t row;
  /// [row update][column update][row entry * column entries + column entry]; NaN where the
  /// differences tell that the step has a kink there or is not finite, or tell nothing for rounding.
  std::vector<std::vector<Values>> slopes{};
  /// By how much rounding alone may have moved them: a state of a million that is differenced over 1e-4 says five
  /// digits.
  std::vector<std::vector<Values>> rounding{};
};

/// Fills `point.slopes` and `point.rounding`.
void differentiate_at(Step& step, Point& point);

}  // namespace cellc
