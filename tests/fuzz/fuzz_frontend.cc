// Any bytes through the whole front end: text, tree, graph, Jacobian, structure. A file is either
// refused with diagnostics or analysed; nothing may crash, throw or take long.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cellc;
  // The time per input is what bounds coverage here, and long inputs find nothing that short ones
  // do not; the limits on long ones are fuzz_parse's business and that of the unit tests.
  if (size > 8192) return -1;
  const SourceText source("fuzz.cell", std::string(reinterpret_cast<const char*>(data), size));
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  if (!diagnostics.empty()) return 0;
  std::vector<CellGraph> cells = lower_all(file, diagnostics);
  if (!diagnostics.empty() && diagnostics.format(source).empty()) std::abort();
  for (CellGraph& cell : cells) {
    const Jacobian jacobian = differentiate(cell);
    const Structure structure = analyse(cell, jacobian);
    for (const JacobianBlock& block : jacobian.blocks) block_as_node(cell, block);
    if (!cell.updates.empty() && structure.stages.empty()) {
      std::fprintf(stderr, "a cell with states and no stage: %s\n", cell.name.c_str());
      std::abort();
    }
  }
  return 0;
}
