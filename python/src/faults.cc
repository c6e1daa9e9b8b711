#include "faults.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace cellc::python {
namespace {

/// Sets Python's error to an object that a function of cellc.errors makes.
template <typename... Arguments>
void raise(const char* maker, const Arguments&... arguments) {
  const nb::object error = nb::module_::import_("cellc.errors").attr(maker)(arguments...);
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

}  // namespace

StatusFault::StatusFault(cellc_status from) : status(from), text(cellc_last_error()) {
  cellc_last_error_position(&line, &column);
}

void check(cellc_status status) {
  if (status != CELLC_OK) throw StatusFault(status);
}

void translate_faults() {
  nb::register_exception_translator([](const std::exception_ptr& fault, void*) {
    try {
      std::rethrow_exception(fault);
    } catch (const ArgumentFault& f) {
      raise("of_argument", f.kind, f.argument.c_str(), f.text.c_str());
    } catch (const StatusFault& f) {
      raise("of_status", static_cast<int>(f.status), f.text.c_str(), f.line, f.column);
    }
  });
}

}  // namespace cellc::python
