"""The extension module: for the package alone."""

from typing import Any, Mapping, Sequence

version: str

def set_torch(tensor: type, parameter: type, dtypes: Mapping[Any, int], empty_like: Any) -> None: ...

def sort_tensors(
    named: dict[str, Any], inputs: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[Any, ...], dict[str, Any], int, int, bool]: ...

def know_call(
    function: int, names: str, finals: bool, reverse: bool, length: int | None, batch: int | None, write: str | None,
    call: TensorCall,
) -> None: ...
def autograd_functions(
    call: TensorCall, states: int, in_python: tuple[Any, Any], is_grad_enabled: Any
) -> tuple[Any, Any]: ...
def keep_operator_error(text: str) -> None: ...
def operator_table() -> int: ...

class TensorCall:
    def __init__(
        self, kernel: Kernel, names: tuple[str, ...], constants: dict[str, Any], maker: Any, sizes: tuple[Any, ...],
        rows: Sequence[str] | None, finals: bool,
    ) -> None: ...
    def forward(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]: ...
    def watched(self, tensors: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]: ...
    def backward(
        self, tensors: tuple[Any, ...], cotangents: tuple[Any, ...], needed: tuple[bool, ...]
    ) -> tuple[Any, ...]: ...
    def curvature(
        self, tensors: tuple[Any, ...], cotangents: tuple[Any, ...], moved: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]: ...

class Kernel:
    def __init__(
        self,
        source: str,
        *,
        is_file: bool,
        cell: str,
        dtype: int,
        device: str,
        cpu: str,
        solver: str,
        products: str,
        threads: int,
        cache: str,
        tolerance: float | None,
        max_iterations: int,
        repair: bool,
        deterministic: bool,
    ) -> None: ...
    @property
    def finals(self) -> tuple[str, ...]: ...
    def arrays(self) -> list[tuple[str, int, int, bool, tuple[str, ...]]]: ...
    def axes(self) -> list[tuple[str, int]]: ...
    def derivatives(self, direction: int, quantity: int) -> list[tuple[str, int]]: ...
    def inspect(self, json: bool) -> str: ...
    def forward(
        self,
        named: dict[str, Any],
        maker: Any,
        sizes: tuple[Any, ...],
        stream: int | None,
        wanted: Sequence[str] | None,
        finals: bool,
        report: bool,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...] | None]: ...
    def backward(
        self,
        named: dict[str, Any],
        maker: Any,
        sizes: tuple[Any, ...],
        stream: int | None,
        states: dict[str, Any],
        cotangents: dict[str, Any],
        final_cotangents: dict[str, Any],
        wanted: Sequence[str],
    ) -> tuple[Any, ...]: ...
    def tangent(
        self,
        named: dict[str, Any],
        maker: Any,
        sizes: tuple[Any, ...],
        stream: int | None,
        states: dict[str, Any],
        tangents: dict[str, Any],
        finals: bool,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]: ...
