#!/usr/bin/env python3
"""Remember the first token: the long-memory task of Martin and Cundy 2018, with GILR-LSTM (arXiv 1709.04057).

    python examples/first_token.py --lengths 1024 8192 1048576

A sequence begins with one of two symbols and goes on with noise: which of the two was it, after thousands of steps, or a
million? A model of each length is trained at that length from its start. It takes a run that is parallel in time (step by
step, a million steps would take minutes), and gates that begin where they are of use at all:

- forget gates stay open for as long as the sequence may be (Tallec and Ollivier 2018 have them so);
- input gates are narrow: of the symbols, each channel hears one well, and of the others less than what would add up to
  as much over the length. Were they wide, the first symbol would be one in a million that all count the same.
"""

import math

import torch
from torch import nn
from training import CELLS, draw, options, report, train

import cellc.nn

NOISE = 6  # symbols of noise


class Memory(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.rnn = cellc.nn.Recurrence(CELLS / "09_gilr_lstm.cell", input_size=2 + NOISE, d=width)
        self.head = nn.Linear(width, 2)
        projection = self.rnn.layers[0].projection
        names = list(self.rnn.cell.inputs)  # in the order in which the projection has them
        weights, biases = (dict(zip(names, p.detach().chunk(len(names)))) for p in (projection.weight, projection.bias))
        biases["uf"].uniform_(math.log(length), math.log(8 * length))
        weights["ui"].normal_(0, math.log(length))
        biases["ui"].copy_(2 - weights["ui"].amax(1))

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.head(y[:, -1])


def sequences(batch, length, device):
    """[batch, length, symbols], one-hot, and which symbol came first."""
    first = torch.randint(0, 2, (batch,), device=device)
    text = torch.randint(2, 2 + NOISE, (batch, length), device=device)
    text[:, 0] = first
    return nn.functional.one_hot(text, 2 + NOISE).float(), first


def main():
    given = options(
        __doc__.splitlines()[0],
        (200, 5),
        lengths={"type": int, "nargs": "+", "help": "of sequences"},
        width={"type": int, "default": 32},
        batch={"type": int, "default": 16, "help": "sequences; of a million steps half as many, for their memory"},
    )
    curves = {}
    for length in given.lengths or ([64] if given.quick else [1024, 8192, 1048576]):
        torch.manual_seed(given.seed)
        model = Memory(given.width, length).to(given.device)
        batch = max(1, min(given.batch, (1 << 23) // length))

        def loss_of(_):
            x, first = sequences(batch, length, given.device)
            return nn.functional.cross_entropy(model(x), first)

        losses, seconds = train(f"{length}", model, loss_of, given.steps, 3e-2, until=0.1)
        curves[f"{length} steps"] = losses
        with torch.no_grad():
            fresh = (sequences(batch, length, given.device) for _ in range(8))
            right = torch.cat([model(x).argmax(-1) == first for x, first in fresh]).float().mean().item()
        report(length=length, batch=batch, steps=len(losses), loss=f"{losses[-1]:.4f}", right=f"{right:.1%}",
               seconds=f"{seconds:.0f}")  # fmt: skip
    draw(given.curves, curves)


if __name__ == "__main__":
    main()
