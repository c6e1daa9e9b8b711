#include "runtime/cpu/cell_programs.h"

#include <algorithm>
#include <chrono>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/step_dependencies.h"
#include "runtime/cpu/joined_stages.h"
#include "runtime/data/bind.h"

namespace cellc {

namespace {

StepDependencies of_states(const CellGraph& cell) {
  std::vector<int> position(cell.symbols.size(), -1);
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    position[static_cast<std::size_t>(cell.updates[u].symbol)] = static_cast<int>(u);
  return step_dependencies(cell, std::vector<int>(cell.updates.size(), 0), position);
}

/// Whether a nest adds up a sum over states in another order than term by term: by vectors, of which each entry is a
/// sum of its own, or over several axes, whose order is the plan's. A lane adds term by term. Sums over other values
/// are made before the lanes, by a plan that adds them up as this one does.
bool adds_in_vectors(const Nest& nest, const Graph& graph, const StepDependencies& of) {
  const auto sums_states = [&](NodeId id) {
    return graph[id].op == Op::ReduceSum && of.reads[id] != 0 && of.feeds[id] != 0;
  };
  return nest.is_reduction() && std::any_of(nest.nodes.begin(), nest.nodes.end(), sums_states) &&
         (nest.bound_loops.size() > 1 || nest.bound_loops.back() == nest.vector_axis);
}

/// Whether a nest adds up, for a state, a product that another nest has rounded: of fewer axes (dt[d]*u[d] in a state
/// h[d,n]), of params alone, or made while a sum or maximum was still to come. Lanes mostly make both and round once.
bool adds_rounded_products(const Nest& nest, const Graph& graph, const StepDependencies& of) {
  const auto is_made_here = [&](NodeId id) {
    return std::find(nest.nodes.begin(), nest.nodes.end(), id) != nest.nodes.end() ||
           std::find(nest.inlined.begin(), nest.inlined.end(), id) != nest.inlined.end();
  };
  const auto adds_one = [&](NodeId id) {
    const Node& n = graph[id];
    if (of.feeds[id] == 0 || (n.op != Op::Add && n.op != Op::Sub && n.op != Op::ReduceSum)) return false;
    return std::any_of(n.args.begin(), n.args.end(), [&](NodeId a) {
      return (graph[a].op == Op::Mul || graph[a].op == Op::Square) && !is_made_here(a);
    });
  };
  return std::any_of(nest.nodes.begin(), nest.nodes.end(), adds_one) ||
         std::any_of(nest.inlined.begin(), nest.inlined.end(), adds_one);
}

/// Whether a product for a state is an out: lanes that make outs (fused_outs.h) have it as a state, and fuse none.
bool adds_outs(const CellGraph& cell, const StepDependencies& of) {
  const auto is_product_out = [&](NodeId id) {
    return (cell.graph[id].op == Op::Mul || cell.graph[id].op == Op::Square) &&
           std::any_of(cell.outs.begin(), cell.outs.end(), [&](const Out& out) { return out.value == id; });
  };
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& n = cell.graph[id];
    const bool adds = n.op == Op::Add || n.op == Op::Sub || n.op == Op::ReduceSum;
    if (adds && of.feeds[id] != 0 && std::any_of(n.args.begin(), n.args.end(), is_product_out)) return true;
  }
  return false;
}

bool rounds_otherwise_than_lanes(const Plan& plan, std::size_t stages) {
  const StepDependencies of = of_states(plan.cell);
  if (stages == 1 && adds_outs(plan.cell, of)) return true;
  for (const Kernel& kernel : plan.kernels)
    for (const Nest& nest : kernel.nests)
      if ((!kernel.once && adds_in_vectors(nest, plan.cell.graph, of)) ||
          adds_rounded_products(nest, plan.cell.graph, of))
        return true;
  return false;
}

}  // namespace

CellPrograms::CellPrograms(const CellGraph& cell, const Structure& structure, const CompileOptions& options)
    : cell_(cell), structure_(structure), options_(options), arithmetic_(options) {
  arithmetic_.dtype = arithmetic_of(options.dtype);
}

CellPrograms::~CellPrograms() = default;

const Program& CellPrograms::compiled(std::optional<Program>& program, const CellGraph& cell,
                                      const Structure& structure, const CompileOptions& options) {
  if (!program) {
    program.emplace(Program::compile(cell, structure, options));
    compile_ms_ += program->compile_ms();
    caches_.push_back(program->cache());
  }
  return *program;
}

const Program& CellPrograms::stateless(std::optional<Program>& program, const DerivedCell& cell) {
  return compiled(program, cell.cell, Structure{}, arithmetic_);
}

const Program& CellPrograms::whole() { return compiled(whole_, cell_, structure_, options_); }
const Program& CellPrograms::once(int k) { return stateless(once_[k], stages().stages[k].once); }
const Program& CellPrograms::before(int k) { return stateless(before_[k], stages().stages[k].before); }
const Program& CellPrograms::after() { return stateless(after_, stages().after); }

const StepsFromRows& CellPrograms::step() {
  if (!step_) {
    step_.emplace(StepsFromRows::compile(cell_, structure_, arithmetic_));
    compile_ms_ += step_->compile_ms();
    caches_.push_back(step_->cache());
  }
  return *step_;
}

const StagedCell& CellPrograms::stages() {
  if (staged_) return *staged_;
  const auto start = std::chrono::steady_clock::now();
  staged_.emplace(split_stages(cell_, structure_, options_.derive));
  compile_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (std::size_t k = 0; k < staged_->stages.size(); ++k)
    kernels_.push_back(std::make_unique<StageKernels>(staged_->stages[k], structure_.stages[k].scannable, arithmetic_));
  before_.resize(staged_->stages.size());
  once_.resize(staged_->stages.size());
  return *staged_;
}

StageKernels& CellPrograms::kernels(int k) {
  stages();
  return *kernels_[k];
}

JoinedStages* CellPrograms::joined() {
  if (!joined_) joined_ = JoinedStages::make(cell_, structure_, options_);
  return joined_->get();
}

bool CellPrograms::adds_otherwise() {
  if (!adds_otherwise_)
    adds_otherwise_ = rounds_otherwise_than_lanes(make_plan(cell_, structure_, {}), structure_.stages.size());
  return *adds_otherwise_;
}

bool CellPrograms::in_registers() {
  if (in_registers_) return *in_registers_;
  in_registers_ = arithmetic_.dtype == options_.dtype && steps_in_registers(cell_);
  return *in_registers_;
}

const CellPrograms::WithOuts* CellPrograms::with_outs(const Wanted& wanted) {
  if (!with_outs_) {
    with_outs_.emplace();
    const StageCells& plain = stages().stages[0];
    std::optional<StageCells> fused = fuse_outs(stages(), 0, {}, options_.derive);
    // What is made before the stage is there for the plain one.
    if (fused && fused->before.cell.outs.size() == plain.before.cell.outs.size() &&
        fused->once.cell.outs.size() == plain.once.cell.outs.size())
      *with_outs_ = std::make_unique<WithOuts>(WithOuts{std::move(*fused), nullptr});
  }
  if (!*with_outs_) return nullptr;
  WithOuts& found = **with_outs_;
  for (std::size_t o = 0; o < cell_.outs.size(); ++o)
    if (wanted.out(o) && std::none_of(found.stage.outs.begin(), found.stage.outs.end(),
                                      [&](const LaneOut& made) { return made.out == static_cast<int>(o); }))
      return nullptr;
  if (!found.kernel) {
    const auto start = std::chrono::steady_clock::now();
    found.kernel =
        std::make_unique<LaneKernel>(LaneKernel::compile(found.stage.lanes.cell, found.stage.lane, arithmetic_));
    compile_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    caches_.push_back(found.kernel->cache());
  }
  return &found;
}

Relaxation* CellPrograms::relaxation(int k) {
  relaxations_.resize(structure_.stages.size());
  if (!relaxations_[k]) relaxations_[k] = Relaxation::make(cell_, structure_, k, arithmetic_);
  return relaxations_[k]->get();
}

double CellPrograms::compile_ms() const {
  double ms = compile_ms_;
  for (const auto& k : kernels_) ms += k->compile_ms();
  if (joined_ && *joined_) ms += (*joined_)->compile_ms();
  for (const auto& r : relaxations_)
    if (r && *r) ms += (*r)->compile_ms();
  return ms;
}

CacheState CellPrograms::cache() const {
  std::vector<CacheState> all = caches_;
  for (const auto& k : kernels_) all.insert(all.end(), k->caches().begin(), k->caches().end());
  for (const auto& r : relaxations_)
    if (r && *r) all.insert(all.end(), (*r)->caches().begin(), (*r)->caches().end());
  const auto any = [&](CacheState state) { return std::find(all.begin(), all.end(), state) != all.end(); };
  if (any(CacheState::Miss)) return CacheState::Miss;
  return any(CacheState::Off) || all.empty() ? CacheState::Off : CacheState::Hit;
}

}  // namespace cellc
