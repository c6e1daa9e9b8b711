#pragma once
// The two functions of a torch.autograd.Function whose runs are calls of one kind, without frames of Python: for calls
// that are like an earlier one. All others, and what goes wrong, are for functions in Python
// (cellc/torch.py).
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace cellc::python {

/// (forward, backward): forward(ctx, *tensors), backward(ctx, *cotangents). `call`: a TensorCall; `states`: how many of
/// its results are states, which stand first; `in_python`: forward(ctx, *tensors), backward(saved, needed,
/// *cotangents); `is_grad_enabled`: of torch.
nb::tuple autograd_functions(nb::object call, std::size_t states, nb::tuple in_python, nb::object is_grad_enabled);

}  // namespace cellc::python
