#include "capi/compile_ahead.h"

#include <memory>
#include <string>
#include <vector>

#include "capi/call_settings.h"
#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/views.h"
#include "runtime/data/random_fill.h"

namespace cellc::capi {
namespace {

/// Arrays of a call of the shape, of small numbers: what they are does not matter to code.
class SomeArrays {
 public:
  /// `given`: by array; of the others there is no memory.
  SomeArrays(const CompiledCell& kernel, const DirectedCall& call, const Shape& shape, const std::vector<bool>& given) {
    for (std::size_t i = 0; i < call.fields.size(); ++i) {
      const DirectedField& field = call.fields[i];
      const Dtype dtype = dtype_of(field, kernel.compile.dtype);
      if (!given[i]) {
        arrays_.push_back({nullptr, 0, c_dtype(dtype), 0, 0});
        continue;
      }
      memory_.push_back(Array::uninitialised(dtype, {all_entries(field.of, shape)}));
      fill_uniform(memory_.back(), 1, field.name, 0.25, 0.75);
      arrays_.push_back({memory_.back().data(), memory_.back().count(), c_dtype(dtype), 0, 0});
    }
  }
  const cellc_array* data() const { return arrays_.data(); }
  int count() const { return static_cast<int>(arrays_.size()); }

 private:
  std::vector<Array> memory_;
  std::vector<cellc_array> arrays_;
};

/// Sequences that lie side by side.
Shape few_steps(Shape shape) {
  constexpr std::int64_t kSequences = 2;
  shape.offsets.clear();
  shape.sequences = kSequences;
  shape.steps = kFewSteps;
  shape.rows = kSequences * kFewSteps;
  return shape;
}

/// `results`: by array, for each kind of call; those that it writes.
void compile_forward(CompiledCell& k, const Shape& shape, const std::vector<bool>& given,
                     const std::vector<std::vector<bool>>& results, const SolveOptions& solve) {
  const SomeArrays some(k, k.forward, shape, given);
  const std::vector<Expected> expected = expected_arrays(k, shape);
  const HostArrays arrays(k, shape, expected, some.data());
  Binding binding = arrays.bound().binding;
  std::unique_ptr<Solver> solver = k.take_solver();
  for (const std::vector<bool>& written : results) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (expected[i].field->is_written() && written[i]) names.push_back(expected[i].field->file);
    binding.run.wanted = wanted_results(k.cell(), names);
    run_every_way(solve, k.analysed.structure.stages.size(), [&](const SolveOptions& by) {
      SolveReport report;
      solver->run(binding.run, by, report);
    });
  }
  k.give_solver(std::move(solver));
}

/// Of all calls that the kernel may get.
void compile_all(CompiledCell& k, const Shape& shape) {
  std::vector<bool> given, all, without_rows;
  for (const Expected& e : expected_arrays(k, shape)) {
    given.push_back(!e.field->is_written() && e.required);
    all.push_back(e.field->is_written());
    without_rows.push_back(e.field->is_written() && e.field->kind != FieldKind::State);
  }
  compile_forward(k, shape, given, {all, without_rows}, k.solve);
}

/// The arrays of the request that are not null.
std::vector<bool> given_arrays(const DirectedCall& call, const cellc_request& r) {
  if (!r.arrays && r.count > 0) throw Misuse("the arrays are a null pointer");
  if (r.count != static_cast<int>(call.fields.size()))
    throw Misuse("the number of arrays is not that of the kernel (cellc_call_array_count)");
  std::vector<bool> given;
  for (int i = 0; i < r.count; ++i) given.push_back(r.arrays[i].data != nullptr);
  return given;
}

cellc_status compile_request(cellc_kernel* handle, cellc_request r) {
  CompiledCell& k = opened(handle);
  const UseHostMemory memory(k.own_memory());
  const CallDirection direction = direction_named(r.direction);
  CallSettings settings(read_call_options(r.options), k, direction == CallDirection::Forward, nullptr);
  settings.verify = settings.controls = false;
  r.report = nullptr;
  r.forward_status = nullptr;
  if (k.on_gpu) {
    settings.ahead = true;
    return apply(handle, r, &settings);
  }
  if (r.on_stream && r.stream) throw Misuse(kNoStreams);
  const Shape shape = few_steps(read_shape(k, r.shape));
  const std::vector<bool> given = given_arrays(k.call(direction), r);
  const UseCallSettings use(&settings);
  if (direction != CallDirection::Forward) {
    const SomeArrays some(k, k.call(direction), shape, given);
    cellc_shape few;
    cellc_shape_init(&few);
    few.lengths = shape.lengths.data();
    few.sequences = shape.sequences;
    few.steps = shape.steps;
    few.reverse = shape.reverse;
    return compile_derivatives(handle, direction, few, some.data(), some.count());
  }
  const std::vector<Expected> expected = expected_arrays(k, shape);
  const SomeArrays some(k, k.forward, shape, given);
  if (const cellc_status wrong = check_arrays(shape, expected, some.data(), some.count())) return wrong;
  compile_forward(k, shape, given, {given}, settings.solve);
  return CELLC_OK;
}

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

cellc_status cellc_compile_ahead(cellc_kernel* kernel, const cellc_shape* given, int prepared) {
  return guarded([&] {
    CompiledCell& k = opened(kernel);
    const UseHostMemory memory(k.own_memory());
    const Shape shape = read_shape(k, given);
    if (k.on_gpu) {
      k.on_gpu->kept(shape, k.solve);
      return;
    }
    compile_all(k, few_steps(shape));
    if (prepared) k.own_driver(CallDirection::Forward, shape);
  });
}

cellc_status cellc_compile_request(cellc_kernel* kernel, const cellc_request* request) {
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    const cellc_request r = sized(request, cellc_request{}, offsetof(cellc_request, options), "the request");
    status = compile_request(kernel, r);
  });
  return outcome == CELLC_OK ? status : outcome;
}

}  // extern "C"
