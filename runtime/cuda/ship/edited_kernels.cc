#include "runtime/cuda/ship/edited_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "compiler/codegen_cuda/line_directive.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/evaluate/check_step.h"

namespace cellc {

namespace {

/// How much further off than the generated kernels an edited one may be: another order of sums, another
/// rounding.
constexpr double kSlack = 8;
/// A kernel is declared in fewer characters; regular expressions go down a stack frame a character.
constexpr std::size_t kLongestDeclaration = 4000;

/// "gru.segmented.cu" of "// gru.segmented.cu: stage {h}: …"; empty: the line begins no unit.
std::string unit_of(const std::string& line) {
  // By hand: a regular expression of the standard library goes down a stack frame a character.
  const std::size_t end = line.find(".cu: ");
  if (!line.starts_with("// ") || end == std::string::npos) return "";
  const std::string name = line.substr(3, end);
  return name.find_first_of(" \t:") == std::string::npos ? name : "";
}

/// What a launch depends on: the definitions before the first template, and the kernels' declarations without
/// the bounds that only the compiler looks at.
std::vector<std::string> launched_by(const std::string& text) {
  static const std::regex bounds(R"(__launch_bounds__\([^)]*\))"), spaces(R"(\s+)");
  std::vector<std::string> found;
  std::istringstream lines(text);
  std::string line;
  bool templates = false, declaring = false;
  while (std::getline(lines, line)) {
    templates = templates || line.find(" cellc {") != std::string::npos || line.starts_with("#pragma once");
    const bool kernel = line.starts_with("extern \"C\" __global__");
    const bool decides = line.starts_with("#define CELLC_") || line.starts_with("  static constexpr ");
    if (!(kernel || declaring || (!templates && decides))) continue;
    if (line.size() > kLongestDeclaration) continue;  // another line than was launched
    const std::string bare = std::regex_replace(std::regex_replace(line, bounds, ""), spaces, " ");
    if (declaring)
      found.back() += " " + bare;
    else
      found.push_back(bare);
    if (kernel || declaring) declaring = line.find('{') == std::string::npos;
  }
  for (std::string& one : found) one = std::regex_replace(one, spaces, " ");
  return found;
}

class EditedGpu final : public WrappedGpu {
 public:
  EditedGpu(Gpu& below, const EditedKernels& edited) : WrappedGpu(below), edited_(edited) {}

  GpuModule load(const GpuSource& source) override {
    const std::optional<GpuSource> other = edited_.instead_of(source, seen_[source.name]++);
    names_.insert(source.name);
    used_ += other.has_value();
    return below_.load(other ? *other : source);
  }
  double compile_ahead(const std::vector<GpuSource>&) override { return 0; }  // other texts than these are loaded
  void check_all_used() const {
    if (used_ == static_cast<int>(edited_.units().size())) return;
    throw UsageError(
        fmt::format("--kernel {}: it has {} unit{}, of which this run launches {}; it launches {} "
                    "(--write-kernels prints them)",
                    edited_.path(), edited_.units().size(), edited_.units().size() == 1 ? "" : "s", used_,
                    fmt::join(names_, ", ")));
  }

 private:
  const EditedKernels& edited_;
  std::map<std::string, int> seen_;
  std::set<std::string> names_;
  int used_ = 0;
};

/// Nothing begins before what is ahead of it has ended: an edited kernel may not wait for that by itself, and what it
/// is compared with is to have no advantage.
class OrderlyGpu final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override {
    GpuLaunch orderly = launch;
    orderly.early = false;
    below_.launch(function, orderly, arguments);
  }
};

class ListeningGpu final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuModule load(const GpuSource& source) override {
    heard.push_back(source);
    return below_.load(source);
  }
  std::vector<GpuSource> heard;
};

/// How far the states of a run are from f of the row before, in f64: large where a step is wrong, however
/// errors grow.
double worst_step(const CellGraph& cell, const BoundRun& run, const RunOutput& output) {
  double worst = 0;
  Step step(cell, run);
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s) {
    const std::int64_t first = run.offsets[s], end = run.offsets[s + 1];
    for (std::int64_t t = 0; t < end - first; ++t) {
      const std::int64_t row = run.reverse ? end - 1 - t : first + t, before = run.reverse ? row + 1 : row - 1;
      States states;
      for (std::size_t u = 0; u < cell.updates.size(); ++u) {
        const Array& from = t == 0 ? run.symbols[cell.updates[u].symbol] : output.states[u];
        const std::int64_t n = step.entries(static_cast<int>(u)),
                           at = (t == 0 ? static_cast<std::int64_t>(s) : before) * n;
        Values values;
        for (std::int64_t e = 0; e < n; ++e) values.push_back(from.get(at + e));
        states.push_back(std::move(values));
      }
      step.at(row);
      const States next = step(states);
      for (std::size_t u = 0; u < next.size(); ++u)
        for (std::size_t e = 0; e < next[u].size(); ++e) {
          const double have = output.states[u].get(row * static_cast<std::int64_t>(next[u].size()) +
                                                   static_cast<std::int64_t>(e)),
                       want = next[u][e];
          if (have == want || (std::isnan(have) && std::isnan(want))) continue;
          const double far = std::fabs(have - want) / (1 + std::fabs(want));
          worst = std::max(worst, std::isnan(far) ? std::numeric_limits<double>::infinity() : far);
        }
    }
  }
  return worst;
}

double launch_ms(Gpu& gpu, CudaSolver& solver) {
  return ms_a_call(gpu, 0, [&] { solver.launch(0); });
}

}  // namespace

EditedKernels::EditedKernels(const std::string& path, const std::string& text) : path_(path) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (const std::string name = unit_of(line); !name.empty()) {
      units_.push_back({name, fmt::format("#line {} \"{}\"\n", number + 1, line_directive_path(path)), {}});
    } else if (!units_.empty()) {
      // Lines are those of the file, whatever they once came from.
      units_.back().text += (line.starts_with("#line ") ? std::string() : line) + "\n";
    }
  }
  if (units_.empty())
    throw RequestError(
        fmt::format("{}: holds no kernels; expected units under lines such as \"// gru.segmented.cu: …\", as "
                    "`cellc inspect --stage cuda --whole` and `cellc run --write-kernels` print them",
                    path));
}

std::optional<GpuSource> EditedKernels::instead_of(const GpuSource& generated, int number) const {
  for (const GpuSource& unit : units_) {
    if (unit.name != generated.name || number-- > 0) continue;
    const std::vector<std::string> wanted = launched_by(generated.text), have = launched_by(unit.text);
    for (const std::string& one : wanted)
      if (std::find(have.begin(), have.end(), one) == have.end())
        throw UsageError(fmt::format(
            "--kernel {}: the unit {} lacks \"{}\", which the generated one has here. It says how the kernel "
            "is launched: "
            "leave it as it is, and take the kernels of a run of this shape, as --write-kernels prints them",
            path_, unit.name, one));
    // The name tells one edited text from another in caches and messages.
    return GpuSource{path_, unit.text, generated.options};
  }
  return std::nullopt;
}

std::string kernels_text(const std::vector<GpuSource>& sources) {
  std::string text;
  for (const GpuSource& source : sources) {
    text += fmt::format("{}// {}: as launched\n{}", text.empty() ? "" : "\n", source.name, source.text);
    if (text.back() != '\n') text += '\n';
  }
  return text;
}

EditedRun run_edited(Gpu& device, const CellGraph& cell, const Structure& structure, Dtype dtype,
                     const SourceText* source, const BoundRun& run, const SolveOptions& solve,
                     const EditedKernels& edited, bool verify) {
  EditedRun result;
  OrderlyGpu gpu(device);
  EditedGpu instead(gpu, edited);
  {
    CudaSolver solver(instead, cell, structure, dtype, source);
    result.output = solver.run(run, solve, result.report);
    instead.check_all_used();
    result.ms = launch_ms(gpu, solver);
  }
  SolveReport report;
  CudaSolver solver(gpu, cell, structure, dtype, source);
  const RunOutput generated = solver.run(run, solve, report);
  result.generated_ms = launch_ms(gpu, solver);
  if (!verify) return result;
  const RunOutput reference = reference_run(cell, run);
  result.verified = compare(cell, run, result.output, reference);
  result.generated_verified = compare(cell, run, generated, reference);
  result.step_error = worst_step(cell, run, result.output);
  result.generated_step_error = worst_step(cell, run, generated);
  const double tolerance = std::max(solve.tolerance.value_or(0), default_tolerance(dtype));
  const auto is_wrong = [&](double error, double own) {
    return !(error <= kSlack * own + tolerance) && !(std::isinf(own) && std::isinf(error));
  };
  result.wrong = is_wrong(result.verified->error, result.generated_verified->error) ||
                 is_wrong(result.step_error, result.generated_step_error);
  return result;
}

std::vector<GpuSource> launched_sources(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                        const SourceText* source, const BoundRun& run, const SolveOptions& solve) {
  ListeningGpu listening(gpu);
  CudaSolver solver(listening, cell, structure, dtype, source);
  SolveReport report;
  solver.run(run, solve, report);
  return listening.heard;
}

}  // namespace cellc
