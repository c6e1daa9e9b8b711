// Kernels that live through all steps (compiler/plan/persistent_kernel.h): places of a nest over threads and sequences,
// what blocks tell each other, products with weights at rest. What they call: kernels-templates/persistent/.
//
// In the order of a step: what a product reads is awaited, the product leaves its sums in memory of the block, nests go
// on with them; a value that others read is told behind its nest, a state behind the step. What a nest reads of rows is
// fetched a step ahead, into registers of the thread that will need it, and what it reads of params stays there: a step
// waits for no memory but that of the block.
#include <algorithm>
#include <stdexcept>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

/// Registers of a thread for what is fetched ahead or stays, of one nest.
constexpr std::int64_t kRegistersAhead = 40;

/// Written by threads that no nest's are like.
const Nest& other_threads() {
  static const Nest nest = [] {
    Nest n;
    n.bound.push_back(kNoAxis);
    return n;
  }();
  return nest;
}

}  // namespace

std::int64_t NestEmitter::known_length(AxisId axis) const {
  const Axis& header = plan_.cell.graph.axis(extent(axis));
  return header.fixed ? *header.fixed : persistent_->shape.lengths.at(extent(axis));
}

/// Places of a nest in a block: those of its part.
std::int64_t NestEmitter::places_of(const std::vector<AxisId>& axes) const {
  std::int64_t n = 1;
  for (const AxisId a : axes) n *= is_split(a) ? 1 : is_spread(a) ? persistent_->layout.part : known_length(a);
  return n;
}

void NestEmitter::barrier() {
  line("__syncthreads();");
  written_.clear();
  written_scalars_.clear();
  synchronized_ = true;
}

/// The told value that an access of the current nest reads at other places than the block's own; -1: none.
int NestEmitter::told_by(const Access& access) const {
  const int told = persistent_->kernel.told_number(access.home.place, access.home.id);
  if (told < 0 || !here_) return -1;
  for (std::size_t i = 0; i < access.home.dims.size(); ++i) {
    if (!is_spread(access.home.dims[i])) continue;
    const Index& at = access.index[i];
    return at.is_axis() && is_spread(at.axis) && contains(here_->axes, at.axis) ? -1 : told;
  }
  return -1;
}

/// An entry of it, for nests that are no products.
std::string NestEmitter::told_place(const Access& access) {
  const int told = told_by(access);
  const PersistentLayout::Told& of = persistent_->layout.told[static_cast<std::size_t>(told)];
  std::string sum;
  for (std::size_t i = 0; i < access.index.size(); ++i) {
    if (is_split(access.home.dims[i])) continue;
    std::string by = fmt::format("{}", access.index[i].literal);
    if (access.index[i].is_axis()) {
      const auto loop = std::find_if(loops_.begin(), loops_.end(),
                                     [&](const Loop& l) { return contains(l.axes, access.index[i].axis); });
      if (loop == loops_.end()) throw std::logic_error("emit: an access outside its loops");
      by = loop->position;
    }
    std::int64_t stride = 1;
    for (std::size_t j = i + 1; j < access.home.dims.size(); ++j) stride *= known_length(access.home.dims[j]);
    sum += fmt::format(" + {} * {}", by, stride);
  }
  const char* const number = access.home.place == Place::StateOld ? "step" : "step + 1";
  return fmt::format("told_{}.at({})[slot * {}{}]", told, number, of.pitch, sum);
}

void NestEmitter::tell(int told, const std::string& number) {
  const ToldValue& value = persistent_->kernel.told[static_cast<std::size_t>(told)];
  const PersistentLayout& layout = persistent_->layout;
  const std::int64_t at = value.place == Place::Temp       ? layout.temps.at(value.id)
                          : value.place == Place::StateOld ? layout.states_new.at(value.id)
                                                           : layout.rows.at({value.place, value.id});
  line("told_{}.tell(reinterpret_cast<const Real*>(memory + {}), {});", told, at, number);
}

/// Beside its row, for the others.
void NestEmitter::keep_told_row(const Home& home, const std::string& value) {
  const auto at = persistent_->layout.rows.find({home.place, home.id});
  if (at == persistent_->layout.rows.end()) return;
  const Home own{Place::Temp, home.id, home.dims};  // lies as temps do
  line("reinterpret_cast<Real*>(memory + {})[slot * ({}) + {}] = {};", at->second, length_of(home.dims, true),
       place_in(own, plain_index(home.dims)), value);
}

// Places -------------------------------------------------------------------------------------------

/// Positions along axes from one number, each axis in a loop of its own: of a block's part, or, of the terms of a sum,
/// all of them (`whole`).
void NestEmitter::enter_persistent_places(const std::vector<AxisId>& axes, const std::string& flat, bool whole) {
  std::string rest = flat;
  std::vector<Loop> entered;
  for (std::size_t d = axes.size(); d-- > 0;) {
    const AxisId axis = axes[d];
    Loop loop;
    loop.axes = {axis};
    const std::string stem = "i_" + plan_.cell.graph.axis(axis).name;
    loop.position = nest_names_.unique(stem);
    loop.local_position = loop.position;
    const bool spread = is_spread(axis) && !whole;
    if (is_split(axis)) {
      loop.local_position = "0";
      line("[[maybe_unused]] const int {} = lane;", loop.position);
    } else {
      const std::int64_t length = spread ? persistent_->layout.part : known_length(axis);
      const bool last = std::all_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(d),
                                    [&](AxisId a) { return is_split(a); });
      if (spread) loop.local_position = nest_names_.unique(stem + "_here");
      line("[[maybe_unused]] const int {} = {};", loop.local_position,
           last ? rest : fmt::format("{} % {}", rest, length));
      if (!last) rest = fmt::format("({} / {})", rest, length);
      if (spread) line("const int {} = rank * {} + {};", loop.position, length, loop.local_position);
    }
    entered.push_back(std::move(loop));
  }
  loops_.insert(loops_.end(), entered.rbegin(), entered.rend());
}

/// The loop of a thread over places and sequences. `first_row`: before the first step.
void NestEmitter::open_places(const Nest& nest, bool first_row) {
  const std::int64_t places = places_of(nest.axes), slots = persistent_->shape.slots,
                     threads = persistent_->shape.threads;
  line("CELLC_UNROLL()");
  open("for (int turn = 0; turn < {}; ++turn) {{", (places * slots + threads - 1) / threads);
  line("const int at = static_cast<int>(threadIdx.x) + turn * {};", threads);
  line("const int slot = at / {0};", places);
  line("[[maybe_unused]] const int p = at % {0};", places);
  if (places * slots % threads != 0) line("if (slot >= {}) continue;", slots);
  enter_persistent_places(nest.axes, "p", false);
  for (const Loop& l : loops_)
    if (is_spread(l.axes[0])) line("if ({} >= {}) continue;", l.position, known_length(l.axes[0]));
  // A sequence's rows are found without a look at memory, where registers hold them.
  const auto number = &nest - kernel_.nests.data();
  const bool held = !nest.is_reduction() && holds_slots(nest);
  line("const cellc::Slot& here = {};", held && !first_row ? fmt::format("here_{}[turn]", number) : "slots[slot]");
  if (first_row) {
    if (held) line("here_{}[turn] = here;", number);
    line("if (here.steps <= 0) continue;");
    line("[[maybe_unused]] const long long row_ahead = here.row, chunk_ahead = here.chunk_row;");
  } else {
    line("if (step >= here.steps) continue;");
    for (const auto& [row, ahead] : {std::pair{"row", "row_ahead"}, std::pair{"chunk_row", "chunk_ahead"}}) {
      line("[[maybe_unused]] const long long {0} = here.{0} + a.frame.direction * step;", row);
      line("[[maybe_unused]] const long long {} = {} + a.frame.direction;", ahead, row);
    }
  }
  line("[[maybe_unused]] const long long sequence = here.sequence;");
  begin_row_scope();
}

bool NestEmitter::holds_slots(const Nest& nest) const {
  return places_of(nest.axes) * persistent_->shape.slots <= 2 * persistent_->shape.threads;
}

/// Read of a row, and known a step before.
bool NestEmitter::is_ahead(const Nest& nest, const Access& access) const {
  const auto of_rows = [&](const Home& home) {
    return home.place == Place::Input || home.place == Place::Chunk ||
           (home.place == Place::StateNew && !is_local(home));
  };
  if (nest.is_reduction() || !of_rows(access.home) || is_made_here(access.home)) return false;
  return std::none_of(nest.loads.begin(), nest.loads.end(), [&](const Access& a) {
    return a.home.place == access.home.place && a.home.id == access.home.id && (a.lag != 0 || a.lag_axis != kNoAxis);
  });
}
bool NestEmitter::is_kept(const Nest& nest, const Access& access) const {
  return !nest.is_reduction() && (access.home.place == Place::Param || access.home.place == Place::Once);
}

/// Pointers to those rows are to the next one.
void NestEmitter::note_rows_ahead(const Nest& nest, bool registers) {
  for (const Access& a : nest.loads) {
    if (!registers || !is_ahead(nest, a)) continue;
    rows_ahead_.insert({a.home.place == Place::Input   ? NestSlotKind::Input
                        : a.home.place == Place::Chunk ? NestSlotKind::Chunk
                                                       : NestSlotKind::StateRow,
                        a.home.id});
  }
}

/// Some steps before its row is fetched.
void NestEmitter::ask_for_row(const Access& access) {
  const NestSlotKind kind = access.home.place == Place::Input   ? NestSlotKind::Input
                            : access.home.place == Place::Chunk ? NestSlotKind::Chunk
                                                                : NestSlotKind::StateRow;
  const std::string stride =
      kind == NestSlotKind::Input ? slot(NestSlotKind::InputStride, access.home.id) : length_of(access.home.dims);
  line("if (step + cellc::kPersistentAhead < here.steps)");
  line("  cellc::ask_for({} + {} + a.frame.direction * (cellc::kPersistentAhead - 1) * ({}));", pointer(access.home),
       place_in(access.home, access.index), stride);
}

// Nests --------------------------------------------------------------------------------------------

void NestEmitter::persistent_nest(std::size_t n) {
  const Nest& nest = kernel_.nests[n];
  here_ = &nest;
  own_line();
  const StationaryProduct* const product = persistent_->kernel.product_of(static_cast<int>(n));
  begin_nest(nest, nullptr);
  for (const Access& a : nest.loads) {
    const int told = told_by(a);
    if (told < 0 || awaited_[static_cast<std::size_t>(told)]) continue;
    awaited_[static_cast<std::size_t>(told)] = true;
    if (a.home.place == Place::StateOld)
      line("if (step > 0) told_{}.await(step);", told);
    else
      line("told_{}.await(step + 1);", told);
  }
  barrier_before(nest, nest);
  const bool makes_states = std::any_of(nest.stores.begin(), nest.stores.end(),
                                        [](const Store& s) { return s.home.place == Place::StateNew; });
  // New states of the step before are still being read.
  if (makes_states && !synchronized_) barrier();
  open("{{");
  if (product) {
    persistent_product(n);
  } else if (nest.is_reduction()) {
    persistent_sums(nest);
  } else {
    persistent_map(n);
  }
  own_line();
  close();
  note_stores(nest, nest);
  for (const Store& s : nest.stores) {
    const int told = persistent_->kernel.told_number(s.home.place, s.home.id);  // of no new state
    if (told < 0) continue;
    barrier();
    tell(told, "step + 1");
  }
  here_ = nullptr;
}

void NestEmitter::persistent_product(std::size_t n) {
  const auto at = std::find_if(persistent_->kernel.products.begin(), persistent_->kernel.products.end(),
                               [&](const StationaryProduct& p) { return p.nest == static_cast<int>(n); });
  const auto number = at - persistent_->kernel.products.begin();
  std::string values;
  int entry_bytes = 4;
  for (const StationaryFactor& f : at->factors) {
    const bool state = persistent_->kernel.told[static_cast<std::size_t>(f.told)].place == Place::StateOld;
    values += fmt::format("{}told_{}.at({})", values.empty() ? "" : ", ", f.told, state ? "step" : "step + 1");
    entry_bytes = persistent_->layout.told[static_cast<std::size_t>(f.told)].entry_bytes;
  }
  line("const {}* const values[{}] = {{{}}};", entry_bytes == 2 ? "cellc::Half" : "Real", at->factors.size(), values);
  line("product_{0}.multiply(values, reinterpret_cast<Real*>(memory + {1}), weights_{0});", number,
       persistent_->layout.products[static_cast<std::size_t>(number)].results);
  const PersistentLayout::Product& of = persistent_->layout.products[static_cast<std::size_t>(number)];
  if (of.in_temps) return;
  // States and outs: each place's thread stores what the product has left.
  const Nest& nest = kernel_.nests[n];
  barrier();
  open_places(nest, false);
  for (std::size_t i = 0; i < nest.nodes.size(); ++i)
    line("const Real {} = reinterpret_cast<const Real*>(memory + {})[{} + at];",
         declare(nest.nodes[i], name_of(nest.nodes[i])), of.results,
         static_cast<std::int64_t>(i) * persistent_->shape.slots * persistent_->layout.part);
  emit_stores(nest);
  end_row_scope();
  close();
}

void NestEmitter::persistent_map(std::size_t n) {
  const Nest& nest = kernel_.nests[n];
  open_places(nest, false);
  emit_scalar_loads(nest);
  const std::int64_t turns =
      (places_of(nest.axes) * persistent_->shape.slots + persistent_->shape.threads - 1) / persistent_->shape.threads;
  const bool registers = turns * static_cast<std::int64_t>(nest.loads.size()) <= kRegistersAhead;
  if (persistent_->shape.blocks == 1) note_rows_ahead(nest, registers);
  for (std::size_t i = 0; i < nest.loads.size() && registers; ++i) {
    const Access& a = nest.loads[i];
    const bool ahead = is_ahead(nest, a);
    if ((!ahead && !is_kept(nest, a)) || values_.contains(a.node)) continue;
    line("const Real {} = {}[turn];", declare(a.node, name_of(a.node)), register_of(n, i));
    if (!ahead || persistent_->shape.blocks > 1) continue;
    // There is no exchange to wait for behind the step: heads of 64 take 1.26 ms so, and 1.55 the other way (H100).
    const std::string next = load(a);
    line("if (step + 1 < here.steps) {}[turn] = {};", register_of(n, i), next);
    ask_for_row(a);
  }
  emit_loads(nest, false);
  emit_values(nest.nodes, nest);
  own_line();
  emit_stores(nest);
  end_row_scope();
  close();
  rows_ahead_.clear();
}

/// What a nest will read of the next rows: before the first step, with what stays; or behind the telling of a step,
/// while that is under way.
void NestEmitter::fetch_ahead(std::size_t n, bool first) {
  const Nest& nest = kernel_.nests[n];
  if (nest.is_reduction()) return;
  const std::int64_t turns =
      (places_of(nest.axes) * persistent_->shape.slots + persistent_->shape.threads - 1) / persistent_->shape.threads;
  const bool registers = turns * static_cast<std::int64_t>(nest.loads.size()) <= kRegistersAhead;
  std::vector<std::size_t> loads;
  for (std::size_t i = 0; i < nest.loads.size() && registers; ++i)
    if (is_ahead(nest, nest.loads[i]) || (first && is_kept(nest, nest.loads[i]))) loads.push_back(i);
  if (first) {
    for (const std::size_t i : loads) line("Real {}[{}] = {{}};", register_of(n, i), turns);
    if (holds_slots(nest)) line("cellc::Slot here_{}[{}] = {{}};", n, turns);
  }
  if (loads.empty() && !(first && holds_slots(nest))) return;
  here_ = &nest;
  begin_nest(nest, nullptr);
  note_rows_ahead(nest, registers);
  open_places(nest, first);
  if (!first) line("if (step + 1 >= here.steps) continue;");
  for (const std::size_t i : loads) line("{}[turn] = {};", register_of(n, i), load(nest.loads[i]));
  for (const std::size_t i : loads)
    if (!first) ask_for_row(nest.loads[i]);
  end_row_scope();
  close();
  rows_ahead_.clear();
  here_ = nullptr;
}

/// A sum that is no product: of told values at all places, by some threads of a warp each.
void NestEmitter::persistent_sums(const Nest& nest) {
  std::vector<AxisId> bound(nest.bound_loops.begin(), nest.bound_loops.end());
  std::int64_t terms = 1, threads = 1;
  for (const AxisId a : bound) terms *= known_length(a);
  while (threads < 32 && threads < terms) threads *= 2;
  const std::int64_t places = places_of(nest.axes), slots = persistent_->shape.slots;
  line("constexpr int threads = {};", threads);
  line("const int share = static_cast<int>(threadIdx.x) % threads;");
  open("for (int first = 0; first < {}; first += {}) {{", places * slots, persistent_->shape.threads / threads);
  line("const int at = first + static_cast<int>(threadIdx.x) / threads;");
  line("const int slot = at / {0} < {1} ? at / {0} : {1};", places, slots - 1);
  line("[[maybe_unused]] const int p = at % {};", places);
  enter_persistent_places(nest.axes, "p", false);
  std::string there;
  for (const Loop& l : loops_)
    if (is_spread(l.axes[0])) there = fmt::format(" && {} < {}", l.position, known_length(l.axes[0]));
  line("const cellc::Slot& here = slots[slot];");
  line("const bool used = at < {} && step < here.steps{};", places * slots, there);
  for (const char* row : {"row", "chunk_row"})
    line("[[maybe_unused]] const long long {0} = here.{0} + a.frame.direction * step;", row);
  line("[[maybe_unused]] const long long sequence = here.sequence;");
  const std::vector<std::string> sums = declare_sums(nest);
  own_line();
  open("if (used) {{");
  begin_row_scope();
  emit_scalar_loads(nest);
  emit_loads(nest, false);
  own_line();
  line("CELLC_UNROLL(4)");
  open("for (int q = share; q < {}; q += threads) {{", terms);
  enter_persistent_places(bound, "q", true);
  emit_loads(nest, true);
  emit_values(nest.inlined, nest);
  add_terms(nest, sums);
  close();
  end_row_scope();
  close();
  join_sums(nest, sums);
  open("if (used && share == 0) {{");
  begin_row_scope();
  emit_stores(nest);
  end_row_scope();
  close();
  close();
}

// The kernel ---------------------------------------------------------------------------------------

/// Own places of old states from where they start, or to where they end.
void NestEmitter::copy_persistent_state(int position, bool in) {
  Nest copy;
  copy.axes = plan_.cell.symbols[plan_.cell.updates[position].symbol].index;
  nest_names_ = names_;
  loops_.clear();
  const std::int64_t places = places_of(copy.axes);
  open("for (int at = static_cast<int>(threadIdx.x); at < {}; at += {}) {{", places * persistent_->shape.slots,
       persistent_->shape.threads);
  line("const int slot = at / {0};", places);
  line("[[maybe_unused]] const int p = at % {0};", places);
  enter_persistent_places(copy.axes, "p", false);
  bool spread = false;
  for (const Loop& l : loops_) {
    if (!is_spread(l.axes[0])) continue;
    spread = true;
    line("if ({} >= {}) continue;", l.position, known_length(l.axes[0]));
  }
  line("if (slots[slot].steps < 0) continue;");
  if (!spread && !in) line("if (rank != 0) continue;");
  const std::string there = place_in({Place::StateRow, position, copy.axes}, plain_index(copy.axes));
  const std::string entries = length_of(copy.axes);
  const std::string place = fmt::format("slots[slot].sequence * {} + {}",
                                        entries.find(' ') == std::string::npos ? entries : "(" + entries + ")", there);
  const std::string start = slot(NestSlotKind::Start, position), final_state = slot(NestSlotKind::Final, position);
  if (in) {
    line("const Real* const from = a.frame.window_begin > 0 ? {} : {};", final_state, start);
    line("{}[at] = from ? from[{}] : Real(0);", state_half(position, false), place);
  } else {
    line("{}[{}] = {}[at];", final_state, place, state_half(position, false));
  }
  close();
}

void NestEmitter::emit_products() {
  const PersistentKernel& kernel = persistent_->kernel;
  const PersistentLayout& layout = persistent_->layout;
  for (std::size_t p = 0; p < kernel.products.size(); ++p) {
    const StationaryProduct& product = kernel.products[p];
    const AxisId bound = kernel_.nests[static_cast<std::size_t>(product.nest)].bound[0];
    std::string matrices, rows, terms;
    for (const StationaryFactor& f : product.factors) {
      const std::vector<AxisId>& dims = f.matrix.home.dims;
      const auto stride_of = [&](int dim) {
        std::int64_t n = 1;
        for (std::size_t j = static_cast<std::size_t>(dim) + 1; j < dims.size(); ++j) n *= known_length(dims[j]);
        return n;
      };
      const std::int64_t row = stride_of(f.row_dim), term = stride_of(f.term_dim);
      std::string at = fmt::format("{} + rank * {}ll", pointer(f.matrix.home), layout.part * row);
      for (std::size_t i = 0; i < dims.size(); ++i)
        if (is_split(f.matrix.index[i].axis)) at += fmt::format(" + lane * {}ll", stride_of(static_cast<int>(i)));
      const char* const comma = matrices.empty() ? "" : ", ";
      matrices += comma + at;
      rows += fmt::format("{}{}", comma, row);
      terms += fmt::format("{}{}", comma, term);
    }
    const std::size_t factors = product.factors.size();
    line("const cellc::Weights<{}> weights_{}{{{{{}}}, {{{}}}, {{{}}}, {} - rank * {}ll, {}}};", factors, p, matrices,
         rows, terms, known_length(kernel.spread), layout.part, known_length(bound));
    const PersistentLayout::Told& told = layout.told[static_cast<std::size_t>(product.factors[0].told)];
    const PersistentLayout::Product& of = layout.products[p];
    if (persistent_->shape.numbers == StationaryNumbers::Real) {
      line("cellc::StationaryRows<{}, {}, {}, {}> product_{};", factors, layout.part, layout.terms, told.pitch, p);
      line("product_{0}.load(weights_{0}, memory + {1});", p, of.bytes);
    } else {
      line("cellc::StationaryTiles<{}, {}, {}, {}, {}, {}, {}, {}> product_{};", factors, layout.part, layout.terms,
           told.pitch, told.entry_bytes == 2 ? "cellc::Half" : "Real", of.held, product.one_value, of.shares, p);
      line("product_{0}.load(weights_{0}, memory + {1}, reinterpret_cast<float*>(memory + {2}), scratch);", p, of.bytes,
           of.partial);
    }
  }
}

void NestEmitter::emit_persistent_setup() {
  const PersistentKernel& kernel = persistent_->kernel;
  const PersistentLayout& layout = persistent_->layout;
  const PersistentShape& shape = persistent_->shape;
  line("char* const memory = reinterpret_cast<char*>(shared);");
  line("const int rank = cellc::persistent_rank();");
  line("const long long job = a.frame.first_job + blockIdx.x / {};", shape.blocks);
  if (shape.grouped)
    line("char* const exchange = static_cast<char*>(a.frame.scratch) + blockIdx.x / {} * {}ll;", shape.blocks,
         layout.exchange_bytes);
  line("[[maybe_unused]] const int lane = static_cast<int>(job % {});", persistent_->parts);
  line("cellc::Slot* const slots = reinterpret_cast<cellc::Slot*>(memory + {});", layout.slots);
  std::int64_t before_weights = layout.shared_bytes;
  for (const PersistentLayout::Product& p : layout.products) before_weights = std::min(before_weights, p.bytes);
  // Entries behind the last place are multiplied, too, and so are those of slots without a sequence.
  open("for (int at = static_cast<int>(threadIdx.x); at < {}; at += {}) {{", before_weights / 16, shape.threads);
  line("reinterpret_cast<cellc::Piece*>(memory)[at] = {{}};");
  close();
  for (std::size_t t = 0; t < kernel.told.size(); ++t) {
    const PersistentLayout::Told& told = layout.told[t];
    const char* const entry = told.entry_bytes == 2 ? "cellc::Half" : "Real";
    line("const cellc::{0}<{1}, {2}, {3}> told_{4}{{reinterpret_cast<{1}*>(memory + {5}),",
         shape.grouped ? "ToldInGroup" : "Told", entry, layout.part * told.inner, told.pitch, t, told.bytes);
    if (shape.grouped)
      line("    reinterpret_cast<cellc::Piece*>(exchange + {}), rank}};", told.exchange);
    else
      line("    reinterpret_cast<cellc::Mailbox*>(memory + {}), rank}};", told.mailboxes);
  }
  for (const auto& [s, at] : layout.states_old) {
    line("Real* const {} = reinterpret_cast<Real*>(memory + {});", state_half(s, false), at);
    line("Real* const {} = reinterpret_cast<Real*>(memory + {});", state_half(s, true), layout.states_new.at(s));
  }
  line("__syncthreads();");
  open("if (threadIdx.x < {}) {{", shape.slots);
  line("slots[threadIdx.x] = cellc::slot_of(a.frame, job / {} * {} + threadIdx.x);", persistent_->parts, shape.slots);
  close();
  if (!shape.grouped) {
    open("if (threadIdx.x == 0) {{");
    for (std::size_t t = 0; t < kernel.told.size(); ++t) line("told_{}.open();", t);
    close();
  }
  line("__syncthreads();");
  for (const int s : kernel.states) copy_persistent_state(s, true);
  for (std::size_t t = 0; t < kernel.told.size(); ++t) {
    if (kernel.told[t].place != Place::StateOld) continue;
    const int s = kernel.told[t].id;
    const std::vector<AxisId>& dims = plan_.cell.symbols[plan_.cell.updates[s].symbol].index;
    const std::int64_t entries = known_length(kernel.spread) * layout.told[t].inner;
    open("for (int at = static_cast<int>(threadIdx.x); at < {}; at += {}) {{", entries * shape.slots, shape.threads);
    line("const int slot = at / {};", entries);
    line("if (slots[slot].steps < 0) continue;");
    line("const Real* const from = a.frame.window_begin > 0 ? {} : {};", slot(NestSlotKind::Final, s),
         slot(NestSlotKind::Start, s));
    line("const Real start = from ? from[slots[slot].sequence * ({}) + lane * {}ll + at % {}] : Real(0);",
         length_of(dims), entries, entries);
    line("cellc::put(told_{}.at(0) + slot * {} + at % {}, start);", t, layout.told[t].pitch, entries);
    close();
  }
  // A final may lie where a start does: it is written when all blocks have read that.
  if (shape.grouped)
    line("cellc::group_arrive(reinterpret_cast<cellc::GroupHeader*>(exchange));");
  else
    line("cellc::persistent_arrive();");
  emit_products();
}

void NestEmitter::emit_persistent() {
  const PersistentKernel& kernel = persistent_->kernel;
  const std::int64_t slots = persistent_->shape.slots, threads = persistent_->shape.threads;
  emit_persistent_setup();
  for (std::size_t n = 0; n < kernel_.nests.size(); ++n) fetch_ahead(n, true);
  if (!persistent_->shape.grouped) line("cellc::persistent_wait();");
  line("__syncthreads();");
  line("const long long steps = cellc::longest_of(slots);");
  open("for (long long step = 0; step < steps; ++step) {{");
  synchronized_ = false;
  awaited_.assign(kernel.told.size(), false);
  for (const int s : kernel.states) written_.push_back({Place::StateOld, s, &other_threads()});
  for (std::size_t n = 0; n < kernel_.nests.size(); ++n) persistent_nest(n);
  own_line();
  barrier();
  for (std::size_t t = 0; t < kernel.told.size(); ++t)
    if (kernel.told[t].place == Place::StateOld) {
      open("if (step + 1 < steps) {{");
      tell(static_cast<int>(t), "step + 1");
      close();
    }
  for (std::size_t n = 0; n < kernel_.nests.size() && persistent_->shape.blocks > 1; ++n) fetch_ahead(n, false);
  for (const int s : kernel.states) {
    const std::int64_t entries = places_of(plan_.cell.symbols[plan_.cell.updates[s].symbol].index);
    open("for (int at = static_cast<int>(threadIdx.x); at < {}; at += {}) {{", entries * slots, threads);
    line("if (step < slots[at / {}].steps) {}[at] = {}[at];", entries, state_half(s, false), state_half(s, true));
    close();
  }
  close();
  if (persistent_->shape.grouped)
    line("cellc::group_wait(reinterpret_cast<const cellc::GroupHeader*>(exchange));");
  else
    line("__syncthreads();");
  for (const int s : kernel.states) copy_persistent_state(s, false);
}

}  // namespace cellc
