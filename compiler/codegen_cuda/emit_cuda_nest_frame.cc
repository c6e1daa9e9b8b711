// The frame of a row kernel: its arguments, the memory of a block, the loops over sequences and steps.
#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"
#include "compiler/codegen_cuda/line_directive.h"
#include "compiler/plan/call_layout.h"

namespace cellc {

CudaNames::CudaNames() {
  // Words of C++ and CUDA, macros that host compilers have, and what the emitted text itself declares.
  static const char* const words[] = {
      "alignas",     "alignof",    "and",        "and_eq",     "asm",      "auto",         "bitand",
      "bitor",       "bool",       "break",      "case",       "catch",    "char",         "char8_t",
      "char16_t",    "char32_t",   "class",      "compl",      "concept",  "const",        "consteval",
      "constexpr",   "constinit",  "const_cast", "continue",   "co_await", "co_return",    "co_yield",
      "decltype",    "default",    "delete",     "do",         "double",   "dynamic_cast", "else",
      "enum",        "explicit",   "export",     "extern",     "false",    "float",        "for",
      "friend",      "goto",       "if",         "inline",     "int",      "long",         "mutable",
      "namespace",   "new",        "noexcept",   "not",        "not_eq",   "nullptr",      "operator",
      "or",          "or_eq",      "private",    "protected",  "public",   "register",     "reinterpret_cast",
      "requires",    "return",     "short",      "signed",     "sizeof",   "static",       "static_assert",
      "static_cast", "struct",     "switch",     "template",   "this",     "thread_local", "throw",
      "true",        "try",        "typedef",    "typeid",     "typename", "union",        "unsigned",
      "using",       "virtual",    "void",       "volatile",   "wchar_t",  "while",        "xor",
      "xor_eq",      "threadIdx",  "blockIdx",   "blockDim",   "gridDim",  "warpSize",     "linux",
      "unix",        "i386",       "NULL",       "assert",     "signbit",  "isnan",        "isinf",
      "Real",        "Stored",     "cellc",      "a",          "frame",    "shared",       "job",
      "sequence",    "lane_begin", "lane_end",   "stretch",    "row",      "chunk_row",    "step",
      "elapsed",     "here",       "when",       "at",         "p",        "places",       "used",
      "threads",     "share",      "first",      "q",          "tile",     "tile_row",     "scalars",
      "terms",       "sums",       "divide",     "none",       "sum",      "term",         "slot",
      "slots",       "rank",       "memory",     "lane",       "turn",     "row_ahead",    "scratch",
      "steps",       "start",      "values",     "chunk_ahead"};
  taken_.insert(std::begin(words), std::end(words));
}

std::string CudaNames::unique(const std::string& wanted) {
  std::string name;
  for (const char c : wanted) name += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) || name[0] == '_') name = "v" + name;
  name = c_name(name);
  std::string candidate = name;
  for (int n = 2; !taken_.insert(candidate).second; ++n) candidate = fmt::format("{}_{}", name, n);
  return candidate;
}

NestEmitter::NestEmitter(const Plan& plan, const CudaNestsOptions& options, NestForm form, int kernel, int nest,
                         const std::string& function)
    : plan_(plan),
      options_(options),
      kernel_(plan.kernels[kernel]),
      kernel_index_(kernel),
      f64_(options.storage == Storage::F64),
      narrow_(plan.options.narrow_storage) {
  out_ = {function, form, kernel, nest, {}};
  if (form == NestForm::Persistent) {
    persistent_ = &*std::find_if(options.persistent.begin(), options.persistent.end(),
                                 [&](const PersistentCode& p) { return p.kernel.kernel == kernel; });
    out_.cluster = persistent_->shape.blocks;
    out_.sequences = persistent_->shape.slots;
    out_.threads = persistent_->shape.threads;
    out_.parts = persistent_->parts;
    out_.shared_bytes = persistent_->layout.shared_bytes;
    out_.exchange_bytes = persistent_->layout.exchange_bytes;
  }
  const auto named = [&](NodeId id, const std::string& name) {
    const Op op = node(id).op;
    if (op != Op::Read && op != Op::Constant) written_names_.try_emplace(id, name);
  };
  for (const NamedValue& v : plan.cell.named) named(v.node, v.name);
  for (const Out& o : plan.cell.outs) named(o.value, o.name);
  for (const StateUpdate& u : plan.cell.updates) named(u.value, plan.cell.symbols[u.symbol].name + "_next");
}

// Text -------------------------------------------------------------------------------------------

/// What follows is said at `id`'s place in the cell.
void NestEmitter::source_line(NodeId id) {
  if (!options_.source || node(id).span.length == 0) return own_line();
  const std::uint32_t at = options_.source->position(node(id).span.offset).line;
  if (at != source_line_) {
    text_ += fmt::format("#line {} \"{}\"\n", at, line_directive_path(options_.source->path()));
  }
  source_line_ = at + 1;
}

/// What follows is the emitter's own.
void NestEmitter::own_line() {
  if (source_line_ != 0) text_ += "\x01\n";
  source_line_ = 0;
}

// Arguments --------------------------------------------------------------------------------------

std::string NestEmitter::base_name(NestSlotKind kind, int id) const {
  const auto computed = [&](const std::vector<Buffer>& buffers, const char* stem) {
    const auto written = written_names_.find(buffers[id].node);
    return written != written_names_.end() ? written->second : fmt::format("{}{}", stem, id);
  };
  const auto& symbols = plan_.cell.symbols;
  switch (kind) {
    case NestSlotKind::Length:
      return "n_" + plan_.cell.graph.axis(static_cast<AxisId>(id)).name;
    case NestSlotKind::Param:
    case NestSlotKind::Input:
      return symbols[id].name;
    case NestSlotKind::InputStride:
      return symbols[id].name + "_stride";
    case NestSlotKind::History:
      return symbols[id].name + "_past";
    case NestSlotKind::HistoryDepth:
      return symbols[id].name + "_past_depth";
    case NestSlotKind::Start:
      return symbols[plan_.cell.updates[id].symbol].name + "_start";
    case NestSlotKind::Final:
      return symbols[plan_.cell.updates[id].symbol].name + "_final";
    case NestSlotKind::StateRow:
    case NestSlotKind::LocalState:
      return symbols[plan_.cell.updates[id].symbol].name;
    case NestSlotKind::Out:
      return plan_.cell.outs[id].name;
    case NestSlotKind::Once:
      return computed(plan_.once, "once");
    case NestSlotKind::Chunk:
      return computed(plan_.chunks, "chunk");
    case NestSlotKind::LocalTemp:
      return computed(plan_.temps, "temp");
    case NestSlotKind::LocalScalars:
      return "scalars";
  }
  throw std::logic_error("emit: no such slot");
}

bool NestEmitter::is_wide(NestSlotKind kind, int id) const {
  const auto in = [&](const std::vector<char>& flags) {
    return static_cast<std::size_t>(id) < flags.size() && flags[id];
  };
  switch (kind) {
    case NestSlotKind::Input:
      return in(options_.wide_inputs);
    case NestSlotKind::History:
      return in(options_.wide_histories);
    case NestSlotKind::StateRow:
      return in(options_.wide_states);
    case NestSlotKind::Out:
      return in(options_.wide_outs);
    case NestSlotKind::Chunk:
      return !plan_.chunks[static_cast<std::size_t>(id)].stored;
    default:
      return true;
  }
}

std::string NestEmitter::element(NestSlotKind kind, int id) const {
  return narrow_ && !is_wide(kind, id) ? "Stored" : "Real";
}

std::string NestEmitter::slot(NestSlotKind kind, int id) {
  const auto [it, is_new] = slot_names_.try_emplace({kind, id});
  if (!is_new) return it->second;
  const bool local =
      kind == NestSlotKind::LocalTemp || kind == NestSlotKind::LocalState || kind == NestSlotKind::LocalScalars;
  const bool number = kind == NestSlotKind::Length || kind == NestSlotKind::InputStride ||
                      kind == NestSlotKind::HistoryDepth || (local && out_.form != NestForm::Flat);
  const bool read_only = kind == NestSlotKind::Param || kind == NestSlotKind::Input || kind == NestSlotKind::History ||
                         kind == NestSlotKind::Start;
  const std::string name = fields_.unique(base_name(kind, id) + (local && number ? "_at" : ""));
  struct_ += number ? fmt::format("  long long {};\n", name)
                    : fmt::format("  {}{}* {};\n", read_only ? "const " : "", element(kind, id), name);
  out_.slots.push_back({kind, id});
  return it->second = "a." + name;
}

std::string NestEmitter::length(AxisId axis) {
  const Axis& header = plan_.cell.graph.axis(extent(axis));
  if (header.fixed) return fmt::format("{}", *header.fixed);
  if (persistent_) return fmt::format("{}", known_length(axis));
  const int id = static_cast<int>(extent(axis));
  const std::string number = slot(NestSlotKind::Length, id);
  if (numbers_ != "divide.") return number;
  // As wide as the numbers of places are where this is called.
  const auto [it, is_new] = lengths_here_.try_emplace(id);
  if (is_new) {
    it->second = nest_names_.unique(base_name(NestSlotKind::Length, id));
    row_lines_ += fmt::format("{}[[maybe_unused]] const auto {} = divide.number({});\n",
                              std::string(2 * row_depth_, ' '), it->second, number);
  }
  return it->second;
}

/// Product of lengths. `local`: in memory of a block, which has the lanes of its part only.
std::string NestEmitter::length_of(const std::vector<AxisId>& axes, bool local) {
  std::string product;
  for (const AxisId a : axes) {
    const std::string n = local && is_spread(a)  ? fmt::format("{}", persistent_->layout.part)
                          : local && is_split(a) ? (persistent_ ? "1" : "a.frame.part_length")
                                                 : length(a);
    if (n != "1") product += (product.empty() ? "" : " * ") + n;
  }
  return product.empty() ? "1" : product;
}

// Memory of a block ------------------------------------------------------------------------------

std::string NestEmitter::entries_of_local(NestSlotKind kind, int id) {
  switch (kind) {
    case NestSlotKind::LocalTemp:
      return length_of(plan_.temps[id].dims, true);
    case NestSlotKind::LocalState:
      return length_of(plan_.cell.symbols[plan_.cell.updates[id].symbol].index, true);
    default:
      return fmt::format("{}", id);
  }
}

/// A pointer to it, as nests use it.
std::string NestEmitter::local(NestSlotKind kind, int id) {
  if (out_.form == NestForm::Flat) return slot(kind, id);
  const auto [it, is_new] = locals_.try_emplace({kind, id});
  if (is_new && persistent_) {
    const std::int64_t at =
        kind == NestSlotKind::LocalTemp ? persistent_->layout.temps.at(id) : persistent_->layout.scalars;
    it->second = fmt::format("(reinterpret_cast<Real*>(memory + {}) + slot * ({}))", at, entries_of_local(kind, id));
  } else if (is_new) {
    it->second = names_.unique(base_name(kind, id) + "_memory");
    setup_ += fmt::format("  Real* const {} = cellc::block_memory(a.frame, shared, {});\n", it->second, slot(kind, id));
  }
  if (out_.form != NestForm::Tile) return it->second;
  const std::string entries = entries_of_local(kind, id);
  return fmt::format("({} + tile_row * {})", it->second,
                     entries.find(' ') == std::string::npos ? entries : "(" + entries + ")");
}

std::string NestEmitter::state_half(int position, bool next) {
  const auto [it, is_new] = halves_.try_emplace({position, next});
  if (is_new) it->second = names_.unique(base_name(NestSlotKind::LocalState, position) + (next ? "_new" : "_old"));
  return it->second;
}

// Rows -------------------------------------------------------------------------------------------

/// What depends on the row alone is computed at the start of its scope, once something asks for it.
void NestEmitter::begin_row_scope() {
  own_line();
  row_scope_ = text_.size();
  row_depth_ = depth_;
  row_lines_.clear();
  row_pointers_.clear();
  row_numbers_.clear();
  lengths_here_.clear();
}

void NestEmitter::end_row_scope() { text_.insert(row_scope_, row_lines_); }

/// `which`: row, chunk_row, sequence or elapsed.
std::string NestEmitter::step_number(const char* which) {
  const std::string name = which;
  if (runs_steps() && name != "elapsed") return name;
  if (!row_numbers_.insert(name).second) return name;
  const std::string indent(2 * row_depth_, ' ');
  if (runs_steps()) {
    row_lines_ +=
        indent + fmt::format("const long long elapsed = {}.begin + step;\n", persistent_ ? "here" : "stretch");
  } else if (name == "row" || name == "chunk_row") {
    row_lines_ += indent + fmt::format("const long long {0} = here.{0};\n", name);
  } else {
    if (row_numbers_.insert("when").second) {
      row_lines_ += indent + fmt::format("const auto when = cellc::step_of(a.frame, here.row{});\n",
                                         numbers_ == "cellc::" ? "" : ", divide");
    }
    row_lines_ += indent + fmt::format("const auto {0} = when.{0};\n", name);
  }
  return name;
}

/// Rows of its own states a block only writes; where nobody wants them there is no array.
bool NestEmitter::may_be_absent(NestSlotKind kind, int id) const {
  return runs_steps() && kind == NestSlotKind::StateRow && plan_.state_kernel[id] == kernel_index_;
}

/// The row of an array that the current step reads or writes.
std::string NestEmitter::row_pointer(NestSlotKind kind, int id) {
  if (const auto it = row_pointers_.find({kind, id}); it != row_pointers_.end()) return it->second;
  const std::string array = slot(kind, id);
  const bool chunk = kind == NestSlotKind::Chunk;
  std::string row = step_number(chunk ? "chunk_row" : "row");
  if (rows_ahead_.contains({kind, id})) row = chunk ? "chunk_ahead" : "row_ahead";
  std::string stride;
  switch (kind) {
    case NestSlotKind::Input:
      stride = slot(NestSlotKind::InputStride, id);
      break;
    case NestSlotKind::StateRow:
      stride = length_of(plan_.cell.symbols[plan_.cell.updates[id].symbol].index);
      break;
    case NestSlotKind::Out:
      stride = length_of(plan_.cell.outs[id].index);
      break;
    default:
      stride = length_of(plan_.chunks[id].dims);
      break;
  }
  // Names of values never look like this (name_of).
  const std::string name = names_.unique(base_name(kind, id) + "_row");
  const std::string at = numbers_ == "divide."
                             ? fmt::format("{} + divide.product({}, {})", array, row, stride)
                             : fmt::format("{} + {} * {}", array, row,
                                           stride.find(' ') == std::string::npos ? stride : "(" + stride + ")");
  row_lines_ += fmt::format("{}{}{}* const {} = {};\n", std::string(2 * row_depth_, ' '),
                            kind == NestSlotKind::Input ? "const " : "", element(kind, id), name,
                            may_be_absent(kind, id) ? array + " ? " + at + " : nullptr"
                            : keeps_rows_           ? "cellc::kept(" + at + ")"
                                                    : at);
  return row_pointers_[{kind, id}] = name;
}

/// Entries from a step of an input to the one before it, where the row's scope has them.
std::string NestEmitter::step_back(int id) {
  // By the field's name, which is one in C and nobody else's: symbols of derived cells have dots.
  const std::string stride = slot(NestSlotKind::InputStride, id), name = stride.substr(stride.find('.') + 1) + "_back";
  if (row_numbers_.insert(name).second)
    row_lines_ += fmt::format("{}const long long {} = cellc::step_back(a.frame, {});\n",
                              std::string(2 * row_depth_, ' '), name, stride);
  return name;
}

// Forms ------------------------------------------------------------------------------------------

/// Values without axes that other nests read: they pass through memory like any other. Of kernels of a nest each, only
/// what is computed once has such memory; in the others nobody reads them but the nest that goes on with a sum, and it
/// has them at hand.
void NestEmitter::find_scalars() {
  if (out_.form == NestForm::Flat && !kernel_.once) return;
  scalars_ = scalars_of(plan_, kernel_);
}

std::string NestEmitter::emit() {
  find_scalars();
  switch (out_.form) {
    case NestForm::Steps:
      emit_steps();
      break;
    case NestForm::Tile:
      emit_tile();
      break;
    case NestForm::Flat:
      emit_flat();
      break;
    case NestForm::Persistent:
      emit_persistent();
      break;
  }
  own_line();
  std::string head =
      fmt::format("struct {}_arguments {{\n  cellc::NestFrame frame;\n{}}};\n\n", out_.function, struct_);
  head += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({1})\n{0}(const __grid_constant__ "
      "{0}_arguments a) {{\n  cellc::await_stream();\n",
      out_.function, persistent_ ? fmt::format("{}, 1", out_.threads) : "cellc::kNestThreads");
  if (out_.form != NestForm::Flat) head += "  CELLC_DYNAMIC_SHARED(Real, shared);\n  static_cast<void>(shared);\n";
  if (persistent_ && persistent_->shape.numbers != StationaryNumbers::Real)
    head +=
        "#ifdef CELLC_EMULATOR\n  __shared__ cellc::TensorScratch scratch[1];\n#else\n"
        "  cellc::TensorScratch* const scratch = nullptr;\n#endif\n";
  return head + setup_ + text_ + "}\n";
}

/// Old states into the block's memory, or final states out of it.
void NestEmitter::copy_state(int position, bool in) {
  const std::vector<AxisId>& dims = plan_.cell.symbols[plan_.cell.updates[position].symbol].index;
  Nest copy;
  copy.axes = dims;
  for (const AxisId a : dims) copy.loops.push_back({a});
  nest_names_ = names_;
  loops_.clear();
  open("for (long long p = threadIdx.x; p < {}; p += blockDim.x) {{", count_of(copy.loops, true));
  enter_places(copy.loops, "p");
  std::vector<Index> index;
  for (const AxisId a : dims) index.push_back({a, 0});
  const std::string here = place_in({Place::StateOld, position, dims}, index);
  const std::string there = place_in({Place::StateRow, position, dims}, index);
  const std::string entries = length_of(dims);
  const std::string at =
      fmt::format("sequence * {} + {}", entries.find(' ') == std::string::npos ? entries : "(" + entries + ")", there);
  const std::string start = slot(NestSlotKind::Start, position), final_state = slot(NestSlotKind::Final, position);
  const std::string old = state_half(position, false);
  if (in) {
    line("const Real* const from = a.frame.window_begin > 0 ? {} : {};", final_state, start);
    line("{}[{}] = from ? from[{}] : Real(0);", old, here, at);
  } else {
    line("{}[{}] = {}[{}];", final_state, at, old, here);
  }
  close();
}

void NestEmitter::emit_steps() {
  std::vector<int> states;
  for (std::size_t i = 0; i < plan_.state_kernel.size(); ++i) {
    if (plan_.state_kernel[i] == kernel_index_) states.push_back(static_cast<int>(i));
  }
  open("for (long long job = blockIdx.x; job < a.frame.sequences * a.frame.parts; job += gridDim.x) {{");
  line("const long long sequence = a.frame.first_sequence + job / a.frame.parts;");
  if (has_split()) {
    line("const long long lane_begin = job % a.frame.parts * a.frame.part_length;");
    line("const long long lane_end =");
    line("    lane_begin + a.frame.part_length < {0} ? lane_begin + a.frame.part_length : {0};",
         length(plan_.split_axis));
  }
  line("const cellc::Stretch stretch = cellc::stretch_of(a.frame, sequence);");
  line("if (stretch.steps == 0 && a.frame.window_begin > 0) continue;");
  for (const int s : states) {
    line("Real* {} = {};", state_half(s, false), local(NestSlotKind::LocalState, s));
    line("Real* {} = {} + {};", state_half(s, true), state_half(s, false),
         entries_of_local(NestSlotKind::LocalState, s));
    copy_state(s, true);
  }
  line("__syncthreads();");
  line("long long row = a.frame.direction > 0 ? stretch.low : stretch.low + stretch.steps - 1;");
  line(
      "long long chunk_row = a.frame.window != 0 ? job / a.frame.parts * a.frame.window + (row - "
      "stretch.low)");
  line("                                          : row - a.frame.first_row;");
  open("for (long long step = 0; step < stretch.steps; ++step) {{");
  begin_row_scope();
  for (const Nest& n : kernel_.nests) nest(n);
  own_line();
  end_row_scope();
  line("__syncthreads();");
  for (const int s : states) {
    open("{{");
    line("Real* const used_up = {};", state_half(s, false));
    line("{} = {};", state_half(s, false), state_half(s, true));
    line("{} = used_up;", state_half(s, true));
    close();
  }
  line("row += a.frame.direction;");
  line("chunk_row += a.frame.direction;");
  close();
  for (const int s : states) copy_state(s, false);
  line("__syncthreads();");
  close();
}

void NestEmitter::emit_tile() {
  open("for (long long tile = blockIdx.x; tile * a.frame.tile_rows < a.frame.rows; tile += gridDim.x) {{");
  for (std::size_t n = 0; n < kernel_.nests.size(); n += fuses_with_next(kernel_, n) ? 2 : 1) nest_at(n);
  own_line();
  line("__syncthreads();");
  close();
}

void NestEmitter::emit_flat() { nest_at(static_cast<std::size_t>(out_.nest)); }

}  // namespace cellc
