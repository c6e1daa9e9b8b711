"""Arrays of NumPy, as the extension module asks for them (python/src/call_arrays.h)."""

from __future__ import annotations

from typing import Any

import numpy as np

_DTYPES: dict[int, np.dtype[Any]] = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16)}
_NUMBERS: dict[Any, int] = {dtype: number for number, dtype in _DTYPES.items()}


def dtype_of(number: int) -> np.dtype:
    if number == 3:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError("NumPy has bfloat16 only with the package ml_dtypes, which is not installed") from None
        return np.dtype(ml_dtypes.bfloat16)
    return _DTYPES[number]


def number_of(dtype: object) -> int | None:
    """Of a dtype of NumPy: its number in cellc.h, or None."""
    number = _NUMBERS.get(dtype)
    return 3 if number is None and getattr(dtype, "name", "") == "bfloat16" else number


def empty(shape: tuple[int, ...], dtype: int) -> np.ndarray:
    return np.empty(shape, _DTYPES[dtype] if dtype != 3 else dtype_of(dtype))


def convert(value: object, dtype: int) -> np.ndarray:
    return np.require(value, dtype_of(dtype), ["C", "A"])


def spread(value: object, shape: tuple[int, ...], dtype: int) -> np.ndarray:
    result = np.empty(shape, dtype_of(dtype))
    result[...] = value
    return result
