// The module _core: what the package calls. Everything a user sees is in cellc/*.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "faults.h"
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
                 const std::string& device, const std::string& cpu, const std::string& solver, int threads,
                 const std::string& cache, double tolerance, int max_iterations, bool repair) {
  KernelOptions options;
  options.cell = cell;
  options.dtype = dtype;
  options.device = device;
  options.cpu = cpu;
  options.solver = solver;
  options.threads = threads;
  options.cache = cache;
  options.tolerance = tolerance;
  options.max_iterations = max_iterations;
  options.repair = repair;
  new (place) Kernel(source, is_file, options);
}

/// (batch, length, sizes, offsets, reverse), as a call has them.
AskedSizes asked(const nb::tuple& given) {
  AskedSizes asked;
  if (!given[0].is_none()) asked.batch = nb::cast<std::int64_t>(given[0]);
  if (!given[1].is_none()) asked.length = nb::cast<std::int64_t>(given[1]);
  asked.sizes = given[2];
  asked.offsets = given[3];
  asked.reverse = nb::cast<bool>(given[4]);
  return asked;
}

nb::tuple run_forward(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes, std::uintptr_t stream,
                      nb::object wanted, bool finals, bool report) {
  return forward(kernel, {named, maker, asked(sizes), stream}, wanted, finals, report);
}

nb::tuple run_backward(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes, std::uintptr_t stream,
                       nb::dict states, nb::dict cotangents, nb::dict final_cotangents, nb::object wanted) {
  return backward(kernel, {named, maker, asked(sizes), stream}, states, {cotangents, final_cotangents}, wanted);
}

nb::tuple run_forward_in_order(const Kernel& kernel, nb::tuple names, nb::tuple tensors, nb::dict constants,
                               nb::object maker, nb::tuple sizes, std::uintptr_t stream, bool finals) {
  return forward_in_order(kernel, {constants, maker, asked(sizes), stream, names, tensors}, finals);
}

nb::tuple run_backward_in_order(const Kernel& kernel, nb::tuple names, nb::tuple tensors, nb::dict constants,
                                nb::object maker, nb::tuple sizes, std::uintptr_t stream, nb::tuple cotangents,
                                nb::tuple needed) {
  return backward_in_order(kernel, {constants, maker, asked(sizes), stream, names, tensors}, cotangents, needed);
}

nb::tuple run_curvature_in_order(const Kernel& kernel, nb::tuple names, nb::tuple tensors, nb::dict constants,
                                 nb::object maker, nb::tuple sizes, nb::tuple cotangents, nb::tuple moved) {
  return curvature_in_order(kernel, {constants, maker, asked(sizes), 0, names, tensors}, cotangents, moved);
}

nb::tuple run_tangent(const Kernel& kernel, nb::dict named, nb::object maker, nb::tuple sizes, std::uintptr_t stream,
                      nb::dict states, nb::dict tangents, bool finals) {
  return tangent(kernel, {named, maker, asked(sizes), stream}, states, tangents, finals);
}

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // kernels that live as long as the process, as torch keeps functions, are no news
  translate_faults();
  module.attr("version") = cellc_version();
  module.def("set_torch", [](nb::object tensor, nb::object dtypes) { torch_types() = {tensor, dtypes}; });
  nb::class_<Kernel>(module, "Kernel")
      .def("__init__", &make_kernel, "source"_a, nb::kw_only(), "is_file"_a, "cell"_a, "dtype"_a, "device"_a, "cpu"_a,
           "solver"_a, "threads"_a, "cache"_a, "tolerance"_a, "max_iterations"_a, "repair"_a)
      .def("arrays", &described_arrays)
      .def("derivatives", &described_derivatives)
      .def_prop_ro("finals", &final_keys)
      .def("axes", &described_axes)
      .def("inspect", &Kernel::inspect, "json"_a)
      .def("forward", &run_forward, "named"_a, "maker"_a, "sizes"_a, "stream"_a, "wanted"_a.none(), "finals"_a,
           "report"_a)
      .def("backward", &run_backward)
      .def("forward_in_order", &run_forward_in_order)
      .def("backward_in_order", &run_backward_in_order)
      .def("curvature_in_order", &run_curvature_in_order)
      .def("tangent", &run_tangent);
}
