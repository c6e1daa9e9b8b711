#pragma once
// Calls of the C API on arrays by name, on the host or on the emulator, with rows one after another or with gaps.
#include <map>
#include <set>
#include <string>

#include "capi/cellc.h"
#include "runtime/data/bind.h"
#include "runtime/gradient/through_defaults.h"
#include "tests/emulator/emulator.h"
#include "tests/gradients/gradient_trial.h"

namespace cellc {

struct NamedCall {
  cellc_kernel* kernel = nullptr;
  cellc_shape shape{};
  Emulator* gpu = nullptr;  ///< null: the host
  bool gaps = false;        ///< rows have gaps, and steps lie before sequences
  std::map<std::string, Array>
      arrays{};                      ///< by the name that cellc_call_array_describe gives; what is not there is null
  std::uint64_t captured = 0;        ///< the graph into which the call is captured
  bool stream_on_cpu = false;        ///< asks a kernel of the CPU for a stream
  std::set<std::string> unwanted{};  ///< null although it would be written

  /// Written arrays are in `arrays` then. Says which gap was written, if one was.
  cellc_status run(cellc_direction direction, cellc_report* report = nullptr,
                   const std::int32_t* forward_status = nullptr);
  std::string touched{};
};

/// How the gradients of `backward` move along `tangent`, a call of the same run: cellc_curvature.
cellc_status curvature(NamedCall& backward, NamedCall& tangent, const std::int32_t* forward_status = nullptr);

/// A shape that points at what it is of.
struct OwnedShape {
  OwnedShape(const CellGraph& cell, const Binding& binding);
  std::vector<std::int64_t> lengths, offsets;
  cellc_shape shape;
};

/// What the caller of a run gave of it, under the names of a call.
std::map<std::string, Array> given_arrays(const CellGraph& cell, const Binding& binding, const GivenSymbols& given);
std::map<std::string, Array> cotangent_arrays(const CellGraph& cell, const Cotangents& cotangents, Dtype dtype);
/// Under the names of files, as gradient_arrays has them.
NamedArrays named_gradients(const CellGraph& cell, const std::map<std::string, Array>& arrays);

}  // namespace cellc
