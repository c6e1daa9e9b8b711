"""Arrays by name: what runs give."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .errors import ArgumentError


def by_name(given: Any, argument: str) -> Mapping[str, Any]:
    """What is given by name; None: nothing is."""
    if given is None:
        return {}
    if not hasattr(given, "keys"):
        kind = type(given).__name__
        raise ArgumentError(f"{argument}: arrays are given by name, x=… or {{'x': …}}, not as {kind}", argument)
    return given


def names_of(given: Any, argument: str) -> Sequence[str]:
    """A name, or several."""
    if isinstance(given, str):
        return (given,)
    if not hasattr(given, "__iter__"):
        raise ArgumentError(f"{argument}: expected names, not {type(given).__name__}", argument)
    return tuple(given)


class Report(NamedTuple):
    """How a run went. ``max_residual`` and ``error_estimate`` are relative to 1 + |value| or finer (cellc.h)."""

    converged: bool
    max_residual: float
    error_estimate: float
    repaired: int
    unconverged: int
    iterations: int
    compile_ms: float
    run_ms: float

    def missed(self) -> str:
        """Of a run that has not converged: what was not reached."""
        return (
            f"{self.unconverged} sequences have not converged: largest residual {self.max_residual:.3g} after "
            f"{self.iterations} iterations"
        )


class Arrays(tuple):
    """A tuple of arrays, each also an attribute and an entry by name: ``y.h``, ``y["h"]``, ``h, out = y``.

    ``**y`` passes all of them by name. ``report`` says how the run went (None where it was not asked for).
    """

    _fields: tuple[str, ...] = ()
    report: Report | None = None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._fields.index(key))
            except ValueError:
                raise KeyError(f"'{key}'; there is {', '.join(self._fields) or 'nothing'}") from None
        return tuple.__getitem__(self, key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Of a single array, so that NumPy takes the result of a cell with one state as that array."""
        import numpy as np

        if len(self) != 1:
            raise TypeError(f"there are {len(self)} arrays: {', '.join(self._fields)}; name one")
        return np.array(self[0], dtype=dtype, copy=copy) if copy else np.asarray(self[0], dtype=dtype)

    def keys(self) -> tuple[str, ...]:
        return self._fields

    def items(self) -> Iterator[tuple[str, Any]]:
        return zip(self._fields, self)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def __repr__(self) -> str:
        def line(name: str, array: Any) -> str:
            shape = getattr(array, "shape", None)
            return f"{name}: none" if shape is None else f"{name}: {str(array.dtype)}{list(shape)}"

        return f"{type(self).__name__}({', '.join(line(n, a) for n, a in self.items())})"

    def __reduce__(self) -> Any:  # classes are made for each cell: a copy makes its own
        return (arrays_of, (type(self).__name__, self._fields, tuple(self)))


def arrays_class(kind: str, names: tuple[str, ...]) -> type[Arrays]:
    """The class of results with these names."""
    members: dict[str, Any] = {name: property(itemgetter(i)) for i, name in enumerate(names)}
    return type(kind, (Arrays,), {**members, "_fields": names, "__module__": __name__})


def arrays_of(kind: str, names: tuple[str, ...], values: tuple[Any, ...]) -> Arrays:
    return tuple.__new__(arrays_class(kind, names), values)
