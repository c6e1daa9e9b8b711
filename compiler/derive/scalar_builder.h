#pragma once
// Scalars of a lane's step as they are made: equal ones are one, and what is known is computed here, as far as that is
// equal for every operand, NaN included. For scalarize.cc.
#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/derive/scalarize.h"

namespace cellc {

class ScalarBuilder {
 public:
  /// A zero by proof, which no other operand can make anything else: number 0 of the list.
  static constexpr int kProvedZero = 0;

  ScalarBuilder(std::string cell, const ScalarizeOptions& options);

  /// What is made from now on is of source `span`. `for_transitions`: it is linear in them, and nothing else needs it.
  void begin(Span span, bool for_transitions) { span_ = span, for_transitions_ = for_transitions; }

  int constant(double number);
  int read(SymbolEntry entry);
  int operation(Op op, std::initializer_list<int> args);
  int operation(Op op, const int (&args)[3], int arity);
  /// ReduceSum or ReduceMax, in the order of the values.
  int reduce(Op op, const std::vector<int>& values);

  Scalar& operator[](int id) { return scalars_[static_cast<std::size_t>(id)]; }
  bool is_zero(int id) const { return is_constant(id) && scalar(id).number == 0; }

  /// The scalars that `roots` need; `roots` are numbers in that list then.
  std::vector<Scalar> finish(std::vector<int>& roots);

  /// Not all that is made need be used, but most is: a guard on time and memory, well above the limit.
  std::int64_t most_values() const { return 16 * options_.limit + 1024; }
  [[noreturn]] void too_long() const;

 private:
  using Key = std::tuple<Op, std::array<int, 3>, std::uint64_t, SymbolEntry>;

  const Scalar& scalar(int id) const { return scalars_[static_cast<std::size_t>(id)]; }
  bool is_constant(int id) const { return scalar(id).op == Op::Constant; }
  bool is_number(int id, double number) const;
  bool is_never_negative_zero(int id) const;
  bool is_zero_by_form(int id) const;
  int intern(Scalar s);

  const std::string cell_;
  const ScalarizeOptions& options_;
  std::vector<Scalar> scalars_;
  std::map<Key, int> table_;
  Span span_;
  bool for_transitions_ = false;
};

}  // namespace cellc
