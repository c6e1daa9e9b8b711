"""Derivatives of runs on arrays of NumPy: cotangents to gradients, tangents to tangents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from . import numpy_arrays
from .errors import ArgumentError, no_derivatives
from .results import Arrays, Report, arrays_class, by_name, names_of

if TYPE_CHECKING:
    from .cell import Cell

_LENGTHS = ("batch", "length", "sizes", "offsets", "reverse")


class Pullback:
    """From cotangents of a run's results to gradients of what it read. It keeps the arrays of the run, and may be
    called again and again; arrays must not be written meanwhile."""

    def __init__(
        self, cell: Cell, kernel: Any, named: dict[str, Any], lengths: tuple, states: dict, wrt: tuple, report: Report
    ):
        self._cell = cell
        self._kernel = kernel
        self._named = named
        self._lengths = lengths
        self._states = states
        self._report = report
        self._gradients = arrays_class("Gradients", wrt)

    def __call__(
        self,
        cotangents: Mapping[str, Any] | None = None,
        /,
        *,
        final: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Arrays:
        """cotangents: of states and outs, as the results are shaped; final: of the states after the last step. What is
        not given counts as zero. Returns Gradients, with the names of ``wrt``. Raises ConvergenceError where the run has
        not converged."""
        if not self._report.converged:
            raise no_derivatives("gradients", self._report.missed())
        rows = {**by_name(cotangents, "cotangents"), **named}
        last = dict(by_name(final, "final"))
        gradients = self._kernel.backward(
            self._named, numpy_arrays, self._lengths, None, self._states, rows, last, self._gradients._fields
        )
        # What stood for several sequences or entries has the sum of their gradients.
        pairs = zip(self._gradients._fields, gradients)
        return tuple.__new__(self._gradients, [_summed(g, np.shape(self._named.get(name, g))) for name, g in pairs])

    def __repr__(self) -> str:
        return f"<pullback of {self._cell.name} to {', '.join(self._gradients._fields)}>"


def _summed(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    missing = gradient.ndim - len(shape)
    return gradient if not missing else np.asarray(gradient.sum(axis=tuple(range(missing)), dtype=gradient.dtype))


def split(call: dict[str, Any]) -> tuple[dict[str, Any], tuple]:
    """What a call was given: arrays by name, and what it says of lengths."""
    named = {name: value for name, value in call.items() if name not in _LENGTHS}
    return named, tuple(call.get(name, False if name == "reverse" else None) for name in _LENGTHS)


def vjp(
    cell: Cell, arrays: Mapping[str, Any] | None, wrt: Sequence[str] | None, return_final: bool, call: dict[str, Any]
) -> tuple[Any, Pullback]:
    named, lengths = split(call)
    named.update(by_name(arrays, "arrays"))
    kernel = cell._kernel_of(named)
    known = [key for key, _ in kernel.derivatives(1, 2)]
    if wrt is None:
        wrt = [name for name, value in named.items() if value is not None]
    wrt = names_of(wrt, "wrt")
    results = cell(named, return_final=return_final, **dict(zip(_LENGTHS, lengths)))
    for name in wrt:
        if name not in known:
            raise ArgumentError(f"wrt: there is no gradient of '{name}'; there is {', '.join(known)}", "wrt")
    rows = results[0] if return_final else results
    states = {name: rows[name] for name in cell.states}
    return results, Pullback(cell, kernel, named, lengths, states, tuple(wrt), rows.report)


def jvp(
    cell: Cell,
    tangents: Mapping[str, Any],
    arrays: Mapping[str, Any] | None,
    return_final: bool,
    call: dict[str, Any],
) -> tuple[Any, Any]:
    named, lengths = split(call)
    named.update(by_name(arrays, "arrays"))
    kernel = cell._kernel_of(named)
    results = cell(named, return_final=return_final, **dict(zip(_LENGTHS, lengths)))
    rows = results[0] if return_final else results
    if not rows.report.converged:
        raise no_derivatives("tangents", rows.report.missed())
    states = {name: rows[name] for name in cell.states}
    moved, finals = kernel.tangent(named, numpy_arrays, lengths, None, states, dict(by_name(tangents, "tangents")), return_final)
    made = tuple.__new__(arrays_class("Tangents", rows._fields), moved)
    if not return_final:
        return results, made
    return results, (made, tuple.__new__(arrays_class("FinalTangents", results[1]._fields), finals))
