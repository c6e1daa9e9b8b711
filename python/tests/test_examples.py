"""Every cell of every example, by names, against what the command line writes for the same arrays."""

import subprocess

import numpy as np
import pytest

import cellc
from conftest import arrays_for, cells_of_examples, ranges_of

# Lengths of axes that are not 3, because the cell wants others or to tell axes apart.
SIZES = {"d": 4, "m": 3, "k": 2, "v": 5}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path, name", cells_of_examples(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_as_on_the_command_line(path, name, program, tmp_path):
    cell = cellc.compile(path, cell=name, dtype="float64", cache=False)
    ranges = ranges_of(path)
    arrays, lengths = arrays_for(cell, 2, 9, SIZES, np.float64, ranges)
    options = {} if cell.inputs else {"length": 9}
    if not cell.inputs and not any(name in arrays for name in cell.starts):
        options["batch"] = 2
    results, finals = cell(arrays, sizes=lengths, return_final=True, **options)

    command = [program, "run", path, "--cell", name, "--dtype", "f64", "--device", "cpu", "--out", tmp_path / "out"]
    command += ["--solver", "sequential", "--batch", "2", "--length", "9"]
    for axis, length in lengths.items():
        if cell.axes[axis] is None:
            command += ["--dim", f"{axis}={length}"]
    for key, array in arrays.items():
        np.save(tmp_path / f"{key}.npy", array)
        kind = "--input" if key in cell.inputs else "--param" if key in cell.params else "--state"
        command += [kind, f"{key}={tmp_path / key}.npy"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    assert results.keys() == tuple(cell.states) + tuple(cell.outs)
    for key, array in results.items():
        expected = np.load(tmp_path / "out" / f"{key}.npy")
        assert array.shape == expected.shape
        np.testing.assert_allclose(array, expected, rtol=1e-7, atol=1e-9, err_msg=key)
        assert np.isfinite(expected).all()
    for key in cell.states:
        np.testing.assert_array_equal(finals[key], results[key][:, -1], err_msg=key)
