#!/usr/bin/env python3
"""A layer of ParaGRU with its projection in torch on a GPU, forward and backward, beside a loop of compiled steps and,
where it is at hand, beside ParaRNN's own module.

    against_modules.py [--pararnn DIR] [--shape 8,2048,1024] [--steps-of-loop 128]

DIR has ParaRNN's package `pararnn` and its built extension, parallel_reduce_cuda.cpython-*.so, and is put into the path.
The loop makes so many steps and its time is taken for all: it grows with them. All in f32, as torch multiplies by
default, ms of a forward and backward pass.
"""
import argparse
import pathlib
import sys

import torch
from peer_timing import fail, milliseconds
from torch import nn

import cellc.nn

CELL = pathlib.Path(__file__).resolve().parents[1] / "dsl-examples" / "01_para_gru.cell"


class Loop(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.project = nn.Linear(d, 3 * d)
        self.a = nn.Parameter(torch.rand(3, d) * 2 - 1)

    def forward(self, x):
        xz, xr, xc = self.project(x).chunk(3, -1)
        h, rows = torch.zeros_like(xz[:, 0]), []
        for t in range(x.shape[1]):
            h = step(h, xz[:, t], xr[:, t], xc[:, t], self.a)
            rows.append(h)
        return torch.stack(rows, 1)


@torch.compile
def step(h, xz, xr, xc, a):
    z, r = torch.sigmoid(a[0] * h + xz), torch.sigmoid(a[1] * h + xr)
    return (1 - z) * h + z * torch.tanh(a[2] * (r * h) + xc)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pararnn", metavar="DIR")
    parser.add_argument("--shape", default="8,2048,1024", metavar="B,T,d")
    parser.add_argument("--steps-of-loop", type=int, default=128)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        fail("torch sees no GPU")
    batch, steps, d = map(int, options.shape.split(","))
    x = torch.randn(batch, steps, d, device="cuda", requires_grad=True)
    cotangent = torch.randn(batch, steps, d, device="cuda")
    print(f"{torch.cuda.get_device_name()}, ParaGRU with projection, ({options.shape}), f32; ms of forward and backward")

    def row(name, module, length=steps):
        inputs, given = x[:, :length], cotangent[:, :length]

        def both():
            y = module(inputs)
            torch.autograd.grad(y[0] if isinstance(y, tuple) else y, [x, *module.parameters()], given, allow_unused=True)

        ms = milliseconds(torch, both, 3) * steps / length
        print(f"{name:<28}{ms:>10.3f}", flush=True)
        return ms

    ours = cellc.nn.Recurrence(CELL, d, d=d).cuda()
    own = row("cellc.nn.Recurrence", ours)
    row("  its projection alone", Projection(d).cuda())
    loop = row("compiled steps in a loop", Loop(d).cuda(), min(options.steps_of_loop, steps))
    print(f"{'':<28}{loop / own:>10.1f} times ours")
    if options.pararnn:
        sys.path.insert(0, options.pararnn)
        from pararnn.parallel_reduction.parallel_reduction import NewtonConfig
        from pararnn.rnn_cell.gru_diag_mh import GRUDiagMH, GRUDiagMHConfig

        config = GRUDiagMHConfig(state_dim=d, input_dim=d, device="cuda", num_heads=1, mode="parallel_FUSED",
                                 newton_config=NewtonConfig())
        theirs = row("ParaRNN's module", GRUDiagMH(config))
        print(f"{'':<28}{theirs / own:>10.1f} times ours")


class Projection(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.project, self.d = nn.Linear(d, 3 * d), d

    def forward(self, x):
        return self.project(x)[..., : self.d]


if __name__ == "__main__":
    main()
