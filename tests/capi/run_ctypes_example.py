"""examples/cellc_ctypes.py on every cell of a file: forward and backward, on arrays with drawn strides, against the
arrays that the command writes. Arguments: the file, the program cellc. Prints how many cells there were."""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import cellc_ctypes as binding

LENGTHS = {"d": 4, "m": 3, "k": 2, "v": 5}
SEQUENCES, STEPS = 2, 6
random = np.random.default_rng(7)


def strided(shape, fill=None):
    """An array of drawn layout: axes permuted, turned round and spread; of odd bytes, now and then."""
    shape, order = tuple(shape), random.permutation(len(shape))
    outer = [shape[axis] * 2 for axis in order]
    if random.random() < 0.2:
        whole = np.zeros(outer, np.dtype([("before", "u1"), ("value", "f8")]))["value"]
    else:
        whole = np.zeros(outer)
    steps = [slice(None, None, 2) if random.random() < 0.5 else slice(None, None, -2) for _ in order]
    array = whole[tuple(steps)].transpose(np.argsort(order)) if order.size else whole
    if fill is not None:
        array[...] = fill
    assert array.shape == shape
    return array


def repeated(array):
    """The same shape, but along a drawn axis all one: a stride of 0."""
    if array.ndim == 0 or random.random() < 0.6:
        return array
    axis = int(random.integers(array.ndim))
    first = np.take(array, [0], axis)
    return np.broadcast_to(first, array.shape)


def lengths_of(cell, info):
    lengths = [LENGTHS.get(cell.axes[a][0], 3) if cell.axes[a][1] < 0 else cell.axes[a][1]
               for a in info.axes[: info.axis_count]]
    return [[SEQUENCES, STEPS], [SEQUENCES], None, []][info.layout] + lengths


def draw(cell, ranges):
    """Arrays for what the cell requires and, now and then, for what it does not."""
    arrays = {}
    for info in cell.arrays[binding.FORWARD]:
        name = info.name.decode()
        if info.written or info.layout == 2 or not (info.required or random.random() < 0.5):
            continue
        low, high = ranges.get(info.owner.decode(), (max(info.low, -0.7), min(info.high, 0.7)))
        shape = lengths_of(cell, info)
        arrays[name] = repeated(strided(shape, random.uniform(low, high, shape)))
    return arrays


def command(program, path, name, folder, cell, arrays, cotangents):
    """What `cellc run` writes, under the names of a call."""
    line = [program, "run", path, "--cell", name, "--dtype", "f64", "--device", "cpu", "--solver", "sequential",
            "--threads", "1", "--out", folder / "out", "--cache-dir", folder / "cache"]
    line += ["--batch", SEQUENCES, "--length", STEPS]
    kinds = {0: "--input", 1: "--param", 4: "--state"}
    for axis, length in cell.axes:
        line += ["--dim", f"{axis}={LENGTHS.get(axis, 3)}"] if length < 0 else []
    for info in cell.arrays[binding.FORWARD]:
        key = info.name.decode()
        if key in arrays:
            np.save(folder / f"{key}.npy", np.ascontiguousarray(arrays[key]).reshape(arrays[key].shape))
            line += [kinds[info.role], f"{info.owner.decode()}={folder / key}.npy"]
    for key, array in cotangents.items():
        np.save(folder / f"cotangent.{key}.npy", np.ascontiguousarray(array))
        line += ["--cotangent", f"{key}={folder}/cotangent.{key}.npy"]
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {file.stem: np.load(file) for file in (folder / "out").glob("*.npy")}


def close(found, expected, what):
    scale = np.abs(expected).max(initial=0) + 1e-6
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    assert np.isfinite(expected).all(), what
    assert np.abs(found - expected).max(initial=0) <= 1e-8 * scale, (what, found, expected)


def try_cell(program, path, name, ranges):
    text = path.read_text()
    cell = binding.Cell(text, cell=name, dtype=np.float64, solver="sequential", threads=1)
    arrays = draw(cell, ranges)
    sizes = {"sequences": SEQUENCES, "steps": STEPS,
             "lengths": {axis: LENGTHS.get(axis, 3) for axis, length in cell.axes if length < 0}}
    own = [info for info in cell.arrays[binding.FORWARD] if info.written and info.layout != 2 and random.random() < 0.5]
    out = {info.name.decode(): strided(lengths_of(cell, info)) for info in own}
    results = cell.forward(arrays, out=out, **sizes)
    assert all(results[key] is array for key, array in out.items())
    cotangents = {key: strided(array.shape, random.uniform(-1, 1, array.shape)) for key, array in results.items()
                  if ".lag" not in key and random.random() < 0.7}
    if not cotangents:
        key = next(key for key in results if ".lag" not in key)
        cotangents = {key: np.ones(results[key].shape)}
    gradients = cell.backward({**arrays, **results}, cotangents, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        written = command(program, path, name, pathlib.Path(folder), cell, arrays, cotangents)
    for key, array in results.items():
        key = key.removesuffix(".final") if key.endswith(".lag.final") else key
        close(array, written[key], f"{name} {key}")
    compared = 0
    for key, array in gradients.items():
        file = "grad." + (key.removesuffix(".start") + ".initial" if key.endswith(".start") else key)
        if file in written:
            close(array, written[file], f"{name} {file}")
            compared += 1
    assert compared == sum(file.startswith("grad.") for file in written) > 0, (gradients.keys(), written.keys())


def refused(call, word):
    try:
        call()
    except binding.CellcError as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{word}: nothing was refused")


def try_mistakes():
    """Names that there are not, memory that is not to be written, and arrays that are not the call's: never silence."""
    cell = binding.Cell("cell c[d] {\n  state h[d] = 2*a\n  input x[d]\n  param a[d], b = 1\n  h' = a*h + b*x\n}\n",
                        dtype=np.float64)
    x, a, ones = np.ones((2, 3, 4)), np.full(4, 0.5), np.ones((2, 3, 4))
    good = {"x": x, "a": a}
    results = cell.forward(good)
    refused(lambda: cell.forward({**good, "B": 3.0}), "no array B")
    refused(lambda: cell.forward({**good, "h": ones}), "no array h to be read")
    refused(lambda: cell.forward(good, out={"x": ones}), "no array x")
    refused(lambda: cell.forward({"x": x}), "array a")
    refused(lambda: cell.forward({**good, "a": a[:3]}), "array a")
    refused(lambda: cell.forward(good, out={"h": np.broadcast_to(0.0, (2, 3, 4))}), "read-only")
    refused(lambda: cell.forward(good, out={"h": np.zeros((2, 3, 5))}), "array h")
    refused(lambda: cell.backward({**good, **results}, {"y": ones}), "no array cotangent.y")
    refused(lambda: cell.backward({**good, **results, "B": a}, {"h": ones}), "no array B")
    refused(lambda: cell.backward({**good, **results}, {"h": ones}, out={"y": a}), "no array gradient.y")
    narrow = np.zeros((), np.float32)  # of another dtype, and without axes
    gradients = cell.backward({**good, **results}, {"h": ones}, out={"b": narrow})
    close(np.array(float(narrow)), np.array(float(cell.backward({**good, **results}, {"h": ones})["b"])), "b")
    assert gradients["b"] is narrow
    # Params of each sequence, whose axis tells a length.
    own = cell.forward({"x": x, "a": np.stack([a, a])})
    close(own["h"], results["h"], "params of each sequence")


def main(path, program):
    try_mistakes()
    path = pathlib.Path(path)
    text = path.read_text()
    found = re.findall(r"^# data: (\w+) in \(([-\d.e]+), ([-\d.e]+)\)", text, re.MULTILINE)
    ranges = {name: (float(low), float(high)) for name, low, high in found}
    names = re.findall(r"^cell\s+(\w+)", text, re.MULTILINE)
    for name in names:
        try_cell(program, path, name, ranges)
    print(len(names))


main(*sys.argv[1:])
