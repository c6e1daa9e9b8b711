#include "compiler/codegen_llvm/llvm_math_body.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <stdexcept>
#include <vector>

namespace cellc::llvm_math {

namespace {

const char* element(Kind kind) {
  switch (kind) {
    case Kind::F32:
      return "float";
    case Kind::F64:
      return "double";
    case Kind::I32:
      return "i32";
    case Kind::I64:
      return "i64";
    case Kind::Bit:
      return "i1";
  }
  throw std::logic_error("llvm_math: kind out of range");
}

const char* short_element(Kind kind) {
  switch (kind) {
    case Kind::F32:
      return "f32";
    case Kind::F64:
      return "f64";
    case Kind::I32:
      return "i32";
    case Kind::I64:
      return "i64";
    case Kind::Bit:
      return "i1";
  }
  throw std::logic_error("llvm_math: kind out of range");
}

bool is_real(Kind kind) { return kind == Kind::F32 || kind == Kind::F64; }

}  // namespace

std::string Body::type(Kind kind) const {
  return lanes_ == 1 ? std::string(element(kind)) : fmt::format("<{} x {}>", lanes_, element(kind));
}

std::string Body::suffix(Kind kind) const {
  return lanes_ == 1 ? std::string(short_element(kind)) : fmt::format("v{}{}", lanes_, short_element(kind));
}

Term Body::constant(Kind kind, double value) {
  // IR spells a float constant as the double of the same value; it must be exact.
  if (kind == Kind::F32) value = static_cast<float>(value);
  const std::string text = fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
  return {this, kind, lanes_ == 1 ? text : fmt::format("splat ({} {})", element(kind), text)};
}

Term Body::constant(Kind kind, std::int64_t value) {
  return {this, kind, lanes_ == 1 ? fmt::format("{}", value) : fmt::format("splat ({} {})", element(kind), value)};
}

Term Body::binary(const char* opcode, const Term& a, const Term& b) {
  if (a.kind != b.kind) throw std::logic_error(fmt::format("llvm_math: {} of two kinds", opcode));
  Term result{this, a.kind, fresh()};
  line(fmt::format("{} = {} {} {}, {}", result.text, opcode, type(a.kind), a.text, b.text));
  return result;
}

Term Body::cast(const char* opcode, const Term& a, Kind to) {
  Term result{this, to, fresh()};
  line(fmt::format("{} = {} {} {} to {}", result.text, opcode, type(a.kind), a.text, type(to)));
  return result;
}

Term Body::compare(const char* predicate, const Term& a, const Term& b) {
  Term result{this, Kind::Bit, fresh()};
  line(fmt::format("{} = {} {} {} {}, {}", result.text, is_real(a.kind) ? "fcmp" : "icmp", predicate, type(a.kind),
                   a.text, b.text));
  return result;
}

Term Body::intrinsic(const std::string& name, std::initializer_list<Term> operands) {
  const Kind kind = operands.begin()->kind;
  const std::string full = fmt::format("@llvm.{}.{}", name, suffix(kind));
  return call(full, kind, operands);
}

Term Body::call(const std::string& function, Kind result_kind, std::initializer_list<Term> operands) {
  std::string arguments;
  for (const Term& operand : operands) {
    arguments += fmt::format("{}{} {}", arguments.empty() ? "" : ", ", type(operand.kind), operand.text);
  }
  Term result{this, result_kind, fresh()};
  line(fmt::format("{} = call {} {}({})", result.text, type(result_kind), function, arguments));
  return result;
}

Term Body::pick(const Term& condition, const Term& yes, const Term& no) {
  Term result{this, yes.kind, fresh()};
  line(fmt::format("{} = select {} {}, {} {}, {} {}", result.text, type(Kind::Bit), condition.text, type(yes.kind),
                   yes.text, type(no.kind), no.text));
  return result;
}

Term operator+(const Term& a, const Term& b) { return a.body->binary(is_real(a.kind) ? "fadd" : "add", a, b); }
Term operator-(const Term& a, const Term& b) { return a.body->binary(is_real(a.kind) ? "fsub" : "sub", a, b); }
Term operator*(const Term& a, const Term& b) { return a.body->binary(is_real(a.kind) ? "fmul" : "mul", a, b); }
Term operator/(const Term& a, const Term& b) { return a.body->binary("fdiv", a, b); }
Term operator+(const Term& a, double b) { return a + a.body->constant(a.kind, b); }
Term operator-(const Term& a, double b) { return a - a.body->constant(a.kind, b); }
Term operator*(const Term& a, double b) { return a * a.body->constant(a.kind, b); }
Term operator/(double a, const Term& b) { return b.body->constant(b.kind, a) / b; }

Term operator-(const Term& a) {
  Term result{a.body, a.kind, a.body->fresh()};
  a.body->line(fmt::format("{} = fneg {} {}", result.text, a.body->type(a.kind), a.text));
  return result;
}

Term fma(const Term& a, const Term& b, const Term& c) { return a.body->intrinsic("fma", {a, b, c}); }
Term fma(const Term& a, double b, const Term& c) { return fma(a, a.body->constant(a.kind, b), c); }
Term fma(const Term& a, const Term& b, double c) { return fma(a, b, a.body->constant(a.kind, c)); }
Term abs(const Term& a) { return a.body->intrinsic("fabs", {a}); }

Term bits_of(const Term& a) { return a.body->cast("bitcast", a, a.kind == Kind::F64 ? Kind::I64 : Kind::I32); }
Term real_of(const Term& bits) {
  return bits.body->cast("bitcast", bits, bits.kind == Kind::I64 ? Kind::F64 : Kind::F32);
}
Term shl(const Term& a, int count) { return a.body->binary("shl", a, a.body->constant(a.kind, std::int64_t{count})); }
Term lshr(const Term& a, int count) { return a.body->binary("lshr", a, a.body->constant(a.kind, std::int64_t{count})); }
Term ashr(const Term& a, int count) { return a.body->binary("ashr", a, a.body->constant(a.kind, std::int64_t{count})); }

Term less(const Term& a, const Term& b) { return a.body->compare("olt", a, b); }
Term less(const Term& a, double b) { return less(a, a.body->constant(a.kind, b)); }
Term greater(const Term& a, double b) { return a.body->compare("ogt", a, a.body->constant(a.kind, b)); }
Term equal(const Term& a, double b) { return a.body->compare("oeq", a, a.body->constant(a.kind, b)); }

Term at_most(const Term& a, double limit) {
  const Term bound = a.body->constant(a.kind, limit);
  return a.body->pick(less(bound, a), bound, a);
}

Term at_least(const Term& a, double limit) {
  const Term bound = a.body->constant(a.kind, limit);
  return a.body->pick(a.body->compare("ogt", bound, a), bound, a);
}

Term polynomial(const Term& x, std::initializer_list<double> coefficients) {
  const std::vector<double> c(coefficients);
  Term sum = x.body->constant(x.kind, c.back());
  for (std::size_t k = c.size() - 1; k-- > 0;) sum = fma(sum, x, c[k]);
  return sum;
}

namespace {

Term sign_bit(const Term& a) {
  const bool wide = a.kind == Kind::F64;
  const Kind integer = wide ? Kind::I64 : Kind::I32;
  const std::int64_t top = wide ? std::numeric_limits<std::int64_t>::min() : std::int64_t{1} << 31;
  return a.body->binary("and", bits_of(a), a.body->constant(integer, top));
}

}  // namespace

Term flip_sign(const Term& a, const Term& sign) { return real_of(a.body->binary("xor", bits_of(a), sign_bit(sign))); }

Term copy_sign(const Term& a, const Term& sign) { return real_of(a.body->binary("or", bits_of(a), sign_bit(sign))); }

}  // namespace cellc::llvm_math
