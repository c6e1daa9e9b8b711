#pragma once
// What goes wrong, as Python exceptions of cellc/errors.py.
#include <string>

#include "capi/cellc.h"

namespace cellc::python {

/// Raised as `kind`, a class of cellc.errors, whose attribute `argument` is the name of the argument at fault.
struct ArgumentFault {
  const char* kind;  ///< "ShapeError", "DTypeError" or "ArgumentError"
  std::string argument, text;
};

/// A status of cellc.h with the thread's last error, taken when it is made.
struct StatusFault {
  explicit StatusFault(cellc_status status);

  cellc_status status;
  std::string text;
  int line = 0, column = 0;
};

/// Throws StatusFault for all but CELLC_OK.
void check(cellc_status status);

/// Makes both of them exceptions of Python.
void translate_faults();

}  // namespace cellc::python
