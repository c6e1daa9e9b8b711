#include "runtime/cuda/launch/backward_on_gpu.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "compiler/graph/delay_lines.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

void* pointer(GpuAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace

BackwardOnGpu::BackwardOnGpu(Gpu& gpu, const CellGraph& cell, const AdjointRun& adjoint, Dtype arithmetic,
                             const DeriveHooks& derive)
    : gpu_(gpu),
      cell_(cell),
      adjoint_(adjoint),
      kernels_(gpu, arithmetic),
      solver_(gpu, adjoint.cell(), adjoint.structure(), arithmetic, nullptr, derive, summands()) {}

/// Outs of the adjoint that are nothing but summands of one param's gradient.
AccumulatedOuts BackwardOnGpu::summands() const {
  const DerivedCell& adjoint = adjoint_.adjoint().adjoint;
  AccumulatedOuts result(adjoint.cell.outs.size());
  for (std::size_t o = 0; o < result.size(); ++o)
    result[o] = adjoint.sinks[adjoint.cell.updates.size() + o].kind == ArraySink::Kind::Factor;
  for (const ParamGradient& param : adjoint_.adjoint().params)
    for (const StepProduct& product : param.products) {
      if (!product.right) continue;
      for (const StepFactor& f : {product.left, *product.right})
        if (f.is_out) result[static_cast<std::size_t>(f.id)] = false;
    }
  return result;
}

std::int64_t BackwardOnGpu::entries(const std::vector<AxisId>& axes) const {
  std::int64_t count = 1;
  for (const AxisId a : axes) count *= shape_.sizes.at(adjoint_.cell().graph.axis(a).extent_of);
  return count;
}

GpuAddress BackwardOnGpu::reserve(GpuBuffer& buffer, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(kernels_.real());
  if (buffer.bytes() < bytes) buffer = GpuBuffer(gpu_, bytes);
  return buffer.address();
}

void BackwardOnGpu::prepare(const BoundRun& forward, const SolveOptions& options, bool waits,
                            const std::string& unrelaxed) {
  options_ = options;
  shape_.sizes = forward.sizes;
  shape_.offsets = forward.offsets;
  shape_.reverse = forward.reverse;
  shape_.histories = forward.histories;
  BoundRun run;  // of the adjoint
  run.sizes = forward.sizes;
  run.offsets = forward.offsets;
  run.reverse = !forward.reverse;
  run.symbols.resize(adjoint_.cell().symbols.size());
  run.histories.resize(adjoint_.cell().symbols.size());
  for (const DelayLine& line : delay_lines(adjoint_.cell())) {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(run.offsets.size()) - 1, line.deepest};
    for (const AxisId a : adjoint_.cell().symbols[static_cast<std::size_t>(line.symbol)].axes)
      shape.push_back(run.sizes.at(adjoint_.cell().graph.axis(a).extent_of));
    run.histories[static_cast<std::size_t>(line.symbol)] = Array::view(kernels_.real(), shape, nullptr);
  }
  SolveOptions of_adjoint = options;
  if (of_adjoint.solver == Strategy::Relaxation && !waits) of_adjoint.solver = Strategy::Auto;
  solver_.prepare(run, of_adjoint, waits, unrelaxed);
  kernels_.multiply_in(product_factors(options.products, kernels_.real()));
  scales_ = kernels_.factors() == ProductFactors::F16 && multiplies();
  if (offsets_.bytes() < forward.offsets.size() * 8) offsets_ = GpuBuffer(gpu_, forward.offsets.size() * 8);
  gpu_.copy_in(offsets_.address(), forward.offsets.data(), forward.offsets.size() * 8, 0);
  uniform_ = true;
  for (std::size_t s = 1; s + 1 < forward.offsets.size(); ++s)
    uniform_ = uniform_ && forward.offsets[s + 1] - forward.offsets[s] == forward.offsets[1] - forward.offsets[0];
  sums_.clear();
  for (const ParamGradient& param : adjoint_.adjoint().params) sums_.emplace_back(param.products.size());
}

/// Of a symbol's gradient.
std::int64_t BackwardOnGpu::gradient_entries(const Symbol& symbol) const {
  const std::int64_t first = symbol.kind == SymbolKind::Param   ? 1
                             : symbol.kind == SymbolKind::Input ? shape_.offsets.back()
                                                                : static_cast<std::int64_t>(shape_.offsets.size()) - 1;
  return first * entries(symbol.axes);
}
std::int64_t BackwardOnGpu::history_entries(std::size_t symbol) const {
  return (static_cast<std::int64_t>(shape_.offsets.size()) - 1) * shape_.histories[symbol].shape()[1] *
         entries(cell_.symbols[symbol].axes);
}

/// Those that nobody brings memory for.
void BackwardOnGpu::reserve_gradients() {
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
    if (!placed_.gradients[s] && cell_.symbols[s].line_of < 0)
      placed_.gradients[s] = reserve(gradients_[s], gradient_entries(cell_.symbols[s]));
    if (s < shape_.histories.size() && shape_.histories[s].shape().size() > 1 && !placed_.history_gradients[s])
      placed_.history_gradients[s] = reserve(history_gradients_[s], history_entries(s));
  }
}

void BackwardOnGpu::place(const BackwardArrays& arrays) {
  placed_ = arrays;
  const CellGraph& adjoint = adjoint_.cell();
  const AdjointCell& of = adjoint_.adjoint();
  const std::int64_t rows = shape_.offsets.back(), sequences = static_cast<std::int64_t>(shape_.offsets.size()) - 1;
  const std::int64_t length = uniform_ && sequences > 0 ? rows / sequences : 0;
  shifted_.resize(adjoint.symbols.size());
  in_place_.assign(adjoint.symbols.size(), false);
  starts_.resize(cell_.updates.size());
  scaled_.clear();
  scaled_buffers_.resize(adjoint.symbols.size());
  outs_.resize(adjoint.outs.size());
  gradients_.resize(cell_.symbols.size());
  history_gradients_.resize(cell_.symbols.size());
  placed_.gradients.resize(cell_.symbols.size());
  placed_.history_gradients.resize(cell_.symbols.size());
  reserve_gradients();

  DeviceArrays device;
  device.inputs.resize(adjoint.symbols.size());
  device.values.resize(adjoint.symbols.size());
  device.histories.resize(adjoint.symbols.size());
  device.trajectories.resize(adjoint.updates.size());
  device.finals.resize(adjoint.updates.size());
  device.outs.resize(adjoint.outs.size());
  for (std::size_t s = 0; s < adjoint.symbols.size(); ++s) {
    const ArraySource& source = of.adjoint.sources[s];
    const auto id = static_cast<std::size_t>(source.id);
    const std::int64_t row = entries(adjoint.symbols[s].axes);
    const auto as_rows = [&](GpuAddress data) { return PlacedRows{data, length > 0 ? length * row : 0, row}; };
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        if (adjoint.symbols[s].kind == SymbolKind::Param)
          device.values[s] = arrays.symbols[id];
        else
          device.inputs[s] = as_rows(arrays.symbols[id]);
        break;
      case ArraySource::Kind::Previous:
        in_place_[s] = reads_in_place(s);
        if (in_place_[s]) {
          device.inputs[s] = as_rows(arrays.trajectories[id]);
          device.inputs[s].last = arrays.symbols[static_cast<std::size_t>(cell_.updates[id].symbol)];
          break;
        }
        [[fallthrough]];
      case ArraySource::Kind::Lagged:
        device.inputs[s] = as_rows(reserve(shifted_[s], rows * row));
        break;
      case ArraySource::Kind::Cotangent:
        device.inputs[s] = as_rows(cotangent(s, arrays.states[id], rows * row));
        break;
      case ArraySource::Kind::OutCotangent:
        device.inputs[s] = as_rows(cotangent(s, arrays.outs[id], rows * row));
        break;
      case ArraySource::Kind::Adjoint:
        device.values[s] = id < arrays.finals.size() ? cotangent(s, arrays.finals[id], sequences * row) : 0;
        if (!device.values[s]) {
          device.values[s] = reserve(starts_[id], sequences * row);
          if (sequences * row > 0)
            gpu_.zero(device.values[s], static_cast<std::size_t>(sequences * row) * size_of(kernels_.real()), 0);
        }
        break;
      case ArraySource::Kind::Start: {  // nothing is under way through a delay line
        const Symbol& symbol = adjoint.symbols[s];
        const std::int64_t count = sequences * row * (symbol.line_of >= 0 ? symbol.max_lag : 1);
        GpuAddress& zeros = symbol.line_of >= 0 ? device.histories[s] : device.values[s];
        const std::size_t before = shifted_[s].bytes();
        zeros = reserve(shifted_[s], count);
        // Nobody writes there, so it is for new memory alone: a later call may be captured.
        if (shifted_[s].bytes() > before) gpu_.zero(zeros, shifted_[s].bytes(), 0);
        break;
      }
      default:
        throw std::logic_error("adjoint: an array that it does not read");
    }
  }
  for (std::size_t u = 0; u < cell_.updates.size(); ++u)
    device.finals[u] = placed_.gradients[static_cast<std::size_t>(cell_.updates[u].symbol)];
  for (std::size_t o = 0; o < adjoint.outs.size(); ++o) {
    const ArraySink& sink = of.adjoint.sinks[adjoint.updates.size() + o];
    if (sink.kind == ArraySink::Kind::Gradient)
      device.outs[o] = placed_.gradients[static_cast<std::size_t>(sink.id)];
    else if (!solver_.adds_up(static_cast<int>(o)))
      device.outs[o] = reserve(outs_[o], rows * entries(adjoint.outs[o].index));
  }
  solver_.place_all(device);
  placed_outs_ = device.outs;
  placed_starts_.assign(device.values.begin(), device.values.begin() + static_cast<std::ptrdiff_t>(starts_.size()));
  placed_inputs_.clear();
  for (const PlacedRows& r : device.inputs) placed_inputs_.push_back(r.data);
}

/// Whether there is anything that factors of f16 could be of.
bool BackwardOnGpu::multiplies() const {
  const Graph& graph = adjoint_.cell().graph;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
    if (graph[id].op == Op::ReduceSum) return true;
  for (const ParamGradient& param : adjoint_.adjoint().params)
    for (const StepProduct& product : param.products)
      if (product.right) return true;
  return false;
}

/// Where a cotangent lies as the adjoint reads it.
GpuAddress BackwardOnGpu::cotangent(std::size_t symbol, GpuAddress data, std::int64_t count) {
  if (!scales_ || !data) return data;
  const GpuAddress to = reserve(scaled_buffers_[symbol], count);
  scaled_.push_back({data, to, count});
  return to;
}

void BackwardOnGpu::scale(const char* kernel, GpuAddress from, GpuAddress to, std::int64_t count, bool inverse,
                          GpuStream stream) {
  ScaledCotangents p{pointer(from), pointer(to), count, reinterpret_cast<unsigned int*>(found_.address()), inverse};
  kernels_.launch_each(kernel, count, &p, stream);
}

void BackwardOnGpu::scale_cotangents(GpuStream stream) {
  if (!scales_) return;
  if (!found_.address()) found_ = GpuBuffer(gpu_, kScaledWords * sizeof(std::uint32_t));
  gpu_.zero(found_.address(), found_.bytes(), stream);
  for (const Scaled& s : scaled_) scale("cellc_largest_cotangent", s.from, s.from, s.count, false, stream);
  for (const Scaled& s : scaled_) scale("cellc_scale_cotangents", s.from, s.to, s.count, false, stream);
}

/// All gradients are linear in the cotangents, and each is written before this.
void BackwardOnGpu::scale_gradients(GpuStream stream) {
  if (!scales_) return;
  const auto back = [&](GpuAddress at, std::int64_t count) {
    scale("cellc_scale_cotangents", at, at, count, true, stream);
  };
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
    if (placed_.gradients[s]) back(placed_.gradients[s], gradient_entries(cell_.symbols[s]));
    if (placed_.history_gradients[s]) back(placed_.history_gradients[s], history_entries(s));
  }
}

/// Whether gradients are no numbers though all cotangents were: the adjoint grew by more than f16 holds, most likely.
bool BackwardOnGpu::left_the_range(GpuStream stream) {
  if (!scales_) return false;
  std::uint32_t found[kScaledWords];
  gpu_.copy_out(found, found_.address(), sizeof found, stream);
  return found[kGradientIsNone] != 0 && found[kCotangentIsNone] == 0;
}

/// Nobody but lanes reads the states before each step: then these are the trajectory's rows, read one step later.
bool BackwardOnGpu::reads_in_place(std::size_t symbol) const {
  for (const ParamGradient& param : adjoint_.adjoint().params)
    for (const StepProduct& product : param.products) {
      const auto reads = [&](const StepFactor& f) { return !f.is_out && f.id == static_cast<int>(symbol); };
      if (reads(product.left) || (product.right && reads(*product.right))) return false;
    }
  return solver_.shifts(static_cast<int>(symbol));
}

RowsOfRun BackwardOnGpu::rows_of_run() const {
  const std::int64_t rows = shape_.offsets.back(), sequences = static_cast<std::int64_t>(shape_.offsets.size()) - 1;
  return {reinterpret_cast<const long long*>(offsets_.address()), rows, sequences,
          uniform_ && sequences > 0 ? rows / sequences : 0, shape_.reverse};
}

LaggedRows BackwardOnGpu::lagged(std::size_t number) const {
  const ArrayRead& read = adjoint_.adjoint().lagged[number];
  const auto s = static_cast<std::size_t>(read.symbol);
  const std::vector<std::int64_t>& history = shape_.histories[s].shape();
  LaggedRows p{};
  p.run = rows_of_run();
  p.entries = entries(cell_.symbols[s].axes);
  p.lag = read.lag;
  p.along = read.lag_axis == kNoAxis ? 1 : entries({read.lag_axis});
  p.depth = history.size() > 1 ? history[1] : 0;
  return p;
}

void BackwardOnGpu::shift_rows(GpuStream stream) {
  const std::vector<ArraySource>& sources = adjoint_.adjoint().adjoint.sources;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const auto id = static_cast<std::size_t>(sources[s].id);
    if (in_place_[s]) continue;
    if (sources[s].kind == ArraySource::Kind::Previous) {
      PreviousRows p{};
      p.run = rows_of_run();
      p.to = pointer(placed_inputs_[s]);
      p.trajectory = pointer(placed_.trajectories[id]);
      p.start = pointer(placed_.symbols[static_cast<std::size_t>(cell_.updates[id].symbol)]);
      p.entries = entries(adjoint_.cell().symbols[s].axes);
      kernels_.launch_each("cellc_previous_rows", p.run.rows * p.entries, &p, stream);
    } else if (sources[s].kind == ArraySource::Kind::Lagged) {
      LaggedRows p = lagged(id);
      const auto symbol = static_cast<std::size_t>(adjoint_.adjoint().lagged[id].symbol);
      p.rows = pointer(placed_inputs_[s]);
      p.input = pointer(placed_.symbols[symbol]);
      for (std::size_t u = 0; u < cell_.updates.size(); ++u)  // a delay line has its state's rows
        if (cell_.updates[u].symbol == cell_.symbols[symbol].line_of) p.input = pointer(placed_.trajectories[u]);
      p.history = pointer(placed_.histories[symbol]);
      kernels_.launch_each("cellc_lagged_rows", p.run.rows * p.entries * p.along, &p, stream);
    }
  }
}

void BackwardOnGpu::add_lagged(GpuStream stream) {
  const DerivedCell& adjoint = adjoint_.adjoint().adjoint;
  for (std::size_t o = 0; o < adjoint.cell.outs.size(); ++o) {
    const ArraySink& sink = adjoint.sinks[adjoint.cell.updates.size() + o];
    if (sink.kind != ArraySink::Kind::LaggedGradient) continue;
    LaggedRows p = lagged(static_cast<std::size_t>(sink.id));
    const auto symbol = static_cast<std::size_t>(adjoint_.adjoint().lagged[static_cast<std::size_t>(sink.id)].symbol);
    p.rows = pointer(placed_outs_[o]);
    p.input = pointer(placed_.gradients[symbol]);
    p.history = pointer(placed_.history_gradients[symbol]);
    kernels_.launch_each("cellc_add_lagged_to_input", p.run.rows * p.entries, &p, stream);
    kernels_.launch_each("cellc_add_lagged_to_history", p.run.sequences * p.depth * p.entries, &p, stream);
  }
}

void BackwardOnGpu::add_under_way(GpuStream stream) {
  const DerivedCell& adjoint = adjoint_.adjoint().adjoint;
  for (std::size_t u = cell_.updates.size(); u < adjoint.cell.updates.size() && shape_.offsets.back() > 0; ++u) {
    const auto number = static_cast<std::size_t>(adjoint.sinks[u].id);
    LaggedRows p = lagged(number);
    p.rows = pointer(solver_.written_rows(static_cast<int>(u)).data);
    p.history = pointer(placed_.history_gradients[static_cast<std::size_t>(adjoint_.adjoint().lagged[number].symbol)]);
    kernels_.launch_each("cellc_add_lagged_to_history", p.run.sequences * p.depth * p.entries, &p, stream);
  }
}

void BackwardOnGpu::launch(GpuStream stream) {
  const std::size_t size = size_of(kernels_.real());
  const std::int64_t rows = shape_.offsets.back(), sequences = static_cast<std::int64_t>(shape_.offsets.size()) - 1;
  shift_rows(stream);
  scale_cotangents(stream);
  // What sums add to, and what nothing flows into.
  std::vector<bool> written(cell_.symbols.size());
  for (const StateUpdate& u : cell_.updates) written[static_cast<std::size_t>(u.symbol)] = true;
  for (const ArraySink& sink : adjoint_.adjoint().adjoint.sinks)
    if (sink.kind == ArraySink::Kind::Gradient) written[static_cast<std::size_t>(sink.id)] = true;
  const auto clear = [&](GpuAddress at, std::int64_t count) {
    if (at && count > 0) gpu_.zero(at, static_cast<std::size_t>(count) * size, stream);
  };
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
    const Symbol& symbol = cell_.symbols[s];
    if (symbol.kind == SymbolKind::Param && rows > 0 && assigned_by_sum(static_cast<int>(s))) continue;
    if (!written[s]) clear(placed_.gradients[s], (symbol.kind == SymbolKind::Param ? 1 : rows) * entries(symbol.axes));
    if (placed_.history_gradients[s]) clear(placed_.history_gradients[s], history_entries(s));
  }
  if (rows > 0) {
    solver_.launch(stream);
  } else {  // the gradient by a start is then that by the final state, which is the same
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const std::int64_t count = sequences * entries(cell_.symbol_of(cell_.updates[u]).axes);
      if (count > 0)
        gpu_.copy(placed_.gradients[static_cast<std::size_t>(cell_.updates[u].symbol)], placed_starts_[u],
                  static_cast<std::size_t>(count) * size, stream);
    }
  }
  if (rows > 0) sum_over_steps(stream);
  add_lagged(stream);  // behind the sums, which may read what it adds to
  add_under_way(stream);
  scale_gradients(stream);
}

/// The first sum of a param's gradient that reaches all of its entries need not find zeros.
bool BackwardOnGpu::assigned_by_sum(int symbol) const {
  for (const ParamGradient& param : adjoint_.adjoint().params) {
    if (param.symbol != symbol || param.products.empty()) continue;
    const StepProduct& product = param.products.front();
    std::set<AxisId> met(product.left.index.begin(), product.left.index.end());
    if (product.right) met.insert(product.right->index.begin(), product.right->index.end());
    const std::vector<AxisId>& index = cell_.symbols[static_cast<std::size_t>(symbol)].index;
    return std::all_of(index.begin(), index.end(), [&](AxisId a) { return met.contains(a); });
  }
  return false;
}

void BackwardOnGpu::sum_over_steps(GpuStream stream) {
  const std::vector<ParamGradient>& params = adjoint_.adjoint().params;
  const auto address = [&](const StepFactor& f) {
    return f.is_out ? placed_outs_[static_cast<std::size_t>(f.id)] : placed_inputs_[static_cast<std::size_t>(f.id)];
  };
  for (std::size_t k = 0; k < params.size(); ++k)
    for (std::size_t i = 0; i < params[k].products.size(); ++i) {
      const StepProduct& product = params[k].products[i];
      // Of what lanes have added up the parts are left.
      CudaSolver::Parts left{0, shape_.offsets.back()};
      if (product.left.is_out && solver_.adds_up(product.left.id))
        left = solver_.parts_of(product.left.id);
      else
        left.data = address(product.left);
      Sum& sum = sums_[k][i];
      if (!sum.on_gpu || sum.rows != left.parts) {
        Array none;  // shapes alone are looked at
        sum.on_gpu = std::make_unique<StepSumOnGpu>(
            kernels_,
            StepSum{adjoint_.cell(), shape_.sizes, product, none, product.right ? &none : nullptr,
                    cell_.symbols[static_cast<std::size_t>(params[k].symbol)].index, none, 0},
            left.parts);
        sum.rows = left.parts;
      }
      sum.on_gpu->launch(left.data, product.right ? address(*product.right) : 0,
                         placed_.gradients[static_cast<std::size_t>(params[k].symbol)],
                         i == 0 && assigned_by_sum(params[k].symbol), stream);
    }
}

GpuAddress BackwardOnGpu::gradient(int symbol) const { return placed_.gradients[static_cast<std::size_t>(symbol)]; }
GpuAddress BackwardOnGpu::history_gradient(int symbol) const {
  return placed_.history_gradients[static_cast<std::size_t>(symbol)];
}

void BackwardOnGpu::upload(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                           const SolveOptions& options) {
  adjoint_.check(forward, cotangents);
  const Dtype real = kernels_.real();
  uploaded_.clear();
  const auto put = [&](const Array& array) -> GpuAddress {
    if (!array.data()) return 0;
    const Array converted = convert(array, real);
    uploaded_.emplace_back(gpu_, static_cast<std::size_t>(converted.count()) * size_of(real));
    if (converted.count() > 0) gpu_.copy_in(uploaded_.back().address(), converted.data(), uploaded_.back().bytes(), 0);
    return uploaded_.back().address();
  };
  const auto put_all = [&](const std::vector<Array>& arrays) {
    std::vector<GpuAddress> addresses;
    for (const Array& a : arrays) addresses.push_back(put(a));
    return addresses;
  };
  SolveOptions asked = options;
  if (left_ && asked.products == Products::F16) asked.products = Products::Tf32;
  prepare(forward, asked, true, {});
  BackwardArrays arrays;
  arrays.symbols = put_all(forward.symbols);
  arrays.histories = put_all(forward.histories);
  for (const DelayLine& line : delay_lines(cell_)) {
    const auto s = static_cast<std::size_t>(line.symbol);
    arrays.histories[s] = put(history_as_started(cell_, forward, s));
  }
  arrays.trajectories = put_all(output.states);
  arrays.states = put_all(cotangents.states);
  arrays.finals = put_all(cotangents.finals);
  arrays.outs = put_all(cotangents.outs);
  place(arrays);
}

Gradients BackwardOnGpu::run(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                             const SolveOptions& options, SolveReport& report) {
  upload(forward, output, cotangents, options);
  launch(0);  // compiles, so the next is what is timed
  gpu_.synchronize(0);
  const auto start = std::chrono::steady_clock::now();
  launch(0);
  settle(report);
  gpu_.synchronize(0);
  run_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return download(forward);
}

void BackwardOnGpu::settle(SolveReport& report) {
  std::string unrelaxed;
  const auto again = [&](Products products) {
    BoundRun shape = shape_;
    SolveOptions options = options_;
    options.products = products;
    prepare(shape, options, true, unrelaxed);
    place(BackwardArrays(placed_));
    launch(0);
    solver_.report(report, 0);
  };
  solver_.report(report, 0);
  if (solver_.relaxes()) {
    solver_.look_at_whole_steps(report, 0);
    if (!report.converged && options_.repair && !options_.fixed_iterations) {
      const auto bad = static_cast<std::int64_t>(report.unconverged.size());
      unrelaxed = "; relaxation did not converge";
      again(options_.products);
      report.repaired = std::max(report.repaired, bad);
    }
  }
  // Of rows that are whole: iterates of a relaxation that diverges are no numbers, either.
  if (left_the_range(0)) {
    left_ = true;
    const std::int64_t repaired = report.repaired;
    again(Products::Tf32);
    report.repaired = std::max(report.repaired, repaired);
  }
  if (left_)
    for (StageReport& stage : report.stages)
      stage.plan.reason += "; products by TF32, as by those of f16 gradients were no numbers";
}

Gradients BackwardOnGpu::download(const BoundRun& forward) {
  const Dtype real = kernels_.real();
  Gradients gradients;
  gradients.symbols.resize(cell_.symbols.size());
  gradients.histories.resize(cell_.symbols.size());
  const auto fetch = [&](GpuAddress from, const std::vector<std::int64_t>& shape) {
    Array array(real, shape);
    if (array.count() > 0)
      gpu_.copy_out(array.data(), from, static_cast<std::size_t>(array.count()) * size_of(real), 0);
    return array;
  };
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
    if (cell_.symbols[s].line_of < 0) gradients.symbols[s] = fetch(placed_.gradients[s], forward.symbols[s].shape());
    if (placed_.history_gradients[s])
      gradients.histories[s] = fetch(placed_.history_gradients[s], forward.histories[s].shape());
  }
  adjoint_.move_to_histories(gradients);
  return gradients;
}

}  // namespace cellc
