// Puts the proof together: stages, then per stage lanes, block, mask, linearity, class, reasons.
//
// Everything is read off the structural Jacobian, in which every dependence of a value on a state
// appears as a term, also through comparisons (their slope is zero almost everywhere, yet the value
// moves). Three facts follow directly:
//   stage         strongly connected component of "the formula of s' reads t", also where what it
//                 reads cancels (0*t, t - t): no block, but whatever runs s needs the value of t
//   channel axis  every term of every block inside the stage ties it to itself by an identity
//   linear        no coefficient inside the stage reads one of the stage's own states
#include "compiler/analysis/structure.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/analysis/derivative_rules.h"
#include "compiler/analysis/structure_rules.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/simplify.h"

namespace cellc {

const char* to_string(StructureClass c) {
  switch (c) {
    case StructureClass::Diagonal:
      return "diagonal";
    case StructureClass::BlockDiagonal:
      return "block-diagonal";
    case StructureClass::LowRank:
      return "low-rank";
    case StructureClass::IdentityPlusLowRank:
      return "identity-plus-low-rank";
    case StructureClass::DiagonalPlusLowRank:
      return "diagonal-plus-low-rank";
    case StructureClass::Dense:
      return "dense";
  }
  return "";
}

const char* to_string(Scannable scannable) {
  static const char* const names[] = {"no", "affine", "clip", "moebius", "max-plus", "min-plus", "log-plus"};
  return names[static_cast<int>(scannable)];
}

const char* semiring_text(Scannable s) {
  return s == Scannable::MaxPlus ? "(max, +)" : s == Scannable::MinPlus ? "(min, +)" : "(logsumexp, +)";
}

bool StageView::contains(int update) const { return std::binary_search(states.begin(), states.end(), update); }

bool StageView::is_channel(AxisId axis) const {
  return std::find(channel_axes.begin(), channel_axes.end(), axis) != channel_axes.end();
}

namespace {

// Has the step an operator whose slope hides a dependence? Without one, and where all slopes are products,
// the structural Jacobian is the true one, and deriving it again is half of the work on a large cell.
bool steps(const CellGraph& cell) {
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (NodeId id : reachable(cell.graph, roots)) {
    const Op op = cell.graph[id].op;
    if (!is_elementwise(op)) continue;
    if (const Slope slope = op_info(op).slope; slope == Slope::Step || slope == Slope::Select) return true;
  }
  return false;
}

// Larger blocks are counted as text.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

class Analyser {
 public:
  Analyser(CellGraph& cell, const Jacobian& true_jacobian)
      : cell_(cell), g_(cell.graph), simplifier_(cell.graph), bounds_(cell), true_(true_jacobian) {
    if (true_jacobian.chooses || steps(cell)) structural_ = differentiate(cell, SlopeRule::Structural);
  }

  Structure run() {
    const int count = static_cast<int>(cell_.updates.size());
    Structure s;
    s.stage_of.assign(count, -1);
    s.linear = true;
    const std::vector<std::vector<int>> stages = stages_of(cell_);
    for (std::size_t k = 0; k < stages.size(); ++k)
      for (int u : stages[k]) s.stage_of[u] = static_cast<int>(k);
    stage_of_ = s.stage_of;
    reads_.emplace(cell_, stage_of_);
    for (const std::vector<int>& states : stages) {
      s.stages.push_back(stage(states, static_cast<int>(s.stages.size())));
      s.linear &= s.stages.back().linear;
    }
    // In the raw graph a value may read states that cancel; what runs needs them all the same.
    std::vector<std::vector<NodeId>> outs_of(s.stages.size());
    for (const Out& o : cell_.outs) {
      s.out_stage.push_back(reads_->last_stage(o.value));
      if (s.out_stage.back() >= 0) outs_of[s.out_stage.back()].push_back(o.value);
    }
    for (int i = 0; i < static_cast<int>(s.stages.size()); ++i)
      s.stages[i].hoisted = hoisted(i, s.stages[i].states, outs_of[i]);
    s.widest = widest_stage(cell_, s.stages);
    s.why = std::move(why_);
    return s;
  }

 private:
  const Symbol& state(int update) const { return cell_.symbols[cell_.updates[update].symbol]; }

  const Jacobian& jacobian() const { return structural_ ? *structural_ : true_; }

  Stage stage(const std::vector<int>& states, int number) {
    Stage r;
    r.states = states;
    StageView view{cell_, jacobian(), simplifier_, states, {}};
    r.channel_axes = channels(states);
    view.channel_axes = r.channel_axes;
    std::set<AxisId> mixed;
    for (int u : states)
      for (AxisId a : state(u).index)
        if (!view.is_channel(a)) mixed.insert(a);
    r.coupled_axes.assign(mixed.begin(), mixed.end());
    r.block = block_size(view);
    for (int u : states) {
      r.mask.emplace_back();
      for (int v : states) r.mask.back().push_back(coupling(u, v));
    }
    linearity(r, view, number);
    r.inputs_from = inputs(states, number);
    classify(r, view, number);
    if (!r.linear && r.block.number == 1) {
      const ScanForm form = classify_scannable(view);
      r.clip = form.clip;
      r.moebius = form.moebius;
    }
    r.scannable = r.linear    ? Scannable::Affine
                  : r.clip    ? Scannable::Clip
                  : r.moebius ? Scannable::Moebius
                              : Scannable::No;
    if (r.scannable == Scannable::No)
      if (std::optional<SemiringForm> form = classify_semiring(view)) {
        r.scannable = form->kind;
        r.semiring = std::move(form->map);
        why_.push_back({cell_.updates[states[0]].span, semiring_reason(view, r)});
      }
    if (r.scannable == Scannable::Clip)
      why_.push_back({cell_.updates[states[0]].span,
                      state_names(cell_, states) + " is a clip of an affine map of itself: an exact scan"});
    if (r.scannable == Scannable::Moebius)
      why_.push_back({cell_.updates[states[0]].span,
                      state_names(cell_, states) + " is a Möbius map of itself: an exact scan of 2×2 matrices"});
    r.norm_bound = bounds_.of(view, true_);
    r.rotation = is_rotation(view);
    return r;
  }

  static std::string semiring_reason(const StageView& view, const Stage& stage) {
    const char* const sum = stage.scannable == Scannable::MaxPlus   ? "greatest"
                            : stage.scannable == Scannable::MinPlus ? "least"
                                                                    : "logsumexp";
    const std::size_t free = stage.semiring->offsets.size();
    return "linear over " + std::string(semiring_text(stage.scannable)) + ": " + state_names(view.cell, view.states) +
           " is the " + sum + " of its own values, each with something added that is free of them" +
           (free ? ", and of values free of them" : "") + ": an exact scan";
  }

  // A channel axis is an index variable that every state of the stage has and that no term moves.
  std::vector<AxisId> channels(const std::vector<int>& states) {
    std::vector<AxisId> result;
    for (AxisId axis : state(states[0]).index) {
      bool all = true;
      for (int u : states) {
        const auto& index = state(u).index;
        all &= std::find(index.begin(), index.end(), axis) != index.end();
      }
      if (all) result.push_back(axis);
    }
    const int number = stage_of_[states[0]];
    for (int u : states)
      for (const JacobianBlock& b : jacobian().row(u)) {
        if (stage_of_[b.column] != number) continue;
        const auto& index = state(b.column).index;
        for (const JacobianTerm& term : b.terms)
          std::erase_if(result, [&](AxisId axis) {
            const auto place = std::find(index.begin(), index.end(), axis) - index.begin();
            for (const auto& [p, row_axis] : term.identities)
              if (p == place) return row_axis != axis;
            return true;
          });
      }
    return result;
  }

  SizeExpression block_size(const StageView& view) {
    // Σ over states of Π lengths of its mixed axes, equal products collected: 2*d, 4*k, k + 1. Lengths whose
    // product no number holds stand by their names, as if the data gave them.
    std::map<std::vector<AxisId>, std::int64_t> terms;
    for (int u : view.states) {
      std::vector<AxisId> symbolic;
      std::int64_t number = 1;
      for (AxisId a : state(u).index) {
        if (view.is_channel(a)) continue;
        const auto fixed = g_.axis(a).fixed;
        std::int64_t longer = 0;
        // Room is left for the sum over the states, of which there are a few thousand at most.
        const bool fits = fixed && !__builtin_mul_overflow(number, *fixed, &longer) && longer <= kMostCounted;
        if (fits)
          number = longer;
        else
          symbolic.push_back(g_.axis(a).extent_of);
      }
      std::sort(symbolic.begin(), symbolic.end());
      terms[symbolic] += number;
    }
    return size_expression(g_, terms);
  }

  Coupling coupling(int row, int column) {
    const JacobianBlock* b = jacobian().find(row, column);
    return b ? coupling(*b) : Coupling::None;
  }

  Coupling coupling(const JacobianBlock& b) const {
    const auto& index = state(b.column).index;
    for (const JacobianTerm& term : b.terms)
      for (std::size_t p = 0; p < index.size(); ++p) {
        const bool tied = std::any_of(term.identities.begin(), term.identities.end(), [&](const auto& i) {
          return i.first == static_cast<int>(p) && i.second == index[p];
        });
        if (!tied) return Coupling::Full;
      }
    return Coupling::Diagonal;
  }

  void linearity(Stage& r, const StageView& view, int number) {
    r.linear = true;
    r.time_invariant = true;
    std::set<AxisId> axes;
    for (int u : view.states)
      for (const JacobianBlock& b : jacobian().row(u)) {
        if (stage_of_[b.column] != number) continue;
        for (const JacobianTerm& term : b.terms) {
          if (reads_->last_stage(term.coefficient) == number) r.linear = false;
          if (reads_->varies(term.coefficient)) r.time_invariant = false;
          for (AxisId a : g_[term.coefficient].axes) axes.insert(g_.axis(a).extent_of);
        }
      }
    r.time_invariant &= r.linear;
    r.coefficient_axes.assign(axes.begin(), axes.end());
    if (!r.linear) blame_nonlinear(view, number, *reads_, why_);
  }

  std::vector<StageInput> inputs(const std::vector<int>& states, int number) {
    std::map<int, StructureClass> found;
    for (int u : states)
      for (const JacobianBlock& b : jacobian().row(u)) {
        const int from = stage_of_[b.column];
        if (from == number) continue;
        const StructureClass c = coupling(b) == Coupling::Full ? StructureClass::Dense : StructureClass::Diagonal;
        auto [it, fresh] = found.emplace(from, c);
        if (!fresh) it->second = std::max(it->second, c);
      }
    std::vector<StageInput> result;
    for (const auto& [from, c] : found) result.push_back({from, c});
    return result;
  }

  void classify(Stage& r, const StageView& view, int number) {
    const Span span = cell_.updates[view.states[0]].span;
    const std::string who = state_names(cell_, view.states);
    if (view.states.size() > 1)
      why_.push_back({span, who + " form one stage: each needs the others' values of the step before"});
    // States of axes whose lengths are fixed mix along them as any do; only scalars that couple are no low rank.
    LowRank low;
    if (!r.coupled_axes.empty()) low = classify_low_rank(view);
    if (low.applies && reaches(low.rank, r.block)) {
      low.applies = false;
      low.why_not = {span, "outer products of rank " + low.rank.text + " couple " + who + ", which saves nothing"};
    }
    if (r.block.number && !low.applies) {
      r.kind = *r.block.number == 1 ? StructureClass::Diagonal : StructureClass::BlockDiagonal;
      const std::string along = r.channel_axes.empty() ? "" : " along " + axis_list(r.channel_axes);
      why_.push_back({span, r.kind == StructureClass::Diagonal
                                ? "diagonal: no value of " + who + " moves" + along
                                : "blocks of " + r.block.text + ": " + who + " couple, and nothing moves" + along});
      return;
    }
    if (low.applies) {
      r.kind = !low.diagonal ? StructureClass::LowRank
               : low.uniform ? StructureClass::IdentityPlusLowRank
                             : StructureClass::DiagonalPlusLowRank;
      r.rank = low.rank;
      r.low_rank = std::move(low.form);
      if (structural_) {
        // What is proved holds of steps, too; the form is that of the derivative.
        LowRank derivative = classify_low_rank({cell_, true_, simplifier_, view.states, view.channel_axes});
        r.low_rank.reset();
        if (derivative.applies) r.low_rank = std::move(derivative.form);
      }
      why_.push_back({span, std::string(to_string(r.kind)) + ": every coupling of " + who + " along " +
                                axis_list(r.coupled_axes) + " is an outer product; rank " + low.rank.text});
    } else {
      r.kind = r.channel_axes.empty() ? StructureClass::Dense : StructureClass::BlockDiagonal;
      why_.push_back(low.why_not);
    }
    blame_mixing(view, number, to_string(r.kind), *reads_, why_);
  }

  /// Is the rank that of any matrix, whatever the lengths? Where both are numbers, it must also save work: a product
  /// with r columns and r rows of N takes 2·r·N steps, one with all entries N².
  static bool reaches(const SizeExpression& rank, const SizeExpression& block) {
    if (rank.number && block.number) return 2 * *rank.number >= *block.number;
    return std::all_of(block.terms.begin(), block.terms.end(), [&](const SizeExpression::Term& needed) {
      return std::any_of(rank.terms.begin(), rank.terms.end(), [&](const SizeExpression::Term& term) {
        return term.axes == needed.axes && term.factor >= needed.factor;
      });
    });
  }

  bool is_rotation(const StageView& view) {
    if (view.states.size() != 2) return false;
    NodeId c[2][2];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const JacobianBlock* b = true_.find(view.states[i], view.states[j]);
        if (!b || b->terms.size() != 1 || coupling(view.states[i], view.states[j]) != Coupling::Diagonal) return false;
        c[i][j] = b->terms[0].coefficient;
      }
    return c[0][0] == c[1][1] && simplifier_.is_zero(g_.op(Op::Add, {c[0][1], c[1][0]}));
  }

  // Maximal: what a value of this stage reads, or a root that is early itself.
  std::vector<NodeId> hoisted(int number, const std::vector<int>& states, const std::vector<NodeId>& outs) {
    std::vector<NodeId> roots = outs;
    for (int u : states) roots.push_back(cell_.updates[u].value);
    std::set<NodeId> found;
    const auto add = [&](NodeId id) {
      if (reads_->last_stage(id) < number && !g_[id].args.empty()) found.insert(id);
    };
    for (NodeId r : roots) add(r);
    for (NodeId id : reads_->own_part(roots, number))
      for (NodeId a : g_[id].args) add(a);
    return {found.begin(), found.end()};
  }

  std::string axis_list(const std::vector<AxisId>& axes) const {
    std::string text;
    for (AxisId a : axes) text += (text.empty() ? "" : ", ") + g_.axis(g_.axis(a).extent_of).name;
    return text;
  }

  CellGraph& cell_;
  Graph& g_;
  Simplifier simplifier_;
  NormBounds bounds_;
  const Jacobian& true_;
  std::optional<Jacobian> structural_;  ///< where it is another one
  std::vector<int> stage_of_;           ///< by update
  std::optional<StageReads> reads_;
  std::vector<Reason> why_;
};

}  // namespace

Structure analyse(CellGraph& cell, const Jacobian& jacobian) {
  if (cell.updates.empty()) {
    Structure s;  // a cell without states: outs of inputs only; nothing runs over time
    s.linear = true;
    s.out_stage.assign(cell.outs.size(), -1);
    s.widest = -1;
    return s;
  }
  return Analyser(cell, jacobian).run();
}

}  // namespace cellc
