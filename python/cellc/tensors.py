"""Tensors of torch, as the extension module asks for them (python/src/call_arrays.h)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from . import _core

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}

_core.set_torch(torch.Tensor, torch.nn.Parameter, NUMBERS, torch.empty_like)

sort_tensors = _core.sort_tensors
TensorCall = _core.TensorCall
autograd_functions = _core.autograd_functions


class TensorMaker:
    """Makes tensors on a device."""

    def __init__(self, device: torch.device):
        self.device = device

    def empty(self, shape: tuple[int, ...], dtype: int) -> torch.Tensor:
        return torch.empty(shape, dtype=DTYPES[dtype], device=self.device)

    def convert(self, value: Any, dtype: int) -> torch.Tensor:
        tensor = torch.as_tensor(value, dtype=DTYPES[dtype], device=self.device).contiguous()
        return tensor.clone() if tensor.data_ptr() % tensor.element_size() else tensor

    def spread(self, value: Any, shape: tuple[int, ...], dtype: int) -> torch.Tensor:
        tensor = torch.as_tensor(value, dtype=DTYPES[dtype], device=self.device)
        return tensor.expand(shape).contiguous()

    def fit(self, gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """What stood for several sequences or entries has the sum of their gradients; arithmetic may be finer."""
        if gradient.shape != tensor.shape:
            gradient = gradient.sum_to_size(tensor.shape)
        return gradient if gradient.dtype == tensor.dtype else gradient.to(tensor.dtype)

    def stream(self) -> int:
        """The stream that work is queued on now; 0 on the CPU."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0

    def settle(self) -> None:
        """Waits for what is queued on the current stream: for calls of cellc.h that know of no streams."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()


@lru_cache(maxsize=None)
def maker_on(device: torch.device) -> TensorMaker:
    return TensorMaker(device)


def device_name(device: torch.device) -> str:
    """As cellc.h has it."""
    if device.type == "cpu":
        return "cpu"
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
