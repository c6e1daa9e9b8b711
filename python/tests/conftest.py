"""What the tests share: the examples of the tree, and data that fit a cell."""

import os
import pathlib
import re

# Threads of torch that wait for each other by spinning take the time of all other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

import cellc

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "dsl-examples"


def example(stem):
    return cellc.compile(EXAMPLES / f"{stem}.cell", cache=False)


def cells_of_examples():
    """(path, name) of every cell of every example."""
    found = []
    for path in sorted(EXAMPLES.glob("*.cell")):
        names = re.findall(r"^cell\s+(\w+)", path.read_text(), re.MULTILINE)
        found += [(path, name) for name in names]
    return found


def ranges_of(path):
    """Ranges that the example says its data are to come from: name -> (low, high)."""
    lines = re.findall(r"^# data: (\w+) in \(([-\d.e]+), ([-\d.e]+)\)", path.read_text(), re.MULTILINE)
    return {name: (float(low), float(high)) for name, low, high in lines}


def arrays_for(cell, batch, length, sizes, dtype, ranges=None, seed=0):
    """Random arrays by name for all that a cell reads but histories."""
    random = np.random.default_rng(seed)
    declared = {d["name"]: d.get("range") for d in cell.data["declarations"]}
    lengths = {axis: fixed or sizes.get(axis, 3) for axis, fixed in cell.axes.items()}

    def draw(name, shape):
        low, high = (ranges or {}).get(name) or declared.get(name) or (-0.7, 0.7)
        low, high = (-1e3 if low is None else low), (1e3 if high is None else high)
        return random.uniform(max(low, -50), min(high, 50), shape).astype(dtype)

    arrays = {}
    for name, axes in cell.inputs.items():
        arrays[name] = draw(name, (batch, length, *(lengths[a] for a in axes)))
    for name, axes in cell.params.items():
        if name in cell.required:
            arrays[name] = draw(name, tuple(lengths[a] for a in axes))
    for name, axes in cell.starts.items():
        if name in (ranges or {}):
            arrays[name] = draw(name, (batch, *(lengths[a] for a in axes)))
    return arrays, lengths


def pytest_configure(config):
    config.addinivalue_line("markers", "one_in(n): a run makes every n-th of these; CELLC_TEST_SEED says which")


def pytest_collection_modifyitems(config, items):
    """As tests/README.md has it: a part of what takes long, which the seed decides; without a seed everything."""
    seed = os.environ.get("CELLC_TEST_SEED", "")
    counts, kept, left = {}, [], []
    for item in items:
        marker = item.get_closest_marker("one_in")
        number = counts[item.function] = counts.get(item.function, -1) + 1
        mine = not seed or not marker or number % marker.args[0] == int(seed) % marker.args[0]
        (kept if mine else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session")
def program():
    path = pathlib.Path(os.environ.get("CELLC_PROGRAM") or ROOT / "build" / "cellc")
    if not path.exists():
        pytest.skip(f"there is no program {path} to compare with: build the target cellc, or set CELLC_PROGRAM")
    return path


def para_gru_loop(xz, xr, xc, az, ar, ac, h=0.0):
    """The equations of ParaGRU, one step after another, in f64: [B, T, d]."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    xz, xr, xc, az, ar, ac, h = (np.asarray(v, np.float64) for v in (xz, xr, xc, az, ar, ac, h))
    steps = []
    for t in range(xz.shape[1]):
        z = sigmoid(az * h + xz[:, t])
        r = sigmoid(ar * h + xr[:, t])
        c = np.tanh(ac * (r * h) + xc[:, t])
        h = (1 - z) * h + z * c
        steps.append(h + np.zeros(xz[:, t].shape))
    return np.stack(steps, 1) if steps else np.zeros(xz.shape)
