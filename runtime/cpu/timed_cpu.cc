#include "runtime/cpu/timed_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "runtime/build/compile_orc.h"
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
    const auto once = [&] {
      output_ = solver_.run(run_, options, report, std::move(output_));
      return output_.run_ms;
    };
    once();  // compiles
    const int count = calls_for(calls, once());
    std::vector<double> times;
    for (int i = 0; i < count; ++i) times.push_back(once());
    return median(std::move(times));
  }

  std::optional<double> foreseen_ms(const SolveOptions& options) override {
    std::int64_t longest = 0;
    for (std::size_t s = 0; s + 1 < run_.offsets.size(); ++s)
      longest = std::max(longest, run_.offsets[s + 1] - run_.offsets[s]);
    // More and more steps, until starting is little of what they take.
    for (std::int64_t steps = kFirstSteps; steps < longest; steps *= 4) {
      TimeWindow part;
      cut_window(cell_, run_, {}, 0, steps, part);
      SolveReport report;
      const double ms = solver_.run(part.run, options, report).run_ms;
      if (ms > kEnoughMs)
        return ms * static_cast<double>(run_.offsets.back()) / static_cast<double>(part.run.offsets.back());
    }
    return std::nullopt;
  }

  double floor_ms(const Traffic& traffic, int calls) override {
    const std::vector<char> from(static_cast<std::size_t>(traffic.read), 1);
    std::vector<char> to(static_cast<std::size_t>(traffic.written));
    const int threads = thread_count(run_.threads);
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

 private:
  const CellGraph& cell_;
  const BoundRun& run_;
  Solver solver_;
  RunOutput output_;
};

}  // namespace

std::unique_ptr<TimedCell> timed_on_cpu(const CellGraph& cell, const Structure& structure,
                                        const CompileOptions& compile, const BoundRun& run) {
  return std::make_unique<TimedCpu>(cell, structure, compile, run);
}

std::string cpu_and_threads(int threads) {
  const int count = thread_count(threads);
  return fmt::format("{}, {} thread{}", host_cpu_name(), count, count == 1 ? "" : "s");
}

}  // namespace cellc
