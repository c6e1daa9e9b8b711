#pragma once
// A DeviceCall fed with the arrays of a bound run: laid out on the device as a caller might have them, run,
// and read back as a RunOutput.
#include <string>
#include <vector>

#include "runtime/cuda/call/call_pool.h"
#include "runtime/data/bind.h"

namespace cellc {

struct CallLook {
  bool strided = false;    ///< rows with gaps, steps outermost where sequences are as long; gaps hold NaN
  bool in_place = false;   ///< finals and final histories in the memory of starts and histories
  bool leave_out = false;  ///< starts and params that have a default, and what need not be written, are null
  GpuStream stream = 0;
};

/// Rows and finals of lagged copies, which nobody writes, from the states that they follow.
void follow_lags(const CellGraph& cell, const BoundRun& run, RunOutput& output);

/// The arrays of one call on the device.
class CallArrays {
 public:
  CallArrays(Gpu& gpu, const CellGraph& cell, const Binding& binding, Dtype dtype, const CallLook& look);

  const std::vector<CallArray>& arrays() const { return arrays_; }
  const CallShape& shape() const { return shape_; }
  GpuAddress status() const { return status_.address(); }
  /// Inputs, params and starts again, other numbers in the same memory.
  void fill(const Binding& binding);
  /// What was written, in the order of a RunOutput; lagged copies are made of the states that they follow.
  RunOutput read(const Binding& binding);
  /// What is wrong with final histories; empty: nothing.
  std::string wrong_histories(const Binding& binding, const RunOutput& output);
  std::vector<int> statuses();

 private:
  struct Held {
    Dtype dtype;
    std::int64_t part = 0, parts = 0, sequence = 0, step = 0, entries = 0;
    GpuBuffer memory;
  };
  Array host_of(const Binding& binding, std::size_t field) const;
  std::int64_t place(const Held& held, std::int64_t part) const;
  Array fetch(std::size_t field);

  Gpu& gpu_;
  const CellGraph& cell_;
  const Dtype dtype_;
  const CallLook look_;
  const CallLayout layout_;
  CallShape shape_;
  std::vector<Held> held_;
  std::vector<CallArray> arrays_;
  GpuBuffer status_;
};

}  // namespace cellc
