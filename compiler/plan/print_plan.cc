// The plan as text: phases in order, nests with their loops, what each computes and where it puts it.
#include <fmt/format.h>

#include <iterator>
#include <map>

#include "compiler/plan/plan.h"
#include "compiler/plan/plan_products.h"

namespace cellc {

namespace {

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {
    for (const NamedValue& n : plan.cell.named) names_.emplace(n.node, n.name);
    for (const StateUpdate& u : plan.cell.updates) names_.emplace(u.value, plan.cell.symbols[u.symbol].name + "'");
    for (const Out& o : plan.cell.outs) names_.emplace(o.value, o.name);
  }

  std::string print() {
    if (plan_.once_kernel >= 0) {
      put("once a run\n");
      nests(plan_.kernels[plan_.once_kernel]);
    }
    for (const Phase& phase : plan_.phases) {
      if (phase.product) {
        product(plan_.products[phase.index]);
      } else {
        put("every step: kernel {}\n", phase.index);
        nests(plan_.kernels[phase.index]);
      }
    }
    if (plan_.split_axis != kNoAxis) put("threads may share {}\n", axis(plan_.split_axis));
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string axis(AxisId id) const { return plan_.cell.graph.axis(id).name; }

  std::string axes(const std::vector<AxisId>& list) const {
    std::string text;
    for (const AxisId a : list) text += (text.empty() ? "" : ",") + axis(a);
    return text;
  }

  std::string brackets(const std::vector<AxisId>& list) const { return list.empty() ? "" : "[" + axes(list) + "]"; }

  std::string indices(const std::vector<Index>& list) const {
    std::string text;
    for (const Index& i : list) {
      text += (text.empty() ? "" : ",") + (i.is_axis() ? axis(i.axis) : fmt::format("{}", i.literal));
    }
    return list.empty() ? "" : "[" + text + "]";
  }

  std::string home(const Home& home) const {
    const CellGraph& cell = plan_.cell;
    const auto state = [&] { return cell.symbols[cell.updates[home.id].symbol].name; };
    switch (home.place) {
      case Place::Param:
      case Place::Input:
        return cell.symbols[home.id].name;
      case Place::StateOld:
        return state();
      case Place::StateNew:
        return state() + "'";
      case Place::StateRow:
        return "rounded " + state() + "'";
      case Place::Out:
        return "out " + cell.outs[home.id].name;
      case Place::Once:
        return fmt::format("once{}", home.id);
      case Place::Temp:
        return fmt::format("temp{}", home.id);
      case Place::Chunk:
        return fmt::format("rows{}", home.id);
    }
    return "?";
  }

  /// A name where the cell or the plan gives one, else the number of the node.
  std::string value(NodeId id) {
    const Node& n = plan_.cell.graph[id];
    if (n.op == Op::Constant) return fmt::format("{:.9g}", n.number);
    if (n.op == Op::Size) return "size[" + axis(n.index[0].axis) + "]";
    if (n.op == Op::Eye) return "eye" + indices(n.index);
    if (n.op == Op::OneHot) return fmt::format("({} == {})", axis(n.index[0].axis), n.index[1].literal);
    if (const auto it = loads_.find(id); it != loads_.end()) return it->second;
    if (const auto it = names_.find(id); it != names_.end()) return it->second;
    return fmt::format("%{}", id);
  }

  std::string operation(NodeId id, const Nest& nest) {
    const Node& n = plan_.cell.graph[id];
    std::string args;
    for (const NodeId a : n.args) args += (args.empty() ? "" : ", ") + value(a);
    if (n.op == Op::ReduceSum) return fmt::format("sum[{}]({})", axes(nest.bound), args);
    if (n.op == Op::ReduceMax) return fmt::format("max[{}]({})", axes(nest.bound), args);
    const OpInfo& info = op_info(n.op);
    if (info.call || info.arity != 2) return fmt::format("{}({})", info.text, args);
    return fmt::format("{} {} {}", value(n.args[0]), info.text, value(n.args[1]));
  }

  void nests(const Kernel& kernel) {
    for (const Nest& nest : kernel.nests) {
      loads_.clear();
      for (const Access& a : nest.loads) {
        std::string text = home(a.home) + indices(a.index);
        if (a.lag > 0 && a.lag_axis == kNoAxis) text = fmt::format("lag({}, {})", text, a.lag);
        if (a.lag_axis != kNoAxis) text = fmt::format("lag[{}]({}, {})", axis(a.lag_axis), text, a.lag);
        loads_[a.node] = text;
      }
      std::string loops;
      for (const auto& group : nest.loops)
        loops += fmt::format(" {}", group.size() > 1 ? "(" + axes(group) + ")" : axes(group));
      put("  for{}", loops.empty() ? " once" : loops);
      if (nest.is_reduction()) put(" over {}", axes(nest.bound_loops));
      put("{}\n", nest.vector_axis == kNoAxis ? "" : "  # lanes: " + axis(nest.vector_axis));
      for (const NodeId id : nest.inlined) put("      {} = {}\n", value(id), operation(id, nest));
      for (const NodeId id : nest.nodes) put("    {} = {}\n", value(id), operation(id, nest));
      for (const Store& s : nest.stores) put("    {}{} <- {}\n", home(s.home), brackets(s.home.dims), value(s.value));
    }
  }

  void product(const Product& p) {
    loads_.clear();
    put("all rows: {}{} = {}{} @ {}{}\n", home(p.result), brackets(p.result.dims), home(p.matrix),
        brackets(p.matrix.dims), home(p.operand), brackets(p.operand.dims));
  }

  const Plan& plan_;
  std::map<NodeId, std::string> names_, loads_;
  std::string text_;
};

}  // namespace

std::string print_plan(const CellGraph&, const Plan& plan) { return Printer(plan).print(); }

}  // namespace cellc
