#pragma once
// When a relaxation has settled: decided alike on every device. The caller iterates, and says what has changed; once
// settled() it looks at every step, and either ends or goes on carefully.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/strategy/predict_iterations.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class RelaxationProgress {
 public:
  /// `report` gets iterations, trace, contraction and what is predicted. `worth`: iterations after which something else
  /// is faster; 0: whatever it takes.
  RelaxationProgress(const SolveOptions& options, double tolerance, StageReport& report, int worth = 0)
      : fixed_(options.fixed_iterations.has_value()),
        worth_(worth),
        left_(options.fixed_iterations.value_or(worth ? std::min(worth, options.max_iterations)
                                                      : options.max_iterations)),
        tolerance_(tolerance),
        report_(report),
        careful_(fixed_) {}

  /// Whether another iteration may be made.
  bool goes_on() const { return left_ > 0; }
  bool settled() const { return settled_; }
  bool careful() const { return careful_; }

  /// An iteration has been made, of so many rows.
  void moved(double change, std::int64_t rows) {
    --left_;
    ++report_.iterations;
    report_.trace.push_back({change, rows});
    const std::size_t made = report_.trace.size();
    // After a change from what is no number, which is infinite, a ratio of 0 would promise that all is done.
    if (const double last = made > 1 ? report_.trace[made - 2].change : 0; last > 0)
      report_.contraction = std::isfinite(last) ? std::optional(change / last) : std::nullopt;
    if (made == 4) report_.predicted_iterations = predict_iterations(report_.trace, tolerance_, 1);
    idle_ = change < 0.9 * best_ ? 0 : idle_ + 1;
    best_ = std::min(best_, change);
    if (fixed_) return;
    // The next iteration would change about as much as the residual is now: it need not be made.
    const double q = careful_ ? 1 : report_.contraction.value_or(1);
    settled_ = change * (q < 0.5 ? 2 * q : 1) <= tolerance_;
    if (idle_ >= 20) left_ = 0;  // it does not contract
    if (worth_ && made == 4 && !settled_ && report_.predicted_iterations.value_or(worth_ + 1) > worth_) left_ = 0;
  }

  /// Whether the last iteration changed as much as the one before: what products round may be what is left.
  bool stalls() const { return idle_ > 0 && report_.trace.size() > 3; }
  /// The map is another from here on.
  void resume() {
    idle_ = 0;
    best_ = std::numeric_limits<double>::infinity();
  }

  /// Steps were looked at, and some are off: nothing is left to the contraction any more.
  void be_careful() {
    careful_ = true;
    settled_ = false;
  }

  /// A contraction by q leaves at most r/(1 − q) of an error.
  double error_estimate(double residual) const {
    const double q = report_.contraction.value_or(0);
    return residual == 0 ? 0 : q < 1 ? residual / (1 - q) : std::numeric_limits<double>::infinity();
  }

 private:
  const bool fixed_;
  const int worth_;
  int left_;
  const double tolerance_;
  StageReport& report_;
  bool careful_, settled_ = false;
  int idle_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace cellc
