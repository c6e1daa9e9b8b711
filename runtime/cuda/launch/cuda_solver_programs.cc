// Programs of a cell on a GPU, made when a run first needs them: of stages in each form of their lanes, of loop nests
// around them and of whole steps.
#include <tuple>

#include "runtime/cuda/launch/cuda_solver_impl.h"
#include "runtime/cuda/launch/nest_tables.h"

namespace cellc {

const StagedCell& CudaSolver::Impl::stages_of_cell() {
  if (staged) return *staged;
  staged.emplace(split_stages(cell, structure, derive));
  for (int form = 0; form < kForms; ++form) {
    before[form].resize(staged->stages.size());
    once[form].resize(staged->stages.size());
  }
  for (const StageCells& s : staged->stages) remade.emplace_back(s.remade.size());
  observed.resize(staged->stages.size());
  for (std::size_t k = 0; k < staged->stages.size(); ++k)
    summed.push_back(fuse_reductions(*staged, static_cast<int>(k), derive, outs_in_lanes));
  with_outs.resize(staged->stages.size());
  for (std::size_t k = 0; k < staged->stages.size(); ++k)
    with_outs[k] = summed[k] && !outs_in_lanes
                       ? fuse_sum_outs(cell, structure, static_cast<int>(k), derive)
                       : fuse_outs(*staged, static_cast<int>(k), outs_in_lanes.value_or(AccumulatedOuts()), derive);
  return *staged;
}

void CudaSolver::Impl::use_storage(Dtype storage) {
  stages_of_cell();
  if (running == storage && !stages.empty()) return;
  running = storage;
  stages.clear();
  summing.clear();
  making_outs.clear();
  for (auto& programs : two_passes) programs.clear();
  remaking.clear();
  for (std::size_t k = 0; k < staged->stages.size(); ++k) {
    const Scannable scannable = structure.stages[k].scannable;
    stages.push_back(std::make_unique<StageProgram>(gpu, cell, staged->stages[k], scannable, storage, source, derive));
    summing.push_back(
        summed[k] ? std::make_unique<StageProgram>(gpu, cell, summed[k]->stage, scannable, storage, source, derive)
                  : nullptr);
    making_outs.push_back(with_outs[k] ? std::make_unique<StageProgram>(gpu, cell, *with_outs[k], scannable, storage,
                                                                        source, derive, &staged->stages[k])
                                       : nullptr);
    remaking.push_back(
        staged->stages[k].remade.empty()
            ? nullptr
            : std::make_unique<StageProgram>(gpu, cell, staged->stages[k], scannable, storage, source, derive));
    // Forward runs and shipped code have the same kernels, but for walks that are whole.
    if (summing[k] && outs_in_lanes) summing[k]->compile_for_runs();
    if (making_outs[k] && making_outs[k]->makes_sums() && !outs_in_lanes) making_outs[k]->compile_for_runs();
    for (const Form form : {kSums, kOuts}) {
      const bool sums = form == kSums ? summed[k].has_value() : with_outs[k] && !with_outs[k]->sums.empty();
      two_passes[form].push_back(nullptr);
      if (!sums || outs_in_lanes || lanes_of(k, form).outer > 0) continue;
      two_passes[form].back() =
          std::make_unique<StageProgram>(gpu, cell, lanes_of(k, form), scannable, storage, source, derive);
      two_passes[form].back()->walk_in_two_passes();
    }
  }
  forget_nests();
  repeat_scans();
}

void CudaSolver::Impl::repeat_scans() {
  for (auto* programs : {&stages, &making_outs, &two_passes[kSums], &two_passes[kOuts]})
    for (auto& program : *programs)
      if (program) {
        program->repeat_bits(repeats());
        // Who names a tolerance means it; and where a stage is relaxed all steps are looked at, by one.
        program->loosen_scans(outs_in_lanes && !solve.tolerance && !asks_for(solve, Strategy::Relaxation));
      }
}

void CudaSolver::Impl::forget_nests() {
  after.reset();
  after_summing.clear();
  after_outs.clear();
  step.reset();
  for (auto* forms : {&before, &once})
    for (auto& programs : *forms)
      for (auto& p : programs) p.reset();
  for (auto& programs : remade)
    for (auto& p : programs) p.reset();
}

NestOptions CudaSolver::Impl::nest_options(const DerivedCell* between) {
  NestOptions options;
  if (between) std::tie(options.wide_inputs, options.wide_histories) = wide_arrays(*between);
  options.source = source;
  options.factors = product_factors(solve.products, dtype);
  options.wide = solve.wide_products;
  options.compiled = [this](const GpuModule& module) {
    compile_ms += module.compile_ms;
    caches.push_back(module.cache);
  };
  return options;
}

NestProgram& CudaSolver::Impl::nest_program(std::optional<NestProgram>& program, const CellGraph& graph,
                                            const Structure& of, Dtype storage,
                                            const std::vector<PersistentCode>& lives_through_steps,
                                            const DerivedCell* between) {
  if (!program) {
    NestOptions options = nest_options(between);
    options.persistent = lives_through_steps;
    program.emplace(NestProgram::compile(gpu, graph, of, storage, options));
    made_nests = true;
    compile_ms += program->compile_ms();
    caches.push_back(program->cache());
  }
  return *program;
}

double CudaSolver::Impl::compiled_ms() const {
  double ms = compile_ms + relaxations.compile_ms() + stepped.compile_ms();
  for (const auto& s : stages) ms += s->compile_ms();
  for (const auto* programs : {&summing, &making_outs, &remaking, &two_passes[kSums], &two_passes[kOuts]})
    for (const auto& s : *programs) ms += s ? s->compile_ms() : 0;
  return ms;
}

NestProgram& CudaSolver::Impl::whole_program() {
  if (execution.persistent.empty()) return nest_program(whole, cell, structure, execution.storage);
  return nest_program(persistent[execution.persistent[0].shape], cell, structure, execution.storage,
                      execution.persistent);
}

StageProgram& CudaSolver::Impl::program(std::size_t k) const {
  const Form form = form_of(k);
  if (form != kPlain && execution.stages[k].two_passes) return *two_passes[form][k];
  return form == kSums ? *summing[k] : form == kOuts ? *making_outs[k] : *stages[k];
}

CudaSolver::Impl::LeftOuts* CudaSolver::Impl::left_outs() {
  if (execution.fuses_any(outs_wanted)) return &after_summing.at(execution.sum_parts);
  const auto made = outs_wanted || execution.walks_alone ? after_outs.find(execution.makes_outs) : after_outs.end();
  return made == after_outs.end() ? nullptr : &made->second;
}

const DerivedCell& CudaSolver::Impl::after_cell() const {
  const LeftOuts* left = const_cast<Impl*>(this)->left_outs();
  return left ? left->cell : staged->after;
}

}  // namespace cellc
