// sin and cos.
//
// |x| = k·pi/2 + r by three FMAs with pi/2 in three parts (Cody and Waite) while k·(first part) is
// exact; beyond, Payne and Hanek's method on integers, one element at a time, in a function that is
// called only when an element needs it.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

constexpr double kFarF32 = 1e5;  // k < 2^16, and k·(first part) has 24 + 16 bits: exact in the FMA
constexpr double kFarF64 = 1e6;

/// 64 zero bits, then the first 1216 bits of 2/pi: as many as the largest double needs.
constexpr std::array<std::uint64_t, 20> kTwoOverPi = {
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41,
    0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB};

const char* name_of(bool cosine) { return cosine ? "cos" : "sin"; }

/// sin(r + low) times the sign of quadrant k, with sine and cosine exchanged in odd quadrants.
/// |r| <= pi/4 and a little. `low` (f64 only) carries what r cannot hold.
Term quadrant(const Term& r, const Term* low, const Term& k) {
  Body& body = *r.body;
  const bool wide = r.kind == Kind::F64;
  const Kind integer = wide ? Kind::I64 : Kind::I32;
  const Term z = r * r;
  Term sin, cos;
  if (wide) {
    const Term s = polynomial(z, {-0x1.5555555555549p-3, 0x1.111111110f88dp-7, -0x1.a01a019c11118p-13,
                                  0x1.71de357592f50p-19, -0x1.ae5e63945bebep-26, 0x1.5d920362e7ac8p-33});
    const Term c = polynomial(z, {0x1.555555555554bp-5, -0x1.6c16c16c15017p-10, 0x1.a01a019c8f455p-16,
                                  -0x1.27e4f7f17f7dcp-22, 0x1.1ee9db9c36eacp-29, -0x1.8fa6530681212p-37});
    const Term one_less = fma(z, body.c(-0.5), 1.0);
    sin = r + fma(z * r, s, *low * one_less);
    // What 1 - z/2 lost in rounding returns with the small terms.
    const Term lost = fma(z, -0.5, body.c(1.0) - one_less);
    cos = one_less + (lost + fma(z * z, c, -(r * *low)));
  } else {
    const Term s = polynomial(z, {-0x1.555546p-3, 0x1.11077ap-7, -0x1.99548ep-13});
    const Term c = polynomial(z, {0x1.55554ap-5, -0x1.6c0c1ap-10, 0x1.99e0e8p-16});
    sin = fma(z * r, s, r);
    cos = fma(z * z, c, fma(z, body.c(-0.5), 1.0));
  }
  const auto bit = [&](std::int64_t mask) { return body.binary("and", k, body.constant(integer, mask)); };
  const Term odd = body.compare("ne", bit(1), body.constant(integer, std::int64_t{0}));
  return flip_sign(body.pick(odd, cos, sin), real_of(shl(bit(2), wide ? 62 : 30)));
}

Term sine(const Term& x, bool cosine) {
  Body& body = *x.body;
  const bool wide = x.kind == Kind::F64;
  const Term a = abs(x);
  const double magic = wide ? 0x1.8p+52 : 0x1.8p+23;
  const Term rounded = fma(a, wide ? 0x1.45f306dc9c883p-1 : 0x1.45f306p-1, body.c(magic));
  const Term k = rounded - magic;
  Term index = bits_of(rounded);
  if (cosine) index = index + body.n(1);
  Term near;
  if (wide) {
    const Term first = fma(k, -0x1.921fb54442d18p+0, a);  // exact
    // Near a multiple of pi/2 most of it cancels, so the next product is kept whole: first - p is
    // taken with its rounding error (Knuth's two-sum), and p's own error goes into the tail.
    const Term p = k * 0x1.1a62633145c07p-54;
    const Term p_low = fma(k, 0x1.1a62633145c07p-54, -p);
    const Term r = first - p;
    const Term back = r - first;
    const Term error = (first - (r - back)) - (p + back);
    const Term low = fma(k, 0x1.f1976b7ed8fbcp-110, error - p_low);
    near = quadrant(r, &low, index);
  } else {
    const Term first = fma(k, -0x1.921fb6p+0, a);  // exact
    const Term r = fma(k, 0x1.ee59dap-50, fma(k, 0x1.777a5cp-25, first));
    near = quadrant(r, nullptr, index);
  }
  if (!cosine) near = flip_sign(near, x);
  // NaN is not far, and infinity gives NaN above.
  const Term far =
      body.binary("and", greater(a, wide ? kFarF64 : kFarF32), less(a, std::numeric_limits<double>::infinity()));
  std::string any = far.text;
  if (body.lanes() > 1) {
    any = body.fresh();
    body.line(fmt::format("{} = call i1 @llvm.vector.reduce.or.v{}i1({} {})", any, body.lanes(), body.type(Kind::Bit),
                          far.text));
  }
  const std::string type = body.type(x.kind);
  body.line(fmt::format("br i1 {}, label %huge, label %done", any));
  body.label("huge");
  const Term slow =
      body.call(fmt::format("@cellc.{}.huge.{}", name_of(cosine), body.suffix(x.kind)), x.kind, {x, near});
  body.line("br label %done");
  body.label("done");
  const Term result{&body, x.kind, body.fresh()};
  body.line(fmt::format("{} = phi {} [ {}, %entry ], [ {}, %huge ]", result.text, type, near.text, slow.text));
  return result;
}

}  // namespace

Term sin(const Term& x) { return sine(x, false); }
Term cos(const Term& x) { return sine(x, true); }

std::string trig_lanes(bool cosine, bool f64, int lanes) {
  const Body shape(f64, lanes);
  const std::string element = f64 ? "double" : "float";
  const std::string type = shape.type(shape.real());
  // A scalar needs no extracting and a double no widening: the value goes by its own name then.
  const bool scalar = lanes == 1;
  const std::string one = scalar ? "%x" : "%one";
  const std::string wide = f64 ? one : "%wide";
  const std::string narrow = f64 ? "%value" : "%narrow";
  const std::string put = scalar ? narrow : "%put";
  std::string text =
      fmt::format("define internal {0} @cellc.{1}.huge.{2}({0} %x, {0} %near) noinline cold nounwind {{\n", type,
                  name_of(cosine), shape.suffix(shape.real()));
  text += "entry:\n  br label %loop\nloop:\n";
  text += "  %i = phi i32 [ 0, %entry ], [ %next, %join ]\n";
  text += fmt::format("  %sofar = phi {} [ %near, %entry ], [ %merged, %join ]\n", type);
  if (!scalar) text += fmt::format("  %one = extractelement {} %x, i32 %i\n", type);
  if (!f64) text += fmt::format("  %wide = fpext float {} to double\n", one);
  text += fmt::format("  %size = call double @llvm.fabs.f64(double {})\n", wide);
  text += fmt::format("  %beyond = fcmp ogt double %size, {:.1f}\n", f64 ? kFarF64 : kFarF32);
  text += "  %finite = fcmp olt double %size, 0x7FF0000000000000\n";
  text += "  %far = and i1 %beyond, %finite\n  br i1 %far, label %work, label %join\nwork:\n";
  text += fmt::format("  %value = call double @cellc.{}.huge(double {})\n", name_of(cosine), wide);
  if (!f64) text += "  %narrow = fptrunc double %value to float\n";
  if (!scalar) {
    text += fmt::format("  %put = insertelement {} %sofar, {} {}, i32 %i\n", type, element, narrow);
  }
  text += "  br label %join\njoin:\n";
  text += fmt::format("  %merged = phi {} [ %sofar, %loop ], [ {}, %work ]\n", type, put);
  text += fmt::format("  %next = add i32 %i, 1\n  %more = icmp ult i32 %next, {}\n", lanes);
  text += "  br i1 %more, label %loop, label %exit\nexit:\n";
  text += fmt::format("  ret {} %merged\n}}\n", type);
  return text;
}

std::string trig_scalar(bool cosine) {
  // |x| = m·2^e with a 53-bit integer m. Bits of 2/pi whose product with m·2^e is a multiple of 4 do
  // not matter; the table's zeros let the window start before the point. The window is 192 bits from
  // weight 2^1 (after scaling by 2^e) down, so m times it modulo 2^192 is x·2/pi modulo 4, with 137
  // good fraction bits of 190: doubles come no closer than about 2^-62 to a multiple of pi/2.
  std::string table;
  for (const std::uint64_t word : kTwoOverPi) {
    table += fmt::format("{}i64 {}", table.empty() ? "" : ", ", static_cast<std::int64_t>(word));
  }
  const std::string name = name_of(cosine);
  std::string text =
      fmt::format("@cellc.{}.two_over_pi = internal constant [{} x i64] [{}]\n", name, kTwoOverPi.size(), table);
  text += fmt::format("define internal double @cellc.{}.huge(double %x) noinline cold nounwind {{\nentry:\n", name);
  text += R"(  %a = call double @llvm.fabs.f64(double %x)
  %bits = bitcast double %a to i64
  %biased = lshr i64 %bits, 52
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  %start = sub i64 %biased, 1013
  %word = lshr i64 %start, 6
  %shift = and i64 %start, 63
)";
  for (int k = 0; k < 4; ++k) {
    text += fmt::format("  %i{0} = add i64 %word, {0}\n", k);
    text += fmt::format("  %p{0} = getelementptr [{2} x i64], ptr @cellc.{1}.two_over_pi, i64 0, i64 %i{0}\n", k, name,
                        kTwoOverPi.size());
    text += fmt::format("  %w{0} = load i64, ptr %p{0}\n", k);
  }
  text += R"(  %v0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %shift)
  %v1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %shift)
  %v2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %shift)
  %m128 = zext i64 %m to i128
  %v1wide = zext i64 %v1 to i128
  %v2wide = zext i64 %v2 to i128
  %lowest = mul i128 %m128, %v2wide
  %carry = lshr i128 %lowest, 64
  %middle0 = mul i128 %m128, %v1wide
  %middle = add i128 %middle0, %carry
  %high0 = mul i64 %m, %v0
  %carry2wide = lshr i128 %middle, 64
  %carry2 = trunc i128 %carry2wide to i64
  %high = add i64 %high0, %carry2
  %nearest = add i64 %high, 2305843009213693952
  %quarter = lshr i64 %nearest, 62
  %highwide = zext i64 %high to i128
  %hightop = shl i128 %highwide, 66
  %middlelow = trunc i128 %middle to i64
  %middlewide = zext i64 %middlelow to i128
  %middletop = shl i128 %middlewide, 2
  %signed = or i128 %hightop, %middletop
  %negative = icmp slt i128 %signed, 0
  %opposite = sub i128 0, %signed
  %size = select i1 %negative, i128 %opposite, i128 %signed
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %normal = shl i128 %size, %zeros
  %top128 = lshr i128 %normal, 75
  %top = trunc i128 %top128 to i64
  %next128 = lshr i128 %normal, 22
  %nextlong = trunc i128 %next128 to i64
  %next = and i64 %nextlong, 9007199254740991
  %topreal = sitofp i64 %top to double
  %nextreal = sitofp i64 %next to double
  %zeros64 = trunc i128 %zeros to i64
  %topexponent = sub i64 970, %zeros64
  %topscalebits = shl i64 %topexponent, 52
  %topscale = bitcast i64 %topscalebits to double
  %nextexponent = sub i64 917, %zeros64
  %nextscalebits = shl i64 %nextexponent, 52
  %nextscale = bitcast i64 %nextscalebits to double
  %f0 = fmul double %topreal, %topscale
  %g0 = fmul double %nextreal, %nextscale
  %fn = fneg double %f0
  %gn = fneg double %g0
  %f = select i1 %negative, double %fn, double %f0
  %g = select i1 %negative, double %gn, double %g0
)";
  Body body(true, 1);
  const Term f = body.argument("%f", Kind::F64);
  const Term g = body.argument("%g", Kind::F64);
  // (f + g)·pi/2 as a pair.
  const Term half_pi = body.c(0x1.921fb54442d18p+0);
  const Term r = f * half_pi;
  const Term low = fma(f, half_pi, -r) + fma(f, 0x1.1a62633145c07p-54, g * half_pi);
  const Term index = body.argument("%quarter", Kind::I64) + body.n(cosine ? 1 : 0);
  Term result = quadrant(r, &low, index);
  if (!cosine) result = flip_sign(result, body.argument("%x", Kind::F64));
  text += body.code();
  text += fmt::format("  ret double {}\n}}\n", result.text);
  return text;
}

}  // namespace cellc::llvm_math
