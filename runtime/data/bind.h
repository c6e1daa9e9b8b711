#pragma once
// Arrays as a user gives them -> arrays as the engine runs them. Names and shapes are checked by
// axis name, sizes are found, defaults and random numbers are filled in. And the way back: what a run
// wrote, under the names and shapes that users expect.
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/array.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/errors.h"
#include "runtime/data/run.h"

namespace cellc {

/// The request itself cannot be meant (exit 2), whatever the arrays hold.
struct UsageError : std::runtime_error {
  using runtime_error::runtime_error;
};

/// An array and where it came from, for messages.
struct GivenArray {
  std::string source;
  Array array;
};

struct BindRequest {
  std::map<std::string, GivenArray> inputs, params, states;  ///< also `x.lag`, `h.lag`
  std::map<std::string, double> param_numbers;               ///< a param whose every entry is this
  std::optional<GivenArray> offsets;
  std::map<std::string, std::int64_t> dims;
  std::optional<std::int64_t> batch, length;
  std::optional<Dtype> dtype;
  std::optional<std::uint64_t> random_seed;
  bool reverse = false;
  bool params_unrounded = false;  ///< params that are given to a 16-bit cell are kept in arithmetic precision, also for
                                  ///< starts that follow from them
  int threads = 0;
};

struct Binding {
  BoundRun run;
  Dtype dtype = Dtype::F32;
  bool batched = true;     ///< false: inputs came as [T, a…], states are written so
  bool packed = false;     ///< offsets were given; `length` then is the total
  std::int64_t batch = 0;  ///< number of sequences
  std::int64_t length = 0;
  std::vector<std::string> filled;  ///< names that --random filled
};

/// Throws RequestError (an array is wrong or missing), UsageError or DeviceError (memory).
Binding bind(const CellGraph& cell, const BindRequest& request);
/// The same, for callers that keep the cell's layout.
Binding bind(const CellGraph& cell, const CallLayout& layout, const BindRequest& request);

/// Converted copy, or the same memory where nothing changes.
Array convert(const Array& array, Dtype dtype);

/// Lengths of `axes` in this run.
std::vector<std::int64_t> lengths(const CellGraph& cell, const BoundRun& run, const std::vector<AxisId>& axes);

/// Everything that a run writes and that was wanted, by file name without ".npy": each state, out, NAME.final and
/// NAME.lag; of an input, too. Shapes as inputs have them. Memory is shared with `output`.
std::vector<std::pair<std::string, Array>> written_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output);

/// The names of those.
std::vector<std::string> result_names(const CellGraph& cell);
/// Those of these names and no others. Throws UsageError with the names that there are.
Wanted wanted_results(const CellGraph& cell, const std::vector<std::string>& names);
/// The same, and with every state that is wanted its lagged copies, as derivatives need them.
Wanted with_copies(const CellGraph& cell, Wanted wanted);
/// The same, and the states whose rows delay lines read.
Wanted with_lines(const CellGraph& cell, Wanted wanted);

}  // namespace cellc
