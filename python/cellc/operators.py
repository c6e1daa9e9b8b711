"""Runs as operators of torch, ``cellc::forward`` and ``cellc::backward``: what torch.compile and torch.export put in the
place of a call. Eager calls do not come here, because an operator costs more than a small run.

An operator takes the number of a ``Function``, names and tensors, and lengths that no tensor says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor

from .tensors import DTYPES
from .torch import FUNCTIONS, Call


@lru_cache(maxsize=None)
def _order(function: int, names: str) -> tuple[tuple[str, ...], int]:
    """Names apart, and the number of the tensor that has the dtype of storage."""
    keys = tuple(names.split(","))
    inputs = [i for i, key in enumerate(keys) if key in FUNCTIONS[function].cell.inputs]
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
    made = FUNCTIONS[function]
    keys, lead = _order(function, names)
    if offsets is None:
        return made._plain_call(keys, tensors, lead, None, length, made.sizes or None, reverse, finals)
    return made._call(keys, tensors, lead, {}, (None, length, made.sizes or None, offsets, reverse), finals)


# By hand, and not as torch.library.custom_op does it, which costs a call 25 µs more.
_TAGS = (torch.Tag.pt2_compliant_tag,)
_LIBRARY = torch.library.Library("cellc", "DEF")
_LENGTHS = "int function, str names, bool finals, bool reverse, Tensor? offsets, SymInt? length"
_LIBRARY.define(f"forward(Tensor[] tensors, {_LENGTHS}) -> Tensor[]", tags=_TAGS)
_LIBRARY.define(
    f"backward(Tensor[] tensors, Tensor[] states, Tensor?[] cotangents, bool[] needed, {_LENGTHS}) -> Tensor[]",
    tags=_TAGS,
)


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


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("forward", _forward, _device)
    _LIBRARY.impl("backward", _backward, _device)


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
def _(tensors, function, names, finals, reverse, offsets, length):  # type: ignore[no-untyped-def]
    made = FUNCTIONS[function]
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


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, function, names, finals, reverse, offsets, length = inputs
    ctx.given = (function, names, finals, reverse, length)
    ctx.count = len(tensors)
    ctx.states = len(FUNCTIONS[function].states)
    ctx.packed = offsets is not None
    states = output[: ctx.states]
    ctx.save_for_backward(*tensors, *states, *([offsets] if ctx.packed else []))


def _gradients(ctx: Any, cotangents: Sequence[Optional[Tensor]]) -> Any:
    function, names, finals, reverse, length = ctx.given
    saved = ctx.saved_tensors
    tensors, states = saved[: ctx.count], saved[ctx.count : ctx.count + ctx.states]
    offsets = saved[-1] if ctx.packed else None
    needed = list(ctx.needs_input_grad[0])
    found = iter(
        torch.ops.cellc.backward(
            tensors, states, cotangents, needed, function, names, finals, reverse, offsets, length
        )
    )
    return [next(found) if need else None for need in needed], None, None, None, None, None, None


torch.library.register_autograd("cellc::forward", _gradients, setup_context=_setup, lib=_LIBRARY)
