"""What calls raise. Every class is a subclass of Error and of the usual exception of Python."""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "ArgumentError",
    "CellError",
    "ConvergenceError",
    "ConvergenceWarning",
    "DTypeError",
    "DeviceError",
    "DeviceMismatchError",
    "Error",
    "InternalError",
    "OptionError",
    "ShapeError",
]


class Error(Exception):
    """The root of all that cellc raises."""


class CellError(Error, ValueError):
    """The text of a cell is wrong. The message has every error with its line and a caret.

    Attributes: ``line`` and ``column`` of the first error, counted from 1.
    """

    def __init__(self, text: str, line: int = 0, column: int = 0):
        super().__init__(text)
        self.line = line
        self.column = column


class OptionError(Error, ValueError):
    """An option of compile() or of a call that cannot be meant."""


class _OfArgument(Error):
    def __init__(self, text: str, argument: str | None = None):
        super().__init__(text)
        self.argument = argument


class ArgumentError(_OfArgument, TypeError):
    """An argument is missing, or there is none of that name. Attribute: ``argument``, its name."""


class DTypeError(_OfArgument, TypeError):
    """An array has another dtype than the kernel. Attribute: ``argument``."""


class ShapeError(_OfArgument, ValueError):
    """An array has not the shape that the cell or the other arrays call for. Attribute: ``argument``."""


class DeviceMismatchError(_OfArgument, ValueError):
    """An array is not where the kernel runs. Attribute: ``argument``."""


class DeviceError(Error, RuntimeError):
    """The device, the code generator, the file system or memory failed."""


class ConvergenceError(Error, RuntimeError):
    """A run did not converge, and repair was switched off: derivatives about its states would mean nothing."""


class InternalError(Error, RuntimeError):
    """A mistake in cellc."""


class ConvergenceWarning(Error, RuntimeWarning):
    """Some sequences have not converged, and repair was switched off; results are there all the same."""


def warn_of(missed: str) -> None:
    """A ConvergenceWarning at the caller's line. missed: of a Report."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("cellc", "torch"):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(missed, ConvergenceWarning, stacklevel=depth)


def no_derivatives(what: str, missed: str) -> ConvergenceError:
    """what: "gradients" or "tangents"; missed: of a Report."""
    return ConvergenceError(
        f"the run did not converge, so there are no {what}: {missed}; leave out repair=False, or give compile() a larger "
        "max_iterations or tolerance"
    )


def of_argument(kind: str, argument: str, text: str) -> Error:
    """An exception about an argument; for the extension module."""
    return globals()[kind](text, argument)


def of_status(status: int, text: str, line: int, column: int) -> Error:
    """An exception for a status of cellc.h; for the extension module."""
    if status == 1:
        return CellError(text, line, column) if line else OptionError(text)
    if status == 2:
        return OptionError(text)
    if status == 3:
        return ConvergenceError(text)
    return DeviceError(text) if status == 4 else InternalError(text)
