#include "compiler/plan/call_layout.h"

#include <algorithm>
#include <set>

namespace cellc {

const CallField* CallLayout::find(FieldKind kind, int id) const {
  for (const CallField& f : fields)
    if (f.kind == kind && f.id == id) return &f;
  return nullptr;
}

CallLayout call_layout(const CellGraph& cell) {
  CallLayout layout;
  for (const AxisId a : cell.header)
    if (!cell.graph.axis(a).fixed) layout.lengths.push_back(a);
  std::set<std::string> names, members;
  const auto add = [&](FieldKind kind, int id, std::string name, bool required) {
    while (!names.insert(name).second) name += "_";
    const bool rows = traits_of(kind).rows;
    std::string member = c_name(name);
    while (members.count(member) || (rows && members.count(member + "_strides"))) member += "_";
    members.insert(member);
    if (rows) members.insert(member + "_strides");  // its neighbour in the C header
    layout.fields.push_back({kind, id, name, member, layout.words, required});
    layout.words += rows ? 3 : 1;
  };
  const auto each = [&](SymbolKind kind, const auto& visit) {
    for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s)
      if (cell.symbols[s].kind == kind && cell.symbols[s].lag_of < 0) visit(s, cell.symbols[s]);
  };
  // What the cell itself names comes first, so that no suffix of ours takes such a name away.
  std::vector<std::pair<int, const Symbol*>> lagged_inputs, states;
  each(SymbolKind::Input, [&](int s, const Symbol& x) { add(FieldKind::Input, s, x.name, true); });
  each(SymbolKind::Param, [&](int s, const Symbol& p) { add(FieldKind::Param, s, p.name, p.initial == kNoNode); });
  each(SymbolKind::State, [&](int s, const Symbol& h) { add(FieldKind::State, s, h.name, false); });
  for (int o = 0; o < static_cast<int>(cell.outs.size()); ++o) add(FieldKind::Out, o, cell.outs[o].name, false);
  each(SymbolKind::State, [&](int s, const Symbol& h) {
    add(FieldKind::Start, s, h.name + "_start", false);
    if (h.max_lag != 0) add(FieldKind::StateHistory, s, h.name + "_lag", false);
  });
  each(SymbolKind::Input, [&](int s, const Symbol& x) {
    if (x.max_lag != 0) add(FieldKind::InputHistory, s, x.name + "_lag", false);
  });
  each(SymbolKind::State, [&](int s, const Symbol& h) {
    add(FieldKind::Final, s, h.name + "_final", false);
    if (h.max_lag != 0) add(FieldKind::FinalStateHistory, s, h.name + "_lag_final", false);
  });
  each(SymbolKind::Input, [&](int s, const Symbol& x) {
    if (x.max_lag != 0) add(FieldKind::FinalInputHistory, s, x.name + "_lag_final", false);
  });
  return layout;
}

const std::vector<AxisId>& field_axes(const CellGraph& cell, const CallField& field) {
  return field.kind == FieldKind::Out ? cell.outs[field.id].index : cell.symbols[field.id].axes;
}

std::vector<Reach> reaches(const CellGraph& cell, int symbol) {
  std::vector<Reach> found;
  if (cell.symbols[symbol].max_lag >= 0) return {{cell.symbols[symbol].max_lag, kNoAxis}};
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& node = cell.graph[id];
    if (node.op != Op::Read || node.symbol != symbol) continue;
    const Reach reach{node.lag, node.lag_axis == kNoAxis ? kNoAxis : cell.graph.axis(node.lag_axis).extent_of};
    if (std::find(found.begin(), found.end(), reach) == found.end()) found.push_back(reach);
  }
  return found;
}

std::int64_t history_depth(const CellGraph& cell, const std::vector<std::int64_t>& lengths, int symbol) {
  std::int64_t deepest = 0;
  for (const Reach& r : reaches(cell, symbol)) {
    std::int64_t here = r.lag;
    for (std::size_t a = 0; a < cell.header.size(); ++a)
      if (cell.header[a] == r.axis) here += lengths[a] - 1;
    deepest = std::max(deepest, here);
  }
  return deepest;
}

}  // namespace cellc
