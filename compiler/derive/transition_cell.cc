#include "compiler/derive/transition_cell.h"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/semiring.h"
#include "compiler/analysis/structure_rules.h"
#include "compiler/derive/derivations.h"
#include "compiler/graph/simplify.h"

namespace cellc {

namespace {

/// Index variables of a transition's columns: far from those of contractions and of the Jacobian.
constexpr int kTransitionCopy = 201;

class TransitionBuilder {
 public:
  TransitionBuilder(const DerivedCell& lanes, AxisId lane, Scannable kind) : lane_(lane) {
    static_cast<DerivedCell&>(result_) = lanes;
    result_.role = lanes.role == Role::Newton ? Role::NewtonTransition : Role::Transition;
    result_.kind = kind == Scannable::No ? Scannable::Affine : kind;
  }

  TransitionCell run() {
    if (result_.kind == Scannable::Clip)
      clip();
    else if (result_.kind == Scannable::Moebius)
      moebius();
    else if (is_semiring(result_.kind))
      semiring();
    else
      affine();
    return std::move(result_);
  }

 private:
  Graph& g() { return result_.cell.graph; }

  int add_state(const std::string& name, std::vector<AxisId> index) {
    Symbol s;
    s.name = name;
    s.kind = SymbolKind::State;
    for (AxisId a : index) s.axes.push_back(g().axis(a).extent_of);
    s.index = std::move(index);
    result_.cell.symbols.push_back(std::move(s));
    result_.sources.push_back({ArraySource::Kind::Start});
    return static_cast<int>(result_.cell.symbols.size()) - 1;
  }

  int add_update(int symbol, NodeId value, ArraySink sink) {
    result_.cell.updates.push_back({symbol, value, {}});
    result_.sinks.push_back(sink);
    return static_cast<int>(result_.cell.updates.size()) - 1;
  }

  // P' = J·P -------------------------------------------------------------------------------------

  void affine() {
    Jacobian jacobian = differentiate(result_.cell);
    reuse_step(result_.cell, jacobian);
    std::vector<std::vector<int>> readers(result_.cell.updates.size());
    for (const JacobianBlock& b : jacobian.blocks) readers[b.column].push_back(b.row);
    const std::vector<std::vector<int>> symbol = add_matrix(readers);
    const int n = static_cast<int>(symbol.size());
    result_.position.assign(n, std::vector<int>(n, -1));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        if (symbol[i][j] < 0) continue;
        NodeId total = kNoNode;
        for (const JacobianBlock& b : jacobian.row(i)) {
          if (symbol[b.column][j] < 0) continue;
          for (const JacobianTerm& term : b.terms) {
            const NodeId product = times(b, term, symbol[b.column][j], j);
            total = total == kNoNode ? product : g().op(Op::Add, {total, product});
          }
        }
        result_.position[i][j] =
            add_update(symbol[i][j], total == kNoNode ? g().constant(0) : total, {ArraySink::Kind::Transition, i, j});
      }
  }

  /// States P_ij, by row and column; -1 where no product of blocks leads from j to i, so that it is zero for ever.
  /// `readers`: by column, the rows that read it.
  std::vector<std::vector<int>> add_matrix(const std::vector<std::vector<int>>& readers) {
    const int n = static_cast<int>(readers.size());
    std::vector<std::vector<char>> reaches(n, std::vector<char>(n, 0));
    for (int j = 0; j < n; ++j) {
      std::vector<int> ahead{j};
      while (!ahead.empty()) {
        const int i = ahead.back();
        ahead.pop_back();
        if (std::exchange(reaches[i][j], 1)) continue;
        ahead.insert(ahead.end(), readers[i].begin(), readers[i].end());
      }
    }
    std::vector<std::vector<int>> symbol(n, std::vector<int>(n, -1));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        if (!reaches[i][j]) continue;
        std::vector<AxisId> index = mixed(i);
        for (AxisId a : columns(j)) index.push_back(a);
        index.push_back(lane_);
        symbol[i][j] = add_state("transition." + name(i) + "." + name(j), std::move(index));
      }
    return symbol;
  }

  const std::string& name(int update) { return result_.cell.symbols[result_.cell.updates[update].symbol].name; }

  std::vector<AxisId> mixed(int update) {
    std::vector<AxisId> axes;
    for (AxisId a : result_.cell.symbols[result_.cell.updates[update].symbol].index)
      if (a != lane_) axes.push_back(a);
    return axes;
  }

  std::vector<AxisId> columns(int update) {
    std::vector<AxisId> axes;
    for (AxisId a : mixed(update)) axes.push_back(g().copy_axis(a, kTransitionCopy + g().axis(a).copy_number));
    return axes;
  }

  NodeId times(const JacobianBlock& block, const JacobianTerm& term, int transition, int j) {
    // Read P at the row's own index where the term is an identity, sum where it is not.
    const std::vector<AxisId>& places = result_.cell.symbols[result_.cell.updates[block.column].symbol].index;
    std::vector<Index> at;
    std::vector<AxisId> summed;
    for (std::size_t p = 0; p < places.size(); ++p) {
      AxisId here = block.column_axes[p];
      for (const auto& [place, axis] : term.identities)
        if (place == static_cast<int>(p)) here = axis;
      if (here == block.column_axes[p]) summed.push_back(here);
      if (places[p] != lane_)
        at.push_back({here, 0});
      else if (here != lane_)
        throw std::logic_error("transitions: a lane reads another lane");
    }
    for (AxisId a : columns(j)) at.push_back({a, 0});
    at.push_back({lane_, 0});
    const NodeId p = g().read(transition, std::move(at));
    const NodeId product = g().is_constant(term.coefficient, 1) ? p : g().op(Op::Mul, {term.coefficient, p});
    return summed.empty() ? product : g().reduce_sum(summed, product);
  }

  // P' = A ⊗ P, q' = A ⊗ q ⊕ b ----------------------------------------------------------------------

  void semiring() {
    const int n = static_cast<int>(result_.cell.updates.size());
    std::vector<int> rows(static_cast<std::size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    Simplifier simplifier(g());
    const std::optional<SemiringMap> step = semiring_map(result_.cell, simplifier, rows, result_.kind, true);
    if (!step) throw std::logic_error("transitions: not linear over a semiring");
    std::vector<std::vector<int>> readers(static_cast<std::size_t>(n));
    for (const SemiringMap::Term& t : step->terms) readers[t.column].push_back(t.row);
    const std::vector<std::vector<int>> symbol = add_matrix(readers);
    std::vector<int> offset;
    for (int i = 0; i < n; ++i) {
      std::vector<AxisId> index = mixed(i);
      index.push_back(lane_);
      offset.push_back(add_state("transition.offset." + name(i), std::move(index)));
    }
    const auto add = [&](NodeId& sum, NodeId term) {
      sum = sum == kNoNode ? term : semiring_sum(g(), result_.kind, sum, term);
    };
    // `of`: the map of a column, at which more indices `more` follow those of the state.
    const auto after = [&](const SemiringMap::Term& t, int of, const std::vector<AxisId>& more) {
      const std::vector<AxisId>& places = result_.cell.symbols[result_.cell.updates[t.column].symbol].index;
      std::vector<Index> at;
      for (std::size_t p = 0; p < places.size(); ++p) {
        if (places[p] != lane_)
          at.push_back(t.at[p]);
        else if (t.at[p].axis != lane_)
          throw std::logic_error("transitions: a lane reads another lane");
      }
      for (const AxisId a : more) at.push_back({a, 0});
      at.push_back({lane_, 0});
      const NodeId carried = g().read(of, std::move(at));
      const NodeId sum = g().is_constant(t.coefficient, 0) ? carried : g().op(Op::Add, {t.coefficient, carried});
      return semiring_sum_over(g(), result_.kind, t.bound, sum);
    };
    const NodeId zero = g().constant(semiring_zero(result_.kind));
    result_.position.assign(static_cast<std::size_t>(n), std::vector<int>(static_cast<std::size_t>(n), -1));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        if (symbol[i][j] < 0) continue;
        NodeId total = kNoNode;
        for (const SemiringMap::Term& t : step->terms)
          if (t.row == i && symbol[t.column][j] >= 0) add(total, after(t, symbol[t.column][j], columns(j)));
        result_.position[i][j] =
            add_update(symbol[i][j], total == kNoNode ? zero : total, {ArraySink::Kind::Transition, i, j});
      }
    for (int i = 0; i < n; ++i) {
      NodeId total = kNoNode;
      for (const SemiringMap::Term& t : step->terms)
        if (t.row == i) add(total, after(t, offset[t.column], {}));
      for (const SemiringMap::Offset& o : step->offsets)
        if (o.row == i) add(total, o.value);
      result_.offset.push_back(add_update(offset[i], total == kNoNode ? zero : total, {ArraySink::Kind::Map, i}));
    }
  }

  // clip(a·start + b, low, high) ------------------------------------------------------------------

  void clip() {
    const int own = one_state();
    const std::vector<AxisId> index = result_.cell.symbols[own].index;
    std::vector<Index> at;
    for (AxisId x : index) at.push_back({x, 0});
    int symbols[4];
    NodeId reads[4];
    const char* const names[4] = {"transition.a", "transition.b", "transition.low", "transition.high"};
    for (int i = 0; i < 4; ++i) {
      symbols[i] = add_state(names[i], index);
      reads[i] = g().read(symbols[i], at);
    }
    Simplifier simplifier(g());
    const ClipMap now{reads[0], reads[1], reads[2], reads[3]};
    const std::optional<ClipMap> next = clip_map(g(), simplifier, result_.cell.updates[0].value, own, &now);
    if (!next) throw std::logic_error("transitions: not a clip of an affine map");
    const NodeId values[4] = {next->a, next->b, next->low, next->high};
    for (int i = 0; i < 4; ++i) result_.map.push_back(add_update(symbols[i], values[i], {ArraySink::Kind::Map, i}));
  }

  int one_state() const {
    if (result_.cell.updates.size() != 1) throw std::logic_error("transitions: one state expected");
    return result_.cell.updates[0].symbol;
  }

  // 2x2 matrices ---------------------------------------------------------------------------------

  void moebius() {
    const int own = one_state();
    Simplifier simplifier(g());
    const std::optional<MoebiusMap> step = moebius_map(g(), simplifier, result_.cell.updates[0].value, own);
    if (!step) throw std::logic_error("transitions: not a Möbius map");
    const std::vector<AxisId> index = result_.cell.symbols[own].index;
    std::vector<Index> at;
    for (AxisId x : index) at.push_back({x, 0});
    int symbols[4];
    NodeId m[4];
    const char* const names[4] = {"transition.a", "transition.b", "transition.c", "transition.d"};
    for (int i = 0; i < 4; ++i) {
      symbols[i] = add_state(names[i], index);
      m[i] = g().read(symbols[i], at);
    }
    const auto dot = [&](NodeId x, NodeId y, NodeId z, NodeId w) {
      return g().op(Op::Add, {g().op(Op::Mul, {x, y}), g().op(Op::Mul, {z, w})});
    };
    NodeId p[4] = {dot(step->a, m[0], step->b, m[2]), dot(step->a, m[1], step->b, m[3]),
                   dot(step->c, m[0], step->d, m[2]), dot(step->c, m[1], step->d, m[3])};
    NodeId norm = kNoNode;
    for (NodeId x : p) {
      const NodeId size = g().op(Op::Abs, {x});
      norm = norm == kNoNode ? size : g().op(Op::Max, {norm, size});
    }
    for (int i = 0; i < 4; ++i)
      result_.map.push_back(add_update(symbols[i], g().op(Op::Div, {p[i], norm}), {ArraySink::Kind::Map, i}));
  }

  const AxisId lane_;
  TransitionCell result_;
};

}  // namespace

namespace derivation {

TransitionCell with_transition(const DerivedCell& lanes, AxisId lane, Scannable kind) {
  return TransitionBuilder(lanes, lane, kind).run();
}

}  // namespace derivation

}  // namespace cellc
