#include "autograd_functions.h"

#include "room.h"
#include "run.h"

namespace cellc::python {
namespace {

/// What a function is bound to: a tuple, which the collector of garbage sees through.
enum Bound { kCall, kInPython, kStates, kIsGradEnabled };

PyObject* bound(PyObject* self, Bound which) { return PyTuple_GetItem(self, which); }

const TensorCall& call_of(PyObject* self) { return *nb::inst_ptr<TensorCall>(bound(self, kCall)); }

PyObject* in_python(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return PyObject_Vectorcall(bound(self, kInPython), given, static_cast<std::size_t>(count), nullptr);
}

struct Names {
  PyObject *save = PyUnicode_InternFromString("save_for_backward"),
           *materialize = PyUnicode_InternFromString("set_materialize_grads"),
           *saved = PyUnicode_InternFromString("saved_tensors"),
           *needed = PyUnicode_InternFromString("needs_input_grad");
};
const Names& names() {
  static const Names* names = new Names;  // never freed: the interpreter may be gone by then
  return *names;
}

/// Whether a method of `given[0]` went well.
bool does(PyObject* method, PyObject* const* given, std::size_t count) {
  const nb::object result = nb::steal(PyObject_VectorcallMethod(method, given, count, nullptr));
  return result.is_valid();
}

/// Calls that are not made here have no object, nor an error of Python: whoever makes them in Python meets it again.
template <typename Repeat>
nb::object repeated(Repeat repeat) {
  try {
    return repeat();
  } catch (...) {
    return {};
  }
}

PyObject* run_forward(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (count < 1) return in_python(self, given, count);
  const auto tensors = static_cast<std::size_t>(count) - 1;
  const nb::object results = repeated([&] { return call_of(self).repeat_forward(given + 1, tensors); });
  if (!results.is_valid()) return in_python(self, given, count);
  const auto states = static_cast<std::size_t>(PyLong_AsSize_t(bound(self, kStates)));
  Room<PyObject*> saved(1 + tensors + states);
  for (std::size_t i = 0; i <= tensors; ++i) saved[i] = given[i];
  for (std::size_t i = 0; i < states; ++i)
    saved[1 + tensors + i] = PyTuple_GetItem(results.ptr(), static_cast<Py_ssize_t>(i));
  PyObject* const leave_out_zeros[] = {given[0], Py_False};
  if (!does(names().save, saved.data(), saved.size()) || !does(names().materialize, leave_out_zeros, 2)) return nullptr;
  return nb::object(results).release().ptr();
}

PyObject* run_backward(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "backward needs the context of its run");
  // Once: a checkpoint makes what was saved again for whoever asks, and for nobody twice.
  const nb::object saved = nb::steal(PyObject_GetAttr(given[0], names().saved));
  if (!saved.is_valid()) return nullptr;
  const nb::object needed = nb::steal(PyObject_GetAttr(given[0], names().needed));
  if (!needed.is_valid()) return nullptr;
  const nb::object differentiated = nb::steal(PyObject_CallNoArgs(bound(self, kIsGradEnabled)));
  if (!differentiated.is_valid()) return nullptr;
  const auto cotangents = static_cast<std::size_t>(count) - 1;
  nb::object results;
  if (differentiated.ptr() == Py_False && PyTuple_Check(saved.ptr()) && PyTuple_Check(needed.ptr()))
    results = repeated([&] {
      return call_of(self).repeat_backward(nb::borrow<nb::tuple>(saved), given + 1, cotangents,
                                           nb::borrow<nb::tuple>(needed));
    });
  if (results.is_valid()) return results.release().ptr();
  Room<PyObject*> all(2 + cotangents);
  all[0] = saved.ptr();
  all[1] = needed.ptr();
  for (std::size_t i = 0; i < cotangents; ++i) all[2 + i] = given[1 + i];
  return in_python(self, all.data(), static_cast<Py_ssize_t>(all.size()));
}

template <typename Function>
PyCFunction untyped(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

nb::object make(PyMethodDef& method, const nb::tuple& bound) {
  nb::object function = nb::steal(PyCFunction_NewEx(&method, bound.ptr(), nullptr));
  if (!function.is_valid()) throw nb::python_error();
  return function;
}

}  // namespace

nb::tuple autograd_functions(nb::object call, std::size_t states, nb::tuple in_python, nb::object is_grad_enabled) {
  static PyMethodDef forward = {"forward", untyped(&run_forward), METH_FASTCALL, nullptr},
                     backward = {"backward", untyped(&run_backward), METH_FASTCALL, nullptr};
  return nb::make_tuple(make(forward, nb::make_tuple(call, in_python[0], states)),
                        make(backward, nb::make_tuple(call, in_python[1], states, is_grad_enabled)));
}

}  // namespace cellc::python
