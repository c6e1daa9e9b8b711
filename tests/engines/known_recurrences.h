#pragma once
// Recurrences whose step is written a second time, by hand in f64, with data of every nature drawn for them: channels
// that forget at once, that remember for hundreds of steps, that settle in one of two states, that are chaotic, that
// overflow, and numbers that are none. An answer is right if every row follows from the row before it.
#include <string>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cpu/engine.h"
#include "runtime/strategy/solve_options.h"
#include "tests/oracle/random.h"

namespace cellc {

/// Text of a cell with states h0, h1…, inputs x0… and params p0…, all along one axis of channels and declared in this
/// order.
struct KnownRecurrence {
  const char* name;
  const char* text;
  int states, inputs, params;
  /// One channel: h [states], x [inputs], p [params] to the new h.
  void (*step)(const double* h, const double* x, const double* p, double* to);
  bool along_a_scan;  ///< linear, or a clip: a scan solves it
};
const std::vector<KnownRecurrence>& known_recurrences();

struct KnownShape {
  std::int64_t channels = 1;
  std::vector<std::int64_t> lengths;
  bool reverse = false;
  std::string text() const;
};
/// Up to `numbers` rows times channels, in one to four sequences.
KnownShape random_shape(oracle::Random& random, int numbers);

/// What a call may ask for, but for the tolerance: a solver or `auto`, with segments and a run-up of any length or its
/// own.
SolveOptions random_options(oracle::Random& random, const KnownRecurrence& recurrence);
std::string text(const SolveOptions& options);

/// A recurrence with data. `draw` makes other data of the same shape.
class KnownRun {
 public:
  KnownRun(const KnownRecurrence& recurrence, Dtype dtype, KnownShape shape);
  /// Natures of the channels (one for all, or each its own), their weights, inputs and starts. What was drawn, in
  /// words.
  std::string draw(oracle::Random& random);
  const BoundRun& run() const { return run_; }
  const AnalysedCell& cell() const { return cell_; }
  /// The first row that does not follow from the row before it to within `tolerance` times its own size and the largest
  /// of its channel so far, by a step in f64; or a final that is not the last row. Empty: all is right. Rows of 16 bits
  /// were rounded when they were written, so that a row may be off by that and by what a step makes of that in the row
  /// before it.
  std::string wrong(const RunOutput& output, double tolerance) const;

 private:
  const KnownRecurrence& recurrence_;
  Dtype dtype_;
  KnownShape shape_;
  AnalysedCell cell_;
  BoundRun run_;
};

}  // namespace cellc
