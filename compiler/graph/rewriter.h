#pragma once
// Copies values of a graph into another graph, or further into the same one, with changes. Every pass that makes a
// graph of a graph says by its rules what it changes; what no rule speaks of stays as it is.
//
//   Rewriter copy(from, to, {.symbol = [&](int s) { return number_of.at(s); }});
//   NodeId image = copy(root);
//
// A value is rewritten once: its image is kept by node and used again, also in later calls. Nodes of the target are
// hash-consed as always, so equal values become one node. Images are made in ascending order of ids and not by
// recursion, so a graph may be as deep as memory allows, and the ids in the target do not depend on how a walk went.
//
// Both graphs have the same axes under the same ids (Graph::without_nodes). Where the target is the source itself, a
// node none of whose operands changed is its own image.
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

/// By node of the source: its image in the target.
using Images = std::unordered_map<NodeId, NodeId>;

/// What a rule returns that finds that there can be no image: the rewrite ends without a result.
inline constexpr NodeId kNoImage = kNoNode - 1;

struct RewriteRules {
  /// A node that has an image by `replace` and whose operands are not needed for it.
  std::function<bool(NodeId)> ends = {};
  /// The image of a node, made before its operands' images are looked at; kNoNode: as the other rules have it;
  /// kNoImage: there is none.
  std::function<NodeId(NodeId, const Node&)> replace = {};
  /// The number in the target of a symbol that is read.
  std::function<int(int)> symbol = {};
  /// By kind of node: its image, made of the images of its operands.
  std::map<Op, std::function<NodeId(const Node&, const std::vector<NodeId>&)>> by_kind = {};
  /// Declared derivatives: kept with their values, or only their values (what runs).
  DeclaredSlopes slopes = DeclaredSlopes::Followed;
  /// stop_gradient: kept, or only its operand (what runs).
  bool drop_stop_gradient = false;
  /// What else must have an image before a node can have one, beside its operands. It may have a larger id.
  std::function<void(const Node&, std::vector<NodeId>&)> also_needs = {};
  /// Asked before each image is made; false ends the rewrite without a result.
  std::function<bool()> may_continue = {};
};

class Rewriter {
 public:
  /// `kept`: images that earlier rewrites have made by equal rules, to be used and added to; must outlive this.
  Rewriter(const Graph& from, Graph& to, RewriteRules rules = {}, Images* kept = nullptr);
  Rewriter(const Rewriter&) = delete;  // `images_` may be its own
  Rewriter& operator=(const Rewriter&) = delete;

  /// The image of `root`; kNoNode where a rule ended the rewrite.
  NodeId operator()(NodeId root);
  /// All of them in one order: ids in the target are as if they had one common user.
  std::vector<NodeId> operator()(const std::vector<NodeId>& roots);

  /// The same in two steps: the nodes that `roots` need and that have no image yet, ascending; and their images.
  std::vector<NodeId> needed(const std::vector<NodeId>& roots) const;
  bool make(const std::vector<NodeId>& nodes);  ///< false where a rule ended it

  /// The image of a node that has one.
  NodeId image(NodeId node) const { return images_.at(node); }

 private:
  NodeId made(NodeId id);

  const Graph& from_;
  Graph& to_;
  const RewriteRules rules_;
  Images own_;
  Images& images_;
};

}  // namespace cellc
