"""What is wrong is said: by which class, of which argument, at which place of the text."""

import os

import numpy as np
import pytest

import cellc
from conftest import EXAMPLES, example

SHAPE = (2, 6, 3)


@pytest.fixture(scope="module")
def gru():
    return example("01_para_gru")


@pytest.fixture
def arrays():
    arrays = {name: np.zeros(SHAPE, np.float32) for name in ("xz", "xr", "xc")}
    return {**arrays, **{name: np.zeros(3, np.float32) for name in ("az", "ar", "ac")}}


@pytest.mark.parametrize(
    "change, kind, argument, text",
    [
        ({"az": None}, cellc.ArgumentError, "az", "missing: 'az'"),
        ({"Az": 1.0}, cellc.ArgumentError, "Az", "no argument 'Az'; there is xz, xr, xc, az, ar, ac, h"),
        ({"xr": np.zeros((2, 5, 3), "f4")}, cellc.ShapeError, "xr", "has shape (2, 5, 3), so T = 5; argument 'xz' has T = 6"),
        ({"xr": np.zeros((3, 6, 3), "f4")}, cellc.ShapeError, "xr", "so B = 3; argument 'xz' has B = 2"),
        ({"xr": np.zeros((2, 6, 4), "f4")}, cellc.ShapeError, "xr", "so d = 4; argument 'xz' has d = 3"),
        ({"xz": np.zeros((2, 2, 6, 3), "f4")}, cellc.ShapeError, "xz", "has shape (2, 2, 6, 3); expected [B, T, d] or [T, d]"),
        ({"ac": np.zeros((1, 3), "f4")}, cellc.ShapeError, "ac", "has shape (1, 3); expected [d]"),
        ({"h": np.zeros((3, 3), "f4")}, cellc.ShapeError, "h", "so B = 3"),
        ({"h": np.zeros((2, 3), "f8")}, cellc.DTypeError, "h", "is float64; expected float32"),
        ({"az": np.zeros(3, "i4")}, cellc.DTypeError, "az", "is int32; expected float32"),
        ({"az": np.zeros(3, ">f4")}, cellc.DTypeError, "az", "is >f4; expected float32"),
        ({"az": np.zeros(3, "c8")}, cellc.DTypeError, "az", "is complex64; expected float32"),
        ({"az": "none"}, cellc.DTypeError, "az", "expected an array, a number or a list of numbers"),
        ({"az": object()}, cellc.DTypeError, "az", "expected an array, a number or a list of numbers"),
        ({"offsets": [0, 4, 3]}, cellc.ShapeError, "offsets", "3 comes after 4"),
        ({"offsets": [1, 4]}, cellc.ShapeError, "offsets", "the first is 0"),
        ({"offsets": [0, 1.5]}, cellc.DTypeError, "offsets", "whole number"),
        ({"offsets": 3}, cellc.DTypeError, "offsets", "whole numbers"),
        ({"length": 7}, cellc.ShapeError, "xz", "so T = 6; length has T = 7"),
        ({"batch": -1}, cellc.ShapeError, "batch", "expected 0 or more"),
        ({"sizes": {"d": 4}}, cellc.ShapeError, "xz", "so d = 3; sizes has d = 4"),
        ({"sizes": {"e": 4}}, cellc.ArgumentError, "sizes", "no axis e"),
        ({"length": np.zeros(3, "f4")}, cellc.DTypeError, "length", "'length': expected a whole number"),
        ({"length": 6.0}, cellc.DTypeError, "length", "expected a whole number"),
        ({"length": "6"}, cellc.DTypeError, "length", "expected a whole number"),
        ({"length": 2**70}, cellc.DTypeError, "length", "a whole number of at most 64 bits"),
        ({"batch": "2"}, cellc.DTypeError, "batch", "expected a whole number"),
        ({"reverse": "no"}, cellc.DTypeError, "reverse", "expected True or False"),
        ({"sizes": [("d", 3)]}, cellc.DTypeError, "sizes", "expected a mapping"),
        ({"sizes": {"d": "3"}}, cellc.DTypeError, "sizes", "expected a whole number"),
        ({"sizes": {3: 3}}, cellc.ArgumentError, "sizes", "no axis 3"),
        ({"write": ["g"]}, cellc.ArgumentError, "write", "no state or out 'g'"),
        ({"write": 3}, cellc.ArgumentError, "write", "expected names, not int"),
    ],
)
def test_arguments(gru, arrays, change, kind, argument, text):
    with pytest.raises(kind) as caught:
        gru(**{**arrays, **change})
    assert caught.value.argument == argument
    assert text in str(caught.value)
    assert isinstance(caught.value, cellc.Error)


def test_arrays_without_names(gru, arrays):
    x = arrays["xz"]
    for argument, call in {
        "arrays": lambda: gru(x),
        "cotangents": lambda: gru.grad(x, arrays),
        "final": lambda: gru.vjp(arrays)[1](final=x),
        "tangents": lambda: gru.jvp([x], arrays),
    }.items():
        with pytest.raises(cellc.ArgumentError, match=f"^{argument}: arrays are given by name") as caught:
            call()
        assert caught.value.argument == argument
    with pytest.raises(cellc.ArgumentError, match="arrays are given by name"):
        gru.vjp(x)
    with pytest.raises(cellc.ArgumentError, match="wrt: expected names, not int"):
        gru.vjp(arrays, wrt=3)


def test_arrays_that_are_called_as_options():
    cell = cellc.compile("cell c { state h\n input length\n h' = 0.5*h + length }", cache=False)
    with pytest.raises(cellc.DTypeError, match=r"goes in a mapping: cell\(\{'length': …\}\)"):
        cell(length=np.ones(3, np.float32))
    assert cell({"length": np.ones(3, np.float32)}).h.shape == (3,)


def test_kinds_of_python():
    assert issubclass(cellc.ArgumentError, TypeError) and issubclass(cellc.DTypeError, TypeError)
    assert issubclass(cellc.ShapeError, ValueError) and issubclass(cellc.CellError, ValueError)
    assert issubclass(cellc.DeviceError, RuntimeError)


def test_a_fixed_dtype_is_kept(arrays):
    gru = cellc.compile(EXAMPLES / "01_para_gru.cell", dtype=np.float64, cache=False)
    with pytest.raises(cellc.DTypeError, match="'xz' is float32; expected float64"):
        gru(**arrays)


def test_fixed_axes():
    cell = cellc.compile("cell c[n=2] { state h[n]\n input x[n]\n h' = 0.5*h + x }", cache=False)
    assert cell.axes == {"n": 2}
    with pytest.raises(cellc.ShapeError, match="so n = 3; the cell has n = 2"):
        cell(x=np.zeros((4, 3), np.float32))


def test_lengths_that_nothing_says():
    cell = cellc.compile("cell c[d] { state h[d] = 1\n h' = 0.5*h }", cache=False)
    with pytest.raises(cellc.ArgumentError, match="length="):
        cell(sizes={"d": 2})
    with pytest.raises(cellc.ArgumentError, match=r"axis d is not known: give sizes=\{'d': …\}, or .*\('h'\)"):
        cell(length=3)
    assert cell(length=3, sizes={"d": 2}).h.shape == (3, 2)


def test_a_wrong_cell():
    with pytest.raises(cellc.CellError) as caught:
        cellc.compile("cell a[d] {\n  state h[d]\n  h' = 3*k\n}\n")
    assert (caught.value.line, caught.value.column) == (3, 10)
    assert "unknown name 'k'" in str(caught.value) and "  h' = 3*k\n           ^" in str(caught.value)


def test_a_wrong_file(tmp_path):
    path = tmp_path / "my.cell"
    path.write_text("cell a {\n  state h\n")
    with pytest.raises(cellc.CellError, match="my.cell:1:8: error"):
        cellc.compile(path)
    with pytest.raises(FileNotFoundError):
        cellc.compile(tmp_path / "none.cell")
    with pytest.raises(IsADirectoryError):
        cellc.compile(tmp_path)
    with pytest.raises(cellc.ArgumentError):
        cellc.compile(3)


def test_a_closed_file(tmp_path):
    path = tmp_path / "closed.cell"
    path.write_text("cell a { state h\n h' = h }")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # who reads everything
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError) as caught:
            cellc.compile(path)
    finally:
        os.seteuid(user)
    assert caught.value.filename == str(path)


def test_gradient_of_an_integer(gru, arrays):
    with pytest.raises(cellc.DTypeError, match="'az' is int64; expected float32") as caught:
        gru.vjp({**arrays, "az": np.zeros(3, int)})
    assert caught.value.argument == "az"
    with pytest.raises(cellc.DTypeError, match="tangent 'az'") as caught:
        gru.jvp({"az": np.zeros(3, int)}, arrays)
    assert caught.value.argument == "az"


@pytest.mark.parametrize(
    "options, text",
    [
        ({"solver": "magic"}, "solver 'magic': expected auto"),
        ({"dtype": "int8"}, "dtype 'int8': expected float32"),
        ({"tolerance": -1}, "tolerance -1: expected a number from 0 on"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"tolerance": float("inf")}, "tolerance"),
        ({"threads": -1}, "threads -1: expected a number from 0 on"),
        ({"threads": "2"}, "threads '2': expected a whole number"),
        ({"threads": 2**40}, "threads 1099511627776: expected"),
        ({"max_iterations": 2.5}, "max_iterations 2.5: expected a whole number"),
        ({"max_iterations": 0}, "max_iterations 0: expected a number from 1 on"),
        ({"tolerance": "x"}, "tolerance 'x': expected a number from 0 on"),
        ({"solver": 3}, "solver 3: expected a name"),
        ({"products": b"f32"}, "products b'f32': expected a name"),
        ({"repair": "no"}, "repair 'no': expected True or False"),
        ({"deterministic": 1}, "deterministic 1: expected True or False"),
        ({"cache": 3}, "cache 3: expected True, False or a directory"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"device": 3}, "device '3'"),
        ({"cpu": "z80"}, "z80"),
        ({"cell": "other"}, "other"),
    ],
)
def test_options(options, text):
    with pytest.raises((cellc.OptionError, cellc.DeviceError), match=text):
        cellc.compile(EXAMPLES / "01_para_gru.cell", **{"cache": False, **options})


def test_several_cells():
    with pytest.raises(cellc.OptionError, match="lorenz_euler, lorenz_rk4"):
        cellc.compile(EXAMPLES / "35_lorenz.cell")


def test_no_gpu():
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is one")
    with pytest.raises(cellc.DeviceError, match="libcuda"):
        cellc.compile(EXAMPLES / "01_para_gru.cell", device="cuda")


def chaos(**options):
    text = "cell c[d] { state h[d]\n input x[d]\n h' = 4*h*(1 - h) + 0*x }"
    return cellc.compile(text, solver="newton", max_iterations=2, dtype="f64", cache=False, **options)


def test_what_does_not_converge_is_said():
    with pytest.warns(cellc.ConvergenceWarning, match="1 sequences have not converged"):
        y = chaos(repair=False)(x=np.zeros((1, 300, 2)), h=0.3)
    assert not y.report.converged and y.report.unconverged == 1


def test_what_does_not_converge_has_no_derivatives():
    cell, x = chaos(repair=False), np.zeros((2, 300, 2))
    why = "the run did not converge, so there are no {}: 2 sequences .* residual .* leave out repair=False, or give .* max_iterations"
    with pytest.warns(cellc.ConvergenceWarning) as told:
        y, pullback = cell.vjp(x=x, h=0.3, return_final=True)
        with pytest.raises(cellc.ConvergenceError, match=why.format("gradients")):
            pullback(h=x)
        with pytest.raises(cellc.ConvergenceError, match=why.format("gradients")):
            cell.grad({"h": x}, x=x, h=0.3)
        with pytest.raises(cellc.ConvergenceError, match=why.format("tangents")):
            cell.jvp({"x": x}, x=x, h=0.3)
    assert [warning.filename for warning in told] == [__file__] * 3
    assert issubclass(cellc.ConvergenceError, RuntimeError)
    start = np.zeros((2, 2))  # a fixed point: there it converges
    assert np.isfinite(cell.grad({"h": x + 1}, x=x, h=start).x).all()
    assert chaos().vjp(x=x, h=0.3)[1](h=x).x.shape == x.shape  # repaired
