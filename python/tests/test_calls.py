"""Calls on arrays of NumPy: strides, batches, lengths, starts, dtypes."""

import gc
import sys
import threading

import numpy as np
import pytest

import cellc
from conftest import arrays_for, example, para_gru_loop

LEAK = "cell leak[d] { state h[d]\n input x[d]\n param a[d]\n h' = a*h + x\n out y = 2*h' }"


@pytest.fixture(scope="module")
def gru():
    return example("01_para_gru")


def gru_arrays(gru, batch=3, length=11, d=5, dtype=np.float32, seed=0):
    return arrays_for(gru, batch, length, {"d": d}, dtype, seed=seed)[0]


@pytest.mark.parametrize("dtype, error", [(np.float64, 1e-13), (np.float32, 2e-6), (np.float16, 4e-3)])
@pytest.mark.parametrize("batch, length, d", [(3, 11, 5), (2, 700, 33), (1, 1, 1), (2, 0, 3), (0, 4, 3)])
def test_against_a_loop(gru, dtype, error, batch, length, d):
    arrays = gru_arrays(gru, batch, length, d, dtype)
    y = gru(**arrays)
    assert y.h.dtype == dtype and y.h.shape == (batch, length, d)
    np.testing.assert_allclose(y.h, para_gru_loop(**arrays), atol=error)


@pytest.mark.parametrize("solver", ["sequential", "segmented", "shooting", "newton"])
def test_solvers(solver):
    gru = cellc.compile(example("01_para_gru").source, solver=solver, cache=False)
    arrays = gru_arrays(gru, 2, 600, 7)
    y = gru(**arrays)
    np.testing.assert_allclose(y.h, para_gru_loop(**arrays), atol=3e-5)
    assert y.report.converged


def views_of(array):
    """The same numbers in other layouts."""
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
    wide[..., 1:-2] = array
    stacked = np.zeros((array.shape[0], array.shape[1], 3, array.shape[2]), array.dtype)
    stacked[:, :, 1] = array
    return {
        "gaps between rows": wide[..., 1:-2],
        "one of three": stacked[:, :, 1],
        "time first": np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1),
        "channels first": np.ascontiguousarray(array.transpose(2, 0, 1)).transpose(1, 2, 0),
        "backwards": np.ascontiguousarray(array[:, ::-1])[:, ::-1],
        "every second": np.repeat(array, 2, axis=1)[:, ::2],
        "Fortran": np.asfortranarray(array),
        "one of the batch": np.stack([array, array], 1)[:, 1],
        "read only": np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
        "odd address": np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape),
    }


@pytest.mark.parametrize("length", [11, 900])
@pytest.mark.parametrize("layout", views_of(np.zeros((1, 1, 1), np.float32)))
def test_strides(gru, layout, length):
    arrays = gru_arrays(gru, length=length)
    expected = gru(**arrays).h
    arrays["xr"] = views_of(arrays["xr"])[layout]
    arrays["ar"] = np.repeat(arrays["ar"], 2)[::2]
    np.testing.assert_array_equal(gru(**arrays).h, expected)


def test_repeated_rows(gru):
    arrays = gru_arrays(gru, batch=2)
    arrays["xc"] = np.broadcast_to(arrays["xc"][:1, :1], arrays["xc"].shape)
    np.testing.assert_allclose(gru(**arrays).h, para_gru_loop(**arrays), atol=2e-6)


def test_batch_is_optional(gru):
    arrays = gru_arrays(gru, batch=1)
    whole = gru(**arrays).h
    single = {name: value[0] if name in gru.inputs else value for name, value in arrays.items()}
    y, final = gru(**single, return_final=True)
    assert y.h.shape == (11, 5) and final.h.shape == (5,)
    np.testing.assert_array_equal(y.h, whole[0])
    batched = {**single, "xz": np.stack([single["xz"]] * 3)}  # the others stand for all sequences
    np.testing.assert_array_equal(gru(**batched).h, np.stack([whole[0]] * 3))


def test_numbers_and_lists():
    leak = cellc.compile(LEAK, cache=False)
    x = np.ones((2, 4, 3), np.float32)
    expected = leak(x=x, a=np.full(3, 0.5, np.float32), h=np.full((2, 3), 2, np.float32)).y
    np.testing.assert_array_equal(leak(x=x, a=0.5, h=2).y, expected)
    np.testing.assert_array_equal(leak(x=x, a=[0.5] * 3, h=[2, 2, 2]).y, expected)
    np.testing.assert_array_equal(leak(x=x, a=np.float32(0.5), h=2.0).y, expected)


def test_goes_on_from_finals(gru):
    arrays = gru_arrays(gru, length=20)
    whole = gru(**arrays).h
    parts, final = [], {}
    for begin, end in [(0, 1), (1, 8), (8, 8), (8, 20)]:
        part = {name: value[:, begin:end] if name in gru.inputs else value for name, value in arrays.items()}
        y, final = gru(**part, **final, return_final=True)
        parts.append(y.h)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-6, atol=1e-7)


def test_histories_go_on():
    narx = example("34_narx3")
    assert set(narx.histories) == {"y_lag"}
    arrays, _ = arrays_for(narx, 2, 12, {"d": 3}, np.float64)
    whole = narx(**arrays).y
    first, final = narx(**{**arrays, "u": arrays["u"][:, :5]}, return_final=True)
    assert final.keys() == ("y", "y_lag")
    rest = narx(**{**arrays, "u": arrays["u"][:, 5:]}, **final)
    np.testing.assert_allclose(np.concatenate([first.y, rest.y], 1), whole, rtol=1e-13)
    a1, a2, a3, u = arrays["a1"], arrays["a2"], arrays["a3"], arrays["u"]
    y = [np.zeros((2, 3))] * 3
    for t in range(12):
        y.append(np.tanh(a1 * y[-1] + a2 * y[-2] + a3 * y[-3] + u[:, t]))
    np.testing.assert_allclose(whole, np.stack(y[3:], 1), rtol=1e-12)


@pytest.mark.parametrize("offsets", [[0, 4, 4, 11], np.array([0, 4, 4, 11]), np.array([0, 4, 4, 11], np.int32)])
@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences(gru, offsets, reverse):
    arrays = gru_arrays(gru, batch=1)
    packed = {name: value[0] if name in gru.inputs else value for name, value in arrays.items()}
    y, final = gru(**packed, offsets=offsets, reverse=reverse, return_final=True)
    assert y.h.shape == (11, 5) and final.h.shape == (3, 5)
    for i, (begin, end) in enumerate([(0, 4), (4, 4), (4, 11)]):
        one = {name: value[begin:end] if name in gru.inputs else value for name, value in packed.items()}
        alone, last = gru(**one, reverse=reverse, return_final=True)
        np.testing.assert_allclose(y.h[begin:end], alone.h, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(final.h[i], last.h, rtol=1e-6, atol=1e-7)


def test_reverse(gru):
    arrays = gru_arrays(gru)
    turned = {name: value[:, ::-1] if name in gru.inputs else value for name, value in arrays.items()}
    np.testing.assert_array_equal(gru(**arrays, reverse=True).h[:, ::-1], gru(**turned).h)


def test_without_inputs():
    lorenz = cellc.compile(open(example_path("35_lorenz")).read(), cell="lorenz_euler", dtype="f64", cache=False)
    y = lorenz(length=50)
    assert y.x.shape == (50,)
    x, v, z = 1.0, 1.0, 20.0
    for t in range(50):
        x, v, z = x + 0.1 * (v - x), v + 0.01 * (x * (28 - z) - v), z + 0.01 * (x * v - 8 / 3 * z)
        np.testing.assert_allclose([y.x[t], y.y[t], y.z[t]], [x, v, z], rtol=1e-9)
    assert lorenz(length=3, batch=4).z.shape == (4, 3)
    assert lorenz(length=3, x=np.zeros(6)).z.shape == (6, 3)


def example_path(stem):
    from conftest import EXAMPLES

    return EXAMPLES / f"{stem}.cell"


def test_only_what_is_wanted():
    leak = cellc.compile(LEAK, cache=False)
    x, a = np.ones((2, 4, 3), np.float32), np.full(3, 0.5, np.float32)
    y = leak(x=x, a=a, write=["y"])
    assert y.keys() == ("y",) and len(y) == 1
    np.testing.assert_array_equal(y.y, leak(x=x, a=a).y)
    np.testing.assert_array_equal(np.asarray(y), y.y)
    h, out = leak(x=x, a=a)
    np.testing.assert_array_equal(out, 2 * h)


def test_names_that_are_options():
    cell = cellc.compile("cell c { state h\n input length\n h' = 0.5*h + length }", cache=False)
    y = cell({"length": np.ones((3,), np.float32)})
    np.testing.assert_array_equal(y.h, np.float32([1, 1.5, 1.75]))


def test_dtype_follows_arrays(gru):
    assert gru(**gru_arrays(gru, dtype=np.float64)).h.dtype == np.float64
    assert gru(**gru_arrays(gru, dtype=np.float32)).h.dtype == np.float32
    half = gru_arrays(gru, dtype=np.float16)
    y = gru(**half).h
    assert y.dtype == np.float16
    wide = {name: value.astype(np.float32) if name in gru.params else value for name, value in half.items()}
    np.testing.assert_array_equal(gru(**wide).h, y)  # params are f32 in either case


def test_bfloat16(gru):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = {name: value.astype(ml_dtypes.bfloat16) for name, value in gru_arrays(gru).items()}
    y = gru(**arrays).h
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(y.astype(np.float64), para_gru_loop(**arrays), atol=3e-2)


def test_threads_run_at_once(gru):
    arrays = [gru_arrays(gru, 2, 300 + 50 * i, 9, seed=i) for i in range(4)]
    expected = [gru(**a).h for a in arrays]
    wrong = []

    def work(i):
        for _ in range(20):
            if not np.array_equal(gru(**arrays[i]).h, expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_lets_other_threads_run(gru):
    arrays = gru_arrays(gru, 8, 20000, 64)
    gru(**arrays)
    turns, done = [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1
            done.wait(1e-4)

    counter = threading.Thread(target=count)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is given a turn: the call must let go by itself
    try:
        counter.start()
        while turns[0] == 0:
            done.wait(1e-3)
        turns[0] = 0
        gru(**arrays)
        assert turns[0] > 0
    finally:
        done.set()
        sys.setswitchinterval(before)
        counter.join()


def test_memory_is_given_back(gru):
    array = gru_arrays(gru)
    gc.collect()
    count = sys.getrefcount(array["xz"])
    for _ in range(5):
        gru(**array)
        try:
            gru(**{**array, "ar": np.zeros(7, np.float32)})
        except cellc.ShapeError:
            pass
    gc.collect()
    after = sys.getrefcount(array["xz"])
    assert after == count
    array["xz"].resize((1, 1, 1), refcheck=False)  # refused while somebody holds its buffer


def test_a_tolerance_of_zero():
    """The bits of a run step by step."""
    text = "cell slow[d] { state h[d]\n input x[d]\n param a[d]\n h' = 0.995*h + 0.005*tanh(a*h + x) }"
    x = np.random.default_rng(5).normal(size=(1, 20000, 3)).astype("f4")
    runs = {}
    for name, options in {"exact": {"solver": "sequential"}, "zero": {"tolerance": 0}, "default": {}}.items():
        cell = cellc.compile(text, cache=False, **{"solver": "segmented", **options})
        runs[name] = cell(x=x, a=0.5).h
    np.testing.assert_array_equal(runs["zero"], runs["exact"])
    assert not np.array_equal(runs["default"], runs["exact"])
