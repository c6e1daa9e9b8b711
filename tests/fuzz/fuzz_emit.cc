// Any bytes through all that is made of a cell once its structure is proved: the texts for people,
// the plan, and the emitted code. Nothing may crash, throw or take long; the verifiers of the stages
// throw where a stage breaks its promise.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/graph/lower.h"
#include "compiler/inspect.h"
#include "compiler/plan/plan.h"
#include "compiler/syntax/parse.h"

namespace {

void expect_text(const std::string& text) {
  if (text.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cellc;
  if (size > 2048) return -1;  // see fuzz_frontend.cc; printing takes longer than proving
  const SourceText source("fuzz.cell", std::string(reinterpret_cast<const char*>(data), size));
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  if (!diagnostics.empty()) return -1;
  std::vector<CellGraph> cells = lower_all(file, diagnostics);
  if (!diagnostics.empty()) return -1;
  for (CellGraph& cell : cells) {
    const Jacobian jacobian = differentiate(cell);
    const Structure structure = analyse(cell, jacobian);
    for (const bool narrow : {false, true}) {
      const Plan plan = make_plan(cell, structure, {.narrow_storage = narrow});
      print_plan(cell, plan);
      expect_text(emit_llvm(plan, {.storage = narrow ? Storage::BF16 : Storage::F64}).ir);
    }
    expect_text(print_graph(cell));
    print_jacobian(cell, jacobian);
    print_structure(cell, structure);
    expect_text(inspect_text(cell, jacobian, structure, source));
    expect_text(inspect_latex(cell, jacobian, structure));
    expect_text(inspect_json(cell, jacobian, structure, source));
  }
  return 0;
}
