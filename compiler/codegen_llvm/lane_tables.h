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
    std::map<int, int> of_rows;  // lane rows, of rows as they are
    for (std::size_t r = 0; r < tables.lane_rows.size(); ++r) of_rows[tables.lane_rows[r].rows] = static_cast<int>(r);
    for (const int s : read) {
      const ArraySource& source = of.sequences.sources[static_cast<std::size_t>(s)];
      const bool is_earlier = source.kind == ArraySource::Kind::Lagged;
      const EarlierInput from =
          is_earlier ? of.earlier[static_cast<std::size_t>(source.id)] : EarlierInput{source.id, 0};
      of_input[s] = add(arrays.input_rows.at(from.symbol), arrays.axes_of(from.symbol), from.lag,
                        is_earlier ? arrays.history_of.at(from.symbol) : -1);
      if (!is_earlier) of_rows[arrays.input_rows.at(from.symbol)] = of_input[s];
    }
    add_backward(of_rows);
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
  /// Of a backward call: sums of products by lane, and what comes and goes by rows of one sequence. What no kernel
  /// reads a product may.
  void add_backward(std::map<int, int>& of_rows) {
    std::map<int, int> symbols;  // by rows
    for (const auto& [symbol, rows] : arrays.input_rows) symbols[rows] = symbol;
    const auto find = [&](int rows) {
      if (const auto found = of_rows.find(rows); found != of_rows.end()) return found->second;
      return of_rows[rows] = add(rows, arrays.axes_of(symbols.at(rows)));
    };
    for (cellc_step_product& product : tables.products) {
      product.lane_left = find(product.left);
      if (product.right >= 0) product.lane_right = find(product.right);
    }
    for (cellc_gradient& gradient : tables.gradients) {
      gradient.lane_area = static_cast<int>(tables.areas.size());
      tables.areas.push_back({gradient.shape, 8, 0, 0, {0, 0}, CELLC_BY_LANE});
    }
    for (cellc_earlier& earlier : tables.earlier)
      if (const auto found = of_rows.find(earlier.rows); found != of_rows.end()) earlier.lane_rows = found->second;
    for (cellc_later& later : tables.later) later.lane_rows = of_rows.at(later.rows);
  }

  int add(int rows, const std::vector<AxisId>& axes, int back = 0, int history = -1) {
    const int area = arrays.area(axes, arrays.storage_bytes, true, {0, 0}, 0, CELLC_BY_LANE);
    tables.lane_rows.push_back({rows, area, arrays.area({}, 8, false, {0, 0}, 0, CELLC_BY_LANE), back, history});
    return static_cast<int>(tables.lane_rows.size()) - 1;
  }
};

}  // namespace cellc
