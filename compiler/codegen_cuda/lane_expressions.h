#pragma once
// The values of a scalarized step as CUDA C++ expressions. What is read once stands where it is read; what got a name
// is read by that. The order of sums and products follows from how long each operand is waited for, counted from the
// states of the step before: what comes late is added or multiplied last, by one fma, so that nothing but that waits
// for it. Private to emit_cuda_lane.cc, which decides on names and statements.
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

  /// Of the prologue, which makes loop invariants, or of a step, which finds them made. `states`: what a step waits
  /// for.
  void begin(bool prologue, const std::vector<SymbolEntry>& states);
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
  /// Whether i stands where it is used, not under a name.
  bool inlined(int i) const { return scalar(i).arity > 0 && !named_[static_cast<std::size_t>(i)]; }

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
  std::optional<Text> scaled_gate(const Scalar& s, const char* function, const char* scale) const;
  std::string number(double value) const;
  /// Of two products the one that comes late is fused; left to itself the compiler takes either.
  std::optional<Text> fused(const Scalar& s) const;
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
  std::vector<bool> named_;
  std::vector<Text> texts_;
};

}  // namespace cellc
