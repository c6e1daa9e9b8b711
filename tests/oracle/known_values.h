#pragma once
// Values of the elementwise functions that are known from mathematics and from IEEE 754, computed
// by none of the implementations under test: the figures were rounded from 60 digits. The evaluator,
// the oracle's own functions and the generated code must each give them.
#include <string>
#include <vector>

namespace cellc::oracle {

struct KnownValue {
  std::string f;  ///< as oracle::apply calls it: "tanh", "+", "neg"
  std::vector<double> args;
  double value;
};

const std::vector<KnownValue>& known_values();

/// "silu(-inf)", for messages.
std::string to_string(const KnownValue& known);

/// NaN for NaN, infinities and zeros with their sign, anything else to a relative 1e-14: the
/// functions are a few places off, and so are libm's compositions (gelu).
bool agrees(double got, const KnownValue& known);

}  // namespace cellc::oracle
