// A call before its first sequence: what is given is checked, defaults are filled in, kernels are called.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/codegen_llvm/driver_emitter.h"

namespace cellc {

std::string DriverEmitter::forward_function() {
  DriverText text;
  check_lengths(text);
  begin(text);
  const std::string size = lay_out();
  text.fail_when(text.is("uge", size, kMostBytes), code(CELLC_TOO_LARGE));
  text.fail_when(text.is_null("%arrays"), code(CELLC_NO_ARRAYS));
  const std::string total = total_rows();
  addresses_.clear();
  for (std::size_t f = 0; f < layout().fields.size(); ++f) {
    const CallField& field = layout().fields[f];
    addresses_.push_back(text.address_at("%arrays", field.word));
    if (!field.required) continue;
    std::string missing = text.is_null(addresses_.back());
    // No steps, no rows: their address is anything.
    if (field.is_rows()) missing = text.both(missing, text.is("sgt", total, "0"));
    text.fail_when(missing, code(fmt::format("{} is a null pointer", field.member)));
  }
  text.fail_when(text.is_null("%workspace"), code(CELLC_NO_WORKSPACE));
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

std::string DriverEmitter::total_rows() {
  const std::string total = text_->variable();
  text_->set(total, times(sequences_, steps_));
  text_->when(packed_, [&] {
    text_->set(total, text_->value("load i64, ptr {}, align 8",
                                   text_->value("getelementptr i64, ptr {}, i64 {}", offsets_, sequences_)));
  });
  return text_->get(total);
}

void DriverEmitter::settle_workspace() {
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

const std::string& DriverEmitter::address(FieldKind kind, int id) const {
  const CallField* field = layout().find(kind, id);
  if (!field) throw std::logic_error("driver: an address of what no call hands over");
  return addresses_.at(static_cast<std::size_t>(field - layout().fields.data()));
}

void DriverEmitter::call(const PlannedKernels& kernels, int kernel, const std::string& steps,
                         const std::function<std::string(const Slot&)>& value) {
  const KernelCode& code = kernels.kernels[static_cast<std::size_t>(kernel)];
  if (code.function.empty()) return;
  const std::string slots = text_->room(fmt::format("[{} x i64]", std::max<std::size_t>(1, code.slots.size())));
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
        store_address(to, kernels.f64 ? kernels.params[static_cast<std::size_t>(slot.id)] : params_.at(slot.id));
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

void DriverEmitter::store_address(const std::string& to, const std::string& p) {
  text_->line("store ptr {}, ptr {}, align 8", p, to);
}

std::string DriverEmitter::entry(const std::string& type, const std::string& array, const std::string& i) {
  return text_->value("getelementptr {}, ptr {}, i64 {}", type, array, i);
}

void DriverEmitter::widen(const std::string& to, const std::string& from, const std::string& count) {
  text_->count(count, [&](const std::string& i) {
    std::string value = text_->value("load {}, ptr {}, align 4", arithmetic_type(), entry(arithmetic_type(), from, i));
    if (arithmetic_bytes_ == 4) value = text_->value("fpext float {} to double", value);
    text_->line("store double {}, ptr {}, align 8", value, entry("double", to, i));
  });
}

void DriverEmitter::round(const std::string& to, const std::string& from, const std::string& count, bool to_storage) {
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

std::string DriverEmitter::rounded_to_odd(const std::string& wide, const std::string& value) {
  const std::string back = text_->value("fpext float {} to double", value);
  const std::string bits = text_->value("bitcast float {} to i32", value);
  const std::string larger =
      text_->value("fcmp ogt double {}, {}", text_->value("call double @llvm.fabs.f64(double {})", back),
                   text_->value("call double @llvm.fabs.f64(double {})", wide));
  const std::string below = text_->value("sub i32 {}, {}", bits, text_->value("zext i1 {} to i32", larger));
  const std::string odd = text_->value("or i32 {}, 1", below);
  const std::string inexact = text_->value("fcmp one double {}, {}", back, wide);
  const std::string finite =
      text_->value("fcmp one float {}, 0x7FF0000000000000", text_->value("call float @llvm.fabs.f32(float {})", value));
  const std::string chosen = text_->value("select i1 {}, i32 {}, i32 {}", text_->both(inexact, finite), odd, bits);
  return text_->value("bitcast i32 {} to float", chosen);
}

std::string DriverEmitter::narrowed(const std::string& value) {
  if (options_.storage == Storage::F16)
    return text_->value("fpext half {} to float", text_->value("fptrunc float {} to half", value));
  // In whole numbers: not every processor has bfloat.
  const std::string bits = text_->value("bitcast float {} to i32", value);
  const std::string last = text_->value("and i32 {}, 1", text_->value("lshr i32 {}, 16", bits));
  const std::string up = text_->value("add i32 {}, {}", text_->value("add i32 {}, 32767", bits), last);
  const std::string kept = text_->value("and i32 {}, -65536", up);
  const std::string number = text_->value("fcmp ord float {}, 0.0", value);
  return text_->value("select i1 {}, float {}, float {}", number, text_->value("bitcast i32 {} to float", kept), value);
}

void DriverEmitter::compute_defaults(const PlannedKernels& kernels, const std::vector<int>& symbols,
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

void DriverEmitter::fill_params() {
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
  if (defaults_.empty()) return;
  text_->when(any, [&] {
    std::vector<std::string> areas;
    for (const int s : defaults_) areas.push_back(filled_.at(s));
    compute_defaults(fill_, defaults_, areas, true);
  });
}

void DriverEmitter::run_once() {
  if (step_.plan.once_kernel < 0) return;
  call(step_, step_.plan.once_kernel, "1",
       [](const Slot&) -> std::string { throw std::logic_error("driver: a value of params reads a row"); });
}

void DriverEmitter::fill_starts() {
  std::string any = "false";
  for (const State& s : states_) {
    if (s.parent >= 0) continue;
    const std::string absent = text_->is_null(address(FieldKind::Start, s.symbol));
    if (cell().symbols[s.symbol].initial != kNoNode)
      any = text_->either(any, absent);
    else
      text_->when(absent, [&] { text_->clear(s.start, bytes(axes_of(s.symbol), false)); });
  }
  if (!starts_.empty()) {
    text_->when(any, [&] {
      std::vector<std::string> areas;
      for (const int symbol : starts_)
        for (const State& s : states_)
          if (s.symbol == symbol) areas.push_back(s.start);
      compute_defaults(begin_, starts_, areas, false);
    });
  }
  for (const auto& [symbol, area] : histories_) {
    const std::string size = text_->mul(depth(symbol), bytes(axes_of(symbol), true));
    text_->when(text_->is_null(address(FieldKind::InputHistory, symbol)), [&] { text_->clear(area, size); });
  }
}

}  // namespace cellc
