#include "runtime/cuda/stage_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "runtime/cuda/kernel_templates.h"
#include "runtime/errors.h"

namespace cellc {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;                     ///< of a block, where memory allows
constexpr int kStageSteps = 8, kStages = 3;   ///< steps that a warp stages at once, likewise; stages under way
constexpr int kChannelAxes = 4;
/// Entries that one thread may couple: its states and carriers live in registers.
constexpr std::int64_t kLargestBlock = 16, kLargestCarried = 8;
/// Numbers of a map that a thread of a scan composes in registers: four coupled states.
constexpr int kLargestMap = 20;
constexpr int kScanWarps = 8, kScanSteps = 32;  ///< of a block, of a thread, where shared memory allows (docs/notes/device-scan.md)
/// The same of few channels, whose pieces stream through a block; and pieces of it on chip at once.
constexpr int kStreamWarps = 7, kStreamBuffers = 3, kStreamChannels = 8;
constexpr std::int64_t kStreamRounds = 10;  ///< pieces of a multiprocessor from which that pays
/// Bytes of a map that a thread of a stream holds several of.
constexpr std::int64_t kStreamMap = 32;

Storage storage_named(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64: return Storage::F64;
    case Dtype::F16: return Storage::F16;
    case Dtype::BF16: return Storage::BF16;
    default: return Storage::F32;
  }
}

const char* storage_macro(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64: return "CELLC_STORAGE_F64";
    case Dtype::F16: return "CELLC_STORAGE_F16";
    case Dtype::BF16: return "CELLC_STORAGE_BF16";
    default: return "CELLC_STORAGE_F32";
  }
}

/// A kernel's argument, field after field, with the padding that C++ puts between them.
class Fields {
 public:
  Fields() = default;
  explicit Fields(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  template <typename T>
  void put(T value) {
    while (bytes_.size() % alignof(T)) bytes_.push_back(std::byte{0});
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  void end_struct() {
    while (bytes_.size() % 8) bytes_.push_back(std::byte{0});
  }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Tally and Control of segmented.cuh.
struct Tally {
  unsigned misses, repaired, tails, worst_residual, rounds, growth, phases, unused;
  unsigned long long time[32];
  unsigned ran[16];
};
struct Control {
  unsigned long long slot[3];
  unsigned passed, padding;
  unsigned calls, burn_in, carries, slow, needed[8];
  Tally of[2];
};

}  // namespace

/// The channel axes that are left when those are merged that every array has as one, and every array's
/// strides along them.
struct StageProgram::Layout {
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> channel;  ///< by symbol, by axis
  std::vector<std::vector<std::int64_t>> entry;    ///< by symbol: offset of each entry
  std::int64_t channels = 1;
};

StageProgram::StageProgram(Gpu& gpu, const CellGraph& cell, const StageCells& stage, Scannable scannable, Dtype storage,
                           const SourceText* source)
    : gpu_(gpu), cell_(cell), stage_(stage), scannable_(scannable), storage_(storage), source_(source) {}

StageProgram::~StageProgram() = default;

std::int64_t StageProgram::channels(const std::map<AxisId, std::int64_t>& sizes) const {
  std::int64_t n = 1;
  for (const AxisId a : stage_.channels) n *= sizes.at(cell_.graph.axis(a).extent_of);
  return n;
}

std::int64_t StageProgram::block(const std::map<AxisId, std::int64_t>& sizes) const {
  const std::int64_t each = channels(sizes);
  std::int64_t entries = 0;
  for (const int u : stage_.states) {
    std::int64_t n = 1;
    for (const AxisId a : cell_.symbols[cell_.updates[u].symbol].axes) n *= sizes.at(a);
    entries += each ? n / each : 1;
  }
  return entries;
}

// Code -------------------------------------------------------------------------------------------------

StageProgram::Code& StageProgram::code(const std::map<AxisId, std::int64_t>& sizes) {
  // Lengths along channels are read at run time, unless the step itself mentions them (size[d]).
  std::map<AxisId, std::int64_t> key = sizes;
  std::set<AxisId> mentioned;
  for (NodeId id = 0; id < stage_.lanes.graph.size(); ++id) {
    const Node& n = stage_.lanes.graph[id];
    if (n.op == Op::Size) mentioned.insert(stage_.lanes.graph.axis(n.index[0].axis).extent_of);
  }
  for (const AxisId a : stage_.channels)
    if (!mentioned.contains(cell_.graph.axis(a).extent_of)) key.erase(cell_.graph.axis(a).extent_of);
  for (const auto& c : codes_)
    if (c->sizes == key) return *c;
  auto made = std::make_unique<Code>();
  made->sizes = key;
  CudaLaneOptions options;
  options.storage = storage_named(storage_);
  options.sizes = sizes;
  options.source = source_;
  options.written = &cell_;
  try {
    const std::int64_t entries = block(sizes);
    if (entries > kLargestBlock)
      made->refusal = fmt::format("{} coupled entries are too many for one thread", entries);
    else
      made->step = emit_cuda_lane(stage_.lanes, stage_.lane, options);
    if (!made->refusal && entries <= kLargestCarried) {
      options.name = "Carried";
      try {
        made->carried = emit_cuda_carried(with_carriers(stage_.lanes, stage_.lane, scannable_), stage_.lane, options);
        made->has_carriers = true;
      } catch (const ScalarCellTooLong&) {
      }
    }
  } catch (const ScalarCellTooLong& e) {
    made->refusal = std::string("a step is too long for one thread: ") + e.what();
  }
  if (!made->refusal && !made->has_carriers) {
    // Without carriers, a segment's start is taken to be forgotten.
    options.name = "Carried";
    made->carried = emit_cuda_lane(stage_.lanes, stage_.lane, options);
    made->carried.text += R"(
struct CarrierRule {
  enum Kind { Affine, Clip, Moebius };
  static constexpr Kind kKind = Affine;
  static CELLC_DEVICE constexpr int carrier(int) { return -1; }
};
)";
  }
  codes_.push_back(std::move(made));
  Code& c = *codes_.back();
  // A scan sweeps both cells over the inputs that it holds.
  c.scans = c.has_carriers && c.carried.map_numbers <= kLargestMap && c.carried.inputs == c.step.inputs;
  // Two blocks a multiprocessor at least, so that one's barriers hide behind the other's work.
  const std::int64_t inputs = static_cast<std::int64_t>(std::max<std::size_t>({1, c.step.inputs.size(), c.carried.inputs.size()}));
  const auto bytes = [&] { return c.warps * kStages * c.stage_steps * inputs * kWarp * static_cast<std::int64_t>(std::max<std::size_t>(4, size_of(storage_))); };
  while (c.warps > 1 && bytes() > gpu_.facts().shared_per_block / 2) c.warps /= 2;
  while (c.stage_steps > 1 && bytes() > gpu_.facts().shared_per_block / 2) c.stage_steps /= 2;
  if (!c.refusal && bytes() > gpu_.facts().shared_per_block)
    c.refusal = fmt::format("{} inputs a step do not fit a multiprocessor's shared memory", inputs);
  return c;
}

std::optional<std::string> StageProgram::refusal(const std::map<AxisId, std::int64_t>& sizes) {
  Code& c = code(sizes);
  if (c.refusal) return c.refusal;
  std::int64_t axes = 0;
  for (const AxisId a : stage_.channels) axes += sizes.at(cell_.graph.axis(a).extent_of) != 1;
  if (axes > kChannelAxes) return fmt::format("{} channel axes are more than {}", axes, kChannelAxes);
  return std::nullopt;
}

GpuSource StageProgram::source(const Code& code, const Variant& variant) const {
  const auto part = [](std::string_view name) {
    return fmt::format("#line 1 \"{}\"\n{}\n", name, kernel_template(name));
  };
  std::string text = fmt::format("#define {} 1\n#define CELLC_STAGE_STEPS {}\n#define CELLC_STAGES {}\n#define CELLC_WIDTH {}\n",
                                 storage_macro(storage_), code.stage_steps, kStages, variant.width);
  if (variant.rows) text += "#define CELLC_ONE_AXIS 1\n";
  text += part("preamble.cuh") + part("math.cuh");
  text += fmt::format("#line 1 \"{}.cuh\"\n{}\n{}\n", cell_.name, code.step.text, code.carried.text);
  text += part("lanes.cuh");
  if (variant.kernel == Kernel::Scan) {
    const ScanShape& scan = variant.scan;
    const char* const copy = scan.copy == ScanCopy::Rows ? "Rows" : scan.copy == ScanCopy::Time ? "Time" : "Each";
    text += fmt::format("#define CELLC_SCAN_CHANNELS {}\n#define CELLC_SCAN_STEPS {}\n", scan.channels, scan.steps);
    if (scan.forward) text += "#define CELLC_SCAN_FORWARD 1\n";
    if (scan.buffers) text += fmt::format("#define CELLC_SCAN_BUFFERS {}\n", scan.buffers);
    text += part("carriers.cuh") + part("scan_piece.cuh") + part("scan.cuh");
    if (scan.buffers) text += part("scan_stream.cuh");
    text += fmt::format(
        "#line 1 \"kernel\"\nextern \"C\" __global__ void __launch_bounds__({0}, {1}) cellc_kernel(const __grid_constant__ "
        "cellc::Scan run) {{ cellc::{6}<cellc::ScanCopy::{2}>(run); }}\n"
        "static_assert(cellc::{7}_shared_bytes({3}) == {4} && cellc::kMapReals == {5}, \"what the launch reserves\");\n",
        scan.threads(), scan.blocks, copy, scan.warps, scan.shared_bytes, code.carried.map_numbers, scan.buffers ? "scan_stream" : "scan",
        scan.buffers ? "stream" : "scan");
    return {fmt::format("{}.scan.cu", cell_.name), std::move(text), {}};
  }
  const bool segmented = variant.kernel == Kernel::Segmented;
  if (segmented) text += part("carriers.cuh") + part("segmented.cuh");
  else text += part("sequential.cuh");
  const std::size_t states = code.step.states.size();
  // Two blocks a multiprocessor are what the planner asks for: more registers a thread spill nothing.
  const int blocks = (states <= 4 ? 2 : 1) * (variant.dense ? 2 : 1) * kWarps / code.warps;
  if (segmented)
    text += fmt::format(
        "#line 1 \"kernel\"\nextern \"C\" __global__ void __launch_bounds__({}, {}) cellc_kernel(const __grid_constant__ "
        "cellc::Segmented run) {{ cellc::segmented<{}>(run); }}\n",
        code.warps * kWarp, blocks, variant.rows);
  else
    text += fmt::format(
        "#line 1 \"kernel\"\nextern \"C\" __global__ void __launch_bounds__({}) cellc_kernel(const __grid_constant__ "
        "cellc::Lanes lanes) {{ cellc::sequential<{}, {}>(lanes); }}\n",
        code.warps * kWarp, variant.rows, variant.lockstep);
  return {fmt::format("{}.{}.cu", cell_.name, segmented ? "segmented" : "sequential"), std::move(text), {}};
}

StageProgram::Variant StageProgram::variant(const Code& code, const Form& form) const {
  // Two channels a thread make whole lines of memory of a warp's rows and halve the instructions, where there
  // are lanes enough for a warp on every scheduler.
  const bool plenty = form.chains * form.segments >= 2 * 128 * std::int64_t{gpu_.facts().multiprocessors} * 9 / 10;
  const int width = size_of(storage_) == 2 && form.whole && plenty && form.channels % (2 * kWarp) == 0 ? 2 : 1;
  const std::int64_t tile = kWarp * width, tiles = (form.chains * form.segments + tile - 1) / tile;
  const std::int64_t warps = code.warps, blocks = (tiles + warps - 1) / warps;
  const bool rows = form.whole && form.channels % tile == 0;
  // The warps of a block stay together where they walk one row to its end and memory is the limit.
  const bool lockstep = !form.segmented && rows && form.uniform && tiles % warps == 0 && blocks >= 3 * gpu_.facts().multiprocessors / 2;
  return {form.segmented ? Kernel::Segmented : Kernel::Sequential, rows, lockstep, form.segmented && form.dense, width, {}};
}

GpuSource StageProgram::unit(const std::map<AxisId, std::int64_t>& sizes, const StagePlan& plan, std::int64_t steps) {
  Form form;
  form.channels = form.chains = channels(sizes);
  form.segmented = plan.strategy != Strategy::Sequential && plan.segment > 0;
  form.segments = form.segmented ? (steps + plan.segment - 1) / plan.segment : 1;
  // Channels are neighbours where every array ends with their axes, in one order; params matter to whether
  // several axes can be taken for one.
  const std::size_t count = stage_.channels.size();
  for (std::size_t s = 0; s < stage_.symbols.size(); ++s) {
    if (count <= 1 && stage_.lanes.symbols[s].kind == SymbolKind::Param) continue;
    const std::vector<int>& place = stage_.symbols[s].channel_of_place;
    std::vector<int> last(count);
    for (std::size_t a = 0; a < count; ++a) last[a] = static_cast<int>(a);
    form.whole = form.whole && place.size() >= count && std::equal(last.begin(), last.end(), place.end() - static_cast<std::ptrdiff_t>(count));
  }
  const Code& c = code(sizes);
  if (plan.strategy == Strategy::Scan && c.scans)
    if (const std::optional<ScanShape> shape = scan_shape(c, sizes, steps)) return source(c, scan_variant(*shape));
  return source(c, variant(c, form));
}

/// Of one sequence in arrays without gaps.
std::optional<StageProgram::ScanShape> StageProgram::scan_shape(const Code& code, const std::map<AxisId, std::int64_t>& sizes,
                                                                std::int64_t steps) const {
  StageRun run;
  run.sizes = sizes;
  run.sequences = 1;
  run.length = steps;
  for (const LaneSymbol& symbol : stage_.symbols) {
    const int id = symbol.source.id;
    const std::vector<AxisId>& axes = symbol.source.kind == ArraySource::Kind::Symbol       ? cell_.symbols[id].axes
                                      : symbol.source.kind == ArraySource::Kind::Trajectory ? cell_.symbol_of(cell_.updates[id]).axes
                                      : symbol.source.kind == ArraySource::Kind::Before     ? stage_.before.cell.outs[id].index
                                                                                            : stage_.once.cell.outs[id].index;
    DeviceArray array;
    array.row = 1;
    for (const AxisId a : axes) array.lengths.push_back(sizes.at(cell_.graph.axis(a).extent_of)), array.row *= array.lengths.back();
    array.batch = array.row * steps;
    run.symbols.push_back(std::move(array));
  }
  return scan_shape(code, layout(code, run), run, CudaPlan{});
}

StageProgram::Compiled& StageProgram::kernel(Code& code, const Variant& variant) {
  if (const auto it = code.kernels.find(variant); it != code.kernels.end()) return it->second;
  const GpuModule module = gpu_.load(source(code, variant));
  compile_ms_ += module.compile_ms;
  caches_.push_back(module.cache);
  Compiled compiled;
  compiled.function = gpu_.function(module, "cellc_kernel");
  const std::size_t step = code.step.inputs.size(), carried = code.carried.inputs.size();
  const std::size_t inputs = std::max<std::size_t>(1, variant.kernel == Kernel::Segmented ? std::max(step, carried) : step);
  compiled.shared_bytes = static_cast<std::int64_t>(code.warps * kStages * code.stage_steps) * static_cast<std::int64_t>(inputs) * kWarp *
                          variant.width * static_cast<std::int64_t>(size_of(storage_));
  compiled.threads = code.warps * kWarp;
  if (variant.kernel == Kernel::Scan) {
    compiled.shared_bytes = variant.scan.shared_bytes;
    compiled.threads = variant.scan.threads();
  }
  compiled.resident = std::max(1, gpu_.resident_blocks(compiled.function, compiled.threads, compiled.shared_bytes));
  return code.kernels.emplace(variant, std::move(compiled)).first->second;
}

// Arguments ----------------------------------------------------------------------------------------------

StageProgram::Layout StageProgram::layout(const Code&, const StageRun& run) const {
  Layout result;
  std::vector<std::int64_t> lengths;
  for (const AxisId a : stage_.channels) lengths.push_back(run.sizes.at(cell_.graph.axis(a).extent_of));
  for (const std::int64_t n : lengths) result.channels *= n;
  std::vector<std::vector<std::int64_t>> channel;
  for (std::size_t s = 0; s < stage_.symbols.size(); ++s) {
    const DeviceArray& array = run.symbols[s];
    std::vector<std::int64_t> strides = array.strides;
    if (strides.empty()) {
      strides.assign(array.lengths.size(), 1);
      for (std::size_t p = strides.size(); p-- > 1;) strides[p - 1] = strides[p] * array.lengths[p];
    }
    std::vector<std::int64_t> along(lengths.size(), 0), entries{0};
    const std::vector<int>& place = stage_.symbols[s].channel_of_place;
    for (std::size_t p = 0; p < array.lengths.size(); ++p) {
      if (place[p] >= 0) {
        along[place[p]] += strides[p];
        continue;
      }
      std::vector<std::int64_t> next;
      for (const std::int64_t e : entries)
        for (std::int64_t i = 0; i < array.lengths[p]; ++i) next.push_back(e + i * strides[p]);
      entries = std::move(next);
    }
    channel.push_back(std::move(along));
    result.entry.push_back(std::move(entries));
  }
  // Outermost first: an axis joins the one inside it where all arrays step over both as over one.
  std::vector<std::size_t> kept;
  for (std::size_t a = 0; a < lengths.size(); ++a)
    if (lengths[a] != 1) kept.push_back(a);
  result.channel.resize(channel.size());
  for (std::size_t i = kept.size(); i-- > 0;) {
    const std::size_t a = kept[i];
    bool joins = !result.sizes.empty();
    for (std::size_t s = 0; s < channel.size() && joins; ++s)
      joins = channel[s][a] == result.channel[s].front() * result.sizes.front();
    if (joins) {
      result.sizes.front() *= lengths[a];
    } else {
      result.sizes.insert(result.sizes.begin(), lengths[a]);
      for (std::size_t s = 0; s < channel.size(); ++s) result.channel[s].insert(result.channel[s].begin(), channel[s][a]);
    }
  }
  return result;
}

std::vector<std::byte> StageProgram::arguments(const Code& code, const Layout& layout, const StageRun& run, const CudaPlan& plan,
                                               double tolerance, bool segmented, std::int64_t segments) {
  Fields f;
  for (std::size_t s = 0; s < stage_.symbols.size(); ++s) {
    const DeviceArray& array = run.symbols[s];
    const bool param = stage_.lanes.symbols[s].kind == SymbolKind::Param;
    f.put<std::uint64_t>(array.data);
    f.put<std::int64_t>(param ? 0 : array.batch);
    f.put<std::int64_t>(param ? 0 : array.row);
    for (std::size_t a = 0; a < kChannelAxes; ++a) f.put<std::int64_t>(a < layout.channel[s].size() ? layout.channel[s][a] : 0);
  }
  const auto state_of = [&](const SymbolEntry& e) { return static_cast<std::size_t>(e.symbol); };
  const auto own = [&](std::size_t s) {
    std::int64_t n = 1;
    for (const std::int64_t l : run.symbols[s].lengths) n *= l;
    return n;
  };
  // Starts and finals lie row-major without gaps, whatever the rows do.
  for (const SymbolEntry& e : code.step.states) f.put<std::uint64_t>(run.starts[state_of(e)]);
  for (const SymbolEntry& e : code.step.states) f.put<std::uint64_t>(run.finals[state_of(e)]);
  for (const SymbolEntry& e : code.step.states) f.put<std::int64_t>(own(state_of(e)));
  const auto offsets = [&](const std::vector<SymbolEntry>& entries) {
    for (const SymbolEntry& e : entries) {
      const bool array = static_cast<std::size_t>(e.symbol) < layout.entry.size();
      f.put<int>(array ? static_cast<int>(layout.entry[e.symbol][e.entry]) : 0);
    }
    if (entries.empty()) f.put<int>(0);
  };
  for (const CudaLaneCode* c : {&code.step, &code.carried}) {
    offsets(c->states);
    offsets(c->inputs);
    offsets(c->params);
  }
  f.put<std::int64_t>(layout.channels);
  f.put<int>(static_cast<int>(layout.sizes.size()));
  for (std::size_t a = 0; a < kChannelAxes; ++a) f.put<int>(a < layout.sizes.size() ? static_cast<int>(layout.sizes[a]) : 1);
  f.put<int>(static_cast<int>(run.sequences));
  f.put<std::int64_t>(run.length);
  f.put<std::uint64_t>(run.offsets);
  f.put<int>(run.reverse);
  f.put<std::int64_t>(segmented ? plan.plan.segment : std::max<std::int64_t>(1, run.length));
  f.put<int>(static_cast<int>(segmented ? segments : 1));
  f.end_struct();
  if (!segmented) return f.take();
  const std::int64_t real = storage_ == Dtype::F64 ? 8 : 4;
  const std::int64_t states = static_cast<std::int64_t>(code.step.states.size()) * lanes_ * real;
  f.put<std::uint64_t>(control_.address());
  f.put<std::uint64_t>(sent_.address());
  f.put<std::uint64_t>(off_.address());
  for (int i = 0; i < 4; ++i) f.put<std::uint64_t>(states_.address() + static_cast<std::uint64_t>(i * states));
  if (real == 8) f.put<double>(tolerance);
  else f.put<float>(static_cast<float>(tolerance));
  f.put<int>(static_cast<int>(plan.plan.burn_in));
  f.put<int>(plan.rounds);
  f.put<int>(plan.fixed);
  f.put<int>(plan.eager);
  f.put<int>(plan.repairs);
  f.put<std::uint64_t>(bad_.address());
  f.put<std::uint64_t>(bad_.address() + static_cast<std::uint64_t>(run.sequences) * 8);
  f.put<int>(plan.learns ? -1 : plan.carries ? 1 : 0);
  f.end_struct();
  return f.take();
}

void StageProgram::reserve(GpuBuffer& buffer, std::size_t bytes, GpuStream stream, bool cleared) {
  if (buffer.bytes() >= bytes && buffer.address()) return;
  buffer = GpuBuffer();
  buffer = GpuBuffer(gpu_, std::max<std::size_t>(bytes, 256));
  if (cleared) gpu_.zero(buffer.address(), buffer.bytes(), stream);
}

// Running ------------------------------------------------------------------------------------------------

/// Which loader, and how many channels, steps and warps; nullopt where no block would fit.
std::optional<StageProgram::ScanShape> StageProgram::scan_shape(const Code& code, const Layout& layout, const StageRun& run,
                                                                const CudaPlan& plan) const {
  const std::int64_t size = static_cast<std::int64_t>(size_of(storage_)), real = storage_ == Dtype::F64 ? 8 : 4;
  ScanShape shape;
  // Rows of neighbours in memory, 16 bytes at a time; or steps that are, where all inputs are aligned alike.
  bool rows = layout.sizes.size() <= 1, time = !code.step.inputs.empty();
  bool span = time && rows && std::has_single_bit(static_cast<std::uint64_t>(layout.channels)) && layout.channels * size < 16;
  std::vector<std::int64_t> aligned;  // places modulo 16 bytes that all inputs must share
  for (const SymbolEntry& e : code.step.inputs) {
    const DeviceArray& a = run.symbols[e.symbol];
    const std::vector<std::int64_t>& channel = layout.channel[e.symbol];
    const std::int64_t entry = layout.entry[e.symbol][e.entry];
    rows = rows && (layout.channels == 1 || (!channel.empty() && channel.back() == 1)) && a.data % 16 == 0 && a.row * size % 16 == 0 &&
           a.batch * size % 16 == 0 && entry * size % 16 == 0;
    time = time && a.row == 1;
    // Neighbours in memory as if steps and channels were one axis.
    span = span && a.row == layout.channels && (layout.channels == 1 || (!channel.empty() && channel.back() == 1)) &&
           (static_cast<std::int64_t>(a.data) + entry * size) % (layout.channels * size) == 0 && a.batch % layout.channels == 0;
    std::vector<std::int64_t> at{static_cast<std::int64_t>(a.data) + entry * size, a.batch * size};
    for (const std::int64_t c : channel) at.push_back(c * size);
    for (std::int64_t& place : at) place = (place % 16 + 16) % 16;
    if (aligned.empty()) aligned = at;
    time = time && at == aligned;
    span = span && at == aligned;
  }
  const int most = static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(layout.channels, kWarp))));
  shape.channels = most;
  while (rows && layout.channels % shape.channels != 0) shape.channels /= 2;
  if (time || span) {
    shape.copy = ScanCopy::Time;
    shape.channels = time ? 1 : most;
  } else if (rows && shape.channels * size >= 16) {
    shape.copy = ScanCopy::Rows;
  } else {
    shape.channels = most;
  }

  // scan_shared_bytes of scan_piece.cuh.
  const std::int64_t channels = shape.channels, parts = kWarp / channels, states = static_cast<std::int64_t>(code.step.states.size());
  const std::int64_t inputs = static_cast<std::int64_t>(code.step.inputs.size()), pad = parts == 1 || channels < 16 / size ? 0 : channels;
  const std::int64_t slots = std::max<std::int64_t>({1, inputs, parts > 1 ? states : 0});
  shape.forward = !run.reverse;
  if (plan.piece == 0 && channels <= kStreamChannels && code.carried.map_numbers * real <= kStreamMap) {
    ScanShape stream = stream_shape(shape, slots, pad, code.carried.map_numbers);
    const std::int64_t groups = (layout.channels + channels - 1) / channels;
    // Fewer pieces end sooner without the run-up of a stream.
    if (stream.warps > 1 && run.length / stream.piece() * groups * run.sequences >= kStreamRounds * gpu_.facts().multiprocessors) return stream;
  }
  const auto bytes = [&] {
    return shape.warps * (slots * parts * (shape.steps * channels + pad) * size + channels * (2 * code.carried.map_numbers * real + 4)) +
           channels * states * real + 8;
  };
  // What a thread keeps in registers says how many blocks a multiprocessor holds without spilling.
  const int blocks = code.carried.map_numbers * real <= 16 ? 3 : code.carried.map_numbers * real <= 64 ? 2 : 1;
  const std::int64_t room = std::min(gpu_.facts().shared_per_multiprocessor / blocks - 1024, gpu_.facts().shared_per_block);
  shape.warps = kScanWarps;
  shape.steps = kScanSteps;
  const auto is_long = [&] { return plan.piece > 0 && shape.piece() > plan.piece; };
  while (shape.steps > 8 && bytes() > room) shape.steps -= 8;
  while (shape.warps > 1 && (bytes() > room || is_long())) shape.warps /= 2;
  while (shape.steps > 8 && is_long()) shape.steps -= 8;
  if (bytes() > gpu_.facts().shared_per_block) return std::nullopt;
  shape.blocks = blocks * kScanWarps / shape.warps;
  shape.shared_bytes = bytes();
  return shape;
}

/// Pieces as long as two blocks of a multiprocessor can hold three of each: the longer, the fewer wait for each other.
StageProgram::ScanShape StageProgram::stream_shape(ScanShape shape, std::int64_t slots, std::int64_t pad, std::int64_t map_numbers) const {
  const std::int64_t size = static_cast<std::int64_t>(size_of(storage_)), real = storage_ == Dtype::F64 ? 8 : 4;
  const std::int64_t channels = shape.channels, parts = kWarp / channels;
  const std::int64_t room = std::min(gpu_.facts().shared_per_multiprocessor / 2 - 1024, gpu_.facts().shared_per_block);
  const auto bytes = [&](std::int64_t warps, std::int64_t steps) {  // stream_shared_bytes of scan_stream.cuh
    return 320 + warps * (kStreamBuffers * (slots * parts * (steps * channels + pad) * size + 8) + channels * (3 * map_numbers * real + 4));
  };
  // Along time a thread's part is an odd number of 16 bytes, so that no two threads of a warp read from one bank.
  const bool time = shape.copy == ScanCopy::Time;
  for (const int chunks : {13, 11, 9, 7, 5}) {
    shape.steps = time ? chunks * 16 / static_cast<int>(size * channels) : 8 * ((chunks - 1) / 2);
    shape.warps = kStreamWarps;
    while (shape.warps > 1 && bytes(shape.warps, shape.steps) > room) --shape.warps;
    if (shape.warps == kStreamWarps) break;
  }
  shape.buffers = kStreamBuffers;
  shape.blocks = 2;
  shape.shared_bytes = bytes(shape.warps, shape.steps);
  return shape;
}

void StageProgram::run_scan(Code& code, const ScanShape& shape, const Layout& layout, const StageRun& run, const CudaPlan& plan,
                            GpuStream stream) {
  Compiled& k = kernel(code, scan_variant(shape));
  // Along time the first piece begins at a multiple of 16 bytes, before step 0.
  const std::int64_t early = shape.copy == ScanCopy::Time ? 16 / (static_cast<std::int64_t>(size_of(storage_)) * shape.channels) - 1 : 0;
  const std::int64_t pieces = (run.length + early + shape.piece() - 1) / shape.piece();
  const std::int64_t groups = (layout.channels + shape.channels - 1) / shape.channels, chains = run.sequences * groups;
  const std::int64_t halves = storage_ == Dtype::F64 ? 2 : 1;
  const std::int64_t words = (static_cast<std::int64_t>(code.step.states.size()) + code.carried.map_numbers) * halves;
  // A call's number stands beside all that it publishes: nothing is cleared between calls, and zeros are of none.
  reserve(scan_control_, 8, stream, true);
  reserve(scan_words_, static_cast<std::size_t>(chains * pieces * words * shape.channels * 8), stream, true);

  GpuLaunch launch;
  launch.grid.x = static_cast<unsigned>(std::min(chains * pieces, std::int64_t{k.resident} * gpu_.facts().multiprocessors));
  launch.block.x = static_cast<unsigned>(k.threads);
  launch.shared_bytes = k.shared_bytes;
  launch.stream = stream;
  Fields f(arguments(code, layout, run, plan, 0, false, 1));
  f.put<std::uint64_t>(scan_control_.address());
  f.put<std::uint64_t>(scan_words_.address());
  f.put<int>(static_cast<int>(pieces));
  f.put<int>(static_cast<int>(groups));
  f.put<int>(static_cast<int>(launch.grid.x / chains + 1));
  f.end_struct();
  std::vector<std::byte> bytes = f.take();
  void* argument = bytes.data();
  gpu_.launch(k.function, launch, &argument);
  ran_piece_ = shape.piece();
}

void StageProgram::run(const StageRun& run, const CudaPlan& plan, double tolerance, GpuStream stream) {
  Code& code = this->code(run.sizes);
  if (code.refusal) throw DeviceError(cell_.name + ": " + *code.refusal);
  const Layout layout = this->layout(code, run);
  last_ = plan;
  ran_segmented_ = false;
  ran_piece_ = 0;
  sequences_ = run.sequences;
  const std::int64_t chains = run.sequences * layout.channels;
  if (chains == 0) return;
  if (plan.plan.strategy == Strategy::Scan && code.scans && run.length > 0) {
    const std::optional<ScanShape> shape = scan_shape(code, layout, run, plan);
    // Tickets are numbers of 32 bits.
    if (shape && chains * (run.length / shape->piece() + 2) < std::int64_t{1} << 31) {
      run_scan(code, *shape, layout, run, plan, stream);
      return;
    }
  }

  // Rows of neighbouring channels, sixteen bytes at a time, where every input's memory allows it.
  const std::int64_t size = static_cast<std::int64_t>(size_of(storage_));
  bool neighbours = layout.sizes.size() <= 1, aligned = true;
  const auto look_at = [&](int symbol) {
    const DeviceArray& a = run.symbols[symbol];
    neighbours = neighbours && (layout.channels == 1 || (!layout.channel[symbol].empty() && layout.channel[symbol].back() == 1));
    aligned = aligned && a.data % 16 == 0 && a.row * size % 16 == 0 && a.batch * size % 16 == 0;
    for (const std::int64_t e : layout.entry[symbol]) aligned = aligned && e * size % 16 == 0;
  };
  for (const SymbolEntry& e : code.step.inputs) look_at(e.symbol);
  for (const SymbolEntry& e : code.step.states) look_at(e.symbol);
  const bool segmented = plan.plan.strategy != Strategy::Sequential && plan.plan.segment > 0 && run.length > 0;
  const std::int64_t segments = segmented ? (run.length + plan.plan.segment - 1) / plan.plan.segment : 1;
  const Variant variant = this->variant(code, {segmented, plan.dense, neighbours && aligned, run.uniform, chains, layout.channels, segments});
  Compiled& k = kernel(code, variant);
  const std::int64_t tile = kWarp * variant.width, count = chains * segments, tiles = (count + tile - 1) / tile;
  const std::int64_t blocks = (tiles + code.warps - 1) / code.warps;

  GpuLaunch launch;
  launch.block.x = static_cast<unsigned>(code.warps * kWarp);
  launch.shared_bytes = k.shared_bytes;
  launch.stream = stream;
  launch.grid.x = static_cast<unsigned>(blocks);
  if (segmented) {
    const std::int64_t real = storage_ == Dtype::F64 ? 8 : 4;
    const std::int64_t entries = 3 * static_cast<std::int64_t>(code.step.states.size()) +
                                 static_cast<std::int64_t>(code.carried.states.size() - code.step.states.size());
    reserve(control_, sizeof(Control), stream, true);
    reserve(sent_, code.step.states.size() * static_cast<std::size_t>(count * real / 4) * 8, stream, true);
    reserve(off_, static_cast<std::size_t>(count) * 4, stream, false);
    reserve(states_, static_cast<std::size_t>(entries * count * real), stream, false);
    lanes_ = count;
    if (!plan.repairs) {
      const std::size_t sequences = static_cast<std::size_t>(run.sequences);
      reserve(bad_, sequences * 12, stream, false);
      // On the device for good: a graph may keep this copy.
      if (none_bad_.bytes() < sequences * 8) {
        const std::vector<unsigned long long> none(std::max<std::size_t>(sequences, 32), ~0ull);
        reserve(none_bad_, none.size() * 8, stream, false);
        gpu_.copy_in(none_bad_.address(), none.data(), none.size() * 8, stream);
      }
      gpu_.copy(bad_.address(), none_bad_.address(), sequences * 8, stream);
      gpu_.zero(bad_.address() + sequences * 8, sequences * 4, stream);
    }
    // All blocks at once: they wait for each other.
    launch.grid.x = static_cast<unsigned>(std::min<std::int64_t>(blocks, std::int64_t{k.resident} * gpu_.facts().multiprocessors));
    launch.cooperative = true;
    ran_segmented_ = true;
    segment_ = plan.plan.segment;
  }
  std::vector<std::byte> bytes = arguments(code, layout, run, plan, tolerance, segmented, segments);
  void* argument = bytes.data();
  gpu_.launch(k.function, launch, &argument);
}

CudaOutcome StageProgram::outcome(GpuStream stream) {
  CudaOutcome result;
  // A scan in a single pass has nothing to miss: every start comes from exact maps, so no residual is left.
  result.piece = ran_piece_;
  if (!ran_segmented_) return result;
  Control control;
  gpu_.copy_out(&control, control_.address(), sizeof control, stream);
  const Tally& t = control.of[control.calls & 1];
  result.misses = t.misses;
  result.repaired = t.repaired;
  result.tails = t.tails;
  result.rounds = static_cast<int>(t.rounds);
  result.max_residual = std::bit_cast<float>(t.worst_residual);
  result.growth = std::bit_cast<float>(t.growth);
  result.burn_in = last_.learns && control.burn_in ? control.burn_in : last_.plan.burn_in;
  result.carries = last_.learns ? control.carries != 0 : last_.carries;
  for (unsigned i = 1; i < std::min(t.phases, 32u); ++i) result.phase_ns.push_back(static_cast<double>(t.time[i] - t.time[i - 1]));
  if (!last_.repairs) {
    std::vector<unsigned long long> first(static_cast<std::size_t>(sequences_));
    std::vector<float> residual(first.size());
    gpu_.copy_out(first.data(), bad_.address(), first.size() * 8, stream);
    gpu_.copy_out(residual.data(), bad_.address() + first.size() * 8, first.size() * 4, stream);
    for (std::size_t s = 0; s < first.size(); ++s) {
      if (first[s] == ~0ull) continue;
      result.unconverged.push_back({static_cast<std::int64_t>(s), static_cast<std::int64_t>(first[s]), residual[s]});
      result.max_residual = std::max(result.max_residual, result.unconverged.back().residual);
    }
  }
  return result;
}

}  // namespace cellc
