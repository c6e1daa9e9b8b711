#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>

#include "compiler/codegen_cuda/without_names.h"
#include "compiler/derive/fused_reductions.h"
#include "compiler/graph/axes.h"
#include "kernels-templates/abi/kernel_memory.h"
#include "kernels-templates/host/host_passes.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/stage_program_impl.h"
#include "runtime/cuda/launch/strategy_numbers.h"
#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"

namespace cellc {

namespace {

constexpr int kWarp = CELLC_WARP;
constexpr int kStages = CELLC_STAGES_AHEAD;  ///< under way, of a warp
constexpr int kChannelAxes = CELLC_CHANNEL_AXES;
/// Entries that one thread may couple: its states and transitions live in registers.
constexpr std::int64_t kLargestBlock = 16, kLargestTransition = 8;
/// Numbers of a map that a thread of a scan composes in registers: four coupled states.
constexpr int kLargestMap = 20;

// Code that is shipped knows this struct by its numbers.
static_assert(sizeof(ScanControl) == CELLC_SCAN_CONTROL);

}  // namespace

StageProgram::StageProgram(Gpu& gpu, const CellGraph& cell, const StageCells& stage, Scannable scannable, Dtype storage,
                           const SourceText* source, DeriveHooks derive, const StageCells* carried)
    : gpu_(gpu),
      cell_(cell),
      stage_(stage),
      carried_(carried ? *carried : stage),
      scannable_(scannable),
      storage_(storage),
      source_(source),
      derive_(std::move(derive)) {}

StageProgram::~StageProgram() = default;

std::int64_t StageProgram::channels(const std::map<AxisId, std::int64_t>& sizes) const {
  return AxisLengths(cell_.graph, sizes).entries(stage_.channels);
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
  for (NodeId id = 0; id < stage_.lanes.cell.graph.size(); ++id) {
    const Node& n = stage_.lanes.cell.graph[id];
    if (n.op == Op::Size) mentioned.insert(stage_.lanes.cell.graph.axis(n.index[0].axis).extent_of);
  }
  for (const AxisId a : stage_.channels)
    if (!mentioned.contains(cell_.graph.axis(a).extent_of)) key.erase(cell_.graph.axis(a).extent_of);
  for (const auto& c : codes_)
    if (c->sizes == key) return *c;
  auto made = std::make_unique<Code>();
  made->sizes = key;
  CudaLaneOptions options;
  options.storage = storage_of(storage_);
  options.sizes = sizes;
  options.source = source_;
  options.written = &cell_;
  try {
    const std::int64_t entries = block(sizes);
    if (entries > kLargestBlock)
      made->refusal = fmt::format("{} coupled entries are too many for one thread", entries);
    else
      made->step = emit_cuda_lane(stage_.lanes.cell, stage_.lane, options);
    const bool sums = !stage_.sums.empty();
    if (!made->refusal && entries <= kLargestTransition && (!sums || has_two_passes_)) {
      options.name = "StepWithTransition";
      options.inputs = stage_.outs.empty() ? std::vector<SymbolEntry>() : made->step.inputs;
      const DerivedCell states = sums ? without_sums(stage_) : carried_.lanes;
      try {
        made->step_with_transition = emit_cuda_step_with_transition(
            with_transition(states, stage_.lane, scannable_, derive_), stage_.lane, options);
        made->has_transition = !sums;
        // A factor and a shift for each state.
        made->two_passes = sums && made->step_with_transition.states.size() == 2 * static_cast<std::size_t>(entries);
      } catch (const ScalarizedTooLong&) {
      }
    }
  } catch (const ScalarizedTooLong& e) {
    made->refusal = std::string("a step is too long for one thread: ") + e.what();
  }
  if (!made->refusal && !made->has_transition && !made->two_passes) {
    // Without transitions, a segment's start is taken to be forgotten.
    options.name = "StepWithTransition";
    made->step_with_transition = emit_cuda_lane(stage_.lanes.cell, stage_.lane, options);
    made->step_with_transition.text += R"(
struct TransitionRule {
  enum Kind { Affine, Clip, Moebius, MaxPlus, MinPlus, LogPlus };
  static constexpr Kind kKind = Affine;
  static CELLC_DEVICE constexpr int transition(int) { return -1; }
};
)";
  }
  codes_.push_back(std::move(made));
  Code& c = *codes_.back();
  c.alike = without_names(c.step.text + "\n" + c.step_with_transition.text);
  c.tables = stage_tables(cell_, stage_, c.step, c.step_with_transition, storage_);
  c.tables.stage.has_transition = c.has_transition;
  c.tables.stage.repeats = repeats_;
  c.tables.stage.scan_slack = scan_slack_;
  c.tables.stage.for_run = for_run_;
  c.tables.stage.two_passes = c.two_passes;
  // A scan sweeps both cells over the inputs that it holds.
  c.tables.stage.scans = c.has_transition && c.step_with_transition.map_numbers <= kLargestMap &&
                         c.step_with_transition.inputs == c.step.inputs;
  // Two blocks a multiprocessor at least, so that one's barriers hide behind the other's work.
  const std::int64_t inputs =
      static_cast<std::int64_t>(std::max<std::size_t>({1, c.step.inputs.size(), c.step_with_transition.inputs.size()}));
  const auto bytes = [&] {
    return c.warps * kStages * c.stage_steps * inputs * kWarp *
           static_cast<std::int64_t>(std::max<std::size_t>(4, size_of(storage_)));
  };
  while (c.warps > 1 && bytes() > gpu_.facts().shared_per_block / 2) c.warps /= 2;
  while (c.stage_steps > 1 && bytes() > gpu_.facts().shared_per_block / 2) c.stage_steps /= 2;
  if (!c.refusal && bytes() > gpu_.facts().shared_per_block)
    c.refusal = fmt::format("{} inputs a step do not fit a multiprocessor's shared memory", inputs);
  c.tables.stage.warps = c.warps;
  c.tables.stage.stage_steps = c.stage_steps;
  return c;
}

void StageProgram::repeat_bits(bool repeats) {
  repeats_ = repeats;
  for (const std::unique_ptr<Code>& c : codes_) c->tables.stage.repeats = repeats;
}

void StageProgram::loosen_scans(bool of_gradients) {
  scan_slack_ = of_gradients ? CELLC_GRADIENT_SLACK : 1;
  for (const std::unique_ptr<Code>& c : codes_) c->tables.stage.scan_slack = scan_slack_;
}

StageProgram::Parts StageProgram::parts(const std::map<AxisId, std::int64_t>& sizes) {
  const Code& c = code(sizes);
  return {&c.step, &c.step_with_transition, &c.tables.stage, &c.alike};
}

std::optional<std::string> StageProgram::refusal(const std::map<AxisId, std::int64_t>& sizes) {
  Code& c = code(sizes);
  if (c.refusal) return c.refusal;
  const std::vector<std::int64_t> lengths = lengths_by_number(cell_, sizes);
  const int axes = cellc_long_channels(&c.tables.stage, lengths.data());
  if (axes > kChannelAxes) return fmt::format("{} channel axes are more than {}", axes, kChannelAxes);
  if (!cellc_fits_lanes(&c.tables.stage, lengths.data()))
    return "the entries of a channel lie more than 2^31 numbers apart";
  return std::nullopt;
}

int StageProgram::sum_parts(const std::map<AxisId, std::int64_t>& sizes) {
  if (stage_.sums.empty() || code(sizes).refusal) return 0;
  const std::vector<std::int64_t> lengths = lengths_by_number(cell_, sizes);
  return cellc_lane_sums(&code(sizes).tables.stage, lengths.data());
}

bool StageProgram::shifts(const std::map<AxisId, std::int64_t>& sizes) {
  const cellc_stage& stage = code(sizes).tables.stage;
  // Rows of few channels come in pieces of several steps, aligned where nothing is shifted; scans share copies.
  return (!stage_.sums.empty() || !cellc_shares_inputs(&stage)) && stage.step_inputs < 31 &&
         channels(sizes) * storage_bytes() >= 16;
}

GpuSource StageProgram::source(const Code& code, const cellc_variant& variant) const {
  const auto part = [](std::string_view name) {
    return fmt::format("#line 1 \"{}\"\n{}\n", name, kernel_template(name));
  };
  const cellc_stage& stage = code.tables.stage;
  // What is shipped has scans of rows beside others of as many channels, with the same traits; here each has its own.
  const bool one_axis = variant.kernel == CELLC_SCAN && variant.copy == CELLC_CONTIGUOUS;
  std::string before = storage_macro(storage_);
  before += stage_traits_text(stage, variant, one_axis ? 1 : channel_axes_of(stage, variant));
  before += part("preamble.cuh") + part("math.cuh");
  const std::string step =
      fmt::format("#line 1 \"{}.cuh\"\n{}\n{}\n", cell_.name, code.step.text, code.step_with_transition.text);
  std::string after = part("lanes.cuh") + part("sweep.cuh");
  for (const std::string_view name : stage_kernel_parts(variant)) after += part(name);
  after += "#line 1 \"kernel\"\n" +
           stage_kernel_text(code.step, code.step_with_transition, code.tables.stage, variant, "cellc_kernel");
  const char* const kind = variant.rewalks                     ? "rewalk"
                           : variant.pass == CELLC_PASS_ENDS   ? "ends"
                           : variant.pass == CELLC_PASS_SUMS   ? "sums"
                           : variant.pass == CELLC_PASS_AGAIN  ? "again"
                           : variant.kernel == CELLC_SCAN      ? "scan"
                           : variant.kernel == CELLC_SEGMENTED ? "segmented"
                                                               : "sequential";
  return {fmt::format("{}.{}.cu", cell_.name, kind), before + step + after, {}, before + code.alike + after};
}

cellc_plan host_plan(const CudaPlan& plan) {
  cellc_plan p{};
  p.strategy = kernel_number(plan.plan.strategy);
  p.segment = plan.plan.segment;
  p.burn_in = plan.plan.burn_in;
  p.learns = plan.learns;
  p.measures_slope = plan.measures_slope;
  p.rounds = plan.rounds;
  p.fixed = plan.fixed;
  p.eager = plan.eager;
  p.repairs = plan.repairs;
  p.checks = plan.checks;
  p.tile = plan.tile;
  p.two_passes = plan.two_passes;
  return p;
}

GpuSource StageProgram::unit(const std::map<AxisId, std::int64_t>& sizes, const StagePlan& plan, std::int64_t steps) {
  const Code& c = code(sizes);
  StageRun run;
  run.sizes = sizes;
  run.sequences = 1;
  run.length = steps;
  for (const ArraySource& source : stage_.lanes.sources) {
    const std::vector<AxisId> axes = axes_of_source(cell_, stage_, source);
    const AxisLengths lengths(cell_.graph, sizes);
    DeviceArray array;
    array.lengths = lengths.shape({}, axes);
    array.row = lengths.entries(axes);
    array.batch = array.row * steps;
    run.symbols.push_back(std::move(array));
  }
  const Described d = describe(run);
  CudaPlan whole;
  whole.plan = plan;
  whole.checks = true;  // as whole runs have it
  const cellc_plan p = host_plan(whole);
  const cellc_lane_axes axes = cellc_merge_axes(&c.tables.stage, &d.run);
  return source(c, cellc_choose_variant(&c.tables.stage, &d.facts, &d.run, &axes, &p));
}

const StageProgram::Compiled* StageProgram::known(const Code& code, const cellc_variant& variant) {
  const auto same = [&](const Compiled& k) { return std::memcmp(&k.variant, &variant, sizeof variant) == 0; };
  const auto it = std::find_if(code.kernels.begin(), code.kernels.end(), same);
  return it != code.kernels.end() ? &*it : nullptr;
}

const StageProgram::Compiled& StageProgram::kernel(Code& code, const cellc_variant& variant) {
  if (const Compiled* const k = known(code, variant)) return *k;
  const GpuModule module = gpu_.load(source(code, variant));
  compile_ms_ += module.compile_ms;
  caches_.push_back(module.cache);
  Compiled compiled;
  compiled.variant = variant;
  compiled.function = gpu_.function(module, "cellc_kernel");
  if (variant.kept || variant.pass == CELLC_PASS_ENDS || variant.pass == CELLC_PASS_AGAIN)
    compiled.beside = gpu_.function(module, "cellc_beside");
  const int threads = cellc_stage_threads(&code.tables.stage, &variant);
  compiled.clusters =
      variant.cluster ? gpu_.resident_clusters(compiled.function, threads, variant.shared_bytes, variant.cluster) : 0;
  compiled.resident = std::max(1, gpu_.resident_blocks(compiled.function, threads, variant.shared_bytes));
  code.kernels.push_back(std::move(compiled));
  return code.kernels.back();
}

// Arguments ----------------------------------------------------------------------------------------------

StageProgram::Described StageProgram::describe(const StageRun& run) const {
  Described d;
  d.facts = host_facts(gpu_.facts());
  d.lengths = lengths_by_number(cell_, run.sizes);
  bool gaps = false;
  for (const DeviceArray& a : run.symbols) {
    d.views.push_back({a.data, a.batch, a.row, a.last});
    gaps = gaps || !a.strides.empty();
  }
  for (const DeviceArray& a : run.symbols) {
    std::vector<std::int64_t> strides = a.strides;
    if (strides.empty()) {
      strides.assign(a.lengths.size(), 1);
      for (std::size_t p = strides.size(); p-- > 1;) strides[p - 1] = strides[p] * a.lengths[p];
    }
    d.strides.insert(d.strides.end(), strides.begin(), strides.end());
  }
  d.run = {d.lengths.data(),
           d.views.data(),
           gaps ? d.strides.data() : nullptr,
           run.starts.data(),
           run.finals.data(),
           run.sequences,
           run.length,
           run.uniform,
           run.reverse,
           run.offsets,
           run.part,
           run.outer_part,
           nullptr};
  return d;
}

void StageProgram::reserve(GpuBuffer& buffer, std::size_t bytes, GpuStream stream, bool cleared) {
  if (buffer.bytes() >= bytes && buffer.address()) return;
  buffer = GpuBuffer();
  GpuBuffer made(gpu_, std::max<std::size_t>(bytes, 256));
  if (cleared) gpu_.zero(made.address(), made.bytes(), stream);
  buffer = std::move(made);  // not before: what could not be cleared is none
}

// Running ------------------------------------------------------------------------------------------------

cellc_variant StageProgram::variant_for(Code& code, Described& d, const cellc_lane_axes& axes, cellc_plan& numbers) {
  const cellc_stage& stage = code.tables.stage;
  cellc_variant variant = cellc_choose_variant(&stage, &d.facts, &d.run, &axes, &numbers);
  // How many clusters a card holds is known once there is code: those that do not fit would wait for the others to end.
  if (variant.cluster && kernel(code, variant).clusters < cellc_scan_chains(&d.run, &axes, &variant)) {
    d.facts.clusters = 0;
    variant = cellc_choose_variant(&stage, &d.facts, &d.run, &axes, &numbers);
  }
  return variant.kernel == CELLC_SEGMENTED && !stage_.outs.empty() ? without_segments(code, d, axes, numbers) : variant;
}

/// A scan whose blocks do not fit the card would be run in segments, which make outs of steps that they make again.
cellc_variant StageProgram::without_segments(const Code& code, const Described& d, const cellc_lane_axes& axes,
                                             cellc_plan& numbers) const {
  numbers.strategy = CELLC_SEQUENTIAL;
  return cellc_choose_variant(&code.tables.stage, &d.facts, &d.run, &axes, &numbers);
}

std::vector<GpuSource> StageProgram::missing(const StageRun& run, const CudaPlan& plan) {
  Code& code = this->code(run.sizes);
  if (code.refusal) return {};
  const Described d = describe(run);
  const cellc_stage& stage = code.tables.stage;
  const cellc_lane_axes axes = cellc_merge_axes(&stage, &d.run);
  if (run.sequences * axes.channels == 0) return {};
  cellc_plan numbers = host_plan(plan);
  std::vector<cellc_variant> variants;
  if (takes_two_passes(code, d, numbers)) {
    for (const int pass : {CELLC_PASS_ENDS, CELLC_PASS_SUMS, CELLC_PASS_AGAIN})
      variants.push_back(cellc_pass_variant(&stage, &d.facts, &d.run, &axes, &numbers, pass));
  } else {
    // Whether the card has room for its clusters is seen when there is code.
    cellc_variant variant = cellc_choose_variant(&stage, &d.facts, &d.run, &axes, &numbers);
    if (variant.kernel == CELLC_SEGMENTED && !stage_.outs.empty()) variant = without_segments(code, d, axes, numbers);
    variants.push_back(variant);
  }
  std::vector<GpuSource> sources;
  for (const cellc_variant& v : variants)
    if (!known(code, v)) sources.push_back(source(code, v));
  return sources;
}

cellc_variant StageProgram::variant_of(const StageRun& run, const CudaPlan& plan, Described& d) {
  Code& code = this->code(run.sizes);
  d = describe(run);
  cellc_plan numbers = host_plan(plan);
  return variant_for(code, d, cellc_merge_axes(&code.tables.stage, &d.run), numbers);
}

std::int64_t StageProgram::accumulated_parts(const StageRun& run, const CudaPlan& plan) {
  Described d;
  const cellc_variant variant = variant_of(run, plan, d);
  return variant.kernel == CELLC_SCAN
             ? run.sequences * cellc_scan_tiles(&code(run.sizes).tables.stage, &d.run, &variant) * variant.warps
             : run.sequences;
}

std::int64_t StageProgram::outer_parts(const StageRun& run, const CudaPlan& plan) {
  Described d;
  const cellc_variant variant = variant_of(run, plan, d);
  return cellc_outer_parts(&code(run.sizes).tables.stage, d.run.lengths, variant.width);
}

void StageProgram::run(const StageRun& run, const CudaPlan& plan, double tolerance, GpuStream stream) {
  Code& code = this->code(run.sizes);
  if (code.refusal) throw DeviceError(cell_.name + ": " + *code.refusal);
  const cellc_stage& stage = code.tables.stage;
  Described d = describe(run);
  const cellc_lane_axes axes = cellc_merge_axes(&stage, &d.run);
  cellc_plan numbers = host_plan(plan);
  last_ = plan;
  ran_segmented_ = writes_down_ = false;
  ran_tile_ = 0;
  sequences_ = run.sequences;
  if (run.sequences * axes.channels == 0) return;
  if (takes_two_passes(code, d, numbers)) return run_in_two_passes(code, d, axes, numbers, tolerance, run, stream);
  const cellc_variant variant = variant_for(code, d, axes, numbers);
  const Compiled& k = kernel(code, variant);
  const cellc_scratch bytes = cellc_scratch_bytes(&stage, &d.run, &axes, &numbers, &variant, sizeof(Control));
  cellc_scratch at{};
  if (variant.kernel == CELLC_SCAN) {
    // A call's number stands beside all that it publishes: nothing is cleared between calls, and zeros are of none.
    reserve(scan_control_, bytes.control, stream, true);
    reserve(scan_words_, bytes.words, stream, true);
    at.control = scan_control_.address();
    at.words = scan_words_.address();
    if (bytes.marks) {
      // Of their own: what other shapes publish would look like marks.
      reserve(scan_marks_, bytes.marks, stream, true);
      at.marks = scan_marks_.address();
    }
    ran_tile_ = cellc_scan_tile(&variant);
  } else if (variant.kernel == CELLC_SEGMENTED) {
    reserve(control_, bytes.control, stream, true);
    reserve(sent_, bytes.sent, stream, true);
    reserve(off_, bytes.off, stream, false);
    reserve(states_, bytes.states, stream, false);
    at = {control_.address(), sent_.address(), off_.address(), states_.address(), 0, 0, 0};
    ran_segmented_ = true;
    segment_ = plan.plan.segment;
  }
  writes_down_ = bytes.bad > 0;
  if (writes_down_) {
    const std::size_t sequences = static_cast<std::size_t>(run.sequences);
    reserve(bad_, bytes.bad, stream, false);
    // On the device for good: a graph may keep this copy.
    if (none_bad_.bytes() < sequences * 8) {
      const std::vector<unsigned long long> none(std::max<std::size_t>(sequences, 32), ~0ull);
      reserve(none_bad_, none.size() * 8, stream, false);
      gpu_.copy_in(none_bad_.address(), none.data(), none.size() * 8, stream);
    }
    gpu_.copy(bad_.address(), none_bad_.address(), sequences * 8, stream);
    gpu_.zero(bad_.address() + sequences * 8, sequences * 4, stream);
    at.bad = bad_.address();
  }
  launch(k, stage, d, axes, numbers, variant, at, tolerance, run.absolute.empty() ? nullptr : run.absolute.data(),
         stream);
  if (variant.kept) add_parts(k, d, run, variant, stream);
  if (variant.kernel == CELLC_SCAN && variant.checks && !stage_.outs.empty())
    rewalk(code, d, axes, numbers, variant, at, tolerance, run, stream);
}

void StageProgram::launch(const Compiled& k, const cellc_stage& stage, const Described& d, const cellc_lane_axes& axes,
                          const cellc_plan& numbers, const cellc_variant& variant, const cellc_scratch& at,
                          double tolerance, const double* absolute, GpuStream stream) {
  const cellc_grid grid = cellc_stage_grid(&stage, &d.facts, &d.run, &axes, &numbers, &variant, k.resident);
  GpuLaunch launch;
  launch.grid.x = grid.blocks;
  launch.block.x = grid.threads;
  launch.shared_bytes = variant.shared_bytes;
  launch.stream = stream;
  launch.cooperative = grid.cooperative;
  launch.cluster = std::max(1u, grid.cluster);
  launch.early = true;
  std::vector<std::uint64_t> room(argument_words(stage));
  cellc_stage_argument(&stage, &d.run, &axes, &numbers, &variant, &at, grid, tolerance, absolute, room.data());
  void* argument = room.data();
  gpu_.launch(k.function, launch, &argument);
}

/// What blocks have left of sums over the outermost channels, into the first of those parts.
void StageProgram::add_parts(const Compiled& k, const Described& d, const StageRun& run, const cellc_variant& variant,
                             GpuStream stream) {
  int parts = static_cast<int>(cellc_outer_parts(&code(run.sizes).tables.stage, d.run.lengths, variant.width));
  long long entries = run.outer_part;
  if (parts < 2 || entries == 0) return;
  GpuLaunch launch;
  launch.grid.x = static_cast<unsigned>(std::min<long long>((entries + 255) / 256, 16 * gpu_.facts().multiprocessors));
  launch.block.x = 256;
  launch.stream = stream;
  launch.early = true;
  const std::size_t first = stage_.sums.size() - static_cast<std::size_t>(stage_.outer);
  for (std::size_t s = 0; s < stage_.lanes.sources.size(); ++s) {
    const ArraySource& source = stage_.lanes.sources[s];
    if (source.kind != ArraySource::Kind::Sum || static_cast<std::size_t>(source.id) < first) continue;
    GpuAddress sum = run.symbols[s].data;
    void* arguments[] = {&sum, &entries, &parts};
    gpu_.launch(k.beside, launch, arguments);
  }
}

void StageProgram::rewalk(Code& code, Described& d, const cellc_lane_axes& axes, cellc_plan numbers,
                          const cellc_variant& scan, const cellc_scratch& at, double tolerance, const StageRun& run,
                          GpuStream stream) {
  const cellc_stage& stage = code.tables.stage;
  d.run.part = cellc_scan_tiles(&stage, &d.run, &scan) * scan.warps;
  d.run.scanned = &scan;
  numbers.strategy = CELLC_SEQUENTIAL;
  const cellc_variant walk = cellc_rewalk_variant(&stage, &d.facts, &d.run, &axes);
  const Compiled& k = kernel(code, walk);
  launch(k, stage, d, axes, numbers, walk, at, tolerance, run.absolute.empty() ? nullptr : run.absolute.data(), stream);
}

CudaOutcome StageProgram::outcome(GpuStream stream) {
  CudaOutcome result;
  // A scan in a single pass has nothing to miss: every start comes from composed maps. Where those rounded too much it
  // has walked.
  result.tile = ran_tile_;
  if (ran_tile_ > 0) {
    // Those are of all calls, and many may have come since somebody last asked, in graphs as well.
    ScanControl control{};
    gpu_.copy_out(&control, scan_control_.address(), sizeof control, stream);
    const unsigned calls = control.calls + control.clustered, repaired = control.repaired;
    const unsigned since = std::max(1u, calls - scans_before_);
    result.repaired = (repaired - repaired_before_ + since - 1) / since;
    scans_before_ = calls;
    repaired_before_ = repaired;
  }
  if (writes_down_) {
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
  if (!ran_segmented_) return result;
  Control control;
  gpu_.copy_out(&control, control_.address(), sizeof control, stream);
  const Tally& t = control.of[control.calls & 1];
  result.misses = t.misses;
  result.repaired = t.repaired;
  result.tails = t.tails;
  result.rounds = static_cast<int>(t.rounds);
  result.max_residual = std::max(result.max_residual, static_cast<double>(std::bit_cast<float>(t.worst_residual)));
  result.growth = std::bit_cast<float>(t.growth);
  result.burn_in = t.burn_in;
  result.measures_slope = last_.learns ? control.measures_slope != 0 : last_.measures_slope;
  result.multistarts = t.multistarts != 0;
  const unsigned marks = std::min(t.phases, 32u);
  for (unsigned i = 1; i < marks; ++i) result.phase_ns.push_back(static_cast<double>(t.time[i] - t.time[i - 1]));
  // What was walked in the end, or what more rounds took than there are marks.
  if (marks > 0 && t.ended > t.time[marks - 1] && (t.tails > 0 || marks == 32))
    result.phase_ns.push_back(static_cast<double>(t.ended - t.time[marks - 1]));
  return result;
}

}  // namespace cellc
