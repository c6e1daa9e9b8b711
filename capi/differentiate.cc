// Backward and tangent calls, and the arrays of a call in any direction.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/kernel.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc::capi {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

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
    Gradients gradients = solver->run(run(), states_, cotangents(), options(), report);
    through_defaults(cell_, run(), bound_.given, gradients);
    each_given(Quantity::Gradient, true, [&](std::size_t i, const CallField& of) {
      const auto id = static_cast<std::size_t>(of.id);
      arrays_.put(i, of.is_history() ? gradients.histories[id] : gradients.symbols[id]);
    });
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
    const RunOutput output = solver->run(plan.run.bind(run(), states_, direction, compile.dtype), options(), report);
    plan.on_cpu.give(std::move(solver));
    each_given(Quantity::Tangent, true, [&](std::size_t i, const CallField& of) {
      if (of.kind == FieldKind::Out)
        arrays_.put(i, output.outs[static_cast<std::size_t>(of.id)]);
      else
        arrays_.put(i, (of.kind == FieldKind::Final ? output.finals : output.states)[update_of(of.id)]);
    });
    return since(start);
  }

 private:
  const BoundRun& run() const { return bound_.binding.run; }
  /// What pins the forward run says nothing of another cell; tolerances hold for both.
  SolveOptions options() const {
    SolveOptions solve;
    solve.tolerance = kernel_.solve.tolerance;
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

  void read_states() {
    states_.states.resize(cell_.updates.size());
    each_given(Quantity::Value, false, [&](std::size_t i, const CallField& of) {
      if (of.kind == FieldKind::State) states_.states[update_of(of.id)] = arrays_.rows(i);
    });
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
      else if (of.kind == FieldKind::StateHistory)
        each_copy(of.id, arrays_.given(i),
                  [&](std::size_t copy, Array part) { result.symbols[copy] = std::move(part); });
      else
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

void check_converged(const std::int32_t* status, const Shape& shape) {
  for (std::int64_t s = 0; status && s < shape.sequences; ++s)
    if (status[s] != 0)
      throw NotConverged(fmt::format(
          "sequence {} of the forward run has not converged: derivatives about its states would mean nothing", s));
}

cellc_status differentiate(cellc_kernel* kernel, CallDirection direction, const cellc_shape* shape,
                           const cellc_array* arrays, int count, const std::int32_t* forward_status,
                           cellc_report* report) {
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    if (!kernel) throw Misuse("the kernel is a null pointer");
    if (report) sized(report, "the report");
    CompiledCell& k = *kernel->kernel;
    if (k.on_gpu) throw Misuse("the kernel is for a GPU, which has no such calls yet");
    const DirectedCall& call = k.call(direction);
    const Shape found = read_shape(k, shape);
    status = check_count(call.fields.size(), arrays, count);
    if (status != CELLC_OK) return;
    std::vector<bool> given;
    for (int i = 0; i < count; ++i) given.push_back(arrays[i].data != nullptr);
    const bool backward = direction == CallDirection::Backward;
    AdjointPlan* adjoint = backward ? &k.derivatives->adjoint(given) : nullptr;
    TangentPlan* tangent = backward ? nullptr : &k.derivatives->tangent(given);
    const auto expected = expected_arrays(k, call, found, backward ? adjoint->reads : tangent->reads);
    status = check_arrays(found, expected, arrays, count);
    if (status != CELLC_OK) return;
    check_converged(forward_status, found);
    DerivativeCall run(k, call, found, expected, arrays);
    SolveReport solved;
    const double run_ms = backward ? run.backward(*adjoint, solved) : run.tangent(*tangent, solved);
    if (report) fill(*report, solved, found, run_ms);
  });
  return outcome == CELLC_OK ? status : outcome;
}

CallDirection direction_named(cellc_direction direction) {
  switch (direction) {
    case CELLC_FORWARD:
      return CallDirection::Forward;
    case CELLC_BACKWARD:
      return CallDirection::Backward;
    case CELLC_TANGENT:
      return CallDirection::Tangent;
    default:
      throw Misuse(fmt::format("direction {}: there is none of that number", direction));
  }
}

cellc_quantity c_quantity(Quantity quantity) {
  switch (quantity) {
    case Quantity::Value:
      return CELLC_IS_VALUE;
    case Quantity::Cotangent:
      return CELLC_IS_COTANGENT;
    case Quantity::Gradient:
      return CELLC_IS_GRADIENT;
    case Quantity::Tangent:
      return CELLC_IS_TANGENT;
  }
  throw std::logic_error("no such quantity");
}

cellc_role c_role(FieldKind kind) {
  switch (kind) {
    case FieldKind::Input:
      return CELLC_ROLE_INPUT;
    case FieldKind::Param:
      return CELLC_ROLE_PARAM;
    case FieldKind::State:
      return CELLC_ROLE_STATE;
    case FieldKind::Out:
      return CELLC_ROLE_OUT;
    case FieldKind::Start:
      return CELLC_ROLE_START;
    case FieldKind::Final:
      return CELLC_ROLE_FINAL;
    case FieldKind::StateHistory:
    case FieldKind::InputHistory:
      return CELLC_ROLE_HISTORY;
    case FieldKind::FinalStateHistory:
    case FieldKind::FinalInputHistory:
      return CELLC_ROLE_FINAL_HISTORY;
  }
  throw std::logic_error("no such kind of array");
}

cellc_null c_null(FieldAbsent absent) {
  switch (absent) {
    case FieldAbsent::Nothing:
      return CELLC_NULL_IS_REFUSED;
    case FieldAbsent::Declared:
      return CELLC_NULL_IS_DECLARED;
    case FieldAbsent::Zeros:
      return CELLC_NULL_IS_ZERO;
    case FieldAbsent::Start:
      return CELLC_NULL_IS_START;
    case FieldAbsent::Unwanted:
      return CELLC_NULL_IS_UNWANTED;
  }
  throw std::logic_error("an array is absent in no known way");
}

const DirectedCall& call_of(cellc_kernel* kernel, cellc_direction direction) {
  if (!kernel) throw Misuse("the kernel is a null pointer");
  return kernel->kernel->call(direction_named(direction));
}
const DirectedField& field_of(cellc_kernel* kernel, cellc_direction direction, int number) {
  const DirectedCall& call = call_of(kernel, direction);
  if (number < 0 || number >= static_cast<int>(call.fields.size()))
    throw Misuse(fmt::format("there is no array number {}", number));
  return call.fields[static_cast<std::size_t>(number)];
}

const char* owner_of(const CellGraph& cell, const CallField& field) {
  const auto id = static_cast<std::size_t>(field.id);
  return (field.traits().owner == FieldOwner::Out ? cell.outs[id].name : cell.symbols[id].name).c_str();
}

/// Whether the direction reads array `number` where all that it may read of derivatives is given.
bool read_at_most(CompiledCell& kernel, CallDirection direction, std::size_t number) {
  const std::vector<bool> all(kernel.call(direction).fields.size(), true);
  if (direction == CallDirection::Backward) return kernel.derivatives->adjoint(all).reads[number];
  return direction == CallDirection::Forward || kernel.derivatives->tangent(all).reads[number];
}

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

void cellc_call_array_info_init(cellc_call_array_info* info) {
  if (!info) return;
  *info = cellc_call_array_info{};
  info->size = sizeof *info;
}

int cellc_call_array_count(cellc_kernel* kernel, cellc_direction direction) {
  int count = -1;
  guarded([&] { count = static_cast<int>(call_of(kernel, direction).fields.size()); });
  return count;
}

cellc_status cellc_call_array_describe(cellc_kernel* kernel, cellc_direction direction, int number,
                                       cellc_call_array_info* info) {
  return guarded([&] {
    const DirectedField& field = field_of(kernel, direction, number);
    const std::size_t size = sized(info, "the description").size;
    CompiledCell& k = *kernel->kernel;
    *info = {size,
             field.name.c_str(),
             owner_of(k.cell(), field.of),
             c_role(field.of.kind),
             c_quantity(field.quantity),
             c_layout(field.of),
             c_dtype(dtype_of(field, k.compile.dtype)),
             field.written,
             c_null(field.absent),
             is_required(field, read_at_most(k, direction_named(direction), static_cast<std::size_t>(number))),
             static_cast<int>(field.of.axes.size()),
             field.of.axes.data()};
  });
}

int cellc_call_array_find(cellc_kernel* kernel, cellc_direction direction, cellc_quantity quantity, cellc_role role,
                          const char* owner) {
  int found = -1;
  guarded([&] {
    const DirectedCall& call = call_of(kernel, direction);
    if (!owner) throw Misuse("the owner is a null pointer");
    for (std::size_t i = 0; i < call.fields.size(); ++i) {
      const DirectedField& field = call.fields[i];
      if (c_quantity(field.quantity) == quantity && c_role(field.of.kind) == role &&
          std::strcmp(owner_of(kernel->kernel->cell(), field.of), owner) == 0)
        found = static_cast<int>(i);
    }
  });
  return found;
}

cellc_status cellc_call_array_shape(cellc_kernel* kernel, cellc_direction direction, const cellc_shape* shape,
                                    int number, int64_t* lengths, int most, int* rank) {
  return guarded([&] {
    const DirectedField& field = field_of(kernel, direction, number);
    if (!rank || (!lengths && most > 0)) throw Misuse("the place for the lengths or the rank is a null pointer");
    const std::vector<std::int64_t> found = array_shape(field.of, read_shape(*kernel->kernel, shape));
    *rank = static_cast<int>(found.size());
    for (int i = 0; i < std::min(*rank, most); ++i) lengths[i] = found[static_cast<std::size_t>(i)];
  });
}

cellc_status cellc_backward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                            const int32_t* forward_status, cellc_report* report) {
  return differentiate(kernel, CallDirection::Backward, shape, arrays, count, forward_status, report);
}

cellc_status cellc_tangent(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                           const int32_t* forward_status, cellc_report* report) {
  return differentiate(kernel, CallDirection::Tangent, shape, arrays, count, forward_status, report);
}

cellc_status cellc_backward_on(cellc_kernel*, const cellc_shape*, const cellc_array*, int, void*, const int32_t*,
                               cellc_report*) {
  return failed(CELLC_WRONG_USAGE, "no such calls on a GPU yet");
}
cellc_status cellc_tangent_on(cellc_kernel*, const cellc_shape*, const cellc_array*, int, void*, const int32_t*,
                              cellc_report*) {
  return failed(CELLC_WRONG_USAGE, "no such calls on a GPU yet");
}

}  // extern "C"
