"""What the training examples share: options, a progress bar, the training loop, curves, the table of results.

Results go to stdout, one line a model; everything else to stderr.
"""

import argparse
import pathlib
import sys
import time

import torch

CELLS = pathlib.Path(__file__).resolve().parents[1] / "dsl-examples"


def options(description, steps, **more):
    """The command line that all examples have. steps: by default, and with --quick; more: further options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, help=f"of training (default: {steps[0]})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few steps of small models: does it run at all?")
    parser.add_argument("--curves", metavar="FILE.png", help="draw the losses (needs matplotlib)")
    for name, settings in more.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    given = parser.parse_args()
    given.steps = given.steps or steps[given.quick]
    torch.manual_seed(given.seed)
    return given


def progress(count, what):
    """Numbers from 0 on, with a bar where tqdm is installed. `set_postfix(loss=…)` shows how it goes."""
    try:
        from tqdm import tqdm

        return tqdm(range(count), what, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False)
    except ImportError:
        return _Plain(count, what)


class _Plain:
    def __init__(self, count, what):
        self.count, self.what, self.shown = count, what, ""

    def __iter__(self):
        for step in range(self.count):
            yield step
            if sys.stderr.isatty():
                print(f"\r{self.what}: {step + 1}/{self.count} {self.shown}   ", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def set_postfix(self, **shown):
        self.shown = " ".join(f"{name}={value}" for name, value in shown.items())


def train(what, model, loss_of, steps, rate, until=0.0):
    """Adam with a short warm-up and a cosine to almost zero. loss_of(step) makes a batch and its loss. Ends early where the
    last ten losses were below `until`. Returns all losses and the seconds that it took."""
    optimiser = torch.optim.Adam(model.parameters(), rate)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimiser,
        [
            torch.optim.lr_scheduler.LinearLR(optimiser, 0.05, 1.0, warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps - warm), rate / 20),
        ],
        [warm],
    )
    losses, begin = [], time.perf_counter()
    bar = progress(steps, what)
    for step in bar:
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 10 == 9:  # a look at losses waits for the GPU
            largest = torch.stack(losses[-10:]).max().item()
            bar.set_postfix(loss=f"{losses[-1].item():.3f}")
            if largest < until:
                break
    losses = torch.stack(losses).tolist()  # waits for the GPU, so that the time is that of the work
    return losses, time.perf_counter() - begin


def report(**columns):
    """One line of the table of results."""
    print("  ".join(f"{name}={value}" for name, value in columns.items()), flush=True)


def draw(path, curves, ylabel="loss"):
    """Losses by name as curves in a PNG."""
    if not path:
        return
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no curves", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, losses in curves.items():
        width = max(1, len(losses) // 100)  # means, or noise hides the curve
        means = [sum(losses[i : i + width]) / len(losses[i : i + width]) for i in range(0, len(losses), width)]
        axes.plot(range(0, len(losses), width), means, label=name)
    axes.set(xlabel="step", ylabel=ylabel)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
