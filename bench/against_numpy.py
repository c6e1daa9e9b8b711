#!/usr/bin/env python3
"""Dense cells on a CPU beside a loop in NumPy: one thread, f32, the sequential strategy, microseconds a step.

    against_numpy.py build/cellc [--dims 64 256 768] [--batches 1 8 64] [--cells elman lipschitz ...]

The loop is what one would write: products of the inputs for all steps at once before it, one product for each matrix
and step in it. Both are the fastest of several runs, one directly after the other; the last column is ours over theirs.
"""
import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import json
import subprocess
import sys
import time

import numpy as np

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dsl-examples")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def elman(x, w):
    pre, u = x, w["U"].T.copy()
    def step(s, t):
        return (np.tanh(s[0] @ u + pre[t]),)
    return step


def antisymmetric(x, w):
    m, mt, gamma = w["M"], w["M"].T.copy(), np.float32(0.1)
    def step(s, t):
        (h,) = s
        return (h + np.float32(0.1) * np.tanh(h @ mt - h @ m - gamma * h + x[t]),)
    return step


def lipschitz(x, w):
    m, mt, k, kt = w["M"], w["M"].T.copy(), w["K"], w["K"].T.copy()
    beta, gamma, eps = np.float32(0.7), np.float32(1), np.float32(0.03)
    def step(s, t):
        (h,) = s
        a, b, c, d = h @ mt, h @ m, h @ kt, h @ k
        ah = (1 - beta) * (a + b) + beta * (a - b) - gamma * h
        wh = (1 - beta) * (c + d) + beta * (c - d) - gamma * h
        return (h + eps * (ah + np.tanh(wh + x[t])),)
    return step


def gru(x, w):
    d = w["U"].shape[0]
    pre = x @ np.concatenate([w["W"]] * 3, 1)
    both, last = np.concatenate([w["U"]] * 2, 1), w["U"].T.copy()
    def step(s, t):
        (h,) = s
        zr = sigmoid(h @ both + pre[t, :, :2 * d])
        z, r = zr[:, :d], zr[:, d:]
        return (z * h + (1 - z) * np.tanh((r * h) @ last + pre[t, :, 2 * d:]),)
    return step


def lstm(x, w):
    d = w["U"].shape[0]
    pre = x @ np.concatenate([w["W"]] * 4, 1)
    u = np.concatenate([w["U"]] * 4, 1)
    def step(s, t):
        h, c = s
        g = h @ u + pre[t]
        ifo = sigmoid(g[:, :3 * d])
        c = ifo[:, :d] * c + ifo[:, d:2 * d] * np.tanh(g[:, 3 * d:])
        return (ifo[:, 2 * d:] * np.tanh(c), c)
    return step


CELLS = {"elman": ("05_elman", elman, 1), "gru": ("03_gru", gru, 1), "lstm": ("04_lstm", lstm, 2),
         "lipschitz": ("29_lipschitz", lipschitz, 1), "antisymmetric": ("30_antisymmetric", antisymmetric, 1)}


def numpy_us(make, states, d, batch, length):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (length, batch, d)).astype(np.float32)
    w = {n: (rng.uniform(-1, 1, (d, d)) / np.sqrt(d)).astype(np.float32) for n in ("U", "M", "K", "W")}
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        step = make(x, w)
        s = tuple(np.zeros((batch, d), np.float32) for _ in range(states))
        out = np.empty((length, batch, d), np.float32)
        for t in range(length):
            s = step(s, t)
            out[t] = s[0]
        best = min(best, time.perf_counter() - begin)
    return best / length * 1e6


def cellc_us(cellc, file, d, batch, length):
    dims = ["--dim", f"d={d}"] + (["--dim", f"m={d}"] if file[:2] in ("03", "04") else [])
    command = [cellc, "bench", os.path.join(EXAMPLES, file + ".cell"), "--solver", "sequential", "--device", "cpu",
               "--threads", "1", "--batch", str(batch), "--length", str(length), "--random", "1", "--repeats", "5",
               "--json", *dims]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"against_numpy: {done.stderr[:500]}")
    return json.loads(done.stdout)["devices"][0]["strategies"][0]["ms"] / length * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cellc")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=CELLS)
    parser.add_argument("--dims", nargs="*", type=int, default=[64, 256, 768])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8, 64])
    options = parser.parse_args()
    print(f"{'cell':<15}{'d':>5}{'batch':>6}{'cellc us':>11}{'numpy us':>11}{'ratio':>8}")
    for name in options.cells:
        file, make, states = CELLS[name]
        for d in options.dims:
            for batch in options.batches:
                length = max(16, min(1000, int(4e8 / (d * d * batch))))
                ours, theirs = cellc_us(options.cellc, file, d, batch, length), numpy_us(make, states, d, batch, length)
                print(f"{name:<15}{d:>5}{batch:>6}{ours:>11.1f}{theirs:>11.1f}{ours / theirs:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
