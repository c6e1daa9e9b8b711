#pragma once
// Runs of a kernel on arrays by name: forward, backward, along a tangent. Other threads of Python run meanwhile.
#include <optional>

#include "call_sizes.h"
#include "operator_calls.h"
#include "recipes.h"

namespace cellc::python {

/// What a run is asked for beside its arrays.
struct RunRequest {
  nb::dict named;    ///< what is read, by key; None stands for its default
  nb::object maker;  ///< of arrays
  AskedSizes sizes;
  std::optional<std::uintptr_t> stream;  ///< of a GPU; nothing: arrays are of the host
  nb::tuple names{}, tensors{};  ///< also read: one tensor for each name, and behind them what the direction says
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

/// Unknown: a call is like none that was made.
enum class Repeated { Unknown, Failed, Done };

class DirectedRun;

/// All of a call on tensors but the tensors, for many of them, at less cost.
class TensorCall {
 public:
  /// `owner`: of the kernel. `rows`: the states and outs that are made, or None: all. Finals: whether they are wanted.
  TensorCall(nb::object owner, RunRequest request, nb::object rows, bool finals);

  /// States and outs that are made, then finals where they are wanted. One tensor for each name of the request.
  nb::tuple forward(const nb::tuple& tensors) const;
  /// (the same, report). On a GPU it waits.
  nb::tuple watched(const nb::tuple& tensors) const;
  /// Behind the tensors of the names stand the states, all of them; cotangents are in the order of results, None for
  /// zeros. `needed`: what gradients are wanted of, of the names and whatever stands before them, which has None.
  nb::tuple backward(const nb::tuple& tensors, const nb::tuple& cotangents, const nb::tuple& needed) const;
  /// The same of calls that are like an earlier one; of others no object.
  nb::object repeat_forward(PyObject* const* tensors, std::size_t count, cellc_report* report = nullptr) const;
  nb::object repeat_backward(const nb::tuple& tensors, PyObject* const* cotangents, std::size_t count,
                             const nb::tuple& needed) const;
  /// Gradients of gradients: how those of all names move where the tensors move by `moved`, in the order of names, None
  /// for those that do not; and how results move.
  nb::tuple curvature(const nb::tuple& tensors, const nb::tuple& cotangents, const nb::tuple& moved) const;
  /// A call that an operator of torch is asked for, on tensors that need not be Python's. What it failed of, the same
  /// call by the methods above says.
  Repeated repeat_operator(const OperatorCall& asked, const OperatorResults& results) const;

 private:
  nb::tuple forward(const nb::tuple& tensors, cellc_report* report) const;
  /// What a forward run makes, in order.
  std::vector<const ArrayInfo*> results_of(const nb::object& rows) const;
  /// What a backward call reads of the forward run's results: the states, and cotangents of as many as there are.
  void read_results(const RunRequest& request, const nb::tuple& cotangents, DirectedRun& run) const;
  RunRequest request(const nb::tuple& tensors) const;
  /// What such a call has in common with others. Nothing where no other is alike.
  std::optional<RecipeKey> backward_key(PyObject* const* cotangents, std::size_t count, const nb::tuple& needed) const;

  nb::object owner_;
  const Kernel& kernel_;
  RunRequest request_;
  bool finals_;
  std::vector<const ArrayInfo*> results_;
  std::shared_ptr<const RecipeKey> key_;  ///< null: no other call is like this one's
};

/// (tangents of states and outs, of finals): tuples, with None for finals that have none.
nb::tuple tangent(const Kernel& kernel, const RunRequest& request, nb::dict states, nb::dict tangents, bool finals);

}  // namespace cellc::python
