#pragma once
// What a stage was proved to be, as values: the parts that kernels are made of. Nodes are of the graph of the cell
// whose structure it is (analyse adds them), coefficients are free of the stage's own states.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// A sum of products of axis lengths: 1, 2, d, 2*d, 4*k, k + 1.
struct SizeExpression {
  struct Term {
    std::int64_t factor = 1;
    std::vector<AxisId> axes;  ///< header axes whose lengths the header leaves open, sorted; may repeat
    bool operator==(const Term&) const = default;
  };
  std::vector<Term> terms;             ///< one a product; a plain number comes last
  std::optional<std::int64_t> number;  ///< where no length is open
  std::string text;

  std::int64_t value(const std::map<AxisId, std::int64_t>& sizes) const;
};
/// `terms`: factors by the product that they stand before.
SizeExpression size_expression(const Graph& graph, const std::map<std::vector<AxisId>, std::int64_t>& terms);
SizeExpression size_expression(std::int64_t number);

/// How the new value of a state depends on a state of its stage.
enum class Coupling : std::uint8_t {
  None,      ///< proved zero
  Diagonal,  ///< an identity on shared axes
  Full,      ///< mixes
};
using Mask = std::vector<std::vector<Coupling>>;       ///< by row and column state
std::vector<std::string> mask_text(const Mask& mask);  ///< a string a state: 0, d, F

/// ∂s'/∂s along the mixed axes as diagonal terms and outer products. All of them together are the Jacobian of the
/// stage.
struct LowRankForm {
  struct Diagonal {
    int row = 0, column = 0;  ///< positions in updates
    NodeId coefficient = kNoNode;
  };
  /// scale·left·rightᵀ, or scale·Σ left·rightᵀ over the axis `through`. `left` has the row's axes and `right` the
  /// column's, as index variables of the Jacobian's block (JacobianBlock::column_axes); `scale` has neither.
  struct OuterProduct {
    int row = 0, column = 0;
    NodeId scale = kNoNode, left = kNoNode, right = kNoNode;
    AxisId through = kNoAxis;
  };
  std::vector<Diagonal> diagonal;
  std::vector<OuterProduct> products;
};

/// s' = clip(a·s + b, low, high); an open end is an infinity.
struct ClipMap {
  NodeId a, b, low, high;
};

/// s' = (a·s + b)/(c·s + d).
struct MoebiusMap {
  NodeId a, b, c, d;
};

/// New states as sums of a semiring: the greatest, the least or the log of the sum of exponentials (⊕) of
///   coefficient + s[at]  over `bound`, by term,  and of an offset.
struct SemiringMap {
  struct Term {
    int row = 0, column = 0;       ///< positions in updates
    std::vector<Index> at;         ///< how the column is read: axes of the row, of `bound`, or a literal
    std::vector<AxisId> bound;     ///< what ⊕ runs along besides
    NodeId coefficient = kNoNode;  ///< free of the stage's states
  };
  struct Offset {
    int row = 0;
    NodeId value = kNoNode;
  };
  std::vector<Term> terms;
  std::vector<Offset> offsets;
};

}  // namespace cellc
