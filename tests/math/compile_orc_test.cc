// What compile_orc accepts, refuses, and says.
#include "runtime/build/compile_orc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "runtime/cpu/engine.h"
#include "tests/math/harness.h"

namespace cellc::math_test {
namespace {

std::string failure(const std::function<void()>& action) {
  try {
    action();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(CompileOrc, GivesAddressesOfExportedFunctionsOnly) {
  const auto module = compile_orc(R"(
define internal i32 @hidden(i32 %x) {
  %y = mul i32 %x, 3
  ret i32 %y
}
define i32 @triple(i32 %x) {
  %y = call i32 @hidden(i32 %x)
  ret i32 %y
}
)",
                                  "native");
  const auto triple = reinterpret_cast<int (*)(int)>(module->symbol("triple"));
  ASSERT_NE(triple, nullptr);
  EXPECT_EQ(triple(14), 42);
  EXPECT_EQ(module->symbol("hidden"), nullptr);
  EXPECT_EQ(module->symbol("absent"), nullptr);
  EXPECT_GT(module->compile_ms, 0);
  EXPECT_NE(module->assembly().find("triple"), std::string::npos);
}

TEST(CompileOrc, ModulesMayShareNames) {
  const std::string first = "define i32 @f() {\n  ret i32 1\n}\n";
  const std::string second = "define i32 @f() {\n  ret i32 2\n}\n";
  const auto a = compile_orc(first, "native");
  const auto b = compile_orc(second, "native");
  EXPECT_EQ(reinterpret_cast<int (*)()>(a->symbol("f"))(), 1);
  EXPECT_EQ(reinterpret_cast<int (*)()>(b->symbol("f"))(), 2);
}

TEST(CompileOrc, ParseErrorsShowTheLine) {
  const std::string message = failure([] {
    compile_orc("define float @f(float %x) {\n  %y = fadd float %x, %nothing\n  ret float %y\n}\n", "native");
  });
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  EXPECT_NE(message.find("fadd float %x, %nothing"), std::string::npos) << message;
}

TEST(CompileOrc, MalformedModulesAreRefused) {
  // Parses, but %y does not dominate its use.
  const std::string message = failure([] {
    compile_orc(R"(define i32 @f(i1 %c) {
entry:
  br i1 %c, label %a, label %b
a:
  %y = add i32 1, 2
  br label %b
b:
  ret i32 %y
}
)",
                "native");
  });
  EXPECT_NE(message.find("dominate"), std::string::npos) << message;
}

TEST(CompileOrc, NothingOfLibmIsLinked) {
  const std::string called = failure([] {
    compile_orc(
        "declare float @tanhf(float)\n"
        "define float @f(float %x) {\n  %y = call float @tanhf(float %x)\n  ret float %y\n}\n",
        "native");
  });
  EXPECT_NE(called.find("tanhf"), std::string::npos) << called;
  // An intrinsic that this processor has no instruction for becomes a call during code generation.
  const std::string lowered = failure([] {
    compile_orc("define float @f(float %x) {\n  %y = call float @llvm.sin.f32(float %x)\n  ret float %y\n}\n",
                "native");
  });
  EXPECT_NE(lowered.find("sinf"), std::string::npos) << lowered;
}

int callback(int x) { return x + 1; }

TEST(CompileOrc, CallbacksAndMemoryFunctionsAreLinked) {
  const auto module = compile_orc(R"(
declare i32 @callback(i32)
define i32 @f(ptr %to, ptr %from, i64 %n, i32 %x) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  %y = call i32 @callback(i32 %x)
  ret i32 %y
}
)",
                                  "native", {{"callback", reinterpret_cast<void*>(&callback)}});
  const auto f = reinterpret_cast<int (*)(char*, const char*, std::int64_t, int)>(module->symbol("f"));
  char to[4] = "...";
  EXPECT_EQ(f(to, "abc", 4, 41), 42);
  EXPECT_STREQ(to, "abc");
}

TEST(CompileOrc, ProcessorsAreChecked) {
  const std::string text = "define i32 @f() {\n  ret i32 1\n}\n";
  EXPECT_NE(failure([&] { compile_orc(text, "no-such-processor"); }).find("no-such-processor"), std::string::npos);
#if defined(__x86_64__)
  EXPECT_NE(failure([&] { compile_orc(text, "x86-64"); }).find("SSE 4.1"), std::string::npos);
  EXPECT_EQ(host_vector_bits("x86-64-v2"), 128);
  EXPECT_EQ(host_vector_bits("x86-64-v3"), 256);
#endif
  const int widest = host_vector_bits("native");
  EXPECT_TRUE(widest == 128 || widest == 256 || widest == 512);
  EXPECT_FALSE(host_cpu_name().empty());
}

#if defined(__x86_64__)
/// Bits of fused multiply-adds where the processor has none, against libm's.
template <class T, class Bits>
void check_fused(const char* type, const std::vector<T>& specials, int low, int high) {
  const std::string text = fmt::format(R"(
declare <2 x {0}> @llvm.fma.v2{1}(<2 x {0}>, <2 x {0}>, <2 x {0}>)
define void @f(ptr %a, ptr %b, ptr %c, ptr %to) {{
  %x = load <2 x {0}>, ptr %a, align 4
  %y = load <2 x {0}>, ptr %b, align 4
  %z = load <2 x {0}>, ptr %c, align 4
  %r = call <2 x {0}> @llvm.fma.v2{1}(<2 x {0}> %x, <2 x {0}> %y, <2 x {0}> %z)
  store <2 x {0}> %r, ptr %to, align 4
  ret void
}}
)",
                                       type, sizeof(T) == 4 ? "f32" : "f64");
  const auto module = compile_orc(text, "x86-64-v2");
  ASSERT_EQ(module->assembly().find("fmadd"), std::string::npos);
  const auto f = reinterpret_cast<void (*)(const T*, const T*, const T*, T*)>(module->symbol("f"));
  int wrong = 0;
  const auto check = [&](T a, T b, T c) {
    const T as[2] = {a, -a}, bs[2] = {b, b}, cs[2] = {c, -c};
    T to[2];
    f(as, bs, cs, to);
    for (int k = 0; k < 2; ++k) {
      const T expected = std::fma(as[k], bs[k], cs[k]);
      const bool same =
          std::isnan(expected) ? std::isnan(to[k]) : std::bit_cast<Bits>(expected) == std::bit_cast<Bits>(to[k]);
      if (!same && ++wrong < 5)
        ADD_FAILURE() << fmt::format("{:a}*{:a} + {:a}: {:a}, not {:a}", as[k], b, cs[k], to[k], expected);
    }
  };
  for (const T a : specials)
    for (const T b : specials)
      for (const T c : specials) check(a, b, c);
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int> exponent(low, high), near(-60, 60), few(1, 30);
  const auto number = [&](int power) {
    // Few bits of one and long runs of them: where sums lie half way between two numbers.
    const double mantissa = 1 + std::ldexp(static_cast<double>(random() >> 12), -52);
    const double run = 1 + std::ldexp(1.0, -few(random)) - std::ldexp(1.0, -few(random) - 22);
    return static_cast<T>(std::ldexp(random() % 2 ? mantissa : run, power));
  };
  for (int i = 0; i < 200'000; ++i) {
    const int of_a = exponent(random), of_b = exponent(random);
    check(number(of_a), number(of_b), number(of_a + of_b + near(random)));
  }
  EXPECT_EQ(wrong, 0);
}

TEST(CompileOrc, FusesInSoftwareWhereTheProcessorCannot) {
  const float f = std::numeric_limits<float>::infinity(), least = std::numeric_limits<float>::denorm_min();
  check_fused<float, std::uint32_t>("float", {0, 1, 1 + 0x1p-23f, 0x1p-100f, 3e38f, least, 0x1p-126f, f, std::nanf("")},
                                    -70, 60);
  const double d = std::numeric_limits<double>::infinity();
  check_fused<double, std::uint64_t>("double", {0, 1, 1 + 0x1p-52, 0x1p-400, 0x1p500, 3, d, std::nan("")}, -400, 400);
}

TEST(CompileOrc, ConvertsHalfPrecisionInSoftwareWhereTheProcessorCannot) {
  const std::string text = R"(
define void @widen(ptr %from, ptr %to) {
  %x = load <4 x half>, ptr %from, align 2
  %r = fpext <4 x half> %x to <4 x float>
  store <4 x float> %r, ptr %to, align 4
  ret void
}
define void @narrow(ptr %from, ptr %to) {
  %x = load <4 x float>, ptr %from, align 4
  %r = fptrunc <4 x float> %x to <4 x half>
  store <4 x half> %r, ptr %to, align 2
  ret void
}
)";
  const auto old = compile_orc(text, "x86-64-v2"), with = compile_orc(text, "x86-64-v3");
  ASSERT_EQ(old->assembly().find("vcvtps2ph"), std::string::npos);
  ASSERT_NE(with->assembly().find("vcvtps2ph"), std::string::npos);
  using Function = void (*)(const void*, void*);
  const auto run = [](const CompiledModule& module, const char* name, const void* from, void* to) {
    reinterpret_cast<Function>(module.symbol(name))(from, to);
  };
  int wrong = 0;
  for (std::uint32_t h = 0; h < 65536; h += 4) {
    const std::uint16_t from[4] = {static_cast<std::uint16_t>(h), static_cast<std::uint16_t>(h + 1),
                                   static_cast<std::uint16_t>(h + 2), static_cast<std::uint16_t>(h + 3)};
    std::uint32_t a[4], b[4];
    run(*old, "widen", from, a);
    run(*with, "widen", from, b);
    for (int k = 0; k < 4; ++k)
      if (a[k] != b[k] && ++wrong < 5) ADD_FAILURE() << fmt::format("{:x}: {:x}, not {:x}", from[k], a[k], b[k]);
  }
  // Every half, what lies between two of them, and their neighbours; then any bits.
  std::mt19937 random(3);
  for (std::uint32_t i = 0; i < 400'000; ++i) {
    std::uint32_t from[4];
    for (std::uint32_t k = 0; k < 4; ++k) from[k] = i < 200'000 ? (i * 4 + k) / 3 * 0x1000 + k % 3 - 1 : random();
    std::uint16_t a[4], b[4];
    run(*old, "narrow", from, a);
    run(*with, "narrow", from, b);
    for (int k = 0; k < 4; ++k)
      if (a[k] != b[k] && ++wrong < 5) ADD_FAILURE() << fmt::format("{:x}: {:x}, not {:x}", from[k], a[k], b[k]);
  }
  EXPECT_EQ(wrong, 0);
}
#endif

TEST(CompileOrc, OnlyFusesWhatTheTextAsksToFuse) {
  const auto module = compile_orc(R"(
define float @separate(float %a, float %b, float %c) {
  %p = fmul float %a, %b
  %s = fadd float %p, %c
  ret float %s
}
define float @fused(float %a, float %b, float %c) {
  %p = fmul contract float %a, %b
  %s = fadd contract float %p, %c
  ret float %s
}
)",
                                  "native");
  using Function = float (*)(float, float, float);
  const float a = 1 + 0x1p-12f;  // a² = 1 + 2^-11 + 2^-24: the last bit is lost by a separate product
  const float c = -(1 + 0x1p-11f);
  EXPECT_EQ(reinterpret_cast<Function>(module->symbol("separate"))(a, a, c), 0.0f);
  EXPECT_EQ(reinterpret_cast<Function>(module->symbol("fused"))(a, a, c), 0x1p-24f);
}

TEST(CompileOrc, UsesFullWidthVectors) {
  if (host_vector_bits("native") < 512) GTEST_SKIP() << "no 512-bit vectors on this machine";
  const Loops loops({{Op::Tanh, false, 16}});
  EXPECT_NE(loops.module().assembly().find("zmm"), std::string::npos);
}

}  // namespace
}  // namespace cellc::math_test
