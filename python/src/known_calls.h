#pragma once
// Calls that operators of torch made in Python, so that the library of operators may make them again without it.
#include <string>

#include "run.h"

namespace cellc::python {

/// Remembers `call`, a TensorCall, under what an operator is told beside tensors. Needs the GIL.
void know_call(std::int64_t function, const std::string& names, bool finals, bool reverse,
               std::optional<std::int64_t> length, std::optional<std::int64_t> batch,
               const std::optional<std::string>& write, nb::object call);

/// For take_error() of the table, by the thread that failed.
void keep_operator_error(const std::string& text);

/// What the library is given.
const OperatorTable& operator_table();

}  // namespace cellc::python
