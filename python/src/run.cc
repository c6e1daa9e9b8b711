#include "run.h"

#include <chrono>

#include "call_arrays.h"
#include "faults.h"

namespace cellc::python {
namespace {

void convert(Given& given, const nb::object& maker) {
  const ArrayInfo& info = *given.info;
  try {
    given.object = maker.attr("convert")(given.object, info.dtype);
    if (given.held.take(given.object)) return;
  } catch (const nb::python_error&) {  // what NumPy has to say names no argument
  }
  throw ArgumentFault{"DTypeError", info.key, info.label() + ": expected an array, a number or a list of numbers"};
}

[[noreturn]] void refuse_unknown(const Kernel& kernel, cellc_direction direction, cellc_quantity quantity, Group group,
                                 const std::string& name) {
  static constexpr const char* kinds[] = {"argument", "cotangent", "gradient", "tangent"};
  std::string known;
  for (const ArrayInfo& info : kernel.arrays(direction))
    if (info.quantity == quantity && info.group() == group && !(group == Group::Read && info.written))
      known += (known.empty() ? "" : ", ") + info.key;
  throw ArgumentFault{
      "ArgumentError", name,
      std::string("there is no ") + kinds[quantity] + " '" + name + "'; there is " + (known.empty() ? "none" : known)};
}

/// Appends what `named` has.
void append_given(const Kernel& kernel, cellc_direction direction, cellc_quantity quantity, Group group,
                  const nb::dict& named, const nb::object& maker, std::vector<Given>& given) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(named.ptr(), &at, &key, &value)) {
    if (value == Py_None) continue;
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key, &length);
    if (!text) throw nb::python_error();
    const ArrayInfo* info = kernel.find(direction, quantity, group, {text, static_cast<std::size_t>(length)});
    if (!info || info->written) refuse_unknown(kernel, direction, quantity, group, text);
    Given one;
    one.info = info;
    one.object = nb::borrow(value);
    if (!one.held.take(value)) {
      one.is_scalar = PyFloat_Check(value) || PyLong_Check(value);
      if (!one.is_scalar) convert(one, maker);
    }
    given.push_back(std::move(one));
  }
}

void refuse_missing(const Kernel& kernel, const std::vector<Given>& given) {
  std::string missing, first;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (!info.required || info.written) continue;
    bool found = false;
    for (const Given& g : given) found = found || g.info->key == info.key;
    if (found) continue;
    if (first.empty()) first = info.key;
    missing += (missing.empty() ? "'" : ", '") + info.key + "'";
  }
  if (!first.empty()) throw ArgumentFault{"ArgumentError", first, "missing: " + missing};
}

/// A call in some direction with its values: sizes come from them.
class DirectedRun {
 public:
  DirectedRun(const Kernel& kernel, cellc_direction direction, const RunRequest& request)
      : kernel_(kernel),
        direction_(direction),
        request_(request),
        given_(values(kernel, direction, request)),
        sizes_(kernel, given_, request.sizes),
        arrays_(kernel, sizes_, direction, request.maker) {
    for (Given& g : given_) arrays_.read(g);
  }

  /// Further arrays that are read.
  void read(cellc_quantity quantity, Group group, const nb::dict& named) {
    const std::size_t before = given_.size();
    append_given(kernel_, direction_, quantity, group, named, request_.maker, given_);
    for (std::size_t i = before; i < given_.size(); ++i) arrays_.read(given_[i]);
  }
  nb::object write(const ArrayInfo& info) { return arrays_.write(info); }

  cellc_shape shape() const { return sizes_.shape(); }
  const CallArrays& arrays() const { return arrays_; }
  void* stream() const { return reinterpret_cast<void*>(request_.stream); }

 private:
  static std::vector<Given> values(const Kernel& kernel, cellc_direction direction, const RunRequest& request) {
    std::vector<Given> given;
    given.reserve(kernel.arrays(direction).size());
    append_given(kernel, direction, CELLC_IS_VALUE, Group::Read, request.named, request.maker, given);
    refuse_missing(kernel, given);
    return given;
  }

  const Kernel& kernel_;
  const cellc_direction direction_;
  const RunRequest& request_;
  std::vector<Given> given_;
  const CallSizes sizes_;
  CallArrays arrays_;
};

bool is_wanted(const nb::object& wanted, const std::string& name) {
  return wanted.is_none() || PySequence_Contains(wanted.ptr(), nb::str(name.c_str()).ptr()) == 1;
}

nb::object report_of(const cellc_report& r) {
  return nb::make_tuple(r.converged != 0, r.max_residual, r.error_estimate, r.repaired, r.unconverged, r.iterations,
                        r.compile_ms, r.run_ms);
}

cellc_status run_forward(const Kernel& kernel, const DirectedRun& run, cellc_report* report) {
  const cellc_shape shape = run.shape();
  const CallArrays& arrays = run.arrays();
  if (const auto call = kernel.prepared(shape)) {
    const auto start = std::chrono::steady_clock::now();
    cellc_status status;
    {
      nb::gil_scoped_release others_run;
      status = cellc_run(call.get(), arrays.data(), arrays.count());
    }
    if (!report) return status;
    report->converged = 1;  // steps are exact
    report->run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return status;
  }
  nb::gil_scoped_release others_run;
  if (!kernel.on_gpu()) return cellc_forward(kernel.handle(), &shape, arrays.data(), arrays.count(), report);
  return cellc_forward_on(kernel.handle(), &shape, arrays.data(), arrays.count(), run.stream(), nullptr, report);
}

}  // namespace

nb::tuple forward(const Kernel& kernel, const RunRequest& request, nb::object wanted, bool finals, bool report) {
  DirectedRun run(kernel, CELLC_FORWARD, request);
  nb::list rows, last;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (info.group() == Group::Rows && is_wanted(wanted, info.key)) rows.append(run.write(info));
    if (info.group() == Group::Finals && finals) last.append(run.write(info));
  }
  cellc_report filled;
  cellc_report_init(&filled);
  const cellc_status status = run_forward(kernel, run, report ? &filled : nullptr);
  if (status != CELLC_NOT_CONVERGED) check(status);  // that is said by the report
  return nb::make_tuple(nb::tuple(rows), nb::tuple(last), report ? report_of(filled) : nb::object(nb::none()));
}

nb::tuple backward(const Kernel& kernel, const RunRequest& request, nb::dict states, const Derivatives& cotangents,
                   nb::object wanted) {
  DirectedRun run(kernel, CELLC_BACKWARD, request);
  run.read(CELLC_IS_VALUE, Group::Rows, states);
  run.read(CELLC_IS_COTANGENT, Group::Rows, cotangents.rows);
  run.read(CELLC_IS_COTANGENT, Group::Finals, cotangents.finals);
  nb::list gradients;
  for (const nb::handle key : wanted) {
    const char* name = PyUnicode_AsUTF8AndSize(key.ptr(), nullptr);
    if (!name) throw nb::python_error();
    const ArrayInfo* info = kernel.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, name);
    if (!info) refuse_unknown(kernel, CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, name);
    gradients.append(run.write(*info));
  }
  const cellc_shape shape = run.shape();
  const CallArrays& arrays = run.arrays();
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status = kernel.on_gpu() ? cellc_backward_on(kernel.handle(), &shape, arrays.data(), arrays.count(), run.stream(),
                                                 nullptr, nullptr)
                             : cellc_backward(kernel.handle(), &shape, arrays.data(), arrays.count(), nullptr, nullptr);
  }
  check(status);
  return nb::tuple(gradients);
}

nb::tuple tangent(const Kernel& kernel, const RunRequest& request, nb::dict states, nb::dict tangents, bool finals) {
  DirectedRun run(kernel, CELLC_TANGENT, request);
  run.read(CELLC_IS_VALUE, Group::Rows, states);
  run.read(CELLC_IS_TANGENT, Group::Read, tangents);
  nb::list rows, last;
  for (const ArrayInfo& info : kernel.arrays()) {  // in the order of the results that they are tangents of
    if (!info.written || (info.group() == Group::Finals && !finals)) continue;
    const ArrayInfo* moves = kernel.find(CELLC_TANGENT, CELLC_IS_TANGENT, info.group(), info.key);
    (info.group() == Group::Rows ? rows : last).append(moves ? run.write(*moves) : nb::object(nb::none()));
  }
  const cellc_shape shape = run.shape();
  const CallArrays& arrays = run.arrays();
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status = kernel.on_gpu() ? cellc_tangent_on(kernel.handle(), &shape, arrays.data(), arrays.count(), run.stream(),
                                                nullptr, nullptr)
                             : cellc_tangent(kernel.handle(), &shape, arrays.data(), arrays.count(), nullptr, nullptr);
  }
  check(status);
  return nb::make_tuple(nb::tuple(rows), nb::tuple(last));
}

}  // namespace cellc::python
