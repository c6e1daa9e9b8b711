#include "tests/math/harness.h"

#include <fmt/format.h>
#include <quadmath.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>

namespace cellc::math_test {

namespace {

using Quad = __float128;

/// What a test knows of a function: the rest is in ops.def.
struct Row {
  Op op;
  double ulp_f32, ulp_f64;
  bool bounded;
  double (*of_f64)(double x, double y);
  Quad (*of_quad)(Quad x, Quad y);
};

bool below_all(Quad x) { return isinfq(x) && x < 0; }

const Row kRows[] = {
    {Op::Exp, 1, 1, false, [](double x, double) { return std::exp(x); }, [](Quad x, Quad) { return expq(x); }},
    {Op::Log, 1, 1, false, [](double x, double) { return std::log(x); }, [](Quad x, Quad) { return logq(x); }},
    {Op::Sin, 2, 1, true, [](double x, double) { return std::sin(x); }, [](Quad x, Quad) { return sinq(x); }},
    {Op::Cos, 2, 1, true, [](double x, double) { return std::cos(x); }, [](Quad x, Quad) { return cosq(x); }},
    {Op::Tanh, 5.5, 3.5, true, [](double x, double) { return std::tanh(x); }, [](Quad x, Quad) { return tanhq(x); }},
    {Op::Sigmoid, 3, 2.5, true, [](double x, double) { return 1 / (1 + std::exp(-x)); },
     [](Quad x, Quad) { return 1 / (1 + expq(-x)); }},
    {Op::Silu, 3, 2.5, false, [](double x, double) { return below_all(x) ? -0.0 : x / (1 + std::exp(-x)); },
     [](Quad x, Quad) { return below_all(x) ? -0.0Q : x / (1 + expq(-x)); }},
    {Op::Gelu, 4, 4, false,
     [](double x, double) { return below_all(x) ? -0.0 : x * (0.5 * std::erfc(-x * M_SQRT1_2)); },
     [](Quad x, Quad) { return below_all(x) ? -0.0Q : x * (0.5Q * erfcq(-x * M_SQRT1_2q)); }},
    {Op::Softplus, 3, 3, false, [](double x, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
     [](Quad x, Quad) { return fmaxq(x, 0) + log1pq(expq(-fabsq(x))); }},
    {Op::Erf, 2.5, 2, true, [](double x, double) { return std::erf(x); }, [](Quad x, Quad) { return erfq(x); }},
    {Op::Rsqrt, 1.5, 1.5, false, [](double x, double) { return 1 / std::sqrt(x); },
     [](Quad x, Quad) { return 1 / sqrtq(x); }},
    {Op::Pow, 1, 1, false, [](double x, double y) { return std::pow(x, y); },
     [](Quad x, Quad y) { return powq(x, y); }},
};

const Row& row(Op op) {
  for (const Row& each : kRows)
    if (each.op == op) return each;
  throw std::logic_error("no such function under test");
}

}  // namespace

const std::vector<Tested>& tested() {
  static const std::vector<Tested> table = [] {
    std::vector<Tested> list;
    for (const Row& r : kRows) {
      const OpInfo& info = op_info(r.op);
      list.push_back({r.op, info.text, info.arity == 2, r.ulp_f32, r.ulp_f64, r.bounded});
    }
    return list;
  }();
  return table;
}

const Tested& tested(Op op) {
  for (const Tested& entry : tested()) {
    if (entry.op == op) return entry;
  }
  throw std::logic_error("no such function under test");
}

namespace {

std::string loop_name(Op op, bool f64, int lanes) {
  return fmt::format("{}_{}_{}", tested(op).name, f64 ? "f64" : "f32", lanes);
}

template <typename T>
std::vector<T> run_loop(const CompiledModule& module, Op op, int lanes, std::vector<T> x, std::vector<T> y) {
  using Loop = void (*)(const T*, const T*, T*, std::int64_t);
  const std::string name = loop_name(op, sizeof(T) == 8, lanes);
  const Loop loop = reinterpret_cast<Loop>(module.symbol(name));
  if (!loop) throw std::logic_error("no compiled loop " + name);
  const std::size_t size = x.size();
  const std::size_t padded = (size + lanes - 1) / lanes * lanes;
  x.resize(padded, T(1));
  y.resize(padded, T(1));
  std::vector<T> out(padded);
  loop(x.data(), y.data(), out.data(), static_cast<std::int64_t>(padded));
  out.resize(size);
  return out;
}

}  // namespace

std::string loops_text(const std::set<llvm_math::Request>& functions) {
  std::string text = llvm_math::definitions(functions);
  for (const llvm_math::Request& request : functions) {
    const std::string element = request.f64 ? "double" : "float";
    const std::string type = request.lanes == 1 ? element : fmt::format("<{} x {}>", request.lanes, element);
    const int align = request.f64 ? 8 : 4;
    const bool binary = tested(request.op).binary;
    text += fmt::format(
        R"(define void @{name}(ptr noalias %x, ptr noalias %y, ptr noalias %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr {element}, ptr %x, i64 %i
  %vx = load {type}, ptr %px, align {align}
  %py = getelementptr {element}, ptr %y, i64 %i
  %vy = load {type}, ptr %py, align {align}
  %r = call {type} {function}({type} %vx{second})
  %pr = getelementptr {element}, ptr %out, i64 %i
  store {type} %r, ptr %pr, align {align}
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
)",
        fmt::arg("name", loop_name(request.op, request.f64, request.lanes)), fmt::arg("element", element),
        fmt::arg("type", type), fmt::arg("align", align), fmt::arg("lanes", request.lanes),
        fmt::arg("function", llvm_math::function_name(request.op, request.f64, request.lanes)),
        fmt::arg("second", binary ? fmt::format(", {} %vy", type) : ""));
  }
  return text;
}

Loops::Loops(const std::set<llvm_math::Request>& functions, const std::string& cpu)
    : module_(compile_orc(loops_text(functions), cpu)) {}

std::vector<float> Loops::run(Op op, int lanes, const std::vector<float>& x, const std::vector<float>& y) const {
  return run_loop(*module_, op, lanes, x, y);
}
std::vector<double> Loops::run(Op op, int lanes, const std::vector<double>& x, const std::vector<double>& y) const {
  return run_loop(*module_, op, lanes, x, y);
}

const Loops& all_loops() {
  static const Loops loops = [] {
    std::set<llvm_math::Request> requests;
    for (const Tested& entry : tested()) {
      for (const int lanes : {1, 4, 8, 16}) {
        requests.insert({entry.op, false, lanes});
        requests.insert({entry.op, true, lanes});
      }
    }
    return Loops(requests);
  }();
  return loops;
}

double reference32(Op op, double x, double y) { return row(op).of_f64(x, y); }
__float128 reference64(Op op, double x, double y) { return row(op).of_quad(x, y); }

double ulp_error(float got, double exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : INFINITY;
  if (std::isinf(exact) && static_cast<double>(got) == exact) return 0;
  double value = got;
  if (std::isinf(got)) value = std::copysign(0x1p128, value);
  if (std::abs(exact) >= 0x1p128) return std::isinf(got) && (got > 0) == (exact > 0) ? 0 : INFINITY;
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::abs(value - exact) / std::ldexp(1.0, exponent - 23);
}

double ulp_error(double got, __float128 exact) {
  if (std::isnan(got) || isnanq(exact)) return std::isnan(got) && isnanq(exact) ? 0 : INFINITY;
  const __float128 limit = scalbnq(1, 1024);
  if (fabsq(exact) >= limit) return std::isinf(got) && (got > 0) == (exact > 0) ? 0 : INFINITY;
  const __float128 value = std::isinf(got) ? (got > 0 ? limit : -limit) : static_cast<__float128>(got);
  const int exponent = exact == 0 ? -1022 : std::max(ilogbq(exact), -1022);
  return static_cast<double>(fabsq(value - exact) / scalbnq(1, exponent - 52));
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
double from_bits(std::uint64_t bits) { return std::bit_cast<double>(bits); }

namespace {

/// Where the functions turn, over- or underflow, saturate, or where our code changes branch.
const std::vector<double> kTurns = {0,
                                    1,
                                    0.5,
                                    0.70710678118654752,
                                    1.4142135623730951,
                                    2,
                                    0.34657359,
                                    0.69314718,
                                    0.84,
                                    0.85,
                                    3.95,
                                    6,
                                    9.02,
                                    14.6,
                                    15,
                                    17.33,
                                    19.07,
                                    22,
                                    36.7,
                                    38.6,
                                    39.5,
                                    40,
                                    80,
                                    87.3365,
                                    88.02969,
                                    88.72284,
                                    89,
                                    103.27893,
                                    103.97208,
                                    104,
                                    105,
                                    110,
                                    120,
                                    708.3964,
                                    709.78271,
                                    710,
                                    744.44007,
                                    745.13322,
                                    746,
                                    760,
                                    761,
                                    1e5,
                                    1e6,
                                    1.5707963267948966,
                                    3.1415926535897932,
                                    0.78539816339744831,
                                    2.3561944901923449};

/// More than the default finds little more; the note's table was also made with more.
std::size_t setting(const char* name, std::size_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::max<std::size_t>(std::strtoull(value, nullptr, 10), 1) : otherwise;
}

std::size_t samples() { return setting("CELLC_MATH_SAMPLES", 200000); }

}  // namespace

std::vector<float> arguments32(Op op) {
  std::vector<float> x;
  const std::size_t stride = setting("CELLC_MATH_STRIDE", 4093);
  for (std::uint64_t pattern = 0; pattern < (1ULL << 32); pattern += stride) {
    x.push_back(from_bits(static_cast<std::uint32_t>(pattern)));
  }
  for (const double turn : kTurns) {
    const std::int64_t centre = bits(static_cast<float>(turn));
    for (std::int64_t k = -1500; k <= 1500; ++k) {
      const std::int64_t pattern = std::max<std::int64_t>(centre + k, 0);
      x.push_back(from_bits(static_cast<std::uint32_t>(pattern)));
      x.push_back(-x.back());
    }
  }
  std::mt19937_64 random(7);
  for (const double range : {1.0, 4.0, 20.0, 110.0}) {
    std::uniform_real_distribution<float> uniform(-range, range);
    for (int k = 0; k < 200000; ++k) x.push_back(uniform(random));
  }
  if (op == Op::Sin || op == Op::Cos) {
    for (int k = 1; k < 200000; ++k) {
      const float near = static_cast<float>(k * (M_PI / 2));
      for (const float value : {near, std::nextafter(near, 0.0f), std::nextafter(near, 1e30f)}) {
        x.push_back(value);
        x.push_back(-value);
      }
    }
  }
  return x;
}

std::vector<double> arguments64(Op op) {
  std::vector<double> x;
  std::mt19937_64 random(11);
  const std::size_t count = samples();
  for (std::size_t k = 0; k < count; ++k) x.push_back(from_bits(random()));
  for (const double turn : kTurns) {
    const std::int64_t centre = bits(turn);
    for (std::int64_t k = -200; k <= 200; ++k) {
      x.push_back(from_bits(static_cast<std::uint64_t>(std::max<std::int64_t>(centre + k, 0))));
      x.push_back(-x.back());
    }
  }
  for (const double range : {0.5, 1.5, 7.0, 40.0, 750.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (std::size_t k = 0; k < count / 2; ++k) x.push_back(uniform(random));
  }
  std::uniform_real_distribution<double> exponent(-40, 10);
  for (std::size_t k = 0; k < count / 4; ++k) {
    x.push_back(std::exp2(exponent(random)));
    x.push_back(-x.back());
  }
  if (op == Op::Sin || op == Op::Cos) {
    std::uniform_real_distribution<double> uniform(-1e6, 1e6);
    for (std::size_t k = 0; k < count / 2; ++k) x.push_back(uniform(random));
    for (int k = 1; k < 40000; ++k) {
      const double near = k * (M_PI / 2);
      for (const double value : {near, std::nextafter(near, 0.0), std::nextafter(near, 1e300)}) x.push_back(value);
    }
    // The double closest to a multiple of pi/2.
    x.push_back(std::ldexp(6381956970095103.0, 797));
    x.push_back(std::numeric_limits<double>::max());
  }
  return x;
}

template <typename T>
void pow_arguments(std::vector<T>& x, std::vector<T>& y) {
  std::mt19937_64 random(13);
  const bool wide = sizeof(T) == 8;
  const std::size_t count = wide ? samples() : 1000000;
  const auto pattern = [&]() -> T {
    if constexpr (sizeof(T) == 8)
      return from_bits(static_cast<std::uint64_t>(random()));
    else
      return from_bits(static_cast<std::uint32_t>(random()));
  };
  const auto uniform = [&](double low, double high) {
    return static_cast<T>(std::uniform_real_distribution<double>(low, high)(random));
  };
  const auto add = [&](T base, T power) {
    x.push_back(base);
    y.push_back(power);
  };
  const double span = wide ? 1074 : 149;
  for (std::size_t k = 0; k < count; ++k) {
    add(pattern(), pattern());
    add(uniform(0, 4), uniform(-30, 30));
    // Results spread over the whole range, subnormals and the edges of overflow included.
    const T base = static_cast<T>(std::exp2(uniform(-static_cast<T>(span), wide ? 1023 : 127)));
    const double target = std::uniform_real_distribution<double>(-span - 2, wide ? 1025 : 129)(random);
    const double logarithm = std::log2(static_cast<double>(base));
    if (logarithm != 0) add(base, static_cast<T>(target / logarithm));
    const T near_one = T(1) + uniform(-1e-3, 1e-3);
    add(near_one, static_cast<T>(target / std::log2(static_cast<double>(near_one))));
    add(-uniform(0, 5), std::nearbyint(uniform(-40, 40)));
  }
}
template void pow_arguments(std::vector<float>&, std::vector<float>&);
template void pow_arguments(std::vector<double>&, std::vector<double>&);

}  // namespace cellc::math_test
