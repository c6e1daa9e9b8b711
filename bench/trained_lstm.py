#!/usr/bin/env python3
"""Trains a small language model of bytes in torch, an LSTM of 512 units, and times its layer in cellc with the weights
that come out: by kernels that live through all steps, by relaxation, and as `auto` decides.

    trained_lstm.py --text FILE… [--cellc build/cellc] [--seconds 30] [--shapes 1,16384 16,1024]

An iteration of relaxation costs the same whatever the weights, but trained ones contract less (docs/notes/persistent.md).
ms; `nats` a byte are what training came to.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import torch
from torch import nn

CELL = pathlib.Path(__file__).resolve().parents[1] / "dsl-examples" / "04_lstm.cell"
UNITS, STEPS = 512, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, UNITS)
        self.lstm = nn.LSTM(UNITS, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, 256)

    def forward(self, text):
        return self.head(self.lstm(self.embedding(text))[0])


def train(text, seconds):
    torch.manual_seed(1)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    end, loss = time.monotonic() + seconds, None
    while time.monotonic() < end:
        starts = torch.randint(0, len(text) - STEPS - 1, (64,))
        batch = torch.stack([text[s : s + STEPS + 1] for s in starts.tolist()]).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.float().flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, loss.item()


def save_params(lstm, folder):
    """Params of 04_lstm.cell: torch stacks its gates as i, f, g, o, and has two biases."""
    arguments = []
    both = (lstm.bias_ih_l0 + lstm.bias_hh_l0).chunk(4)
    parts = {"W": lstm.weight_ih_l0.chunk(4), "U": lstm.weight_hh_l0.chunk(4), "b": both}
    for letter, gates in parts.items():
        for gate, values in zip("ifgo", gates):
            path = folder / f"{letter}{gate}.npy"
            np.save(path, values.detach().float().cpu().numpy())
            arguments += ["--param", f"{letter}{gate}={path}"]
    return arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--cellc", default="build/cellc")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--shapes", nargs="+", default=["1,16384", "16,1024"])
    options = parser.parse_args()
    text = b"".join(pathlib.Path(path).read_bytes() for path in options.text)
    text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model, loss = train(text, options.seconds)
    print(f"{torch.cuda.get_device_name()}, {len(text)} bytes, {loss:.2f} nats a byte", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        params = save_params(model.lstm, folder)
        for shape in options.shapes:
            batch, steps = map(int, shape.split(","))
            with torch.no_grad():
                rows = model.embedding(text[: batch * steps].cuda()).view(batch, steps, UNITS)
            np.save(folder / "x.npy", rows.half().cpu().numpy())
            for solver in ("persistent", "relaxation", "auto"):
                command = [options.cellc, "bench", CELL, "--device", "cuda", "--json", "--solver", solver, "--products",
                           "storage", "--repeats", "5", "--input", f"x={folder / 'x.npy'}", *params]
                made = subprocess.run(command, capture_output=True, text=True)
                if made.returncode:
                    print(f"({shape}) {solver}: {made.stderr.strip()[:300]}")
                    continue
                row = json.loads(made.stdout)["devices"][0]["strategies"][0]
                plan = row["plan"]
                print(f"({shape}) {solver:<12}{row['ms']:9.3f} ms  {plan['stages'][0]['solver']}: {plan['reason'][:200]}",
                      flush=True)


if __name__ == "__main__":
    main()
