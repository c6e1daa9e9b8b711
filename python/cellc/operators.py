"""Runs as operators of torch, ``cellc::forward`` and ``cellc::backward``: what torch.compile and torch.export put in the
place of a call. Eager calls do not come here, because an operator costs more than a small run.

An operator takes the number of a ``Function``, names and tensors, lengths that no tensor says, and which states and outs are
made (``write``: their names; None: all). ``cellc::plain_forward`` is
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
from .formulas import length_of
from .tensors import DTYPES
from .torch import Call, _Gradients, function_of_graph, unknown_finals


@lru_cache(maxsize=None)
def _order(function: int, names: str) -> tuple[tuple[str, ...], int]:
    """Names apart, and the number of the tensor that has the dtype of storage."""
    keys = tuple(names.split(","))
    inputs = [i for i, key in enumerate(keys) if key in function_of_graph(function).cell.inputs]
    return keys, inputs[0] if inputs else 0


@lru_cache(maxsize=None)
def _rows(function: int, write: Optional[str]) -> tuple[str, ...]:
    """The states and outs that are made, in order."""
    made = function_of_graph(function)
    return made.rows if write is None else made.cell._known(write.split(",") if write else ())


def _call(
    tensors: Sequence[Tensor],
    function: int,
    names: str,
    finals: bool,
    reverse: bool,
    offsets: Optional[Tensor],
    length: Optional[int],
    batch: Optional[int] = None,
    write: Optional[str] = None,
) -> Call:
    made, deterministic = function_of_graph(function), function % 2 == 1
    keys, lead = _order(function, names)
    rows, sizes = None if write is None else _rows(function, write), made.sizes or None
    if offsets is None:
        call = made._plain_call(keys, tensors, lead, batch, length, sizes, reverse, finals, deterministic, rows)
        if operator_library.LOADED and not call.watched:
            _core.know_call(function, names, finals, reverse, length, batch, write, call.tensor_call)
        return call
    return made._call(keys, tensors, lead, {}, (batch, length, sizes, offsets, reverse), finals, deterministic, rows)


# By hand, and not as torch.library.custom_op does it, which costs a call 25 µs more.
_TAGS = (torch.Tag.pt2_compliant_tag,)
_LIBRARY = torch.library.Library("cellc", "DEF")
_TOLD = (
    "int function, str names, bool finals, bool reverse, Tensor? offsets, SymInt? length, SymInt? batch=None, "
    "str? write=None"
)
_ARGUMENTS = {
    "forward": f"(Tensor[] tensors, {_TOLD}) -> Tensor[]",
    "plain_forward": f"(Tensor[] tensors, {_TOLD}) -> Tensor[]",
    "backward": f"(Tensor[] tensors, Tensor[] states, Tensor?[] cotangents, bool[] needed, {_TOLD}) -> Tensor[]",
}


def _forward(
    tensors: Sequence[Tensor],
    function: int,
    names: str,
    finals: bool,
    reverse: bool,
    offsets: Optional[Tensor],
    length: Optional[int],
    batch: Optional[int] = None,
    write: Optional[str] = None,
) -> List[Tensor]:
    call = _call(tensors, function, names, finals, reverse, offsets, length, batch, write)
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
    batch: Optional[int] = None,
    write: Optional[str] = None,
) -> List[Tensor]:
    call = _call(tensors, function, names, finals, reverse, offsets, length, batch, write)
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

    def __init__(
        self, function: Any, names: Sequence[str], tensors: Sequence[Tensor], packed: Any, length: Any, batch: Any
    ):
        cell = function.cell
        self.axes = {axis: length for axis, length in cell.axes.items() if length is not None}
        self.axes.update(function.sizes)
        self.lags = cell.lags
        self.batch: list[Any] = [] if batch is None else [batch]
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
            elif len(leading) == (2 if before == "history" else 1) and before != "once" and not self.batch:
                self.batch = leading[:1]
        self.packed = packed is not None

    def of_rows(self, axes: Sequence[str]) -> list[Any]:
        return ([] if self.packed else self.batch) + self.steps + [self.axes[axis] for axis in axes]

    def of_final(self, axes: Sequence[str]) -> list[Any]:
        return self.batch + [self.axes[axis] for axis in axes]

    def of_final_history(self, name: str, axes: Sequence[str]) -> list[Any]:
        steps = length_of(self.lags[name], self.axes, torch.sym_max)
        return self.batch + [steps] + [self.axes[axis] for axis in axes]


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
def _(tensors, function, names, finals, reverse, offsets, length, batch=None, write=None):  # type: ignore[no-untyped-def]
    made = function_of_graph(function)
    cell = made.cell
    keys = names.split(",")
    shapes = _Shapes(made, keys, tensors, offsets, length, batch)
    like = next((t for key, t in zip(keys, tensors) if key in cell.inputs), tensors[0])
    dtype = like.dtype if cell._dtype is None else DTYPES[cell._dtype]
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    axes = {**cell.states, **cell.outs}
    results = [like.new_empty(shapes.of_rows(axes[row]), dtype=dtype) for row in _rows(function, write)]
    for key in cell._finals._fields if finals else ():
        if key in cell.states:
            results.append(like.new_empty(shapes.of_final(cell.states[key]), dtype=wide))
            continue
        of_input = key.removesuffix("_lag") in cell.inputs  # which is kept as inputs are
        shape = shapes.of_final_history(key, cell.histories[key])
        results.append(like.new_empty(shape, dtype=dtype if of_input else wide))
    return results


@torch.library.register_fake("cellc::backward", lib=_LIBRARY)
def _(tensors, states, cotangents, needed, *told):  # type: ignore[no-untyped-def]
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t, need in zip(tensors, needed) if need]


class _Differentiable(torch.autograd.Function):
    """Makes all states, as gradients need them, and gives those results that are asked for."""

    @staticmethod
    def forward(ctx: Any, told: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        function, names, finals, reverse, offsets, length, batch, write = told
        made, asked = function_of_graph(function), _rows(function, write)
        kept = made.states + tuple(row for row in asked if row in made.cell.outs)
        results = torch.ops.cellc.plain_forward(tensors, *told[:-1], None if write is None else ",".join(kept))
        states, last = results[: len(made.states)], results[len(kept) :]
        results = (*(results[kept.index(row)] for row in asked), *last)
        ctx.told = (function, names, finals, reverse, length, batch, write)
        ctx.count = len(tensors)
        ctx.states = len(states)
        ctx.packed = offsets is not None
        ctx.save_for_backward(*tensors, *states, *([offsets] if ctx.packed else []))
        ctx.set_materialize_grads(False)
        if finals:
            ctx.mark_non_differentiable(*(last[i] for i in unknown_finals(made.cell._first)))
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Optional[Tensor]) -> Any:
        function, names, finals, reverse, length, batch, write = ctx.told
        saved = ctx.saved_tensors
        tensors, states = saved[: ctx.count], saved[ctx.count : ctx.count + ctx.states]
        offsets = saved[-1] if ctx.packed else None
        told = (function, names, finals, reverse, offsets, length, batch, write)
        if torch.is_grad_enabled():  # of somebody who differentiates the gradient: cellc::backward has no formula of its own
            return _Gradients.apply(_call(tensors, *told), ctx.needs_input_grad, *tensors, *states, *cotangents)
        needed = list(ctx.needs_input_grad[1:])
        found = iter(torch.ops.cellc.backward(tensors, states, cotangents, needed, *told))
        return None, *(next(found) if need else None for need in needed)


def _differentiable(tensors: Sequence[Tensor], *told: Any) -> Sequence[Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        told += (None,) * (8 - len(told))  # what has defaults may be left out
        return list(_Differentiable.apply(told, *tensors))
    return torch.ops.cellc.plain_forward(tensors, *told)


_LIBRARY.impl("forward", _differentiable, "Autograd")
