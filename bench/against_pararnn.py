#!/usr/bin/env python3
"""Times the fused forward GRU or LSTM of the public ParaRNN extension beside ours, shape by shape in one run.

    against_pararnn.py --extension parallel_reduce_cuda.cpython-312-x86_64-linux-gnu.so \\
                       --bench build/cellc_bench_cuda [--cell gru|lstm] [--dtype f32|bf16] [--shapes 8,2048,1024 ...]

Theirs takes inputs as [B, d, T, 3] and makes three Newton iterations from nothing, unchecked; ours takes [B, T, 3, d]
and verifies. `+ layout` adds the two changes of layout that a caller with [B, T, 3, d] needs. Both start at zero and
see triangular inputs on [-2.4, 2.4] and params on [-1, 1]. `off`: how far their answer is from a loop in f64, over
some channels of the first sequence.
"""
import argparse
import os
import re
import subprocess

from peer_timing import fail, milliseconds

SHAPES = ["1,512,1024", "8,512,1024", "1,2048,1024", "8,2048,1024", "8,2048,4096", "1,8192,1024", "1,65536,64",
          "1,1048576,64", "32,2048,2048"]


def gru_step(torch, params, state, x):
    """ParaGRU: params and inputs z, r, c."""
    (a,), (h,) = params, state
    z, r = torch.sigmoid(a[:, 0] * h + x[:, 0]), torch.sigmoid(a[:, 1] * h + x[:, 1])
    return [(1 - z) * h + z * torch.tanh(a[:, 2] * (r * h) + x[:, 2])]


def lstm_step(torch, params, state, x):
    """ParaLSTM: params and inputs f, o, c, peepholes f, o; states c, h."""
    (a, p), (c, h) = params, state
    f = torch.sigmoid(a[:, 0] * h + p[:, 0] * c + x[:, 0])
    c = f * c + (1 - f) * torch.tanh(a[:, 2] * h + x[:, 2])
    return [c, torch.sigmoid(a[:, 1] * h + p[:, 1] * c + x[:, 1]) * torch.tanh(c)]


# By name: the extension's operator, numbers of its params, its states, its step, our cell.
CELLS = {"gru": ("fused_fwd_gru_diag_mh", [3], 1, gru_step, "01_para_gru.cell"),
         "lstm": ("fused_fwd_lstm_cifg_diag_mh", [3, 2], 2, lstm_step, "02_para_lstm.cell")}


def theirs(torch, cell, dtype, batch, steps, channels, repeats):
    name, sizes, states, step, _ = CELLS[cell]
    torch.manual_seed(1)
    a, *more = [(torch.rand(channels, n, device="cuda") * 2 - 1).to(dtype) for n in sizes]
    rows = ((torch.rand(batch, steps, 3, channels, device="cuda") + torch.rand(batch, steps, 3, channels, device="cuda") - 1) * 2.4).to(dtype)
    x = rows.permute(0, 3, 1, 2).contiguous()
    operator = getattr(torch.ops.parallel_reduce_cuda, name)
    run = lambda x: operator(a, x, *more)
    h = run(x)
    expected = (batch, channels, steps) if states == 1 else (batch, channels, steps, states)
    if tuple(h.shape) != expected:
        fail(f"the extension returned {tuple(h.shape)}, expected {expected}: is this its {name}?")
    some = min(channels, 64)
    params, inputs = [p[:some].double().cpu() for p in (a, *more)], x[0, :some].double().cpu()
    state, off = [torch.zeros(some, dtype=torch.float64)] * states, 0.0
    got = h[0, :some].double().cpu().reshape(some, steps, states)
    for t in range(min(steps, 4096)):
        state = step(torch, params, state, inputs[:, t])
        for e in range(states):
            off = max(off, float(((got[:, t, e] - state[e]).abs() / (1 + state[e].abs())).max()))
    alone = milliseconds(torch, lambda: run(x), repeats)
    turned = milliseconds(torch, lambda: run(rows.permute(0, 3, 1, 2).contiguous()).transpose(1, 2).contiguous(), repeats)
    return alone, turned, off


def ours(bench, cell, dtype, shape, repeats):
    done = subprocess.run([bench, cell, "fast", shape, str(repeats), dtype], capture_output=True, text=True)
    if done.returncode:
        fail(f"{bench} failed on {shape}: {done.stderr.strip() or done.stdout.strip()}")
    batch, steps, channels = shape.split(",")
    row = re.search(rf"^\s*{batch}\s+{steps}\s+{channels}\s+([\d.]+)\s+([\d.]+)\s", done.stdout, re.M)
    if not row:
        fail(f"{bench} printed no row for {shape}:\n{done.stdout}")
    return float(row.group(1)), float(row.group(2))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extension", required=True, help="ParaRNN's compiled extension, parallel_reduce_cuda.*.so")
    parser.add_argument("--bench", required=True, help="our cellc_bench_cuda")
    parser.add_argument("--cell", choices=CELLS, default="gru")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="B,T,d")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    operator, *_, file = CELLS[options.cell]
    cell = os.path.join(here, "..", "dsl-examples", file)
    for what, path in (("ParaRNN's extension", options.extension), ("cellc_bench_cuda", options.bench), ("the cell", cell)):
        if not os.path.isfile(path):
            fail(f"{what} is not at {path}; build it, or name its file")
    for shape in options.shapes:
        if not re.fullmatch(r"\d+,\d+,\d+", shape):
            fail(f"--shapes {shape}: expected B,T,d")
    try:
        import torch
    except ImportError:
        fail("PyTorch is missing: the extension is one of its own")
    if not torch.cuda.is_available():
        fail("PyTorch sees no GPU")
    try:
        torch.ops.load_library(options.extension)
    except OSError as error:
        fail(f"{options.extension} cannot be loaded: {error}; it must be built for this PyTorch ({torch.__version__})")
    if not hasattr(torch.ops.parallel_reduce_cuda, operator):
        fail(f"{options.extension} has no parallel_reduce_cuda::{operator}")
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    print(f"{torch.cuda.get_device_name()}, {options.cell} forward, {options.dtype}; ms")
    print(f"{'B,T,d':<14}{'copy':>9}{'ours':>9}{'ParaRNN':>9}{'+ layout':>10}{'times':>7}{'off':>9}")
    for shape in options.shapes:
        alone, turned, off = theirs(torch, options.cell, dtype, *map(int, shape.split(",")), options.repeats)
        torch.cuda.empty_cache()
        copy, own = ours(options.bench, cell, options.dtype, shape, options.repeats)
        print(f"{shape:<14}{copy:>9.4f}{own:>9.4f}{alone:>9.4f}{turned:>10.4f}{alone / own:>7.1f}{off:>9.0e}", flush=True)


if __name__ == "__main__":
    main()
