#!/usr/bin/env python3
"""Synthetic tasks of memory, those of ParaRNN's table: multi-query recall, k hops, keep the n-th.

    python examples/tasks.py --task recall|hops|keep --cell para_gru|para_lstm|min_gru

Without options all tasks with all cells. Two layers of a cell with residuals, each after a short causal convolution,
as such models have it. The tasks (data are made as training goes on, so that none is seen twice):

recall  pairs of a key and its value, then keys again in any order: which value did each have? (Arora et al. 2023, MQAR)
hops    a text of letters; from each step go back to the last place where its letter stood, take the one after it, and
        do the same with that, k times: which letter is it?
keep    a text, then nothing; n is told at the first step: what was the n-th letter?
"""

import torch
from torch import nn
from training import CELLS, draw, options, report, train

import cellc.nn

FILES = {"para_gru": "01_para_gru.cell", "para_lstm": "02_para_lstm.cell", "min_gru": "10_min_gru.cell"}
MODELS = {name: CELLS / file for name, file in FILES.items()}
NOTHING = -100  # no answer here: what cross_entropy leaves out


def recall(batch, given):
    """[keys and values, then keys]: inputs and answers."""
    pairs, letters = given.pairs, given.letters
    keys = torch.rand(batch, letters, device=given.device).argsort(1)[:, :pairs]
    values = torch.randint(0, letters, keys.shape, device=given.device)
    asked = torch.rand(batch, pairs, device=given.device).argsort(1)
    told = torch.stack([keys, letters + values], 2).flatten(1)
    answers = torch.cat([torch.full_like(told, NOTHING), values.gather(1, asked)], 1)
    return torch.cat([told, keys.gather(1, asked)], 1), answers


def hops(batch, given):
    """Letters; the answer at each step is where k hops lead. None where one leads nowhere."""
    letters, length = given.letters // 2, given.length
    # No letter follows itself: from there a hop would lead nowhere new.
    text = torch.randint(1, letters, (batch, length), device=given.device).cumsum(1) % letters
    at = torch.arange(length, device=given.device)
    # before[b, t]: the last place before t with the same letter, or -1.
    same = (text[:, :, None] == text[:, None, :]) & (at[None, :, None] > at[None, None, :])
    before = torch.where(same, at, -1).amax(2)
    place = at.expand(batch, -1)
    for _ in range(given.k):
        back = before.gather(1, place.clamp(min=0))
        place = torch.where((place >= 0) & (back >= 0), back + 1, -1)
    answers = torch.where(place >= 0, text.gather(1, place.clamp(min=0)), NOTHING)
    return text, answers


def keep(batch, given):
    """n, then letters, then nothing up to the end, where the n-th is asked for."""
    letters, count = given.letters, given.length // 2
    n = torch.randint(0, count, (batch, 1), device=given.device)
    text = torch.randint(0, letters, (batch, count), device=given.device)
    silence = torch.full((batch, given.length - count), 2 * letters, device=given.device)
    inputs = torch.cat([2 * letters + 1 + n, text, silence], 1)
    answers = torch.full_like(inputs, NOTHING)
    answers[:, -1:] = text.gather(1, n)
    return inputs, answers


TASKS = {"recall": recall, "hops": hops, "keep": keep}


class Block(nn.Module):
    """x + mixed(x): normalise, look at the last four steps, run the cell, gate."""

    def __init__(self, source, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.look = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.rnn = cellc.nn.Recurrence(source, input_size=width, d=width)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        normed = self.norm(x)
        seen = self.look(normed.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        y, _ = self.rnn(nn.functional.silu(seen))
        return x + self.out(y * nn.functional.silu(self.gate(normed)))


class Model(nn.Module):
    def __init__(self, source, symbols, letters, width, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.blocks = nn.Sequential(*(Block(source, width) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, letters))

    def forward(self, text):
        return self.head(self.blocks(self.embedding(text)))


def main():
    given = options(
        __doc__.splitlines()[0],
        (2000, 10),
        task={"choices": list(TASKS)},
        cell={"choices": list(MODELS)},
        width={"type": int, "default": 64},
        batch={"type": int, "default": 64},
        letters={"type": int, "default": 16},
        pairs={"type": int, "default": 4, "help": "of recall"},
        k={"type": int, "default": 2, "help": "of hops"},
        length={"type": int, "default": 32, "help": "of hops and keep"},
    )
    curves = {}
    for task in [given.task] if given.task else TASKS:
        for name in [given.cell] if given.cell else MODELS:
            torch.manual_seed(given.seed)
            symbols = 2 * given.letters + 1 + given.length
            model = Model(MODELS[name], symbols, given.letters, given.width).to(given.device)

            def loss_of(_):
                inputs, answers = TASKS[task](given.batch, given)
                return nn.functional.cross_entropy(model(inputs).flatten(0, 1), answers.flatten(), ignore_index=NOTHING)

            label = f"{task}/{name}"
            curves[label], seconds = train(label, model, loss_of, given.steps, 3e-3)
            with torch.no_grad():
                inputs, answers = TASKS[task](512, given)
                asked = answers != NOTHING
                right = (model(inputs).argmax(-1) == answers)[asked].float().mean().item()
            report(task=task, model=name, steps=given.steps, right=f"{right:.1%}", seconds=f"{seconds:.0f}")
    draw(given.curves, curves)


if __name__ == "__main__":
    main()
