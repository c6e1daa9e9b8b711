"""cellc: recurrences written in ten lines, compiled to kernels that run them over whole sequences in parallel.

>>> import cellc, numpy as np
>>> leak = cellc.compile("cell leak[d] {\\n state h[d]\\n input x[d]\\n param a[d]\\n h' = a*h + x\\n}")
>>> y = leak(x=np.ones((2, 5, 3)), a=np.full(3, 0.5))
>>> y.h.shape
(2, 5, 3)

``compile`` makes a ``Cell``. ``cellc.torch`` and ``cellc.nn`` need torch, and import it when they are first used.
"""

from typing import Any as _Any

from ._core import version as __version__
from .cell import Cell, compile
from .derived import Block, Jacobian, Stage, Structure
from .errors import (
    ArgumentError,
    CellError,
    ConvergenceError,
    ConvergenceWarning,
    DeviceError,
    DeviceMismatchError,
    DTypeError,
    Error,
    InternalError,
    OptionError,
    ShapeError,
)
from .results import Arrays, Report

__all__ = [
    "ArgumentError",
    "Arrays",
    "Block",
    "Cell",
    "CellError",
    "ConvergenceError",
    "ConvergenceWarning",
    "DTypeError",
    "DeviceError",
    "DeviceMismatchError",
    "Error",
    "InternalError",
    "Jacobian",
    "OptionError",
    "Report",
    "ShapeError",
    "Stage",
    "Structure",
    "__version__",
    "compile",
]


def __getattr__(name: str) -> _Any:
    if name in ("nn", "torch"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
