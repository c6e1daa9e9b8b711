#include "runtime/data/given_arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/syntax/diagnostic.h"

namespace cellc {
namespace {

constexpr const char* kLag = ".lag";

bool is_16_bit(Dtype dtype) { return dtype == Dtype::F16 || dtype == Dtype::BF16; }

/// What might have been meant by a name that there is none of.
std::string suggestion(const std::string& name, const std::string& what, const std::vector<std::string>& names) {
  const std::string near = closest_name(name, names);
  if (!near.empty()) return fmt::format("; did you mean '{}'?", near);
  return names.empty() ? fmt::format("; it has no {}", what)
                       : fmt::format("; its {}: {}", what, fmt::join(names, ", "));
}

/// Integers and truth values are taken as the numbers that they are, in whatever the other arrays are in.
bool is_integer(const MatchedArray& m) { return m.given->array.dtype() == Dtype::I64; }

}  // namespace

const char* to_string(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::State:
      return "state";
    case SymbolKind::Input:
      return "input";
    case SymbolKind::Param:
      return "param";
  }
  throw std::logic_error("bind: no such kind of symbol");
}

GivenArrays::GivenArrays(const CellGraph& cell, const CallLayout& layout, const BindRequest& request)
    : cell_(cell), layout_(layout), request_(request) {
  match(request.inputs, SymbolKind::Input);
  match(request.params, SymbolKind::Param);
  match(request.states, SymbolKind::State);
  check_numbers();
}

void GivenArrays::check_numbers() const {
  for (const auto& [name, number] : request_.param_numbers) {
    (void)number;
    field_named(name, SymbolKind::Param);
    if (request_.params.count(name)) throw UsageError(fmt::format("--param {} is given twice", name));
  }
  std::vector<std::string> axes;
  for (const AxisId a : cell_.header) axes.push_back(cell_.graph.axis(a).name);
  for (const auto& [name, length] : request_.dims) {
    (void)length;
    if (std::find(axes.begin(), axes.end(), name) != axes.end()) continue;
    throw UsageError(
        fmt::format("--dim {}: cell {} has no axis '{}'{}", name, cell_.name, name, suggestion(name, "axes", axes)));
  }
}

/// The field that is read and called so by the option of a kind.
const CallField& GivenArrays::field_named(const std::string& name, SymbolKind kind) const {
  const bool lagged = name.size() > 4 && name.ends_with(kLag);
  const std::string own = lagged ? name.substr(0, name.size() - 4) : name;
  // The history of an input may come by either option: it is an input's, and it is a start.
  const bool either = lagged && kind != SymbolKind::Param;
  std::vector<std::string> names;
  for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
    const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
    if (symbol.lag_of >= 0 || symbol.line_of >= 0) continue;
    if (symbol.kind == kind) names.push_back(symbol.name);
    if (symbol.name != own) continue;
    if (symbol.kind != kind && !(either && symbol.kind != SymbolKind::Param))
      throw RequestError(fmt::format("--{} {}: '{}' is {} {} of cell {}; give it with --{}", to_string(kind), own, own,
                                     symbol.kind == SymbolKind::Input ? "an" : "a", to_string(symbol.kind), cell_.name,
                                     to_string(symbol.kind)));
    for (const CallField& field : layout_.fields)
      if (field.id == s && field.file == name && !field.is_written() && field.traits().owner != FieldOwner::Out)
        return field;
    throw RequestError(fmt::format("--{} {}: cell {} never reads {} at a lag, so there is no history to give",
                                   to_string(kind), name, cell_.name, own));
  }
  throw RequestError(fmt::format("--{} {}: cell {} has no {} '{}'{}", to_string(kind), own, cell_.name, to_string(kind),
                                 own, suggestion(own, to_string(kind) + std::string("s"), names)));
}

void GivenArrays::match(const std::map<std::string, GivenArray>& given, SymbolKind kind) {
  for (const auto& [name, array] : given) {
    const CallField& field = field_named(name, kind);
    const SymbolKind own = cell_.symbols[static_cast<std::size_t>(field.id)].kind;
    matched_.push_back(
        {&field, without_last(field, array), fmt::format("{} {} ({})", to_string(own), name, array.source)});
  }
}

/// One number is often an array of one: [1] for a param without axes, [B, T, 1] for an input, where no other shape
/// can be meant.
const GivenArray* GivenArrays::without_last(const CallField& field, const GivenArray& given) {
  std::vector<std::int64_t> shape = given.array.shape();
  const FieldLayout layout = field.traits().layout;
  const bool two = layout == FieldLayout::History || (layout == FieldLayout::Rows && !request_.offsets);
  const std::size_t most = layout == FieldLayout::Once ? 0 : two ? 2 : 1;
  if (!field.axes.empty() || shape.size() != most + 1 || shape.back() != 1) return &given;
  shape.pop_back();
  return &scalars_.emplace_back(GivenArray{given.source, given.array.with_shape(std::move(shape))});
}

const GivenArray* GivenArrays::find(FieldKind kind, int id) const {
  for (const MatchedArray& m : matched_)
    if (m.field->kind == kind && m.field->id == id) return m.given;
  return nullptr;
}

Dtype GivenArrays::dtype() const {
  for (const MatchedArray& m : matched_)
    if (m.given->array.dtype() == Dtype::U16 && request_.dtype != Dtype::BF16)
      throw RequestError(fmt::format(
          "{} holds raw 16-bit numbers: pass --dtype bf16 if they are bfloat16, or save it as float32", m.label));
  if (request_.dtype) return *request_.dtype;
  const MatchedArray* first = nullptr;
  for (const FieldOwner owner : {FieldOwner::Input, FieldOwner::Param, FieldOwner::State})
    for (const MatchedArray& m : matched_)
      if (!first && m.field->traits().owner == owner && !is_integer(m)) first = &m;
  if (!first) return Dtype::F32;
  const Dtype found = first->given->array.dtype();
  for (const MatchedArray& m : matched_) {
    const Dtype dtype = m.given->array.dtype();
    if (dtype == found || is_integer(m)) continue;
    // What a 16-bit run writes as h.final is f32, and must go back in as it is.
    if (m.field->traits().owner == FieldOwner::State && is_16_bit(found) && dtype == Dtype::F32) continue;
    throw RequestError(fmt::format("{} is {}, but {} is {}: give arrays of one dtype, or state --dtype", m.label,
                                   to_string(dtype), first->label, to_string(found)));
  }
  return found;
}

}  // namespace cellc
