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
  throw ArgumentFault{"DTypeError", info.key,
                      "argument '" + info.key + "': expected an array, a number or a list of numbers"};
}

std::vector<Given> given_of(const Kernel& kernel, const RunRequest& request) {
  std::vector<Given> given;
  given.reserve(static_cast<std::size_t>(PyDict_Size(request.named.ptr())));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(request.named.ptr(), &at, &key, &value)) {
    if (value == Py_None) continue;
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key, &length);
    if (!text) throw nb::python_error();
    const int number = kernel.find({text, static_cast<std::size_t>(length)});
    if (number < 0) {
      std::string known;
      for (const ArrayInfo& info : kernel.arrays())
        if (!info.written) known += (known.empty() ? "" : ", ") + info.key;
      throw ArgumentFault{
          "ArgumentError", text,
          "there is no argument '" + std::string(text) + "'; the cell reads " + (known.empty() ? "nothing" : known)};
    }
    Given one;
    one.info = &kernel.arrays()[static_cast<std::size_t>(number)];
    one.object = nb::borrow(value);
    if (!one.held.take(value)) {
      one.is_scalar = PyFloat_Check(value) || PyLong_Check(value);
      if (!one.is_scalar) convert(one, request.maker);
    }
    given.push_back(std::move(one));
  }
  return given;
}

void refuse_missing(const Kernel& kernel, const std::vector<Given>& given) {
  std::string missing, first;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (!info.required || info.written) continue;
    bool found = false;
    for (const Given& g : given) found = found || g.info == &info;
    if (found) continue;
    if (first.empty()) first = info.key;
    missing += (missing.empty() ? "'" : ", '") + info.key + "'";
  }
  if (!first.empty()) throw ArgumentFault{"ArgumentError", first, "missing: " + missing};
}

bool is_wanted(const RunRequest& request, const std::string& name) {
  if (request.wanted.is_none()) return true;
  return PySequence_Contains(request.wanted.ptr(), nb::str(name.c_str()).ptr()) == 1;
}

nb::object report_of(const cellc_report& r) {
  return nb::make_tuple(r.converged != 0, r.max_residual, r.error_estimate, r.repaired, r.unconverged, r.iterations,
                        r.compile_ms, r.run_ms);
}

cellc_status run(const Kernel& kernel, const cellc_shape& shape, const CallArrays& arrays, const RunRequest& request,
                 cellc_report& report) {
  cellc_report* asked = request.report ? &report : nullptr;
  if (const auto call = kernel.prepared(shape)) {
    const auto start = std::chrono::steady_clock::now();
    cellc_status status;
    {
      nb::gil_scoped_release others_run;
      status = cellc_run(call.get(), arrays.data(), arrays.count());
    }
    report.converged = 1;  // steps are exact
    report.run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return status;
  }
  nb::gil_scoped_release others_run;
  if (kernel.on_gpu())
    return cellc_forward_on(kernel.handle(), &shape, arrays.data(), arrays.count(),
                            reinterpret_cast<void*>(request.stream), nullptr, asked);
  return cellc_forward(kernel.handle(), &shape, arrays.data(), arrays.count(), asked);
}

}  // namespace

nb::tuple forward(const Kernel& kernel, const RunRequest& request) {
  std::vector<Given> given = given_of(kernel, request);
  refuse_missing(kernel, given);
  const CallSizes sizes(kernel, given, request.sizes);
  CallArrays arrays(kernel, sizes, kernel.arrays(), request.maker);
  for (Given& g : given) arrays.read(g);
  nb::list results, finals;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (info.role == Role::State || info.role == Role::Out) {
      if (is_wanted(request, info.name)) results.append(arrays.write(info));
    } else if (info.written && request.finals) {
      finals.append(arrays.write(info));
    }
  }
  const cellc_shape shape = sizes.shape();
  cellc_report report;
  cellc_report_init(&report);
  const cellc_status status = run(kernel, shape, arrays, request, report);
  if (status != CELLC_NOT_CONVERGED) check(status);  // that is said by the report
  return nb::make_tuple(nb::tuple(results), nb::tuple(finals),
                        request.report ? report_of(report) : nb::object(nb::none()));
}

}  // namespace cellc::python
