#include "tests/engines/cuda_lane_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/diagnostic.h"

namespace cellc {

Lowered lowered(const SourceText& source, const File& file, const Cell& tree) {
  Diagnostics diagnostics;
  std::optional<CellGraph> cell = lower(file, tree, diagnostics);
  if (!cell || !diagnostics.empty()) throw std::runtime_error(diagnostics.format(source));
  Lowered result{std::move(*cell), {}};
  result.structure = analyse(result.cell, differentiate(result.cell));
  return result;
}

CudaLaneOptions options_for(const Lowered& cell, const SourceText& source, const Emitted& e, Storage storage) {
  CudaLaneOptions options;
  options.storage = storage;
  options.sizes = e.sizes;
  options.source = &source;
  options.written = &cell.cell;
  return options;
}

void emit_all(const SourceText& source, const File& file, const Cell& tree, const oracle::Ranges& ranges,
              Storage storage, std::vector<Emitted>& all) {
  const Lowered cell = lowered(source, file, tree);
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    const std::string label = fmt::format("{}: {}, stage {}", source.path(), tree.name, k + 1);
    const auto begin = [&](const char* what, const CellGraph& derived) {
      return Emitted{
          label + ", " + what, derived, stage.lane, sizes_to_show(stage.lanes.cell, stage.lane), ranges, {}, {}, -1};
    };
    const auto add = [&](const char* what, const CellGraph& derived) {
      Emitted e = begin(what, derived);
      e.code = emit_cuda_lane(e.cell, e.lane, options_for(cell, source, e, storage));
      all.push_back(std::move(e));
      return static_cast<int>(all.size()) - 1;
    };
    const auto add_carried = [&](const char* what, const TransitionCell& transitions, int step) {
      Emitted e = begin(what, transitions.cell);
      e.transitions = transitions;
      e.step = step;
      CudaLaneOptions options = options_for(cell, source, e, storage);
      options.name = "StepWithTransition";
      e.code = emit_cuda_step_with_transition(transitions, e.lane, options);
      all.push_back(std::move(e));
    };
    const int step = add("step", stage.lanes.cell);
    add_carried("carried", with_transition(stage.lanes, stage.lane, cell.structure.stages[k].scannable), step);
    const DerivedCell newton = linearised(stage.lanes, stage.lane);
    const int linear = add("newton", newton.cell);
    add_carried("newton carried", with_transition(newton, stage.lane, Scannable::Affine), linear);
    add("guess", evaluated(stage.lanes).cell);
    add("residual", residual(stage.lanes, stage.lane).cell);
  }
}

namespace {

constexpr const char* kHead = R"(#define CELLC_EMULATOR 1
#define CELLC_DEVICE inline
)";
/// A step from what is in the arrays: as lanes do, who make what they hold of their params first.
constexpr const char* kStep = R"(
template <class Cell>
void step_of(const Real* param, const Real* input, const Real* state, Real* next, const Real* const* uniform) {
  if constexpr (Cell::kHasPrologue) {
    Real held[Cell::kInvariants];
    Cell::hold(param, held, uniform);
    Cell::step(held, input, state, next, uniform);
  } else {
    Cell::step(param, input, state, next, uniform);
  }
}
)";

}  // namespace

std::string translation_unit(const std::vector<Emitted>& all, Storage storage, const std::string& before) {
  std::string text = before + kHead;
  text += storage == Storage::F64 ? "using Real = double;\n" : "using Real = float;\n";
  text += fmt::format("#include \"{}/kernels-templates/device/math.cuh\"\n", CELLC_SOURCE_DIR);
  text += kStep;
  std::string steps, rules;
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += fmt::format("namespace cell_{} {{\n{}}}\n", i, all[i].code.text);
    steps += fmt::format("  step_of<cell_{}::{}>,\n", i, all[i].transitions ? "StepWithTransition" : "Step");
    rules += all[i].transitions ? fmt::format("  cell_{}::TransitionRule::transition,\n", i) : "  nullptr,\n";
  }
  text += "using StepFunction = void (*)(const Real*, const Real*, const Real*, Real*, const Real* const*);\n";
  text += "extern \"C\" const StepFunction steps[] = {\n" + steps + "};\n";
  text += "extern \"C\" int (*const rules[])(int) = {\n" + rules + "};\n";
  return text;
}

Values draw(const Emitted& e, oracle::Random& random, bool f32) {
  Values values;
  for (std::size_t s = 0; s < e.cell.symbols.size(); ++s) {
    const Symbol& symbol = e.cell.symbols[s];
    Range range{-1, 1};
    if (symbol.range) range = *symbol.range;
    // "before.h" and "value.h" lie where h does.
    const std::string name = symbol.name.substr(symbol.name.rfind('.') + 1);
    if (const auto it = e.ranges.find(name); it != e.ranges.end()) range = it->second;
    auto& list = values.emplace_back();
    for (std::int64_t i = entries_of(e.cell, e.lane, static_cast<int>(s), e.sizes); i-- > 0;) {
      list.push_back(random.uniform(range.low, range.high));
      if (f32) list.back() = static_cast<float>(list.back());
    }
  }
  return values;
}

std::vector<double> reference(const Emitted& e, const Values& values) {
  Environment environment;
  environment.sizes = e.sizes;
  environment.sizes[e.lane] = 1;
  const Evaluator* sizes = nullptr;
  environment.read = [&](int symbol, const std::vector<std::int64_t>& position, int) {
    std::int64_t at = 0;
    const auto& axes = e.cell.symbols[symbol].axes;
    for (std::size_t p = 0; p < axes.size(); ++p)
      if (axes[p] != e.lane) at = at * sizes->length(axes[p]) + position[p];
    return values[symbol].at(at);
  };
  Evaluator evaluator(e.cell, environment);
  sizes = &evaluator;
  std::map<SymbolEntry, double> next;
  for (const StateUpdate& u : e.cell.updates) {
    const Tensor t = evaluator.value_over(u.value, e.cell.symbols[u.symbol].index);
    for (std::size_t i = 0; i < t.data.size(); ++i) next[{u.symbol, static_cast<std::int64_t>(i)}] = t.data[i];
  }
  std::vector<double> list;
  for (const SymbolEntry& s : e.code.states) list.push_back(next.at(s));
  return list;
}

bool near(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::fabs(got - want) <= tolerance * (1 + std::fabs(want));
}

std::vector<Emitted> all_emitted(Storage storage) {
  std::vector<Emitted> all;
  for (const oracle::Example& example : oracle::all_cells())
    for (const Cell& tree : example.tree.cells)
      emit_all(example.source, example.tree, tree, example.ranges, storage, all);
  return all;
}

void clear_left_out(const Emitted& e, Values& values) {
  for (const StateUpdate& u : e.cell.updates)
    for (std::size_t i = 0; i < values[u.symbol].size(); ++i) {
      const SymbolEntry at{u.symbol, static_cast<std::int64_t>(i)};
      if (std::find(e.code.states.begin(), e.code.states.end(), at) == e.code.states.end()) values[u.symbol][i] = 0;
    }
}

}  // namespace cellc
