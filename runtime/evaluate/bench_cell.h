#pragma once
// Times every strategy that a cell admits on a device, beside the baseline in the same run: a copy that reads as
// many bytes as the inputs have and writes as many as states and outs have.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/evaluate/timed_cell.h"

namespace cellc {

struct BenchedStrategy {
  Strategy strategy = Strategy::Auto;
  std::optional<std::string> refused;  ///< why it was not run; the rest is empty then
  double ms = 0;
  SolveReport report;  ///< of the last call
};

struct Bench {
  double floor_ms = 0;
  std::vector<BenchedStrategy> strategies;
};

/// `strategies` empty: all, but for those whose first steps say that a call takes over a second and thirty times what
/// the fastest so far takes: these say so in `refused`. `told` sees what there is so far: first the floor alone, then
/// after every strategy. Throws DeviceError where the device fails at every one of them.
Bench bench_cell(TimedCell& cell, int stages, const Traffic& traffic, std::vector<Strategy> strategies,
                 const SolveOptions& options, int calls, const std::function<void(const Bench&)>& told = {});

}  // namespace cellc
