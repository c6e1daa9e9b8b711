#include "tests/gpu/loaded_cell.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/diagnostic.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/stage_cells.h"

namespace cellc {

namespace {

CellGraph lowered(const oracle::Example& file, const Cell& tree) {
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(file.tree, tree, diagnostics);
  if (!graph) throw std::runtime_error(diagnostics.format(file.source));
  return std::move(*graph);
}

}  // namespace

const std::vector<oracle::Example>& all_examples() {
  static const std::vector<oracle::Example> all = oracle::load_all_cells(CELLC_SOURCE_DIR);
  return all;
}

const oracle::Example& example_named(const std::string& name) {
  const auto found = std::find_if(all_examples().begin(), all_examples().end(),
                                  [&](const oracle::Example& e) { return e.name == name; });
  if (found == all_examples().end()) throw std::runtime_error("no example " + name);
  return *found;
}

std::vector<std::string> example_names() {
  std::vector<std::string> names;
  for (const oracle::Example& e : all_examples()) names.push_back(e.name);
  return names;
}

LoadedExample::LoadedExample(const oracle::Example& file, const Cell& tree)
    : graph(lowered(file, tree)),
      structure(analyse(graph, differentiate(graph))),
      oracle(file.tree, tree.name) {}

std::map<AxisId, std::int64_t> needed_lengths(const LoadedExample& cell,
                                              const std::map<std::string, std::int64_t>& sizes, bool all) {
  const StagedCell staged = split_stages(cell.graph, cell.structure);
  std::map<AxisId, std::int64_t> lengths;
  for (const AxisId a : cell.graph.header) {
    const auto is_channel_of = [&](const StageCells& stage) {
      return std::any_of(stage.channels.begin(), stage.channels.end(),
                         [&](AxisId c) { return cell.graph.graph.axis(c).extent_of == a; });
    };
    if (!cell.graph.graph.axis(a).fixed &&
        (all || !std::all_of(staged.stages.begin(), staged.stages.end(), is_channel_of)))
      lengths[a] = sizes.at(cell.graph.graph.axis(a).name);
  }
  return lengths;
}

}  // namespace cellc
