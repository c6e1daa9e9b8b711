#include "compiler/emit_llvm_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/driver_text.h"
#include "compiler/known_states.h"

namespace cellc {
namespace {

/// Steps that run between two visits of the driver where rows go to the workspace. Even: which of a pair
/// of carried buffers holds the state is then the same at the start of every block.
constexpr int kBlockSteps = 32;

/// A cell with some declared starts or defaults as its outs.
struct Defaults {
  std::vector<int> symbols;  ///< by out
  StatelessCell cell;
};

Defaults defaults_of(const CellGraph& cell, SymbolKind kind) {
  Defaults result;
  CellGraph work = cell;
  work.named.clear();
  work.outs.clear();
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.kind != kind || symbol.lag_of >= 0 || symbol.initial == kNoNode) continue;
    work.outs.push_back({symbol.name, symbol.index, symbol.initial, symbol.span});
    result.symbols.push_back(s);
  }
  if (!result.symbols.empty()) result.cell = stateless(std::move(work), cell.symbols.size());
  return result;
}

/// A plan, its code, and where its buffers lie in the workspace.
struct PlannedKernels {
  Plan plan;
  std::vector<KernelCode> kernels;
  bool f64 = false;                                    ///< computes in f64, whatever the cell's arithmetic
  std::vector<ArraySource> sources;                    ///< by symbol; empty: the cell's own
  std::vector<std::string> once, temps, params, outs;  ///< the last two of f64 kernels only
};

class DriverEmitter {
 public:
  DriverEmitter(const CellGraph& cell, const Structure& structure, const DriverOptions& options)
      : options_(options),
        defaults_(defaults_of(cell, SymbolKind::Param)),
        starts_(defaults_of(cell, SymbolKind::State)) {
    const bool narrow = options.storage == Storage::F16 || options.storage == Storage::BF16;
    narrow_ = narrow;
    storage_bytes_ = narrow ? 2 : options.storage == Storage::F64 ? 8 : 4;
    arithmetic_bytes_ = options.storage == Storage::F64 ? 8 : 4;
    result_.cell = cell;
    check_fixed();
    fix(result_.cell.graph);
    result_.layout = call_layout(result_.cell);
    result_.messages = {"done"};
    add(step_, cell, structure, options.storage, ".step");
    // Starts and defaults are computed in f64 and rounded once, as they are for runs of our own.
    const auto add_f64 = [&](PlannedKernels& to, const Defaults& of, const char* name) {
      to.f64 = true;
      to.sources = of.cell.sources;
      if (!of.symbols.empty()) add(to, of.cell.cell, Structure{}, Storage::F64, name);
    };
    add_f64(fill_, defaults_, ".default");
    add_f64(begin_, starts_, ".start");
  }

  DriverModule run() {
    result_.ir = fmt::format("; cell {}, to be run without us\n\n", result_.cell.name);
    result_.ir += kernels_ir_;
    result_.ir += llvm_math::definitions(functions_);
    result_.ir += check_function();
    result_.ir += workspace_function();
    result_.ir += forward_function();
    result_.ir += texts();  // last: the functions collect what there is to say
    for (const char* name : {"_workspace", "_forward", "_message", "_about"})
      result_.functions.push_back(options_.prefix + name);
    return std::move(result_);
  }

 private:
  void fix(Graph& graph) const {
    for (const auto& [axis, length] : options_.lengths) graph.fix_length(axis, length);
  }

  void check_fixed() const {
    for (const auto& [axis, least] : least_lengths())
      if (const auto found = options_.lengths.find(axis);
          found != options_.lengths.end() && found->second < least)
        throw std::invalid_argument(fmt::format("axis {} has length {}; the cell needs {} or more",
                                                cell().graph.axis(axis).name, found->second, least));
  }

  void add(PlannedKernels& to, const CellGraph& cell, const Structure& structure, Storage storage,
           const char* name) {
    // Lengths are fixed after planning: the loops, and with them the bits, are those of a run that learns its
    // lengths from arrays.
    to.plan = make_plan(
        cell, structure,
        {.narrow_storage = storage == Storage::F16 || storage == Storage::BF16, .hoist_products = false});
    if (!to.plan.chunks.empty() || !to.plan.products.empty())
      throw std::logic_error("driver: a plan passes rows on");
    fix(to.plan.cell.graph);
    EmitOptions emit;
    emit.storage = storage;
    emit.vector_bits = options_.vector_bits;
    emit.functions = options_.prefix + name;
    EmittedModule module = emit_llvm_kernels(to.plan, emit, functions_);
    kernels_ir_ += module.ir;
    to.kernels = std::move(module.kernels);
  }

  // Numbers of a call ----------------------------------------------------------------------------

  int code(const std::string& message) {
    const auto found = std::find(result_.messages.begin(), result_.messages.end(), message);
    if (found == result_.messages.end()) result_.messages.push_back(message);
    return static_cast<int>(std::find(result_.messages.begin(), result_.messages.end(), message) -
                            result_.messages.begin());
  }

  const CellGraph& cell() const { return result_.cell; }
  const CallLayout& layout() const { return result_.layout; }

  std::string length(AxisId axis) {
    const AxisId header = cell().graph.axis(axis).extent_of;
    if (const auto fixed = cell().graph.axis(header).fixed) return std::to_string(*fixed);
    return lengths_.at(header);
  }

  /// Sizes are multiplied and added up to a bound far below what an address can hold, and never wrap.
  std::string times(const std::string& a, const std::string& b) {
    if (a == "1") return b;
    if (b == "1") return a;
    return text_->value("call i64 @{}.times(i64 {}, i64 {})", options_.prefix, a, b);
  }
  std::string plus(const std::string& a, const std::string& b) {
    return text_->value("call i64 @{}.plus(i64 {}, i64 {})", options_.prefix, a, b);
  }
  std::string bounded_arithmetic() const {
    return fmt::format(
        "define internal i64 @{0}.times(i64 %a, i64 %b) alwaysinline {{\n"
        "  %both = call {{i64, i1}} @llvm.umul.with.overflow.i64(i64 %a, i64 %b)\n"
        "  %product = extractvalue {{i64, i1}} %both, 0\n"
        "  %over = extractvalue {{i64, i1}} %both, 1\n"
        "  %most = call i64 @llvm.umin.i64(i64 %product, i64 {1})\n"
        "  %result = select i1 %over, i64 {1}, i64 %most\n"
        "  ret i64 %result\n}}\n\n"
        "define internal i64 @{0}.plus(i64 %a, i64 %b) alwaysinline {{\n"
        "  %sum = add i64 %a, %b\n"
        "  %result = call i64 @llvm.umin.i64(i64 %sum, i64 {1})\n"
        "  ret i64 %result\n}}\n\n",
        options_.prefix, kMostBytes);
  }

  /// First asked for outside of branches, so that the number is known wherever it is asked for again.
  std::string entries(const std::vector<AxisId>& axes) {
    std::vector<AxisId> key;
    for (const AxisId a : axes) key.push_back(cell().graph.axis(a).extent_of);
    std::sort(key.begin(), key.end());
    const auto [it, fresh] = entries_.try_emplace(key, "1");
    if (fresh)
      for (const AxisId a : key) it->second = times(it->second, length(a));
    return it->second;
  }
  std::string bytes(const std::vector<AxisId>& axes, bool storage) {
    return times(entries(axes), std::to_string(storage ? storage_bytes_ : arithmetic_bytes_));
  }
  const std::vector<AxisId>& axes_of(int symbol) const { return cell().symbols[symbol].axes; }

  std::string depth(int symbol) {
    std::string deepest = "0";
    for (const Reach& reach : reaches(cell(), symbol)) {
      const std::string lag = std::to_string(reach.lag);
      const std::string here =
          reach.axis == kNoAxis ? lag : text_->sub(text_->add(length(reach.axis), lag), "1");
      deepest = deepest == "0" ? here : text_->pick(text_->is("sgt", deepest, here), deepest, here);
    }
    return deepest;
  }

  /// Reads the struct of lengths, once it is known to be right.
  void begin(DriverText& text) {
    text_ = &text;
    lengths_.clear();
    entries_.clear();
    for (std::size_t i = 0; i < layout().lengths.size(); ++i)
      lengths_[layout().lengths[i]] = text.number_at("%lengths", static_cast<int>(i));
    sequences_ = text.number_at("%lengths", layout().sequences());
    steps_ = text.number_at("%lengths", layout().steps());
    offsets_ = text.address_at("%lengths", layout().offsets());
    packed_ = text.negated(text.is_null(offsets_));
    reversed_ = text.is("ne", text.number_at("%lengths", layout().reverse()), "0");
  }

  // The workspace --------------------------------------------------------------------------------

  struct State {
    int update, symbol, parent, lag;
    const CallField* rows;  ///< null: a lagged copy
    std::string area, carried[2], start;
  };

  /// Gives every buffer its offset; the size of all.
  std::string lay_out() {
    std::string end = "64";  // the workspace itself begins anywhere
    const auto take = [&](const std::string& size) {
      const std::string offset = end;
      end = text_->value("and i64 {}, -64", plus(plus(end, size), "63"));
      return offset;
    };
    const auto buffers = [&](PlannedKernels& kernels) {
      for (auto* list : {&kernels.once, &kernels.temps, &kernels.params, &kernels.outs}) list->clear();
      const auto size = [&](const std::vector<AxisId>& dims) {
        // Derived cells have axes of theirs, of the same lengths.
        std::vector<AxisId> axes;
        for (const AxisId a : dims) axes.push_back(kernels.plan.cell.graph.axis(a).extent_of);
        return kernels.f64 ? times(entries(axes), "8") : bytes(axes, false);
      };
      for (const Buffer& b : kernels.plan.once) kernels.once.push_back(take(size(b.dims)));
      for (const Buffer& b : kernels.plan.temps) kernels.temps.push_back(take(size(b.dims)));
      if (!kernels.f64) return;
      for (const Symbol& s : kernels.plan.cell.symbols) kernels.params.push_back(take(size(s.axes)));
      for (const Out& o : kernels.plan.cell.outs) kernels.outs.push_back(take(size(o.index)));
    };
    buffers(step_);
    buffers(fill_);
    buffers(begin_);
    filled_.clear();
    for (const int s : defaults_.symbols) filled_[s] = take(bytes(axes_of(s), false));
    states_.clear();
    const std::string block =
        text_->pick(packed_, std::to_string(kBlockSteps), text_->lesser(steps_, std::to_string(kBlockSteps)));
    for (int u = 0; u < static_cast<int>(cell().updates.size()); ++u) {
      State s;
      s.update = u;
      s.symbol = cell().updates[u].symbol;
      const Symbol& symbol = cell().symbols[s.symbol];
      s.parent = symbol.lag_of;
      s.lag = symbol.lag;
      s.rows = symbol.lag_of >= 0 ? nullptr : layout().find(FieldKind::State, s.symbol);
      s.area = take(times(bytes(symbol.axes, true), block));
      for (int i = 0; i < (narrow_ ? 2 : 1); ++i) s.carried[i] = take(bytes(symbol.axes, false));
      if (symbol.lag_of < 0) s.start = take(bytes(symbol.axes, false));
      states_.push_back(s);
    }
    outs_.clear();
    for (const Out& o : cell().outs) outs_.push_back(take(times(bytes(o.index, true), block)));
    histories_.clear();
    for (const CallField& f : layout().fields)
      if (f.kind == FieldKind::InputHistory)
        histories_[f.id] = take(times(depth(f.id), bytes(axes_of(f.id), true)));
    return end;
  }

  std::string check_function() {
    DriverText text;
    text.fail_when(text.is_null("%lengths"), code("the struct of lengths is a null pointer"));
    begin(text);
    std::map<AxisId, std::int64_t> least = least_lengths();
    for (const AxisId a : layout().lengths)
      text.fail_when(
          text.is("slt", lengths_.at(a), std::to_string(least[a])),
          code(fmt::format("the length of axis {} is less than {}", cell().graph.axis(a).name, least[a])));
    text.fail_when(text.is("slt", sequences_, "0"), code("the number of sequences is negative"));
    if (options_.steps) {
      text.fail_when(packed_, code(fmt::format("offsets are given, but this function was built for {} steps",
                                               *options_.steps)));
      text.fail_when(text.is("ne", steps_, std::to_string(*options_.steps)),
                     code(fmt::format("the number of steps is not {}, for which this function was built",
                                      *options_.steps)));
    }
    text.when(packed_, [&] {
      text.fail_when(text.is("ne", text.number_at(offsets_, 0), "0"),
                     code("the first of the offsets is not 0"));
      text.count(sequences_, [&](const std::string& s) {
        const std::string here = text.value("getelementptr i64, ptr {}, i64 {}", offsets_, s);
        text.fail_when(text.is("slt", text.number_at(here, 1), text.number_at(here, 0)),
                       code("the offsets decrease"));
      });
    });
    text.fail_when(text.both(text.negated(packed_), text.is("slt", steps_, "0")),
                   code("the number of steps is negative"));
    text.line("ret i32 0");
    return bounded_arithmetic() +
           text.function(fmt::format("define internal i32 @{}.check(ptr %lengths)", options_.prefix));
  }

  /// By header axis: 1, or more where the cell picks an entry by number.
  std::map<AxisId, std::int64_t> least_lengths() const {
    std::map<AxisId, std::int64_t> least;
    for (const AxisId a : cell().header) least[a] = 1;
    const Graph& graph = cell().graph;
    const auto need = [&](AxisId axis, const Index& index) {
      if (index.is_axis()) return;
      std::int64_t& n = least[graph.axis(axis).extent_of];
      n = std::max(n, index.literal + 1);
    };
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph[id];
      if (node.op == Op::Read)
        for (std::size_t i = 0; i < node.index.size(); ++i)
          need(cell().symbols[node.symbol].axes[i], node.index[i]);
      if (node.op == Op::OneHot) need(node.index[0].axis, node.index[1]);
      for (const auto& [axis, index] : node.map) need(axis, index);
    }
    return least;
  }

  void check_lengths(DriverText& text) {
    const std::string checked = text.value("call i32 @{}.check(ptr %lengths)", options_.prefix);
    const int n = next_label_++;
    text.line("%bad{} = icmp ne i32 {}, 0", n, checked);
    text.line("br i1 %bad{0}, label %wrong{0}, label %right{0}\nwrong{0}:\n  ret i32 {1}\nright{0}:", n,
              checked);
  }

  std::string workspace_function() {
    DriverText text;
    text.fail_when(text.is_null("%bytes"), code("the pointer to the workspace's size is null"));
    check_lengths(text);
    begin(text);
    const std::string size = lay_out();
    text.fail_when(text.is("uge", size, kMostBytes), code(kTooLarge));
    text.line("store i64 {}, ptr %bytes, align 8", size);
    text.line("ret i32 0");
    return text.function(fmt::format("define i32 @{}_workspace(ptr %lengths, ptr %bytes)", options_.prefix));
  }

  // The call -------------------------------------------------------------------------------------

  struct Rows {
    std::string data, absent, sequence, step;  ///< strides in bytes
    std::string first;                         ///< row of the sequence's first step in the run's order
  };

  std::string forward_function() {
    DriverText text;
    check_lengths(text);
    begin(text);
    const std::string size = lay_out();
    text.fail_when(text.is("uge", size, kMostBytes), code(kTooLarge));
    text.fail_when(text.is_null("%arrays"), code("the struct of arrays is a null pointer"));
    const std::string total = total_rows();
    addresses_.clear();
    for (std::size_t f = 0; f < layout().fields.size(); ++f) {
      const CallField& field = layout().fields[f];
      addresses_.push_back(text.address_at("%arrays", field.word));
      if (!field.required) continue;
      std::string missing = text.is_null(addresses_.back());
      // No steps, no rows: their address is anything.
      if (field.is_rows()) missing = text.both(missing, text.is("sgt", total, "0"));
      text.fail_when(missing, code(fmt::format("{} is a null pointer", field.name)));
    }
    text.fail_when(text.is_null("%workspace"), code("the workspace is a null pointer"));
    text.fail_when(text.is("slt", "%workspace_bytes", size),
                   code(fmt::format("the workspace is smaller than {}_workspace says", options_.prefix)));
    settle_workspace();
    fill_params();
    run_once();
    fill_starts();
    rows_.clear();
    for (std::size_t f = 0; f < layout().fields.size(); ++f) {
      const CallField& field = layout().fields[f];
      if (!field.is_rows()) continue;
      const std::string row = entries(field_axes(cell(), field)), one = std::to_string(storage_bytes_);
      const std::string step = text.number_at("%arrays", field.word + 2),
                        sequence = text.number_at("%arrays", field.word + 1);
      const std::string step_entries = text.pick(text.is("eq", step, "0"), row, step);
      const std::string sequence_entries =
          text.pick(text.is("eq", sequence, "0"), text.mul(steps_, step_entries), sequence);
      rows_[field.word] = {addresses_[f], text.is_null(addresses_[f]), text.mul(sequence_entries, one),
                           text.mul(step_entries, one), ""};
    }
    text.count(sequences_, [&](const std::string& s) { sequence(s); });
    text.line("ret i32 0");
    return text.function(
        fmt::format("define i32 @{}_forward(ptr %lengths, ptr %arrays, ptr %workspace, i64 %workspace_bytes, "
                    "ptr %status)",
                    options_.prefix));
  }

  std::string total_rows() {
    const std::string total = text_->variable();
    text_->set(total, times(sequences_, steps_));
    text_->when(packed_, [&] {
      text_->set(total,
                 text_->value("load i64, ptr {}, align 8",
                              text_->value("getelementptr i64, ptr {}, i64 {}", offsets_, sequences_)));
    });
    return text_->get(total);
  }

  /// Offsets become addresses.
  void settle_workspace() {
    // Back to a multiple of 64: the first offset is 64.
    const std::string past = text_->value("and i64 {}, 63", text_->value("ptrtoint ptr %workspace to i64"));
    const std::string base = text_->at("%workspace", text_->sub("0", past));
    const auto settle = [&](std::string& offset) {
      if (!offset.empty()) offset = text_->at(base, offset);
    };
    for (PlannedKernels* k : {&step_, &fill_, &begin_}) {
      for (auto* list : {&k->once, &k->temps, &k->params, &k->outs})
        for (std::string& s : *list) settle(s);
    }
    for (auto& [symbol, area] : filled_) settle(area);
    for (State& s : states_) {
      settle(s.area);
      settle(s.carried[0]);
      settle(s.carried[1]);
      settle(s.start);
    }
    for (std::string& s : outs_) settle(s);
    for (auto& [symbol, area] : histories_) settle(area);
  }

  const std::string& address(FieldKind kind, int id) const {
    return addresses_.at(static_cast<std::size_t>(layout().find(kind, id) - layout().fields.data()));
  }

  /// Fills the slots of a kernel and calls it. `value` gives what is not the same for all.
  void call(const PlannedKernels& kernels, int kernel, const std::string& steps,
            const std::function<std::string(const Slot&)>& value) {
    const KernelCode& code = kernels.kernels[static_cast<std::size_t>(kernel)];
    if (code.function.empty()) return;
    const std::string slots =
        text_->room(fmt::format("[{} x i64]", std::max<std::size_t>(1, code.slots.size())));
    for (std::size_t i = 0; i < code.slots.size(); ++i) {
      const Slot& slot = code.slots[i];
      const std::string to = text_->at_word(slots, static_cast<int>(i));
      switch (slot.kind) {
        case SlotKind::Length:
          text_->set(to, length(static_cast<AxisId>(slot.id)));
          break;
        case SlotKind::Once:
          store_address(to, kernels.once[static_cast<std::size_t>(slot.id)]);
          break;
        case SlotKind::Temp:
          store_address(to, kernels.temps[static_cast<std::size_t>(slot.id)]);
          break;
        case SlotKind::Param:
          store_address(
              to, kernels.f64 ? kernels.params[static_cast<std::size_t>(slot.id)] : params_.at(slot.id));
          break;
        case SlotKind::Time:
        case SlotKind::InputStep:
        case SlotKind::StateStep:
        case SlotKind::OutStep:
          text_->set(to, value(slot));
          break;
        default:
          store_address(to, value(slot));
          break;
      }
    }
    const AxisId split = kernels.plan.split_axis;
    text_->line("call void @{}(ptr {}, i64 {}, i64 0, i64 {})", code.function, slots, steps,
                split == kNoAxis ? "0" : length(split));
  }
  void store_address(const std::string& to, const std::string& p) {
    text_->line("store ptr {}, ptr {}, align 8", p, to);
  }

  std::string entry(const std::string& type, const std::string& array, const std::string& i) {
    return text_->value("getelementptr {}, ptr {}, i64 {}", type, array, i);
  }

  /// To f64.
  void widen(const std::string& to, const std::string& from, const std::string& count) {
    text_->count(count, [&](const std::string& i) {
      std::string value =
          text_->value("load {}, ptr {}, align 4", arithmetic_type(), entry(arithmetic_type(), from, i));
      if (arithmetic_bytes_ == 4) value = text_->value("fpext float {} to double", value);
      text_->line("store double {}, ptr {}, align 8", value, entry("double", to, i));
    });
  }

  /// From f64, rounded once: to arithmetic precision, or to what an array of the storage type can hold.
  void round(const std::string& to, const std::string& from, const std::string& count, bool to_storage) {
    text_->count(count, [&](const std::string& i) {
      std::string value = text_->value("load double, ptr {}, align 8", entry("double", from, i));
      if (arithmetic_bytes_ == 4) {
        const std::string wide = value;
        value = text_->value("fptrunc double {} to float", wide);
        if (to_storage && narrow_) value = narrowed(rounded_to_odd(wide, value));
      }
      text_->line("store {} {}, ptr {}, align 4", arithmetic_type(), value, entry(arithmetic_type(), to, i));
    });
  }

  /// `value` rounded so that a second rounding, to 16 bits, gives what a single one would have given: where
  /// it is inexact, the neighbour whose last bit is set.
  std::string rounded_to_odd(const std::string& wide, const std::string& value) {
    const std::string back = text_->value("fpext float {} to double", value);
    const std::string bits = text_->value("bitcast float {} to i32", value);
    const std::string larger =
        text_->value("fcmp ogt double {}, {}", text_->value("call double @llvm.fabs.f64(double {})", back),
                     text_->value("call double @llvm.fabs.f64(double {})", wide));
    const std::string below = text_->value("sub i32 {}, {}", bits, text_->value("zext i1 {} to i32", larger));
    const std::string odd = text_->value("or i32 {}, 1", below);
    const std::string inexact = text_->value("fcmp one double {}, {}", back, wide);
    const std::string finite = text_->value("fcmp one float {}, 0x7FF0000000000000",
                                            text_->value("call float @llvm.fabs.f32(float {})", value));
    const std::string chosen =
        text_->value("select i1 {}, i32 {}, i32 {}", text_->both(inexact, finite), odd, bits);
    return text_->value("bitcast i32 {} to float", chosen);
  }

  /// An f32 that the storage type can hold; to nearest, ties to even.
  std::string narrowed(const std::string& value) {
    if (options_.storage == Storage::F16)
      return text_->value("fpext half {} to float", text_->value("fptrunc float {} to half", value));
    // In whole numbers: not every processor has bfloat.
    const std::string bits = text_->value("bitcast float {} to i32", value);
    const std::string last = text_->value("and i32 {}, 1", text_->value("lshr i32 {}, 16", bits));
    const std::string up = text_->value("add i32 {}, {}", text_->value("add i32 {}, 32767", bits), last);
    const std::string kept = text_->value("and i32 {}, -65536", up);
    const std::string number = text_->value("fcmp ord float {}, 0.0", value);
    return text_->value("select i1 {}, float {}, float {}", number,
                        text_->value("bitcast i32 {} to float", kept), value);
  }
  std::string arithmetic_type() const { return arithmetic_bytes_ == 8 ? "double" : "float"; }

  /// Runs a cell of starts or defaults: its outs go to `areas`, rounded to what an array of the
  /// storage type holds if that is asked for.
  void compute_defaults(const PlannedKernels& kernels, const std::vector<int>& symbols,
                        const std::vector<std::string>& areas, bool to_storage) {
    for (std::size_t p = 0; p < kernels.params.size(); ++p) {
      const int symbol = kernels.sources[p].id;
      widen(kernels.params[p], params_.at(symbol), entries(axes_of(symbol)));
    }
    const auto value = [&](const Slot& slot) -> std::string {
      switch (slot.kind) {
        case SlotKind::OutRow:
          return kernels.outs[static_cast<std::size_t>(slot.id)];
        case SlotKind::OutStep:
        case SlotKind::Time:
          return "0";
        default:
          throw std::logic_error("driver: a start or default reads a row");
      }
    };
    if (kernels.plan.once_kernel >= 0) call(kernels, kernels.plan.once_kernel, "1", value);
    for (const Phase& phase : kernels.plan.phases) call(kernels, phase.index, "1", value);
    for (std::size_t o = 0; o < areas.size(); ++o)
      round(areas[o], kernels.outs[o], entries(axes_of(symbols[o])), to_storage);
  }

  void fill_params() {
    params_.clear();
    std::string any = "false";
    for (int s = 0; s < static_cast<int>(cell().symbols.size()); ++s) {
      const Symbol& symbol = cell().symbols[s];
      if (symbol.kind != SymbolKind::Param) continue;
      const std::string& given = address(FieldKind::Param, s);
      if (const auto area = filled_.find(s); area != filled_.end()) {
        const std::string absent = text_->is_null(given);
        any = text_->either(any, absent);
        params_[s] = text_->pick_address(absent, area->second, given);
      } else {
        params_[s] = given;
      }
    }
    if (defaults_.symbols.empty()) return;
    text_->when(any, [&] {
      std::vector<std::string> areas;
      for (const int s : defaults_.symbols) areas.push_back(filled_.at(s));
      compute_defaults(fill_, defaults_.symbols, areas, true);
    });
  }

  void run_once() {
    if (step_.plan.once_kernel < 0) return;
    call(step_, step_.plan.once_kernel, "1",
         [](const Slot&) -> std::string { throw std::logic_error("driver: a value of params reads a row"); });
  }

  void fill_starts() {
    std::string any = "false";
    for (const State& s : states_) {
      if (s.parent >= 0) continue;
      const std::string absent = text_->is_null(address(FieldKind::Start, s.symbol));
      if (cell().symbols[s.symbol].initial != kNoNode)
        any = text_->either(any, absent);
      else
        text_->when(absent, [&] { text_->clear(s.start, bytes(axes_of(s.symbol), false)); });
    }
    if (!starts_.symbols.empty()) {
      text_->when(any, [&] {
        std::vector<std::string> areas;
        for (const int symbol : starts_.symbols)
          for (const State& s : states_)
            if (s.symbol == symbol) areas.push_back(s.start);
        compute_defaults(begin_, starts_.symbols, areas, false);
      });
    }
    for (const auto& [symbol, area] : histories_) {
      const std::string size = text_->mul(depth(symbol), bytes(axes_of(symbol), true));
      text_->when(text_->is_null(address(FieldKind::InputHistory, symbol)),
                  [&] { text_->clear(area, size); });
    }
  }

  // One sequence ---------------------------------------------------------------------------------

  void sequence(const std::string& s) {
    DriverText& text = *text_;
    const std::string begin = text.variable(), steps = text.variable();
    text.set(begin, "0");
    text.set(steps, steps_);
    text.when(packed_, [&] {
      const std::string here = text.value("getelementptr i64, ptr {}, i64 {}", offsets_, s);
      text.set(begin, text.number_at(here, 0));
      text.set(steps, text.sub(text.number_at(here, 1), text.number_at(here, 0)));
    });
    const std::string n = text.get(steps), first_row = text.get(begin);
    const std::string last = text.sub(n, "1");
    std::string some_absent = "false";
    for (auto& [word, rows] : rows_) {
      const std::string start =
          text.pick(packed_, text.mul(first_row, rows.step), text.mul(s, rows.sequence));
      const std::string ahead = text.pick(reversed_, text.mul(last, rows.step), "0");
      rows.first = text.at(rows.data, text.add(start, ahead));
      const CallField& field = *std::find_if(layout().fields.begin(), layout().fields.end(),
                                             [&](const CallField& f) { return f.word == word; });
      if (field.kind != FieldKind::Input) some_absent = text.either(some_absent, rows.absent);
    }
    for (const State& state : states_)
      if (!state.rows) some_absent = "true";
    std::vector<std::string> starts;
    for (const State& state : states_) starts.push_back(start_of(state, s));
    const std::string block = text.pick(some_absent, std::to_string(kBlockSteps), n), done = text.variable();
    text.set(done, "0");
    std::string t;
    text.loop(
        [&] {
          t = text.get(done);
          return text.is("slt", t, n);
        },
        [&] {
          const std::string now = text.lesser(block, text.sub(n, t));
          for (const Phase& phase : step_.plan.phases)
            call(step_, phase.index, now, [&](const Slot& slot) { return slot_value(slot, s, t, starts); });
          if (!narrow_)
            for (const State& state : states_) keep(state, now);
          text.set(done, text.add(t, now));
        });
    for (std::size_t i = 0; i < states_.size(); ++i) write_final(states_[i], s, n, starts[i]);
    for (const CallField& field : layout().fields)
      if (field.kind == FieldKind::FinalInputHistory) write_final_history(field, s, n);
    text.when(text.negated(text.is_null("%status")), [&] {
      text.line("store i32 0, ptr {}, align 4", text.value("getelementptr i32, ptr %status, i64 {}", s));
    });
  }

  std::string start_of(const State& state, const std::string& s) {
    const std::string size = bytes(axes_of(state.symbol), false);
    const auto plain = [&](int symbol, const std::string& otherwise) {
      const std::string& given = address(FieldKind::Start, symbol);
      return text_->pick_address(text_->is_null(given), otherwise, text_->at(given, text_->mul(s, size)));
    };
    if (state.parent < 0) return plain(state.symbol, state.start);
    const auto parent = std::find_if(states_.begin(), states_.end(),
                                     [&](const State& p) { return p.symbol == state.parent; });
    const std::string& history = address(FieldKind::StateHistory, state.parent);
    const std::string entry = text_->add(text_->mul(s, depth(state.parent)), std::to_string(state.lag - 1));
    return text_->pick_address(text_->is_null(history), plain(state.parent, parent->start),
                               text_->at(history, text_->mul(entry, size)));
  }

  std::string signed_step(const Rows& rows) {
    return text_->pick(reversed_, text_->sub("0", rows.step), rows.step);
  }
  std::string row_at(const Rows& rows, const std::string& t) {
    return text_->at(rows.first, text_->mul(t, signed_step(rows)));
  }

  std::string slot_value(const Slot& slot, const std::string& s, const std::string& t,
                         const std::vector<std::string>& starts) {
    const auto id = static_cast<std::size_t>(slot.id);
    const auto rows_of = [&](FieldKind kind, int owner) -> const Rows& {
      return rows_.at(layout().find(kind, owner)->word);
    };
    const auto written = [&](const Rows* rows, const std::string& area) {
      return rows ? text_->pick_address(rows->absent, area, row_at(*rows, t)) : area;
    };
    const auto stride = [&](const Rows* rows, const std::string& size) {
      return rows ? text_->pick(rows->absent, size, signed_step(*rows)) : size;
    };
    const auto state_rows = [&](const State& state) {
      return state.rows ? &rows_of(FieldKind::State, state.symbol) : nullptr;
    };
    switch (slot.kind) {
      case SlotKind::Time:
        return t;
      case SlotKind::InputRow:
        return row_at(rows_of(FieldKind::Input, slot.id), t);
      case SlotKind::InputStep:
        return signed_step(rows_of(FieldKind::Input, slot.id));
      case SlotKind::History: {
        const std::string& given = address(FieldKind::InputHistory, slot.id);
        const std::string size = text_->mul(depth(slot.id), bytes(axes_of(slot.id), true));
        return text_->pick_address(text_->is_null(given), histories_.at(slot.id),
                                   text_->at(given, text_->mul(s, size)));
      }
      case SlotKind::OutRow:
        return written(&rows_of(FieldKind::Out, slot.id), outs_[id]);
      case SlotKind::OutStep:
        return stride(&rows_of(FieldKind::Out, slot.id), bytes(cell().outs[id].index, true));
      case SlotKind::StateRow:
        return written(state_rows(states_[id]), states_[id].area);
      case SlotKind::StateStep:
        return stride(state_rows(states_[id]), bytes(axes_of(states_[id].symbol), true));
      // A block begins at an even step.
      case SlotKind::StateNew:
        return states_[id].carried[0];
      case SlotKind::StateSpare:
        return states_[id].carried[1];
      case SlotKind::StateOld: {
        const State& state = states_[id];
        std::string before = narrow_ ? state.carried[1] : state.carried[0];
        if (const Rows* rows = state_rows(state); rows && !narrow_)
          before = text_->pick_address(rows->absent, before, row_at(*rows, text_->sub(t, "1")));
        return text_->pick_address(text_->is("eq", t, "0"), starts[id], before);
      }
      default:
        throw std::logic_error("driver: no such slot");
    }
  }

  /// Rows of the workspace are written again by the next block.
  void keep(const State& state, const std::string& steps) {
    const std::string size = bytes(axes_of(state.symbol), false);
    const auto copy = [&] {
      text_->move(state.carried[0], text_->at(state.area, text_->mul(text_->sub(steps, "1"), size)), size);
    };
    if (!state.rows)
      copy();
    else
      text_->when(rows_.at(state.rows->word).absent, copy);
  }

  void write_final(const State& state, const std::string& s, const std::string& n, const std::string& start) {
    const bool lagged = state.parent >= 0;
    const std::string& to = address(lagged ? FieldKind::FinalStateHistory : FieldKind::Final,
                                    lagged ? state.parent : state.symbol);
    const std::string size = bytes(axes_of(state.symbol), false);
    text_->when(text_->negated(text_->is_null(to)), [&] {
      std::string last = state.carried[0];
      if (narrow_)
        last = text_->pick_address(text_->is("eq", text_->value("and i64 {}, 1", n), "0"), state.carried[1],
                                   state.carried[0]);
      else if (state.rows)
        last = text_->pick_address(rows_.at(state.rows->word).absent, last,
                                   row_at(rows_.at(state.rows->word), text_->sub(n, "1")));
      const std::string from = text_->pick_address(text_->is("eq", n, "0"), start, last);
      const std::string entry =
          lagged ? text_->add(text_->mul(s, depth(state.parent)), std::to_string(state.lag - 1)) : s;
      text_->move(text_->at(to, text_->mul(entry, size)), from, size);
    });
  }

  /// What the last steps read, the newest first; before the sequence's first step, what was given. From the
  /// oldest on, so that it may be written where it was read.
  void write_final_history(const CallField& field, const std::string& s, const std::string& n) {
    const std::string& to = address(field.kind, field.id);
    const std::string& given = address(FieldKind::InputHistory, field.id);
    const Rows& rows = rows_.at(layout().find(FieldKind::Input, field.id)->word);
    const std::string size = bytes(axes_of(field.id), true);
    text_->when(text_->negated(text_->is_null(to)), [&] {
      const std::string all = depth(field.id), offset = text_->mul(text_->mul(s, all), size);
      const std::string before =
          text_->pick_address(text_->is_null(given), histories_.at(field.id), text_->at(given, offset));
      text_->count(all, [&](const std::string& i) {
        const std::string j = text_->sub(text_->sub(all, "1"), i);
        const std::string from =
            text_->pick_address(text_->is("sge", j, n), text_->at(before, text_->mul(text_->sub(j, n), size)),
                                row_at(rows, text_->sub(text_->sub(n, "1"), j)));
        text_->move(text_->at(text_->at(to, offset), text_->mul(j, size)), from, size);
      });
    });
  }

  // Words ----------------------------------------------------------------------------------------

  std::string texts() {
    std::string ir, table;
    const auto constant = [&](const std::string& name, const std::string& text) {
      ir += fmt::format("@{} = private unnamed_addr constant [{} x i8] c\"{}\\00\"\n", name, text.size() + 1,
                        text);
    };
    result_.messages.push_back("no such result");
    for (std::size_t i = 0; i < result_.messages.size(); ++i) {
      constant(fmt::format("{}.text.{}", options_.prefix, i), result_.messages[i]);
      table += fmt::format("{}ptr @{}.text.{}", i ? ", " : "", options_.prefix, i);
    }
    constant(options_.prefix + ".about", options_.about);
    const std::size_t count = result_.messages.size();
    ir += fmt::format(
        "@{0}.texts = private unnamed_addr constant [{1} x ptr] [{2}]\n\n"
        "define ptr @{0}_message(i32 %result) {{\n"
        "  %known = call i32 @llvm.umin.i32(i32 %result, i32 {3})\n"
        "  %place = getelementptr [{1} x ptr], ptr @{0}.texts, i32 0, i32 %known\n"
        "  %text = load ptr, ptr %place, align 8\n"
        "  ret ptr %text\n}}\n\n"
        "define ptr @{0}_about() {{\n  ret ptr @{0}.about\n}}\n",
        options_.prefix, count, table, count - 1);
    return ir;
  }

  static constexpr const char* kMostBytes = "1152921504606846976";  // 2^60
  static constexpr const char* kTooLarge = "the lengths are too large for any memory";

  const DriverOptions& options_;
  const Defaults defaults_, starts_;
  bool narrow_ = false;
  int storage_bytes_ = 4, arithmetic_bytes_ = 4;
  DriverModule result_;
  PlannedKernels step_, fill_, begin_;
  std::set<llvm_math::Request> functions_;
  std::string kernels_ir_;

  // Of the function that is being written.
  DriverText* text_ = nullptr;
  int next_label_ = 0;
  std::map<AxisId, std::string> lengths_;
  std::map<std::vector<AxisId>, std::string> entries_;
  std::string sequences_, steps_, offsets_, packed_, reversed_;
  std::map<int, std::string> filled_, histories_, params_;
  std::vector<State> states_;
  std::vector<std::string> outs_, addresses_;
  std::map<int, Rows> rows_;  ///< by the field's first word
};

}  // namespace

DriverModule emit_driver(const CellGraph& cell, const Structure& structure, const DriverOptions& options) {
  return DriverEmitter(cell, structure, options).run();
}

}  // namespace cellc
