// A driver as a whole: its plans, what a call says of lengths, the workspace, messages.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/codegen_llvm/driver_emitter.h"

namespace cellc {

DriverEmitter::DriverEmitter(const CellGraph& cell, const Structure& structure, const DriverOptions& options)
    : options_(options),
      defaults_(symbols_with_defaults(cell, SymbolKind::Param)),
      starts_(symbols_with_defaults(cell, SymbolKind::State)) {
  const bool narrow = options.storage == Storage::F16 || options.storage == Storage::BF16;
  narrow_ = narrow;
  storage_bytes_ = narrow ? 2 : options.storage == Storage::F64 ? 8 : 4;
  arithmetic_bytes_ = options.storage == Storage::F64 ? 8 : 4;
  result_.cell = cell;
  check_fixed();
  fix(result_.cell.graph);
  result_.layout = call_layout(result_.cell);
  result_.messages = {cellc_message(CELLC_DONE)};
  add(step_, cell, structure, options.storage, ".step");
  // Starts and defaults are computed in f64 and rounded once, as they are for runs of our own.
  const auto add_f64 = [&](PlannedKernels& to, const DerivedCell& of, const char* name) {
    to.f64 = true;
    to.sources = of.sources;
    if (of.role != Role::None) add(to, of.cell, Structure{}, Storage::F64, name);
  };
  add_f64(fill_, defaults_of(cell, defaults_, Role::Defaults), ".default");
  add_f64(begin_, defaults_of(cell, starts_, Role::Starts), ".start");
}

DriverModule DriverEmitter::run() {
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

void DriverEmitter::fix(Graph& graph) const {
  for (const auto& [axis, length] : options_.lengths) graph.fix_length(axis, length);
}

void DriverEmitter::check_fixed() const {
  for (const auto& [axis, least] : least_lengths(cell()))
    if (const auto found = options_.lengths.find(axis); found != options_.lengths.end() && found->second < least)
      throw std::invalid_argument(fmt::format("axis {} has length {}; the cell needs {} or more",
                                              cell().graph.axis(axis).name, found->second, least));
}

void DriverEmitter::add(PlannedKernels& to, const CellGraph& cell, const Structure& structure, Storage storage,
                        const char* name) {
  // Lengths are fixed after planning: the loops, and with them the bits, are those of a run that learns its
  // lengths from arrays.
  to.plan = make_plan(cell, structure,
                      {.narrow_storage = storage == Storage::F16 || storage == Storage::BF16, .hoist_products = false});
  if (!to.plan.chunks.empty() || !to.plan.products.empty()) throw std::logic_error("driver: a plan passes rows on");
  fix(to.plan.cell.graph);
  EmitOptions emit;
  emit.storage = storage;
  emit.vector_bits = options_.vector_bits;
  emit.functions = options_.prefix + name;
  EmittedModule module = emit_llvm_kernels(to.plan, emit, functions_);
  kernels_ir_ += module.ir;
  to.kernels = std::move(module.kernels);
}

int DriverEmitter::code(int result) { return code(cellc_message(result)); }

int DriverEmitter::code(const std::string& message) {
  const auto found = std::find(result_.messages.begin(), result_.messages.end(), message);
  if (found == result_.messages.end()) result_.messages.push_back(message);
  return static_cast<int>(std::find(result_.messages.begin(), result_.messages.end(), message) -
                          result_.messages.begin());
}

std::string DriverEmitter::length(AxisId axis) {
  const AxisId header = cell().graph.axis(axis).extent_of;
  if (const auto fixed = cell().graph.axis(header).fixed) return std::to_string(*fixed);
  return lengths_.at(header);
}

std::string DriverEmitter::times(const std::string& a, const std::string& b) {
  if (a == "1") return b;
  if (b == "1") return a;
  return text_->value("call i64 @{}.times(i64 {}, i64 {})", options_.prefix, a, b);
}

std::string DriverEmitter::plus(const std::string& a, const std::string& b) {
  return text_->value("call i64 @{}.plus(i64 {}, i64 {})", options_.prefix, a, b);
}

std::string DriverEmitter::bounded_arithmetic() const {
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

std::string DriverEmitter::entries(const std::vector<AxisId>& axes) {
  std::vector<AxisId> key;
  for (const AxisId a : axes) key.push_back(cell().graph.axis(a).extent_of);
  std::sort(key.begin(), key.end());
  const auto [it, fresh] = entries_.try_emplace(key, "1");
  if (fresh)
    for (const AxisId a : key) it->second = times(it->second, length(a));
  return it->second;
}

std::string DriverEmitter::bytes(const std::vector<AxisId>& axes, bool storage) {
  return times(entries(axes), std::to_string(storage ? storage_bytes_ : arithmetic_bytes_));
}

std::string DriverEmitter::depth(int symbol) {
  std::string deepest = "0";
  for (const Reach& reach : reaches(cell(), symbol)) {
    const std::string lag = std::to_string(reach.lag);
    const std::string here = reach.axis == kNoAxis ? lag : text_->sub(text_->add(length(reach.axis), lag), "1");
    deepest = deepest == "0" ? here : text_->pick(text_->is("sgt", deepest, here), deepest, here);
  }
  return deepest;
}

void DriverEmitter::begin(DriverText& text) {
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

std::string DriverEmitter::lay_out() {
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
  for (const int s : defaults_) filled_[s] = take(bytes(axes_of(s), false));
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
    if (f.kind == FieldKind::InputHistory) histories_[f.id] = take(times(depth(f.id), bytes(axes_of(f.id), true)));
  return end;
}

std::string DriverEmitter::check_function() {
  DriverText text;
  text.fail_when(text.is_null("%lengths"), code(CELLC_NO_LENGTHS));
  begin(text);
  std::map<AxisId, std::int64_t> least = least_lengths(cell());
  for (const AxisId a : layout().lengths)
    text.fail_when(text.is("slt", lengths_.at(a), std::to_string(least[a])),
                   code(fmt::format("the length of axis {} is less than {}", cell().graph.axis(a).name, least[a])));
  text.fail_when(text.is("slt", sequences_, "0"), code(CELLC_NEGATIVE_SEQUENCES));
  if (options_.steps) {
    text.fail_when(packed_,
                   code(fmt::format("offsets are given, but this function was built for {} steps", *options_.steps)));
    text.fail_when(
        text.is("ne", steps_, std::to_string(*options_.steps)),
        code(fmt::format("the number of steps is not {}, for which this function was built", *options_.steps)));
  }
  text.when(packed_, [&] {
    text.fail_when(text.is("ne", text.number_at(offsets_, 0), "0"), code(CELLC_BAD_OFFSETS));
    text.count(sequences_, [&](const std::string& s) {
      const std::string here = text.value("getelementptr i64, ptr {}, i64 {}", offsets_, s);
      text.fail_when(text.is("slt", text.number_at(here, 1), text.number_at(here, 0)), code(CELLC_DECREASING_OFFSETS));
    });
  });
  text.fail_when(text.both(text.negated(packed_), text.is("slt", steps_, "0")), code(CELLC_NEGATIVE_STEPS));
  text.line("ret i32 0");
  return bounded_arithmetic() +
         text.function(fmt::format("define internal i32 @{}.check(ptr %lengths)", options_.prefix));
}

void DriverEmitter::check_lengths(DriverText& text) {
  const std::string checked = text.value("call i32 @{}.check(ptr %lengths)", options_.prefix);
  const int n = next_label_++;
  text.line("%bad{} = icmp ne i32 {}, 0", n, checked);
  text.line("br i1 %bad{0}, label %wrong{0}, label %right{0}\nwrong{0}:\n  ret i32 {1}\nright{0}:", n, checked);
}

std::string DriverEmitter::workspace_function() {
  DriverText text;
  text.fail_when(text.is_null("%bytes"), code(CELLC_NO_BYTES));
  check_lengths(text);
  begin(text);
  const std::string size = lay_out();
  text.fail_when(text.is("uge", size, kMostBytes), code(CELLC_TOO_LARGE));
  text.line("store i64 {}, ptr %bytes, align 8", size);
  text.line("ret i32 0");
  return text.function(fmt::format("define i32 @{}_workspace(ptr %lengths, ptr %bytes)", options_.prefix));
}

std::string DriverEmitter::texts() {
  std::string ir, table;
  const auto constant = [&](const std::string& name, const std::string& text) {
    ir += fmt::format("@{} = private unnamed_addr constant [{} x i8] c\"{}\\00\"\n", name, text.size() + 1, text);
  };
  result_.messages.push_back(cellc_message(CELLC_RESULT_COUNT));
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

DriverModule emit_driver(const CellGraph& cell, const Structure& structure, const DriverOptions& options) {
  return DriverEmitter(cell, structure, options).run();
}

}  // namespace cellc
