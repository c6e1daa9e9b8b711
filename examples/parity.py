#!/usr/bin/env python3
"""Parity: was the number of ones so far odd? Trained on up to 100 bits, tested on 10,000.

    python examples/parity.py

ParaGRU learns it and holds at any length, as its state may change sign: a one turns it over, a zero keeps it. minGRU, a
linear recurrence with gates in (0, 1), cannot turn its state over; it can only count, and of long counts it cannot tell
odd from even. Accuracies are over the second half of the bits, where no short count helps.
"""

import torch
from torch import nn
from training import CELLS, draw, options, report, train

import cellc.nn

MODELS = {"para_gru": CELLS / "01_para_gru.cell", "min_gru": CELLS / "10_min_gru.cell"}


class Parity(nn.Module):
    def __init__(self, source, width):
        super().__init__()
        # Recurrent weights from the start large enough for states that last.
        self.rnn = cellc.nn.Recurrence(source, 2, num_layers=2, d=width, init=lambda a: nn.init.uniform_(a, -2, 2))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, bits):
        y, _ = self.rnn(nn.functional.one_hot(bits, 2).float())
        return self.head(y)


@torch.no_grad()
def accuracy(model, batch, length, device):
    bits = torch.randint(0, 2, (batch, length), device=device)
    right = model(bits).argmax(-1) == bits.cumsum(1) % 2
    return right[:, length // 2 :].float().mean().item()


def main():
    given = options(__doc__.splitlines()[0], (1000, 20), width={"type": int, "default": 32})
    longest = 16 if given.quick else 100
    curves = {}
    for name, source in MODELS.items():
        torch.manual_seed(given.seed)
        model = Parity(source, given.width).to(given.device)

        def loss_of(step):
            # Few bits first: what is found for them holds for many.
            half = given.steps // 2
            length = 8 if step < half else min(longest, 8 + 2 * longest * (step - half) // half)
            bits = torch.randint(0, 2, (64, length), device=given.device)
            return nn.functional.cross_entropy(model(bits).flatten(0, 1), (bits.cumsum(1) % 2).flatten())

        curves[name], seconds = train(name, model, loss_of, given.steps, 1e-2)
        batch = 2 if given.quick else 32
        results = {f"at_{n}": f"{accuracy(model, batch, n, given.device):.1%}" for n in (100, 1000, 10000)}
        report(model=name, steps=given.steps, loss=f"{curves[name][-1]:.4f}", **results, seconds=f"{seconds:.0f}")
    draw(given.curves, curves)


if __name__ == "__main__":
    main()
