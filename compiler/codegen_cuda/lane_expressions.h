#pragma once
// The values of a scalarized step as CUDA C++ expressions. What is read once stands where it is read; what got a name
// is read by that. The order of sums and products follows from how long each operand is waited for, counted from the
// states of the step before: what comes late is added or multiplied last, by one fma, so that nothing but that waits
// for it. Whether a sum and its product are one rounding follows from the formula: left to itself a compiler goes by
// who else reads the product, and kernels of one cell would make other bits of a step. Private to emit_cuda_lane.cc,
// which decides on names and statements.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/storage.h"

namespace cellc {

class LaneExpressions {
 public:
  /// `read`: how an entry of an array is written.
  LaneExpressions(const CellGraph& cell, AxisId lane, Storage storage, const ScalarizedCell& scalars,
                  const LoopInvariants& held, std::function<std::string(const SymbolEntry&)> read)
      : cell_(cell), lane_(lane), storage_(storage), scalars_(scalars), held_(held), read_(std::move(read)) {}

  /// Before anything else. `states`: what a step waits for. `own`: of the new states, so many are those of the step
  /// itself, whose bits must not follow from what is made beside them. `apart`: by scalar, what stays a value.
  void measure(const std::vector<SymbolEntry>& states, std::size_t own, const std::vector<bool>& apart);
  /// Of the prologue, which makes loop invariants, or of a step, which finds them made.
  void begin(bool prologue);
  /// How often values are read by their text: what is a part of other sums and products is not, but its parts are.
  std::vector<int> uses() const;
  /// The text of a value, whose operands have been written; it is read as that text until it gets a name.
  const std::string& write(int i);
  void name(std::size_t i, std::string name);
  const std::string& text(int i) const { return texts_[static_cast<std::size_t>(i)].text; }

 private:
  enum Precedence { kSum = 1, kProduct, kSign, kPrimary };
  struct Text {
    std::string text{};
    int precedence = kPrimary;
    std::string condition{};  ///< of a comparison: what it is 1 for
  };

  static std::string within(const Text& t, int at_least) {
    return t.precedence >= at_least ? t.text : "(" + t.text + ")";
  }
  std::string operand(const Scalar& s, int k, int at_least) const {
    return within(texts_[static_cast<std::size_t>(s.args[k])], at_least);
  }
  const Scalar& scalar(int i) const { return scalars_.scalars[static_cast<std::size_t>(i)]; }
  bool is_held(int i) const { return !prologue_ && held_.is_held[static_cast<std::size_t>(i)]; }
  int depth(int i) const { return depth_[static_cast<std::size_t>(i)]; }
  /// Whether i is a part of the sum or product that reads it, which may take its terms or factors in another order: by
  /// the formula of the step, not by names, the width of a text or other readers.
  bool joined(int i) const { return joined_[static_cast<std::size_t>(i)] && !is_held(i); }
  /// Values whose text the text of i reads.
  std::vector<int> reads(int i) const;
  void add_scaled_reads(int i, std::vector<int>& to) const;
  void join(std::size_t own, const std::vector<bool>& apart);

  /// The factors of a product; of more than two the earliest first: what comes late is multiplied once, at the end.
  std::vector<int> factors(int i) const;
  std::vector<int> ordered_factors(int i) const;
  std::vector<int> terms(int i) const;
  Text product(const std::vector<int>& of, const char* scale = nullptr) const;
  /// scale * i with the scale at what comes earliest of every term: a gate's own scale would otherwise be one more
  /// multiplication that the next step waits for. Before a param it is done once for all steps.
  Text scaled(int i, const char* scale) const;
  /// Multiplications of a step that scaled() takes: none for a term with a param.
  int scalings(int i) const;
  /// sigmoid or tanh of a sum that can bring the function's own scale along.
  bool scales_gate(const Scalar& s) const;
  Text scaled_gate(const Scalar& s, const char* function, const char* scale) const;
  std::string number(double value) const;
  /// What a sum takes by one fma: the product among its operands, or its negative; of two the one that comes late. Not
  /// one that the prologue made, in steps or there.
  struct Fused {
    int product;  ///< scalar
    int place;    ///< of the operand
    bool negative;
  };
  std::optional<Fused> fused(const Scalar& s) const;
  /// ±product*scale + sum. The last factor is what comes late.
  Text add_product(std::vector<int> factors, bool negative, const std::string& sum, const char* scale = nullptr) const;
  Text sum(const Scalar& s) const;
  /// Of a scaled sum: a product, after any signs; else nothing.
  std::optional<Fused> scaled_product(int i) const;
  Text scaled_sum(const std::vector<int>& of, bool minus, const char* scale) const;
  Text binary(const Scalar& s, int precedence) const;
  Text comparison(const Scalar& s) const;
  Text selection(const Scalar& s) const;
  Text call(const Scalar& s) const;  ///< of a function of math.cuh
  Text expression(int i) const;

  const CellGraph& cell_;
  const AxisId lane_;
  const Storage storage_;
  const ScalarizedCell& scalars_;
  const LoopInvariants& held_;
  const std::function<std::string(const SymbolEntry&)> read_;
  bool prologue_ = false;
  std::vector<int> depth_;  ///< how long a value is waited for after the step's states are there; 0: not at all
  std::vector<bool> joined_;
  std::vector<Text> texts_;
};

}  // namespace cellc
