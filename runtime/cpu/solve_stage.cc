#include "runtime/cpu/solve_stage.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "runtime/cpu/compose_transitions.h"
#include "runtime/cpu/estimate_error.h"
#include "runtime/cpu/scan_along_time.h"
#include "runtime/cpu/segments.h"
#include "runtime/strategy/predict_iterations.h"

namespace cellc {

namespace {

/// A tile of a scan whose inputs are kept between its two sweeps: in the second-level cache.
constexpr std::int64_t kKeptSteps = 1024, kKeptLanes = 64;

template <typename Number>
class StageSolver {
 public:
  StageSolver(StageData& data, StageKernels& kernels, const StagePlan& plan, const SolveOptions& options,
              double tolerance, int threads)
      : data_(data),
        kernels_(kernels),
        plan_(plan),
        options_(options),
        tolerance_(tolerance),
        threads_(threads),
        segments_(data, plan.segment > 0 && plan.strategy != Strategy::Sequential
                            ? plan.segment
                            : std::numeric_limits<std::int64_t>::max()),
        residual_(static_cast<std::size_t>(segments_.count() * data.channels()), kNone) {
    outcome_.report.plan = plan;
    // No repair where a fixed number of iterations was asked for: that is the papers' behaviour.
    repairs_ = options.repair && !options.fixed_iterations;
  }

  StageOutcome run() {
    switch (plan_.strategy) {
      case Strategy::Sequential:
        write(segments_.all());
        break;
      case Strategy::Segmented:
        run_up();
        write(segments_.all());
        settle(boundaries());
        break;
      case Strategy::Shooting:
        run_up();
        shoot(kernels_.transitions(), data_.extended(kernels_.transitions().cell.cell), iterations(), all_lanes());
        write(segments_.all());
        settle(boundaries());
        break;
      case Strategy::Scan:
        scan();
        settle(boundaries());
        break;
      case Strategy::Newton:
        newton();
        break;
      default:
        throw std::logic_error("solve: no such strategy for a stage");
    }
    return std::move(outcome_);
  }

 private:
  static constexpr double kNone = -1;
  std::int64_t lane_number(SegmentLane at) const { return at.segment * data_.channels() + at.channel; }

  int iterations() const { return options_.fixed_iterations.value_or(options_.max_iterations); }
  StageReport& report() { return outcome_.report; }

  // Sweeps ---------------------------------------------------------------------------------------

  /// The step code over some segments, writing.
  void write(const std::vector<SegmentLane>& lanes) {
    kernels_.step().run(data_.lanes(), segments_.lanes(lanes), segments_.starts(), segments_.ends(), true, threads_);
  }

  /// Starts each segment some steps early from the sequence's start: a contractive cell forgets it.
  void run_up() {
    if (plan_.burn_in <= 0) return;
    kernels_.step().run(data_.lanes(), segments_.burn_in_lanes(plan_.burn_in), segments_.starts(), segments_.starts(),
                        false, threads_);
  }

  /// By sequence and channel: takes part.
  std::vector<char> all_lanes() const {
    return std::vector<char>(static_cast<std::size_t>(data_.sequences() * data_.channels()), 1);
  }
  std::size_t lane_of(SegmentLane at) const {
    return static_cast<std::size_t>(segments_[at.segment].sequence * data_.channels() + at.channel);
  }

  /// Sweeps with transitions and composes them until no start of an active lane moves.
  void shoot(const StageKernels::Carrying& carrying, const LaneData& data, int most, std::vector<char> active) {
    const bool exact = plan_.strategy == Strategy::Scan || plan_.strategy == Strategy::Newton;
    SegmentStates from = data_.make_states(carrying.cell.cell, segments_.count());
    SegmentStates swept = data_.make_states(carrying.cell.cell, segments_.count());
    put_identity<Number>(carrying.cell, data_, segments_.count(), from);
    double last = std::numeric_limits<double>::infinity();
    int worse = 0;
    for (int k = 0; k < most; ++k) {
      for (int i = 0; i < data_.states(); ++i) copy_states(segments_.starts().arrays[i], from.arrays[i]);
      std::vector<SegmentLane> lanes;
      for (const SegmentLane at : segments_.all())
        if (active[lane_of(at)]) lanes.push_back(at);
      if (lanes.empty()) break;
      carrying.kernel.run(data, segments_.lanes(lanes), from, swept, false, threads_);
      if (!exact) ++report().iterations;
      if (k == 0 && carrying.cell.kind == Scannable::Affine) observe(carrying.cell, swept, active);
      // Well within the tolerance: what is left is carried on through a whole segment.
      Composer<Number> composer(carrying.cell, data_, segments_, swept, std::move(active));
      composer.advance(0, segments_.count(), tolerance_ / 8);
      const double change = composer.largest_move();
      active = composer.moved();
      if (!exact) report().trace.push_back({change, static_cast<std::int64_t>(lanes.size())});
      if (exact) break;
      // Differences that grow from step to step: no start can be told from far away.
      if (report().changed_over && report().lyapunov.value_or(0) > 0) break;
      if (k == 1) report().predicted_iterations = predict_iterations(report().trace, tolerance_ / 8, 2);
      // What grows sweep after sweep is not going to converge; repair is cheaper.
      worse = change < 0.5 * last ? 0 : worse + 1;
      last = change;
      if (worse >= 4 && !options_.fixed_iterations) break;
      // Past the end that was predicted only rounding is left to move starts.
      const bool overdue = report().predicted_iterations && report().iterations > *report().predicted_iterations;
      if (worse >= 1 && overdue && !options_.fixed_iterations) break;
    }
  }

  /// One lane along time where it can be; else once over the inputs where segments are short enough to be
  /// kept; otherwise twice.
  void scan() {
    const StageKernels::Carrying& carrying = kernels_.transitions();
    if (plan_.segment > kKeptSteps && scans_along_time(data_, carrying.cell)) {
      AlongTime along = scan_along_time<Number>(data_, kernels_, segments_, tolerance_, threads_);
      if (along.checked) {
        report().lyapunov = along.log_product / static_cast<double>(data_.rows());
        report().contraction = std::exp(*report().lyapunov);
        residual_ = inner_ = std::move(along.residual);
        return;
      }
      // What rounds too much in vectors, or is not finite, is left to the step code.
      report().plan.reason += "; a sum over steps in vectors is off by more than the tolerance, so segment by segment";
      for (std::int64_t s = 0; s < segments_.count(); ++s)
        data_.put_start(segments_.starts(), s, segments_[s].sequence);
    }
    const LaneData carried = data_.extended(carrying.cell.cell);
    if (plan_.segment <= 0 || plan_.segment > kKeptSteps) {
      shoot(carrying, carried, 1, all_lanes());
      write(segments_.all());
      return;
    }
    SegmentStates from = data_.make_states(carrying.cell.cell, segments_.count());
    SegmentStates swept = data_.make_states(carrying.cell.cell, segments_.count());
    put_identity<Number>(carrying.cell, data_, segments_.count(), from);
    for (int i = 0; i < data_.states(); ++i) copy_states(segments_.starts().arrays[i], from.arrays[i]);
    Composer<Number> composer(carrying.cell, data_, segments_, swept, all_lanes());
    const std::int64_t tile = std::max<std::int64_t>(kKeptLanes / data_.channels(), 1) * data_.channels();
    LaneKernel::scan({&carrying.kernel, &carried, &kernels_.step(), &data_.lanes()}, from, swept, segments_.starts(),
                     segments_.ends(), segments_.lanes(segments_.all()), tile, threads_,
                     [&](std::int64_t begin, std::int64_t end) { composer.advance(begin, end, 0); });
    if (carrying.cell.kind == Scannable::Affine) observe(carrying.cell, swept, all_lanes());
  }

  static void copy_states(const Array& from, Array& to) {
    std::copy_n(static_cast<const Number*>(from.data()), from.count(), static_cast<Number*>(to.data()));
  }

  /// Growth per step, from the transitions: the largest over channels estimates the Lyapunov exponent
  /// (the mean of log‖P‖ over the segments bounds it from above).
  void observe(const TransitionCell& transitions, const SegmentStates& swept, const std::vector<char>& active) {
    std::vector<double> exponents;
    for (std::int64_t c = 0; c < data_.channels(); ++c) {
      double sum = 0, steps = 0;
      for (std::int64_t s = 0; s < segments_.count(); ++s) {
        if (!active[lane_of({static_cast<std::int32_t>(s), static_cast<std::int32_t>(c)})]) continue;
        double norm = 0;
        for (int i = 0; i < data_.states(); ++i)
          for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
            double row = 0;
            for (int j = 0; j < data_.states(); ++j) {
              if (transitions.position[i][j] < 0) continue;
              const std::int64_t columns = data_.mixed(j);
              const Number* p = static_cast<const Number*>(swept.arrays[transitions.position[i][j]].data());
              for (std::int64_t k = 0; k < columns; ++k)
                row +=
                    std::fabs(static_cast<double>(p[((s * data_.mixed(i) + m) * columns + k) * data_.channels() + c]));
            }
            norm = std::max(norm, row);
          }
        sum += std::log(std::max(norm, 1e-300));
        steps += static_cast<double>(segments_[s].steps);
      }
      if (steps > 0) exponents.push_back(sum / steps);
    }
    if (exponents.empty()) return;
    std::sort(exponents.begin(), exponents.end());
    report().lyapunov = exponents.back();
    report().contraction = std::exp(exponents[exponents.size() / 2]);
  }

  // The check --------------------------------------------------------------------------------------

  std::vector<SegmentLane> boundaries() {
    std::vector<SegmentLane> lanes;
    for (const SegmentLane at : segments_.all()) {
      if (segments_.is_first(at.segment)) continue;
      ++report().boundaries;
      if (!segments_.continues(at)) lanes.push_back(at);
    }
    return lanes;
  }

  using LaneSet = std::set<std::pair<std::int32_t, std::int32_t>>;
  struct Miss {
    SegmentLane at;
    double residual;
    std::int64_t step;       ///< the first bad one, within the segment
    std::int64_t until = 0;  ///< no step from here on is bad; 0 where the step code made the segment
  };

  /// One step of the step code from the left neighbour's end, against the row that was written.
  std::vector<Miss> check(const std::vector<SegmentLane>& lanes) {
    std::vector<Miss> misses;
    if (lanes.empty()) return misses;
    if (probe_.arrays.empty()) probe_ = segments_.states();
    std::vector<Lane> steps;
    for (const SegmentLane at : lanes) {
      segments_.put_left_end(probe_, at);
      Lane lane = segments_.lane(at);
      lane.steps = 1;
      steps.push_back(lane);
    }
    kernels_.step().run(data_.lanes(), steps, probe_, probe_, false, threads_);
    for (const SegmentLane at : lanes) {
      double worst = residual_at(at, segments_[at.segment].row);
      if (!inner_.empty()) worst = std::max(worst, inner_[static_cast<std::size_t>(at.segment)]);
      residual_[lane_number(at)] = worst;
      if (!(worst <= tolerance_)) misses.push_back({at, worst, 0});
    }
    return misses;
  }

  void settle(const std::vector<SegmentLane>& lanes) {
    std::vector<Miss> misses = check(lanes);
    if (!report().changed_over) report().misses = static_cast<std::int64_t>(misses.size());
    finish(std::move(misses));
  }

  /// Whether shooting is now less work than the rounds that are left: what goes on missing wanders through
  /// its sequence a segment a round, and few lanes leave vectors idle. Counted in segments of one lane, and
  /// the same for any number of threads.
  bool shooting_is_shorter(const std::vector<Miss>& misses, std::size_t before) const {
    if (plan_.strategy != Strategy::Segmented || outcome_.report.changed_over || misses.size() * 2 < before)
      return false;
    constexpr std::int64_t kIdle = 64, kSweeps = 4;
    std::vector<std::int64_t> last(static_cast<std::size_t>(data_.sequences()), 0);
    std::vector<std::int64_t> segments(last);
    for (std::int64_t s = 0; s < segments_.count(); ++s) {
      last[static_cast<std::size_t>(segments_[s].sequence)] = s;
      ++segments[static_cast<std::size_t>(segments_[s].sequence)];
    }
    std::int64_t rounds = 0, lanes = 0, block = 0;
    std::vector<char> seen(static_cast<std::size_t>(data_.sequences() * data_.channels()), 0);
    for (const Miss& m : misses) {
      const auto sequence = static_cast<std::size_t>(segments_[m.at.segment].sequence);
      rounds = std::max(rounds, last[sequence] - m.at.segment + 1);
      if (!std::exchange(seen[lane_of(m.at)], char{1})) lanes += segments[sequence];
    }
    for (int i = 0; i < data_.states(); ++i) block += data_.mixed(i);
    return rounds * std::max(static_cast<std::int64_t>(misses.size()), kIdle) >
           (kSweeps * (1 + block) + 1) * std::max(lanes, kIdle);
  }

  /// Goes on from what the rounds so far have reached, with the lanes that miss.
  void change_over(const std::vector<Miss>& misses) {
    report().changed_over = report().repair_rounds;
    report().plan.reason +=
        fmt::format("; {} boundaries missed and went on missing, so by shooting after {} round{} of repair",
                    report().misses, report().repair_rounds, report().repair_rounds == 1 ? "" : "s");
    std::vector<char> active(static_cast<std::size_t>(data_.sequences() * data_.channels()), 0);
    for (const Miss& m : misses) {
      active[lane_of(m.at)] = 1;
      segments_.put_left_end(segments_.starts(), m.at);
    }
    std::vector<SegmentLane> lanes;
    for (const SegmentLane at : segments_.all()) {
      if (!active[lane_of(at)]) continue;
      lanes.push_back(at);
      residual_[lane_number(at)] = kNone;
    }
    shoot(kernels_.transitions(), data_.extended(kernels_.transitions().cell.cell), iterations(), std::move(active));
    write(lanes);
    report().boundaries = 0;
    settle(boundaries());
  }

  /// Runs segments that miss again from their left neighbours' ends, and looks at the boundaries behind those that now
  /// end elsewhere. Those boundaries, and what misses there.
  std::pair<std::vector<SegmentLane>, std::vector<Miss>> mend(const std::vector<Miss>& misses, LaneSet& partly) {
    ++report().repair_rounds;
    std::vector<SegmentLane> behind;
    for (const Miss& m : misses) {
      segments_.put_left_end(segments_.starts(), m.at);
      residual_[lane_number(m.at)] = kNone;
      const std::int32_t next = m.at.segment + 1;
      if (next < segments_.count() && !segments_.is_first(next)) behind.push_back({next, m.at.channel});
    }
    report().repaired += static_cast<std::int64_t>(misses.size());
    const LaneSet changed = run_until_merged(misses);
    // What merged ends as before, so nothing behind it has changed.
    std::erase_if(behind, [&](SegmentLane at) { return !changed.count({at.segment - 1, at.channel}); });
    for (const Miss& m : misses) partly.insert({m.at.segment, m.at.channel});
    for (const SegmentLane at : behind) partly.insert({at.segment, at.channel});
    for (const auto& at : changed) partly.erase(at);
    std::vector<Miss> next = check(behind);
    return {std::move(behind), std::move(next)};
  }

  /// Of every chain (a channel of a sequence) only the first miss at a time, so that no segment runs more than once.
  /// All of them in every round would run each as often as there are segments before it that miss: 4070 segments of 6
  /// steps of a cell that forgets in hundreds took a minute and a half.
  void repair_chains(const std::vector<Miss>& misses, LaneSet& partly) {
    std::map<std::size_t, std::map<std::int32_t, Miss>> chains;
    for (const Miss& m : misses) chains[lane_of(m.at)].emplace(m.at.segment, m);
    while (!chains.empty()) {
      std::vector<Miss> first;
      for (auto& [chain, waiting] : chains) first.push_back(waiting.extract(waiting.begin()).mapped());
      const auto [behind, next] = mend(first, partly);
      for (const SegmentLane at : behind) chains[lane_of(at)].erase(at.segment);
      for (const Miss& m : next) chains[lane_of(m.at)].emplace(m.at.segment, m);
      std::erase_if(chains, [](const auto& chain) { return chain.second.empty(); });
    }
  }

  /// Repairs in rounds: every segment that misses is run again from its left neighbour's end, and the
  /// boundary behind it is looked at. The first miss of a sequence is right after a round, so the
  /// rounds end; a contractive cell needs one or two. What shooting has left and goes on missing is mended chain by
  /// chain.
  void finish(std::vector<Miss> misses) {
    LaneSet partly;  // repaired in part, or behind a repair
    while (!misses.empty() && repairs_) {
      const std::size_t before = misses.size();
      misses = mend(misses, partly).second;
      if (shooting_is_shorter(misses, before)) return change_over(misses);
      if (misses.size() * 2 < before || (plan_.strategy == Strategy::Segmented && !report().changed_over)) continue;
      repair_chains(misses, partly);
      misses.clear();
    }
    // Newton's segments have residuals inside as well: what is left of them is looked at again.
    if (plan_.strategy == Strategy::Newton && !partly.empty()) {
      std::vector<SegmentLane> lanes;
      for (const auto& [segment, channel] : partly) lanes.push_back({segment, channel});
      const SegmentStates found = measure(lanes);
      for (const SegmentLane at : lanes) residual_[lane_number(at)] = found.arrays[0].get(lane_number(at));
    }
    report_rest(misses);
  }

  /// Runs segments again from their starts, in pieces of doubling length, until what is written agrees
  /// with what was there: a contractive cell merges long before a segment ends. Returns the lanes
  /// that ran to the end. Past the last bad step, that is: where a lane merges before it, Newton's
  /// trajectory goes wrong again.
  LaneSet run_until_merged(std::vector<Miss> lanes) {
    LaneSet changed;
    if (probe_.arrays.empty()) probe_ = segments_.states();
    std::int64_t done = 0;
    for (std::int64_t piece = 256; !lanes.empty(); piece *= 2) {
      std::vector<Lane> runs, steps, finished;
      std::vector<Miss> open;
      for (const Miss& miss : lanes) {
        const SegmentLane at = miss.at;
        Lane lane = segments_.lane(at);
        const std::int64_t all = lane.steps;
        lane.row = data_.row(lane.sequence, segments_[at.segment].first + done);
        lane.steps = std::min(piece, all - done);
        runs.push_back(lane);
        if (done + lane.steps == all) {
          changed.insert({at.segment, at.channel});
          finished.push_back(lane);
          continue;
        }
        open.push_back(miss);
        lane.row = data_.row(lane.sequence, segments_[at.segment].first + done + lane.steps);
        lane.steps = 1;
        lane.at_start = false;
        steps.push_back(lane);
      }
      // Lanes that go on keep their old end until they have reached it: `at_` is where they are now.
      if (at_.arrays.empty()) at_ = segments_.states();
      const SegmentStates& from = done == 0 ? segments_.starts() : at_;
      kernels_.step().run(data_.lanes(), runs, from, at_, true, threads_);
      for (const Lane& lane : finished) copy_lane(at_, segments_.ends(), lane);
      // One step on from here, against the row that stands there.
      kernels_.step().run(data_.lanes(), steps, at_, probe_, false, threads_);
      lanes.clear();
      for (std::size_t k = 0; k < open.size(); ++k) {
        const SegmentLane at = open[k].at;
        const double r = residual_at(at, steps[k].row);
        if (r <= tolerance_ && open[k].until <= done + piece)
          residual_[lane_number(at)] = r;
        else
          lanes.push_back(open[k]);
      }
      done += piece;
    }
    return changed;
  }

  void copy_lane(const SegmentStates& from, SegmentStates& to, const Lane& lane) {
    for (int i = 0; i < data_.states(); ++i)
      for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
        const std::int64_t e = segments_.entry(i, lane.segment, m, lane.channel);
        static_cast<Number*>(to.arrays[i].data())[e] = static_cast<const Number*>(from.arrays[i].data())[e];
      }
  }

  /// What probe_ holds for a lane, against the row of the trajectory.
  double residual_at(SegmentLane at, std::int64_t row_number) const {
    double worst = 0;
    for (int i = 0; i < data_.states(); ++i) {
      const LaneArray& a = data_.lanes().symbols[i];
      const Number* row = reinterpret_cast<const Number*>(a.data) + row_number * a.row_entries;
      for (std::int64_t m = 0; m < data_.mixed(i); ++m)
        worst = std::max(
            worst, relative_difference(static_cast<const Number*>(
                                           probe_.arrays[i].data())[segments_.entry(i, at.segment, m, at.channel)],
                                       row[a.mixed[m] + a.channel[at.channel]]));
    }
    return worst;
  }

  void report_rest(const std::vector<Miss>& misses) {
    for (const double r : residual_) report().max_residual = std::max(report().max_residual, r);
    std::map<std::int32_t, Unconverged> worst;
    for (const Miss& m : misses) {
      const Segment& s = segments_[m.at.segment];
      Unconverged& u = worst.try_emplace(s.sequence, Unconverged{s.sequence, s.first + m.step, 0}).first->second;
      u.first_bad_step = std::min(u.first_bad_step, s.first + m.step);
      u.residual = std::max(u.residual, m.residual);
    }
    for (const auto& [sequence, u] : worst) outcome_.unconverged.push_back(u);
    if (report().max_residual > 0)
      report().error_estimate =
          std::max(report().max_residual,
                   estimate_error(data_, kernels_, segments_,
                                  {residual_, plan_.strategy == Strategy::Newton || !inner_.empty()}, threads_));
  }

  // Newton per step --------------------------------------------------------------------------------

  void newton() {
    const int states = static_cast<int>(data_.states());
    // The first guess, f(0, x): a row of zeros is the state before every step.
    {
      const StageKernels::Newton& guess = kernels_.guess();
      LaneData data = data_.extended(guess.cell.cell);
      std::vector<Array> zeros;
      for (int i = 0; i < states; ++i) {
        LaneArray a = data_.as_input(i, data_.trajectory(i), false);
        zeros.push_back(Array(data_.dtype(), {a.row_entries}));
        a.data = static_cast<std::byte*>(zeros.back().data());
        a.row_entries = 0;
        data.symbols[guess.cell.before[i]] = a;
      }
      SegmentStates scratch = segments_.states();
      guess.kernel.run(data, segments_.lanes(segments_.all()), segments_.starts(), scratch, true, threads_);
    }
    std::vector<Array> other;
    for (int i = 0; i < states; ++i) other.push_back(Array::uninitialised(data_.dtype(), data_.trajectory(i).shape()));
    double last = std::numeric_limits<double>::infinity();
    int worse = 0;
    for (int k = 0; k < iterations(); ++k) {
      const StageKernels::Newton& newton = kernels_.newton();
      LaneData data = data_.extended(newton.cell.cell);
      for (int i = 0; i < states; ++i) {
        data.symbols[newton.cell.before[i]] = data_.as_input(i, data_.trajectory(i), true);
        data.symbols[i].data = static_cast<std::byte*>(other[i].data());
      }
      LaneData carried = data_.extended(kernels_.newton_transitions().cell.cell);
      for (int i = 0; i < states; ++i) {
        carried.symbols[newton.cell.before[i]] = data.symbols[newton.cell.before[i]];
      }
      shoot(kernels_.newton_transitions(), carried, 1, all_lanes());
      newton.kernel.run(data, segments_.lanes(segments_.all()), segments_.starts(), segments_.ends(), true, threads_);
      for (int i = 0; i < states; ++i) {
        Array written = other[i];
        other[i] = data_.trajectory(i);
        data_.use_trajectory(i, written);
      }
      ++report().iterations;
      if (options_.fixed_iterations && k + 1 < iterations()) continue;
      const double r = check_all();
      report().trace.push_back({r, segments_.count() * data_.channels()});
      if (k == 2) report().predicted_iterations = predict_iterations(report().trace, tolerance_, 2);
      if (r <= tolerance_ && !options_.fixed_iterations) break;
      worse = r < 0.5 * last ? 0 : worse + 1;
      last = r;
      // ParaRNN's residual may rise at first; one that never falls again is repaired instead.
      if (worse >= 12 && !options_.fixed_iterations) break;
    }
    if (iterations() == 0) check_all();
    // From here on the segments are those of the trajectory that stands.
    for (std::int64_t s = 0; s < segments_.count(); ++s)
      data_.put_row(segments_.ends(), s, data_.row(segments_[s].sequence, segments_[s].first + segments_[s].steps - 1));
    report().boundaries = segments_.count() * data_.channels();
    report().misses = static_cast<std::int64_t>(newton_misses_.size());
    // Where segments fail one behind the other, only the first starts from something right.
    finish(std::move(newton_misses_));
  }

  /// Every step's residual, for some lanes: states of the residual cell.
  SegmentStates measure(const std::vector<SegmentLane>& lanes) {
    const StageKernels::Residual& residual = kernels_.residual();
    LaneData data = data_.extended(residual.cell.cell);
    // The cell's own states are read as inputs; what it carries is the residual and a count.
    for (int i = 0; i < data_.states(); ++i) {
      data.symbols[residual.cell.before[i]] = data_.as_input(i, data_.trajectory(i), true);
      data.symbols[residual.cell.value[i]] = data_.as_input(i, data_.trajectory(i), false);
    }
    Array tolerance(data_.dtype(), {});
    tolerance.set(0, tolerance_);
    data.symbols[residual.cell.tolerance].data = static_cast<std::byte*>(tolerance.data());
    SegmentStates found = data_.make_states(residual.cell.cell, segments_.count());
    residual.kernel.run(data, segments_.lanes(lanes), found, found, false, threads_);
    return found;
  }

  /// Every step's residual. Fills newton_misses_.
  double check_all() {
    const SegmentStates found = measure(segments_.all());
    newton_misses_.clear();
    double most = 0;
    for (const SegmentLane at : segments_.all()) {
      const std::int64_t e = lane_number(at);
      const double r = found.arrays[0].get(e);
      most = std::max(most, r);
      residual_[lane_number(at)] = r;
      if (!(r <= tolerance_))
        newton_misses_.push_back({at, r, static_cast<std::int64_t>(found.arrays[1].get(e)),
                                  segments_[at.segment].steps - static_cast<std::int64_t>(found.arrays[2].get(e))});
    }
    return most;
  }

  StageData& data_;
  StageKernels& kernels_;
  const StagePlan& plan_;
  const SolveOptions& options_;
  const double tolerance_;
  const int threads_;
  bool repairs_ = true;
  Segments<Number> segments_;
  SegmentStates probe_, at_;  ///< scratch: a step's outcome; where a repair has come to
  /// By lane: of steps not made by the step code, or kNone.
  std::vector<double> residual_;
  std::vector<double> inner_;  ///< by segment: of a scan along time, all steps but the first
  std::vector<Miss> newton_misses_;
  StageOutcome outcome_;
};

}  // namespace

StageOutcome solve_stage(StageData& data, StageKernels& kernels, const StagePlan& plan, const SolveOptions& options,
                         double tolerance, int threads) {
  if (data.dtype() == Dtype::F64) return StageSolver<double>(data, kernels, plan, options, tolerance, threads).run();
  return StageSolver<float>(data, kernels, plan, options, tolerance, threads).run();
}

}  // namespace cellc
