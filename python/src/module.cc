// The module _core: what the package calls. Everything a user sees is in cellc/*.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "autograd_functions.h"
#include "faults.h"
#include "known_calls.h"
#include "run.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace cellc::python;

namespace {

/// Of the forward run: (key, role, dtype, required, axes), roles by their numbers in cellc.h.
nb::list described_arrays(const Kernel& kernel) {
  nb::list list;
  for (const ArrayInfo& info : kernel.arrays()) {
    nb::list axes;
    for (const int axis : info.axes) axes.append(kernel.axes()[static_cast<std::size_t>(axis)].name);
    list.append(nb::make_tuple(info.key, info.role, info.dtype, info.required, nb::tuple(axes)));
  }
  return list;
}

/// Keys of a direction's arrays of one quantity: [(key, role)].
nb::list described_derivatives(const Kernel& kernel, int direction, int quantity) {
  nb::list list;
  for (const ArrayInfo& info : kernel.arrays(direction))
    if (info.quantity == quantity) list.append(nb::make_tuple(info.key, info.role));
  return list;
}

nb::tuple final_keys(const Kernel& kernel) {
  nb::list list;
  for (const ArrayInfo& info : kernel.arrays())
    if (info.group() == Group::Finals) list.append(info.key);
  return nb::tuple(list);
}

nb::list described_axes(const Kernel& kernel) {
  nb::list list;
  for (const AxisInfo& axis : kernel.axes()) list.append(nb::make_tuple(axis.name, axis.length));
  return list;
}

void make_kernel(Kernel* place, const std::string& source, bool is_file, const std::string& cell, int dtype,
                 const std::string& device, const std::string& cpu, const std::string& solver,
                 const std::string& products, int threads, const std::string& cache, std::optional<double> tolerance,
                 int max_iterations, bool repair, bool deterministic) {
  KernelOptions options;
  options.cell = cell;
  options.dtype = dtype;
  options.device = device;
  options.cpu = cpu;
  options.solver = solver;
  options.products = products;
  options.threads = threads;
  options.cache = cache;
  options.tolerance = tolerance;
  options.max_iterations = max_iterations;
  options.repair = repair;
  options.deterministic = deterministic;
  new (place) Kernel(source, is_file, options);
}

nb::tuple run_forward(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes,
                      std::optional<std::uintptr_t> stream, nb::object wanted, bool finals, bool report) {
  return forward(kernel, {named, maker, asked_sizes(kernel, sizes), stream}, wanted, finals, report);
}

nb::tuple run_backward(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes,
                       std::optional<std::uintptr_t> stream, nb::dict states, nb::dict cotangents,
                       nb::dict final_cotangents, nb::object wanted) {
  return backward(kernel, {named, maker, asked_sizes(kernel, sizes), stream}, states, {cotangents, final_cotangents},
                  wanted);
}

void make_tensor_call(TensorCall* place, nb::object kernel, nb::tuple names, nb::dict constants, nb::object maker,
                      nb::tuple sizes, nb::object rows, bool finals) {
  const AskedSizes asked = asked_sizes(*nb::inst_ptr<Kernel>(kernel), sizes);
  new (place) TensorCall(kernel, {constants, maker, asked, std::uintptr_t{0}, names, nb::tuple()}, rows, finals);
}

nb::tuple run_tangent(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes,
                      std::optional<std::uintptr_t> stream, nb::dict states, nb::dict tangents, bool finals) {
  return tangent(kernel, {named, maker, asked_sizes(kernel, sizes), stream}, states, tangents, finals);
}

/// dtype and device of a tensor as one number: less than 0 on a CPU, -1 where nothing of it is known.
Py_ssize_t kind_of(PyObject* tensor) {
  const TorchTypes& torch = torch_types();
  DLTensor read;
  if (!torch.is_plain(tensor) || !torch.exchange.exists() || !torch.exchange.read(tensor, read)) return -1;
  const int dtype = read.cellc_dtype(), device = read.cellc_device();
  if (dtype == kOtherDtype || device == kElsewhere) return -1;
  return device == kHost ? -2 - dtype : 4 * static_cast<Py_ssize_t>(device) + dtype;
}

/// What a call is given, sorted: (names of tensors, tensors, whatever else there is by name, which tensor has the dtype
/// of storage: the first input, or the first; -1: none; kind_of it; whether a tensor requires a gradient). None is not
/// given.
nb::tuple sort_tensors(nb::dict named, nb::dict inputs) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const TorchTypes& torch = torch_types();
  std::vector<std::pair<PyObject*, PyObject*>> tensors;
  nb::dict rest;
  Py_ssize_t at = 0, lead = -1;
  bool lead_is_input = false, any = false;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(named.ptr(), &at, &key, &value)) {
    if (value == Py_None) continue;
    if (!torch.is_plain(value) && PyObject_IsInstance(value, torch.tensor.ptr()) != 1) {
      rest[nb::handle(key)] = nb::handle(value);
      continue;
    }
    if (!lead_is_input) {
      lead_is_input = PyDict_Contains(inputs.ptr(), key) == 1;
      if (lead < 0 || lead_is_input) lead = static_cast<Py_ssize_t>(tensors.size());
    }
    if (!any) {
      const nb::object grad = nb::steal(PyObject_GetAttr(value, requires_grad));
      if (!grad.is_valid()) throw nb::python_error();
      any = grad.ptr() == Py_True;
    }
    tensors.emplace_back(key, value);
  }
  const auto count = static_cast<Py_ssize_t>(tensors.size());
  const nb::tuple names = nb::steal<nb::tuple>(PyTuple_New(count)), values = nb::steal<nb::tuple>(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const auto& [name, tensor] = tensors[static_cast<std::size_t>(i)];
    PyTuple_SetItem(names.ptr(), i, Py_NewRef(name));
    PyTuple_SetItem(values.ptr(), i, Py_NewRef(tensor));
  }
  const Py_ssize_t kind = lead < 0 ? -1 : kind_of(tensors[static_cast<std::size_t>(lead)].second);
  return nb::make_tuple(names, values, rest, lead, kind, any);
}

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // kernels that live as long as the process, as those of graphs do, are no news
  translate_faults();
  module.attr("version") = cellc_version();
  module.def("set_torch", [](nb::object tensor, nb::object parameter, nb::object dtypes, nb::object empty_like) {
    torch_types() = {tensor, parameter, dtypes, empty_like, TensorExchange(tensor), TensorFactory::of_process()};
  });
  module.def("sort_tensors", &sort_tensors);
  module.def("know_call", &know_call, "function"_a, "names"_a, "finals"_a, "reverse"_a, "length"_a.none(),
             "batch"_a.none(), "write"_a.none(), "call"_a);
  module.def("keep_operator_error", &keep_operator_error);
  module.def("operator_table", [] { return reinterpret_cast<std::uintptr_t>(&operator_table()); });
  nb::class_<Kernel>(module, "Kernel")
      .def("__init__", &make_kernel, "source"_a, nb::kw_only(), "is_file"_a, "cell"_a, "dtype"_a, "device"_a, "cpu"_a,
           "solver"_a, "products"_a, "threads"_a, "cache"_a, "tolerance"_a.none(), "max_iterations"_a, "repair"_a,
           "deterministic"_a)
      .def("arrays", &described_arrays)
      .def("derivatives", &described_derivatives)
      .def_prop_ro("finals", &final_keys)
      .def("axes", &described_axes)
      .def("inspect", &Kernel::inspect, "json"_a)
      .def("forward", &run_forward, "named"_a, "maker"_a, "sizes"_a, "stream"_a.none(), "wanted"_a.none(), "finals"_a,
           "report"_a)
      .def("backward", &run_backward, "named"_a, "maker"_a, "sizes"_a, "stream"_a.none(), "states"_a, "cotangents"_a,
           "final_cotangents"_a, "wanted"_a)
      .def("tangent", &run_tangent, "named"_a, "maker"_a, "sizes"_a, "stream"_a.none(), "states"_a, "tangents"_a,
           "finals"_a);
  nb::class_<TensorCall>(module, "TensorCall")
      .def("__init__", &make_tensor_call, "kernel"_a, "names"_a, "constants"_a, "maker"_a, "sizes"_a, "rows"_a.none(),
           "finals"_a)
      .def("forward", nb::overload_cast<const nb::tuple&>(&TensorCall::forward, nb::const_))
      .def("watched", &TensorCall::watched)
      .def("backward", &TensorCall::backward)
      .def("curvature", &TensorCall::curvature);
  module.def("autograd_functions", &autograd_functions, "call"_a, "states"_a, "in_python"_a, "is_grad_enabled"_a);
}
