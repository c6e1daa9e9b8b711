#include "tests/gpu/strategy_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

namespace cellc {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<RunShape> equal_lengths(const std::vector<std::int64_t>& lengths, std::size_t sequences) {
  std::vector<RunShape> shapes;
  for (const std::int64_t n : lengths) shapes.push_back({std::vector<std::int64_t>(sequences, n)});
  return shapes;
}

void append(std::vector<RunShape>& to, const std::vector<RunShape>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// What every setting runs: lengths around those of segments, sequences of none between others.
std::vector<RunShape> basic_shapes(Extent extent) {
  if (extent == Extent::Small) return {{{33, 33, 33}}, {{40, 0, 33}, true}};
  return {{{67, 67, 67}}, {{64, 0, 67}, true}};
}

/// Every length. The emulator takes seconds for the 257 steps of most cells: there, one of every kind of
/// stage.
std::vector<RunShape> all_shapes(Extent extent, const std::string& file) {
  static const std::set<std::string> short_ones{"01_para_gru", "02_para_lstm", "08_gilr",
                                                "39_kalman1",  "43_peak_hold", "x16_biquad1"};
  std::vector<RunShape> shapes = basic_shapes(extent);
  if (extent == Extent::Small) return shapes;
  append(shapes, equal_lengths({0, 1, 2, 31, 32, 33}, 2));
  shapes.push_back({});  // an empty batch
  if (extent == Extent::Long) shapes.push_back({{257, 257}});
  if (extent == Extent::Long || short_ones.count(file)) shapes.push_back({{33, 0, 257}, true});
  return shapes;
}

std::vector<RunShape> longest_shapes() { return {{{4099, 4099}}, {{257, 0, 4099}, true}}; }

/// Cells that are driven and never forget: over thousands of steps what f32 rounds, and what a tolerance
/// leaves, adds up in the phase of an oscillation or in a count. There each step is compared with the one
/// before it.
bool drifts(const std::string& file, std::int64_t steps) {
  static const std::set<std::string> never_forget{"28_unicornn", "32_ln_state", "36_van_der_pol"};
  return steps > 257 && never_forget.count(file) > 0;
}

bool uses_hardware_functions(const CellGraph& cell) {
  for (NodeId id = 0; id < cell.graph.size(); ++id)
    if (cell.graph[id].op == Op::Tanh || cell.graph[id].op == Op::Sigmoid) return true;
  return false;
}

Trial::Options trial_options(const LoweredCell& cell, const Setting& setting, const oracle::Example& file,
                             bool amplifies) {
  Trial::Options with{
      .dtype = setting.dtype, .sizes = oracle::axis_lengths(cell.oracle, setting.axes), .steps = setting.longest()};
  with.starts_given = setting.axes[0] != 32;
  // A file that says where a state makes sense means it of the start as well.
  for (const StateUpdate& update : cell.graph.updates)
    with.starts_given = with.starts_given || file.ranges.count(cell.graph.symbol_of(update).name) > 0;
  with.reverse = setting.reverse;
  with.step_by_step = amplifies;
  with.f64_tolerance = 1e-11;
  // A card's own tanh, which 16-bit cells use, errs by 1.6e-5 of its value at most
  // (docs/notes/math-functions.md): a gate's error stays for as long as the state does, so a few of them come
  // together.
  if (on_card() && uses_hardware_functions(cell.graph)) with.narrow_tolerance = 1e-4;
  return with;
}

}  // namespace

bool on_card() { return environment("CELLC_TEST_DEVICE") == "gpu"; }

Device open_device(int multiprocessors, int optimisation) {
  Device device;
  if (on_card()) {
    std::string reason;
    device.gpu = open_gpu(environment("CELLC_TEST_CACHE"), reason);
    if (!device.gpu) throw std::runtime_error(reason);
    return device;
  }
  EmulatorOptions options;
  options.optimisation = optimisation;
  options.multiprocessors = multiprocessors;
  auto emulator = open_emulator(options);
  device.emulator = emulator.get();
  device.gpu = std::move(emulator);
  return device;
}

void spoil(Device& device, CudaSolver& solver, const CellGraph& cell, const BoundRun& run,
           const SolveOptions& options) {
  solver.upload(run, options);
  if (run.offsets.back() == 0) return;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    std::int64_t bytes = run.offsets.back() * static_cast<std::int64_t>(size_of(solver.storage()));
    for (const std::int64_t n : lengths(cell, run, cell.symbols[cell.updates[u].symbol].axes)) bytes *= n;
    const std::vector<unsigned char> none(static_cast<std::size_t>(bytes), 0xff);
    device.gpu->copy_in(solver.trajectory(static_cast<int>(u)), none.data(), none.size(), 0);
  }
  device.gpu->synchronize(0);
}

Extent extent() {
  const std::string asked = environment("CELLC_TEST_SIZE");
  if (asked == "small") return Extent::Small;
  if (asked == "usual") return Extent::Usual;
  if (asked == "long") return Extent::Long;
  if (!asked.empty()) throw std::runtime_error("CELLC_TEST_SIZE is small, usual or long, not '" + asked + "'");
  return on_card() ? Extent::Long : Extent::Usual;
}

std::int64_t Setting::longest() const {
  std::int64_t most = 2;
  for (const RunShape& shape : shapes)
    for (const std::int64_t n : shape.lengths) most = std::max(most, n);
  return most;
}

std::string Setting::text() const {
  return fmt::format("{}, {} channels{}", to_string(dtype), axes[0], reverse ? ", reversed" : "");
}

std::vector<Setting> wide_settings(Extent extent, const std::string& file) {
  const std::vector<std::int64_t> odd{3, 2, 3, 2}, warp{32, 2, 2, 2};
  std::vector<Setting> settings{
      {Dtype::F32, odd, false, all_shapes(extent, file)},
      {Dtype::F32, warp, false, basic_shapes(extent)},
      {Dtype::F64, odd, false, extent == Extent::Long ? all_shapes(extent, file) : basic_shapes(extent)}};
  if (extent == Extent::Small) return settings;
  settings.push_back({Dtype::F32, odd, true, basic_shapes(extent)});
  settings.push_back({Dtype::F64, odd, true, basic_shapes(extent)});
  // Data of their own: the oracle walks a tree at every step, which thousands of steps in every setting would
  // not bear.
  if (extent == Extent::Long) settings.push_back({Dtype::F32, odd, false, longest_shapes()});
  return settings;
}

std::vector<Setting> narrow_settings(Extent extent, const std::string& file) {
  const std::vector<std::int64_t> odd{3, 2, 3, 2}, warp{32, 2, 2, 2};
  std::vector<Setting> settings{{Dtype::F16, odd, false, basic_shapes(extent)},
                                {Dtype::BF16, warp, false, basic_shapes(extent)}};
  if (extent == Extent::Small) return settings;
  settings.push_back({Dtype::BF16, odd, true, basic_shapes(extent)});
  settings.push_back({Dtype::F16, warp, false, basic_shapes(extent)});
  if (extent == Extent::Usual) return settings;
  settings[0].shapes = all_shapes(extent, file);
  // Of rounded rows no step can be told.
  settings.push_back({Dtype::BF16, odd, false, drifts(file, 4099) ? all_shapes(extent, file) : longest_shapes()});
  return settings;
}

std::vector<Forced> forced(CudaSolver& solver, const LoweredCell& cell, const std::map<AxisId, std::int64_t>& sizes) {
  BoundRun shape;
  shape.sizes = sizes;
  std::vector<Forced> all;
  for (const Strategy strategy : {Strategy::Auto, Strategy::Sequential}) {
    all.push_back({strategy, {}});
    all.back().options.solver = strategy;
  }
  // A stage that couples too much for a thread takes the whole cell to row kernels.
  for (int k = 0; k < cell.stages(); ++k)
    if (solver.refusal(k, Strategy::Segmented, shape)) return all;
  for (const StrategyFacts& f : strategies()) {
    if (!f.on_gpu || f.strategy == Strategy::Sequential) continue;
    const Strategy strategy = f.strategy;
    SolveOptions options;
    options.solver = strategy;
    // The emulator takes ten times as long over products on tensor cores, which have tests of their own.
    if (strategy == Strategy::Relaxation && !on_card()) options.products = Products::F32;
    int admitting = 0;
    for (int k = 0; k < cell.stages(); ++k) {
      const bool admits = !solver.refusal(k, strategy, shape);
      admitting += admits;
      options.plan.push_back(admits ? StagePlan{strategy, strategy == Strategy::Newton ? 1 : 16,
                                                strategy == Strategy::Segmented ? 8 : 0, "test"}
                                    : StagePlan{});
    }
    if (admitting == cell.stages()) options.plan.clear();
    if (admitting > 0) all.push_back({strategy, options});
  }
  return all;
}

const std::vector<MatrixCell>& matrix_cells() {
  static const std::vector<MatrixCell> all = [] {
    std::vector<MatrixCell> cells;
    for (const oracle::Example& file : oracle::all_cells())
      for (const Cell& tree : file.tree.cells)
        cells.push_back({&file, &tree, file.tree.cells.size() > 1 ? file.name + "_" + tree.name : file.name});
    return cells;
  }();
  return all;
}

std::map<AxisId, std::int64_t> sizes_of(const LoweredCell& cell, const std::vector<std::int64_t>& axes) {
  const auto lengths = oracle::axis_lengths(cell.oracle, axes);
  std::map<AxisId, std::int64_t> sizes;
  for (const AxisId axis : cell.graph.header) sizes[axis] = lengths.at(cell.graph.graph.axis(axis).name);
  return sizes;
}

namespace {

/// What a setting asks of a cell.
std::vector<Forced> forced(CudaSolver& solver, const MatrixCell& of, const LoweredCell& cell, const Setting& setting) {
  const bool narrow = size_of(setting.dtype) == 2;
  // Rounding to 16 bits is no small error where errors grow.
  if (narrow && of.file->amplifies.count(of.tree->name) > 0) return {};
  std::vector<Forced> all = forced(solver, cell, sizes_of(cell, setting.axes));
  // A residual within the tolerance tips a comparison now and then, and of rounded rows no step can be told.
  if (narrow && has_jumps(cell.graph))
    std::erase_if(all, [](const Forced& f) { return f.strategy != Strategy::Sequential; });
  return all;
}

}  // namespace

std::int64_t planned_runs(Gpu& gpu, const MatrixCell& of, const std::vector<Setting>& settings) {
  const LoweredCell cell(of.file->source, of.file->tree, *of.tree);
  std::int64_t runs = 0;
  for (const Setting& setting : settings) {
    CudaSolver solver(gpu, cell.graph, cell.structure, setting.dtype, &of.file->source);
    runs += static_cast<std::int64_t>(forced(solver, of, cell, setting).size() * setting.shapes.size());
  }
  return runs;
}

std::string run_matrix(Device& device, const MatrixCell& of, const std::vector<Setting>& settings, std::int64_t& runs) {
  const oracle::Example& file = *of.file;
  const LoweredCell cell(file.source, file.tree, *of.tree);
  const bool amplifies = file.amplifies.count(of.tree->name) > 0, jumps = has_jumps(cell.graph);
  oracle::Random random(91);
  std::uint64_t seed = 0;
  std::map<Dtype, CudaSolver> solvers;  // what a type of storage compiles serves all its settings
  for (const Setting& setting : settings) {
    CudaSolver& solver =
        solvers.try_emplace(setting.dtype, *device.gpu, cell.graph, cell.structure, setting.dtype, &file.source)
            .first->second;
    const std::vector<Forced> strategies = forced(solver, of, cell, setting);
    if (strategies.empty()) continue;
    Trial::Options with = trial_options(cell, setting, file, amplifies || drifts(file.name, setting.longest()));
    const Trial whole(cell.graph, cell.oracle, file.ranges, random, with);
    with.step_by_step = with.skip_jumps = true;
    const Trial steps(cell.graph, cell.oracle, file.ranges, random, with);
    for (const auto& [strategy, options] : strategies) {
      SolveOptions solve = options;
      // Over many steps a cell makes more of what each may leave.
      solve.tolerance = setting.dtype == Dtype::F64 ? 1e-13 : setting.longest() > 67 ? 1e-7 : 1e-6;
      // Tipped comparisons again: what is promised is each step.
      const Trial& trial = jumps && strategy != Strategy::Sequential ? steps : whole;
      for (const RunShape& shape : setting.shapes) {
        device.reorder(seed++);
        const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
        SolveReport report;
        spoil(device, solver, cell.graph, binding.run, solve);
        const RunOutput output = solver.run(binding.run, solve, report);
        std::string wrong = trial.verify(binding.run, output, shape.lengths);
        if (!report.converged || !report.unconverged.empty()) wrong = "reported as not converged";
        if (!(report.max_residual <= *solve.tolerance * 1.001))
          wrong = fmt::format("a reported residual of {}", report.max_residual);
        if (!wrong.empty())
          return fmt::format("{} by {}, {}, {}lengths {}: {}", of.tree->name, to_string(strategy), setting.text(),
                             shape.packed ? "packed, " : "", fmt::join(shape.lengths, " "), wrong);
        ++runs;
      }
    }
  }
  return {};
}

}  // namespace cellc
