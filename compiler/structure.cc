// Puts the proof together: stages, then per stage lanes, block, mask, linearity, class, reasons.
//
// Everything is read off the structural Jacobian, in which every dependence of a value on a state
// appears as a term, also through comparisons (their slope is zero almost everywhere, yet the value
// moves). Three facts follow directly:
//   stage         strongly connected component of "the formula of s' reads t", also where what it
//                 reads cancels (0*t, t - t): no block, but whatever runs s needs the value of t
//   channel axis  every term of every block inside the stage ties it to itself by an identity
//   linear        no coefficient inside the stage reads one of the stage's own states
#include "compiler/structure.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/simplify.h"
#include "compiler/structure_rules.h"

namespace cellc {

const char* to_string(StructureClass c) {
  switch (c) {
    case StructureClass::Diagonal: return "diagonal";
    case StructureClass::BlockDiagonal: return "block-diagonal";
    case StructureClass::IdentityPlusLowRank: return "identity-plus-low-rank";
    case StructureClass::DiagonalPlusLowRank: return "diagonal-plus-low-rank";
    case StructureClass::Dense: return "dense";
  }
  return "";
}

bool StageView::contains(int update) const {
  return std::find(states.begin(), states.end(), update) != states.end();
}

bool StageView::is_channel(AxisId axis) const {
  return std::find(channel_axes.begin(), channel_axes.end(), axis) != channel_axes.end();
}

bool depends_on(const Graph& graph, NodeId node, const std::set<int>& symbols) {
  for (NodeId n : reachable(graph, {node}))
    if (graph[n].op == Op::Read && symbols.count(graph[n].symbol)) return true;
  return false;
}

namespace {

// Strongly connected components by Tarjan's algorithm, each with its states ascending, numbered by
// their first states. With a stack of its own: a cell may have thousands of states in a row.
class Components {
 public:
  explicit Components(const CellGraph& cell)
      : reads_(cell.updates.size()), index_(cell.updates.size(), -1), low_(cell.updates.size()), of_(cell.updates.size(), -1) {
    const int count = static_cast<int>(cell.updates.size());
    std::map<int, int> update_of;
    for (int u = 0; u < count; ++u) update_of[cell.updates[u].symbol] = u;
    for (int row = 0; row < count; ++row) {
      std::set<int> columns;
      for (NodeId n : reachable(cell.graph, {cell.updates[row].value}))
        if (cell.graph[n].op == Op::Read)
          if (const auto it = update_of.find(cell.graph[n].symbol); it != update_of.end()) columns.insert(it->second);
      reads_[row].assign(columns.begin(), columns.end());
    }
    for (int a = 0; a < count; ++a)
      if (index_[a] < 0) search(a);
    std::vector<int> number(found_, -1);
    for (int a = 0; a < count; ++a) {
      int& n = number[of_[a]];
      if (n < 0) {
        n = static_cast<int>(members.size());
        members.emplace_back();
      }
      of_[a] = n;
      members[n].push_back(a);
    }
  }

  int of(int state) const { return of_[state]; }
  const std::vector<int>& reads(int state) const { return reads_[state]; }

  std::vector<std::vector<int>> members;

 private:
  struct Visit {
    int state;
    std::size_t next;
  };

  void search(int start) {
    enter(start);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const int a = visit.state;
      if (visit.next < reads_[a].size()) {
        const int b = reads_[a][visit.next++];
        if (index_[b] < 0) enter(b);
        else if (of_[b] < 0) low_[a] = std::min(low_[a], index_[b]);
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) low_[visits_.back().state] = std::min(low_[visits_.back().state], low_[a]);
      if (low_[a] != index_[a]) continue;
      int b;
      do {
        b = open_.back();
        open_.pop_back();
        of_[b] = found_;
      } while (b != a);
      ++found_;
    }
  }

  void enter(int state) {
    index_[state] = low_[state] = visited_++;
    open_.push_back(state);
    visits_.push_back({state, 0});
  }

  std::vector<std::vector<int>> reads_;
  std::vector<int> index_, low_, of_;
  std::vector<int> open_;
  std::vector<Visit> visits_;
  int visited_ = 0, found_ = 0;
};

// The components in an order in which they can run; among those that could run next, the one whose
// first state is declared first.
std::vector<std::vector<int>> stages_of(const CellGraph& cell) {
  const int count = static_cast<int>(cell.updates.size());
  const Components components(cell);
  const std::size_t n = components.members.size();
  std::vector<std::set<int>> read_by(n);
  std::vector<std::size_t> waits_for(n);
  for (int a = 0; a < count; ++a)
    for (const int b : components.reads(a)) {
      const int reader = components.of(a), read = components.of(b);
      if (reader != read && read_by[read].insert(reader).second) ++waits_for[reader];
    }
  std::set<int> ready;
  for (std::size_t c = 0; c < n; ++c)
    if (waits_for[c] == 0) ready.insert(static_cast<int>(c));
  std::vector<std::vector<int>> order;
  while (!ready.empty()) {
    const int c = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(components.members[c]);
    for (const int reader : read_by[c])
      if (--waits_for[reader] == 0) ready.insert(reader);
  }
  return order;
}

// Has the step an operator whose slope hides a dependence? Without one, and where all slopes are products,
// the structural Jacobian is the true one, and deriving it again is half of the work on a large cell.
bool steps(const CellGraph& cell) {
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (NodeId id : reachable(cell.graph, roots)) {
    const Op op = cell.graph[id].op;
    if (is_elementwise(op) && (op_info(op).slope == Slope::Step || op == Op::Where || op == Op::Sign)) return true;
  }
  return false;
}

// Larger blocks are counted as text.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

class Analyser {
 public:
  Analyser(CellGraph& cell, const Jacobian& true_jacobian)
      : cell_(cell), g_(cell.graph), simplifier_(cell.graph), true_(true_jacobian),
        jacobian_(true_jacobian.chooses || steps(cell) ? differentiate(cell, SlopeRule::Structural) : true_jacobian) {}

  Structure run() {
    const int count = static_cast<int>(cell_.updates.size());
    Structure s;
    s.stage_of.assign(count, -1);
    s.linear = true;
    for (const std::vector<int>& states : stages_of(cell_)) {
      for (int u : states) s.stage_of[u] = static_cast<int>(s.stages.size());
      s.stages.push_back(stage(states, s));
      s.linear &= s.stages.back().linear;
    }
    // In the raw graph a value may read states that cancel; what runs needs them all the same.
    for (const Out& o : cell_.outs) s.out_stage.push_back(last_stage(o.value, s));
    for (int i = 0; i < static_cast<int>(s.stages.size()); ++i) s.stages[i].hoisted = hoisted(i, s);
    s.widest = widest(s);
    s.why = std::move(why_);
    return s;
  }

 private:
  const Symbol& state(int update) const { return cell_.symbols[cell_.updates[update].symbol]; }

  Stage stage(const std::vector<int>& states, const Structure& so_far) {
    Stage r;
    r.states = states;
    StageView view{cell_, jacobian_, simplifier_, states, {}};
    r.channel_axes = channels(states);
    view.channel_axes = r.channel_axes;
    std::set<AxisId> mixed;
    for (int u : states)
      for (AxisId a : state(u).index)
        if (!view.is_channel(a)) mixed.insert(a);
    r.mixed_axes.assign(mixed.begin(), mixed.end());
    r.block = block_size(view);
    for (int u : states) {
      std::string row;
      for (int v : states) row += letter(u, v);
      r.mask.push_back(row);
    }
    linearity(r, view);
    r.inputs_from = inputs(states, so_far);
    classify(r, view);
    r.scannable = r.linear ? Scannable::Affine : r.block.number == 1 ? classify_scannable(view) : Scannable::No;
    if (r.scannable == Scannable::Clip)
      why_.push_back({cell_.updates[states[0]].span, names(states) + " is a clip of an affine map of itself: an exact scan"});
    if (r.scannable == Scannable::Moebius)
      why_.push_back({cell_.updates[states[0]].span, names(states) + " is a Möbius map of itself: an exact scan of 2×2 matrices"});
    r.norm_bound = norm_bound(view, true_);
    r.rotation = is_rotation(view);
    return r;
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
    auto within = [&](int u) { return std::find(states.begin(), states.end(), u) != states.end(); };
    for (const JacobianBlock& b : jacobian_.blocks) {
      if (!within(b.row) || !within(b.column)) continue;
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

  BlockSize block_size(const StageView& view) {
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
        if (fits) number = longer;
        else symbolic.push_back(g_.axis(a).extent_of);
      }
      std::sort(symbolic.begin(), symbolic.end());
      terms[symbolic] += number;
    }
    BlockSize size;
    std::int64_t plain = 0;
    for (const auto& [axes, number] : terms) {
      if (axes.empty()) {
        plain = number;
        continue;
      }
      if (!size.text.empty()) size.text += " + ";
      if (number != 1) size.text += std::to_string(number) + "*";
      for (std::size_t i = 0; i < axes.size(); ++i) size.text += (i ? "*" : "") + g_.axis(axes[i]).name;
    }
    if (size.text.empty()) {
      size.number = plain;
      size.text = std::to_string(plain);
    } else if (plain) {
      size.text += " + " + std::to_string(plain);
    }
    return size;
  }

  char letter(int row, int column) {
    const JacobianBlock* b = jacobian_.find(row, column);
    if (!b) return '0';
    const auto& index = state(column).index;
    for (const JacobianTerm& term : b->terms)
      for (std::size_t p = 0; p < index.size(); ++p) {
        const bool tied = std::any_of(term.identities.begin(), term.identities.end(), [&](const auto& i) {
          return i.first == static_cast<int>(p) && i.second == index[p];
        });
        if (!tied) return 'F';
      }
    return 'd';
  }

  std::set<int> symbols_of(const std::vector<int>& states) const {
    std::set<int> own;
    for (int u : states) own.insert(cell_.updates[u].symbol);
    return own;
  }

  void linearity(Stage& r, const StageView& view) {
    const std::set<int> own = symbols_of(view.states);
    std::set<int> varying;
    for (std::size_t i = 0; i < cell_.symbols.size(); ++i)
      if (cell_.symbols[i].kind != SymbolKind::Param) varying.insert(static_cast<int>(i));
    r.linear = true;
    r.time_invariant = true;
    std::set<AxisId> axes;
    for (const JacobianBlock& b : jacobian_.blocks) {
      if (!view.contains(b.row) || !view.contains(b.column)) continue;
      for (const JacobianTerm& term : b.terms) {
        if (depends_on(g_, term.coefficient, own)) r.linear = false;
        if (depends_on(g_, term.coefficient, varying)) r.time_invariant = false;
        for (AxisId a : g_[term.coefficient].axes) axes.insert(g_.axis(a).extent_of);
      }
    }
    r.time_invariant &= r.linear;
    r.coefficient_axes.assign(axes.begin(), axes.end());
    if (!r.linear) blame_nonlinear(view, own);
  }

  // The innermost place where states stop entering affinely: operands affine, result not.
  void blame_nonlinear(const StageView& view, const std::set<int>& own) {
    std::set<std::uint32_t> told;
    for (int u : view.states) {
      std::map<NodeId, int> degree;  // 0 free, 1 affine, 2 neither
      for (NodeId id : reachable(g_, {cell_.updates[u].value})) {
        const Node& n = g_[id];
        int top = 0, moving = 0;
        for (NodeId a : n.args) top = std::max(top, degree[a]), moving += degree[a] > 0;
        int d = top;
        if (n.op == Op::Read) d = own.count(n.symbol) ? 1 : 0;
        else if (top == 1 && is_elementwise(n.op)) {
          switch (n.op) {
            case Op::Add: case Op::Sub: case Op::Neg: case Op::StopGradient: break;
            case Op::Mul: d = moving > 1 ? 2 : 1; break;
            case Op::Div: d = degree[n.args[1]] ? 2 : 1; break;
            case Op::Where: d = degree[n.args[0]] ? 2 : 1; break;
            default: d = 2;
          }
        } else if (top == 1 && (n.op == Op::Softmax || n.op == Op::ReduceMax || n.op == Op::MaxShare)) {
          d = 2;
        } else if (top == 1 && n.op == Op::Surrogate) {
          d = degree[n.args[0]];
        }
        degree[id] = d;
        if (d == 2 && top == 1 && n.span.length && told.insert(n.span.offset).second && told.size() <= 4) {
          const bool step = is_elementwise(n.op) && op_info(n.op).slope != Slope::Smooth;
          why_.push_back({n.span, "nonlinear in " + names(view.states) +
                                      (step ? ": the value has a step or a kink there, whatever its slope" : "")});
        }
      }
    }
  }

  std::vector<StageInput> inputs(const std::vector<int>& states, const Structure& so_far) {
    std::map<int, StructureClass> found;
    for (const JacobianBlock& b : jacobian_.blocks) {
      if (std::find(states.begin(), states.end(), b.row) == states.end()) continue;
      const int from = so_far.stage_of[b.column];
      if (from < 0 || from == static_cast<int>(so_far.stages.size())) continue;
      const StructureClass c = letter(b.row, b.column) == 'F' ? StructureClass::Dense : StructureClass::Diagonal;
      auto [it, fresh] = found.emplace(from, c);
      if (!fresh) it->second = std::max(it->second, c);
    }
    std::vector<StageInput> result;
    for (const auto& [from, c] : found) result.push_back({from, c});
    return result;
  }

  void classify(Stage& r, const StageView& view) {
    const Span span = cell_.updates[view.states[0]].span;
    const std::string who = names(view.states);
    if (view.states.size() > 1)
      why_.push_back({span, who + " form one stage: each needs the others' values of the step before"});
    if (r.block.number) {
      r.kind = *r.block.number == 1 ? StructureClass::Diagonal : StructureClass::BlockDiagonal;
      const std::string along = r.channel_axes.empty() ? "" : " along " + axis_list(r.channel_axes);
      why_.push_back({span, r.kind == StructureClass::Diagonal
                                ? "diagonal: no value of " + who + " moves" + along
                                : "blocks of " + r.block.text + ": " + who + " couple, and nothing moves" + along});
      return;
    }
    const LowRank low = classify_low_rank(view);
    if (low.applies) {
      r.kind = low.uniform ? StructureClass::IdentityPlusLowRank : StructureClass::DiagonalPlusLowRank;
      r.rank = low.rank;
      why_.push_back({span, std::string(to_string(r.kind)) + ": every coupling of " + who + " along " +
                                axis_list(r.mixed_axes) + " is an outer product; rank " + low.rank});
    } else {
      r.kind = r.channel_axes.empty() ? StructureClass::Dense : StructureClass::BlockDiagonal;
      why_.push_back(low.why_not);
    }
    blame_mixing(view, to_string(r.kind));
  }

  // Contractions and reductions in the source whose body reads the stage's states on a bound axis.
  void blame_mixing(const StageView& view, const std::string& kind) {
    const std::set<int> own = symbols_of(view.states);
    std::set<std::uint32_t> told;
    for (int u : view.states)
      for (NodeId id : reachable(g_, {cell_.updates[u].value})) {
        const Node& n = g_[id];
        if (n.bound.empty() || !n.span.length || !depends_on(g_, n.args[0], own)) continue;
        if (!told.insert(n.span.offset).second || told.size() > 6) continue;
        why_.push_back({n.span, kind + ": mixes the entries of " + names(view.states) + " along " +
                                    g_.axis(g_.axis(n.bound[0]).extent_of).name});
      }
  }

  bool is_rotation(const StageView& view) {
    if (view.states.size() != 2) return false;
    NodeId c[2][2];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const JacobianBlock* b = true_.find(view.states[i], view.states[j]);
        if (!b || b->terms.size() != 1 || letter(view.states[i], view.states[j]) != 'd') return false;
        c[i][j] = b->terms[0].coefficient;
      }
    return c[0][0] == c[1][1] && simplifier_.is_zero(g_.op(Op::Add, {c[0][1], c[1][0]}));
  }

  int last_stage(NodeId value, const Structure& s) const {
    int last = -1;
    for (NodeId n : reachable(g_, {value}))
      if (g_[n].op == Op::Read)
        for (std::size_t u = 0; u < cell_.updates.size(); ++u)
          if (cell_.updates[u].symbol == g_[n].symbol) last = std::max(last, s.stage_of[u]);
    return last;
  }

  std::vector<NodeId> hoisted(int stage, const Structure& s) {
    std::vector<NodeId> roots;
    for (int u : s.stages[stage].states) roots.push_back(cell_.updates[u].value);
    for (std::size_t o = 0; o < cell_.outs.size(); ++o)
      if (s.out_stage[o] == stage) roots.push_back(cell_.outs[o].value);
    const std::vector<NodeId> order = reachable(g_, roots);
    std::map<NodeId, bool> early;
    for (NodeId id : order) {
      bool e = true;
      for (NodeId a : g_[id].args) e &= early[a];
      if (g_[id].op == Op::Read)
        for (std::size_t u = 0; u < cell_.updates.size(); ++u)
          if (cell_.updates[u].symbol == g_[id].symbol) e &= s.stage_of[u] < stage;
      early[id] = e;
    }
    // Maximal: what a value of this stage reads, or a root that is early itself.
    std::set<NodeId> found;
    for (NodeId id : order)
      if (!early[id])
        for (NodeId a : g_[id].args)
          if (early[a]) found.insert(a);
    for (NodeId r : roots)
      if (early[r]) found.insert(r);
    std::erase_if(found, [&](NodeId id) { return g_[id].args.empty(); });
    return {found.begin(), found.end()};
  }

  int widest(const Structure& s) const {
    auto rank = [](StructureClass c) {
      switch (c) {
        case StructureClass::Diagonal: return 0;
        case StructureClass::BlockDiagonal: return 1;
        case StructureClass::Dense: return 3;
        default: return 2;
      }
    };
    // Where lengths are symbolic they count as large: more symbolic factors, then the number.
    auto width = [&](const Stage& t) {
      std::pair<std::size_t, std::int64_t> w{0, 0};
      for (int u : t.states) {
        std::size_t symbolic = 0;
        std::int64_t number = 1;
        for (AxisId a : state(u).index) {
          if (std::find(t.channel_axes.begin(), t.channel_axes.end(), a) != t.channel_axes.end()) continue;
          if (const auto fixed = g_.axis(a).fixed) number *= *fixed;
          else ++symbolic;
        }
        if (symbolic > w.first) w = {symbolic, 0};
        if (symbolic == w.first) w.second += number;
      }
      return w;
    };
    auto elements = [&](const Stage& t) {
      std::pair<std::size_t, std::int64_t> e{0, 0};
      for (int u : t.states) {
        std::size_t symbolic = 0;
        std::int64_t number = 1;
        for (AxisId a : state(u).index) {
          if (const auto fixed = g_.axis(a).fixed) number *= *fixed;
          else ++symbolic;
        }
        if (symbolic > e.first) e = {symbolic, 0};
        if (symbolic == e.first) e.second += number;
      }
      return e;
    };
    int best = 0;
    auto key = [&](int i) {
      const Stage& t = s.stages[i];
      return std::make_tuple(rank(t.kind), width(t), elements(t));
    };
    for (int i = 1; i < static_cast<int>(s.stages.size()); ++i)
      if (key(i) > key(best)) best = i;
    return best;
  }

  std::string names(const std::vector<int>& states) const {
    std::string text;
    for (std::size_t i = 0; i < states.size(); ++i)
      text += (i == 0 ? "" : i + 1 == states.size() ? " and " : ", ") + state(states[i]).name;
    return text;
  }

  std::string axis_list(const std::vector<AxisId>& axes) const {
    std::string text;
    for (AxisId a : axes) text += (text.empty() ? "" : ", ") + g_.axis(g_.axis(a).extent_of).name;
    return text;
  }

  CellGraph& cell_;
  Graph& g_;
  Simplifier simplifier_;
  const Jacobian& true_;
  Jacobian jacobian_;
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
