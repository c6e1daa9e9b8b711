// The frame of a kernel: slots, lengths, row pointers, the loop over time.
#include "compiler/codegen_llvm/emit_llvm_kernel.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "compiler/codegen_llvm/emit_llvm_text.h"

namespace cellc {

namespace {
/// LLVM reduces the strength of no more values of a loop than this, and so does not carry them after all.
constexpr std::size_t kMostCarriedRows = 200;
/// States, and numbers that are the same at every step, that stay in registers or, beyond those, on the stack.
constexpr std::size_t kMostHeld = 100;

struct SlotTraits {
  const char* stem;
  bool number, common;
};
constexpr SlotTraits kSlots[] = {
#define CELLC_SLOT(Name, name, number, common) {name, number != 0, common != 0},
#include "compiler/codegen_llvm/slots.def"
};
}  // namespace

KernelEmitter::KernelEmitter(const Plan& plan, int kernel, const EmitOptions& options,
                             std::set<llvm_math::Request>& functions)
    : plan_(plan),
      kernel_(plan.kernels[kernel]),
      kernel_index_(kernel),
      options_(options),
      functions_(functions),
      f64_(options.storage == Storage::F64),
      wide_(options.vector_bits / (f64_ ? 64 : 32)),
      varies_(plan.cell.graph, all_but_params(plan.cell)),
      registers_(static_cast<std::size_t>(options.sequences)) {
  for (std::size_t u = 0; u < plan.cell.updates.size() && !plan.options.narrow_storage && !options.from_given; ++u)
    if (plan.state_kernel[u] == kernel && plan.cell.symbols[plan.cell.updates[u].symbol].axes.empty())
      for (int s = 0; s < options.sequences; ++s) held_[{s, static_cast<int>(u)}];
  if (held_.size() > kMostHeld) held_.clear();
  for (const StateUpdate& u : plan.cell.updates) new_states_.insert(u.value);
}

std::string KernelEmitter::fresh(const char* stem) { return fmt::format("%{}{}", stem, counter_++); }

bool KernelEmitter::fits_one_vector(const Plan& plan, const Kernel& kernel) {
  const AxisId split = plan.split_axis;
  if (kernel.once || split == kNoAxis || plan.options.narrow_storage || kernel.nests.empty()) return false;
  const auto index = static_cast<int>(&kernel - plan.kernels.data());
  bool any = false;
  for (std::size_t u = 0; u < plan.state_kernel.size(); ++u) {
    if (plan.state_kernel[u] != index) continue;
    if (plan.cell.symbols[plan.cell.updates[u].symbol].axes != std::vector<AxisId>{split}) return false;
    any = true;
  }
  return any && std::all_of(kernel.nests.begin(), kernel.nests.end(), [&](const Nest& n) {
           const bool lanes = n.loops == std::vector<std::vector<AxisId>>{{split}} && n.vector_axis == split;
           return !n.is_reduction() && (n.loops.empty() || lanes) &&
                  std::none_of(n.nodes.begin(), n.nodes.end(),
                               [&](NodeId id) { return llvm_math::has_function(plan.cell.graph[id].op); }) &&
                  std::all_of(n.loads.begin(), n.loads.end(), [](const Access& a) { return a.lag_axis == kNoAxis; });
         });
}

void KernelEmitter::expect_one_vector(std::vector<Slot> known) {
  slots = std::move(known);
  one_vector_ = true;
  for (std::size_t u = 0; u < plan_.state_kernel.size(); ++u)
    if (plan_.state_kernel[u] == kernel_index_) held_[{0, static_cast<int>(u)}];
}

std::string KernelEmitter::slot(SlotKind kind, int id) {
  const auto [stem, number, common] = kSlots[static_cast<std::size_t>(kind)];
  const int sequence = common ? 0 : sequence_;
  const auto [it, first] = slot_names_.try_emplace({kind, id, sequence});
  if (!first) return it->second;
  auto place = std::find(slots.begin(), slots.end(), Slot{kind, id});
  if (place == slots.end()) place = slots.insert(slots.end(), {kind, id});
  std::string name = fmt::format("%{}.{}", stem, id);
  if (sequence > 0) name = of_sequence(name);
  fmt::format_to(std::back_inserter(entry_), "  {0}.slot = getelementptr i64, ptr %slots, i64 {1}\n", name,
                 (place - slots.begin()) * options_.sequences + sequence);
  fmt::format_to(std::back_inserter(entry_), "  {0} = load {1}, ptr {0}.slot, align 8\n", name, number ? "i64" : "ptr");
  return it->second = name;
}

std::string KernelEmitter::length(AxisId axis) {
  const Axis& header = plan_.cell.graph.axis(extent(axis));
  if (header.fixed) return fmt::format("{}", *header.fixed);
  return slot(SlotKind::Length, static_cast<int>(extent(axis)));
}

/// Product of lengths; computed once, before the loop over time.
std::string KernelEmitter::length_of(const std::vector<AxisId>& axes) {
  if (axes.empty()) return "1";
  if (axes.size() == 1) return length(axes[0]);
  std::vector<AxisId> key;
  for (const AxisId a : axes) key.push_back(extent(a));
  std::sort(key.begin(), key.end());
  if (const auto it = lengths_.find(key); it != lengths_.end()) return it->second;
  const std::vector<AxisId> rest(key.begin() + 1, key.end());
  const std::string head = length(key[0]), tail = length_of(rest), name = fresh("size");
  fmt::format_to(std::back_inserter(entry_), "  {} = mul i64 {}, {}\n", name, head, tail);
  return lengths_[key] = name;
}

Home KernelEmitter::row_of(int state) const {
  return {Place::StateRow, state, plan_.cell.symbols[plan_.cell.updates[static_cast<std::size_t>(state)].symbol].axes};
}

/// The row that step t reads or writes; moves with the loop over time.
std::string KernelEmitter::row(SlotKind kind, const Home& home, SlotKind step) {
  const auto [it, first] = rows_.try_emplace({kind, home.id, sequence_});
  if (!first) return it->second.name;
  const std::string start = slot(kind, home.id);
  it->second = {start + ".row", start, ""};
  if (options_.even_rows && home.dims.empty()) {
    it->second.even = stored_narrow(home) ? 2 : element_bits() / 8;
    std::string& even = even_steps_[it->second.even];
    if (even.empty()) even = slot(step, home.id);
    it->second.step = even;
  } else {
    it->second.step = slot(step, home.id);
  }
  return it->second.name;
}

std::string KernelEmitter::base(const Home& home) {
  switch (home.place) {
    case Place::Param:
      return slot(SlotKind::Param, home.id);
    case Place::Once:
      return slot(SlotKind::Once, home.id);
    case Place::Temp:
      return slot(SlotKind::Temp, home.id);
    case Place::Input:
      return row(SlotKind::InputRow, home, SlotKind::InputStep);
    case Place::Out:
      return row(SlotKind::OutRow, home, SlotKind::OutStep);
    case Place::Chunk:
      return row(SlotKind::ChunkRow, home, SlotKind::ChunkStep);
    case Place::StateRow:
      return row(SlotKind::StateRow, home, SlotKind::StateStep);
    case Place::StateOld:
    case Place::StateNew: {
      // Another kernel sees new states in the rows they were written to.
      const bool own = plan_.state_kernel[home.id] == kernel_index_;
      if (own && !held_.contains({sequence_, home.id})) carried_.insert({sequence_, home.id});
      if (home.place == Place::StateOld) return old_state(home.id) + ".row";
      if (plan_.options.narrow_storage) return new_state(home.id) + ".row";
      return row(SlotKind::StateRow, home, SlotKind::StateStep);
    }
  }
  throw std::logic_error("emit: no such place");
}

/// The rows in which a step's states are old ones of the next.
SlotKind KernelEmitter::next_old() const { return options_.from_given ? SlotKind::StateGiven : SlotKind::StateRow; }

/// A state of one number: what the next step reads of it is a register, which no store has to reach memory for.
bool KernelEmitter::is_held(const Home& home) const {
  return home.place == Place::StateOld && held_.contains({sequence_, home.id});
}

std::string KernelEmitter::old_state(int state) const { return of_sequence(fmt::format("%old.{}", state)); }
std::string KernelEmitter::new_state(int state) const { return of_sequence(fmt::format("%new.{}", state)); }

std::string KernelEmitter::of_sequence(const std::string& name) const {
  return sequence_ == 0 ? name : fmt::format("{}.of{}", name, sequence_);
}

/// A number of a param's: stores into rows might change it for all that LLVM knows, so it would be loaded every step.
bool KernelEmitter::is_coefficient(const Reference& r) const {
  if (kernel_.once || (r.home->place != Place::Param && r.home->place != Place::Once)) return false;
  if (coefficients_.size() >= kMostHeld && !coefficients_.contains(r.load->node)) return false;
  // Of a vector that is the only one, all lanes at once.
  if (one_vector_ && r.lanes && r.contiguous) return true;
  return std::none_of(r.index.begin(), r.index.end(), [](const Index& i) { return i.is_axis(); });
}

std::string KernelEmitter::coefficient(const Reference& r) {
  const auto [it, first] = coefficients_.try_emplace(r.load->node);
  if (!first) return it->second;
  const int lanes = std::exchange(lanes_, r.lanes ? wide_ : 1);
  const std::string mask = r.lanes ? one_mask() : std::string();
  std::string code = std::exchange(code_, std::move(begin_));
  std::string pointer = base(*r.home);
  for (std::size_t i = 0; i < r.index.size(); ++i) {
    const bool lane = r.index[i].is_axis();
    if (!lane && r.index[i].literal == 0) continue;
    const std::string offset = fresh("at"), moved = fresh("p");
    const std::string position = lane ? "%lane_begin" : fmt::format("{}", r.index[i].literal);
    line("{} = mul i64 {}, {}", offset, position, stride(*r.home, i));
    line("{} = getelementptr {}, ptr {}, i64 {}", moved, storage_type(*r.home), pointer, offset);
    pointer = moved;
  }
  it->second = load(*r.home, pointer, r.lanes, true, "1", mask);
  begin_ = std::exchange(code_, std::move(code));
  lanes_ = lanes;
  return it->second;
}

std::string KernelEmitter::steps_so_far() {
  std::string& name = steps_names_[sequence_];
  if (name.empty()) {
    name = of_sequence("%elapsed");
    fmt::format_to(std::back_inserter(top_), "  {} = add i64 %t, {}\n", name, slot(SlotKind::Time, 0));
  }
  return name;
}

/// The row of an input some steps earlier: in this sequence, or in its history. `lag_position` is the
/// index along the lag axis, or empty.
std::string KernelEmitter::lagged_base(const Access& access, const std::string& lag_position) {
  const bool fixed = lag_position.empty();
  const auto key = std::make_tuple(access.home.id, access.lag, sequence_);
  if (fixed) {
    if (const auto it = lag_bases_.find(key); it != lag_bases_.end()) return it->second;
  }
  const std::string now = base(access.home), elapsed = steps_so_far();
  const std::string step = slot(SlotKind::InputStep, access.home.id), past = slot(SlotKind::History, access.home.id);
  const std::string entries = length_of(access.home.dims);
  const int bytes = plan_.options.narrow_storage ? 2 : f64_ ? 8 : 4;
  std::string text;
  const auto put = [&](const std::string& s) { text += "  " + s + "\n"; };
  std::string lag = fmt::format("{}", access.lag);
  if (!fixed) {
    const std::string sum = fresh("lag");
    put(fmt::format("{} = add i64 {}, {}", sum, lag_position, lag));
    lag = sum;
  }
  const std::string back = fresh(), near = fresh(), beyond = fresh(), entry = fresh(), size = fresh(), offset = fresh(),
                    far = fresh(), inside = fresh(), result = fresh("lagged");
  put(fmt::format("{} = mul i64 {}, {}", back, lag, step));
  const std::string minus = fresh();
  put(fmt::format("{} = sub i64 0, {}", minus, back));
  put(fmt::format("{} = getelementptr i8, ptr {}, i64 {}", near, now, minus));
  put(fmt::format("{} = sub i64 {}, {}", beyond, lag, elapsed));
  put(fmt::format("{} = sub i64 {}, 1", entry, beyond));
  put(fmt::format("{} = mul i64 {}, {}", size, entries, bytes));
  put(fmt::format("{} = mul i64 {}, {}", offset, entry, size));
  put(fmt::format("{} = getelementptr i8, ptr {}, i64 {}", far, past, offset));
  put(fmt::format("{} = icmp sge i64 {}, {}", inside, elapsed, lag));
  put(fmt::format("{} = select i1 {}, ptr {}, ptr {}", result, inside, near, far));
  if (fixed) {
    top_ += text;
    lag_bases_[key] = result;
  } else {
    code_ += text;
  }
  return result;
}

void KernelEmitter::label(const std::string& name) {
  code_ += name.substr(1) + ":\n";
  block_ = name;
}

/// Of the lanes of a call whose lanes fit into one vector; empty: they fill it.
const std::string& KernelEmitter::one_mask() {
  if (one_mask_) return *one_mask_;
  one_mask_.emplace();
  if (options_.whole_vectors) return *one_mask_;
  const int lanes = std::exchange(lanes_, wide_);
  std::string code = std::exchange(code_, std::move(begin_));
  one_mask_ = lane_mask("%lane_begin", "%lane_end");
  begin_ = std::exchange(code_, std::move(code));
  lanes_ = lanes;
  return *one_mask_;
}

/// The block from which the loop over time is entered.
const char* KernelEmitter::before_time() const { return held_.empty() && begin_.empty() ? "%entry" : "%begin"; }

/// Tested at the top, so that a range without positions is no special case and what is carried
/// can be used after the loop under the name that it has inside.
KernelEmitter::OpenLoop KernelEmitter::open_loop(const std::string& begin, const std::string& end,
                                                 const std::string& step, std::vector<StepWithTransition> carried) {
  OpenLoop loop;
  loop.header = fresh("loop");
  loop.latch = loop.header + ".next";
  loop.exit = loop.header + ".end";
  loop.counter = loop.header + ".i";
  loop.begin = begin;
  loop.end = end;
  loop.step = step;
  loop.from = block_;
  loop.carried = std::move(carried);
  loop.before = std::move(code_);
  code_.clear();
  const std::string body = loop.header + ".body";
  line("{}.more = icmp slt i64 {}, {}", loop.header, loop.counter, end);
  line("br i1 {}.more, label {}, label {}", loop.header, body, loop.exit);
  label(body);
  return loop;
}

void KernelEmitter::close_loop(OpenLoop& loop, const std::vector<std::string>& next) {
  line("br label {}", loop.latch);
  label(loop.latch);
  line("{}.step = add i64 {}, {}", loop.counter, loop.counter, loop.step);
  line("br label {}", loop.header);
  std::string body = std::move(code_);
  code_ = std::move(loop.before);
  line("br label {}", loop.header);
  label(loop.header);
  line("{0} = phi i64 [ {1}, {2} ], [ {0}.step, {3} ]", loop.counter, loop.begin, loop.from, loop.latch);
  for (std::size_t i = 0; i < loop.carried.size(); ++i) {
    line("{} = phi {} [ {}, {} ], [ {}, {} ]", loop.carried[i].name, loop.carried[i].type, loop.carried[i].first,
         loop.from, next[i], loop.latch);
  }
  code_ += body;
  label(loop.exit);
}

std::string KernelEmitter::emit(const std::string& function) {
  block_ = kernel_.once ? "%entry" : "%step";
  for (const Nest& n : kernel_.nests) nest(n);
  sequence_ = 0;
  std::string head =
      fmt::format("define void @{}(ptr noalias %slots, i64 %steps, i64 %lane_begin, i64 %lane_end) {{\n", function);
  if (kernel_.once) {
    return head + "entry:\n" + entry_ + code_ + "  ret void\n}\n";
  }
  Motion motion = carried_.size() + rows_.size() <= kMostCarriedRows ? carried_rows() : computed_rows();
  carry_held(motion);
  if (!begin_.empty())
    begin_ = "  %any = icmp sgt i64 %steps, 0\n  br i1 %any, label %begin, label %done\nbegin:\n" + begin_;
  return head + "entry:\n" + entry_ + begin_ + "  br label %time\ntime:\n" +
         fmt::format("  %t = phi i64 [ 0, {} ], [ %t.next, %step.next ]\n", before_time()) + motion.carried +
         "  %t.more = icmp slt i64 %t, %steps\n  br i1 %t.more, label %step, label %done\nstep:\n" + motion.first +
         top_ + code_ + "  br label %step.next\nstep.next:\n  %t.next = add i64 %t, 1\n" + motion.last +
         "  br label %time\ndone:\n  ret void\n}\n";
}

/// Rows that go on by one each step, as values that the loop over time carries.
KernelEmitter::Motion KernelEmitter::carried_rows() {
  Motion motion;
  const auto put = [](std::string& text, const std::string& s) { text += "  " + s + "\n"; };
  std::string& phis = motion.carried;
  const std::string before = before_time();
  for (const auto& [sequence, state] : carried_) {
    sequence_ = sequence;
    const std::string old = slot(SlotKind::StateOld, state);
    const bool narrow = plan_.options.narrow_storage;
    const std::string written =
        narrow ? new_state(state) + ".row" : row(next_old(), row_of(state), SlotKind::StateStep);
    put(phis, fmt::format("{0}.row = phi ptr [ {0}, {2} ], [ {1}, %step.next ]", old, written, before));
    if (!narrow) continue;
    // Two buffers by turns; the first old state stays where the caller has it.
    const std::string fresh_state = slot(SlotKind::StateNew, state), spare = slot(SlotKind::StateSpare, state);
    put(phis, fmt::format("{0}.row = phi ptr [ {0}, {2} ], [ {1}.row, %step.next ]", fresh_state, spare, before));
    put(phis, fmt::format("{0}.row = phi ptr [ {0}, {2} ], [ {1}.row, %step.next ]", spare, fresh_state, before));
  }
  sequence_ = 0;
  carry_offsets(motion);
  for (const auto& [key, r] : rows_) {
    if (r.even) continue;
    put(phis, fmt::format("{0} = phi ptr [ {1}, {2} ], [ {0}.next, %step.next ]", r.name, r.first, before));
    put(motion.last, fmt::format("{0}.next = getelementptr i8, ptr {0}, i64 {1}", r.name, r.step));
  }
  return motion;
}

/// Rows of one number, that follow each other at one distance: the loop carries an offset for all of them.
void KernelEmitter::carry_offsets(Motion& motion) {
  for (const auto& [bytes, step] : even_steps_) {
    fmt::format_to(std::back_inserter(motion.carried),
                   "  %offset.{0} = phi i64 [ 0, {1} ], [ %offset.{0}.next, %step.next ]\n", bytes, before_time());
    fmt::format_to(std::back_inserter(motion.last), "  %offset.{0}.next = add i64 %offset.{0}, {1}\n", bytes, step);
  }
  // Whoever carries one of these rows on reads it where the loop begins again.
  for (const auto& [key, r] : rows_)
    if (r.even)
      fmt::format_to(std::back_inserter(motion.first), "  {} = getelementptr i8, ptr {}, i64 %offset.{}\n", r.name,
                     r.first, r.even);
}

/// States in registers: the loop carries the numbers themselves.
void KernelEmitter::carry_held(Motion& motion) {
  lanes_ = one_vector_ ? wide_ : 1;
  for (const auto& [place, next] : held_) {
    const auto [sequence, state] = place;
    sequence_ = sequence;
    const std::string old = old_state(state), start = slot(SlotKind::StateOld, state);
    if (one_vector_) {
      const std::string mask = one_mask();
      std::string code = std::exchange(code_, std::move(begin_));
      const std::string first = fresh("p");
      line("{} = getelementptr {}, ptr {}, i64 %lane_begin", first, scalar_type(), start);
      const std::string held = load(row_of(state), first, true, true, "1", mask);
      begin_ = std::exchange(code_, std::move(code));
      fmt::format_to(std::back_inserter(motion.carried), "  {0}.held = phi {1} [ {2}, %begin ], [ {3}, %step.next ]\n",
                     old, type(), held, next);
      continue;
    }
    fmt::format_to(std::back_inserter(begin_), "  {0}.start = load {1}, ptr {2}, align {3}\n", old, scalar_type(),
                   start, element_bits() / 8);
    fmt::format_to(std::back_inserter(motion.carried),
                   "  {0}.held = phi {1} [ {0}.start, %begin ], [ {2}, %step.next ]\n", old, scalar_type(), next);
  }
  sequence_ = 0;
}

/// The same rows made of t: a loop that carries thousands of values is what no allocator of registers is made for.
KernelEmitter::Motion KernelEmitter::computed_rows() {
  Motion motion;
  const auto put = [&](const std::string& s) { motion.first += "  " + s + "\n"; };
  put("%t.first = icmp eq i64 %t, 0");
  put("%t.before = sub i64 %t, 1");
  put("%t.odd = trunc i64 %t to i1");
  for (const auto& [sequence, state] : carried_) {
    sequence_ = sequence;
    const std::string old = slot(SlotKind::StateOld, state);
    if (plan_.options.narrow_storage) {
      const std::string fresh_state = slot(SlotKind::StateNew, state), spare = slot(SlotKind::StateSpare, state);
      put(fmt::format("{0}.row = select i1 %t.odd, ptr {1}, ptr {0}", fresh_state, spare));
      put(fmt::format("{0}.last = select i1 %t.odd, ptr {1}, ptr {2}", old, fresh_state, spare));
    } else {
      row(next_old(), row_of(state), SlotKind::StateStep);
      const std::string first = slot(next_old(), state), step = slot(SlotKind::StateStep, state);
      put(fmt::format("{0}.bytes = mul i64 %t.before, {1}", old, step));
      put(fmt::format("{0}.last = getelementptr i8, ptr {1}, i64 {0}.bytes", old, first));
    }
    put(fmt::format("{0}.row = select i1 %t.first, ptr {0}, ptr {0}.last", old));
  }
  sequence_ = 0;
  for (const auto& [key, r] : rows_) {
    put(fmt::format("{0}.bytes = mul i64 %t, {1}", r.name, r.step));
    put(fmt::format("{0} = getelementptr i8, ptr {1}, i64 {0}.bytes", r.name, r.first));
  }
  return motion;
}

}  // namespace cellc
