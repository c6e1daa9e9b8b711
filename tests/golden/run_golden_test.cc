// Golden files: one text file a case, one folder a stage.
//
//   # stage: graph                 tree | graph | jacobian | structure | plan | lanes | derive | scalars | llvm |
//                                  cuda | nests | inspect | latex | adjoint | tangent
//   # cell: NAME                   where the file has several cells
//   the cells
//   ---
//   the dump that is expected
//
// Every file below the folders of tests/golden that ends in ".golden" is a case. A case without
// "---" fails. CELLC_REBASE=1 writes what the compiler prints now; read the difference before you
// commit it. CELLC_GOLDEN=text runs only the cases whose path contains the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/lower.h"
#include "compiler/inspect.h"
#include "compiler/inspect_adjoint.h"
#include "compiler/plan/plan.h"
#include "compiler/syntax/parse.h"
#include "tests/golden/print_stages.h"

namespace cellc {
namespace {

struct Case {
  std::string stage, cell, text, expected;
  bool has_expectation = false;
};

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The directives stay part of the cell text, so that lines are counted as in the file.
Case split(const std::string& file) {
  Case c;
  std::istringstream lines(file);
  std::string line;
  bool expected = false;
  while (std::getline(lines, line)) {
    if (!expected && line == "---") {
      expected = c.has_expectation = true;
      continue;
    }
    (expected ? c.expected : c.text) += line + "\n";
    if (expected) continue;
    if (line.starts_with("# stage: ")) c.stage = line.substr(9);
    if (line.starts_with("# cell: ")) c.cell = line.substr(8);
  }
  return c;
}

std::string dump(const Case& c, const std::string& path) {
  const SourceText source(path, c.text);
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  if (c.stage == "tree") return print_tree(file) + diagnostics.format(source);
  std::vector<CellGraph> cells;
  if (diagnostics.empty()) cells = lower_all(file, diagnostics);
  if (!diagnostics.empty()) return diagnostics.format(source);
  auto chosen =
      std::find_if(cells.begin(), cells.end(), [&](const CellGraph& g) { return c.cell.empty() || g.name == c.cell; });
  if (chosen == cells.end()) return "no cell " + c.cell + "\n";
  CellGraph& cell = *chosen;
  if (c.stage == "graph") return print_graph(cell);
  const Jacobian jacobian = differentiate(cell);
  if (c.stage == "jacobian") return print_jacobian(cell, jacobian);
  const Structure structure = analyse(cell, jacobian);
  if (c.stage == "structure") {
    std::string text = print_structure(cell, structure);
    for (const Reason& r : structure.why) {
      const Position p = source.position(r.span.offset);
      text += std::to_string(p.line) + ":" + std::to_string(p.column) + ": " + r.text + "\n";
    }
    return text;
  }
  if (c.stage == "inspect") return inspect_text(cell, jacobian, structure, source);
  if (c.stage == "latex") return inspect_latex(cell, jacobian, structure);
  if (c.stage == "plan") return print_plan(cell, make_plan(cell, structure));
  if (c.stage == "lanes") return print_lanes(cell, structure);
  if (c.stage == "scalars") return print_scalars(cell, structure);
  if (c.stage == "llvm") return print_llvm(cell, structure);
  if (c.stage == "nests") return print_nests(cell, structure, source);
  if (c.stage == "derive") return print_derived(cell, derive(cell, structure));
  if (c.stage == "adjoint") return adjoint_text(cell, adjoint_of(cell));
  if (c.stage == "tangent") {
    const DerivedCell made = tangent_of(cell);
    return print_graph(made.cell) + print_arrays(cell, made);
  }
  if (c.stage == "cuda") return print_cuda(cell, split_stages(cell, structure), structure, source, Storage::F32);
  return "unknown stage '" + c.stage + "'\n";
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, MatchesItsExpectation) {
  const std::filesystem::path path = std::filesystem::path(CELLC_SOURCE_DIR) / "tests" / "golden" / GetParam();
  const Case c = split(slurp(path));
  ASSERT_FALSE(c.stage.empty()) << path << " has no line '# stage: …'";
  std::string actual = dump(c, path.filename().string());
  if (!actual.empty() && actual.back() != '\n') actual += '\n';
  if (const char* rebase = std::getenv("CELLC_REBASE"); rebase && *rebase == '1') {
    std::ofstream(path) << c.text << "---\n" << actual;
    return;
  }
  ASSERT_TRUE(c.has_expectation) << path << " has no expectation after '---'; CELLC_REBASE=1 writes it";
  EXPECT_EQ(c.expected, actual) << "in " << path << "; CELLC_REBASE=1 rewrites it";
}

std::vector<std::string> cases() {
  const std::filesystem::path root = std::filesystem::path(CELLC_SOURCE_DIR) / "tests" / "golden";
  const char* filter = std::getenv("CELLC_GOLDEN");
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".golden") continue;
    const std::string path = std::filesystem::relative(entry.path(), root).string();
    if (!filter || path.find(filter) != std::string::npos) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.substr(0, info.param.size() - 7);
  for (char& ch : name)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return name;
});

TEST(GoldenFolder, EveryStageHasCases) {
  const std::vector<std::string> all = cases();
  if (std::getenv("CELLC_GOLDEN")) GTEST_SKIP() << "filtered";
  for (const char* stage : {"tree", "graph", "jacobian", "structure", "plan", "lanes", "derive", "llvm", "cuda"})
    EXPECT_GE(std::count_if(all.begin(), all.end(),
                            [&](const std::string& p) { return p.starts_with(std::string(stage) + "/"); }),
              10)
        << "of " << stage;
  for (const char* stage : {"scalars", "nests"})
    EXPECT_GE(std::count_if(all.begin(), all.end(),
                            [&](const std::string& p) { return p.starts_with(std::string(stage) + "/"); }),
              5)
        << "of " << stage;
}

}  // namespace
}  // namespace cellc
