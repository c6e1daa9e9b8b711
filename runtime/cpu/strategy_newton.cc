// Newton: Newton's method for all steps at once. Every step is linearised about the last trajectory, the linear
// recurrence that results is solved by a scan over segments, and the residual of every step is measured; again until
// none is beyond the tolerance. It starts from f(0, x): the algorithm of ParaRNN (arXiv 2510.21450).
//
// Stages with blocks of up to 64 coupled entries have it; dense stages lack it. It costs 2 + N passes an iteration, and
// one for the residual. The planner never chooses it: shooting keeps the same order of convergence and writes each row
// once. It is there for comparison with the papers, with --fixed-iterations, and for traces of its convergence.
#include <algorithm>

#include "runtime/cpu/repair_segments.h"
#include "runtime/cpu/transition_sweep.h"
#include "runtime/strategy/predict_iterations.h"

namespace cellc {

namespace {

template <typename Number>
class Newton {
 public:
  explicit Newton(StageRun& run)
      : run_(run), sweep_(run, run.plan.segment), data_(sweep_.data()), segments_(sweep_.segments()) {}

  StageOutcome solve() {
    guess();
    iterate();
    // From here on the segments are those of the trajectory that stands.
    for (std::int64_t s = 0; s < segments_.count(); ++s)
      data_.put_row(segments_.ends(), s, data_.row(segments_[s].sequence, segments_[s].first + segments_[s].steps - 1));
    sweep_.report().boundaries = segments_.count() * data_.channels();
    sweep_.report().misses = static_cast<std::int64_t>(misses_.size());
    // Where segments fail one behind the other, only the first starts from something right.
    const Repaired repaired = SegmentRepair<Number>(sweep_).run(std::move(misses_));
    // Segments have residuals inside as well: what is left of them is looked at again.
    if (!repaired.partly.empty()) {
      std::vector<SegmentLane> lanes;
      for (const auto& [segment, channel] : repaired.partly) lanes.push_back({segment, channel});
      const SegmentStates found = measure(lanes);
      for (const SegmentLane at : lanes) sweep_.residual(at) = found.arrays[0].get(sweep_.lane_number(at));
    }
    return sweep_.finish(repaired.left, true);
  }

 private:
  int states() const { return static_cast<int>(data_.states()); }

  /// The array of a derived cell's symbol, by where it comes from.
  static void put(const DerivedCell& derived, const ArraySource& source, LaneArray array, LaneData& arrays) {
    arrays.symbols[derived.symbol_from(source)] = std::move(array);
  }

  /// The first trajectory, f(0, x): a row of zeros is the state before every step.
  void guess() {
    const StageKernels::Compiled& guess = run_.kernels.guess();
    LaneData arrays = data_.extended(guess.cell.cell);
    std::vector<Array> zeros;
    for (int i = 0; i < states(); ++i) {
      LaneArray a = data_.as_input(i, data_.trajectory(i), false);
      zeros.push_back(Array(data_.dtype(), {a.row_entries}));
      a.data = static_cast<std::byte*>(zeros.back().data());
      a.row_entries = 0;
      put(guess.cell, {ArraySource::Kind::Guess, i}, a, arrays);
    }
    SegmentStates scratch = segments_.states();
    guess.kernel.run(arrays, segments_.lanes(segments_.all()), segments_.starts(), scratch, true, run_.threads);
  }

  void iterate() {
    StageReport& report = sweep_.report();
    const bool fixed = run_.options.fixed_iterations.has_value();
    std::vector<Array> other;
    for (int i = 0; i < states(); ++i)
      other.push_back(Array::uninitialised(data_.dtype(), data_.trajectory(i).shape()));
    double last = std::numeric_limits<double>::infinity();
    int worse = 0;
    for (int k = 0; k < sweep_.iterations(); ++k) {
      linearise_and_solve(other);
      ++report.iterations;
      if (fixed && k + 1 < sweep_.iterations()) continue;
      const double r = check_all();
      report.trace.push_back({r, segments_.count() * data_.channels()});
      if (k == 2) report.predicted_iterations = predict_iterations(report.trace, run_.tolerance, 2);
      if (r <= run_.tolerance && !fixed) break;
      worse = r < 0.5 * last ? 0 : worse + 1;
      last = r;
      // ParaRNN's residual may rise at first; one that never falls again is repaired instead.
      if (worse >= 12 && !fixed) break;
    }
    if (sweep_.iterations() == 0) check_all();
  }

  /// From the trajectory that stands to `other`, which then takes its place.
  void linearise_and_solve(std::vector<Array>& other) {
    const StageKernels::Compiled& newton = run_.kernels.newton();
    LaneData arrays = data_.extended(newton.cell.cell);
    for (int i = 0; i < states(); ++i) {
      put(newton.cell, {ArraySource::Kind::Guess, i}, data_.as_input(i, data_.trajectory(i), true), arrays);
      arrays.symbols[i].data = static_cast<std::byte*>(other[i].data());
    }
    const StageKernels::Carrying& carrying = run_.kernels.newton_transitions();
    LaneData carried = data_.extended(carrying.cell.cell);
    for (int i = 0; i < states(); ++i)
      put(newton.cell, {ArraySource::Kind::Guess, i}, data_.as_input(i, data_.trajectory(i), true), carried);
    TransitionSweep<Number> transitions(sweep_, carrying, carried);
    if (transitions.advance(sweep_.all_chains(), 0).lanes > 0) transitions.observe(sweep_.all_chains());
    newton.kernel.run(arrays, segments_.lanes(segments_.all()), segments_.starts(), segments_.ends(), true,
                      run_.threads);
    for (int i = 0; i < states(); ++i) {
      Array written = other[i];
      other[i] = data_.trajectory(i);
      data_.use_trajectory(i, written);
    }
  }

  /// Every step's residual, for some lanes: states of the residual cell.
  SegmentStates measure(const std::vector<SegmentLane>& lanes) {
    const StageKernels::Compiled& residual = run_.kernels.residual();
    LaneData arrays = data_.extended(residual.cell.cell);
    // The cell's own states are read as inputs; what it carries is the residual and a count.
    for (int i = 0; i < states(); ++i) {
      put(residual.cell, {ArraySource::Kind::Guess, i}, data_.as_input(i, data_.trajectory(i), true), arrays);
      put(residual.cell, {ArraySource::Kind::Value, i}, data_.as_input(i, data_.trajectory(i), false), arrays);
    }
    Array tolerance(data_.dtype(), {});
    tolerance.set(0, run_.tolerance);
    arrays.symbols[residual.cell.symbol_from({ArraySource::Kind::Tolerance})].data =
        static_cast<std::byte*>(tolerance.data());
    SegmentStates found = data_.make_states(residual.cell.cell, segments_.count());
    residual.kernel.run(arrays, segments_.lanes(lanes), found, found, false, run_.threads);
    return found;
  }

  /// The largest residual of all steps. Fills misses_.
  double check_all() {
    const SegmentStates found = measure(segments_.all());
    misses_.clear();
    double most = 0;
    for (const SegmentLane at : segments_.all()) {
      const std::int64_t e = sweep_.lane_number(at);
      const double r = found.arrays[0].get(e);
      most = std::max(most, r);
      sweep_.residual(at) = r;
      if (!(r <= run_.tolerance))
        misses_.push_back({at, r, static_cast<std::int64_t>(found.arrays[1].get(e)),
                           segments_[at.segment].steps - static_cast<std::int64_t>(found.arrays[2].get(e))});
    }
    return most;
  }

  StageRun& run_;
  SegmentSweep<Number> sweep_;
  StageData& data_;
  Segments<Number>& segments_;
  std::vector<Miss> misses_;
};

class NewtonStrategy final : public CpuStrategy {
 public:
  StagePlan forced(StagesOfRun& cell, int k, const SolveOptions&) const override {
    return {Strategy::Newton, requested_segment(cell.shape(k)), 0, "asked for"};
  }

  StageOutcome run(StageRun& run) const override {
    return in_precision_of(run.data(), [&](auto number) { return Newton<decltype(number)>(run).solve(); });
  }
};

}  // namespace

const CpuStrategy& newton_on_cpu() {
  static const NewtonStrategy strategy;
  return strategy;
}

}  // namespace cellc
