#pragma once
// Runs of a kernel on arrays by name: forward, backward, along a tangent. Other threads of Python run meanwhile.
#include "call_sizes.h"

namespace cellc::python {

/// What a run is asked for beside its arrays.
struct RunRequest {
  nb::dict named;    ///< what is read, by key; None stands for its default
  nb::object maker;  ///< of arrays
  AskedSizes sizes;
  std::uintptr_t stream = 0;  ///< of a GPU
};

/// (states and outs that are wanted, finals, report): tuples, and None for a report that was not asked for. `wanted`:
/// names, or None: all.
nb::tuple forward(const Kernel& kernel, const RunRequest& request, nb::object wanted, bool finals, bool report);

/// Derivatives that go into a run, by name: cotangents of rows and finals, or tangents of what is read.
struct Derivatives {
  nb::dict rows, finals;
};

/// A tuple of gradients by the order of `wanted`, keys of what is read. `states`: those that the forward run wrote.
nb::tuple backward(const Kernel& kernel, const RunRequest& request, nb::dict states, const Derivatives& cotangents,
                   nb::object wanted);

/// (tangents of states and outs, of finals): tuples, with None for finals that have none.
nb::tuple tangent(const Kernel& kernel, const RunRequest& request, nb::dict states, nb::dict tangents, bool finals);

}  // namespace cellc::python
