#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <regex>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/pipeline.h"
#include "compiler/inspect.h"
#include "compiler/inspect_adjoint.h"
#include "compiler/plan/plan.h"
#include "runtime/cpu/engine.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/ship/list_cuda_units.h"
#include "runtime/data/bind.h"
#include "runtime/data/storage_of.h"
#include "runtime/data/threads.h"

namespace cellc {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

void check_architecture(const std::string& name) {
  if (!std::regex_match(name, std::regex("sm_[0-9]{2,3}[af]?")))
    throw UsageError(fmt::format("--arch {}: expected an architecture such as sm_80, sm_90 or sm_100", name));
  constexpr int kLeast = 80;
  if (std::stoi(name.substr(3)) < kLeast)
    throw UsageError(fmt::format("--arch {}: the kernels need sm_{} or newer", name, kLeast));
}

/// The translation units that auto compiles on a card, each under a line that says what it is; as PTX or as they are.
std::string units_text(const LoadedCell& loaded, Dtype dtype, const InspectOptions& options) {
  const std::vector<CudaUnit> units =
      list_cuda_units(loaded.cell, loaded.structure, dtype, &loaded.source, options.arch, dims_named(options.dims),
                      options.length.value_or(kUnitSteps), derive_hooks());
  std::vector<std::string> codes(units.size());
  if (options.stage == "ptx")
    run_on_cores(static_cast<int>(units.size()), [&](int i) {
      const auto u = static_cast<std::size_t>(i);
      codes[u] = compile_cuda(units[u].source, options.arch, CompiledKind::Ptx).code;
    });
  std::string text;
  for (std::size_t u = 0; u < units.size(); ++u) {
    text += fmt::format("{}// {}: {}\n", text.empty() ? "" : "\n", units[u].source.name, units[u].what);
    text += options.stage == "ptx" ? codes[u] : units[u].source.text;
    if (text.back() != '\n') text += '\n';
  }
  return text;
}

std::string stage_text(LoadedCell& loaded, const InspectOptions& options) {
  const std::string& stage = options.stage;
  if (stage == "graph") return print_graph(loaded.cell);
  if (stage == "jacobian") return print_jacobian(loaded.cell, loaded.jacobian);
  if (stage == "structure") return print_structure(loaded.cell, loaded.structure);
  if (stage == "lanes") return print_staged(split_stages(loaded.cell, loaded.structure, derive_hooks()));
  if (stage == "derive") return print_derived(loaded.cell, derive(loaded.cell, loaded.structure, derive_hooks()));
  if (stage == "adjoint") {
    AdjointCell made = adjoint_of(loaded.cell, {}, derive_hooks());
    const Jacobian jacobian = differentiate(made.adjoint.cell);
    const Structure structure = analyse(made.adjoint.cell, jacobian);
    return adjoint_text(loaded.cell, made) + print_graph(made.adjoint.cell) + print_adjoint(loaded.cell, made) +
           print_structure(made.adjoint.cell, structure);
  }
  if (stage == "tangent") {
    DerivedCell made = tangent_of(loaded.cell, {}, derive_hooks());
    const Jacobian jacobian = differentiate(made.cell);
    const Structure structure = analyse(made.cell, jacobian);
    return print_graph(made.cell) + print_arrays(loaded.cell, made) + print_structure(made.cell, structure);
  }
  const Dtype dtype = dtype_named(options.dtype);
  if (stage == "ptx" || options.whole) return units_text(loaded, dtype, options);
  if (stage == "cuda")
    return print_cuda(loaded.cell, split_stages(loaded.cell, loaded.structure, derive_hooks()), loaded.structure,
                      loaded.source, storage_of(dtype));
  if (stage == "plan") {
    PlanOptions plan_options;
    plan_options.narrow_storage = dtype == Dtype::F16 || dtype == Dtype::BF16;
    return print_plan(loaded.cell, make_plan(loaded.cell, loaded.structure, plan_options));
  }
  CompileOptions compile;
  compile.dtype = dtype;
  compile.cache_directory = options.cache_dir.value_or(default_cache_directory());
  const Program program = Program::compile(loaded.cell, loaded.structure, compile);
  return stage == "llvm" ? program.llvm_ir() : program.assembly();
}

/// Leaves one cell in the file, and the functions, which belong to all.
void keep_cell(File& file, const std::string& name, const SourceText& source) {
  std::vector<std::string> names;
  for (const Cell& cell : file.cells) names.push_back(cell.name);
  std::erase_if(file.cells, [&](const Cell& cell) { return cell.name != name; });
  if (file.cells.empty())
    throw UsageError(fmt::format("--cell {}: {}", name, CellChoiceError(source, name, names).what()));
}

}  // namespace

const std::vector<std::string>& inspect_stages() {
  static const std::vector<std::string> stages = {"tree",  "graph",  "jacobian", "structure", "plan",
                                                  "lanes", "derive", "adjoint",  "tangent",   "llvm",
                                                  "asm",   "cuda",   "ptx"};
  return stages;
}

int command_inspect(const InspectOptions& options) {
  const std::vector<std::string>& stages = inspect_stages();
  if (!options.stage.empty() && std::find(stages.begin(), stages.end(), options.stage) == stages.end())
    throw UsageError(fmt::format("--stage {}: the stages are {}", options.stage, fmt::join(stages, ", ")));
  if (options.whole && options.stage != "cuda") throw UsageError("--whole: only with --stage cuda");
  if (!options.dims.empty() && !options.whole && options.stage != "ptx")
    throw UsageError("--dim: only with --stage cuda --whole, or --stage ptx");
  if (options.length && !options.whole && options.stage != "ptx")
    throw UsageError("--length: only with --stage cuda --whole, or --stage ptx");
  check_architecture(options.arch);
  dtype_named(options.dtype);

  if (options.stage == "tree") {
    const SourceText source = read_source(options.file);
    File file = parse_source(source);
    if (!options.cell.empty()) keep_cell(file, options.cell, source);
    print(print_tree(file));
    return kDone;
  }
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("inspect");
  if (!options.stage.empty())
    print(stage_text(loaded, options));
  else if (options.latex)
    print(inspect_latex(loaded.cell, loaded.jacobian, loaded.structure));
  else if (options.json)
    print(inspect_json(loaded.cell, loaded.jacobian, loaded.structure, loaded.source));
  else
    print(inspect_text(loaded.cell, loaded.jacobian, loaded.structure, loaded.source));
  return kDone;
}

}  // namespace cellc
