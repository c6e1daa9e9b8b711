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


def test_gradients_of_gradients_are_refused(gru):
    tensors = {name: t.cuda().requires_grad_() for name, t in given_to(gru, 2, 5, 3, np.float32).items()}
    h = gru(tensors).h
    first = torch.autograd.grad(h.sum(), tensors["xz"], create_graph=True)[0]
    with pytest.raises(NotImplementedError):
        torch.autograd.grad(first.sum(), tensors["xz"])


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
