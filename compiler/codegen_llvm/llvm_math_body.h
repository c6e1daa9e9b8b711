#pragma once
// Writes the body of one IR function as arithmetic on values. Internal to llvm_math*.cc.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "compiler/graph/graph.h"

namespace cellc::llvm_math {

class Body;

/// Element kinds. Int is as wide as the function's element type.
enum class Kind { F32, F64, I32, I64, Bit };

/// A value of the function being written: a register or a splat constant.
struct Term {
  Body* body = nullptr;
  Kind kind = Kind::F32;
  std::string text;  ///< "%t3" or a constant, without its type
};

/// Instructions in program order. Every operation is elementwise on `lanes` elements.
class Body {
 public:
  Body(bool f64, int lanes) : f64_(f64), lanes_(lanes) {}

  bool f64() const { return f64_; }
  int lanes() const { return lanes_; }
  Kind real() const { return f64_ ? Kind::F64 : Kind::F32; }
  Kind integer() const { return f64_ ? Kind::I64 : Kind::I32; }
  std::string type(Kind kind) const;
  /// "v16f32" or "f32": how intrinsics and our own functions spell the type.
  std::string suffix(Kind kind) const;

  Term constant(Kind kind, double value);
  Term constant(Kind kind, std::int64_t value);
  Term c(double value) { return constant(real(), value); }
  Term n(std::int64_t value) { return constant(integer(), value); }
  Term argument(const std::string& name, Kind kind) { return {this, kind, name}; }

  Term binary(const char* opcode, const Term& a, const Term& b);
  Term cast(const char* opcode, const Term& a, Kind to);
  Term compare(const char* predicate, const Term& a, const Term& b);
  /// LLVM declares the intrinsics it knows by itself, so no declarations are written.
  Term intrinsic(const std::string& name, std::initializer_list<Term> operands);
  Term call(const std::string& function, Kind result, std::initializer_list<Term> operands);
  Term pick(const Term& condition, const Term& yes, const Term& no);

  std::string fresh() { return "%t" + std::to_string(next_++); }
  void line(const std::string& text) { code_ += "  " + text + "\n"; }
  void label(const std::string& name) { code_ += name + ":\n"; }
  const std::string& code() const { return code_; }

 private:
  bool f64_;
  int lanes_;
  int next_ = 0;
  std::string code_;
};

Term operator+(const Term& a, const Term& b);
Term operator-(const Term& a, const Term& b);
Term operator*(const Term& a, const Term& b);
Term operator/(const Term& a, const Term& b);
Term operator+(const Term& a, double b);
Term operator-(const Term& a, double b);
Term operator*(const Term& a, double b);
Term operator/(double a, const Term& b);
Term operator-(const Term& a);
Term fma(const Term& a, const Term& b, const Term& c);
Term fma(const Term& a, double b, const Term& c);
Term fma(const Term& a, const Term& b, double c);
Term abs(const Term& a);
Term bits_of(const Term& a);     ///< same bits as an integer
Term real_of(const Term& bits);  ///< same bits as a real
Term shl(const Term& a, int count);
Term lshr(const Term& a, int count);
Term ashr(const Term& a, int count);
/// Ordered comparisons: false where a NaN takes part. So a NaN passes through at_most and at_least,
/// which llvm.minnum and llvm.maxnum would swallow; x86 has both as one instruction.
Term less(const Term& a, const Term& b);
Term less(const Term& a, double b);
Term greater(const Term& a, double b);
Term equal(const Term& a, double b);
Term at_most(const Term& a, double limit);
Term at_least(const Term& a, double limit);
/// c[0] + c[1]·x + …, Horner's rule in FMAs.
Term polynomial(const Term& x, std::initializer_list<double> coefficients);
/// `a` with its sign flipped where `sign` is negative (the sign bit counts, -0 is negative).
Term flip_sign(const Term& a, const Term& sign);
/// `a`, which has a clear sign bit, with the sign bit of `sign`.
Term copy_sign(const Term& a, const Term& sign);

// One for each Function of ops.def's column `llvm`, called as the language calls it.
#define CELLC_TERMS_1 const Term& x
#define CELLC_TERMS_2 const Term &x, const Term &y
#define CELLC_LLVM_Inline(text, arity)
#define CELLC_LLVM_Function(text, arity) Term text(CELLC_TERMS_##arity);
#define CELLC_CALL(Name, text, arity, slope, values, cost, bits, zero, range, llvm, ...) CELLC_LLVM_##llvm(text, arity)
#include "compiler/graph/ops.def"
#undef CELLC_LLVM_Function
#undef CELLC_LLVM_Inline
#undef CELLC_TERMS_2
#undef CELLC_TERMS_1

// sin and cos branch, after everything else: arguments beyond the reduction go through the function that trig_lanes
// defines, which calls the one that trig_scalar defines.
std::string trig_lanes(bool cosine, bool f64, int lanes);
std::string trig_scalar(bool cosine);

/// exp(hi + lo) for |lo| much smaller than |hi|; hi is clamped, so it may be infinite (with lo = 0).
Term exp_of_sum(const Term& hi, const Term& lo);

/// exp of a reduced argument, held back by a power of two: value = mantissa · scale · 2^-held.
/// With it a caller may finish a product before the one rounding into the subnormal range.
struct HeldExp {
  Term mantissa;  ///< in [0.7, 1.42]
  Term scale;     ///< 2^(n + held), always normal
};
/// exp(y + lo) for y in a range where n + held stays a normal exponent. `lo` may be null.
HeldExp held_exp(const Term& y, const Term* lo, int held);

}  // namespace cellc::llvm_math
