"""Cells as functions of tensors, with gradients: ``f = cellc.torch.function(cell)``, ``y = f(x=x, W=W).h``.

Tensors are read and written where they are, without copies wherever their rows are contiguous. On a GPU work is queued on
the current stream, and nobody waits for it; where torch.use_deterministic_algorithms(True) was called, the same call gives the
same bits there. Gradients flow to every input, param, start and history that requires one;
forward-mode derivatives (torch.autograd.forward_ad) go through the tangent cell. Gradients have gradients
(create_graph=True), for which alone the host waits for a GPU; third derivatives are refused.
"""

from __future__ import annotations

import itertools
import os
from collections import namedtuple
from functools import partial
from typing import Any, Mapping, Sequence
from weakref import WeakValueDictionary

try:
    import torch
except ImportError as error:
    if error.name != "torch":  # one that is there, and broken
        raise
    raise ImportError("cellc.torch and cellc.nn need torch: pip install 'cellc[torch]'", name="torch") from None
from torch import are_deterministic_algorithms_enabled, is_autocast_enabled, is_grad_enabled
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .cell import Cell, compile
from .errors import ArgumentError, DeviceMismatchError, DTypeError, no_derivatives, warn_of
from .results import Arrays, Report, arrays_class, by_name
from .tensors import DTYPES, NUMBERS, TensorCall, TensorMaker, autograd_functions, device_name, maker_on, sort_tensors

__all__ = ["Function", "function"]

# Of any device: one question for all, where torch has it.
is_any_autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)

# Functions by number, for operators, whose graphs know nothing else of them. Each has two: under the odd one runs are
# deterministic.
_NUMBERS = itertools.count(0, 2)
_FUNCTIONS: WeakValueDictionary[int, Function] = WeakValueDictionary()
_IN_GRAPHS: dict[int, Function] = {}  # for ever: a graph may outlive every name of one


def function_of_graph(number: int) -> Function:
    """For an operator, be it traced or run."""
    number -= number % 2
    found = _IN_GRAPHS.get(number)
    if found is None:
        found = _IN_GRAPHS[number] = _FUNCTIONS[number]
    return found


def unknown_finals(kernel: Any) -> tuple[int, ...]:
    """Those that have no cotangents, as they are copies of what was given."""
    known = [key for key, role in kernel.derivatives(1, 1) if role >= 5]
    return tuple(i for i, key in enumerate(kernel.finals) if key not in known)


def function(source: Cell | str | os.PathLike[str], /, **options: Any) -> Function:
    """A function of tensors. source: a Cell; or what cellc.compile takes, with its options."""
    if not isinstance(source, Cell):
        source = compile(source, **options)
    elif options:
        raise ArgumentError("options are for compile, and this cell is compiled", next(iter(options)))
    return Function(source)


def _are_numbers(sizes: Any) -> bool:
    """Others are refused, by whoever reads them."""
    return type(sizes) is dict and all(type(length) is int for length in sizes.values())


class Call:
    """All of a call but its tensors: its kernel, their names, and arguments that are no tensors. Calls without such
    arguments share one.

    forward(tensors): `rows`, which are states and outs, and finals if they are wanted.
    backward(saved, cotangents, needed): gradients, None where none is needed. saved: the tensors, then the states;
        needed: of the tensors, and of whatever stands before them.
    curvature: of python/src/run.h.
    watched: of a CPU where nothing is repaired: each run says whether it has converged.
    """

    __slots__ = (
        "all_rows", "backward", "constants", "curvature", "finals", "forward", "kernel", "lengths", "maker", "names",
        "rows", "run", "states", "tensor_call", "unknown", "was_run", "watched",
    )  # fmt: skip

    def __init__(
        self,
        function: Function,
        kernel: Any,
        maker: TensorMaker,
        names: tuple[str, ...],
        constants: dict[str, Any],
        lengths: tuple[Any, ...],
        finals: bool,
        rows: tuple[str, ...] | None,
    ):
        call = TensorCall(kernel, names, constants, maker, lengths, rows, finals)
        self.forward, self.backward, self.curvature = call.forward, call.backward, call.curvature
        self.watched = maker.device.type == "cpu" and not function.repairs
        if self.watched:
            self.forward = lambda tensors: self.watch(tensors)[0]
        self.tensor_call = call
        self.kernel = kernel
        self.maker = maker
        self.names = names
        self.states = function.states
        self.all_rows, self.rows = function.rows, function.rows if rows is None else rows
        self.constants = constants
        self.lengths = lengths
        self.finals = finals
        self.unknown = tuple(len(self.rows) + i for i in unknown_finals(kernel)) if finals else ()
        self.run: Any = None
        self.was_run = False

    def next_run(self) -> Any:
        """With a gradient, of tensors without tangents. The second one makes `run`, for itself and all that follow, where
        it can."""
        if self.unknown or self.watched or not self.was_run:
            self.was_run = True
            return partial(_Run.apply, self)
        self.run = _run_of(self)
        return self.run

    def watch(self, tensors: tuple[torch.Tensor, ...]) -> tuple[tuple[torch.Tensor, ...], str]:
        """forward, and what was not reached."""
        results, told = self.tensor_call.watched(tensors)
        report = Report._make(told)
        if report.converged:
            return results, ""
        warn_of(report.missed())
        return results, report.missed()

    def named(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        named = dict(zip(self.names, tensors))
        return {**named, **self.constants} if self.constants else named


def _forward(ctx: Any, call: Call, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    if call.watched:
        results, ctx.missed = call.watch(tensors)
    else:
        results = call.forward(tensors)
    states = results[: len(call.states)]  # they stand before the outs
    ctx.save_for_backward(*tensors, *states)
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(*tensors, *states)
    ctx.set_materialize_grads(False)
    if call.unknown:
        ctx.mark_non_differentiable(*(results[i] for i in call.unknown))
    return results


def _backward(
    call: Call, saved: tuple[torch.Tensor, ...], needed: tuple[bool, ...], cotangents: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    if is_grad_enabled():  # somebody wants to differentiate the gradient
        return _Gradients.apply(call, needed, *saved, *cotangents)
    return call.backward(saved, cotangents, needed)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        return _forward(ctx, call, tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if ctx.call.watched and ctx.missed:
            raise no_derivatives("gradients", ctx.missed)
        return _backward(ctx.call, ctx.saved_tensors, ctx.needs_input_grad, cotangents)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        call: Call = ctx.call
        if call.watched and ctx.missed:
            raise no_derivatives("tangents", ctx.missed)
        saved = ctx.saved_tensors
        count = len(call.names)
        rows, finals = call.kernel.tangent(
            call.named(saved[:count]),
            call.maker,
            call.lengths,
            call.maker.stream(),
            dict(zip(call.states, saved[count:])),
            dict(zip(call.names, tangents)),
            call.finals,
        )
        for key, moved in zip(call.kernel.finals, finals):
            if moved is None:
                raise NotImplementedError(f"the final '{key}' has no tangent: call without return_final")
        by_row = dict(zip(call.all_rows, rows))
        return *(by_row[name] for name in call.rows), *finals


def _run_of(call: Call) -> Any:
    """_Run of one call, for tensors without tangents: what is alike in all runs costs none of them anything. Of calls whose
    results all have cotangents."""

    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _forward(ctx, call, tensors)

    def backward(saved: Any, needed: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return _backward(call, saved, needed, cotangents)

    forward, backward = autograd_functions(call.tensor_call, len(call.states), (forward, backward), is_grad_enabled)
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(_Run)("_Run", (torch.autograd.Function,), members).apply


class _Gradients(torch.autograd.Function):
    """Gradients that are differentiated: by the tangents of run and adjoint along what is asked of them."""

    @staticmethod
    def forward(ctx: Any, call: Call, needed: tuple[bool, ...], *given: torch.Tensor | None) -> tuple[Any, ...]:
        ctx.call = call
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        behind = len(call.names) + len(call.states)
        return call.backward(given[:behind], given[behind:], needed)

    @staticmethod
    def backward(ctx: Any, *moved: torch.Tensor | None) -> tuple[Any, ...]:
        call: Call = ctx.call
        behind = len(moved) - len(call.names)  # what is no gradient of a tensor
        of_given = _Curvature.apply(call, *ctx.saved_tensors, *moved[behind:])
        return None, None, *of_given


class _Curvature(torch.autograd.Function):
    """Gradients of gradients by tensors, states and cotangents, which have no gradients themselves."""

    @staticmethod
    def forward(ctx: Any, call: Call, *given: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        count, states = len(call.names), len(call.states)
        saved, moved = given[:-count], given[-count:]
        cotangents = saved[count + states :]
        gradients, tangents = call.curvature(saved[: count + states], cotangents, moved)
        for key, cotangent, tangent in zip((*call.rows, *call.kernel.finals), cotangents, tangents):
            if cotangent is not None and tangent is None:
                raise NotImplementedError(f"the gradient by the final '{key}' has no gradient")
        of_cotangents = (None if c is None else t for c, t in zip(cotangents, tangents))
        # States are what the tensors make of them, whose gradients are whole.
        return *map(call.maker.fit, gradients, saved[:count]), *[None] * states, *of_cotangents

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError("third derivatives of a cell are not made")


class Function:
    """A cell on tensors. Arguments as of ``Cell``, which is ``.cell``; results are tensors."""

    def __init__(self, cell: Cell, sizes: Mapping[str, int] | None = None):
        self.cell = cell
        self.states = tuple(cell.states)
        self.rows = self.states + tuple(cell.outs)
        self.repairs = bool(cell._options["repair"])
        self._inputs = cell.inputs
        self._results, self._finals = cell._results, cell._finals
        self._calls: dict[Any, Call] = {}
        self._alike: dict[Any, Call] = {}  # the same calls, by what the extension module says of their tensors
        self._some_results: dict[tuple[str, ...], type[Arrays]] = {}
        self.sizes = dict(sizes or {})  # of axes that no tensor may have, for graphs
        self.number = next(_NUMBERS)
        _FUNCTIONS[self.number] = self
        # torch.compile knows these, and not tuples of ours.
        self._plain_results = namedtuple("Results", cell._results._fields, rename=True)
        self._plain_finals = namedtuple("Finals", cell._finals._fields, rename=True)

    def __call__(
        self,
        tensors: Mapping[str, Any] | None = None,
        /,
        *,
        return_final: bool = False,
        offsets: Any = None,
        reverse: bool = False,
        length: int | None = None,
        batch: int | None = None,
        sizes: Mapping[str, int] | None = None,
        write: Sequence[str] | None = None,
        **named: Any,
    ) -> Any:
        """Runs the cell over whole sequences of tensors; shapes, names and errors are those of ``Cell``.

        What ``write`` does not name is not made, but that gradients need all states.

        Returns Results of tensors; with return_final, (Results, Finals). Numbers stand for tensors, too.
        """
        if tensors is not None:
            named = {**by_name(tensors, "tensors"), **named} if named or type(tensors) is not dict else tensors
        wanted = None if write is None else self.cell._known(write)
        if is_compiling():
            return self._traced(self._under_autocast(named), return_final, offsets, reverse, length, batch, sizes, wanted)
        if is_any_autocast_enabled():
            named = self._under_autocast(named)
        names, given, constants, lead, kind, requires_grad = sort_tensors(named, self._inputs)
        deterministic = kind >= -1 and lead >= 0 and given[lead].is_cuda and are_deterministic_algorithms_enabled()
        rows = wanted
        if wanted is not None and (requires_grad and is_grad_enabled() or forward_ad._current_level >= 0):
            rows = self.states + tuple(name for name in wanted if name in self.cell.outs)
        told = (batch is None or type(batch) is int) and (length is None or type(length) is int) and type(reverse) is bool
        if lead >= 0 and told and not constants and offsets is None and (sizes is None or _are_numbers(sizes)):
            axes = tuple(sizes.items()) if sizes else None
            key = (names, kind, batch, length, axes, reverse, return_final, deterministic, rows)
            call = self._alike.get(key)
            if call is None:
                call = self._plain_call(
                    names, given, lead, batch, length, sizes, reverse, return_final, deterministic, rows
                )
                if kind != -1:
                    if len(self._alike) >= 256:
                        self._alike.clear()
                    self._alike[key] = call
        else:
            lengths = (batch, length, sizes, offsets, reverse)
            call = self._call(names, given, lead, constants, lengths, return_final, deterministic, rows)
        if forward_ad._current_level >= 0:
            results = _Run.apply(call, *given)
        elif requires_grad and is_grad_enabled():
            results = (call.run or call.next_run())(*given)
        else:
            results = call.forward(given)
        kind, count = self._results, len(call.rows)
        if wanted is not None:
            kind, made = self._results_of(wanted), results
            results = *(made[call.rows.index(name)] for name in wanted), *made[count:]
            count = len(wanted)
        if not return_final:
            return tuple.__new__(kind, results)
        return tuple.__new__(kind, results[:count]), tuple.__new__(self._finals, results[count:])

    def _results_of(self, wanted: tuple[str, ...]) -> type[Arrays]:
        if wanted not in self._some_results:
            self._some_results[wanted] = arrays_class("Results", wanted)
        return self._some_results[wanted]

    def _traced(
        self, named: dict[str, Any], return_final: bool, offsets: Any, reverse: bool, length: Any, batch: Any, sizes: Any,
        wanted: Any,
    ) -> Any:
        """The same as an operator of torch, which torch.compile puts into its graph."""
        if sizes is not None:  # what the function does not know yet, each number has a function of its own
            for axis, size in sizes.items():
                if self.sizes.get(axis, size) != size:
                    raise NotImplementedError("torch.compile: one function has one length of an axis")
        names, given = [], []
        for name, value in named.items():
            if value is None:
                continue
            names.append(name)
            given.append(value if isinstance(value, torch.Tensor) else torch.tensor(value))
        if offsets is not None and not isinstance(offsets, torch.Tensor):
            offsets = torch.tensor(offsets)
        if not self.repairs and torch.is_grad_enabled() and any(t.requires_grad and not t.is_cuda for t in given):
            raise NotImplementedError("torch.compile: gradients of a cell with repair=False, which only an eager run watches")
        number = self.number + 1 if torch.are_deterministic_algorithms_enabled() else self.number
        write = None if wanted is None else ",".join(wanted)
        results = torch.ops.cellc.forward(
            given, number, ",".join(names), return_final, reverse, offsets, length, batch, write
        )
        kind, count = self._plain_results, len(self.rows)
        if wanted is not None:
            kind, count = namedtuple("Results", wanted, rename=True), len(wanted)
        rows = kind(*results[:count])
        return (rows, self._plain_finals(*results[count:])) if return_final else rows

    def _under_autocast(self, named: dict[str, Any]) -> dict[str, Any]:
        """With inputs in the dtype of the cell, or the widest of theirs; and what runs in 32 bits in 32. Where autocast
        is on."""
        if not (is_autocast_enabled("cuda") or is_autocast_enabled("cpu")):
            return named
        tensors = {name: t for name, t in named.items() if isinstance(t, torch.Tensor) and t.is_floating_point()}
        dtype = None if self.cell._dtype is None else DTYPES[self.cell._dtype]
        for name in self._inputs if dtype is None else ():
            if name in tensors:
                of = tensors[name].dtype
                dtype = of if dtype is None else torch.promote_types(dtype, of)
        if dtype is None:
            return named
        given = dict(named)
        for name, tensor in tensors.items():
            if name in self._inputs:
                given[name] = tensor.to(dtype)
            elif dtype == torch.float32 and tensor.dtype in (torch.float16, torch.bfloat16):
                given[name] = tensor.float()
        return given

    def _plain_call(
        self,
        names: tuple[str, ...],
        given: Sequence[torch.Tensor],
        lead: int,
        batch: int | None,
        length: int | None,
        sizes: Mapping[str, int] | None,
        reverse: bool,
        finals: bool,
        deterministic: bool,
        rows: tuple[str, ...] | None = None,
    ) -> Call:
        """Without offsets, of tensors alone: one for all that are alike."""
        axes = tuple(sizes.items()) if sizes else None
        key = (names, given[lead].dtype, given[lead].device, batch, length, axes, reverse, finals, deterministic, rows)
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= 256:  # of lengths that are told, there may be many
                self._calls.clear()
            lengths = (batch, length, dict(sizes) if sizes else None, None, reverse)
            call = self._calls[key] = self._call(names, given, lead, {}, lengths, finals, deterministic, rows)
        return call

    def _call(
        self,
        names: tuple[str, ...],
        given: Sequence[torch.Tensor],
        lead: int,
        constants: dict[str, Any],
        lengths: tuple[Any, ...],
        finals: bool,
        deterministic: bool,
        rows: tuple[str, ...] | None = None,
    ) -> Call:
        """lead: of the tensors, which has the dtype of storage: an input, where there is one, as params may have a wider
        one; -1: there are no tensors."""
        device, dtype, finals = torch.device("cpu"), self.cell._dtype, bool(finals)
        if lead < 0:
            kernel = self.cell._kernel(dtype or 0, "cpu")
            return Call(self, kernel, maker_on(device), names, constants, lengths, finals, rows)
        name, first = names[lead], given[lead]
        device = first.device
        if device.type not in ("cpu", "cuda"):
            raise DeviceMismatchError(f"argument '{name}' is on {device.type}; expected cpu or cuda", name)
        if dtype is None:
            dtype = NUMBERS.get(first.dtype)
        if dtype is None:
            expected = "float32, float64, float16 or bfloat16"
            raise DTypeError(f"argument '{name}' is {first.dtype}; expected {expected}", name)
        kernel = self.cell._kernel(dtype, device_name(device), deterministic)
        return Call(self, kernel, maker_on(device), names, constants, lengths, finals, rows)

    def __reduce__(self) -> Any:
        return Function, (self.cell, self.sizes)

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, _: Any) -> Function:
        return self

    def __repr__(self) -> str:
        return f"<{self.cell.name} on tensors: {', '.join([*self.cell.inputs, *self.cell.params])}>"


from . import operators  # noqa: E402, F401  registers them
