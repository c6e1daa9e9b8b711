#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "compiler/emit_cuda_lane.h"
#include "compiler/inspect.h"
#include "compiler/plan.h"
#include "compiler/stage_cells.h"
#include "runtime/bind.h"
#include "runtime/compile_plan.h"

namespace cellc {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

std::string stage_text(LoadedCell& loaded, const InspectOptions& options) {
  const std::string& stage = options.stage;
  if (stage == "graph") return print_graph(loaded.cell);
  if (stage == "jacobian") return print_jacobian(loaded.cell, loaded.jacobian);
  if (stage == "structure") return print_structure(loaded.cell, loaded.structure);
  if (stage == "lanes") return print_staged(split_stages(loaded.cell, loaded.structure));
  const Dtype dtype = dtype_named(options.dtype);
  if (stage == "cuda")
    return print_cuda(loaded.cell, split_stages(loaded.cell, loaded.structure), loaded.structure, loaded.source,
                      storage_of(dtype));
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

}  // namespace

int command_inspect(const InspectOptions& options) {
  if (options.stage == "ptx")
    throw UsageError(fmt::format("--stage {}: no CUDA back end in this version", options.stage));
  bool known = options.stage.empty();
  for (const char* name : {"tree", "graph", "jacobian", "structure", "plan", "lanes", "llvm", "asm", "cuda"})
    known |= options.stage == name;
  if (!known)
    throw UsageError(fmt::format(
        "--stage {}: the stages are tree, graph, jacobian, structure, plan, lanes, llvm, asm, cuda", options.stage));
  dtype_named(options.dtype);

  if (options.stage == "tree") {
    print(print_tree(parse_source(read_source(options.file))));
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
