#!/usr/bin/env python3
"""Times the fused forward GRU of the public ParaRNN extension beside ours, shape by shape in one run.

    against_pararnn.py --extension parallel_reduce_cuda.cpython-312-x86_64-linux-gnu.so \\
                       --bench build/bench/cellc_bench_cuda [--cell dsl-examples/01_para_gru.cell] [--shapes 8,2048,1024 ...]

Theirs takes inputs as [B, d, T, 3] and makes three Newton iterations from nothing, unchecked; ours takes [B, T, 3, d]
and verifies. `+ layout` adds the two changes of layout that a caller with [B, T, 3, d] needs. Both start at zero and
see triangular inputs on [-2.4, 2.4] and params on [-1, 1]. `off`: how far their answer is from a loop in f64, over
some channels of the first sequence.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

SHAPES = ["1,512,1024", "8,512,1024", "1,2048,1024", "8,2048,1024", "8,2048,4096", "1,8192,1024", "1,65536,64",
          "1,1048576,64", "32,2048,2048"]


def fail(message):
    print(f"against_pararnn: {message}", file=sys.stderr)
    sys.exit(2)


def milliseconds(torch, call, repeats):
    """The median of five rows of calls, in milliseconds a call."""
    for _ in range(2):
        call()
    rows = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        rows.append(begin.elapsed_time(end) / repeats)
    return statistics.median(rows)


def theirs(torch, batch, steps, channels, repeats):
    torch.manual_seed(1)
    a = torch.rand(channels, 3, device="cuda") * 2 - 1
    rows = (torch.rand(batch, steps, 3, channels, device="cuda") + torch.rand(batch, steps, 3, channels, device="cuda") - 1) * 2.4
    x = rows.permute(0, 3, 1, 2).contiguous()
    run = torch.ops.parallel_reduce_cuda.fused_fwd_gru_diag_mh
    h = run(a, x)
    if tuple(h.shape) != (batch, channels, steps):
        fail(f"the extension returned {tuple(h.shape)}, expected {(batch, channels, steps)}: is this its fused GRU?")
    some = min(channels, 64)
    params, inputs = a[:some].double().cpu(), x[0, :some].double().cpu()
    state, off = torch.zeros(some, dtype=torch.float64), 0.0
    got = h[0, :some].double().cpu()
    for t in range(min(steps, 4096)):
        z = torch.sigmoid(params[:, 0] * state + inputs[:, t, 0])
        r = torch.sigmoid(params[:, 1] * state + inputs[:, t, 1])
        state = (1 - z) * state + z * torch.tanh(params[:, 2] * (r * state) + inputs[:, t, 2])
        off = max(off, float(((got[:, t] - state).abs() / (1 + state.abs())).max()))
    alone = milliseconds(torch, lambda: run(a, x), repeats)
    turned = milliseconds(torch, lambda: run(a, rows.permute(0, 3, 1, 2).contiguous()).transpose(1, 2).contiguous(), repeats)
    return alone, turned, off


def ours(bench, cell, shape, repeats):
    done = subprocess.run([bench, cell, "fast", shape, str(repeats)], capture_output=True, text=True)
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
    parser.add_argument("--cell", default=os.path.join(here, "..", "dsl-examples", "01_para_gru.cell"))
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="B,T,d")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    for what, path in (("ParaRNN's extension", options.extension), ("cellc_bench_cuda", options.bench), ("the cell", options.cell)):
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
    if not hasattr(torch.ops.parallel_reduce_cuda, "fused_fwd_gru_diag_mh"):
        fail(f"{options.extension} has no parallel_reduce_cuda::fused_fwd_gru_diag_mh")
    print(f"{torch.cuda.get_device_name()}, ParaGRU forward, f32; ms")
    print(f"{'B,T,d':<14}{'copy':>9}{'ours':>9}{'ParaRNN':>9}{'+ layout':>10}{'times':>7}{'off':>9}")
    for shape in options.shapes:
        alone, turned, off = theirs(torch, *map(int, shape.split(",")), options.repeats)
        torch.cuda.empty_cache()
        copy, own = ours(options.bench, options.cell, shape, options.repeats)
        print(f"{shape:<14}{copy:>9.4f}{own:>9.4f}{alone:>9.4f}{turned:>10.4f}{alone / own:>7.1f}{off:>9.0e}", flush=True)


if __name__ == "__main__":
    main()
