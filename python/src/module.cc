// The module _core: what the package calls. Everything a user sees is in cellc/*.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "faults.h"
#include "run.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace cellc::python;

namespace {

const char* role_name(Role role) {
  static constexpr const char* names[] = {"input", "param",   "state", "out",
                                          "start", "history", "final", "final history"};
  return names[static_cast<int>(role)];
}

nb::list described_arrays(const Kernel& kernel) {
  nb::list list;
  for (const ArrayInfo& info : kernel.arrays()) {
    nb::list axes;
    for (const int axis : info.axes) axes.append(kernel.axes()[static_cast<std::size_t>(axis)].name);
    list.append(nb::make_tuple(info.key, role_name(info.role), info.dtype, info.required, nb::tuple(axes)));
  }
  return list;
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

}  // namespace

NB_MODULE(_core, module) {
  translate_faults();
  module.attr("version") = cellc_version();
  module.def("set_torch", [](nb::object tensor, nb::object dtypes) { torch_types() = {tensor, dtypes}; });
  nb::class_<Kernel>(module, "Kernel")
      .def("__init__", &make_kernel, "source"_a, nb::kw_only(), "is_file"_a, "cell"_a, "dtype"_a, "device"_a, "cpu"_a,
           "solver"_a, "threads"_a, "cache"_a, "tolerance"_a, "max_iterations"_a, "repair"_a)
      .def("arrays", &described_arrays)
      .def("axes", &described_axes)
      .def("inspect", &Kernel::inspect, "json"_a)
      .def(
          "forward",
          [](const Kernel& kernel, nb::dict named, nb::object maker, nb::object wanted, bool finals,
             std::optional<std::int64_t> batch, std::optional<std::int64_t> length, nb::object sizes,
             nb::object offsets, bool reverse, std::uintptr_t stream, bool report) {
            return forward(kernel,
                           {named, maker, {batch, length, sizes, offsets, reverse}, wanted, finals, report, stream});
          },
          "named"_a, "maker"_a, "wanted"_a.none(), "finals"_a, "batch"_a.none(), "length"_a.none(), "sizes"_a.none(),
          "offsets"_a.none(), "reverse"_a, "stream"_a, "report"_a);
}
