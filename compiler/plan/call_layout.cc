#include "compiler/plan/call_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/graph/axes.h"

namespace cellc {

const CallField* CallLayout::find(FieldKind kind, int id) const {
  for (const CallField& f : fields)
    if (f.kind == kind && f.id == id) return &f;
  return nullptr;
}

namespace {

/// Names are given out as they come: what the cell itself names comes first, so that no suffix takes such a name away.
class LayoutBuilder {
 public:
  explicit LayoutBuilder(const CellGraph& cell) : cell_(cell) {}

  CallLayout build() {
    for (const AxisId a : cell_.header)
      if (!cell_.graph.axis(a).fixed) layout_.lengths.push_back(a);
    // Kinds from `first` on up to `end` have one owner.
    for (int first = 0, end = 1; first < CELLC_FIELD_COUNT; first = end++) {
      const FieldOwner owner = traits_of(FieldKind(first)).owner;
      while (end < CELLC_FIELD_COUNT && traits_of(FieldKind(end)).owner == owner) ++end;
      for (const int id : owners(owner))
        for (int kind = first; kind < end; ++kind) add(FieldKind(kind), id);
    }
    return std::move(layout_);
  }

 private:
  std::vector<int> owners(FieldOwner owner) const {
    std::vector<int> found;
    if (owner == FieldOwner::Out)
      for (int o = 0; o < static_cast<int>(cell_.outs.size()); ++o) found.push_back(o);
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s)
      if (cell_.symbols[s].lag_of < 0 && cell_.symbols[s].line_of < 0 && owner_of(cell_.symbols[s].kind) == owner)
        found.push_back(s);
    return found;
  }
  static FieldOwner owner_of(SymbolKind kind) {
    return kind == SymbolKind::Input   ? FieldOwner::Input
           : kind == SymbolKind::Param ? FieldOwner::Param
                                       : FieldOwner::State;
  }

  void add(FieldKind kind, int id) {
    const FieldTraits traits = traits_of(kind);
    const Symbol* symbol = traits.owner == FieldOwner::Out ? nullptr : &cell_.symbols[id];
    CallField field{};
    if (traits.layout == FieldLayout::History) {
      if (symbol->max_lag == 0) return;
      field.reaches = reaches(cell_, id);
    }
    const std::string& own = symbol ? symbol->name : cell_.outs[id].name;
    field.kind = kind;
    field.id = id;
    field.name = own + traits.suffix;
    while (!names_.insert(field.name).second) field.name += "_";
    field.file = own + traits.file;
    const bool rows = traits.layout == FieldLayout::Rows;
    field.member = c_name(field.name);
    while (members_.count(field.member) || (rows && members_.count(field.member + "_strides"))) field.member += "_";
    members_.insert(field.member);
    if (rows) members_.insert(field.member + "_strides");  // its neighbour in the C header
    field.absent = traits.absent;
    field.written = traits.written;
    field.stored = traits.stored;
    if (field.absent == FieldAbsent::Declared && symbol->initial == kNoNode)
      field.absent = traits.owner == FieldOwner::Param ? FieldAbsent::Nothing : FieldAbsent::Zeros;
    for (const AxisId a : symbol ? symbol->axes : cell_.outs[id].index) field.axes.push_back(header_position(cell_, a));
    field.word = layout_.words;
    layout_.words += rows ? 3 : 1;
    layout_.fields.push_back(std::move(field));
  }

  const CellGraph& cell_;
  CallLayout layout_;
  std::set<std::string> names_, members_;
};

}  // namespace

CallLayout call_layout(const CellGraph& cell) { return LayoutBuilder(cell).build(); }

std::vector<Reach> reaches(const CellGraph& cell, int symbol) {
  std::vector<Reach> found;
  if (cell.symbols[symbol].max_lag >= 0) return {{cell.symbols[symbol].max_lag, -1}};
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& node = cell.graph[id];
    if (node.op != Op::Read || node.symbol != symbol) continue;
    const Reach reach{node.lag, node.lag_axis == kNoAxis ? -1 : header_position(cell, node.lag_axis)};
    if (std::find(found.begin(), found.end(), reach) == found.end()) found.push_back(reach);
  }
  return found;
}

std::int64_t history_depth(const std::vector<Reach>& reaches, const std::vector<std::int64_t>& lengths) {
  std::int64_t deepest = 0;
  for (const Reach& r : reaches)
    deepest = std::max(deepest, r.lag + (r.axis < 0 ? 0 : lengths[static_cast<std::size_t>(r.axis)] - 1));
  return deepest;
}

}  // namespace cellc
