// Backward and tangent calls, and the arrays of a call in any direction.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "capi/call_settings.h"
#include "capi/compile_ahead.h"
#include "capi/fetched_arrays.h"
#include "capi/gpu_call.h"
#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/kernel.h"
#include "capi/report.h"
#include "capi/views.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/cpu/sum_over_steps.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/gradient/hessian_product.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc::capi {
namespace {

/// A call on the CPU: its values, and derivatives by number.
class DerivativeCall {
 public:
  DerivativeCall(CompiledCell& kernel, const DirectedCall& call, const Shape& shape,
                 const std::vector<Expected>& expected, const cellc_array* arrays)
      : kernel_(kernel),
        cell_(kernel.cell()),
        call_(call),
        arrays_(kernel, shape, expected, arrays),
        bound_(arrays_.bound()) {
    read_states();
  }

  /// Returns the time that it took.
  double backward(AdjointPlan& plan, SolveReport& report) {
    const Clock::time_point start = Clock::now();
    auto solver = plan.on_cpu.take([&] { return std::make_unique<BackwardOnCpu>(plan.run, kernel_.compile); });
    Gradients gradients;
    try {
      gradients = solver->run(run(), states_, cotangents(), options(), report);
    } catch (const SolverError&) {
      plan.on_cpu.give(std::move(solver));  // has code of other ways
      throw;
    }
    through_defaults(cell_, run(), bound_.given, gradients);
    put_gradients(gradients);
    gradients = {};  // shares memory with what the solver keeps
    plan.on_cpu.give(std::move(solver));
    return since(start);
  }

  double tangent(TangentPlan& plan, SolveReport& report) {
    const Clock::time_point start = Clock::now();
    Tangents direction = tangents();
    tangents_through_defaults(cell_, run(), bound_.given, direction);
    CompileOptions compile = kernel_.compile;
    compile.dtype = arithmetic_of(compile.dtype);
    auto solver =
        plan.on_cpu.take([&] { return std::make_unique<Solver>(plan.run.cell(), plan.run.structure(), compile); });
    RunOutput output;
    try {
      output = solver->run(plan.run.bind(run(), states_, direction, compile.dtype), options(), report);
    } catch (const SolverError&) {
      plan.on_cpu.give(std::move(solver));
      throw;
    }
    plan.on_cpu.give(std::move(solver));
    put_tangents(output);
    return since(start);
  }

  /// Runs from now on go so, but for the tolerance.
  void go_by(const SolveOptions& solve) { solve_ = solve; }

  /// How gradients move along the direction of a tangent call of the same run, which writes its own results too. Of a
  /// kernel of a GPU cells run there, and sums over steps are of the host.
  void curvature(const DerivativeCall& along) const {
    CompileOptions compile = kernel_.compile;
    compile.dtype = arithmetic_of(compile.dtype);
    const RunCell run_cell = [&](const CellGraph& cell, const Structure& structure, const BoundRun& bound) {
      if (kernel_.on_gpu) return kernel_.on_gpu->run_on_host_arrays(cell, structure, bound, options().tolerance);
      SolveReport report;
      return Solver(cell, structure, compile).run(bound, options(), report);
    };
    const HessianProduct found = hessian_vector_product(cell_, run(), states_, bound_.given, cotangents(),
                                                        along.tangents(), {}, compile.dtype, run_cell, sum_over_steps);
    put_gradients(found.product);
    along.put_tangents(found.tangents);
  }

 private:
  const BoundRun& run() const { return bound_.binding.run; }
  /// What pins the forward run says nothing of another cell; tolerances hold for both.
  SolveOptions options() const {
    SolveOptions solve = solve_;
    const CallSettings* const settings = call_settings();
    solve.tolerance = settings && settings->tolerance ? settings->tolerance : kernel_.solve.tolerance;
    return solve;
  }
  std::size_t update_of(int symbol) const {
    for (std::size_t u = 0; u < cell_.updates.size(); ++u)
      if (cell_.updates[u].symbol == symbol) return u;
    throw std::logic_error("a state without an update");
  }

  template <typename Visit>
  void each_given(Quantity quantity, bool written, Visit visit) const {
    for (std::size_t i = 0; i < call_.fields.size(); ++i) {
      const DirectedField& field = call_.fields[i];
      if (field.quantity == quantity && field.written == written && arrays_.is_given(i)) visit(i, field.of);
    }
  }

  void put_gradients(const Gradients& gradients) const {
    each_given(Quantity::Gradient, true, [&](std::size_t i, const CallField& of) {
      const auto id = static_cast<std::size_t>(of.id);
      arrays_.put(i, of.is_history() ? gradients.histories[id] : gradients.symbols[id]);
    });
  }
  void put_tangents(const RunOutput& output) const {
    each_given(Quantity::Tangent, true, [&](std::size_t i, const CallField& of) {
      if (of.kind == FieldKind::Out)
        arrays_.put(i, output.outs[static_cast<std::size_t>(of.id)]);
      else
        arrays_.put(i, (of.kind == FieldKind::Final ? output.finals : output.states)[update_of(of.id)]);
    });
  }

  void read_states() {
    states_.states.resize(cell_.updates.size());
    for (std::size_t i = 0; i < call_.fields.size(); ++i) {
      const DirectedField& field = call_.fields[i];
      if (field.quantity != Quantity::Value || field.of.kind != FieldKind::State) continue;
      const std::size_t update = update_of(field.of.id);
      if (arrays_.is_given(i)) states_.states[update] = arrays_.rows(i);
      // Without rows nothing has to be given, and the shape says that there are none.
      if (!arrays_.is_given(i) && arrays_.rows(i).count() == 0)
        states_.states[update] = Array(kernel_.compile.dtype, arrays_.rows(i).shape());
    }
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const Symbol& copy = cell_.symbol_of(cell_.updates[u]);
      if (copy.lag_of < 0) continue;
      const Array& own = states_.states[update_of(copy.lag_of)];
      if (!own.shape().empty()) states_.states[u] = lagged_states(copy, own);
    }
  }

  /// The trajectory of a copy that lags a state: that of the state, which begins with its history.
  Array lagged_states(const Symbol& copy, const Array& own) const {
    const Array& start = run().symbols[static_cast<std::size_t>(copy.lag_of)];
    std::vector<std::int64_t> shape = start.shape();
    shape.insert(shape.begin() + 1, copy.lag);
    Array history = Array::uninitialised(start.dtype(), shape);
    const std::int64_t sequences = shape[0], entries = sequences > 0 ? start.count() / sequences : 0;
    for (int lag = 0; lag < copy.lag; ++lag) {
      const Array& before = lag == 0 ? start : run().symbols[copy_of(copy.lag_of, lag)];
      for (std::int64_t b = 0; b < sequences && entries > 0; ++b)
        std::memcpy(at(history, (b * copy.lag + lag) * entries), at(before, b * entries),
                    static_cast<std::size_t>(entries) * size_of(start.dtype()));
    }
    return lagged_rows(run(), convert(own, start.dtype()), history, copy.lag, std::nullopt);
  }
  std::size_t copy_of(int state, int lag) const {
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].lag_of == state && cell_.symbols[s].lag == lag) return s;
    throw std::logic_error("a state has no such lagged copy");
  }
  /// Calls visit(copy's symbol, its part) of a history of a state.
  template <typename Visit>
  void each_copy(int state, const Array& history, Visit visit) const {
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].lag_of == state) visit(s, lag_of_history(history, cell_.symbols[s].lag));
  }

  Cotangents cotangents() const {
    Cotangents result;
    result.states.resize(cell_.updates.size());
    result.finals.resize(cell_.updates.size());
    result.outs.resize(cell_.outs.size());
    each_given(Quantity::Cotangent, false, [&](std::size_t i, const CallField& of) {
      if (of.kind == FieldKind::Out)
        result.outs[static_cast<std::size_t>(of.id)] = arrays_.rows(i);
      else if (of.kind == FieldKind::State)
        result.states[update_of(of.id)] = arrays_.rows(i);
      else if (of.kind == FieldKind::Final)
        result.finals[update_of(of.id)] = arrays_.given(i);
      else
        each_copy(of.id, arrays_.given(i), [&](std::size_t copy, Array part) {
          result.finals[update_of(static_cast<int>(copy))] = std::move(part);
        });
    });
    return result;
  }

  Tangents tangents() const {
    Tangents result(cell_);
    each_given(Quantity::Tangent, false, [&](std::size_t i, const CallField& of) {
      const auto id = static_cast<std::size_t>(of.id);
      if (of.kind == FieldKind::Input)
        result.symbols[id] = arrays_.rows(i);
      else if (of.kind == FieldKind::InputHistory)
        result.histories[id] = arrays_.given(i);
      else if (of.kind == FieldKind::StateHistory) {
        each_copy(of.id, arrays_.given(i),
                  [&](std::size_t copy, Array part) { result.symbols[copy] = std::move(part); });
        for (const DelayLine& line : delay_lines(cell_))
          if (line.state == of.id) result.histories[id] = arrays_.given(i);
      } else
        result.symbols[id] = arrays_.given(i);
    });
    return result;
  }

  CompiledCell& kernel_;
  const CellGraph& cell_;
  const DirectedCall& call_;
  const HostArrays arrays_;
  const HostArrays::Bound bound_;
  RunOutput states_;
  SolveOptions solve_;
};

std::vector<Expected> expected_arrays(const CompiledCell& kernel, const DirectedCall& call, const Shape& shape,
                                      const std::vector<bool>& reads) {
  std::vector<Expected> all;
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const DirectedField& field = call.fields[i];
    Expected e;
    e.field = &field.of;
    e.name = field.name.c_str();
    e.part = part_entries(field.of, shape);
    e.all = all_entries(field.of, shape);
    e.type = dtype_of(field, kernel.compile.dtype);
    e.dtype = c_dtype(e.type);
    e.rows = field.of.is_rows();
    e.derivative = field.quantity != Quantity::Value;
    e.required = is_required(field, reads[i]) && (!e.rows || e.all > 0);
    all.push_back(e);
  }
  return all;
}

/// A backward or tangent call whose arrays are right.
struct CheckedCall {
  CompiledCell& kernel;
  const DirectedCall& call;
  Shape shape;
  std::vector<Expected> expected;
  const cellc_array* arrays;
  AdjointPlan* adjoint;
  TangentPlan* tangent;
};

/// Checks the call and makes it by `run`.
template <typename Run>
cellc_status differentiate(cellc_kernel* kernel, CallDirection direction, const cellc_shape* shape,
                           const cellc_array* arrays, int count, const cellc_report* report, Run run) {
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    CompiledCell& k = opened(kernel);
    const UseHostMemory memory(k.own_memory());
    check_report(report);
    CheckedCall checked{k, k.call(direction), read_shape(k, shape), {}, arrays, nullptr, nullptr};
    status = check_count(checked.call.fields.size(), arrays, count);
    if (status != CELLC_OK) return;
    std::vector<bool> given;
    for (int i = 0; i < count; ++i) given.push_back(arrays[i].data != nullptr);
    if (direction == CallDirection::Backward)
      checked.adjoint = &k.derivatives->adjoint(given);
    else
      checked.tangent = &k.derivatives->tangent(given);
    checked.expected = expected_arrays(k, checked.call, checked.shape,
                                       checked.adjoint ? checked.adjoint->reads : checked.tangent->reads);
    status = check_arrays(checked.shape, checked.expected, arrays, count);
    if (status != CELLC_OK) return;
    if constexpr (std::is_void_v<decltype(run(checked))>)
      run(checked);
    else
      status = run(checked);
  });
  return outcome == CELLC_OK ? status : outcome;
}

cellc_status differentiate_on_cpu(cellc_kernel* kernel, CallDirection direction, const cellc_shape* shape,
                                  const cellc_array* arrays, int count, const std::int32_t* forward_status,
                                  cellc_report* report) {
  return differentiate(kernel, direction, shape, arrays, count, report, [&](const CheckedCall& c) {
    check_converged(forward_status, c.shape);
    DerivativeCall run(c.kernel, c.call, c.shape, c.expected, c.arrays);
    SolveReport solved;
    const double run_ms = c.adjoint ? run.backward(*c.adjoint, solved) : run.tangent(*c.tangent, solved);
    if (!report) return;
    fill(*report, solved, c.call.direction, c.shape, run_ms);
    find_non_finite(*report, c.call, c.kernel.compile.dtype, c.shape, c.arrays);
  });
}

void curvature_on_gpu(const CheckedCall& b, const CheckedCall& t, const std::int32_t* forward_status) {
  GpuKernel& gpu = *b.kernel.on_gpu;
  if (gpu.gpu().capturing(0)) throw Misuse("gradients of gradients wait for the GPU, which a graph cannot capture");
  FetchedArrays backward(b.kernel, gpu, b.call, b.shape, b.expected, b.arrays, forward_status),
      tangent(t.kernel, gpu, t.call, t.shape, t.expected, t.arrays);
  if (forward_status) check_converged(fetched_status(gpu.gpu(), forward_status, b.shape, 0).data(), b.shape);
  const DerivativeCall along(t.kernel, t.call, t.shape, t.expected, tangent.arrays());
  DerivativeCall(b.kernel, b.call, b.shape, b.expected, backward.arrays()).curvature(along);
  backward.write_back();
  tangent.write_back();
}

cellc_status curvature(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* backward, int backward_count,
                       const cellc_array* tangent, int tangent_count, const std::int32_t* forward_status) {
  return differentiate(
      kernel, CallDirection::Backward, shape, backward, backward_count, nullptr, [&](const CheckedCall& b) {
        if (!b.kernel.on_gpu) check_converged(forward_status, b.shape);
        return differentiate(kernel, CallDirection::Tangent, shape, tangent, tangent_count, nullptr,
                             [&](const CheckedCall& t) {
                               if (b.kernel.on_gpu) return curvature_on_gpu(b, t, forward_status);
                               const DerivativeCall along(t.kernel, t.call, t.shape, t.expected, t.arrays);
                               DerivativeCall(b.kernel, b.call, b.shape, b.expected, b.arrays).curvature(along);
                             });
      });
}

cellc_status differentiate_on_gpu(cellc_kernel* kernel, CallDirection direction, const cellc_shape* shape,
                                  const cellc_array* arrays, int count, void* stream,
                                  const std::int32_t* forward_status, cellc_report* report) {
  if (kernel && kernel->open && !kernel->body->on_gpu)
    return stream ? failed(CELLC_WRONG_USAGE, kNoStreams)
                  : differentiate_on_cpu(kernel, direction, shape, arrays, count, forward_status, report);
  return differentiate(kernel, direction, shape, arrays, count, report, [&](const CheckedCall& c) {
    GpuKernel& gpu = *c.kernel.on_gpu;
    const std::vector<CallArray>& places = placed_arrays(arrays, c.call.fields.size());
    const auto status = std::bit_cast<GpuAddress>(forward_status);
    check_on_device(gpu.gpu(), c.call, c.shape, c.kernel.compile.dtype, places, status);
    const auto on = std::bit_cast<GpuStream>(stream);
    const SolveOptions& solve = solve_on_gpu(c.kernel);
    const std::shared_ptr<CallPool> pool =
        c.adjoint ? gpu.kept(c.shape, c.call, *c.adjoint, solve) : gpu.kept(c.shape, c.call, *c.tangent, solve);
    if (const CallSettings* const settings = call_settings(); settings && settings->ahead)
      return pool->rehearse(places, 0);
    if (!report) return pool->run(places, on, 0, nullptr);
    if (status && !gpu.gpu().capturing(on))
      check_converged(fetched_status(gpu.gpu(), forward_status, c.shape, on).data(), c.shape);
    const Clock::time_point start = Clock::now();
    SolveReport solved;
    pool->run(places, on, 0, &solved);
    fill(*report, solved, c.call.direction, c.shape, since(start));
    find_non_finite(*report, c.call, c.kernel.compile.dtype, c.shape, arrays, &gpu.gpu(), on);
  });
}

}  // namespace

cellc_status compile_derivatives(cellc_kernel* kernel, CallDirection direction, const cellc_shape& shape,
                                 const cellc_array* arrays, int count) {
  return differentiate(kernel, direction, &shape, arrays, count, nullptr, [&](const CheckedCall& c) {
    DerivativeCall run(c.kernel, c.call, c.shape, c.expected, c.arrays);
    const Structure& derived = c.adjoint ? c.adjoint->run.structure() : c.tangent->run.structure();
    run_every_way({}, derived.stages.size(), [&](const SolveOptions& by) {
      SolveReport report;
      run.go_by(by);
      if (c.adjoint)
        run.backward(*c.adjoint, report);
      else
        run.tangent(*c.tangent, report);
    });
  });
}

}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

cellc_status cellc_backward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                            const int32_t* forward_status, cellc_report* report) {
  if (kernel && kernel->open && kernel->body->on_gpu)
    return cellc_backward_on(kernel, shape, arrays, count, nullptr, forward_status, report);
  return differentiate_on_cpu(kernel, CallDirection::Backward, shape, arrays, count, forward_status, report);
}

cellc_status cellc_tangent(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                           const int32_t* forward_status, cellc_report* report) {
  if (kernel && kernel->open && kernel->body->on_gpu)
    return cellc_tangent_on(kernel, shape, arrays, count, nullptr, forward_status, report);
  return differentiate_on_cpu(kernel, CallDirection::Tangent, shape, arrays, count, forward_status, report);
}

cellc_status cellc_curvature(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* backward,
                             int backward_count, const cellc_array* tangent, int tangent_count,
                             const int32_t* forward_status) {
  return curvature(kernel, shape, backward, backward_count, tangent, tangent_count, forward_status);
}

cellc_status cellc_backward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                               void* stream, const int32_t* forward_status, cellc_report* report) {
  return differentiate_on_gpu(kernel, CallDirection::Backward, shape, arrays, count, stream, forward_status, report);
}

cellc_status cellc_tangent_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                              void* stream, const int32_t* forward_status, cellc_report* report) {
  return differentiate_on_gpu(kernel, CallDirection::Tangent, shape, arrays, count, stream, forward_status, report);
}

}  // extern "C"
