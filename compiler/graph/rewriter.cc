#include "compiler/graph/rewriter.h"

#include <utility>

namespace cellc {

Rewriter::Rewriter(const Graph& from, Graph& to, RewriteRules rules, Images* kept)
    : from_(from), to_(to), rules_(std::move(rules)), images_(kept ? *kept : own_) {}

NodeId Rewriter::operator()(NodeId root) { return make(needed({root})) ? image(root) : kNoNode; }

std::vector<NodeId> Rewriter::operator()(const std::vector<NodeId>& roots) {
  std::vector<NodeId> result(roots.size(), kNoNode);
  if (!make(needed(roots))) return result;
  for (std::size_t i = 0; i < roots.size(); ++i) result[i] = image(roots[i]);
  return result;
}

std::vector<NodeId> Rewriter::needed(const std::vector<NodeId>& roots) const {
  return walk_down(
      from_, roots,
      [&](NodeId id) {
        if (images_.contains(id)) return Visit::Skip;
        return rules_.ends && rules_.ends(id) ? Visit::Stop : Visit::Descend;
      },
      rules_.slopes);
}

bool Rewriter::make(const std::vector<NodeId>& nodes) {
  bool ended = false;
  const auto make_one = [&](NodeId id) {
    const NodeId image = made(id);
    ended = image == kNoImage;
    if (!ended) images_[id] = image;
  };
  const auto is_done = [&](NodeId id) { return images_.contains(id); };
  const auto needs = [&](NodeId id, std::vector<NodeId>& list) {
    const std::span<const NodeId> below = operands(from_[id], rules_.slopes);
    list.insert(list.end(), below.begin(), below.end());
    rules_.also_needs(from_[id], list);
  };
  for (const NodeId id : nodes) {
    if (rules_.may_continue && !rules_.may_continue()) return false;
    if (rules_.also_needs)
      postorder(id, needs, is_done, make_one);
    else
      make_one(id);
    if (ended) return false;
  }
  return true;
}

NodeId Rewriter::made(NodeId id) {
  const Node& node = from_[id];  // references to nodes outlive the growth of their graph
  if (rules_.replace)
    if (const NodeId image = rules_.replace(id, node); image != kNoNode) return image;
  std::vector<NodeId> args;
  for (const NodeId a : operands(node, rules_.slopes)) args.push_back(images_.at(a));
  if (const auto rule = rules_.by_kind.find(node.op); rule != rules_.by_kind.end()) return rule->second(node, args);
  const bool only_value = (node.op == Op::Surrogate && rules_.slopes == DeclaredSlopes::LeftOut) ||
                          (node.op == Op::StopGradient && rules_.drop_stop_gradient);
  if (only_value) return args[0];
  if (node.op == Op::Read && rules_.symbol) {
    const int symbol = rules_.symbol(node.symbol);
    if (symbol != node.symbol || &from_ != &to_)
      return to_.read(symbol, node.index, node.span, node.lag, node.lag_axis);
    return id;
  }
  return &from_ == &to_ && args == node.args ? id : to_.rebuild(node, std::move(args));
}

}  // namespace cellc
