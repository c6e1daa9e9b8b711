// Newton: Newton's method for all steps at once. Every step is linearised about the last trajectory, the linear
// recurrence that results is solved by a scan over segments, and the residual of every step is measured; again until
// none is beyond the tolerance. It starts from f(0, x): the algorithm of ParaRNN (arXiv 2510.21450).
//
// Stages with blocks of up to 64 coupled entries have it; dense stages lack it. It costs 2 + N passes an iteration, and
// one for the residual. The planner never chooses it: shooting keeps the same order of convergence and writes each row
// once. It is there for comparison with the papers, with --fixed-iterations, and for traces of its convergence.
#include <algorithm>
#include <utility>

#include "runtime/cpu/repair_segments.h"
#include "runtime/cpu/transition_sweep.h"
#include "runtime/strategy/predict_iterations.h"

namespace cellc {

namespace {

template <typename Number>
class Newton {
 public:
  explicit Newton(StageToSolve& run)
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
    std::vector<Miss> left = std::exchange(misses_, {});
    while (!left.empty()) {
      const Repaired repaired = SegmentRepair<Number>(sweep_).run(std::move(left));
      left = repaired.left;
      if (!left.empty()) break;
      // Segments have residuals inside as well: what is left of them is looked at again, and so is what was within the
      // tolerance because of rows that are no longer there.
      LaneSet again = repaired.partly;
      for (const SegmentLane at : lenient_) again.insert({at.segment, at.channel});
      std::vector<SegmentLane> lanes;
      for (const auto& [segment, channel] : again)
        if (sweep_.residual({segment, channel}) != sweep_.kNone) lanes.push_back({segment, channel});
      data_.write_lags();
      check(lanes);
      left = std::exchange(misses_, {});
    }
    return sweep_.finish(left, true);
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
    data_.write_lags();
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
    if (sweep_.iterations() == 0 || !misses_.empty()) check_all(true);
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
    data_.write_lags();
  }

  /// Every step's residual, for some lanes: states of the residual cell. `sizes`: those of the lanes before their
  /// segments are known; otherwise they are taken from the segment alone.
  SegmentStates measure(const std::vector<SegmentLane>& lanes, bool sizes) {
    const StageKernels::Compiled& residual = run_.kernels.residual();
    LaneData arrays = data_.extended(residual.cell.cell);
    // The cell's own states are read as inputs; what it carries is the residual and counts, and sizes.
    std::vector<Array> numbers(static_cast<std::size_t>(states()) + 1, Array(data_.dtype(), {}));
    const auto put_number = [&](int which, double value) {
      Array& number = numbers[static_cast<std::size_t>(which)] = Array(data_.dtype(), {});
      number.set(0, value);
      arrays.symbols[residual.cell.symbol_from({ArraySource::Kind::Tolerance, which})].data =
          static_cast<std::byte*>(number.data());
    };
    put_number(0, run_.tolerance);
    SegmentStates found = data_.make_states(residual.cell.cell, segments_.count());
    for (int i = 0; i < states(); ++i) {
      put(residual.cell, {ArraySource::Kind::Guess, i}, data_.as_input(i, data_.trajectory(i), true), arrays);
      put(residual.cell, {ArraySource::Kind::Value, i}, data_.as_input(i, data_.trajectory(i), false), arrays);
      put_number(i + 1, run_.absolute[static_cast<std::size_t>(i)]);
      for (std::size_t l = 0; sizes && l < lanes.size(); ++l)
        for (std::int64_t m = 0; m < data_.mixed(i); ++m)
          found.arrays[static_cast<std::size_t>(kCounts + i)].set(
              segments_.entry(i, lanes[l].segment, m, lanes[l].channel), sweep_.size_before(i, m, lanes[l]));
    }
    residual.kernel.run(arrays, segments_.lanes(lanes), found, found, false, run_.threads);
    return found;
  }

  /// The largest residual of all steps. Fills misses_. `closely`: whatever is left.
  double check_all(bool closely = false) {
    sweep_.all_made_again();
    return check(segments_.all(), closely);
  }

  /// Of some lanes. Mostly a segment's own rows so far show that a residual is small beside them; where they do not,
  /// rows before it are read.
  double check(const std::vector<SegmentLane>& lanes, bool closely = true) {
    misses_.clear();
    lenient_.clear();
    if (lanes.empty()) return 0;
    double most = 0;
    std::vector<SegmentLane> quiet;
    const SegmentStates found = measure(lanes, false);
    for (const SegmentLane at : lanes) {
      const double r = found.arrays[0].get(sweep_.lane_number(at));
      sweep_.residual(at) = r;
      if (!(r <= run_.tolerance))
        quiet.push_back(at);
      else
        most = std::max(most, r);
    }
    if (quiet.empty()) return most;
    // While most lanes are far off, rows before their segments are not worth reading.
    const bool closer = closely || quiet.size() * 2 <= lanes.size();
    const SegmentStates& last = closer ? measure(quiet, true) : found;
    for (const SegmentLane at : quiet) {
      const std::int64_t e = sweep_.lane_number(at);
      const double r = last.arrays[0].get(e);
      most = std::max(most, r);
      sweep_.residual(at) = r;
      if (r <= run_.tolerance)
        lenient_.push_back(at);
      else
        misses_.push_back({at, r, static_cast<std::int64_t>(last.arrays[1].get(e)),
                           segments_[at.segment].steps - static_cast<std::int64_t>(last.arrays[2].get(e))});
    }
    return most;
  }

  static constexpr int kCounts = 3;  ///< states of the residual cell before the sizes: newton_cell.h

  StageToSolve& run_;
  SegmentSweep<Number> sweep_;
  StageData& data_;
  Segments<Number>& segments_;
  std::vector<Miss> misses_;
  std::vector<SegmentLane> lenient_;  ///< within the tolerance beside rows of earlier segments
};

class NewtonStrategy final : public CpuStrategy {
 public:
  StagePlan forced(StagesOfRun& cell, int k, const SolveOptions&) const override {
    return {Strategy::Newton, requested_segment(cell.shape(k)), 0, "asked for"};
  }

  StageOutcome run(StageToSolve& run) const override {
    return in_precision_of(run.data(), [&](auto number) { return Newton<decltype(number)>(run).solve(); });
  }
};

}  // namespace

const CpuStrategy& newton_on_cpu() {
  static const NewtonStrategy strategy;
  return strategy;
}

}  // namespace cellc
