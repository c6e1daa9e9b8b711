#pragma once
// Runs of a kernel on arrays by name.
#include "call_sizes.h"

namespace cellc::python {

/// What a run is asked for beside its arrays.
struct RunRequest {
  nb::dict named;    ///< what is read, by key; None stands for its default
  nb::object maker;  ///< of arrays
  AskedSizes sizes;
  nb::object wanted;  ///< names of states and outs, or None: all
  bool finals = false, report = false;
  std::uintptr_t stream = 0;  ///< of a GPU
};

/// (states and outs that are wanted, finals, report): tuples, the latter None where it was not asked for. Lets other
/// threads of Python run meanwhile.
nb::tuple forward(const Kernel& kernel, const RunRequest& request);

}  // namespace cellc::python
