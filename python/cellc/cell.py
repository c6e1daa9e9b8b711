"""A compiled cell, and how it is made."""

from __future__ import annotations

import json
import math
import operator
import os
import threading
from typing import Any, Mapping, Sequence

from . import _core, differentiate, numpy_arrays
from .derived import Jacobian, Structure, Text, explained
from .differentiate import Pullback
from .errors import ArgumentError, OptionError, warn_of
from .results import Arrays, Report, arrays_class, by_name, names_of

DTYPES = {"float32": 0, "f32": 0, "float64": 1, "f64": 1, "float16": 2, "f16": 2, "bfloat16": 3, "bf16": 3}
# Roles of arrays in cellc.h.
_INPUT, _PARAM, _STATE, _OUT, _START, _FINAL, _HISTORY, _FINAL_HISTORY = range(8)


def compile(
    source: str | os.PathLike[str],
    *,
    cell: str | None = None,
    dtype: Any = None,
    device: Any = None,
    solver: str | None = None,
    products: str | None = None,
    threads: int = 0,
    cpu: str | None = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    repair: bool = True,
    deterministic: bool = False,
    cache: bool | str | os.PathLike[str] = True,
) -> Cell:
    """Compiles a cell from a file, or from its text.

    source: a path; or a text, which is what has a line break or a brace.
    cell: which, where the source has several.
    dtype: of storage: "float32", "float64", "float16", "bfloat16" or a dtype of NumPy or torch. None: that of the
        arrays of each call.
    device: "cpu", "cuda", "cuda:1", or a device of torch. None: where the arrays of each call are. Arrays of NumPy are
        copied to a GPU that is named here, and results back.
    solver: "auto", "sequential", or another that ``cellc run --help`` lists.
    products: what a GPU multiplies in where rows meet a matrix of params: "3xtf32" (as None: errors like those of f32),
        "f32", "tf32", "bf16", or "storage" (the 16 bits of the dtype, in which all rows then pass between stages, too;
        gradients by the same, those of float16 scaled into its range). CPUs and float64 keep their arithmetic.
    threads: of a CPU; 0: all cores.
    cpu: a name such as "x86-64-v3", which fixes the bits of results; None: this machine's.
    tolerance: of what is solved by iterations; None: that of the dtype; 0: the bits of a run step by step.
    max_iterations: before repair begins.
    repair: False leaves what has not converged as it is, with a ConvergenceWarning, and derivatives of such a run raise a
        ConvergenceError. Runs on tensors of a GPU, which nobody waits for, say nothing, and have derivatives.
    deterministic: True has a GPU give the same bits each time a forward run is made again, which costs where channels are
        few or states remember for long. Runs on tensors do where torch.use_deterministic_algorithms(True) asks for it.
        Runs on a CPU, and derivatives, repeat theirs without it.
    cache: where compiled code is kept. True: $CELLC_CACHE_DIR, or cellc in the user's cache; False: nowhere.

    Raises CellError, with the line and a caret, where the text is wrong, FileNotFoundError, OptionError, DeviceError.
    """
    return Cell(
        source,
        {
            "cell": _name("cell", cell),
            "cpu": _name("cpu", cpu),
            "solver": _name("solver", solver),
            "products": _name("products", products),
            "threads": _whole("threads", threads, 0),
            "cache": _cache_directory(cache),
            "tolerance": _tolerance(tolerance),
            "max_iterations": 0 if max_iterations is None else _whole("max_iterations", max_iterations, 1),
            "repair": _flag("repair", repair),
            "deterministic": _flag("deterministic", deterministic),
        },
        None if dtype is None else dtype_number(dtype),
        None if device is None else str(device),  # of torch.device, too
    )


def dtype_number(dtype: Any) -> int:
    """The number of a dtype in cellc.h, from a name or a dtype of NumPy or torch."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or getattr(dtype, "name", None)
    name = (name or str(dtype)).removeprefix("torch.")
    if name not in DTYPES:
        raise OptionError(f"dtype {name!r}: expected float32, float64, float16 or bfloat16")
    return DTYPES[name]


def _tolerance(value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < math.inf:
        raise OptionError(f"tolerance {value!r}: expected a number from 0 on")
    return number


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{name} {value!r}: expected a whole number") from None
    if not least <= number < 2**31:
        raise OptionError(f"{name} {value!r}: expected a number from {least} on, of at most 31 bits")
    return number


def _name(option: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{option} {value!r}: expected a name")
    return value or ""


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name} {value!r}: expected True or False")
    return value


def _cache_directory(cache: Any) -> str:
    if cache is False or cache is None:
        return ""
    if cache is not True:
        if not isinstance(cache, (str, bytes, os.PathLike)):
            raise OptionError(f"cache {cache!r}: expected True, False or a directory")
        return os.fsdecode(cache)
    if "CELLC_CACHE_DIR" in os.environ:
        return os.environ["CELLC_CACHE_DIR"]
    home = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and os.path.join(os.environ["HOME"], ".cache"))
    return os.path.join(home, "cellc") if home else ""


def _read(source: Any) -> tuple[str, bool, str]:
    """What the extension module gets, whether that is a path, and the text."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, False, source
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(f"source: expected a path or a text, not {type(source).__name__}", "source")
    path = os.fspath(source)
    with open(path, encoding="utf-8", errors="replace") as file:
        return path, True, file.read()


class Cell:
    """A cell, ready to run over whole sequences: ``y = cell(x=x, W=W)``.

    Attributes:
        name: of the cell.
        axes: name → length, or None where the arrays decide.
        inputs, params, states, outs: name → axes.
        source: the text.
    """

    def __init__(self, source: Any, options: dict[str, Any], dtype: int | None, device: str | None):
        given, is_file, self.source = _read(source)
        self._options = options
        self._given = (dtype, device)
        self._dtype = dtype
        self._device = device
        self._lock = threading.Lock()
        self._kernels: dict[tuple[int, str, bool], Any] = {}
        first = _core.Kernel(given, is_file=is_file, dtype=dtype or 0, device=device or "cpu", **options)
        self._first = self._kernels[dtype or 0, device or "cpu", False] = first
        self._data: dict[str, Any] | None = None
        arrays = first.arrays()

        def named(role: int) -> dict[str, tuple[str, ...]]:
            return {key: axes for key, of, _, _, axes in arrays if of == role}

        self.axes: dict[str, int | None] = {name: None if length < 0 else length for name, length in first.axes()}
        self.inputs, self.params, self.states, self.outs = named(_INPUT), named(_PARAM), named(_STATE), named(_OUT)
        self.starts, self.histories = named(_START), named(_HISTORY)
        self.required = tuple(key for key, _, _, required, _ in arrays if required)
        self._results = arrays_class("Results", tuple(self.states) + tuple(self.outs))
        finals = tuple(key for key, role, *_ in arrays if role in (_FINAL, _FINAL_HISTORY))
        self._finals = arrays_class("Finals", finals)

    # Running ---------------------------------------------------------------------------------------------------

    def __call__(
        self,
        arrays: Mapping[str, Any] | None = None,
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
        """Runs the cell over whole sequences.

        Arrays go by name: an input is [B, T, axes…] or [T, axes…], a param [axes…], and a state's name stands for its
        start, [B, axes…] or [axes…]. ``x_lag`` is what was before the first step of an input or state that the cell
        reads at a lag, [B, n, axes…], newest first. What is not given has its default. Numbers stand for arrays that
        are the same everywhere; an array without a batch for all sequences. Names that are options here, too, are
        given in a mapping: ``cell({"length": …})``.

        return_final: also the states after the last step, and lags, so that ``cell(x=more, **final)`` goes on.
        offsets: of packed sequences, [B + 1]: inputs are [all steps, axes…].
        reverse: from the last step to the first.
        length, batch, sizes: lengths that no array says.
        write: names of the states and outs that are wanted; None: all.

        Returns Results, a tuple of arrays with names: all states, then all outs, [B, T, axes…]. With return_final,
        (Results, Finals).

        Raises ArgumentError, DTypeError, ShapeError, DeviceMismatchError, which name the argument; DeviceError.
        """
        if arrays is not None:
            named = {**by_name(arrays, "arrays"), **named}
        if write is not None:
            write = self._known(write)
        kernel = self._kernel_of(named)
        results, finals, report = kernel.forward(
            named, numpy_arrays, (batch, length, sizes, offsets, reverse), None, write, bool(return_final), True
        )
        kind = self._results if write is None else arrays_class("Results", write)
        made = tuple.__new__(kind, results)
        made.report = Report._make(report)
        if not report[0]:
            warn_of(made.report.missed())
        return (made, tuple.__new__(self._finals, finals)) if return_final else made

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        names = names_of(names, "write")
        for name in names:
            if name not in self._results._fields:
                raise ArgumentError(f"write: there is no state or out '{name}'", "write")
        return tuple(name for name in self._results._fields if name in names)

    def _kernel_of(self, named: Mapping[str, Any]) -> Any:
        """The kernel for these arrays of NumPy."""
        dtype = self._dtype
        for name in self.inputs if dtype is None else ():
            dtype = numpy_arrays.number_of(getattr(named.get(name), "dtype", None))
            if dtype is not None:
                break
        else:
            if dtype is None:
                dtype = self._dtype_of_others(named)
        return self._kernel(dtype, self._device or "cpu")

    def _dtype_of_others(self, named: Mapping[str, Any]) -> int:
        for value in named.values():
            dtype = numpy_arrays.number_of(getattr(value, "dtype", None))
            if dtype is not None:
                return dtype
        return 0

    def _kernel(self, dtype: int, device: str, deterministic: bool = False) -> Any:
        """deterministic: whatever the options say, which a CPU need not be told."""
        deterministic = deterministic and device != "cpu" and not self._options.get("deterministic")
        kernel = self._kernels.get((dtype, device, deterministic))
        if kernel is not None:
            return kernel
        with self._lock:
            kernel = self._kernels.get((dtype, device, deterministic))
            if kernel is None:
                options = {**self._options, "deterministic": True} if deterministic else self._options
                kernel = _core.Kernel(self.source, is_file=False, dtype=dtype, device=device, **options)
                self._kernels[dtype, device, deterministic] = kernel
            return kernel

    # Derivatives -----------------------------------------------------------------------------------------------

    def vjp(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        wrt: Sequence[str] | None = None,
        return_final: bool = False,
        **call: Any,
    ) -> tuple[Any, Pullback]:
        """Runs the cell, and gives with the results a function from cotangents of them to gradients.

        ``y, pullback = cell.vjp(x=x, W=W)``, then ``pullback({"h": dh}).W`` or ``pullback(h=dh)``. Arguments are those
        of a call. Of a run that has not converged the function raises ConvergenceError. wrt: names of inputs, params, states (their starts) or histories; None: all arrays that are given.
        """
        return differentiate.vjp(self, arrays, wrt, return_final, call)

    def grad(
        self,
        cotangents: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        final: Mapping[str, Any] | None = None,
        wrt: Sequence[str] | None = None,
        **call: Any,
    ) -> Arrays:
        """Gradients of a loss whose derivatives by states and outs are ``cotangents``, by those after the last step
        ``final``: ``cell.grad({"h": dh}, x=x, W=W).W``. Each has the shape of what it belongs to."""
        return differentiate.vjp(self, arrays, wrt, False, call)[1](cotangents, final=final)

    def jvp(
        self,
        tangents: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        return_final: bool = False,
        **call: Any,
    ) -> tuple[Any, Any]:
        """Runs the cell, and says how results move where what it reads moves by ``tangents``:
        ``y, dy = cell.jvp({"W": dW}, x=x, W=W)``. With return_final both are (Results, Finals)."""
        return differentiate.jvp(self, tangents, arrays, return_final, call)

    # What was derived ------------------------------------------------------------------------------------------

    @property
    def data(self) -> dict[str, Any]:
        """All that was derived, as docs/inspect-json.md describes it."""
        if self._data is None:
            self._data = json.loads(self._first.inspect(True))
        return self._data

    @property
    def lags(self) -> dict[str, int | str]:
        """Steps of history, by the name of what holds them; a formula where axes of open length decide."""
        deep = {f"{d['name']}_lag": d["lag"] for d in self.data["declarations"]}
        return {name: deep[name] for name in self.histories}

    @property
    def name(self) -> str:
        return self.data["cell"]

    @property
    def structure(self) -> Structure:
        """Stages, and what is linear, diagonal, block-diagonal, low-rank or dense."""
        return Structure(self.data)

    @property
    def jacobian(self) -> Jacobian:
        """∂state'/∂state: ``.text``, ``.latex``, ``.sympy()``; blocks by ``["h", "h"]``."""
        return Jacobian(self.data)

    def explain(self) -> Text:
        """Why the structure is what it is: every reason with its line and a caret."""
        return explained(self.data, self.source)

    def inspect(self) -> Text:
        """All of it as text: what ``cellc inspect`` prints."""
        return Text(self._first.inspect(False))

    def __reduce__(self) -> Any:  # kernels are compiled again, or come from the cache
        return Cell, (self.source, self._options, *self._given)

    def __copy__(self) -> Cell:
        return self  # nothing of it changes

    def __deepcopy__(self, _: Any) -> Cell:
        return self

    def __repr__(self) -> str:
        def declared(names: Mapping[str, tuple[str, ...]]) -> str:
            return ", ".join(name + (f"[{','.join(axes)}]" if axes else "") for name, axes in names.items())

        axes = ", ".join(name if length is None else f"{name}={length}" for name, length in self.axes.items())
        lines = [f"cell {self.name}[{axes}]" if axes else f"cell {self.name}"]
        for kind, names in (
            ("states", self.states),
            ("inputs", self.inputs),
            ("params", self.params),
            ("outs", self.outs),
        ):
            if names:
                lines.append(f"  {kind:7} {declared(names)}")
        return "\n".join(lines + ["  " + line for line in repr(self.structure).splitlines()])

    def _repr_latex_(self) -> str:
        return self.jacobian._repr_latex_()
