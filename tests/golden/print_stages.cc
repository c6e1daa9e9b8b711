#include "tests/golden/print_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/derive/pipeline.h"
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
  std::string text() const { return text_; }

 private:
  std::string text_;
};

std::string stage_name(std::size_t k) { return fmt::format("stage {}, ", k + 1); }

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

std::string print_scalars(const CellGraph& cell, const Structure& structure) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    ScalarizeOptions options;
    options.sizes = sizes_to_show(stage.lanes.cell, stage.lane);
    sections.add(stage_name(k) + "lanes",
                 text_of(scalar_lane(stage.lanes.cell, stage.lane, options).scalars, stage.lanes.cell));
    const TransitionCell transitions = with_transition(stage.lanes, stage.lane, structure.stages[k].scannable);
    options.zero = zero_transitions(transitions, stage.lane, options);
    options.own = static_cast<int>(stage.states.size());
    sections.add(stage_name(k) + "with transitions",
                 text_of(scalar_lane(transitions.cell, stage.lane, options).scalars, transitions.cell));
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
                 emit_llvm_kernels(make_plan(staged.stages[k].lanes.cell, Structure{}, plan), options, functions).ir);
  }
  return sections.text();
}

std::string print_nests(const CellGraph& cell, const Structure& structure, const SourceText& source) {
  const StagedCell staged = split_stages(cell, structure);
  Sections sections;
  CudaNestsOptions options;
  options.source = &source;
  sections.add("the whole cell", emit_cuda_nests(make_plan(cell, structure), options).text);
  const auto add = [&](const std::string& title, const DerivedCell& part) {
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
