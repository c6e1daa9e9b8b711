#include "runtime/cpu/timed_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "runtime/build/compile_orc.h"
#include "runtime/cpu/backward_on_cpu.h"
#include "runtime/cpu/solve.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kFirstSteps = 16;
constexpr double kEnoughMs = 5;

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int calls_for(int asked, double once_ms) {
  return asked > 0 ? asked : static_cast<int>(std::clamp(500 / std::max(once_ms, 1e-3), 1.0, 50.0));
}

/// Through a buffer that stays in the first-level cache, so that reading and writing run beside each other.
void copy_slice(const char* from, std::size_t read, char* to, std::size_t written) {
  constexpr std::size_t kBuffer = 16 << 10;
  alignas(64) char buffer[kBuffer] = {};
  const std::size_t parts = std::max((read + kBuffer - 1) / kBuffer, (written + kBuffer - 1) / kBuffer);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t r0 = read * i / parts, r1 = read * (i + 1) / parts, w0 = written * i / parts,
                      w1 = written * (i + 1) / parts;
    std::memcpy(buffer, from + r0, r1 - r0);
    asm volatile("" ::"r"(buffer) : "memory");  // what is only read is read all the same
    std::memcpy(to + w0, buffer, w1 - w0);
  }
}

double copy_ms(const Traffic& traffic, int calls, int requested_threads) {
  const std::vector<char> from(static_cast<std::size_t>(traffic.read), 1);
  std::vector<char> to(static_cast<std::size_t>(traffic.written));
  const int threads = thread_count(requested_threads);
  const auto once = [&] {
    const auto start = Clock::now();
    run_on_threads(threads, [&](int i) {
      const auto at = [&](std::size_t n, int part) {
        return n * static_cast<std::size_t>(part) / static_cast<std::size_t>(threads);
      };
      const std::size_t r0 = at(from.size(), i), w0 = at(to.size(), i);
      copy_slice(from.data() + r0, at(from.size(), i + 1) - r0, to.data() + w0, at(to.size(), i + 1) - w0);
    });
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  once();
  // Threads start and pages come late: a floor of few calls would be none.
  const int count = std::max(10, calls_for(calls, once()));
  std::vector<double> times;
  for (int i = 0; i < count; ++i) times.push_back(once());
  return median(std::move(times));
}

/// The median of calls, after two that compile and warm up.
double call_ms(int calls, const std::function<double()>& once) {
  once();
  const int count = calls_for(calls, once());
  std::vector<double> times;
  for (int i = 0; i < count; ++i) times.push_back(once());
  return median(std::move(times));
}

/// What a run would take, by more and more of its steps, until starting is little of what they take; nullopt: too
/// short.
std::optional<double> by_first_steps(const CellGraph& cell, const BoundRun& run,
                                     const std::function<double(const BoundRun&)>& run_ms) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
    longest = std::max(longest, run.offsets[s + 1] - run.offsets[s]);
  for (std::int64_t steps = kFirstSteps; steps < longest; steps *= 4) {
    TimeWindow part;
    cut_window(cell, run, {}, 0, steps, part);
    if (const double ms = run_ms(part.run); ms > kEnoughMs)
      return ms * static_cast<double>(run.offsets.back()) / static_cast<double>(part.run.offsets.back());
  }
  return std::nullopt;
}

class TimedCpu : public TimedCell {
 public:
  TimedCpu(const CellGraph& cell, const Structure& structure, const CompileOptions& compile, const BoundRun& run)
      : cell_(cell), run_(run), solver_(cell, structure, compile), output_(prepare_output(cell, run, compile.dtype)) {}

  std::string device() const override { return "cpu"; }
  std::string processor() const override { return cpu_and_threads(run_.threads); }
  std::optional<std::string> refusal(int stage, Strategy strategy) override {
    return solver_.refusal(stage, strategy, run_);
  }

  double time(const SolveOptions& options, int calls, SolveReport& report) override {
    return call_ms(calls, [&] {
      output_ = solver_.run(run_, options, report, std::move(output_));
      return output_.run_ms;
    });
  }

  std::optional<double> foreseen_ms(const SolveOptions& options) override {
    return by_first_steps(cell_, run_, [&](const BoundRun& part) {
      SolveReport report;
      return solver_.run(part, options, report).run_ms;
    });
  }

  double floor_ms(const Traffic& traffic, int calls) override { return copy_ms(traffic, calls, run_.threads); }

 private:
  const CellGraph& cell_;
  const BoundRun& run_;
  Solver solver_;
  RunOutput output_;
};

class TimedBackwardCpu : public TimedCell {
 public:
  TimedBackwardCpu(const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                   const CompileOptions& compile, const BoundRun& run)
      : run_(run),
        adjoint_(adjoint),
        backward_(adjoint, compile),
        cotangents_(random_cotangents(cell, run, compile.dtype, 1)) {
    SolveReport report;
    output_ = Solver(cell, structure, compile).run(run, {}, report);
    report = {};
    gradients_ = backward_.run(run_, output_, cotangents_, {}, report);
  }

  std::string device() const override { return "cpu"; }
  std::string processor() const override { return cpu_and_threads(run_.threads); }
  std::optional<std::string> refusal(int stage, Strategy strategy) override {
    return backward_.refusal(stage, strategy);
  }
  double time(const SolveOptions& options, int calls, SolveReport& report) override {
    return call_ms(calls, [&] {
      report = {};
      gradients_ = {};  // its memory is the next call's
      gradients_ = backward_.run(run_, output_, cotangents_, options, report);
      return backward_.run_ms();
    });
  }
  std::optional<double> foreseen_ms(const SolveOptions& options) override {
    return by_first_steps(adjoint_.cell(), backward_.bound(), [&](const BoundRun& part) {
      SolveReport report;
      return backward_.solver().run(part, options, report).run_ms;
    });
  }
  double floor_ms(const Traffic& traffic, int calls) override { return copy_ms(traffic, calls, run_.threads); }

 private:
  const BoundRun& run_;
  const AdjointRun& adjoint_;
  BackwardOnCpu backward_;
  const Cotangents cotangents_;
  RunOutput output_;
  Gradients gradients_;
};

}  // namespace

std::unique_ptr<TimedCell> timed_backward_on_cpu(const CellGraph& cell, const Structure& structure,
                                                 const AdjointRun& adjoint, const CompileOptions& compile,
                                                 const BoundRun& run) {
  return std::make_unique<TimedBackwardCpu>(cell, structure, adjoint, compile, run);
}

std::unique_ptr<TimedCell> timed_on_cpu(const CellGraph& cell, const Structure& structure,
                                        const CompileOptions& compile, const BoundRun& run) {
  return std::make_unique<TimedCpu>(cell, structure, compile, run);
}

std::string cpu_and_threads(int threads) {
  const int count = thread_count(threads);
  return fmt::format("{}, {} thread{}", host_cpu_name(), count, count == 1 ? "" : "s");
}

}  // namespace cellc
