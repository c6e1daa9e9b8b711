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
  for (int e = 0; e < Step::kStates; ++e) s.ground[e] = 0;
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
  static constexpr int kStepsPerCopy = 8, kPipelineDepth = 3, kWidth = 1, kAxes = 4, kSums = 0, kBases = 0, kOuts = 0, kAccumulated = 0;
  static constexpr unsigned kUniformInputs = 0, kShiftedInputs = 0, kColumns = 0;
  static constexpr bool kSharedInputs = false, kScanForward = false, kScanChecks = {}, kScanWhole = {}, kOutsReadStates = false, kWritesRows = true;
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
  std::vector<const char*> parts = {"lanes.cuh",     "sweep.cuh",       "maps.cuh",
                                    "semirings.cuh", "transitions.cuh", "accumulators.cuh",
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

namespace {

/// What a case reads and writes, on the device and here: [sequence][row][channel], or [sequence][channel][row].
class ScanArrays {
 public:
  ScanArrays(Gpu& gpu, const ScanCell& cell, const ScanFormat& format, const ScanCase& c)
      : gpu_(gpu),
        cell_(cell),
        format_(format),
        c_(c),
        random_(static_cast<unsigned>(*std::max_element(c.lengths.begin(), c.lengths.end()) * 7 + c.width)) {
    for (std::int64_t length : c.lengths) offsets_.push_back(offsets_.back() + length);
    describe();
    fill_arrays();
    fill_starts();
    if (c.packed) {
      device_offsets_ = GpuBuffer(gpu, offsets_.size() * 8);
      gpu.copy_in(device_offsets_.address(), offsets_.data(), offsets_.size() * 8, 0);
      a.offsets = device_offsets_.address();
    }
  }

  /// What the kernel wrote, against a plain loop or against a step from each row before.
  void compare() {
    for (int e = 0; e < cell_.states; ++e)
      gpu_.copy_out(host_[cell_.state_arrays[e]].data(), device_[cell_.state_arrays[e]].address(), bytes_, 0);
    std::vector<std::vector<char>> finals(cell_.states);
    for (int e = 0; e < cell_.states; ++e) {
      finals[e].resize(last_[e].bytes());
      gpu_.copy_out(finals[e].data(), last_[e].address(), last_[e].bytes(), 0);
    }
    for (std::size_t s = 0; s < c_.lengths.size(); ++s)
      for (std::int64_t channel = 0; channel < c_.width; ++channel)
        compare_channel(static_cast<std::int64_t>(s), channel, finals);
  }

  Arguments a{};

 private:
  std::int64_t at(std::int64_t sequence, std::int64_t step, std::int64_t channel) const {
    const std::int64_t row = c_.reverse ? c_.lengths[sequence] - 1 - step : step;
    return sequence * a.batch + ((c_.packed ? offsets_[sequence] : 0) + row) * a.row + channel * a.channel;
  }

  void describe() {
    const auto n = static_cast<std::int64_t>(c_.lengths.size());
    a.length = *std::max_element(c_.lengths.begin(), c_.lengths.end());
    const std::int64_t rows = c_.packed ? offsets_.back() : a.length;
    entries_ = (c_.packed ? 1 : n) * rows * c_.width;
    bytes_ = (entries_ + c_.misalign) * format_.bytes;
    a.row = c_.time_inner ? 1 : c_.width;
    a.channel = c_.time_inner ? rows : 1;
    a.batch = c_.packed ? 0 : rows * c_.width;
    a.channels = c_.width;
    a.sequences = static_cast<int>(n);
    a.reverse = c_.reverse;
  }

  void fill_arrays() {
    host_.resize(cell_.arrays);
    device_.resize(cell_.arrays);
    for (int i = 0; i < cell_.arrays; ++i) {
      host_[i].assign(bytes_ + 16, 0);
      device_[i] = GpuBuffer(gpu_, bytes_ + 16);
      a.data[i] = device_[i].address() + c_.misalign * format_.bytes;
    }
    if (c_.cancels) return fill_with_what_cancels();
    for (std::size_t e = 0; e < cell_.inputs.size(); ++e) {
      std::uniform_real_distribution<double> draw(cell_.ranges[e].first, cell_.ranges[e].second);
      std::vector<char>& host = host_[cell_.inputs[e]];
      for (std::int64_t i = 0; i < entries_; ++i)
        format_.put(host.data() + (c_.misalign + i) * format_.bytes,
                    c_.infinite && e + 1 == cell_.inputs.size() && i % c_.infinite == 0 ? INFINITY : draw(random_));
      gpu_.copy_in(device_[cell_.inputs[e]].address(), host.data(), bytes_, 0);
    }
  }

  /// What a chain starts from whose data cancel; another start would be grown along with its map.
  static constexpr float kStart = 0.5;
  void fill_with_what_cancels() {
    constexpr std::int64_t kGrowing = 48;
    std::uniform_real_distribution<double> grows(1.1, 1.2), shrinks(0.83, 0.9), draw(-1, 1);
    char *const a = host_[cell_.inputs[0]].data(), *const b = host_[cell_.inputs[1]].data();
    for (std::size_t s = 0; s < c_.lengths.size(); ++s)
      for (std::int64_t channel = 0; channel < c_.width; ++channel) {
        double stands = kStart;
        for (std::int64_t t = 0; t < c_.lengths[s]; ++t) {
          const std::int64_t place = (c_.misalign + at(static_cast<std::int64_t>(s), t, channel)) * format_.bytes;
          format_.put(a + place, t / kGrowing % 2 ? shrinks(random_) : grows(random_));
          const double next = draw(random_);
          format_.put(b + place, next - format_.get(a + place) * stands);
          stands = format_.get(a + place) * stands + format_.get(b + place);  // what rounding makes of it
        }
      }
    for (const int array : {cell_.inputs[0], cell_.inputs[1]})
      gpu_.copy_in(device_[array].address(), host_[array].data(), bytes_, 0);
  }

  /// Strided as their channels are.
  void fill_starts() {
    const std::int64_t lanes = static_cast<std::int64_t>(c_.lengths.size()) * c_.width;
    const int real = format_.real_bytes();
    starts_.resize(cell_.states);
    for (int e = 0; e < cell_.states; ++e) {
      std::vector<char> values(lanes * a.channel * real + real, 0);
      std::uniform_real_distribution<double> draw(0, 1);
      for (std::int64_t i = 0; i < lanes; ++i) {
        starts_[e].push_back(c_.cancels ? kStart : static_cast<float>(draw(random_)));
        if (real == 8)
          reinterpret_cast<double*>(values.data())[i * a.channel] = starts_[e].back();
        else
          reinterpret_cast<float*>(values.data())[i * a.channel] = static_cast<float>(starts_[e].back());
      }
      start_.emplace_back(gpu_, values.size());
      last_.emplace_back(gpu_, values.size());
      gpu_.copy_in(start_[e].address(), values.data(), values.size(), 0);
      a.start[e] = start_[e].address();
      a.last[e] = last_[e].address();
    }
  }

  void compare_channel(std::int64_t s, std::int64_t channel, const std::vector<std::vector<char>>& finals) {
    std::vector<double> state, input(cell_.inputs.size()), largest;
    for (int e = 0; e < cell_.states; ++e) state.push_back(starts_[e][s * c_.width + channel]);
    for (double start : state) largest.push_back(std::fabs(start));
    for (std::int64_t t = 0; t < c_.lengths[s]; ++t) {
      const std::int64_t place = (c_.misalign + at(s, t, channel)) * format_.bytes;
      const auto row = [&](int e) { return format_.get(host_[cell_.state_arrays[e]].data() + place); };
      for (std::size_t e = 0; e < input.size(); ++e) input[e] = format_.get(host_[cell_.inputs[e]].data() + place);
      cell_.step(input.data(), state.data());
      for (int e = 0; e < cell_.states; ++e)
        compare(row(e), state[e],
                // A step in f32 rounds what it adds.
                c_.by_rows ? kTolerance + 6e-7 : format_.tolerance + format_.rounding, c_.by_rows ? largest[e] : 1,
                fmt::format("sequence {} step {} channel {} state {}", s, t, channel, e));
      for (int e = 0; e < cell_.states && c_.by_rows; ++e) {
        state[e] = row(e);
        if (std::isfinite(state[e])) largest[e] = std::max(largest[e], std::fabs(state[e]));
      }
    }
    for (int e = 0; e < cell_.states; ++e) {
      const std::int64_t i = (s * c_.width + channel) * a.channel;
      const double got = format_.real_bytes() == 8 ? reinterpret_cast<const double*>(finals[e].data())[i]
                                                   : reinterpret_cast<const float*>(finals[e].data())[i];
      compare(got, state[e], format_.tolerance, 1, fmt::format("sequence {} channel {} final {}", s, channel, e));
    }
  }
  /// Over |want| and the size that the state has besides.
  void compare(double got, double want, double tolerance, double size, const std::string& what) {
    if (got == want || std::fabs(got - want) <= tolerance * (size + std::fabs(want)) || wrong_ > 3) return;
    ADD_FAILURE() << what << ": " << got << ", wanted " << want;
    ++wrong_;
  }

  Gpu& gpu_;
  const ScanCell& cell_;
  const ScanFormat& format_;
  const ScanCase& c_;
  std::mt19937 random_;
  std::vector<std::int64_t> offsets_{0};
  std::int64_t entries_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::vector<char>> host_;
  std::vector<GpuBuffer> device_, start_, last_;
  std::vector<std::vector<double>> starts_;
  GpuBuffer device_offsets_;
  int wrong_ = 0;
};

}  // namespace

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

  ScanArrays arrays(*gpu_, cell_, format_, c);
  Arguments& a = arrays.a;
  const std::int64_t n = a.sequences, longest = a.length;
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
  arrays.compare();
}

}  // namespace cellc
