// What compile_orc accepts, refuses, and says.
#include "runtime/build/compile_orc.h"

#include <gtest/gtest.h>

#include <functional>

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
  EXPECT_NE(failure([&] { compile_orc(text, "x86-64-v2"); }).find("multiply-add"), std::string::npos);
  EXPECT_EQ(host_vector_bits("x86-64-v3"), 256);
#endif
  const int widest = host_vector_bits("native");
  EXPECT_TRUE(widest == 128 || widest == 256 || widest == 512);
  EXPECT_FALSE(host_cpu_name().empty());
}

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
