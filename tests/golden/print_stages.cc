#include "tests/golden/print_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/derive/newton_cell.h"
#include "compiler/derive/relaxed_cell.h"
#include "compiler/derive/scalarize.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/derive/transition_cell.h"
#include "compiler/inspect.h"
#include "compiler/plan/plan.h"

namespace cellc {
namespace {

/// A dump of graphs with nodes numbered in the order in which they appear in each: what a pass left behind in a graph
/// that others share does not show.
std::string with_numbers_of_its_own(const std::string& text) {
  std::string result;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 5, "cell ") == 0 && (at == 0 || text[at - 1] == '\n')) numbers.clear();
    result += text[at++];
    if (result.back() != '%') continue;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    result += std::to_string(numbers.try_emplace(text.substr(at, end - at), numbers.size()).first->second);
    at = end;
  }
  return result;
}

/// Sections with a title each.
class Sections {
 public:
  void add(const std::string& title, const std::string& text) {
    text_ += (text_.empty() ? "== " : "\n== ") + title + "\n" + text;
  }
  void add(const std::string& title, const CellGraph& cell) { add(title, with_numbers_of_its_own(print_graph(cell))); }
  /// Nothing where the cell has nothing to compute.
  void add(const std::string& title, const StatelessCell& cell) {
    if (!cell.cell.outs.empty()) add(title, cell.cell);
  }
  std::string text() const { return text_; }

 private:
  std::string text_;
};

std::string stage_name(std::size_t k) { return fmt::format("stage {}, ", k + 1); }

std::string numbers_of(const std::vector<int>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ",")); }

/// A cell with transitions, and which of its updates they are.
std::string text_of(const TransitionCell& transitions) {
  std::string text = with_numbers_of_its_own(print_graph(transitions.cell));
  for (const std::vector<int>& row : transitions.position) text += "position " + numbers_of(row) + "\n";
  if (!transitions.map.empty()) text += "map " + numbers_of(transitions.map) + "\n";
  return text;
}

std::string text_of(const ScalarizedCell& scalars, const CellGraph& cell) {
  const auto entry_text = [&](const SymbolEntry& e) {
    return fmt::format("{}[{}]", cell.symbols[e.symbol].name, e.entry);
  };
  std::string text;
  for (std::size_t i = 0; i < scalars.scalars.size(); ++i) {
    const Scalar& s = scalars.scalars[i];
    text += fmt::format("t{} = ", i);
    if (s.op == Op::Constant)
      text += fmt::format("{}", s.number);
    else if (s.op == Op::Read)
      text += entry_text(s.entry);
    else
      text += op_info(s.op).name;
    for (int a = 0; a < s.arity; ++a) text += fmt::format(" t{}", s.args[static_cast<std::size_t>(a)]);
    text += "\n";
  }
  for (std::size_t i = 0; i < scalars.states.size(); ++i)
    text += fmt::format("{}' = t{}\n", entry_text(scalars.states[i]), scalars.next[i]);
  return text;
}

}  // namespace

std::string print_lanes(const CellGraph& cell, const Structure& structure) {
  return with_numbers_of_its_own(print_staged(split_stages(cell, structure)));
}

std::string print_strategy_cells(const CellGraph& cell, const Structure& structure) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    const std::string name = stage_name(k);
    sections.add(name + "with transitions",
                 text_of(with_transition(stage.lanes, stage.lane, structure.stages[k].scannable)));
    sections.add(name + "Newton's system", linearised(stage.lanes, stage.lane).cell);
    sections.add(name + "Newton's guess", evaluated(stage.lanes).cell);
    sections.add(name + "residual", residual(stage.lanes, stage.lane).cell);
    const std::optional<RelaxedCell> relaxed = relax(cell, structure, static_cast<int>(k));
    if (!relaxed) continue;
    sections.add(name + "relaxed", relaxed->cell);
    sections.add(name + "relaxed: what no iteration changes", relaxed->fixed);
    sections.add(name + "relaxed: mixing terms", relaxed->mixing);
    sections.add(name + "relaxed: step", relaxed->step);
  }
  sections.add("step", staged.step);
  return sections.text();
}

std::string print_scalars(const CellGraph& cell, const Structure& structure) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    ScalarizeOptions options;
    options.sizes = sizes_to_show(stage.lanes, stage.lane);
    sections.add(stage_name(k) + "lanes", text_of(scalarize(stage.lanes, stage.lane, options), stage.lanes));
    const TransitionCell transitions = with_transition(stage.lanes, stage.lane, structure.stages[k].scannable);
    options.zero = zero_transitions(transitions, stage.lane, options);
    options.own = static_cast<int>(stage.states.size());
    sections.add(stage_name(k) + "with transitions",
                 text_of(scalarize(transitions.cell, stage.lane, options), transitions.cell));
  }
  return sections.text();
}

std::string print_llvm(const CellGraph& cell, const Structure& structure) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  EmitOptions options;
  options.vector_bits = 256;
  std::set<llvm_math::Request> functions;
  sections.add("the whole cell", emit_llvm_kernels(make_plan(cell, structure), options, functions).ir);
  options.whole_vectors = true;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    PlanOptions plan;
    plan.split_axis = staged.stages[k].lane;
    sections.add(stage_name(k) + "lanes",
                 emit_llvm_kernels(make_plan(staged.stages[k].lanes, Structure{}, plan), options, functions).ir);
  }
  return sections.text();
}

std::string print_nests(const CellGraph& cell, const Structure& structure, const SourceText& source) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  CudaNestsOptions options;
  options.source = &source;
  sections.add("the whole cell", emit_cuda_nests(make_plan(cell, structure), options).text);
  const auto add = [&](const std::string& title, const StatelessCell& part) {
    if (!part.cell.outs.empty()) sections.add(title, emit_cuda_nests(make_plan(part.cell, Structure{}), options).text);
  };
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    add(stage_name(k) + "once", staged.stages[k].once);
    add(stage_name(k) + "before it", staged.stages[k].before);
  }
  add("after", staged.after);
  return sections.text();
}

}  // namespace cellc
