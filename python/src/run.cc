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

/// What calls in some direction are given under names that stand for arrays of one kind.
struct Kind {
  cellc_direction direction;
  cellc_quantity quantity;
  Group group;
};

void append_one(const Kernel& kernel, const Kind& kind, PyObject* key, PyObject* value, const nb::object& maker,
                std::vector<Given>& given) {
  if (value == Py_None) return;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key, &length);
  if (!text) throw nb::python_error();
  const ArrayInfo* info =
      kernel.find(kind.direction, kind.quantity, kind.group, {text, static_cast<std::size_t>(length)});
  if (!info || info->written) refuse_unknown(kernel, kind.direction, kind.quantity, kind.group, text);
  Given one;
  one.info = info;
  one.object = nb::borrow(value);
  if (!one.held.take(value)) {
    one.is_scalar = PyFloat_Check(value) || PyLong_Check(value);
    if (!one.is_scalar) convert(one, maker);
  }
  given.push_back(std::move(one));
}

/// Appends what `named` has.
void append_given(const Kernel& kernel, const Kind& kind, const nb::dict& named, const nb::object& maker,
                  std::vector<Given>& given) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(named.ptr(), &at, &key, &value)) append_one(kernel, kind, key, value, maker, given);
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
    append_given(kernel_, {direction_, quantity, group}, named, request_.maker, given_);
    for (std::size_t i = before; i < given_.size(); ++i) arrays_.read(given_[i]);
  }
  /// One of a kind, which nobody wrote down by name.
  void read(cellc_quantity quantity, const ArrayInfo& of, nb::handle array) {
    if (array.is_none()) return;
    const ArrayInfo* info = kernel_.find(direction_, quantity, of.group(), of.key);
    if (!info) refuse_unknown(kernel_, direction_, quantity, of.group(), of.key);
    Given one;
    one.info = info;
    one.object = nb::borrow(array);
    if (!one.held.take(array)) throw std::logic_error("no tensor");
    given_.push_back(std::move(one));
    arrays_.read(given_.back());
  }
  /// Of the values that were given.
  const Given& value(std::size_t i) const { return given_[i]; }
  nb::object write(const ArrayInfo& info) { return arrays_.write(info); }

  cellc_shape shape() const { return sizes_.shape(); }
  const CallArrays& arrays() const { return arrays_; }
  void* stream() const { return reinterpret_cast<void*>(request_.stream); }

 private:
  static std::vector<Given> values(const Kernel& kernel, cellc_direction direction, const RunRequest& request) {
    std::vector<Given> given;
    given.reserve(kernel.arrays(direction).size());
    const Kind kind{direction, CELLC_IS_VALUE, Group::Read};
    for (std::size_t i = 0; i < request.names.size(); ++i)
      append_one(kernel, kind, request.names[i].ptr(), request.tensors[i].ptr(), request.maker, given);
    append_given(kernel, kind, request.named, request.maker, given);
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

/// What a backward call reads of the forward run's results: the states, and cotangents of as many as there are.
void read_results(const Kernel& kernel, const RunRequest& request, const nb::tuple& cotangents, DirectedRun& run) {
  std::size_t state = request.names.size(), cotangent = 0;
  for (const ArrayInfo& info : kernel.arrays())
    if (info.role == CELLC_ROLE_STATE) run.read(CELLC_IS_VALUE, info, request.tensors[state++]);
  for (const Group group : {Group::Rows, Group::Finals})
    for (const ArrayInfo& info : kernel.arrays())
      if (info.group() == group && cotangent < cotangents.size())
        run.read(CELLC_IS_COTANGENT, info, cotangents[cotangent++]);
}

void run_backward(const Kernel& kernel, const DirectedRun& run) {
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
  run_backward(kernel, run);
  return nb::tuple(gradients);
}

nb::tuple forward_in_order(const Kernel& kernel, const RunRequest& request, bool finals) {
  DirectedRun run(kernel, CELLC_FORWARD, request);
  nb::list results;
  for (const Group group : {Group::Rows, Group::Finals})
    for (const ArrayInfo& info : kernel.arrays())
      if (info.group() == group && (group == Group::Rows || finals)) results.append(run.write(info));
  const cellc_status status = run_forward(kernel, run, nullptr);
  if (status != CELLC_NOT_CONVERGED) check(status);
  return nb::tuple(results);
}

nb::tuple backward_in_order(const Kernel& kernel, const RunRequest& request, nb::tuple cotangents, nb::tuple needed) {
  DirectedRun run(kernel, CELLC_BACKWARD, request);
  read_results(kernel, request, cotangents, run);
  nb::list gradients;
  bool fit = true;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (needed[i].ptr() != Py_True) {
      gradients.append(nb::none());
      continue;
    }
    const Given& value = run.value(i);
    const ArrayInfo* info = kernel.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.info->key);
    if (!info) refuse_unknown(kernel, CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.info->key);
    fit = fit && !value.refitted && info->dtype == value.info->dtype;
    gradients.append(run.write(*info));
  }
  run_backward(kernel, run);
  return nb::make_tuple(nb::tuple(gradients), fit);
}

nb::tuple curvature_in_order(const Kernel& kernel, const RunRequest& request, nb::tuple cotangents, nb::tuple moved) {
  DirectedRun backward(kernel, CELLC_BACKWARD, request), tangent(kernel, CELLC_TANGENT, request);
  read_results(kernel, request, cotangents, backward);
  std::size_t state = request.names.size();
  for (const ArrayInfo& info : kernel.arrays())
    if (info.role == CELLC_ROLE_STATE) tangent.read(CELLC_IS_VALUE, info, request.tensors[state++]);
  nb::list gradients, tangents;
  for (std::size_t i = 0; i < request.names.size(); ++i) {
    const ArrayInfo& value = *backward.value(i).info;
    tangent.read(CELLC_IS_TANGENT, value, moved[i]);
    gradients.append(backward.write(*kernel.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.key)));
  }
  for (const Group group : {Group::Rows, Group::Finals})
    for (const ArrayInfo& info : kernel.arrays()) {
      if (info.group() != group) continue;
      const ArrayInfo* moves = kernel.find(CELLC_TANGENT, CELLC_IS_TANGENT, group, info.key);
      tangents.append(moves ? tangent.write(*moves) : nb::object(nb::none()));
    }
  const cellc_shape shape = backward.shape();
  const CallArrays &pulled = backward.arrays(), &pushed = tangent.arrays();
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status =
        cellc_curvature(kernel.handle(), &shape, pulled.data(), pulled.count(), pushed.data(), pushed.count(), nullptr);
  }
  check(status);
  return nb::make_tuple(nb::tuple(gradients), nb::tuple(tangents));
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
