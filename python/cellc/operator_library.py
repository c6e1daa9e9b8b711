"""The library of operators in C++ (python/operators), if the package was built with torch's headers and torch is 2.10 or
later. Without it operators are registered from Python, and nothing else changes.

CELLC_TORCH_OPERATORS says otherwise: "python" leaves the library out, "library" demands it.
"""

from __future__ import annotations

import ctypes
import os
import pathlib

from . import _core

_FILE = pathlib.Path(__file__).with_name("_operators.so")


def _load() -> bool:
    wanted = os.environ.get("CELLC_TORCH_OPERATORS", "")
    if wanted not in ("", "python", "library"):
        raise ImportError(f"CELLC_TORCH_OPERATORS is '{wanted}'; expected python or library")
    if wanted == "python" or not wanted and not _FILE.exists():
        return False
    try:
        library = ctypes.CDLL(str(_FILE))  # which registers itself with the torch of this process
    except OSError as error:  # such as symbols that earlier versions of torch have not
        if wanted:
            raise ImportError(f"the library of operators: {error}") from None
        return False
    library.cellc_use_table.restype = ctypes.c_bool
    if not library.cellc_use_table(ctypes.c_void_p(_core.operator_table())):
        raise ImportError(f"{_FILE} is of another version of the package")
    return True


LOADED = _load()
