#!/usr/bin/env python3
"""Writes torch_values.txt: gradients of ParaGRU and ParaLSTM by torch's autograd, in f64. Needs torch; tests do not.

A line an array: cell, name, shape with commas, numbers. Names are those of `cellc run`: inputs, params, NAME.initial,
cotangents as cotangent.NAME, gradients as grad.NAME.
"""
import os

import torch

BATCH, STEPS, CHANNELS = 2, 6, 3


def para_gru(x, p, s):
    h, trajectory = s["h"], []
    for t in range(STEPS):
        z = torch.sigmoid(p["az"] * h + x["xz"][:, t])
        r = torch.sigmoid(p["ar"] * h + x["xr"][:, t])
        c = torch.tanh(p["ac"] * (r * h) + x["xc"][:, t])
        h = (1 - z) * h + z * c
        trajectory.append(h)
    return {"h": torch.stack(trajectory, 1), "h.final": h}


def para_lstm(x, p, s):
    c, h, cs, hs = s["c"], s["h"], [], []
    for t in range(STEPS):
        f = torch.sigmoid(p["af"] * h + p["pf"] * c + x["uf"][:, t])
        c = f * c + (1 - f) * torch.tanh(p["ac"] * h + x["uc"][:, t])
        o = torch.sigmoid(p["ao"] * h + p["po"] * c + x["uo"][:, t])
        h = o * torch.tanh(c)
        cs.append(c)
        hs.append(h)
    return {"c": torch.stack(cs, 1), "c.final": c, "h": torch.stack(hs, 1), "h.final": h}


CELLS = {
    "para_gru": (para_gru, ["xz", "xr", "xc"], ["az", "ar", "ac"], ["h"]),
    "para_lstm": (para_lstm, ["uf", "uc", "uo"], ["af", "pf", "ac", "ao", "po"], ["c", "h"]),
}


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    lines = []

    def write(cell, name, value):
        shape = ",".join(str(n) for n in value.shape)
        numbers = " ".join(repr(float(v)) for v in value.detach().flatten())
        lines.append(f"{cell} {name} {shape} {numbers}")

    for name, (cell, inputs, params, states) in CELLS.items():
        draw = lambda *shape: torch.empty(shape).uniform_(-1.5, 1.5).requires_grad_()
        x = {n: draw(BATCH, STEPS, CHANNELS) for n in inputs}
        p = {n: draw(CHANNELS) for n in params}
        s = {n: draw(BATCH, CHANNELS) for n in states}
        read = {**x, **p, **{n + ".initial": v for n, v in s.items()}}
        written = cell(x, p, s)
        cotangents = {n: torch.empty_like(v).uniform_(-1, 1) for n, v in written.items()}
        sum((written[n] * c).sum() for n, c in cotangents.items()).backward()
        for n, v in read.items():
            write(name, n, v)
        for n, v in cotangents.items():
            write(name, "cotangent." + n, v)
        for n, v in read.items():
            write(name, "grad." + n, v.grad)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_values.txt")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


main()
