// Loop nests of a row kernel: positions over threads (sums: emit_cuda_nest_sum.cc).
#include <algorithm>
#include <stdexcept>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

std::string grouped(const std::string& text) { return text.find(' ') == std::string::npos ? text : "(" + text + ")"; }

/// Lines longer than this are cut into values with names of their own.
constexpr std::size_t kLineLength = 80;

}  // namespace

// Names ------------------------------------------------------------------------------------------

/// As the cell calls it, and unlike any name that the emitter makes itself.
std::string NestEmitter::name_of(NodeId id) const {
  std::string name = "v";
  if (const auto written = written_names_.find(id); written != written_names_.end()) {
    name = written->second;
  } else if (const Node& n = node(id); n.op == Op::Read) {
    name = plan_.cell.symbols[n.symbol].name;
    if (n.lag > 0 || n.lag_axis != kNoAxis) name += fmt::format("_lag{}", n.lag);
  }
  static const char* const parts[] = {"_row", "_old", "_new", "_memory", "_here", "_back"};
  bool looks_like_ours = name.starts_with("i_") || name == "from";
  for (const char* part : parts) looks_like_ours = looks_like_ours || name.find(part) != std::string::npos;
  return looks_like_ours ? name + "_" : name;
}

std::string NestEmitter::declare(NodeId id, const std::string& stem) {
  const std::string name = nest_names_.unique(stem);
  values_[id] = {name, false};
  return name;
}

// Places in memory -------------------------------------------------------------------------------

bool NestEmitter::is_local(const Home& home) const {
  return home.place == Place::Temp || home.place == Place::StateOld ||
         (home.place == Place::StateNew && plan_.state_kernel[home.id] == kernel_index_);
}

std::string NestEmitter::stride(const Home& home, std::size_t place, bool local) {
  return length_of({home.dims.begin() + static_cast<std::ptrdiff_t>(place) + 1, home.dims.end()}, local);
}

/// Entries from the start of the home, of its row for what has rows.
std::string NestEmitter::place_in(const Home& home, const std::vector<Index>& index) {
  const bool local = is_local(home);
  std::string sum;
  const auto add = [&](const std::string& by, const std::string& stride) {
    if (by == "0") return;
    const std::string term = stride == "1" ? by : fmt::format("{} * {}", by, grouped(stride));
    sum += (sum.empty() ? "" : " + ") + term;
  };
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (!index[i].is_axis()) {
      add(fmt::format("{}", index[i].literal), stride(home, i, local));
      continue;
    }
    const auto loop =
        std::find_if(loops_.begin(), loops_.end(), [&](const Loop& l) { return contains(l.axes, index[i].axis); });
    if (loop == loops_.end()) throw std::logic_error("emit: an access outside its loops");
    // A flat loop walks several dimensions that lie side by side.
    if (loop->axes.back() != index[i].axis) continue;
    add(local ? loop->local_position : loop->position, stride(home, i, local));
  }
  return sum.empty() ? "0" : sum;
}

std::string NestEmitter::pointer(const Home& home) {
  switch (home.place) {
    case Place::Param:
      return slot(NestSlotKind::Param, home.id);
    case Place::Once:
      return slot(NestSlotKind::Once, home.id);
    case Place::Temp:
      return local(NestSlotKind::LocalTemp, home.id);
    case Place::Input:
      return row_pointer(NestSlotKind::Input, home.id);
    case Place::Out:
      return row_pointer(NestSlotKind::Out, home.id);
    case Place::Chunk:
      return row_pointer(NestSlotKind::Chunk, home.id);
    case Place::StateRow:
      return row_pointer(NestSlotKind::StateRow, home.id);
    case Place::StateOld:
    case Place::StateNew:
      // Another kernel sees new states in the rows they were written to.
      if (is_local(home)) {
        const std::string half = state_half(home.id, home.place == Place::StateNew);
        if (!persistent_) return half;
        return fmt::format("({} + slot * ({}))", half, entries_of_local(NestSlotKind::LocalState, home.id));
      }
      return row_pointer(NestSlotKind::StateRow, home.id);
  }
  throw std::logic_error("emit: no such place");
}

std::string NestEmitter::element_of(const Home& home) const {
  switch (home.place) {
    case Place::Input:
      return element(NestSlotKind::Input, home.id);
    case Place::Out:
      return element(NestSlotKind::Out, home.id);
    case Place::Chunk:
      return element(NestSlotKind::Chunk, home.id);
    case Place::StateRow:
      return element(NestSlotKind::StateRow, home.id);
    case Place::StateNew:
      return is_local(home) ? "Real" : element(NestSlotKind::StateRow, home.id);
    default:
      return "Real";
  }
}

/// Along an axis that has a loop of its own.
std::string NestEmitter::position_of(AxisId axis) const {
  const auto loop = std::find_if(loops_.begin(), loops_.end(),
                                 [&](const Loop& l) { return l.axes.size() == 1 && l.axes[0] == axis; });
  if (loop == loops_.end()) throw std::logic_error("emit: a lag or an index without its loop");
  return loop->position;
}

std::string NestEmitter::load(const Access& access) {
  if (persistent_ && told_by(access) >= 0) return told_place(access);
  const std::string place = place_in(access.home, access.index);
  const bool constant = is_constant(access.home);
  const auto read = [&](const std::string& type, const std::string& pointer, const std::string& at) {
    if (constant) return fmt::format("cellc::read({} + {})", pointer, at);
    if (type == "Stored") return fmt::format("cellc::load({} + {})", pointer, at);
    return fmt::format("{}[{}]", pointer, at);
  };
  const auto kept = kept_places_.find(access.node);
  const bool is_kept = kept != kept_places_.end();
  if (const std::int64_t neighbours = neighbours_read(access); neighbours != 0) {
    std::vector<Index> first = access.index;
    first.back() = {};
    const std::string before = place_in(access.home, first);
    return fmt::format("cellc::read_neighbour<{}>({}, {} + {}, {})", neighbours, how_, pointer(access.home), before,
                       position_of(access.index.back().axis));
  }
  if (access.lag == 0 && access.lag_axis == kNoAxis) return read(element_of(access.home), pointer(access.home), place);
  // Some steps earlier: in this sequence, or in its history.
  const int id = access.home.id;
  const std::string now = pointer(access.home), stride = slot(NestSlotKind::InputStride, id);
  const std::string past = slot(NestSlotKind::History, id);
  const std::string depth = fmt::format(fmt::runtime(numbers_ == "divide." ? "divide.number({})" : "{}"),
                                        slot(NestSlotKind::HistoryDepth, id));
  const std::string elapsed = step_number("elapsed"), sequence = step_number("sequence");
  const std::string lag = access.lag_axis == kNoAxis ? fmt::format("{}", access.lag)
                          : access.lag == 0          ? position_of(access.lag_axis)
                                            : fmt::format("({} + {})", position_of(access.lag_axis), access.lag);
  const std::string in_sequence = fmt::format("{}{} >= {}", how_.empty() ? "" : how_ + " || ", elapsed, lag);
  const std::string near = is_kept ? fmt::format("{} + {} * {}", kept->second, lag, step_back(id))
                                   : fmt::format("{} - a.frame.direction * {} * {}", now, lag, stride);
  const std::string far =
      fmt::format("({} * {} + {} - {} - 1) * {}", sequence, depth, lag, elapsed, grouped(length_of(access.home.dims)));
  const std::string type = element(NestSlotKind::Input, id);
  // One load from either place, so that nothing branches on the way to it.
  if (is_kept && type == element(NestSlotKind::History, id))
    return fmt::format("cellc::read(cellc::either<{}>({}, {}, {} + {} + {}))", type, in_sequence, near, past, far,
                       place);
  if (type == element(NestSlotKind::History, id))
    return read(type, fmt::format("cellc::either<{}>({}, {}, {} + {})", type, in_sequence, near, past, far), place);
  return fmt::format("{} ? {} : {}", in_sequence,
                     is_kept ? fmt::format("cellc::read({})", near) : read(type, fmt::format("({})", near), place),
                     read(element(NestSlotKind::History, id), past, fmt::format("{} + {}", far, place)));
}

/// Whether no nest of the kernel writes there. What a block keeps for itself, and what another step of it has
/// written, is no constant.
bool NestEmitter::is_constant(const Home& home) const {
  if (runs_steps() || home.place == Place::Temp || home.place == Place::StateOld || is_local(home)) return false;
  return !is_made_here(home);
}

bool NestEmitter::is_made_here(const Home& home) const {
  return std::any_of(kernel_.nests.begin(), kernel_.nests.end(), [&](const Nest& nest) {
    return std::any_of(nest.stores.begin(), nest.stores.end(),
                       [&](const Store& s) { return s.home.place == home.place && s.home.id == home.id; });
  });
}

void NestEmitter::store(const Home& home, const std::string& value) {
  std::vector<Index> index;
  for (const AxisId a : home.dims) index.push_back({a, 0});
  const std::string to = pointer(home), place = place_in(home, index);
  const bool is_row = home.place == Place::StateRow && may_be_absent(NestSlotKind::StateRow, home.id);
  std::string when = is_row ? fmt::format("if ({}) ", to) : "";
  // What every block makes for itself one of them writes.
  if (persistent_ && !is_local(home) &&
      !std::any_of(home.dims.begin(), home.dims.end(), [&](AxisId a) { return is_spread(a); }))
    when += "if (rank == 0) ";
  if (element_of(home) == "Stored") {
    line("{}cellc::store({} + {}, {});", when, to, place, value);
  } else {
    line("{}{}[{}] = {};", when, to, place, value);
  }
}

// Positions --------------------------------------------------------------------------------------

/// How many positions there are: all, or those of the block's part.
std::string NestEmitter::count_of(const std::vector<std::vector<AxisId>>& loops, bool part) {
  std::string product;
  for (const auto& group : loops) {
    for (const AxisId a : group) {
      const std::string n = part && is_split(a) ? "(lane_end - lane_begin)" : length(a);
      if (n != "1") product += (product.empty() ? "" : " * ") + n;
    }
  }
  return product.empty() ? "1" : product;
}

/// Positions along loops, outermost first, from one number.
void NestEmitter::enter_places(const std::vector<std::vector<AxisId>>& loops, const std::string& flat) {
  const char* const type = numbers_ == "divide." ? "auto" : "long long";
  std::string rest = flat;
  std::vector<Loop> entered;
  std::vector<std::string> lines;
  for (std::size_t d = loops.size(); d-- > 0;) {
    const std::vector<AxisId>& group = loops[d];
    std::string stem = "i";
    for (const AxisId a : group) stem += "_" + plan_.cell.graph.axis(a).name;
    Loop loop;
    loop.axes = group;
    loop.position = nest_names_.unique(stem);
    const bool split = is_split(group[0]);
    loop.local_position = split ? nest_names_.unique(stem + "_here") : loop.position;
    const std::string length = count_of({group}, true);
    std::string place = rest, before = rest;  // of this loop, and of those outside of it
    if (d > 0 && out_.form == NestForm::Steps) {
      // The same numbers in every step: nothing that is called stands in their way out of it.
      place = fmt::format("{} % {}", rest, grouped(length));
      before = fmt::format("{} / {}", rest, grouped(length));
    } else if (d > 0) {
      before = nest_names_.unique(stem + "_before");
      place = fmt::format("{} - {} * {}", rest, before, grouped(length));
      lines.push_back(fmt::format("const {} {} = {}quotient({}, {});", type, before, numbers_, rest, length));
    }
    lines.push_back(fmt::format("const {} {} = {};", type, loop.local_position, place));
    rest = before;
    if (split) {
      const std::string inner = length_of({group.begin() + 1, group.end()});
      lines.push_back(fmt::format("[[maybe_unused]] const long long {} = lane_begin{} + {};", loop.position,
                                  inner == "1" ? "" : " * " + grouped(inner), loop.local_position));
    }
    entered.push_back(std::move(loop));
  }
  for (const std::string& l : lines) line("{}", l);
  loops_.insert(loops_.end(), entered.rbegin(), entered.rend());
}

// Nests ------------------------------------------------------------------------------------------

void NestEmitter::nest_at(std::size_t n) {
  nest(kernel_.nests[n], fuses_with_next(kernel_, n) ? &kernel_.nests[n + 1] : nullptr);
}

/// `next`: what goes on with a sum (fuses_with_next), or null.
void NestEmitter::nest(const Nest& nest, const Nest* next) {
  own_line();
  if (out_.form != NestForm::Flat) {
    barrier_before(nest, nest);
    if (next) barrier_before(*next, nest);
  }
  begin_nest(nest, next);
  open("{{");
  if (nest.is_reduction()) {
    reduction_nest(nest, next);
  } else {
    map_nest(nest);
  }
  own_line();
  close();
  note_stores(nest, nest);
  if (next) note_stores(*next, nest);
}

void NestEmitter::begin_nest(const Nest& nest, const Nest* next) {
  nest_names_ = names_;
  loops_.clear();
  values_.clear();
  uses_.clear();
  for (const Nest* n : {&nest, next}) {
    if (!n) continue;
    for (const auto* list : {&n->nodes, &n->inlined}) {
      for (const NodeId id : *list) {
        for (const NodeId a : node(id).args) ++uses_[a];
      }
    }
    for (const Store& s : n->stores) ++uses_[s.value];
  }
  for (const NodeId s : scalars_) ++uses_[s];
}

/// A value passes from thread to thread unless one position of the same loops writes and reads it. `by`: the nest whose
/// threads run this one, a sum where it goes on with that.
void NestEmitter::barrier_before(const Nest& nest, const Nest& by) {
  const auto same_threads = [&](const Nest& other) {
    return !by.is_reduction() && !other.is_reduction() && nest.loops == other.loops;
  };
  bool needed = false;
  for (const Access& a : nest.loads) {
    bool own_position = a.index.size() == a.home.dims.size();
    for (std::size_t i = 0; own_position && i < a.index.size(); ++i) own_position = a.index[i].axis == a.home.dims[i];
    for (const Written& w : written_) {
      if (w.place != a.home.place || w.id != a.home.id) continue;
      needed = needed || !own_position || !same_threads(*w.nest);
    }
  }
  const auto use = [&](NodeId id) {
    for (const auto& [scalar, writer] : written_scalars_) needed = needed || (scalar == id && !same_threads(*writer));
  };
  for (const auto* list : {&nest.nodes, &nest.inlined}) {
    for (const NodeId id : *list) {
      for (const NodeId a : node(id).args) use(a);
    }
  }
  for (const Store& s : nest.stores) use(s.value);
  if (needed) barrier();
}

void NestEmitter::note_stores(const Nest& nest, const Nest& by) {
  for (const Store& s : nest.stores) written_.push_back({s.home.place, s.home.id, &by});
  for (const NodeId id : nest.nodes) {
    if (std::find(scalars_.begin(), scalars_.end(), id) != scalars_.end()) written_scalars_.emplace_back(id, &by);
  }
}

bool NestEmitter::needs_bound(const Access& access, const Nest& nest) const {
  if (access.lag_axis != kNoAxis && contains(nest.bound, access.lag_axis)) return true;
  return std::any_of(access.index.begin(), access.index.end(),
                     [&](const Index& i) { return i.is_axis() && contains(nest.bound, i.axis); });
}

bool NestEmitter::has_lags(const Nest& nest) {
  return std::any_of(nest.loads.begin(), nest.loads.end(),
                     [](const Access& a) { return a.lag != 0 || a.lag_axis != kNoAxis; });
}

/// Those inside of the loops over bound axes, or those outside.
void NestEmitter::emit_loads(const Nest& nest, bool inside) {
  for (const Access& a : nest.loads) {
    if (needs_bound(a, nest) != inside || values_.contains(a.node)) continue;
    const std::string value = load(a);
    line("const Real {} = {};", declare(a.node, name_of(a.node)), value);
  }
}

void NestEmitter::emit_scalar_loads(const Nest& nest) {
  const std::string count = fmt::format("{}", scalars_.size());
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    const NodeId id = scalars_[i];
    const bool own = std::find(nest.nodes.begin(), nest.nodes.end(), id) != nest.nodes.end();
    // One use is the store to memory that begin_nest counts.
    if (own || uses_[id] < 2 || values_.contains(id)) continue;
    line("const Real {} = {}[{}];", declare(id, name_of(id)),
         local(NestSlotKind::LocalScalars, static_cast<int>(scalars_.size())), i);
  }
}

void NestEmitter::emit_scalar_stores(const Nest& nest) {
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    if (std::find(nest.nodes.begin(), nest.nodes.end(), scalars_[i]) == nest.nodes.end()) continue;
    line("{}[{}] = {};", local(NestSlotKind::LocalScalars, static_cast<int>(scalars_.size())), i,
         value(scalars_[i]).text);
  }
}

void NestEmitter::emit_values(const std::vector<NodeId>& nodes, const Nest&) {
  for (const NodeId id : nodes) {
    const Text text = expression(node(id));
    // What the cell does not name and only one other value reads stays a part of that.
    if (uses_[id] == 1 && !written_names_.contains(id) && text.text.size() < kLineLength) {
      values_[id] = text;
      continue;
    }
    source_line(id);
    line("const Real {} = {};", declare(id, name_of(id)), text.text);
  }
}

void NestEmitter::emit_stores(const Nest& nest) {
  for (const Store& s : nest.stores) {
    const std::string v = value(s.value).text;
    store(s.home, v);
    if (persistent_) keep_told_row(s.home, v);
    if (s.home.place == Place::StateNew && !narrow_) {
      // The plan takes the written row for the new state; here the block has a copy of it.
      store({Place::StateRow, s.home.id, s.home.dims}, v);
    }
  }
  emit_scalar_stores(nest);
}

void NestEmitter::map_nest(const Nest& nest) {
  line("const long long places = {};", count_of(nest.loops, true));
  const int together = places_together(nest.nodes.size());
  const char* const lags = has_lags(nest) ? ", true" : "";
  switch (out_.form) {
    case NestForm::Steps:
      open("for (long long p = threadIdx.x; p < places; p += blockDim.x) {{");
      break;
    case NestForm::Tile:
      open(
          "cellc::each_place_of_tile<{}{}>(a.frame, tile, places, [&]([[maybe_unused]] auto divide, "
          "[[maybe_unused]] const auto p,",
          together, lags);
      line("    [[maybe_unused]] const auto tile_row, [[maybe_unused]] const cellc::RowPlace& here) {{");
      break;
    case NestForm::Flat:
      open(
          "cellc::each_place<{}{}>(a.frame, places, [&]([[maybe_unused]] auto divide, [[maybe_unused]] const "
          "auto p,",
          together, lags);
      line("    [[maybe_unused]] const cellc::RowPlace& here) {{");
      break;
    case NestForm::Persistent:
      throw std::logic_error("emit: a persistent kernel has places of its own");
  }
  if (nest.loops.empty() && out_.form == NestForm::Steps) line("static_cast<void>(p);");
  if (out_.form != NestForm::Steps) numbers_ = "divide.";
  if (out_.form != NestForm::Steps) begin_row_scope();
  enter_places(nest.loops, "p");
  emit_scalar_loads(nest);
  emit_loads(nest, false);
  emit_values(nest.nodes, nest);
  own_line();
  emit_stores(nest);
  if (out_.form == NestForm::Steps) {
    close();
    return;
  }
  end_row_scope();
  numbers_ = "cellc::";
  close("}});");
}

}  // namespace cellc
