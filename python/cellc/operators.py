"""Runs as operators of torch, ``cellc::forward`` and ``cellc::backward``: what torch.compile and torch.export put in the
place of a call. Eager calls do not come here, because an operator costs more than a small run.

An operator takes the number of a ``Function``, names and tensors, and lengths that no tensor says. ``cellc::plain_forward`` is
the forward run without a gradient, which is what remains in a graph when its gradients are derived: the formula of a
gradient is Python's, and asked for in each call of ``cellc::forward``, which takes longer than a small run.

What they do is here in Python. Where there is the library of operators (operator_library.py), it makes those calls that are
like an earlier one, and hands others on to ``cellc::forward_in_python`` and ``cellc::backward_in_python``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, List, Optional, Sequence

import torch
from torch import Tensor

from . import _core, operator_library
from .tensors import DTYPES
from .torch import Call, _Gradients, function_of_graph


@lru_cache(maxsize=None)
def _order(function: int, names: str) -> tuple[tuple[str, ...], int]:
    """Names apart, and the number of the tensor that has the dtype of storage."""
    keys = tuple(names.split(","))
    inputs = [i for i, key in enumerate(keys) if key in function_of_graph(function).cell.inputs]
    return keys, inputs[0] if inputs else 0


def _call(
    tensors: Sequence[Tensor],
    function: int,
    names: str,
    finals: bool,
    reverse: bool,
    offsets: Optional[Tensor],
    length: Optional[int],
) -> Call:
    made, deterministic = function_of_graph(function), function % 2 == 1
    keys, lead = _order(function, names)
    if offsets is None:
        call = made._plain_call(keys, tensors, lead, None, length, made.sizes or None, reverse, finals, deterministic)
        if operator_library.LOADED and not call.watched:
            _core.know_call(function, names, finals, reverse, length, call.tensor_call)
        return call
    lengths = (None, length, made.sizes or None, offsets, reverse)
    return made._call(keys, tensors, lead, {}, lengths, finals, deterministic)


# By hand, and not as torch.library.custom_op does it, which costs a call 25 µs more.
_TAGS = (torch.Tag.pt2_compliant_tag,)
_LIBRARY = torch.library.Library("cellc", "DEF")
_LENGTHS = "int function, str names, bool finals, bool reverse, Tensor? offsets, SymInt? length"
_ARGUMENTS = {
    "forward": f"(Tensor[] tensors, {_LENGTHS}) -> Tensor[]",
    "plain_forward": f"(Tensor[] tensors, {_LENGTHS}) -> Tensor[]",
    "backward": f"(Tensor[] tensors, Tensor[] states, Tensor?[] cotangents, bool[] needed, {_LENGTHS}) -> Tensor[]",
}


def _forward(
    tensors: Sequence[Tensor],
    function: int,
    names: str,
    finals: bool,
    reverse: bool,
    offsets: Optional[Tensor],
    length: Optional[int],
) -> List[Tensor]:
    call = _call(tensors, function, names, finals, reverse, offsets, length)
    return list(call.forward(tuple(tensors)))


def _backward(
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    cotangents: Sequence[Optional[Tensor]],
    needed: Sequence[bool],
    function: int,
    names: str,
    finals: bool,
    reverse: bool,
    offsets: Optional[Tensor],
    length: Optional[int],
) -> List[Tensor]:
    call = _call(tensors, function, names, finals, reverse, offsets, length)
    return [g for g in call.backward((*tensors, *states), tuple(cotangents), tuple(needed)) if g is not None]


def _keeping_errors(function: Callable[..., List[Tensor]]) -> Callable[..., List[Tensor]]:
    """For the library, which alone may throw them: torch's stable ABI hands on no exceptions of Python."""

    def call(*arguments: Any) -> List[Tensor]:
        try:
            return function(*arguments)
        except BaseException as error:
            _core.keep_operator_error(f"{type(error).__name__}: {error}")
            return []

    return call


def _register(name: str, function: Callable[..., List[Tensor]]) -> None:
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, function, device)


for _name, _schema in _ARGUMENTS.items():
    _LIBRARY.define(_name + _schema, tags=_TAGS)
for _name, _function in (("forward", _forward), ("backward", _backward)):
    if operator_library.LOADED:
        _LIBRARY.define(f"{_name}_in_python{_ARGUMENTS[_name]}", tags=_TAGS)
        _register(f"{_name}_in_python", _keeping_errors(_function))
    else:
        _register(_name, _function)
if not operator_library.LOADED:
    _register("plain_forward", _forward)


class _Shapes:
    """The shapes of results, from those of tensors that may be symbols."""

    def __init__(self, function: Any, names: Sequence[str], tensors: Sequence[Tensor], packed: Any, length: Any):
        cell = function.cell
        self.axes = {axis: length for axis, length in cell.axes.items() if length is not None}
        self.axes.update(function.sizes)
        self.batch: list[Any] = []
        self.steps: list[Any] = [] if length is None else [length]
        if packed is not None:
            self.batch = [packed.shape[0] - 1]
        for name, tensor in zip(names, tensors):
            axes, before = _declared(cell, name)
            if tensor.dim() == 0:
                continue
            rest = list(tensor.shape[tensor.dim() - len(axes) :]) if axes else []
            self.axes.update(zip(axes, rest))
            leading = list(tensor.shape[: tensor.dim() - len(axes)])
            if before == "rows":
                self.steps = leading[-1:]
                if len(leading) == 2 and not self.batch:
                    self.batch = leading[:1]
            elif len(leading) == (2 if before == "history" else 1) and not self.batch:
                self.batch = leading[:1]
        self.packed = packed is not None

    def of(self, axes: Sequence[str], rows: bool) -> list[Any]:
        lengths = [self.axes[axis] for axis in axes]
        if rows:
            return ([] if self.packed else self.batch) + self.steps + lengths
        return self.batch + lengths


def _declared(cell: Any, name: str) -> tuple[Sequence[str], str]:
    if name in cell.inputs:
        return cell.inputs[name], "rows"
    if name in cell.params:
        return cell.params[name], "once"
    if name in cell.starts:
        return cell.starts[name], "start"
    return cell.histories[name], "history"


@torch.library.register_fake("cellc::forward", lib=_LIBRARY)
@torch.library.register_fake("cellc::plain_forward", lib=_LIBRARY)
def _(tensors, function, names, finals, reverse, offsets, length):  # type: ignore[no-untyped-def]
    made = function_of_graph(function)
    cell = made.cell
    keys = names.split(",")
    shapes = _Shapes(made, keys, tensors, offsets, length)
    like = next((t for key, t in zip(keys, tensors) if key in cell.inputs), tensors[0])
    dtype = like.dtype if cell._dtype is None else DTYPES[cell._dtype]
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    results = [
        like.new_empty(shapes.of(axes, True), dtype=dtype)
        for axes in (*cell.states.values(), *cell.outs.values())
    ]
    if finals:
        results += [like.new_empty(shapes.of(cell.states[state], False), dtype=wide) for state in cell.states]
    return results


@torch.library.register_fake("cellc::backward", lib=_LIBRARY)
def _(tensors, states, cotangents, needed, function, names, finals, reverse, offsets, length):  # type: ignore
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t, need in zip(tensors, needed) if need]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, told: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        results = torch.ops.cellc.plain_forward(tensors, *told)
        function, names, finals, reverse, offsets, length = told
        ctx.told = (function, names, finals, reverse, length)
        ctx.count = len(tensors)
        ctx.states = len(function_of_graph(function).states)
        ctx.packed = offsets is not None
        ctx.save_for_backward(*tensors, *results[: ctx.states], *([offsets] if ctx.packed else []))
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Optional[Tensor]) -> Any:
        function, names, finals, reverse, length = ctx.told
        saved = ctx.saved_tensors
        tensors, states = saved[: ctx.count], saved[ctx.count : ctx.count + ctx.states]
        offsets = saved[-1] if ctx.packed else None
        if torch.is_grad_enabled():  # of somebody who differentiates the gradient: cellc::backward has no formula of its own
            call = _call(tensors, function, names, finals, reverse, offsets, length)
            return _Gradients.apply(call, ctx.needs_input_grad, *tensors, *states, *cotangents)
        needed = list(ctx.needs_input_grad[1:])
        found = iter(
            torch.ops.cellc.backward(
                tensors, states, cotangents, needed, function, names, finals, reverse, offsets, length
            )
        )
        return None, *(next(found) if need else None for need in needed)


def _differentiable(tensors: Sequence[Tensor], *told: Any) -> Sequence[Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return list(_Differentiable.apply(told, *tensors))
    return torch.ops.cellc.plain_forward(tensors, *told)


_LIBRARY.impl("forward", _differentiable, "Autograd")
