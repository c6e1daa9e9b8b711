#include "runtime/cuda/launch/nest_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>

#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/cuda/launch/stage_tables.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/data/run.h"
#include "runtime/data/storage_of.h"
// After the tables of rows.
#include "kernels-templates/host/host_cell.h"

namespace cellc {

// The device reads them as rows of numbers of 8 bytes.
static_assert(sizeof(NestFrame) == 19 * 8 && sizeof(ProductArguments) == sizeof(NestFrame) + 18 * 8);

namespace {

struct Emitted {
  Plan plan;
  GpuSource source;
  std::vector<NestKernel> kernels;
};

/// Whether any product reads rows that are stored so; inputs that are wide have the arithmetic's numbers.
bool reads_rows(const Plan& plan, const std::vector<char>& wide_inputs, bool stored) {
  return std::any_of(plan.products.begin(), plan.products.end(), [&](const Product& p) {
    const auto operand = static_cast<std::size_t>(p.operand.id);
    const bool is_wide = p.operand.place == Place::Input && operand < wide_inputs.size() && wide_inputs[operand];
    return (reads_stored_rows(plan, p) && !is_wide) == stored;
  });
}

Emitted emit_nests(const CellGraph& cell, const Structure& structure, Dtype dtype, const NestOptions& options) {
  CudaNestsOptions emit;
  emit.storage = storage_of(dtype);
  emit.wide_inputs = options.wide_inputs;
  emit.wide_histories = options.wide_histories;
  emit.wide_states = options.wide_states;
  emit.wide_outs = options.wide_outs;
  emit.source = options.source;
  Emitted result;
  result.plan = make_plan(cell, structure, plan_options(cell, dtype, options.factors));
  emit.prelude = storage_macro(dtype);
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"};
  if (!result.plan.products.empty()) {
    const ProductTemplate product = product_template(options.factors, dtype);
    emit.prelude += product.macro;
    if (reads_rows(result.plan, options.wide_inputs, true))
      emit.prelude += stored_operands(reads_rows(result.plan, options.wide_inputs, false));
    parts.insert(parts.end(), product.parts.begin(), product.parts.end());
  }
  emit.persistent = options.persistent;
  if (!options.persistent.empty()) {
    const PersistentShape& shape = options.persistent[0].shape;
    const bool tensor = shape.numbers != StationaryNumbers::Real;
    if (tensor && result.plan.products.empty()) {
      const ProductTemplate product = product_template(options.factors, dtype);
      emit.prelude += product.macro;
      parts.push_back(product.parts[0]);
    }
    if (tensor) emit.prelude += "#define CELLC_PERSISTENT_TENSOR 1\n";
    emit.prelude += fmt::format(
        "namespace cellc {{\nstruct Persistent {{ static constexpr int kBlocks = {}, kSlots = {}, kThreads = {}; "
        "static constexpr bool kGrouped = {}; }};\n}}  // namespace cellc\n",
        shape.blocks, shape.slots, shape.threads, shape.grouped);
    parts.insert(parts.end(), {"exchange.cuh", "group_exchange.cuh", "persistent.cuh"});
  }
  for (const char* part : parts) emit.prelude += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  CudaNestsModule module = emit_cuda_nests(result.plan, emit);
  result.source = {std::move(module.name), std::move(module.text), {}};
  result.kernels = std::move(module.kernels);
  return result;
}

GpuSource wide_products_source(ProductFactors factors, Dtype storage, const char* last) {
  const ProductTemplate product = product_template(factors, storage);
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "nest_frame.cuh", "nests.cuh"};
  parts.insert(parts.end(), product.parts.begin(), product.parts.end());
  for (const char* part : wide_product_parts()) parts.push_back(part);
  parts.push_back(last);
  std::string text = storage_macro(storage) + product.macro;
  for (const char* part : parts) text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  return {std::string(last).substr(0, std::string_view(last).size() - 1), std::move(text), {"-arch=sm_90a"}};
}

}  // namespace

ProductFactors product_factors(Products products, Dtype storage) {
  switch (products) {
    case Products::Tf32x3:
      return ProductFactors::Tf32x3;
    case Products::Tf32:
      return ProductFactors::Tf32;
    case Products::Bf16:
      return storage == Dtype::F64 ? ProductFactors::Real : ProductFactors::BF16;
    case Products::F16:
      return storage == Dtype::F64 ? ProductFactors::Real : ProductFactors::F16;
    case Products::Storage:
      return storage == Dtype::BF16  ? ProductFactors::BF16
             : storage == Dtype::F16 ? ProductFactors::F16
                                     : ProductFactors::Real;
    case Products::F32:
      break;
  }
  return ProductFactors::Real;
}

PlanOptions plan_options(const CellGraph& cell, Dtype storage, ProductFactors factors) {
  PlanOptions options;
  options.narrow_storage = size_of(storage) == 2;
  options.hoist_products = !cell.has_lines();
  options.reads_stored = factors != ProductFactors::Real;
  options.rounds_operands = factors == ProductFactors::BF16 || factors == ProductFactors::F16;
  options.products_to_outs = true;
  return options;
}

struct NestProgram::Impl {
  Impl(Gpu& on, Dtype storage, const NestOptions& given, Emitted code)
      : gpu(on), dtype(storage), options(given), emitted(std::move(code)) {}

  Gpu& gpu;
  Dtype dtype;
  NestOptions options;
  Emitted emitted;
  NestTables tables;
  GpuModule module;
  std::vector<GpuFunction> functions;         ///< by the numbers of the tables: kernels, then products
  cellc_wide_products wide{}, wide_stored{};  ///< of `tables`, where a card and factors have such kernels
  std::map<std::tuple<int, int, std::int64_t>, int> resident;
  GpuBuffer memory;  ///< grows and never shrinks

  // The run
  const NestRun* run = nullptr;
  GpuStream stream = 0;
  std::int64_t sequences = 0, rows = 0;

  const Plan& plan() const { return emitted.plan; }
  const CellGraph& cell() const { return emitted.plan.cell; }
  std::int64_t length(AxisId axis) const {
    const Axis& header = cell().graph.axis(cell().graph.axis(axis).extent_of);
    const auto it = run->sizes.find(cell().graph.axis(axis).extent_of);
    if (it != run->sizes.end()) return it->second;
    if (header.fixed) return *header.fixed;
    throw RequestError(fmt::format("the length of axis {} is not given", header.name));
  }
  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= length(a);
    return n;
  }

  // Checks -----------------------------------------------------------------------------------------

  void begin(const NestRun& given, GpuStream on) {
    run = &given;
    stream = on;
    if (given.offsets.empty()) throw RequestError("a run needs the offsets of its sequences");
    if (given.symbols.size() != cell().symbols.size() || given.states.size() != cell().updates.size() ||
        given.finals.size() != cell().updates.size() || given.outs.size() != cell().outs.size()) {
      throw std::logic_error("rows: arrays and symbols do not match");
    }
    sequences = static_cast<std::int64_t>(given.offsets.size()) - 1;
    rows = given.offsets.back();
    if (given.offsets.front() != 0) throw RequestError("the first sequence must start at row 0");
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t steps = given.offsets[s + 1] - given.offsets[s];
      if (steps < 0) throw RequestError(fmt::format("sequence {} ends before it starts", s));
    }
    const auto need = [](GpuAddress address, std::int64_t count, const std::string& name) {
      if (!address && count > 0) throw RequestError(fmt::format("{} is not given", name));
    };
    need(given.device_offsets, sequences, "the array of offsets");
    for (std::size_t s = 0; s < cell().symbols.size(); ++s) {
      const Symbol& symbol = cell().symbols[s];
      const std::int64_t n = entries(symbol.axes);
      if (symbol.kind == SymbolKind::Param) need(given.symbols[s].data, n, symbol.name);
      if (symbol.kind == SymbolKind::Input) need(given.symbols[s].data, n * rows, symbol.name);
      if (symbol.kind == SymbolKind::Input && symbol.max_lag != 0) {
        need(given.symbols[s].history, n * rows, symbol.name + ".lag");
      }
    }
    for (std::size_t i = 0; i < cell().updates.size(); ++i) {
      const Symbol& symbol = cell().symbols[cell().updates[i].symbol];
      if (cellc_reads_state_rows(&tables.rows, static_cast<int>(i)))
        need(given.states[i], entries(symbol.index) * rows, symbol.name);
      need(given.finals[i], entries(symbol.index) * sequences, symbol.name + ".final");
    }
    for (std::size_t i = 0; i < cell().outs.size(); ++i) {
      need(given.outs[i], entries(cell().outs[i].index) * rows, cell().outs[i].name);
    }
  }

  // Launches ---------------------------------------------------------------------------------------

  /// Products by the instructions of this card alone, whose two kernels are the last. They are code of their own, the
  /// same for all cells, which the first run that needs it compiles.
  void allow_wide_products() {
    const ProductTemplate form = product_template(options.factors, dtype);
    if (plan().products.empty() || form.wide_slot_bytes == 0 || options.wide == WideProducts::Never ||
        gpu.facts().architecture() != "sm_90")
      return;
    wide = wide_products(form);
    wide_stored = wide_stored_products(form);
    for (cellc_wide_products* one : {&wide, &wide_stored}) {
      one->prepare = static_cast<int>(functions.size());
      one->multiply = one->prepare + 1;
      one->always = options.wide == WideProducts::Always;
      functions.resize(functions.size() + 2);
    }
    tables.rows.wide = &wide;
    if (form.stored_slot_bytes > 0) tables.rows.wide_stored = &wide_stored;
  }
  const GpuFunction& function(int kernel) {
    if (!functions[kernel]) {
      const bool stored = kernel >= wide_stored.prepare;
      const GpuModule own =
          gpu.load(wide_products_source(options.factors, dtype, stored ? "product_stored.cuh" : "product_wgmma.cuh"));
      const cellc_wide_products& of = stored ? wide_stored : wide;
      functions[of.prepare] = gpu.function(own, stored ? "cellc_prepare_stored" : "cellc_prepare_matrix");
      functions[of.multiply] = gpu.function(own, stored ? "cellc_product_wgmma_stored" : "cellc_product_wgmma");
      if (options.compiled) options.compiled(own);
    }
    return functions[kernel];
  }

  static int resident_blocks(void* self, int kernel, int threads, std::int64_t shared) {
    Impl& impl = *static_cast<Impl*>(self);
    const auto [it, is_new] = impl.resident.try_emplace({kernel, threads, shared});
    if (is_new) it->second = std::max(1, impl.gpu.resident_blocks(impl.function(kernel), threads, shared));
    return it->second;
  }

  static int launch(void* self, int kernel, cellc_grid grid, std::int64_t shared, const void* argument,
                    std::size_t bytes) {
    Impl& impl = *static_cast<Impl*>(self);
    GpuLaunch shape;
    shape.argument_bytes = bytes;
    shape.grid.x = grid.blocks;
    shape.cluster = std::max(1u, grid.cluster);
    shape.cooperative = grid.cooperative != 0;
    shape.block.x = grid.threads;
    shape.shared_bytes = shared;
    shape.stream = impl.stream;
    shape.early = !shape.cooperative;
    void* arguments = const_cast<void*>(argument);
    impl.gpu.launch(impl.function(kernel), shape, &arguments);
    return 0;
  }

  static int zero(void* self, std::uint64_t address, std::int64_t bytes) {
    Impl& impl = *static_cast<Impl*>(self);
    impl.gpu.zero(address, static_cast<std::size_t>(bytes), impl.stream);
    return 0;
  }

  /// `window`, `begin`, `counted`: of cellc_nest_run.
  void queue(std::int64_t window = 0, std::int64_t begin = 0, GpuAddress counted = 0) {
    const std::vector<std::int64_t> lengths = lengths_by_number(cell(), run->sizes);
    std::vector<cellc_nest_array> symbols;
    for (const NestArray& a : run->symbols) symbols.push_back({a.data, a.row_stride, a.history, a.history_depth});
    const cellc_device device{this,   host_facts(gpu.facts()), &Impl::resident_blocks, &Impl::launch, &Impl::zero,
                              nullptr};
    const cellc_nest_run work{lengths.data(),
                              symbols.data(),
                              run->states.data(),
                              run->finals.data(),
                              run->outs.data(),
                              sequences,
                              0,
                              run->offsets.data(),
                              run->device_offsets,
                              run->reverse,
                              options.chunk_bytes,
                              window,
                              begin,
                              counted};
    if (window <= 0) {  // windows have what the first call left for them
      const auto bytes = static_cast<std::size_t>(cellc_nest_bytes(&tables.rows, &work, &device));
      if (memory.bytes() < bytes) {
        memory = GpuBuffer();  // the old one first: both need not fit
        memory = GpuBuffer(gpu, bytes);
      }
    }
    cellc_nest_queue(&tables.rows, &work, &device, memory.address());
  }
};

NestProgram::NestProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NestProgram::~NestProgram() = default;
NestProgram::NestProgram(NestProgram&&) noexcept = default;

GpuSource NestProgram::emit(const CellGraph& cell, const Structure& structure, Dtype dtype,
                            const NestOptions& options) {
  return emit_nests(cell, structure, dtype, options).source;
}

NestProgram NestProgram::compile(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                 const NestOptions& options) {
  auto impl = std::make_unique<Impl>(gpu, dtype, options, emit_nests(cell, structure, dtype, options));
  impl->options.source = nullptr;
  impl->module = gpu.load(impl->emitted.source);
  for (const NestKernel& kernel : impl->emitted.kernels) {
    impl->functions.push_back(gpu.function(impl->module, kernel.function));
  }
  for (const bool stored : {false, true})
    impl->functions.push_back(reads_rows(impl->plan(), options.wide_inputs, stored)
                                  ? gpu.function(impl->module, stored ? "cellc_product_stored" : "cellc_product")
                                  : GpuFunction());
  impl->tables = nest_tables(impl->plan(), impl->emitted.kernels, product_template(options.factors, dtype),
                             dtype == Dtype::F64, options.wide_inputs, options.wide_outs);
  impl->allow_wide_products();
  return NestProgram(std::move(impl));
}

bool NestProgram::needs_rows(int update) const {
  const CellGraph& cell = impl_->cell();
  const int state = cell.updates[static_cast<std::size_t>(update)].symbol;
  return std::any_of(cell.symbols.begin(), cell.symbols.end(), [&](const Symbol& s) { return s.line_of == state; }) ||
         cellc_reads_state_rows(&impl_->tables.rows, update);
}

void NestProgram::run(const NestRun& run, GpuStream stream) {
  impl_->begin(run, stream);
  impl_->queue();
}

void NestProgram::prepare_windows(const NestRun& run, std::int64_t steps, GpuStream stream) {
  if (!impl_->cell().updates.empty()) throw std::logic_error("rows: windows of a cell with states");
  impl_->begin(run, stream);
  impl_->queue(-steps);
}

void NestProgram::run_window(const NestRun& run, std::int64_t steps, std::int64_t begin, GpuAddress counted,
                             GpuStream stream) {
  impl_->begin(run, stream);
  impl_->queue(steps, begin, counted);
}

GpuAddress NestProgram::memory() const { return impl_->memory.address(); }

int NestProgram::kernels_of_window(const CellGraph& cell, Dtype dtype) {
  const Emitted emitted = emit_nests(cell, Structure{}, dtype, {});
  int count = 0;
  for (const Phase& phase : emitted.plan.phases)
    count += phase.product
                 ? 1
                 : static_cast<int>(std::count_if(emitted.kernels.begin(), emitted.kernels.end(),
                                                  [&](const NestKernel& k) { return k.kernel == phase.index; }));
  return count;
}

int NestProgram::resident_clusters() const {
  int least = std::numeric_limits<int>::max();
  for (std::size_t k = 0; k < impl_->emitted.kernels.size(); ++k) {
    const NestKernel& kernel = impl_->emitted.kernels[k];
    if (kernel.exchange_bytes > 0)
      least = std::min(least, impl_->gpu.resident_blocks(impl_->functions[k], kernel.threads, kernel.shared_bytes) *
                                  impl_->gpu.facts().multiprocessors / kernel.cluster);
    else if (kernel.cluster > 1)
      least = std::min(least, impl_->gpu.resident_clusters(impl_->functions[k], kernel.threads, kernel.shared_bytes,
                                                           kernel.cluster));
  }
  return least;
}

double NestProgram::compile_ms() const { return impl_->module.compile_ms; }
CacheState NestProgram::cache() const { return impl_->module.cache; }
const GpuSource& NestProgram::source() const { return impl_->emitted.source; }

}  // namespace cellc
