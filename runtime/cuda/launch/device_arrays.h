#pragma once
// The addresses of a run's arrays that are on the device already.
#include <cstdint>
#include <vector>

#include "runtime/cuda/device/gpu.h"

namespace cellc {

/// Rows: that of step t of sequence b begins at data + b*batch + t*row entries; of packed sequences, row r at
/// data + r*row.
struct PlacedRows {
  GpuAddress data = 0;
  std::int64_t batch = 0, row = 0;
  /// Not 0: step t reads the row of step t + 1, and the last step of a sequence reads this, [N, a…]. Where
  /// CudaSolver::shifts() allows it.
  GpuAddress last = 0;
};

/// Address 0 everywhere: the solver's own array.
struct DeviceArrays {
  std::vector<PlacedRows> inputs;        ///< by symbol
  std::vector<GpuAddress> values;        ///< by symbol: params, and starts [N, a…]; arithmetic precision
  std::vector<GpuAddress> histories;     ///< by symbol: of inputs, [N, depth, a…]
  std::vector<PlacedRows> trajectories;  ///< by update
  std::vector<GpuAddress> finals;        ///< by update: [N, a…], arithmetic precision
  std::vector<GpuAddress> outs;          ///< by out: [rows, a…]
  bool outs_wanted = true;               ///< otherwise none of them need be computed
};

}  // namespace cellc
