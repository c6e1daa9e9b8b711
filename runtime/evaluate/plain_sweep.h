#pragma once
// Derivatives of one evaluation, number by number: backwards over the values that an Evaluator has, from users to
// operands. No graph is made, no rule of analysis/ is used, and no term is taken apart: what `run --verify` and the
// tests hold the adjoint cell against shares the values with it and nothing else.
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "compiler/graph/evaluate.h"

namespace cellc {

class PlainSweep {
 public:
  /// Called for each number that is read and reached, as often as it is: what it adds to the cotangent of that number.
  using Visit = std::function<void(int symbol, const std::vector<std::int64_t>& position, int lag, double cotangent)>;

  PlainSweep(const CellGraph& cell, Evaluator& evaluator) : cell_(cell), evaluator_(evaluator) {}

  /// Adds the cotangent of `node` as it is written over `index`, in row-major order.
  void seed(NodeId node, const std::vector<AxisId>& index, const std::vector<double>& cotangent);
  /// Passes everything on; nothing is left.
  void run(const Visit& visit);

 private:
  /// What nothing has reached has no part in any result, and 0 times an infinite slope must not count there.
  struct Cotangent {
    std::vector<double> numbers;
    std::vector<bool> reached;
    void add(std::int64_t entry, double value) {
      numbers[static_cast<std::size_t>(entry)] += value;
      reached[static_cast<std::size_t>(entry)] = true;
    }
  };
  Cotangent& cotangent_of(NodeId node);
  void pass(NodeId id, const Cotangent& c);
  void pass_elementwise(NodeId id, const Cotangent& c);
  void pass_over_bound(NodeId id, const Cotangent& c);
  void pass_reindexed(NodeId id, const Cotangent& c);
  void pass_declared(NodeId id, const Cotangent& c);
  void visit_reads(NodeId id, const Cotangent& c, const Visit& visit);

  const CellGraph& cell_;
  Evaluator& evaluator_;
  std::map<NodeId, Cotangent> pending_;
};

}  // namespace cellc
