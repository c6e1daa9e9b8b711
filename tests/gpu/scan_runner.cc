#include "tests/gpu/scan_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "kernels-templates/abi/kernel_memory.h"
#include "kernels-templates/host/host_scan.h"
#include "runtime/cuda/build/kernel_templates.h"

namespace cellc {

namespace {

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

constexpr double kTolerance = 1e-6;

/// What the kernel of the tests is given; it makes a Scan of it.
struct Arguments {
  std::uint64_t data[8];
  std::uint64_t start[8], last[8];
  std::uint64_t offsets, control, words, marks, first_bad, residual;
  double tolerance;
  long long batch, row, channel, channels, length;
  int sequences, reverse, tiles, groups, carry_blocks, look;
};

constexpr const char* kKernel = R"(
struct Arguments {
  unsigned long long data[8], start[8], last[8], offsets, control, words, marks, first_bad, residual;
  double tolerance;
  long long batch, row, channel, channels, length;
  int sequences, reverse, tiles, groups, carry_blocks, look;
};
extern "C" __global__ void __launch_bounds__(512) kernel(const __grid_constant__ Arguments a) {
  cellc::Scan s;
  cellc::Lanes& l = s.lanes;
  for (int i = 0; i < Step::kArrays; ++i) {
    l.array[i].data = reinterpret_cast<void*>(a.data[i]);
    l.array[i].batch = a.batch;
    l.array[i].row = a.row;
    l.array[i].channel[0] = a.channel;
  }
  for (int e = 0; e < Step::kInputs; ++e) l.step.input[e] = l.carried.input[e] = 0;
  for (int e = 0; e < Step::kStates; ++e) {
    l.start[e] = reinterpret_cast<const Real*>(a.start[e]);
    l.last[e] = reinterpret_cast<Real*>(a.last[e]);
    l.start_batch[e] = a.channels * a.channel;
    l.step.state[e] = 0;
  }
  l.channels = a.channels;
  l.axes = 1;
  l.size[0] = static_cast<int>(a.channels);
  l.sequences = a.sequences;
  l.length = a.length;
  l.offsets = reinterpret_cast<const long long*>(a.offsets);
  l.reverse = a.reverse;
  l.segment = a.length;
  l.segments = 1;
  s.control = reinterpret_cast<cellc::ScanControl*>(a.control);
  s.words = reinterpret_cast<unsigned long long*>(a.words);
  s.marks = reinterpret_cast<unsigned*>(a.marks);
  s.first_bad = reinterpret_cast<unsigned long long*>(a.first_bad);
  s.residual = reinterpret_cast<unsigned*>(a.residual);
  s.tolerance = static_cast<Real>(a.tolerance);
  s.tiles = a.tiles;
  s.groups = a.groups;
  s.carry_blocks = a.carry_blocks;
  s.look = a.look;
  cellc::CALL;
}
extern "C" __global__ void sizes(int* to, int warps) {
  to[0] = cellc::BYTES(warps);
  to[1] = cellc::kScanWords;
  to[2] = sizeof(cellc::ScanControl);
}
)";

/// What the templates of a scan ask for (stub_traits.cuh has the list).
std::string traits_of(const ScanCase& c) {
  return fmt::format(
      R"(struct Traits {{
  static constexpr int kStepsPerCopy = 8, kPipelineDepth = 3, kWidth = 1, kAxes = 4, kSums = 0, kOuts = 0, kAccumulated = 0;
  static constexpr unsigned kUniformInputs = 0, kShiftedInputs = 0;
  static constexpr bool kSharedInputs = false, kScanForward = false, kScanChecks = {}, kScanWhole = {};
  static constexpr int kScanChannels = {}, kScanSteps = {}, kScanCluster = {}, kScanBuffers = {}, kScanCarry = {};
}};
)",
      c.checks, c.whole, c.channels, c.steps, c.cluster, c.buffers ? c.buffers : 3,
      c.carried ? c.carried : std::min(c.channels, 4));
}

GpuSource source_of(const ScanCell& cell, const ScanCase& c, const ScanFormat& format) {
  GpuSource source{"scan.cu", "", {}};
  source.text = fmt::format("#define CELLC_STORAGE_{} 1\n", format.name) + traits_of(c);
  const std::string call = c.cluster
                               ? "scan_cluster(s)"
                               : fmt::format("{}<cellc::ScanCopy::{}>(s)", c.buffers ? "scan_stream" : "scan", c.copy);
  source.text += fmt::format("#define CALL {}\n#define BYTES {}_shared_bytes\n", call,
                             c.cluster   ? "cluster"
                             : c.buffers ? "stream"
                                         : "scan");
  for (const char* part : {"preamble.cuh", "math.cuh"})
    source.text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  source.text += cell.text;
  std::vector<const char*> parts = {"lanes.cuh",     "sweep.cuh",       "transitions.cuh", "accumulators.cuh",
                                    "scan_tile.cuh", "scan_repair.cuh", "scan.cuh"};
  if (c.cluster)
    parts.push_back("scan_cluster.cuh");
  else if (c.buffers)
    parts.insert(parts.end(), {"scan_tma.cuh", "scan_stream.cuh"});
  for (const char* part : parts) source.text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  source.text += kKernel;
  return source;
}

}  // namespace

void ScanFormat::put(char* to, double value) const {
  if (name == "F64")
    std::memcpy(to, &value, 8);
  else if (name == "BF16")
    *reinterpret_cast<std::uint16_t*>(to) = to_bf16(static_cast<float>(value));
  else if (name == "F16")
    *reinterpret_cast<_Float16*>(to) = static_cast<_Float16>(value);
  else
    *reinterpret_cast<float*>(to) = static_cast<float>(value);
}

double ScanFormat::get(const char* from) const {
  if (name == "F64") return *reinterpret_cast<const double*>(from);
  if (name == "BF16") return from_bf16(*reinterpret_cast<const std::uint16_t*>(from));
  if (name == "F16") return static_cast<double>(*reinterpret_cast<const _Float16*>(from));
  return *reinterpret_cast<const float*>(from);
}

std::string ScanCase::label() const {
  std::string all;
  for (std::int64_t n : lengths) all += fmt::format(" {}", n);
  return fmt::format("{} channels {} steps {} warps {} width {} lengths{}{}{} grid {} look {}", copy, channels, steps,
                     warps, width, all, packed ? " packed" : "", reverse ? " reverse" : "", grid, look) +
         (buffers ? fmt::format(" {} buffers, {} carried", buffers, carried) : "") +
         (cluster ? fmt::format(" cluster {}{}", cluster, whole ? " whole" : "") : "") + (checks ? " checks" : "");
}

void ScanRunner::check(ScanCase c) {
  if (c.buffers || c.cluster) return check_kernel(c);
  check_kernel(c);
  const std::int64_t tile = c.warps * 32 / c.channels * c.steps,
                     longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  if (longest <= 16 * tile) {
    ScanCase all_at_once = c;
    for (all_at_once.cluster = 1; all_at_once.cluster * tile < longest; all_at_once.cluster *= 2) {
    }
    check_kernel(all_at_once);
    all_at_once.whole = !c.packed && longest > 0 && longest % tile == 0 && c.width % c.channels == 0;
    if (all_at_once.whole) check_kernel(all_at_once);
  }
  c.buffers = 3;
  if (c.channels > 4 && longest % 2) c.carried = c.channels;
  check_kernel(c);
}

void ScanRunner::check_kernel(const ScanCase& c) {
  SCOPED_TRACE(c.label() + " " + format_.name);
  const auto module = gpu_->load(source_of(cell_, c, format_));
  const auto kernel = gpu_->function(module, "kernel"), sizes = gpu_->function(module, "sizes");
  const GpuBuffer facts(*gpu_, 12);
  std::uint64_t facts_at = facts.address();
  int warps = c.warps;
  void* size_arguments[] = {&facts_at, &warps, nullptr};
  gpu_->launch(sizes, GpuLaunch{}, size_arguments);
  int fact[3];
  gpu_->copy_out(fact, facts.address(), 12, 0);

  // The arrays: [sequence][row][channel], or [sequence][channel][row].
  const auto n = static_cast<std::int64_t>(c.lengths.size());
  std::int64_t longest = 0, total = 0;
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t length : c.lengths) {
    longest = std::max(longest, length);
    offsets.push_back(total += length);
  }
  const std::int64_t rows = c.packed ? total : longest;
  const std::int64_t entries = (c.packed ? 1 : n) * rows * c.width;
  Arguments a{};
  a.row = c.time_inner ? 1 : c.width;
  a.channel = c.time_inner ? rows : 1;
  a.batch = c.packed ? 0 : rows * c.width;
  a.channels = c.width;
  a.length = longest;
  a.sequences = static_cast<int>(n);
  a.reverse = c.reverse;
  const auto at = [&](std::int64_t sequence, std::int64_t step, std::int64_t channel) {
    const std::int64_t row = c.reverse ? c.lengths[sequence] - 1 - step : step;
    return sequence * a.batch + ((c.packed ? offsets[sequence] : 0) + row) * a.row + channel * a.channel;
  };
  std::mt19937 random(static_cast<unsigned>(longest * 7 + c.width));
  std::vector<std::vector<char>> host(cell_.arrays);
  std::vector<GpuBuffer> device(cell_.arrays);
  const std::size_t bytes = (entries + c.misalign) * format_.bytes;
  for (int i = 0; i < cell_.arrays; ++i) {
    host[i].assign(bytes + 16, 0);
    device[i] = GpuBuffer(*gpu_, bytes + 16);
    a.data[i] = device[i].address() + c.misalign * format_.bytes;
  }
  for (std::size_t e = 0; e < cell_.inputs.size(); ++e) {
    std::uniform_real_distribution<double> draw(cell_.ranges[e].first, cell_.ranges[e].second);
    for (std::int64_t i = 0; i < entries; ++i)
      format_.put(host[cell_.inputs[e]].data() + (c.misalign + i) * format_.bytes,
                  c.infinite && e + 1 == cell_.inputs.size() && i % c.infinite == 0 ? INFINITY : draw(random));
    gpu_->copy_in(device[cell_.inputs[e]].address(), host[cell_.inputs[e]].data(), bytes, 0);
  }
  const int real = format_.real_bytes();
  std::vector<std::vector<double>> starts(cell_.states);
  std::vector<GpuBuffer> start(cell_.states), last(cell_.states);
  for (int e = 0; e < cell_.states; ++e) {
    // Strided as their channels are.
    std::vector<char> values(n * c.width * a.channel * real + real, 0);
    std::uniform_real_distribution<double> draw(0, 1);
    for (std::int64_t i = 0; i < n * c.width; ++i) {
      starts[e].push_back(static_cast<float>(draw(random)));
      if (real == 8)
        reinterpret_cast<double*>(values.data())[i * a.channel] = starts[e].back();
      else
        reinterpret_cast<float*>(values.data())[i * a.channel] = static_cast<float>(starts[e].back());
    }
    start[e] = GpuBuffer(*gpu_, values.size());
    last[e] = GpuBuffer(*gpu_, values.size());
    gpu_->copy_in(start[e].address(), values.data(), values.size(), 0);
    a.start[e] = start[e].address();
    a.last[e] = last[e].address();
  }
  std::optional<GpuBuffer> device_offsets;
  if (c.packed) {
    device_offsets.emplace(*gpu_, offsets.size() * 8);
    gpu_->copy_in(device_offsets->address(), offsets.data(), offsets.size() * 8, 0);
    a.offsets = device_offsets->address();
  }
  const std::int64_t block_steps = c.warps * 32 / c.channels * c.steps,
                     skew = std::string(c.copy) == "Time" ? 16 / format_.bytes - 1 : 0;
  a.groups = static_cast<int>((c.width + c.channels - 1) / c.channels);
  a.tiles = static_cast<int>(std::max<std::int64_t>((longest + skew + block_steps - 1) / block_steps, 1));
  a.look = c.look;
  a.carry_blocks =
      c.buffers ? static_cast<int>(n * a.groups * (c.channels / (c.carried ? c.carried : std::min(c.channels, 4)))) : 0;
  const std::size_t mark_bytes = 4ull * n * a.groups * (1 + a.tiles * c.channels);
  const GpuBuffer control(*gpu_, fact[2]), words(*gpu_, 8ull * n * a.groups * a.tiles * fact[1] * c.channels),
      marks(*gpu_, mark_bytes);
  gpu_->zero(control.address(), fact[2], 0);
  gpu_->zero(marks.address(), mark_bytes, 0);
  a.marks = marks.address();
  a.tolerance = kTolerance;
  gpu_->copy_in(control.address(), &c.before, 4, 0);
  gpu_->zero(words.address(), words.bytes(), 0);
  a.control = control.address();
  a.words = words.address();
  GpuLaunch shape;
  shape.grid.x = c.grid;
  shape.block.x = 32 * (c.warps + (c.buffers ? 1 : 0));
  shape.shared_bytes = fact[0];
  if (c.buffers) {
    const unsigned resident =
        gpu_->facts().multiprocessors * gpu_->resident_blocks(kernel, shape.block.x, shape.shared_bytes);
    ASSERT_GT(resident, static_cast<unsigned>(a.carry_blocks)) << "the case wants more multiprocessors";
    shape.grid.x = std::min<unsigned>(c.grid + a.carry_blocks, resident);
    shape.cooperative = true;
  }
  if (c.cluster) {
    shape.grid.x = static_cast<unsigned>(n * a.groups * c.cluster);
    shape.cluster = c.cluster;
  }
  void* arguments[] = {&a, nullptr};
  // What earlier calls published is of other data, and lies elsewhere.
  for (int call = 1; call < c.calls; ++call) {
    Arguments other = a;
    std::swap(other.data[cell_.inputs.front()], other.data[cell_.inputs.back()]);
    if (call % 2 == 0 && !c.packed) other.length = longest / 2, other.tiles = (a.tiles + 1) / 2;
    void* other_arguments[] = {&other, nullptr};
    gpu_->launch(kernel, shape, other_arguments);
  }
  gpu_->launch(kernel, shape, arguments);
  unsigned state_of_control[2];
  gpu_->copy_out(state_of_control, control.address(), 8, 0);
  // No call is number 0, which is that of words that nobody has written.
  unsigned number = c.before;
  for (int call = 0; call < c.calls; ++call) number = number == ~0u ? 2 : number + 1;
  EXPECT_EQ(state_of_control[0], c.cluster ? c.before : number);
  EXPECT_EQ(state_of_control[1], 0u);
  ScanControl counted{};
  gpu_->copy_out(&counted, control.address(), sizeof counted, 0);
  std::vector<unsigned> left(mark_bytes / 4);
  gpu_->copy_out(left.data(), marks.address(), mark_bytes, 0);
  repaired_ += counted.repaired;
  EXPECT_EQ(std::count(left.begin(), left.end(), 0u), static_cast<std::ptrdiff_t>(left.size()))
      << "what the next call finds";

  for (int e = 0; e < cell_.states; ++e)
    gpu_->copy_out(host[cell_.state_arrays[e]].data(), device[cell_.state_arrays[e]].address(), bytes, 0);
  std::vector<std::vector<char>> finals(cell_.states);
  for (int e = 0; e < cell_.states; ++e) {
    finals[e].resize(last[e].bytes());
    gpu_->copy_out(finals[e].data(), last[e].address(), last[e].bytes(), 0);
  }
  int wrong = 0;
  const auto compare = [&](double got, double want, double tolerance, const std::string& what) {
    if (got == want || std::fabs(got - want) <= tolerance * (1 + std::fabs(want)) || wrong > 3) return;
    ADD_FAILURE() << what << ": " << got << ", wanted " << want;
    ++wrong;
  };
  for (std::int64_t s = 0; s < n; ++s) {
    for (std::int64_t channel = 0; channel < c.width; ++channel) {
      std::vector<double> state, input(cell_.inputs.size());
      for (int e = 0; e < cell_.states; ++e) state.push_back(starts[e][s * c.width + channel]);
      for (std::int64_t t = 0; t < c.lengths[s]; ++t) {
        const std::int64_t place = (c.misalign + at(s, t, channel)) * format_.bytes;
        for (std::size_t e = 0; e < input.size(); ++e) input[e] = format_.get(host[cell_.inputs[e]].data() + place);
        cell_.step(input.data(), state.data());
        for (int e = 0; e < cell_.states; ++e)
          compare(format_.get(host[cell_.state_arrays[e]].data() + place), state[e],
                  // A step in f32 rounds numbers of 10 before it adds them.
                  c.by_rows ? kTolerance + 6e-7 : format_.tolerance + format_.rounding,
                  fmt::format("sequence {} step {} channel {} state {}", s, t, channel, e));
        for (int e = 0; e < cell_.states && c.by_rows; ++e)
          state[e] = format_.get(host[cell_.state_arrays[e]].data() + place);
      }
      for (int e = 0; e < cell_.states; ++e) {
        const std::int64_t i = (s * c.width + channel) * a.channel;
        const double got = real == 8 ? reinterpret_cast<const double*>(finals[e].data())[i]
                                     : reinterpret_cast<const float*>(finals[e].data())[i];
        compare(got, state[e], format_.tolerance, fmt::format("sequence {} channel {} final {}", s, channel, e));
      }
    }
  }
}

}  // namespace cellc
