// Throughput of our elementary functions, one core, and of a diagonal GRU step made of them. Time per
// item is what counts: an element for the functions, a step of one channel for the GRU.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "compiler/codegen_llvm/llvm_math.h"
#include "runtime/build/compile_orc.h"

namespace {

using cellc::Op;
using cellc::llvm_math::Request;

std::string vector_type(bool f64, int lanes) { return fmt::format("<{} x {}>", lanes, f64 ? "double" : "float"); }

/// out[i] = f(x[i]) over an array in cache.
std::string function_loop(Op op, bool f64, int lanes) {
  const std::string type = vector_type(f64, lanes);
  return cellc::llvm_math::definitions({{op, f64, lanes}}) +
         fmt::format(R"(define void @run(ptr noalias %x, ptr noalias %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr {0}, ptr %x, i64 %i
  %v = load {1}, ptr %px, align 4
  %r = call {1} {2}({1} %v{3})
  %pr = getelementptr {0}, ptr %out, i64 %i
  store {1} %r, ptr %pr, align 4
  %next = add i64 %i, {4}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
)",
                     f64 ? "double" : "float", type, cellc::llvm_math::function_name(op, f64, lanes),
                     op == Op::Pow ? fmt::format(", {} %v", type) : "", lanes);
}

void function(benchmark::State& state, Op op, bool f64) {
  const int lanes = cellc::host_vector_bits("native") / (f64 ? 64 : 32);
  const auto module = cellc::compile_orc(function_loop(op, f64, lanes), "native");
  const auto run = reinterpret_cast<void (*)(const void*, void*, std::int64_t)>(module->symbol("run"));
  constexpr std::int64_t n = 2048;
  std::vector<float> x(n), out(n);
  std::vector<double> xd(n), outd(n);
  for (std::int64_t k = 0; k < n; ++k) xd[k] = x[k] = 0.01f + 5.0f * (k % 997) / 997;
  for (auto _ : state) {
    if (f64)
      run(xd.data(), outd.data(), n);
    else
      run(x.data(), out.data(), n);
    benchmark::ClobberMemory();
  }
  state.counters["per_element"] = benchmark::Counter(static_cast<double>(state.iterations() * n),
                                                     benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// Time outermost, channels inside; the state in memory, which is in cache.
std::string gru_text(int lanes) {
  const std::string type = vector_type(false, lanes);
  std::string text = cellc::llvm_math::definitions({{Op::Sigmoid, false, lanes}, {Op::Tanh, false, lanes}});
  text += fmt::format(
      R"(define void @gru(ptr noalias %x, ptr noalias %a, ptr noalias %h, ptr noalias %out,
                 i64 %steps, i64 %d) {{
entry:
  br label %time
time:
  %t = phi i64 [ 0, %entry ], [ %tnext, %latch ]
  %row3 = mul i64 %t, %d
  %row = mul i64 %row3, 3
  br label %loop
loop:
  %i = phi i64 [ 0, %time ], [ %next, %loop ]
)");
  const auto load = [&](const char* name, const char* base, const std::string& index) {
    text += fmt::format("  %p{0} = getelementptr float, ptr {1}, i64 {2}\n  %{0} = load {3}, ptr %p{0}, align 4\n",
                        name, base, index, type);
  };
  const auto line = [&](const std::string& instruction) { text += "  " + instruction + "\n"; };
  line("%i0 = add i64 %row, %i");
  line("%i1 = add i64 %i0, %d");
  line("%i2 = add i64 %i1, %d");
  line("%j1 = add i64 %i, %d");
  line("%j2 = add i64 %j1, %d");
  load("x0", "%x", "%i0");
  load("x1", "%x", "%i1");
  load("x2", "%x", "%i2");
  load("a0", "%a", "%i");
  load("a1", "%a", "%j1");
  load("a2", "%a", "%j2");
  load("hv", "%h", "%i");
  const std::string fma = fmt::format("@llvm.fma.v{}f32", lanes);
  const auto call = [&](const std::string& result, const std::string& name, std::vector<std::string> arguments) {
    std::string list;
    for (const std::string& argument : arguments) list += (list.empty() ? "" : ", ") + type + " " + argument;
    line(fmt::format("{} = call {} {}({})", result, type, name, list));
  };
  const std::string sigmoid = cellc::llvm_math::function_name(Op::Sigmoid, false, lanes);
  call("%uz", fma, {"%a0", "%hv", "%x0"});
  call("%z", sigmoid, {"%uz"});
  call("%ur", fma, {"%a1", "%hv", "%x1"});
  call("%r", sigmoid, {"%ur"});
  line(fmt::format("%g = fmul {} %r, %hv", type));
  call("%uc", fma, {"%a2", "%g", "%x2"});
  call("%c", cellc::llvm_math::function_name(Op::Tanh, false, lanes), {"%uc"});
  line(fmt::format("%diff = fsub {} %c, %hv", type));
  call("%hn", fma, {"%z", "%diff", "%hv"});
  text += fmt::format(R"(  store {0} %hn, ptr %phv, align 4
  %io = add i64 %row3, %i
  %po = getelementptr float, ptr %out, i64 %io
  store {0} %hn, ptr %po, align 4
  %next = add i64 %i, {1}
  %more = icmp slt i64 %next, %d
  br i1 %more, label %loop, label %latch
latch:
  %tnext = add i64 %t, 1
  %again = icmp slt i64 %tnext, %steps
  br i1 %again, label %time, label %exit
exit:
  ret void
}}
)",
                      type, lanes);
  return text;
}

void gru(benchmark::State& state) {
  const auto module = cellc::compile_orc(gru_text(cellc::host_vector_bits("native") / 32), "native");
  const auto run = reinterpret_cast<void (*)(const float*, const float*, float*, float*, std::int64_t, std::int64_t)>(
      module->symbol("gru"));
  const std::int64_t d = state.range(0);
  const std::int64_t steps = state.range(1);
  std::vector<float> x(steps * 3 * d), a(3 * d), h(d), out(steps * d);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>((k * 7919) % 4801) / 1000 - 2.4f;
  for (std::size_t k = 0; k < a.size(); ++k) a[k] = static_cast<float>((k * 31) % 2001) / 1000 - 1;
  for (auto _ : state) {
    run(x.data(), a.data(), h.data(), out.data(), steps, d);
    benchmark::ClobberMemory();
  }
  state.counters["per_channel_step"] = benchmark::Counter(static_cast<double>(state.iterations() * steps * d),
                                                          benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["compile_ms"] = module->compile_ms;
}
BENCHMARK(gru)->Args({1024, 8})->Args({1024, 512})->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::pair<Op, std::string>> functions;
#define CELLC_CALL(Name, text, ...) \
  if (cellc::llvm_math::has_function(Op::Name)) functions.emplace_back(Op::Name, #text);
#include "compiler/graph/ops.def"
  for (const bool f64 : {false, true}) {
    for (const auto& [op, name] : functions) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", name, f64 ? "f64" : "f32").c_str(),
                                   [op = op, f64](benchmark::State& state) { function(state, op, f64); });
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
