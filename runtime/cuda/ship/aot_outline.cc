#include "runtime/cuda/ship/aot_outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/cuda/launch/stage_program.h"
#include "runtime/cuda/launch/stage_text.h"
#include "runtime/cuda/launch/strategy_numbers.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"

namespace cellc {
namespace {

// Types are told by the numbers that the compiler has for them.
static_assert(CELLC_F32 == static_cast<int>(Storage::F32) && CELLC_F64 == static_cast<int>(Storage::F64) &&
              CELLC_F16 == static_cast<int>(Storage::F16) && CELLC_BF16 == static_cast<int>(Storage::BF16));
int type_of(Dtype dtype) { return static_cast<int>(storage_of(dtype)); }

}  // namespace

cellc_dims AotOutline::dims(const std::vector<AxisId>& axes) {
  const cellc_dims result{static_cast<int>(to_.axes.size()), static_cast<int>(axes.size())};
  for (const AxisId a : axes) to_.axes.push_back(header_position(cell_, a));
  return result;
}

void AotOutline::describe() {
  const auto least = least_lengths(cell_);
  for (const AxisId a : cell_.header) {
    const auto said = request_.lengths.find(a);
    const auto fixed = said != request_.lengths.end() ? std::optional(said->second) : cell_.graph.axis(a).fixed;
    if (fixed && *fixed < least.at(a))
      throw RequestError(fmt::format("axis {} has length {}; the cell needs {} or more", cell_.graph.axis(a).name,
                                     *fixed, least.at(a)));
    to_.fixed.push_back(fixed.value_or(-1));
    to_.least.push_back(least.at(a));
  }
  if (cell_.header.size() > CELLC_MOST_AXES)
    throw UsageError(
        fmt::format("a cell of more than {} axes cannot be built for GPUs", static_cast<int>(CELLC_MOST_AXES)));
  CellGraph fixed = cell_;
  for (const auto& [axis, length] : request_.lengths) fixed.graph.fix_length(axis, length);
  to_.layout_ = call_layout(fixed);
  const CallLayout& layout = to_.layout_;
  for (const AxisId a : cell_.header) {
    const auto at = std::find(layout.lengths.begin(), layout.lengths.end(), a);
    to_.axis_word.push_back(at == layout.lengths.end() ? -1 : static_cast<int>(at - layout.lengths.begin()));
  }
  for (const CallField& f : layout.fields) to_.fields.push_back({static_cast<int>(f.kind), f.id, f.word, f.required()});
  for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
    const Symbol& symbol = cell_.symbols[s];
    cellc_symbol t{};
    t.kind = symbol.kind == SymbolKind::Input   ? CELLC_SYMBOL_INPUT
             : symbol.kind == SymbolKind::Param ? CELLC_SYMBOL_PARAM
                                                : CELLC_SYMBOL_STATE;
    t.axes = dims(symbol.axes);
    t.lag_of = symbol.lag_of;
    t.lag = symbol.lag;
    t.line_of = symbol.line_of;
    t.reaches.first = static_cast<int>(to_.axes.size());
    if (symbol.lag_of < 0 && symbol.max_lag != 0 && symbol.kind != SymbolKind::Param)
      for (const Reach& r : reaches(cell_, s)) {
        to_.axes.push_back(static_cast<int>(r.lag));
        to_.axes.push_back(r.axis);
      }
    t.reaches.count = static_cast<int>(to_.axes.size()) - t.reaches.first;
    if (symbol.initial != kNoNode && symbol.lag_of < 0) {
      const Node& initial = cell_.graph[symbol.initial];
      t.default_kind = initial.op == Op::Constant ? CELLC_DEFAULT_NUMBER : CELLC_DEFAULT_COMPUTED;
      if (initial.op == Op::Constant) t.number = std::bit_cast<std::uint64_t>(initial.number);
    }
    to_.symbols.push_back(t);
  }
  for (const StateUpdate& u : cell_.updates) to_.updates.push_back(u.symbol);
  for (const Out& o : cell_.outs) to_.outs.push_back(dims(o.index));
}

void AotOutline::finish(Dtype running, bool runs_stepwise, const GpuFacts& card) {
  const auto lanes = [](const AotLanes& of) {
    if (of.variants.empty()) return cellc_lanes{};
    return cellc_lanes{&of.tables.stage,
                       of.once.derived,
                       of.before.derived,
                       of.sources.data(),
                       of.sums.data(),
                       of.variants.data(),
                       static_cast<int>(of.variants.size()),
                       of.first_kernel};
  };
  for (AotStage& s : to_.stages) {
    for (const AotRemade& r : s.remade) s.remade_table.push_back({r.made.derived, r.copies.data()});
    to_.parts.push_back({s.facts, s.states.data(), lanes(s.plain), lanes(s.summing), lanes(s.making_outs),
                         s.stands_alone, s.remade_table.data(), s.remade_states.data(),
                         static_cast<int>(s.remade_table.size())});
  }
  for (const AotReduced& r : to_.reduced) to_.reduced_table.push_back({r.parts.data(), r.after.derived});
  cellc_cell& t = to_.cell_table_;
  t.outline.axis_count = static_cast<int>(to_.fixed.size());
  t.outline.fixed = to_.fixed.data();
  t.outline.least = to_.least.data();
  t.outline.axis_word = to_.axis_word.data();
  t.outline.first_word = static_cast<int>(to_.layout_.lengths.size());
  t.outline.fixed_steps = request_.steps.value_or(-1);
  t.outline.axes = to_.axes.data();
  t.outline.fields = to_.fields.data();
  t.symbols = to_.symbols.data();
  t.updates = to_.updates.data();
  t.outs = to_.outs.data();
  t.outline.field_count = static_cast<int>(to_.fields.size());
  t.symbol_count = static_cast<int>(to_.symbols.size());
  t.update_count = static_cast<int>(to_.updates.size());
  t.out_count = static_cast<int>(to_.outs.size());
  t.stage_count = static_cast<int>(to_.parts.size());
  t.storage = type_of(request_.dtype);
  t.running = type_of(running);
  t.real = type_of(arithmetic_of(request_.dtype));
  t.stages = to_.parts.data();
  if (runs_stepwise) t.whole = to_.whole.derived;
  t.after = to_.after.derived;
  t.defaults = to_.defaults.derived;
  t.starts = to_.starts.derived;
  t.reduced = to_.reduced_table.data();
  t.reduced_count = static_cast<int>(to_.reduced_table.size());
  t.tolerance = default_tolerance(request_.dtype);
  t.control_bytes = stage_control_bytes();
  t.kernel_count = static_cast<int>(to_.kernels.size());
  t.shared_per_block = card.shared_per_block;
  t.shared_per_multiprocessor = card.shared_per_multiprocessor;
  t.solver = solver_number(request_.solver);
}

}  // namespace cellc
