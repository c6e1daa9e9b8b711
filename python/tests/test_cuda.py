"""Tensors of a GPU: values and gradients as on the CPU, streams, graphs, modules. Skipped where there is no GPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cellc  # noqa: E402
import cellc.nn  # noqa: E402
import cellc.torch  # noqa: E402
from conftest import EXAMPLES, arrays_for  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

CELLS = ("01_para_gru", "02_para_lstm", "04_lstm", "08_gilr", "13_s6", "34_narx3")


def given_to(function, batch=3, length=257, d=5, dtype=np.float64):
    arrays, _ = arrays_for(function.cell, batch, length, {"d": d, "m": d, "n": 4}, dtype)
    return {name: torch.tensor(array) for name, array in arrays.items()}


def run_on(function, given, device, weights=None):
    """Results and gradients on the CPU; weights: cotangents, drawn where there are none."""
    tensors = {name: t.detach().to(device, copy=True).requires_grad_() for name, t in given.items()}
    rows, final = function(tensors, return_final=True)
    results = [*rows, *final]
    weights = weights or [torch.randn_like(r, device="cpu") for r in results]
    sum((r * w.to(device)).sum() for r, w in zip(results, weights)).backward()
    return [r.detach().cpu() for r in results], {name: t.grad.cpu() for name, t in tensors.items()}, weights


@pytest.mark.parametrize("stem", CELLS)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 2e-4)])
def test_as_on_the_cpu(stem, dtype, tolerance):
    function = cellc.torch.function(EXAMPLES / f"{stem}.cell", cache=False)
    given = given_to(function, dtype=dtype)
    results, gradients, weights = run_on(function, given, "cpu")
    on_gpu, moved, _ = run_on(function, given, "cuda", weights)
    for a, b in zip(on_gpu, results):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    for name, gradient in gradients.items():
        scale = gradient.abs().max() + 1e-30
        torch.testing.assert_close(moved[name] / scale, gradient / scale, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def gru():
    return cellc.torch.function(EXAMPLES / "01_para_gru.cell", cache=False)


@pytest.mark.parametrize("shape", [(4, 3000, 33), (1, 20000, 8)])
def test_gradients_have_the_same_bits_every_time(gru, shape):
    """Of one forward run, whose plan the next ones may better."""
    tensors = {name: t.cuda().requires_grad_() for name, t in given_to(gru, *shape, np.float32).items()}
    h = gru(tensors).h
    weight = torch.randn_like(h)
    first, *rest = [
        torch.autograd.grad(h, tuple(tensors.values()), weight, retain_graph=True) for _ in range(20)
    ]
    for again in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, again))


@pytest.mark.parametrize("stem, shape", [("08_gilr", (1, 100000, 8)), ("01_para_gru", (1, 20000, 8)), ("13_s6", (2, 20000, 3))])
def test_forward_runs_have_the_same_bits_every_time(stem, shape):
    """In the deterministic mode, beside other kernels too."""
    function = cellc.torch.function(EXAMPLES / f"{stem}.cell", cache=False)
    given = {name: t.cuda() for name, t in given_to(function, *shape, np.float32).items()}
    side, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        first = [t.clone() for t in function(given)]
        for i in range(20):
            with torch.cuda.stream(side):
                for _ in range(i):
                    torch.cos(busy)
            assert all(torch.equal(a, b) for a, b in zip(first, function(given)))
    finally:
        torch.use_deterministic_algorithms(False)


def test_work_is_queued_on_the_current_stream(gru):
    given = {name: t.cuda() for name, t in given_to(gru, 8, 2048, 256, np.float32).items()}
    expected = gru(given).h
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = {name: torch.zeros_like(t) for name, t in given.items()}
        torch.cuda._sleep(20_000_000)
        for name, t in given.items():
            late[name].copy_(t)  # a run on another stream would read zeros
        h = gru(late).h
    side.synchronize()
    assert torch.equal(h, expected)


def test_operators_run_on_the_current_stream(gru):
    """Repeated calls, too, which the library of operators makes without Python."""
    given = {name: t.cuda() for name, t in given_to(gru, 8, 2048, 256, np.float32).items()}
    told = (gru.number, ",".join(given), False, False, None, None)

    def run(given):
        (h,) = torch.ops.cellc.plain_forward(list(given.values()), *told)
        return h, *torch.ops.cellc.backward(list(given.values()), [h], [h], [True] * len(given), *told)

    for _ in range(3):
        expected = run(given)
    torch.cuda.synchronize()
    for _ in range(2):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            late = {name: torch.zeros_like(t) for name, t in given.items()}
            torch.cuda._sleep(20_000_000)
            for name, t in given.items():
                late[name].copy_(t)
            results = run(late)
        side.synchronize()
        for a, b in zip(results, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
            assert a.device == b.device


def test_forward_and_backward_are_captured(gru):
    tensors = {name: t.cuda().requires_grad_() for name, t in given_to(gru, 4, 512, 64, np.float32).items()}
    side = torch.cuda.Stream()

    def step():
        h = gru(tensors).h
        return (h, *torch.autograd.grad((h * h).sum(), tuple(tensors.values())))

    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = step()
    with torch.no_grad():
        for t in tensors.values():
            t.copy_(torch.rand_like(t) - 0.5)
    graph.replay()
    torch.cuda.synchronize()
    for a, b in zip(captured, step()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_module_trains_and_compiles(gru):
    torch.manual_seed(0)
    module = cellc.nn.Recurrence(EXAMPLES / "01_para_gru.cell", 4, d=16).cuda()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    x = torch.randn(8, 100, 4, device="cuda")
    optimiser = torch.optim.Adam(module.parameters(), 1e-2)
    losses = []
    for length in (100, 100, 80, 90, 100):
        y, _ = compiled(x[:, :length])
        loss = (y - 0.3).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_tensors_of_two_devices_are_refused(gru):
    given = given_to(gru, 2, 5, 3, np.float32)
    given["xz"] = given["xz"].cuda()
    with pytest.raises(cellc.DeviceMismatchError, match="cuda"):
        gru(given)


SMOOTH = [stem for stem in CELLS if stem != "13_s6"] + ["05_elman"]


@pytest.mark.parametrize("stem", SMOOTH)
def test_gradgradcheck(stem):
    function = cellc.torch.function(EXAMPLES / f"{stem}.cell", cache=False)
    given = {name: t.cuda().requires_grad_() for name, t in given_to(function, 2, 5, 3).items()}

    def run(*tensors):
        rows, final = function(dict(zip(given, tensors)), return_final=True)
        return *rows, *final

    assert torch.autograd.gradgradcheck(run, tuple(given.values()), fast_mode=True)


def penalty_of(function, given, **options):
    """Of the gradient's size, differentiated once more; tensors are on their device, with gradients."""
    rows = function(given, **options)
    first = torch.autograd.grad(sum((r**2).sum() for r in rows), tuple(given.values()), create_graph=True)
    return torch.autograd.grad(sum((g**2).sum() for g in first), tuple(given.values()))


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-8), (np.float32, 1e-3)])
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"offsets": [0, 40, 40, 131]}])
def test_gradients_of_gradients_are_those_of_the_cpu(gru, dtype, tolerance, options):
    given = given_to(gru, 3, 131, 5, dtype)
    if "offsets" in options:
        given = {name: t[0] if name in gru.cell.inputs else t for name, t in given.items()}
    on = {device: penalty_of(gru, {n: t.to(device, copy=True).requires_grad_() for n, t in given.items()}, **options)
          for device in ("cpu", "cuda")}  # fmt: skip
    for here, there in zip(*on.values()):
        scale = here.abs().max()
        torch.testing.assert_close(there.cpu() / scale, here / scale, rtol=tolerance, atol=tolerance)


def test_gradients_of_gradients_wait_for_the_current_stream(gru):
    given = {name: t.cuda() for name, t in given_to(gru, 2, 64, 8, np.float32).items()}
    expected = penalty_of(gru, {name: t.clone().requires_grad_() for name, t in given.items()})
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = {name: torch.zeros_like(t) for name, t in given.items()}
        torch.cuda._sleep(20_000_000)
        for name, t in given.items():
            late[name].copy_(t)
        found = penalty_of(gru, {name: t.requires_grad_() for name, t in late.items()})
    side.synchronize()
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


@pytest.mark.parametrize("length", [7, 3000])
def test_what_is_not_wanted_is_not_made(length):
    """A state of 64 x 64 for each step is not in memory, where its output alone is asked for."""
    text = "cell store[v, k] { state S[v,k]\n input q[k], x[v]\n S' = 0.9*S + x*q\n out y = S'@q }"
    function = cellc.torch.function(text, cache=False)
    given = {name: torch.randn(2, length, 64, device="cuda") for name in ("q", "x")}
    expected, whole = function(given, return_final=True)
    for _ in range(3):  # what is like an earlier call is made in another way
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y, last = function(given, return_final=True, write=["y"])
        assert torch.cuda.max_memory_allocated() - before < 4 * expected.y.nbytes + 4 * last.S.nbytes
        torch.testing.assert_close(y.y, expected.y, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last.S, whole.S, rtol=1e-4, atol=1e-4)


# Arrays of NumPy on a kernel of a GPU ---------------------------------------------------------------------------------


def on_both(source, **options):
    return [cellc.compile(source, device=device, cache=False, **options) for device in ("cpu", "cuda")]


def assert_close(there, here, tolerance):
    assert type(there) is np.ndarray and there.dtype == here.dtype and there.shape == here.shape
    scale = float(np.abs(here.astype(np.float64)).max(initial=0)) + 1e-30
    np.testing.assert_allclose(there / scale, here / scale, rtol=tolerance, atol=tolerance)


def strided(array, random):
    """The same numbers with gaps, axes in another order and the last of them backwards."""
    axes = random.permutation(array.ndim)
    wide = np.zeros([2 * n + 1 for n in np.array(array.shape)[axes]], array.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in axes)].transpose(np.argsort(axes))[..., ::-1]
    view[...] = array
    return view


@pytest.mark.parametrize("stem", CELLS)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 2e-4)])
def test_arrays_of_numpy(stem, dtype, tolerance):
    here, there = on_both(EXAMPLES / f"{stem}.cell")
    arrays, _ = arrays_for(here, 3, 129, {"d": 5, "m": 5, "n": 4}, dtype)
    random = np.random.default_rng(1)
    lying = {name: strided(a, random) if a.ndim else a for name, a in arrays.items()}
    for options in ({}, {"reverse": True}):
        found = [cell(given, return_final=True, **options) for cell, given in ((here, arrays), (there, lying))]
        for a, b in zip(*([*rows, *finals] for rows, finals in found)):
            assert_close(b, a, tolerance)
        assert found[1][0].report.converged
    cotangents = {name: random.normal(size=r.shape).astype(r.dtype) for name, r in zip(found[0][0]._fields, found[0][0])}
    gradients = [cell.grad(cotangents, given) for cell, given in ((here, arrays), (there, lying))]
    for a, b in zip(*gradients):
        assert_close(b, a, tolerance)
    name = next(iter(here.inputs))
    moved = [cell.jvp({name: arrays[name]}, given)[1] for cell, given in ((here, arrays), (there, lying))]
    for a, b in zip(*moved):
        assert_close(b, a, tolerance)


def test_arrays_of_numpy_and_options():
    text = "cell pair[d] { state h[d]\n input x[d]\n param a[d] = 0.5\n h' = tanh(a*h + x)\n out y = h'*lag(x, 2) }"
    here, there = on_both(text)
    random = np.random.default_rng(2)
    x = random.normal(size=(12, 3))
    for options in (
        {"offsets": [0, 5, 5, 12]},
        {"write": ["y"]},
        {"write": []},
        {"x_lag": random.normal(size=(2, 3))},
        {"h": 0.25, "a": random.uniform(size=3)},
    ):
        a, b = (cell(x=x, return_final=True, **options) for cell in (here, there))
        assert b[0]._fields == a[0]._fields
        for mine, other in zip([*b[0], *b[1]], [*a[0], *a[1]]):
            assert_close(mine, other, 1e-12)
    more = there(x=x, **there(x=x, return_final=True)[1])
    assert_close(more.y, here(x=x, **here(x=x, return_final=True)[1]).y, 1e-12)
    assert there(x=np.empty((0, 3))).h.shape == (0, 3)
    narrow = [cell(x=x.astype(np.float16)).h for cell in (here, there)]
    assert_close(narrow[1], narrow[0], 2e-3)


def test_arrays_of_numpy_are_refused_by_name(gru):
    there = cellc.compile(EXAMPLES / "01_para_gru.cell", device="cuda", cache=False)
    arrays, _ = arrays_for(there, 2, 5, {"d": 3}, np.float32)
    with pytest.raises(cellc.ShapeError) as found:
        there({**arrays, "az": arrays["az"][:2]})
    assert found.value.argument == "az"
    with pytest.raises(cellc.DTypeError) as found:
        there({**arrays, "az": arrays["az"].astype(np.float64)})
    assert found.value.argument == "az"
    with pytest.raises(cellc.DeviceMismatchError, match="arrays of the CPU") as found:
        there({**arrays, "xr": torch.tensor(arrays["xr"]).cuda()})
    assert found.value.argument == "xr"
