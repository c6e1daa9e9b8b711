#!/usr/bin/env python3
"""Times forward and backward of a public fused kernel beside ours, length by length in one run.

    against_gradients.py --peer gru|lstm --extension parallel_reduce_cuda.so --bench build/cellc_bench_cuda_gradients
    against_gradients.py --peer s6 --extension selective_scan_cuda.so --bench build/cellc_bench_cuda_gradients

gru, lstm: ParaRNN's extension. Its kernels make λ alone; gradients of inputs and params, which its library makes in
PyTorch, are not counted. s6: mamba_ssm's selective scan of 16 states a channel, all gradients counted. Theirs take
time as the last axis; `+ layout` adds the changes of layout that a caller with channels last needs. Ours makes every
gradient from arrays with channels last. `ours` forward also writes the whole trajectory of the states, `theirs` of s6
keeps one state in 2,048 steps and runs between them again. All in ms of forward and backward together.
"""
import argparse
import os
import re
import subprocess

from peer_timing import fail, milliseconds


def random(torch, *shape, low=-1.0, high=1.0):
    return torch.rand(*shape, device="cuda") * (high - low) + low


def pararnn(torch, params, forward, backward, states, batch, steps, d, repeats):
    """ParaRNN's kernels alone, and with the changes of layout."""
    a = [random(torch, d, n) for n in params]
    rows, cotangent = random(torch, batch, steps, 3, d), random(torch, batch, steps, states * d)
    last = lambda rows: rows.permute(0, 3, 1, 2).contiguous()
    state_last = lambda s: (s.reshape(batch, steps, states, d).permute(0, 3, 1, 2).contiguous() if states > 1
                            else s.transpose(1, 2).contiguous())
    x, g = last(rows), state_last(cotangent)
    run = lambda x, g: backward(g, forward(a[0], x, *a[1:]), a[0], x, *a[1:])
    alone = milliseconds(torch, lambda: run(x, g), repeats)
    turned = milliseconds(torch, lambda: run(last(rows), state_last(cotangent)).movedim(1, -1).contiguous(), repeats)
    return alone, turned


def selective_scan(torch, module, batch, steps, d, repeats, n=16):
    """mamba_ssm's kernels alone, and with the changes of layout."""
    rows = [random(torch, batch, steps, d) for _ in range(3)]  # u, dt, cotangent of y
    A, D = -torch.exp(random(torch, d, n)), random(torch, d)
    B, C = (random(torch, batch, 1, n, steps) for _ in range(2))

    def run(u, dt, dy, B, C):
        y, x, *_ = module.fwd(u, dt, A, B, C, D, None, None, True)
        return y, module.bwd(u, dt, A, B, C, D, None, None, dy, x, None, None, True, False)

    last = [r.transpose(1, 2).contiguous() for r in rows]
    alone = milliseconds(torch, lambda: run(*last, B, C), repeats)

    def turned():
        y, (du, ddt, *_) = run(*(r.transpose(1, 2).contiguous() for r in rows), B, C)
        for made in (y, du, ddt):
            made.transpose(1, 2).contiguous()

    return alone, milliseconds(torch, turned, repeats)


# By name: our cell, its values read and written a step and channel, lengths of further axes.
PEERS = {"gru": ("01_para_gru.cell", "7", "5", ""), "lstm": ("02_para_lstm.cell", "8", "5", ""),
         "s6": ("13_s6.cell", "21", "20", ",16")}


def ours(bench, peer, batch, steps, d, repeats):
    cell, read, written, more = PEERS[peer]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dsl-examples", cell)
    done = subprocess.run([bench, path, read, written, f"{batch},{steps},{d}{more}", str(repeats)], capture_output=True,
                          text=True)
    row = re.search(rf"^\s*{batch}\s+{steps}\s+{d}\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s", done.stdout, re.M)
    if done.returncode or not row:
        fail(f"{bench} failed: {done.stderr.strip() or done.stdout.strip()}")
    return float(row.group(1)), float(row.group(2))


def load(torch, options):
    """The peer's forward and backward as one function of (batch, steps, d, repeats)."""
    if options.peer == "s6":
        import importlib.util
        spec = importlib.util.spec_from_file_location("selective_scan_cuda", options.extension)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return lambda *shape: selective_scan(torch, module, *shape)
    torch.ops.load_library(options.extension)
    operators = torch.ops.parallel_reduce_cuda
    if options.peer == "gru":
        forward, back, params, states = operators.fused_fwd_gru_diag_mh, operators.fused_bwd_gru_diag_mh, [3], 1
    else:
        forward, back = operators.fused_fwd_lstm_cifg_diag_mh, operators.fused_bwd_lstm_cifg_diag_mh
        params, states = [3, 2], 2
    return lambda *shape: pararnn(torch, params, forward, back, states, *shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--extension", required=True, help="the peer's compiled extension")
    parser.add_argument("--bench", required=True, help="our cellc_bench_cuda_gradients")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**n for n in range(9, 18)])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for what, path in (("the extension", options.extension), ("the bench", options.bench)):
        if not os.path.isfile(path):
            fail(f"{what} is not at {path}; build it, or name its file")
    try:
        import torch
    except ImportError:
        fail("PyTorch is missing: the extensions are its own")
    if not torch.cuda.is_available():
        fail("PyTorch sees no GPU")
    try:
        theirs = load(torch, options)
    except (OSError, ImportError) as error:
        fail(f"{options.extension} cannot be loaded: {error}; it must be built for this PyTorch ({torch.__version__})")
    print(f"{torch.cuda.get_device_name()}, {options.peer}, batch {options.batch}, {options.channels} channels, f32; "
          "ms of forward and backward")
    print(f"{'T':>8}{'copy':>9}{'ours':>9}{'theirs':>9}{'+ layout':>10}{'times':>7}{'+ layout':>10}")
    for steps in options.lengths:
        alone, turned = theirs(options.batch, steps, options.channels, options.repeats)
        torch.cuda.empty_cache()
        copy, own = ours(options.bench, options.peer, options.batch, steps, options.channels, options.repeats)
        print(f"{steps:>8}{copy:>9.4f}{own:>9.4f}{alone:>9.4f}{turned:>10.4f}{alone / own:>7.1f}{turned / own:>10.1f}",
              flush=True)


if __name__ == "__main__":
    main()
