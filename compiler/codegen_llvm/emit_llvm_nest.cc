// Loop nests of a kernel.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "compiler/codegen_llvm/emit_llvm_kernel.h"
#include "compiler/codegen_llvm/emit_llvm_text.h"

namespace cellc {

bool KernelEmitter::has_axis(const std::vector<AxisId>& axes, AxisId axis) const {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool KernelEmitter::differs_in_block(NodeId id) {
  return blocks_ > 1 && (has_axis(node(id).axes, block_axis_) || (together_ > 1 && varies_(id)));
}

bool KernelEmitter::differs_by_sequence(const Home& home) const {
  return together_ > 1 && home.place != Place::Param && home.place != Place::Once;
}

void KernelEmitter::nest(const Nest& nest) {
  // Sums of all sequences are one nest, which reads a param once for all; anything else is a nest a sequence. Rows that
  // are found inside loops over lags are none of the block's.
  const bool one =
      options_.sequences > 1 && nest.is_reduction() &&
      std::none_of(nest.loads.begin(), nest.loads.end(), [](const Access& a) { return a.lag_axis != kNoAxis; });
  // Of nests with many sums two at a time: 16 accumulators do not fit into as many registers.
  const int most = options_.vector_bits < 512 && nest.nodes.size() > 2 ? 2 : options_.sequences;
  together_ = one ? std::min(most, options_.sequences) : 1;
  for (sequence_ = 0; sequence_ < options_.sequences; sequence_ += together_) {
    if (nest.is_reduction()) {
      reduction_nest(nest);
    } else {
      map_nest(nest);
    }
  }
  together_ = 1;
}

void KernelEmitter::begin_nest(const Nest& nest) {
  vector_axis_ = nest.vector_axis;
  lanes_ = vector_axis_ == kNoAxis ? 1 : wide_;
  loops_.clear();
  masks_.assign(1, "");
  references_.clear();
  values_.assign(blocks_, {});
  made_here_ = {nest.nodes.begin(), nest.nodes.end()};
  made_here_.insert(nest.inlined.begin(), nest.inlined.end());
  std::vector<std::vector<AxisId>> order = nest.loops;
  for (const AxisId a : nest.bound_loops) order.push_back({a});
  const auto add = [&](Reference r, AxisId lag_axis) {
    for (std::size_t d = 0; d < order.size(); ++d) {
      bool inside = lag_axis != kNoAxis && has_axis(order[d], lag_axis);
      for (const Index& i : r.index) inside = inside || (i.is_axis() && has_axis(order[d], i.axis));
      if (inside) r.depth = static_cast<int>(d) + 1;
    }
    int times = 0;
    for (const Index& i : r.index) {
      times += i.is_axis() && i.axis == vector_axis_;
    }
    r.lanes = lanes_ > 1 && times > 0;
    r.contiguous = times == 1 && r.index.back().is_axis() && r.index.back().axis == vector_axis_;
    references_.push_back(std::move(r));
  };
  for (const Access& a : nest.loads) {
    Reference r;
    r.load = &a;
    r.index = a.index;
    r.home = &a.home;
    add(std::move(r), a.lag_axis);
  }
  for (const Store& s : nest.stores) {
    Reference r;
    r.store = &s;
    for (const AxisId a : s.home.dims) r.index.push_back({a, 0});
    r.home = &s.home;
    add(std::move(r), kNoAxis);
  }
  for (Reference& r : references_) advance(r);
}

/// Moves an access's address by the loop that was entered last (or to its base, outside of all).
void KernelEmitter::advance(Reference& r) {
  const auto move = [&](const std::string& by, const std::string& stride, std::string& pointer) {
    std::string offset = by;
    if (stride != "1") {
      offset = fresh("at");
      line("{} = mul i64 {}, {}", offset, by, stride);
    }
    const std::string moved = fresh("p");
    line("{} = getelementptr {}, ptr {}, i64 {}", moved, storage_type(*r.home), pointer, offset);
    pointer = moved;
  };
  const auto move_by_loop = [&](const Loop& loop) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < r.index.size(); ++i) {
      const bool here = loop.axes.size() == 1 ? r.index[i].axis == loop.axes[0] : r.index[i].axis == loop.axes.back();
      if (r.index[i].is_axis() && here) places.push_back(i);
    }
    if (places.empty()) return;
    if (loop.position.size() > r.pointer.size()) r.pointer.resize(loop.position.size(), r.pointer[0]);
    for (const std::size_t place : places) {
      const std::string s = stride(*r.home, place);
      for (std::size_t b = 0; b < r.pointer.size(); ++b) {
        move(loop.position[loop.position.size() == 1 ? 0 : b], s, r.pointer[b]);
      }
    }
  };
  const auto move_by_literals = [&] {
    for (std::size_t i = 0; i < r.index.size(); ++i) {
      if (!r.index[i].is_axis() && r.index[i].literal != 0) {
        for (std::string& pointer : r.pointer) move(fmt::format("{}", r.index[i].literal), stride(*r.home, i), pointer);
      }
    }
  };
  const AxisId lag_axis = r.load ? r.load->lag_axis : kNoAxis;
  if (r.load && (is_held(*r.home) || is_coefficient(r))) {
    if (r.depth != static_cast<int>(loops_.size())) return;
    for (int b = 0; b < (differs_by_sequence(*r.home) ? blocks_ : 1); ++b) {
      sequence_ += b % together_;
      std::string v = is_held(*r.home) ? old_state(r.home->id) + ".held" : coefficient(r);
      sequence_ -= b % together_;
      if (lanes_ > 1 && !r.lanes) v = splat(scalar_type(), v);
      values_[static_cast<std::size_t>(b)][r.load->node] = v;
    }
    return;
  }
  if (loops_.empty() && lag_axis == kNoAxis) {
    r.pointer.clear();
    for (int b = 0; b < (differs_by_sequence(*r.home) ? blocks_ : 1); ++b) {
      sequence_ += b % together_;
      r.pointer.push_back(r.load && r.load->lag > 0 ? lagged_base(*r.load, "") : base(*r.home));
      sequence_ -= b % together_;
    }
    move_by_literals();
  } else if (!loops_.empty() && lag_axis != kNoAxis && has_axis(loops_.back().axes, lag_axis)) {
    // The row is known only here; catch up with the loops around.
    r.pointer = {lagged_base(*r.load, loops_.back().position[0])};
    move_by_literals();
    for (const Loop& loop : loops_) move_by_loop(loop);
  } else if (!loops_.empty() && !r.pointer.empty()) {
    move_by_loop(loops_.back());
  }
  if (r.load && r.depth == static_cast<int>(loops_.size())) load_reference(r);
}

void KernelEmitter::load_reference(Reference& r) {
  for (std::size_t b = 0; b < r.pointer.size(); ++b) {
    const std::string& mask = masks_[masks_.size() == 1 ? 0 : b];
    std::string v = load(*r.home, r.pointer[b], r.lanes, r.contiguous, r.contiguous ? "1" : lane_stride(r), mask);
    if (!r.lanes && lanes_ > 1) v = splat(scalar_type(), v);
    values_[b][r.load->node] = v;
  }
}

void KernelEmitter::enter(const Loop& loop) {
  loops_.push_back(loop);
  for (Reference& r : references_) advance(r);
}

/// Positions that this call walks: all, or its share of the axis that is cut among threads.
std::pair<std::string, std::string> KernelEmitter::range(const std::vector<AxisId>& group) {
  if (kernel_.once || plan_.split_axis == kNoAxis || group[0] != plan_.split_axis) return {"0", length_of(group)};
  if (group.size() == 1) return {"%lane_begin", "%lane_end"};
  const std::string inner = length_of({group.begin() + 1, group.end()});
  const std::string begin = fresh("begin"), end = fresh("end");
  fmt::format_to(std::back_inserter(entry_), "  {} = mul i64 %lane_begin, {}\n", begin, inner);
  fmt::format_to(std::back_inserter(entry_), "  {} = mul i64 %lane_end, {}\n", end, inner);
  return {begin, end};
}

std::string KernelEmitter::lane_mask(const std::string& position, const std::string& end) {
  const std::string left = fresh("left"), few = fresh(), low = fresh(), narrow = fresh(), mask = fresh("mask");
  line("{} = sub i64 {}, {}", left, end, position);
  line("{} = icmp slt i64 {}, {}", few, left, wide_);
  line("{} = select i1 {}, i64 {}, i64 {}", low, few, left, wide_);
  line("{} = trunc i64 {} to i32", narrow, low);
  const std::string all = splat("i32", narrow);
  line("{} = icmp sgt {} {}, {}", mask, vector_type("i32"), all, iota("i32"));
  return mask;
}

bool KernelEmitter::in_whole_vectors(const std::vector<AxisId>& group) const {
  return options_.whole_vectors && !kernel_.once && group.size() == 1 && group[0] == plan_.split_axis;
}

void KernelEmitter::map_nest(const Nest& nest) {
  blocks_ = 1;
  block_axis_ = kNoAxis;
  begin_nest(nest);
  std::vector<OpenLoop> open;
  for (std::size_t d = 0; d < nest.loops.size(); ++d) {
    const bool lanes = lanes_ > 1 && d + 1 == nest.loops.size();
    if (one_vector_) {
      masks_[0] = one_mask();
      enter({nest.loops[d], {"%lane_begin"}});
      continue;
    }
    const auto [begin, end] = range(nest.loops[d]);
    open.push_back(open_loop(begin, end, lanes ? fmt::format("{}", wide_) : "1"));
    if (lanes && !in_whole_vectors(nest.loops[d])) masks_[0] = lane_mask(open.back().counter, end);
    enter({nest.loops[d], {open.back().counter}});
  }
  for (const NodeId id : nest.nodes) compute(id, 0);
  emit_stores(nest);
  keep_scalars(nest);
  while (!open.empty()) {
    close_loop(open.back());
    open.pop_back();
  }
}

/// What the rest of the step reads in registers.
void KernelEmitter::keep_scalars(const Nest& nest) {
  if (!nest.loops.empty()) return;
  for (int s = 0; s < together_; ++s)
    for (const NodeId id : nest.nodes) registers_[static_cast<std::size_t>(sequence_ + s)][id] = value(id, s);
}

/// Several rows side by side share what they read in common, and their sums are independent chains. So do sequences,
/// which share the params. Together about eight accumulators: more would not fit beside the operands in 16 registers;
/// of sequences together, which load less for each, 24 where vectors of 512 bits have 32 (docs/notes/strategies.md).
void KernelEmitter::choose_block(const Nest& nest, bool lanes_bound) {
  blocks_ = 1;
  block_axis_ = kNoAxis;
  const bool heavy = std::any_of(nest.inlined.begin(), nest.inlined.end(),
                                 [&](NodeId id) { return llvm_math::has_function(node(id).op); });
  if (!nest.loops.empty() && !heavy) {
    block_axis_ = nest.loops.back().back();
    const std::size_t sums = nest.nodes.size();
    blocks_ = sums == 1 ? 8 : sums == 2 ? 4 : sums <= 4 ? 2 : 1;
    if (!lanes_bound) blocks_ = std::max(1, blocks_ / 2);
    if (together_ > 1)
      blocks_ = std::max(1, (options_.vector_bits == 512 ? 24 : 8) / (static_cast<int>(sums) * together_));
    const std::optional<std::int64_t> fixed = plan_.cell.graph.axis(extent(block_axis_)).fixed;
    if (fixed) blocks_ = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(blocks_, *fixed)));
    // Along an axis of lags each row reads another step, and so nothing from where the one beside it does.
    if (std::any_of(nest.loads.begin(), nest.loads.end(), [&](const Access& a) { return a.lag_axis == block_axis_; })) {
      blocks_ = 1;
      block_axis_ = kNoAxis;
    }
  }
  if (blocks_ == 1) block_axis_ = kNoAxis;
  blocks_ *= together_;
}

/// Positions of the block's rows. Each row stands there for all sequences, one after another.
KernelEmitter::Loop KernelEmitter::block_of_rows(const Nest& nest, const OpenLoop& open, const std::string& end,
                                                 bool lanes) {
  const int stride = lanes ? wide_ : 1, rows = blocks_ / together_;
  Loop loop{nest.loops.back(), {}};
  if (lanes) masks_.clear();
  std::string final_position;
  for (int row = 0; row < rows; ++row) {
    std::string position = open.counter, mask;
    if (row > 0) {
      const std::string next = fresh("i");
      line("{} = add i64 {}, {}", next, position, row * stride);
      position = next;
    }
    if (lanes) {
      if (row > 0 || !in_whole_vectors(nest.loops.back())) mask = lane_mask(position, end);
    } else if (row > 0) {
      // Past the end the last row is computed again and written with the same bits: no remainder loop.
      if (final_position.empty()) {
        final_position = fresh("i");
        line("{} = sub i64 {}, 1", final_position, end);
      }
      const std::string over = fresh(), clamped = fresh("i");
      line("{} = icmp slt i64 {}, {}", over, position, end);
      line("{} = select i1 {}, i64 {}, i64 {}", clamped, over, position, final_position);
      position = clamped;
    }
    const std::size_t times = rows > 1 ? static_cast<std::size_t>(together_) : 1;
    loop.position.insert(loop.position.end(), times, position);
    if (lanes) masks_.insert(masks_.end(), times, mask);
  }
  return loop;
}

void KernelEmitter::reduction_nest(const Nest& nest) {
  const bool lanes_bound = nest.vector_axis != kNoAxis && nest.bound_loops.back() == nest.vector_axis;
  choose_block(nest, lanes_bound);
  begin_nest(nest);
  std::vector<OpenLoop> open;
  for (std::size_t d = 0; d < nest.loops.size(); ++d) {
    const bool last = d + 1 == nest.loops.size();
    const bool lanes = last && lanes_ > 1 && !lanes_bound;
    const auto [begin, end] = range(nest.loops[d]);
    const int stride = lanes ? wide_ : 1;
    open.push_back(open_loop(begin, end, fmt::format("{}", last ? stride * (blocks_ / together_) : 1)));
    enter(last ? block_of_rows(nest, open.back(), end, lanes) : Loop{nest.loops[d], {open.back().counter}});
  }
  std::vector<std::string> sums;
  for (const NodeId id : nest.nodes) {
    const double identity = node(id).op == Op::ReduceSum ? 0.0 : -std::numeric_limits<double>::infinity();
    for (int b = 0; b < blocks_; ++b) sums.push_back(constant(identity));
  }
  emit_bound(nest, 0, sums);
  const int lanes_inside = lanes_;
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    for (int b = 0; b < blocks_; ++b) {
      std::string& sum = sums[i * blocks_ + b];
      if (lanes_bound && lanes_ > 1) sum = fold_lanes(node(nest.nodes[i]).op, sum);
      values_[b][nest.nodes[i]] = sum;
    }
  }
  if (lanes_bound) lanes_ = 1;
  emit_stores(nest);
  lanes_ = lanes_inside;
  keep_scalars(nest);
  while (!open.empty()) {
    close_loop(open.back());
    open.pop_back();
  }
}

/// The loops over bound axes from `depth` on; adds to `sums`.
void KernelEmitter::emit_bound(const Nest& nest, std::size_t depth, std::vector<std::string>& sums) {
  if (depth == nest.bound_loops.size()) {
    accumulate(nest, sums);
    return;
  }
  const AxisId axis = nest.bound_loops[depth];
  const bool lanes = lanes_ > 1 && axis == vector_axis_;
  const std::string end = length(axis);
  const auto references = references_;
  const auto values = values_;
  const auto restore = [&] {
    references_ = references;
    values_ = values;
    loops_.pop_back();
  };
  std::string full = end;
  if (lanes) {
    full = fresh("full");
    line("{} = and i64 {}, {}", full, end, -wide_);
  }
  std::vector<StepWithTransition> carried;
  for (const std::string& s : sums) carried.push_back({type(), fresh("sum"), s});
  OpenLoop loop = open_loop("0", full, lanes ? fmt::format("{}", wide_) : "1", carried);
  enter({{axis}, {loop.counter}});
  std::vector<std::string> next;
  for (const StepWithTransition& c : carried) next.push_back(c.name);
  emit_bound(nest, depth + 1, next);
  restore();
  close_loop(loop, next);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = carried[i].name;
  if (!lanes) return;
  // What is left of the last vector.
  const std::string tail = fresh("tail"), after = tail + ".end", from = block_;
  line("{}.any = icmp slt i64 {}, {}", tail, full, end);
  line("br i1 {}.any, label {}, label {}", tail, tail, after);
  label(tail);
  masks_[0] = lane_mask(full, end);
  enter({{axis}, {full}});
  std::vector<std::string> more = sums;
  emit_bound(nest, depth + 1, more);
  restore();
  masks_[0].clear();
  line("br label {}", after);
  const std::string end_of_tail = block_;
  label(after);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::string merged = fresh("sum");
    line("{} = phi {} [ {}, {} ], [ {}, {} ]", merged, type(), sums[i], from, more[i], end_of_tail);
    sums[i] = merged;
  }
}

void KernelEmitter::accumulate(const Nest& nest, std::vector<std::string>& sums) {
  for (const NodeId id : nest.inlined) {
    for (int b = 0; b < (differs_in_block(id) ? blocks_ : 1); ++b) compute(id, b);
  }
  const bool lanes_bound = lanes_ > 1 && nest.bound_loops.back() == vector_axis_;
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    const Node& n = node(nest.nodes[i]);
    for (int b = 0; b < blocks_; ++b) {
      std::string v = value(n.args[0], b);
      std::string& sum = sums[i * blocks_ + b];
      if (n.op == Op::ReduceSum) {
        const std::string more = is_fused(n.args[0]) ? add_product(n.args[0], b, sum) : arithmetic("fadd", sum, v);
        sum = lanes_bound && !masks_[0].empty() ? select(masks_[0], more, sum) : more;
      } else {
        if (lanes_bound && !masks_[0].empty()) {
          v = select(masks_[0], v, constant(-std::numeric_limits<double>::infinity()));
        }
        sum = pick_extreme(true, sum, v);
      }
    }
  }
}

void KernelEmitter::emit_stores(const Nest&) {
  for (Reference& r : references_) {
    if (!r.store) continue;
    for (std::size_t b = 0; b < r.pointer.size(); ++b) {
      const std::string v = value(r.store->value, static_cast<int>(b));
      const auto held = held_.find({sequence_ + static_cast<int>(b) % together_, r.home->id});
      if (r.home->place == Place::StateNew && held != held_.end()) held->second = v;
      const bool lanes = r.lanes && lanes_ > 1;
      store(*r.home, r.pointer[b], lanes, r.contiguous, !lanes || r.contiguous ? "1" : lane_stride(r),
            masks_[masks_.size() == 1 ? 0 : b], v);
    }
  }
}

/// Whether a sum takes a product as one instruction: wherever a nest makes both, whoever else reads the product. LLVM's
/// own choice, the flag `contract`, follows from how often it is read, so that two kernels which share a step's formula
/// would round it differently: the whole step, in which an out or another state reads the product too, and the lanes of
/// one stage. A state's new value is none: lanes of later stages read it, rounded. Only where a plan has the two in
/// different nests may they still (CellPrograms::adds_otherwise).
bool KernelEmitter::is_fused(NodeId product) const {
  const Op op = node(product).op;
  return (op == Op::Mul || op == Op::Square) && made_here_.contains(product) && !new_states_.contains(product);
}

std::string KernelEmitter::add_product(NodeId product, int block, const std::string& sum, bool minus) {
  const Node& n = node(product);
  const std::string a = value(n.args[0], block), b = value(n.args.back(), block);
  return multiply_add(minus ? negated(a) : a, b, sum);
}

/// The sum or difference of two values, of which the first that may be is a product to be fused; else empty.
std::string KernelEmitter::sum_with_product(const Node& n, int block) {
  if (n.op != Op::Add && n.op != Op::Sub) return {};
  const bool minus = n.op == Op::Sub;
  if (is_fused(n.args[0])) {
    const std::string other = value(n.args[1], block);
    return add_product(n.args[0], block, minus ? negated(other) : other);
  }
  if (is_fused(n.args[1])) return add_product(n.args[1], block, value(n.args[0], block), minus);
  return {};
}

void KernelEmitter::compute(NodeId id, int block) {
  const Node& n = node(id);
  if (std::string fused = sum_with_product(n, block); !fused.empty()) {
    values_[block][id] = std::move(fused);
    return;
  }
  std::vector<std::string> args;
  for (const NodeId a : n.args) args.push_back(value(a, block));
  values_[block][id] = elementwise(n.op, args);
}

std::string KernelEmitter::value(NodeId id, int block) {
  const Node& n = node(id);
  const auto registers_of = [&](int b) { return static_cast<std::size_t>(sequence_ + b % together_); };
  switch (n.op) {
    case Op::Constant:
      return constant(n.number);
    case Op::Eye:
    case Op::OneHot:
      return position_value(n, block);
    case Op::Size: {
      const auto [it, first] = registers_[registers_of(block)].try_emplace(id);
      if (first) {
        it->second = fresh("length");
        fmt::format_to(std::back_inserter(entry_), "  {} = sitofp i64 {} to {}\n", it->second, length(n.index[0].axis),
                       scalar_type());
      }
      break;
    }
    default:
      break;
  }
  auto& known = values_[differs_in_block(id) ? block : 0];
  if (const auto it = known.find(id); it != known.end()) return it->second;
  const auto& registers = registers_[registers_of(block)];
  const auto scalar = registers.find(id);
  if (scalar == registers.end()) throw std::logic_error("emit: a value is used before it is computed");
  return lanes_ > 1 ? splat(scalar_type(), scalar->second) : scalar->second;
}

/// 1 where two indices are equal, else 0.
std::string KernelEmitter::position_value(const Node& n, int block) {
  bool lanes = false;
  std::vector<std::string> sides;
  for (const Index& i : n.index) lanes = lanes || (lanes_ > 1 && i.is_axis() && i.axis == vector_axis_);
  for (const Index& i : n.index) {
    std::string position = fmt::format("{}", i.literal);
    if (i.is_axis()) {
      const auto loop = std::find_if(loops_.begin(), loops_.end(), [&](const Loop& l) { return l.axes[0] == i.axis; });
      if (loop == loops_.end()) throw std::logic_error("emit: an index without its loop");
      position = loop->position[loop->position.size() == 1 ? 0 : block];
    }
    if (lanes) {
      position = splat("i64", position);
      if (i.is_axis() && i.axis == vector_axis_) {
        const std::string each = fresh();
        line("{} = add {} {}, {}", each, vector_type("i64"), position, iota("i64"));
        position = each;
      }
    }
    sides.push_back(position);
  }
  const std::string equal = fresh(), one = fresh();
  line("{} = icmp eq {} {}, {}", equal, lanes ? vector_type("i64") : "i64", sides[0], sides[1]);
  if (lanes) return select(equal, constant(1), constant(0));
  const int lanes_here = lanes_;
  lanes_ = 1;
  const std::string scalar = select(equal, constant(1), constant(0));
  lanes_ = lanes_here;
  return lanes_ > 1 ? splat(scalar_type(), scalar) : scalar;
}

}  // namespace cellc
