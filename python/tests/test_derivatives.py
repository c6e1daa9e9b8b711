"""Gradients and tangents of calls: against central differences of the calls themselves, and against each other."""

import numpy as np
import pytest

import cellc
from conftest import arrays_for, cells_of_examples, example, ranges_of

LEAK = "cell leak[d] { state h[d]\n input x[d]\n param a[d]\n h' = a*h + x\n out y = 2*h' }"

@pytest.fixture(scope="module")
def gru():
    return example("01_para_gru")


def directions(arrays, seed=1):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=array.shape) for name, array in arrays.items()}


def inner(a, b):
    return sum(float((a[name] * b[name]).sum()) for name in a)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path, name", cells_of_examples(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_every_example(path, name):
    cell = cellc.compile(path, cell=name, dtype="float64", cache=False)
    sizes = {"d": 3, "m": 2, "k": 2, "v": 3}
    arrays, sizes = arrays_for(cell, 2, 6, sizes, np.float64, ranges_of(path))
    for state, axes in cell.starts.items():
        arrays.setdefault(state, np.full((2, *(sizes[a] for a in axes)), 0.3))
    if not arrays:
        pytest.skip("reads nothing")
    lengths = {} if cell.inputs else {"length": 6}
    y, pullback = cell.vjp(arrays, sizes=sizes, **lengths)
    cotangents, tangents = directions(y._asdict()), directions(arrays)
    gradients = pullback(cotangents)
    for key, gradient in gradients.items():
        assert gradient.shape == arrays[key].shape, key
    again, moved = cell.jvp(tangents, arrays, sizes=sizes, **lengths)
    np.testing.assert_array_equal(again[0], y[0])
    scale = 1 + sum(np.abs(gradients[key] * tangents[key]).sum() for key in arrays)
    assert abs(inner(cotangents, moved._asdict()) - inner(gradients._asdict(), tangents)) <= 1e-10 * scale
    if "derivative" in cell.source:
        return  # slopes are declared, and no differences

    def loss(step):
        there = {key: array + step * tangents[key] for key, array in arrays.items()}
        return inner(cotangents, cell(there, sizes=sizes, **lengths)._asdict())

    step = 1e-6
    difference = (loss(step) - loss(-step)) / (2 * step)
    # A kink within the step is seen by a difference that the halves do not share.
    one_sided = (loss(step) - loss(0)) / step
    if abs(one_sided - difference) > 1e-3 * scale:
        pytest.skip("a kink lies on the way")
    assert abs(difference - inner(gradients._asdict(), tangents)) <= 3e-7 * scale


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"offsets": [0, 4, 4, 11]}])
def test_finals_and_starts(gru, options):
    arrays, _ = arrays_for(gru, 1 if "offsets" in options else 3, 11, {"d": 5}, np.float64)
    if "offsets" in options:
        arrays = {name: array[0] if name in gru.inputs else array for name, array in arrays.items()}
    arrays["h"] = np.full((3, 5), 0.2)
    (y, final), pullback = gru.vjp(arrays, return_final=True, **options)
    rows, last = directions(y._asdict()), directions(final._asdict(), 2)
    gradients = pullback(rows, final=last)
    tangents = directions(arrays, 3)
    _, (moved, last_moved) = gru.jvp(tangents, arrays, return_final=True, **options)
    assert gradients.h.shape == (3, 5) and last_moved.h.shape == (3, 5)
    expected = inner(rows, moved._asdict()) + inner(last, last_moved._asdict())
    np.testing.assert_allclose(inner(gradients._asdict(), tangents), expected, rtol=1e-12)


def test_by_hand():
    leak = cellc.compile(LEAK, cache=False)
    x, a = np.ones((1, 3, 1), np.float32), np.full(1, 0.5, np.float32)
    gradients = leak.grad({"y": np.ones((1, 3, 1), np.float32)}, x=x, a=a)
    # y = 2h, h = 1, 1.5, 1.75: each x counts 2 (1 + a + a²), as far as there are steps.
    np.testing.assert_allclose(gradients.x[0, :, 0], [3.5, 3, 2])
    np.testing.assert_allclose(gradients.a, [2 * (1 * 1.5 + 1.5)])
    only = leak.grad({"y": 1.0}, x=x, a=a, wrt=["a"])
    assert only.keys() == ("a",)
    np.testing.assert_array_equal(only.a, gradients.a)
    y, dy = leak.jvp({"x": np.ones_like(x)}, x=x, a=a)
    np.testing.assert_allclose(dy.y, y.y)  # it is linear
    assert dy.keys() == ("h", "y")


def test_a_pullback_is_used_again(gru):
    arrays, _ = arrays_for(gru, 2, 300, {"d": 4}, np.float32)
    y, pullback = gru.vjp(arrays)
    assert repr(pullback) == "<pullback of para_gru to xz, xr, xc, az, ar, ac>"
    cotangent = np.random.default_rng(0).normal(size=y.h.shape).astype(np.float32)
    first, second = pullback(h=cotangent), pullback({"h": 2 * cotangent})
    for name in arrays:
        np.testing.assert_allclose(second[name], 2 * first[name], rtol=1e-5, atol=1e-6)
    strided = np.repeat(cotangent, 2, axis=-1)[..., ::2]
    np.testing.assert_array_equal(pullback(h=strided).az, first.az)


def test_without_a_batch(gru):
    arrays, _ = arrays_for(gru, 1, 7, {"d": 2}, np.float64)
    single = {name: array[0] if name in gru.inputs else array for name, array in arrays.items()}
    cotangent = np.ones((7, 2))
    one, whole = gru.grad({"h": cotangent}, single), gru.grad({"h": cotangent[None]}, arrays)
    assert one.xz.shape == (7, 2)
    np.testing.assert_array_equal(one.xz, whole.xz[0])
    np.testing.assert_array_equal(one.az, whole.az)


def test_what_stands_for_several(gru):
    arrays, _ = arrays_for(gru, 3, 7, {"d": 2}, np.float64)
    arrays["xr"] = arrays["xr"][0]
    given = {**arrays, "az": 0.5, "h": np.array([0.1, 0.2])}
    whole = {
        **arrays,
        "xr": np.stack([arrays["xr"]] * 3),
        "az": np.full(2, 0.5),
        "h": np.tile(given["h"], (3, 1)),
    }
    cotangent = np.random.default_rng(0).normal(size=(3, 7, 2))
    some, every = gru.grad({"h": cotangent}, given), gru.grad({"h": cotangent}, whole)
    np.testing.assert_allclose(some.xr, every.xr.sum(0), rtol=1e-12)
    np.testing.assert_allclose(some.az, every.az.sum(), rtol=1e-12)
    np.testing.assert_allclose(some.h, every.h.sum(0), rtol=1e-12)
    assert some.az.shape == () and some.h.shape == (2,)


@pytest.mark.parametrize(
    "cotangents, options, kind, argument, text",
    [
        ({"g": 1.0}, {}, cellc.ArgumentError, "g", "no cotangent 'g'; there is h"),
        ({"h": np.ones((2, 7, 2))}, {}, cellc.ShapeError, "h", "cotangent 'h' has shape (2, 7, 2); expected [B, T, d]"),
        ({"h": np.ones((1, 7, 2), "i4")}, {}, cellc.DTypeError, "h", "cotangent 'h' is int32; expected float64"),
        ({"h": 1.0}, {"wrt": ["q"]}, cellc.ArgumentError, "wrt", "no gradient of 'q'; there is xz, xr"),
        ({}, {"final": {"q": 1.0}}, cellc.ArgumentError, "q", "no cotangent 'q'; there is h"),
    ],
)
def test_errors(gru, cotangents, options, kind, argument, text):
    arrays, _ = arrays_for(gru, 1, 7, {"d": 2}, np.float64)
    with pytest.raises(kind) as caught:
        gru.grad(cotangents, arrays, **options)
    assert caught.value.argument == argument and text in str(caught.value)
