"""What calls raise. Every class is a subclass of Error and of the usual exception of Python."""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CellError",
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


class InternalError(Error, RuntimeError):
    """A mistake in cellc."""


class ConvergenceWarning(Error, RuntimeWarning):
    """Some sequences have not converged, and repair was switched off; results are there all the same."""


def of_argument(kind: str, argument: str, text: str) -> Error:
    """An exception about an argument; for the extension module."""
    return globals()[kind](text, argument)


def of_status(status: int, text: str, line: int, column: int) -> Error:
    """An exception for a status of cellc.h; for the extension module."""
    if status == 1:
        return CellError(text, line, column) if line else OptionError(text)
    if status in (2, 3):
        return OptionError(text)
    return DeviceError(text) if status == 4 else InternalError(text)
