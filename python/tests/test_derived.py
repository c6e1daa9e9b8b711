"""Structure, Jacobian, reasons."""

import pickle

import numpy as np
import pytest

import cellc
from cellc.formulas import length_of
from conftest import cells_of_examples, example


def test_structure():
    gru = example("01_para_gru")
    assert gru.name == "para_gru" and gru.axes == {"d": None}
    assert gru.inputs == {"xz": ("d",), "xr": ("d",), "xc": ("d",)} and gru.states == {"h": ("d",)}
    assert gru.required == ("xz", "xr", "xc", "az", "ar", "ac")
    assert gru.structure.kind == "diagonal" and gru.structure.block == 1 and not gru.structure.linear
    assert gru.structure.stages[0].lanes == ["d"]
    assert repr(gru.structure) == "stage 1 {h} diagonal, N = 1, nonlinear, lanes d"
    assert repr(gru).startswith("cell para_gru[d]\n  states  h[d]\n  inputs  xz[d], xr[d], xc[d]\n")


def test_lengths_of_histories():
    for formula, length in ((3, 3), ("lambda", 5), ("d - 1", 3), ("max(7, d + 1)", 7), ("max(d + 1, lambda - 2)", 5)):
        assert length_of(formula, {"d": 4, "lambda": 5}) == length
    text = "cell c[lambda] { state h\n input x\n param k[lambda]\n h' = 0.5*h + k@lag[lambda](x) + lag(x, 2) }"
    cell = cellc.compile(text, cache=False)
    for taps in (1, 2, 5):
        final = cell(x=np.zeros(6), k=np.zeros(taps), return_final=True)[1]
        assert final.x_lag.shape == (length_of(cell.lags["x_lag"], {"lambda": taps}),)


def test_reasons():
    text = example("04_lstm").explain()
    lines = text.splitlines()
    at = lines.index("line 17: dense: mixes the entries of c and h along d")
    assert lines[at + 1].strip().startswith("h' =")
    assert lines[at + 2].index("^") == lines[at + 1].index("Uo@h")
    assert repr(text) == str(text)


def test_jacobian_text_and_latex():
    jacobian = example("04_lstm").jacobian
    assert [(block.row, block.col) for block in jacobian] == [("c", "c"), ("c", "h"), ("h", "c"), ("h", "h")]
    assert jacobian["c", "c"].text == "sigmoid(Wf@x + Uf@h + bf)"
    assert jacobian.text.splitlines()[0] == "∂c'/∂c = sigmoid(Wf@x + Uf@h + bf)"
    assert "\\frac{\\partial c^{(t)}}{\\partial h^{(t-1)}}" in jacobian.latex
    assert jacobian.latex.count("\\begin{") == jacobian.latex.count("\\end{") == 1
    assert jacobian._repr_latex_().startswith("$") and example("04_lstm")._repr_latex_().endswith("$")
    with pytest.raises(KeyError):
        jacobian["h", "x"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path, name", cells_of_examples(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_every_cell_has_them(path, name):
    pytest.importorskip("sympy")
    cell = cellc.compile(path, cell=name, cache=False)
    assert name in repr(cell) and cell.explain()
    for block in cell.jacobian:
        assert block.sympy() is not None


def test_jacobian_as_sympy():
    sympy = pytest.importorskip("sympy")
    gru = example("01_para_gru")
    h, xz, xr, xc, az, ar, ac = sympy.symbols("h xz xr xc az ar ac", real=True)

    def sigmoid(v):
        return 1 / (1 + sympy.exp(-v))

    z, r = sigmoid(az * h + xz), sigmoid(ar * h + xr)
    step = (1 - z) * h + z * sympy.tanh(ac * r * h + xc)
    values = dict(zip((h, xz, xr, xc, az, ar, ac), (0.3, -0.2, 0.7, 0.1, 0.9, -0.4, 0.6)))
    difference = gru.jacobian.sympy()[0, 0] - sympy.diff(step, h)
    assert abs(difference.subs(values)) < 1e-12


def test_results_are_tuples_with_names():
    leak = cellc.compile("cell leak { state h\n input x\n h' = 0.5*h + x\n out y = h }", cache=False)
    y = leak(x=np.ones(3, np.float32))
    assert isinstance(y, tuple) and len(y) == 2 and y[0] is y.h and y["y"] is y.y and y[1] is y.y
    assert repr(y) == "Results(h: float32[3], y: float32[3])"
    assert dict(**y).keys() == {"h", "y"} and y._asdict().keys() == {"h", "y"}
    with pytest.raises(KeyError, match="there is h, y"):
        y["g"]
    with pytest.raises(TypeError, match="name one"):
        np.asarray(y)
    copy = pickle.loads(pickle.dumps(y))
    np.testing.assert_array_equal(copy.h, y.h)
    assert y.report.converged and y.report.run_ms >= 0
