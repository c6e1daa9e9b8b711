#pragma once
// A driver's tables of sequences that lie side by side: their rows, and where kernels over lanes find what they ask
// for. Private to emit_llvm_driver.cc.
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "compiler/codegen_llvm/driver_arrays.h"
#include "compiler/derive/sequences_cell.h"
#include "compiler/plan/plan.h"

namespace cellc {

struct LaneTables {
  LaneTables(ArrayTables& arrays, SequencesCell cell) : arrays(arrays), tables(arrays.tables), of(std::move(cell)) {}

  bool is_lane(AxisId axis) const { return axis == of.lane; }
  /// Whether a plan is of the cell over lanes.
  bool owns(const Plan& plan) const { return !plan.cell.header.empty() && is_lane(plan.cell.header.back()); }

  /// Behind those of sequences that run one after another.
  void add_rows(const std::vector<KernelCode>& kernels) {
    const CellGraph& cell = arrays.cell;
    for (std::size_t u = 0; u < tables.states.size(); ++u) {
      const std::vector<AxisId>& axes = cell.symbol_of(cell.updates[u]).axes;
      const auto area = [&] { return arrays.area(axes, arrays.real_bytes, false, {0, 0}, 0, CELLC_BY_LANE); };
      const int rows = add(tables.states[u].rows, axes), held = area();
      tables.lane_states.push_back({rows, held, arrays.narrow ? area() : -1});
    }
    for (std::size_t o = 0; o < cell.outs.size(); ++o) of_out.push_back(add(arrays.out_rows[o], cell.outs[o].index));
    std::set<int> read;
    for (const KernelCode& kernel : kernels)
      for (const Slot& slot : kernel.slots)
        if (slot.kind == SlotKind::InputRow) read.insert(slot.id);
    for (const int s : read) {
      const ArraySource& source = of.sequences.sources[static_cast<std::size_t>(s)];
      const bool is_earlier = source.kind == ArraySource::Kind::Lagged;
      const EarlierInput from =
          is_earlier ? of.earlier[static_cast<std::size_t>(source.id)] : EarlierInput{source.id, 0};
      of_input[s] = add(arrays.input_rows.at(from.symbol), arrays.axes_of(from.symbol), from.lag,
                        is_earlier ? arrays.history_of.at(from.symbol) : -1);
    }
  }

  /// Section and place in it; nullopt: where the other kernels find it.
  std::optional<std::pair<int, int>> place(const Slot& slot) const {
    using Place = std::pair<int, int>;
    const auto id = static_cast<std::size_t>(slot.id);
    const auto area = [&](int rows) {
      return Place{CELLC_AREAS, tables.lane_rows[static_cast<std::size_t>(rows)].area};
    };
    switch (slot.kind) {
      case SlotKind::Length:
        if (is_lane(static_cast<AxisId>(slot.id))) return Place{CELLC_LANES, 0};
        return std::nullopt;
      case SlotKind::Once:
      case SlotKind::Temp:
      case SlotKind::Param:
        return std::nullopt;
      case SlotKind::InputRow:
        return area(of_input.at(slot.id));
      case SlotKind::InputStep:
        return Place{CELLC_LANE_STEPS, of_input.at(slot.id)};
      case SlotKind::OutRow:
        return area(of_out[id]);
      case SlotKind::OutStep:
        return Place{CELLC_LANE_STEPS, of_out[id]};
      case SlotKind::StateRow:
        return area(tables.lane_states[id].lane_rows);
      case SlotKind::StateStep:
        return Place{CELLC_LANE_STEPS, tables.lane_states[id].lane_rows};
      case SlotKind::StateNew:  // every block begins as if at an even step
        return Place{CELLC_AREAS, tables.lane_states[id].carried};
      case SlotKind::StateSpare:
      case SlotKind::StateOld:
        return Place{CELLC_AREAS, tables.lane_states[id].held};
      case SlotKind::Time:
      case SlotKind::History:
      case SlotKind::StateGiven:
      case SlotKind::ChunkRow:
      case SlotKind::ChunkStep:
        break;
    }
    throw std::logic_error("driver: lanes have no such slot");
  }

  ArrayTables& arrays;
  CallTables& tables;
  SequencesCell of;
  std::map<int, int> of_input;  ///< lane rows, by symbol of that cell
  std::vector<int> of_out;

 private:
  int add(int rows, const std::vector<AxisId>& axes, int back = 0, int history = -1) {
    const int area = arrays.area(axes, arrays.storage_bytes, true, {0, 0}, 0, CELLC_BY_LANE);
    tables.lane_rows.push_back({rows, area, arrays.area({}, 8, false, {0, 0}, 0, CELLC_BY_LANE), back, history});
    return static_cast<int>(tables.lane_rows.size()) - 1;
  }
};

}  // namespace cellc
