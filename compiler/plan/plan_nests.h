#pragma once
// Cuts the values of a kernel into nests, for plan.cc.
#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/plan/plan.h"

namespace cellc {

/// Memory homes of values, shared by all kernels of a plan.
using Homes = std::unordered_map<NodeId, Home>;

/// True for what every nest evaluates in place: no memory, no loop.
bool is_immediate(const Node& node);

/// The axes of a set of places, sorted.
std::vector<AxisId> sorted_axes(std::vector<AxisId> axes);

/// What a nest reads, computed in it or not.
template <typename F>
void each_operand(const Graph& graph, const Nest& nest, F f) {
  for (const NodeId id : nest.nodes) {
    for (const NodeId a : graph[id].args) f(a);
  }
  for (const NodeId id : nest.inlined) {
    for (const NodeId a : graph[id].args) f(a);
  }
  for (const Store& s : nest.stores) f(s.value);
}

/// What reading `node` means in kernel `kernel`: a leaf of memory, or the home of a computed value
/// under index renamings. Nullopt if it has no home (a value in a register).
std::optional<Access> resolve(const Plan& plan, const Homes& homes, const std::vector<int>& position_of_symbol,
                              int kernel, NodeId node);

/// Cuts `values` (computed in the kernel, ascending) and `stores` into nests, gives homes to the values
/// that other nests read, and chooses loop orders and lanes.
void schedule(Plan& plan, int kernel, const std::vector<NodeId>& values, std::vector<Store> stores, Homes& homes,
              const std::vector<int>& position_of_symbol);

}  // namespace cellc
