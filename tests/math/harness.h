#pragma once
// Compiles our functions into loops over arrays, and measures errors in units of the last place.
#include <cstdint>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/llvm_math.h"
#include "runtime/build/compile_orc.h"

namespace cellc::math_test {

struct Tested {
  Op op;
  const char* name;
  bool binary;
  double ulp_f32;  ///< stated bound
  double ulp_f64;
  bool bounded;  ///< also within 4e-7 absolute in f32
};
inline void PrintTo(const Tested& entry, std::ostream* stream) { *stream << entry.name; }
const std::vector<Tested>& tested();
const Tested& tested(Op op);

/// One compiled loop a function: out[i] = f(x[i], y[i]).
class Loops {
 public:
  explicit Loops(const std::set<llvm_math::Request>& functions, const std::string& cpu = "native");
  /// Any length: the tail is padded here. `y` is ignored by unary functions.
  std::vector<float> run(Op op, int lanes, const std::vector<float>& x, const std::vector<float>& y = {}) const;
  std::vector<double> run(Op op, int lanes, const std::vector<double>& x, const std::vector<double>& y = {}) const;
  float at(Op op, float x, float y = 0) const { return run(op, 1, std::vector<float>{x}, std::vector<float>{y})[0]; }
  double at(Op op, double x, double y = 0) const {
    return run(op, 1, std::vector<double>{x}, std::vector<double>{y})[0];
  }
  const CompiledModule& module() const { return *module_; }

 private:
  std::unique_ptr<CompiledModule> module_;
};

/// Loops for every function in f32 and f64, of lanes 1, 4, 8 and 16. Compiled once.
const Loops& all_loops();

/// IR text of the loops.
std::string loops_text(const std::set<llvm_math::Request>& functions);

/// Exact up to far less than an ulp of the result's format.
double reference32(Op op, double x, double y);
__float128 reference64(Op op, double x, double y);

/// |got - exact| in ulps of the format at `exact`; 0 for two NaNs, infinite for one. An infinity
/// stands for the number after the largest finite one.
double ulp_error(float got, double exact);
double ulp_error(double got, __float128 exact);

std::uint32_t bits(float x);
std::uint64_t bits(double x);
float from_bits(std::uint32_t bits);
double from_bits(std::uint64_t bits);

/// Arguments: a sweep over all bit patterns, dense windows around the points where an
/// implementation changes its ways, and the ranges where the function is not constant.
std::vector<float> arguments32(Op op);
std::vector<double> arguments64(Op op);
/// Pairs for pow.
template <typename T>
void pow_arguments(std::vector<T>& x, std::vector<T>& y);

}  // namespace cellc::math_test
