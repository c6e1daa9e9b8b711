#!/usr/bin/env python3
"""A model of the bytes of a text, by default the GPL: ParaGRU, ParaLSTM, and a cell of your own.

    python examples/text.py [--text FILE] [--cell own]

The figure is bits a byte of the last tenth of the text, which is not trained on. Write your own cell below: whatever
the recurrence, it is trained as fast as the kernel that is derived of it runs.
"""

import math
import pathlib
import sys

import torch
from torch import nn
from training import CELLS, draw, options, report, train

import cellc.nn

# A memory m that a gate writes to, and a state h that reads it through a threshold b, which rises while h is loud.
OWN = """
cell own[d] {
  state m[d], h[d], b[d]
  input g[d], v[d], o[d]
  param a[d], rate[d] in (0, 1)
  k  = sigmoid(g + a*h)
  m' = k*m + (1 - k)*v
  h' = sigmoid(o)*tanh(m' - b)
  b' = b + 0.1*rate*(h' - b)
}
"""
MODELS = {"para_gru": CELLS / "01_para_gru.cell", "para_lstm": CELLS / "02_para_lstm.cell", "own": OWN}


def text_of(path):
    places = [path] if path else ["/usr/share/common-licenses/GPL-3", CELLS.parent / "LICENSE"]
    for place in map(pathlib.Path, places):
        if place.exists():
            return place, torch.tensor(list(place.read_bytes()))
    raise SystemExit(f"text.py: there is no {path}")


class Bytes(nn.Module):
    def __init__(self, source, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.rnn = cellc.nn.Recurrence(source, input_size=width, num_layers=layers, d=width, output="h", dropout=0.1)
        self.head = nn.Linear(width, 256)

    def forward(self, text):
        y, _ = self.rnn(self.embedding(text))
        return self.head(y)

    @torch.no_grad()
    def write(self, begin, count):
        """Goes on from a text, a byte at a time."""
        written, start = list(begin), None
        for byte in begin:
            y, start = self.rnn.step(self.embedding(byte), start)
        for _ in range(count):
            byte = torch.multinomial(torch.softmax(self.head(y) / 0.7, -1), 1)[0]
            written.append(byte)
            y, start = self.rnn.step(self.embedding(byte), start)
        return bytes(int(b) for b in written).decode(errors="replace")


def main():
    given = options(
        __doc__.splitlines()[0],
        (1000, 5),
        cell={"choices": list(MODELS)},
        text={},
        width={"type": int, "default": 128},
        layers={"type": int, "default": 2},
        length={"type": int, "default": 256},
        batch={"type": int, "default": 16},
    )
    path, text = text_of(given.text)
    text = text.to(given.device)
    learned, held = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    curves = {}
    for name in [given.cell] if given.cell else MODELS:
        torch.manual_seed(given.seed)
        model = Bytes(MODELS[name], given.width, given.layers).to(given.device)

        def loss_of(_):
            begins = torch.randint(0, len(learned) - given.length - 1, (given.batch, 1), device=given.device)
            rows = learned[begins + torch.arange(given.length + 1, device=given.device)]
            return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

        curves[name], seconds = train(name, model, loss_of, given.steps, 4e-3)
        model.eval()
        with torch.no_grad():
            bits = nn.functional.cross_entropy(model(held[None, :-1])[0], held[1:]).item() / math.log(2)
        report(
            model=name, text=path.name, steps=given.steps, trained=f"{curves[name][-1] / math.log(2):.2f}",
            held_out=f"{bits:.2f} bits a byte", seconds=f"{seconds:.0f}",
        )  # fmt: skip
        print(repr(model.write(learned[:40], 20 if given.quick else 200)), file=sys.stderr)
    draw(given.curves, curves)


if __name__ == "__main__":
    main()
