// scan.cuh and scan_stream.cuh on the emulator against a plain loop in f64: kinds of maps, layouts, loaders, storage, awkward
// lengths, and schedules in which pieces wait for each other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "compiler/emit_cuda_lane.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/parse.h"
#include "compiler/stage_cells.h"
#include "runtime/cuda/kernel_templates.h"
#include "tests/emulator/emulator.h"
#include "tests/gpu/fixtures.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

/// A step as a plain loop has it: inputs in the order of `inputs`, states in the order of the struct.
using PlainStep = std::function<void(const double* input, double* state)>;

struct ScanCell {
  std::string text;
  int states = 1, arrays = 3;
  std::vector<int> state_arrays{0}, inputs{1, 2};  ///< arrays by entry
  std::vector<int> state_entries{0};
  std::vector<std::pair<double, double>> ranges{{-1, 1}, {-1, 1}};  ///< by input
  PlainStep step;
};

ScanCell linear_cell() {
  ScanCell cell;
  cell.text = text_of(CELLC_SOURCE_DIR "/tests/gpu/linear_cell.cuh");
  cell.step = [](const double* in, double* s) { s[0] = in[0] * s[0] + in[1]; };
  return cell;
}

/// A cell of one stage through the compiler. Its inputs are read in the order in which the struct lists them.
ScanCell emitted(const std::string& text, Scannable kind, Storage storage, std::map<std::string, std::pair<double, double>> ranges,
                 const std::function<void(const std::map<std::string, double>&, std::map<std::string, double>&)>& step) {
  const SourceText source("test.cell", text);
  const File file = oracle::parse_or_throw(source);
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(file, file.cells.at(0), diagnostics);
  if (!graph) throw std::runtime_error(diagnostics.format(source));
  const Structure structure = analyse(*graph, differentiate(*graph));
  const StagedCell staged = split_stages(*graph, structure);
  if (staged.stages.size() != 1) throw std::runtime_error("the cell has several stages");
  if (structure.stages[0].scannable != kind) throw std::runtime_error("the cell is of another kind");
  const StageCells& stage = staged.stages[0];
  CudaLaneOptions options;
  options.storage = storage;
  options.sizes = sizes_to_show(stage.lanes, stage.lane);
  const CudaLaneCode own = emit_cuda_lane(stage.lanes, stage.lane, options);
  const CarrierCell carriers = with_carriers(stage.lanes, stage.lane, kind);
  options.name = "Carried";
  ScanCell cell;
  cell.text = own.text + emit_cuda_carried(carriers, stage.lane, options).text;
  cell.states = static_cast<int>(own.states.size());
  cell.arrays = static_cast<int>(stage.lanes.symbols.size());
  const auto name = [&](const SymbolEntry& e) {
    const std::string& symbol = stage.lanes.symbols[e.symbol].name;
    return e.entry ? fmt::format("{}{}", symbol, e.entry) : symbol;
  };
  std::vector<std::string> state_names, input_names;
  cell.state_arrays.clear();
  cell.state_entries.clear();
  cell.inputs.clear();
  cell.ranges.clear();
  for (const SymbolEntry& e : own.states) {
    cell.state_arrays.push_back(e.symbol);
    cell.state_entries.push_back(static_cast<int>(e.entry));
    state_names.push_back(name(e));
  }
  for (const SymbolEntry& e : own.inputs) {
    cell.inputs.push_back(e.symbol);
    input_names.push_back(name(e));
    cell.ranges.push_back(ranges.at(name(e)));
  }
  cell.step = [=](const double* in, double* s) {
    std::map<std::string, double> values, next;
    for (std::size_t i = 0; i < input_names.size(); ++i) values[input_names[i]] = in[i];
    for (std::size_t i = 0; i < state_names.size(); ++i) values[state_names[i]] = s[i];
    step(values, next);
    for (std::size_t i = 0; i < state_names.size(); ++i) s[i] = next.at(state_names[i]);
  };
  return cell;
}

ScanCell clip_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = clip(a*h + x, -0.75, 1)\n}\n", Scannable::Clip, Storage::F32,
                 {{"a", {-1.2, 1.2}}, {"x", {-1, 1}}}, [](const auto& v, auto& next) {
                   next["h"] = std::clamp(v.at("a") * v.at("h") + v.at("x"), -0.75, 1.0);
                 });
}
ScanCell moebius_cell() {
  return emitted("cell c[d] {\n  state P[d]\n  input a[d], b[d], c[d], e[d]\n  P' = (a*P + b)/(c*P + e)\n}\n", Scannable::Moebius,
                 Storage::F32, {{"a", {0, 1}}, {"b", {0, 1}}, {"c", {0, 1}}, {"e", {1, 2}}}, [](const auto& v, auto& next) {
                   next["P"] = (v.at("a") * v.at("P") + v.at("b")) / (v.at("c") * v.at("P") + v.at("e"));
                 });
}
/// Two states that turn into each other.
ScanCell rotation_cell(Storage storage = Storage::F32) {
  return emitted("cell c[d] {\n  state h[d], g[d]\n  input a[d], b[d], x[d]\n  h' = a*h - b*g + x\n  g' = b*h + a*g\n}\n",
                 Scannable::Affine, storage, {{"a", {-0.7, 0.7}}, {"b", {-0.7, 0.7}}, {"x", {-1, 1}}},
                 [](const auto& v, auto& next) {
                   next["h"] = v.at("a") * v.at("h") - v.at("b") * v.at("g") + v.at("x");
                   next["g"] = v.at("b") * v.at("h") + v.at("a") * v.at("g");
                 });
}
/// A ring of four states: all entries of the map, most of which are zero over few steps.
ScanCell ring_cell() {
  return emitted(
      "cell c[d] {\n  state h[d], p[d], q[d], r[d]\n  input a[d], x[d]\n  h' = a*h + 0.3*r + x\n  p' = h\n  q' = 0.9*p\n  r' = q\n}\n",
      Scannable::Affine, Storage::F32, {{"a", {-0.6, 0.6}}, {"x", {-1, 1}}}, [](const auto& v, auto& next) {
        next["h"] = v.at("a") * v.at("h") + 0.3 * v.at("r") + v.at("x");
        next["p"] = v.at("h");
        next["q"] = 0.9 * v.at("p");
        next["r"] = v.at("q");
      });
}
/// Slopes above one: over a few hundred steps the factor of the map passes the largest float, the state does not.
ScanCell latch_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = clip(1.5*h + x, -1, 1)\n}\n", Scannable::Clip, Storage::F32,
                 {{"x", {-0.1, 0.1}}},
                 [](const auto& v, auto& next) { next["h"] = std::clamp(1.5 * v.at("h") + v.at("x"), -1.0, 1.0); });
}
/// The same without an upper bound; what is below the threshold goes to zero.
ScanCell ramp_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = max(1.25*h + x, 0)\n}\n", Scannable::Clip, Storage::F32,
                 {{"x", {-0.9, -0.4}}},
                 [](const auto& v, auto& next) { next["h"] = std::max(1.25 * v.at("h") + v.at("x"), 0.0); });
}
/// A map that is the identity over no steps and has a carrier nowhere.
ScanCell forgetful_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = x + 1\n}\n", Scannable::Affine, Storage::F32, {{"x", {-1, 1}}},
                 [](const auto& v, auto& next) { next["h"] = v.at("x") + 1; });
}

// Storage ------------------------------------------------------------------------------------------------

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

struct Format {
  std::string name = "F32";
  int bytes = 4;
  double rounding = 0;  ///< of a written row, relative
  double tolerance = 2e-5;
  void put(char* to, double value) const {
    if (name == "F64") std::memcpy(to, &value, 8);
    else if (name == "BF16") *reinterpret_cast<std::uint16_t*>(to) = to_bf16(static_cast<float>(value));
    else if (name == "F16") *reinterpret_cast<_Float16*>(to) = static_cast<_Float16>(value);
    else *reinterpret_cast<float*>(to) = static_cast<float>(value);
  }
  double get(const char* from) const {
    if (name == "F64") return *reinterpret_cast<const double*>(from);
    if (name == "BF16") return from_bf16(*reinterpret_cast<const std::uint16_t*>(from));
    if (name == "F16") return static_cast<double>(*reinterpret_cast<const _Float16*>(from));
    return *reinterpret_cast<const float*>(from);
  }
  int real_bytes() const { return name == "F64" ? 8 : 4; }
};
const Format kF64{"F64", 8, 0, 1e-12}, kBF16{"BF16", 2, 4e-3, 2e-5}, kF16{"F16", 2, 5e-4, 2e-5};

// Runs ---------------------------------------------------------------------------------------------------

struct ScanCase {
  const char* copy = "Each";
  int channels = 32, steps = 8, warps = 2;  ///< of the kernel
  std::int64_t width = 37;                  ///< channels of the cell
  std::vector<std::int64_t> lengths{100};
  bool packed = false, reverse = false, time_inner = false;
  int grid = 5, look = 1 << 20, calls = 1;
  int misalign = 0;  ///< entries that all arrays begin later
  int buffers = 0;   ///< of scan_stream.cuh; 0: scan.cuh
  std::string label() const {
    std::string all;
    for (std::int64_t n : lengths) all += fmt::format(" {}", n);
    return fmt::format("{} channels {} steps {} warps {} width {} lengths{}{}{} grid {} look {}", copy, channels, steps, warps, width, all,
                       packed ? " packed" : "", reverse ? " reverse" : "", grid, look) +
           (buffers ? fmt::format(" {} buffers", buffers) : "");
  }
};

/// What the kernel of the tests is given; it makes a Scan of it.
struct Arguments {
  std::uint64_t data[8];
  std::uint64_t start[8], last[8];
  std::uint64_t offsets, control, words;
  long long batch, row, channel, channels, length;
  int sequences, reverse, pieces, groups, look;
};

constexpr const char* kKernel = R"(
struct Arguments {
  unsigned long long data[8], start[8], last[8], offsets, control, words;
  long long batch, row, channel, channels, length;
  int sequences, reverse, pieces, groups, look;
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
  s.pieces = a.pieces;
  s.groups = a.groups;
  s.look = a.look;
  cellc::KERNEL<cellc::ScanCopy::COPY>(s);
}
extern "C" __global__ void sizes(int* to, int warps) {
  to[0] = cellc::BYTES(warps);
  to[1] = cellc::kScanWords;
}
)";

GpuSource source_of(const ScanCell& cell, const ScanCase& c, const Format& format) {
  GpuSource source{"scan.cu", "", {}};
  source.text = fmt::format(
      "#define CELLC_STORAGE_{} 1\n#define CELLC_SCAN_CHANNELS {}\n#define CELLC_SCAN_STEPS {}\n#define COPY {}\n", format.name,
      c.channels, c.steps, c.copy);
  const std::string kernel = c.buffers ? "scan_stream" : "scan";
  source.text += fmt::format("#define KERNEL {}\n#define BYTES {}_shared_bytes\n", kernel, c.buffers ? "stream" : "scan");
  if (c.buffers) source.text += fmt::format("#define CELLC_SCAN_BUFFERS {}\n", c.buffers);
  for (const char* part : {"preamble.cuh", "math.cuh"}) source.text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  source.text += cell.text;
  for (const char* part : {"lanes.cuh", "carriers.cuh", "scan_piece.cuh", "scan.cuh", "scan_stream.cuh"})
    source.text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  source.text += kKernel;
  return source;
}

class ScanRunner {
 public:
  ScanRunner(ScanCell cell, Format format, const EmulatorOptions& options = {})
      : cell_(std::move(cell)), format_(format), gpu_(open_emulator(options)) {}

  void seed(std::uint64_t seed) { gpu_->set_seed(seed); }

  /// By both kernels, unless the case names one.
  void check(ScanCase c) {
    if (c.buffers) return check_kernel(c);
    check_kernel(c);
    c.buffers = 3;
    check_kernel(c);
  }

  void check_kernel(const ScanCase& c) {
    SCOPED_TRACE(c.label() + " " + format_.name);
    const auto module = gpu_->load(source_of(cell_, c, format_));
    const auto kernel = gpu_->function(module, "kernel"), sizes = gpu_->function(module, "sizes");
    const GpuBuffer facts(*gpu_, 8);
    std::uint64_t facts_at = facts.address();
    int warps = c.warps;
    void* size_arguments[] = {&facts_at, &warps, nullptr};
    gpu_->launch(sizes, GpuLaunch{}, size_arguments);
    int fact[2];
    gpu_->copy_out(fact, facts.address(), 8, 0);

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
        format_.put(host[cell_.inputs[e]].data() + (c.misalign + i) * format_.bytes, draw(random));
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
        if (real == 8) reinterpret_cast<double*>(values.data())[i * a.channel] = starts[e].back();
        else reinterpret_cast<float*>(values.data())[i * a.channel] = static_cast<float>(starts[e].back());
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
    const std::int64_t block_steps = c.warps * 32 / c.channels * c.steps, skew = std::string(c.copy) == "Time" ? 16 / format_.bytes - 1 : 0;
    a.groups = static_cast<int>((c.width + c.channels - 1) / c.channels);
    a.pieces = static_cast<int>(std::max<std::int64_t>((longest + skew + block_steps - 1) / block_steps, 1));
    a.look = c.look;
    const GpuBuffer control(*gpu_, 8), words(*gpu_, 8ull * n * a.groups * a.pieces * fact[1] * c.channels);
    gpu_->zero(control.address(), 8, 0);
    gpu_->zero(words.address(), words.bytes(), 0);
    a.control = control.address();
    a.words = words.address();
    GpuLaunch shape;
    shape.grid.x = c.grid;
    shape.block.x = 32 * (c.warps + (c.buffers ? 1 : 0));
    shape.shared_bytes = fact[0];
    void* arguments[] = {&a, nullptr};
    // What earlier calls published is of other data, and lies elsewhere.
    for (int call = 1; call < c.calls; ++call) {
      Arguments other = a;
      std::swap(other.data[cell_.inputs.front()], other.data[cell_.inputs.back()]);
      if (call % 2 == 0) other.length = longest / 2, other.pieces = (a.pieces + 1) / 2;
      void* other_arguments[] = {&other, nullptr};
      gpu_->launch(kernel, shape, other_arguments);
    }
    gpu_->launch(kernel, shape, arguments);
    unsigned state_of_control[2];
    gpu_->copy_out(state_of_control, control.address(), 8, 0);
    EXPECT_EQ(state_of_control[0], static_cast<unsigned>(c.calls));
    EXPECT_EQ(state_of_control[1], 0u);

    for (int e = 0; e < cell_.states; ++e)
      gpu_->copy_out(host[cell_.state_arrays[e]].data(), device[cell_.state_arrays[e]].address(), bytes, 0);
    std::vector<std::vector<char>> finals(cell_.states);
    for (int e = 0; e < cell_.states; ++e) {
      finals[e].resize(last[e].bytes());
      gpu_->copy_out(finals[e].data(), last[e].address(), last[e].bytes(), 0);
    }
    int wrong = 0;
    const auto compare = [&](double got, double want, double tolerance, const std::string& what) {
      if (std::fabs(got - want) <= tolerance * (1 + std::fabs(want)) || wrong > 3) return;
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
            compare(format_.get(host[cell_.state_arrays[e]].data() + place), state[e], format_.tolerance + format_.rounding,
                    fmt::format("sequence {} step {} channel {} state {}", s, t, channel, e));
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

 private:
  ScanCell cell_;
  Format format_;
  std::unique_ptr<Emulator> gpu_;
};

EmulatorOptions interleaved(std::uint64_t seed) {
  EmulatorOptions options;
  options.interleave = true;
  options.seed = seed;
  return options;
}

/// Lengths around those of a thread, a warp's part and a piece.
std::vector<std::int64_t> awkward(const ScanCase& c) {
  const std::int64_t piece = c.warps * 32 / c.channels * c.steps;
  return {0, 1, 2, c.steps - 1, c.steps, c.steps + 1, piece - 1, piece, piece + 1, 2 * piece + 3, 5 * piece + 7};
}

TEST(Scan, AwkwardLengthsEntryByEntry) {
  ScanRunner runner(linear_cell(), Format{}, interleaved(1));
  for (const auto& [channels, width] : {std::pair{32, 37}, {8, 5}, {4, 9}, {1, 1}, {1, 3}}) {
    ScanCase c;
    c.channels = channels;
    c.width = width;
    for (std::int64_t length : awkward(c)) {
      c.lengths = {length, length};
      c.reverse = length % 2;
      runner.check(c);
    }
  }
}

TEST(Scan, AwkwardLengthsByRows) {
  ScanRunner runner(linear_cell(), Format{}, interleaved(2));
  for (const auto& [channels, width] : {std::pair{32, 64}, {16, 16}, {4, 8}}) {
    ScanCase c;
    c.copy = "Rows";
    c.channels = channels;
    c.width = width;
    for (std::int64_t length : awkward(c)) {
      c.lengths = {length, length};
      c.reverse = length % 2;
      runner.check(c);
    }
  }
}

TEST(Scan, AwkwardLengthsAlongTime) {
  ScanRunner runner(linear_cell(), Format{}, interleaved(3));
  ScanCase c;
  c.copy = "Time";
  c.channels = 1;
  c.width = 1;
  int turn = 0;
  for (std::int64_t length : awkward(c)) {
    for (const bool reverse : {false, true}) {
      c.lengths = {length, length, length};
      c.reverse = reverse;
      c.misalign = turn++ % 4;
      runner.check(c);
    }
  }
  c.width = 3;  // [sequence][channel][row]
  c.time_inner = true;
  c.lengths = {1100, 1100};
  runner.check(c);
}

TEST(Scan, AwkwardLengthsAlongTimeOfFewChannels) {
  for (const Format& format : {Format{}, kBF16}) {
    ScanRunner runner(linear_cell(), format, interleaved(10));
    ScanCase c;
    c.copy = "Time";
    int turn = 0;
    for (const int channels : {2, 4}) {
      c.channels = static_cast<int>(c.width = channels);
      for (std::int64_t length : awkward(c)) {
        c.lengths = {length, length};
        c.reverse = ++turn % 2;
        c.misalign = turn % (16 / format.bytes / channels) * channels;
        runner.check(c);
      }
    }
  }
}

TEST(Scan, BuffersOfAStream) {
  ScanRunner runner(linear_cell(), Format{}, interleaved(11));
  ScanCase c;
  c.copy = "Time";
  c.channels = 1;
  c.width = 1;
  c.lengths = {9000, 9000};
  for (const int buffers : {3, 4, 5}) {
    c.buffers = buffers;
    for (const int look : {1, 5, 1 << 20}) {
      c.look = look;
      c.grid = 3 + look % 7;
      runner.check(c);
    }
  }
}

TEST(Scan, PackedSequences) {
  for (const char* copy : {"Each", "Rows", "Time"}) {
    ScanRunner runner(linear_cell(), Format{}, interleaved(4));
    ScanCase c;
    c.copy = copy;
    c.packed = true;
    c.warps = 3;
    c.channels = c.width = copy == std::string("Time") ? 1 : 8;
    c.lengths = {5, 0, 133, 1, 700, 0, 64};
    for (const bool reverse : {false, true}) {
      c.reverse = reverse;
      runner.check(c);
    }
  }
}

TEST(Scan, EverySchedule) {
  ScanCase c;
  c.channels = 4;
  c.width = 4;
  c.warps = 3;
  c.lengths = {3000};
  c.calls = 3;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EmulatorOptions options;
    options.seed = seed;
    options.interleave = seed > 0;
    ScanRunner runner(linear_cell(), Format{}, options);
    for (const int grid : {1, 7, 40}) {
      c.grid = grid;
      c.look = seed % 2 ? 3 : 1 << 20;
      c.copy = seed % 3 ? "Rows" : "Each";
      runner.check(c);
    }
  }
}

TEST(Scan, Storages) {
  for (const Format& format : {kF64, kBF16, kF16}) {
    ScanRunner runner(linear_cell(), format, interleaved(5));
    ScanCase c;
    c.lengths = {501, 501};
    for (const bool reverse : {false, true}) {
      c.reverse = reverse;
      c.copy = "Each";
      c.channels = 32;
      c.width = 33;
      runner.check(c);
      c.copy = "Rows";
      c.channels = 8;
      c.width = 16;
      runner.check(c);
      c.copy = "Time";
      c.channels = c.width = 1;
      c.misalign = 1;
      runner.check(c);
      c.misalign = 0;
    }
  }
}

void check_layouts(const ScanCell& cell, const Format& format = {}) {
  for (std::uint64_t seed = 6; seed < 9; ++seed) {
    ScanRunner runner(cell, format, interleaved(seed));
    ScanCase c;
    c.lengths = {403, 403};
    c.reverse = seed % 2;
    c.channels = 32;
    c.width = 40;
    runner.check(c);
    c.copy = "Rows";
    c.channels = c.width = 4;
    runner.check(c);
    c.copy = "Time";
    c.channels = c.width = 1;
    c.lengths = {1900};
    runner.check(c);
  }
}

TEST(Scan, Clips) { check_layouts(clip_cell()); }
TEST(Scan, ClipsWhoseSlopesOverflow) {
  check_layouts(latch_cell());
  check_layouts(ramp_cell());
}
TEST(Scan, MoebiusMaps) { check_layouts(moebius_cell()); }
TEST(Scan, TwoStates) {
  check_layouts(rotation_cell());
  check_layouts(rotation_cell(Storage::F64), kF64);
}
TEST(Scan, FourStates) { check_layouts(ring_cell()); }
TEST(Scan, AStateThatForgetsAtOnce) { check_layouts(forgetful_cell()); }

}  // namespace
}  // namespace cellc
