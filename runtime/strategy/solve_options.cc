#include "runtime/strategy/solve_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "runtime/data/errors.h"

namespace cellc {

bool asks_for(const SolveOptions& options, Strategy strategy) {
  if (options.plan.empty()) return options.solver == strategy;
  return std::any_of(options.plan.begin(), options.plan.end(),
                     [&](const StagePlan& p) { return p.strategy == strategy; });
}

double default_tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64:
      return 1e-12;
    case Dtype::F32:
      return 1e-6;
    default:
      return 1e-4;
  }
}

namespace {
constexpr std::pair<Products, const char*> kProducts[] = {{Products::F32, "f32"},   {Products::Tf32x3, "3xtf32"},
                                                          {Products::Tf32, "tf32"}, {Products::Bf16, "bf16"},
                                                          {Products::F16, "f16"},   {Products::Storage, "storage"}};
}

const char* to_string(Products products) {
  for (const auto& [known, name] : kProducts)
    if (known == products) return name;
  return "?";
}

Products gradient_products(Products products, Dtype storage) {
  if (products != Products::Storage || size_of(storage) != 2) return products;
  return storage == Dtype::BF16 ? Products::Bf16 : Products::F16;
}

Products tangent_products(Products products, Dtype storage) {
  const Products found = gradient_products(products, storage);
  return found == Products::F16 ? Products::Tf32 : found;
}

std::optional<Products> products_named(const std::string& name) {
  for (const auto& [known, text] : kProducts)
    if (name == text && known != Products::F16) return known;
  return std::nullopt;
}

std::string products_names() {
  std::string names;
  for (const auto& [known, name] : kProducts) {
    if (known == Products::F16) continue;
    names += std::string(names.empty() ? "" : known == Products::Storage ? " or " : ", ") + name;
  }
  return names;
}

double absolute_tolerance(const SolveOptions& options, const std::string& state) {
  const auto own = options.absolute_tolerances.find(state);
  return own == options.absolute_tolerances.end() ? options.absolute_tolerance : own->second;
}

double absolute_tolerance(const SolveOptions& options, const CellGraph& cell, int update) {
  const Symbol& symbol = cell.symbol_of(cell.updates[static_cast<std::size_t>(update)]);
  return absolute_tolerance(options, symbol.lag_of >= 0 ? cell.symbols[symbol.lag_of].name : symbol.name);
}

void take_absolute_tolerance(const std::string& one, const CellGraph& cell, SolveOptions& solve) {
  const std::size_t equals = one.find('=');
  const std::string name = equals == std::string::npos ? "" : one.substr(0, equals),
                    number = equals == std::string::npos ? one : one.substr(equals + 1);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (number.empty() || *end || !(value >= 0) || !std::isfinite(value))
    throw RequestError(fmt::format("'{}' is no number from 0 on", number));
  if (equals == std::string::npos) {
    solve.absolute_tolerance = value;
    return;
  }
  std::vector<std::string> states;
  for (const StateUpdate& update : cell.updates)
    if (const Symbol& symbol = cell.symbol_of(update); symbol.lag_of < 0) states.push_back(symbol.name);
  if (std::find(states.begin(), states.end(), name) == states.end())
    throw RequestError(fmt::format("the cell has no state '{}'; its states are {}", name, fmt::join(states, ", ")));
  solve.absolute_tolerances[name] = value;
}

void say_what_stays(const CellGraph& cell, const Structure& structure, const Wanted& wanted, SolveReport& report,
                    const std::function<bool(int)>& in_memory) {
  for (std::size_t k = 0; k < report.stages.size(); ++k) {
    const std::vector<int>& states = structure.stages[k].states;
    if (std::any_of(states.begin(), states.end(), [&](int u) {
          return cell.symbol_of(cell.updates[u]).lag_of < 0 && !wanted.state(static_cast<std::size_t>(u)) &&
                 (!in_memory || in_memory(u));
        }))
      report.stages[k].plan.reason += kStaysInMemory;
  }
}

}  // namespace cellc
