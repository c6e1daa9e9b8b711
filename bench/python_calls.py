#!/usr/bin/env python3
"""What a call from Python costs over its kernel, for a shape so small that the kernel costs nothing.

    build/venv/bin/python bench/python_calls.py [CELL]

Microseconds: the least of many means, each of fifty calls. Without torch, that of NumPy alone.
"""

import pathlib
import sys
import timeit

import numpy as np

import cellc

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALLS, REPEATS = 50, 300


def least(call):
    call()
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def row(what, microseconds):
    print(f"{what:40} {microseconds:8.2f} µs")


def arrays_for(cell, dtype):
    random = np.random.default_rng(0)
    arrays = {name: random.normal(size=(1, 1, *(4 for _ in axes))).astype(dtype) for name, axes in cell.inputs.items()}
    for name in cell.required:
        if name in cell.params:
            arrays[name] = random.normal(size=tuple(4 for _ in cell.params[name])).astype(dtype)
    return arrays


def main():
    cell = cellc.compile(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dsl-examples" / "01_para_gru.cell")
    arrays = arrays_for(cell, np.float32)
    print(f"{cell.name}: {len(arrays)} arrays, one step of one sequence")
    row("the kernel alone", min(cell(arrays).report.run_ms for _ in range(1000)) * 1e3)
    row("NumPy, forward", least(lambda: cell(arrays)))
    y, pullback = cell.vjp(arrays)
    cotangents = {name: np.ones_like(array) for name, array in y.items()}
    row("NumPy, backward", least(lambda: pullback(cotangents)))
    try:
        import torch

        from cellc.torch import function as on_tensors
    except ImportError:
        return
    torch.set_num_threads(1)
    function = on_tensors(cell)
    given = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    with torch.no_grad():
        row("torch, forward, no gradients", least(lambda: function(given)))
    row("torch, forward", least(lambda: function(given)))
    rows = list(function(given))
    ones = [torch.ones_like(tensor) for tensor in rows]

    def both():
        torch.autograd.grad(list(function(given)), list(given.values()), ones)

    row("torch, forward and backward", least(both))
    tensors = list(given.values())
    gradients = tuple(torch.zeros_like(tensor) for tensor in tensors)

    class Nothing(torch.autograd.Function):
        """What torch asks for a function in Python, whatever it does."""

        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*tensors)
            return tuple(tensor.detach() for tensor in rows)

        @staticmethod
        def backward(ctx, *_):
            _ = ctx.saved_tensors
            return gradients

    row("torch, both, of a function that does nothing", least(
        lambda: torch.autograd.grad(list(Nothing.apply(*tensors)), tensors, ones)
    ))  # fmt: skip
    operators(torch, function, given, ones)


def operators(torch, function, given, ones):
    """As graphs have them; CELLC_TORCH_OPERATORS=python leaves out the library in C++."""
    from cellc.operator_library import LOADED

    print("operators:", "the library in C++" if LOADED else "in Python")
    tensors = [tensor.detach() for tensor in given.values()]
    run, told = torch.ops.cellc.forward.default, (function.number, ",".join(given), False, False, None, None)
    with torch.no_grad():
        row("the operator, no gradients", least(lambda: run(tensors, *told)))
    plain = torch.ops.cellc.plain_forward.default
    with torch.no_grad():
        row("the operator that graphs have", least(lambda: plain(tensors, *told)))
    back, states = torch.ops.cellc.backward.default, run(tensors, *told)[: len(function.states)]
    needed = [True for _ in tensors]
    with torch.no_grad():
        row("the operator of gradients", least(lambda: back(tensors, states, ones, needed, *told)))
    compiled = torch.compile(lambda g: function(g)[0], backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        row("compiled (aot_eager), no gradients", least(lambda: compiled(given)))
    row("compiled, forward", least(lambda: compiled(given)))
    leaves = list(given.values())
    row("compiled, forward and backward", least(lambda: torch.autograd.grad(compiled(given), leaves, ones[0])))
    sigmoid, x = torch.compile(torch.sigmoid, backend="aot_eager", fullgraph=True), tensors[0]
    with torch.no_grad():
        row("of a single sigmoid, no gradients", least(lambda: sigmoid(x)))


if __name__ == "__main__":
    main()
