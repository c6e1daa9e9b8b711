#include "runtime/data/call_shape.h"

#include <stdexcept>

namespace cellc {
namespace {

/// Lengths before those of the entries. `rows`: what rows are counted by.
std::vector<std::int64_t> leading(FieldLayout layout, std::int64_t sequences, std::vector<std::int64_t> rows,
                                  std::int64_t depth) {
  switch (layout) {
    case FieldLayout::Once:
      return {};
    case FieldLayout::Rows:
      return rows;
    case FieldLayout::Sequences:
      return {sequences};
    case FieldLayout::History:
      return {sequences, depth};
  }
  throw std::logic_error("no such layout of an array");
}

}  // namespace

Dtype arithmetic_of(Dtype storage) { return storage == Dtype::F64 ? Dtype::F64 : Dtype::F32; }
Dtype dtype_of(FieldKind kind, Dtype storage) { return traits_of(kind).stored ? storage : arithmetic_of(storage); }
Dtype dtype_of(const DirectedField& field, Dtype storage) {
  return field.quantity == Quantity::Gradient ? arithmetic_of(storage) : dtype_of(field.of.kind, storage);
}

FieldKind field_of(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::Input:
      return FieldKind::Input;
    case SymbolKind::Param:
      return FieldKind::Param;
    case SymbolKind::State:
      return FieldKind::Start;
  }
  throw std::logic_error("no such kind of symbol");
}

std::int64_t part_entries(const CallField& field, const CallShape& shape) {
  std::int64_t entries = field.is_history() ? history_depth(field.reaches, shape.lengths) : 1;
  for (const int a : field.axes) entries = cellc_times(entries, shape.lengths[static_cast<std::size_t>(a)]);
  return entries;
}

std::int64_t all_entries(const CallField& field, const CallShape& shape) {
  const FieldLayout layout = field.traits().layout;
  const std::int64_t parts = layout == FieldLayout::Rows   ? shape.rows
                             : layout == FieldLayout::Once ? 1
                                                           : shape.sequences;
  return cellc_times(parts, part_entries(field, shape));
}

std::vector<std::int64_t> array_shape(const CallField& field, const CallShape& shape) {
  std::vector<std::int64_t> rows{shape.rows};
  if (!shape.packed()) rows = {shape.sequences, shape.steps};
  const std::int64_t depth = field.is_history() ? history_depth(field.reaches, shape.lengths) : 0;
  std::vector<std::int64_t> result = leading(field.traits().layout, shape.sequences, std::move(rows), depth);
  for (const int a : field.axes) result.push_back(shape.lengths[static_cast<std::size_t>(a)]);
  return result;
}

cellc_strides strides_of(const CallField& field, const CallShape& shape, cellc_strides given) {
  return cellc_strides_of(given, part_entries(field, shape), shape.packed() ? shape.rows : shape.steps, shape.packed());
}

std::vector<std::int64_t> run_shape(FieldKind kind, const CellGraph& cell, const BoundRun& run,
                                    const std::vector<AxisId>& axes, std::int64_t depth) {
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  return AxisLengths(cell.graph, run.sizes)
      .shape(leading(traits_of(kind).layout, sequences, {run.offsets.back()}, depth), axes);
}

}  // namespace cellc
