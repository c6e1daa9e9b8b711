#pragma once
// A cell with its data on a device, ready to be run and timed many times, forward or backward. `bench` and `tune` know
// nothing else of a device. timed_on_cpu() and timed_on_gpu() make one, timed_backward_on_cpu() and …_on_gpu() one
// whose strategies are those of the adjoint.
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/gradient/adjoint_run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// What any run of a cell over these arrays must move: inputs in, states and outs that are wanted back.
struct Traffic {
  std::int64_t read = 0, written = 0;  ///< bytes
  double step_channels = 0;            ///< steps times the entries of the largest state
};
Traffic traffic_of(const CellGraph& cell, const BoundRun& run, Dtype dtype);
/// The same of a backward run: what the adjoint reads of inputs, states and cotangents, and the gradients of inputs. In
/// arithmetic precision, which gradients have.
Traffic backward_traffic_of(const AdjointRun& adjoint, const BoundRun& forward, Dtype dtype);

/// Random cotangents of every state, or, where the cell has outs, of these alone, as a layer's loss is of its outs.
Cotangents random_cotangents(const CellGraph& cell, const BoundRun& run, Dtype dtype, std::uint64_t seed);

class TimedCell {
 public:
  virtual ~TimedCell() = default;
  virtual std::string device() const = 0;     ///< "cpu" or "cuda"
  virtual std::string processor() const = 0;  ///< "NVIDIA H200"; what plans that were measured hold for
  /// Why stage `stage` does not admit `strategy`; nullopt where it does.
  virtual std::optional<std::string> refusal(int stage, Strategy strategy) = 0;
  /// Milliseconds a call of `calls` calls (0: as many as half a second allows), after calls that warm it up and
  /// from which the planner learns. Throws SolverError, DeviceError.
  virtual double time(const SolveOptions& options, int calls, SolveReport& report) = 0;
  /// Milliseconds that a call would take, at least, by its first steps: to leave out what would take minutes. nullopt:
  /// that is not known before it ran.
  virtual std::optional<double> foreseen_ms(const SolveOptions&) { return std::nullopt; }
  /// Milliseconds of a copy of as many bytes.
  virtual double floor_ms(const Traffic& traffic, int calls) = 0;
};

}  // namespace cellc
