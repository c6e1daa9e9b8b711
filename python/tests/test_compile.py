"""The operators, and graphs of torch.compile that have them."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch._dynamo.testing  # noqa: E402

import cellc.torch  # noqa: E402
from cellc.nn import Recurrence  # noqa: E402
from conftest import EXAMPLES  # noqa: E402
from test_torch import tensors_for  # noqa: E402


@pytest.fixture(scope="module")
def gru():
    return cellc.torch.function(EXAMPLES / "01_para_gru.cell", cache=False)


@pytest.mark.parametrize("finals", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(gru, finals, grad):
    given = tensors_for(gru, grad=grad)
    torch.library.opcheck(
        torch.ops.cellc.forward.default,
        (list(given.values()), gru.number, ",".join(given), finals, False, None, None),
    )
    y = gru(given)
    tensors = [t.detach() for t in given.values()]
    needed = [name != "xr" for name in given]
    arguments = (tensors, [y.h.detach()], [torch.ones_like(y.h)], needed, gru.number, ",".join(given), False, False)
    torch.library.opcheck(torch.ops.cellc.backward.default, (*arguments, None, None))


def test_opcheck_of_packed_sequences(gru):
    given = tensors_for(gru, 1)
    given = {name: (t[0] if name in gru.cell.inputs else t).detach().requires_grad_() for name, t in given.items()}
    offsets = torch.tensor([0, 2, 5])
    torch.library.opcheck(
        torch.ops.cellc.forward.default,
        (list(given.values()), gru.number, ",".join(given), True, True, offsets, None),
    )


@pytest.mark.parametrize("dynamic", [None, True])
def test_whole_graphs(gru, dynamic):
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda g: (gru(g).h * 2).sin().sum(), backend=counter, fullgraph=True, dynamic=dynamic)
    for batch, length in ((2, 5), (3, 8), (5, 13), (5, 21), (7, 21)):
        given = tensors_for(gru, batch, length)
        loss = compiled(given)
        loss.backward()
        again = {name: t.detach().clone().requires_grad_() for name, t in given.items()}
        expected = (gru(again).h * 2).sin().sum()
        expected.backward()
        torch.testing.assert_close(loss, expected)
        for name in given:
            torch.testing.assert_close(given[name].grad, again[name].grad)
    # One for the first shape and one for all others; with dynamic=True one for all.
    assert counter.frame_count <= (1 if dynamic else 2)


def test_graphs_know_the_deterministic_mode(gru):
    """One graph for each, by the function's number."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda g: gru(g).h, backend=backend, fullgraph=True)
    given = tensors_for(gru, grad=False)
    expected = gru(given).h
    for mode in (False, True, False):
        torch.use_deterministic_algorithms(mode)
        try:
            assert torch.equal(compiled(given), expected)
        finally:
            torch.use_deterministic_algorithms(False)
    calls = [[node for node in g.graph.nodes if "cellc.forward" in str(node.target)] for g in graphs]
    assert [[node.args[1] for node in nodes] for nodes in calls] == [[gru.number], [gru.number + 1]]
    assert gru.number % 2 == 0


def test_a_graph_outlives_the_names_of_its_function(gru):
    graphs = []

    def backend(graph, inputs):
        graphs.append((graph, inputs))
        return graph.forward

    given = tensors_for(gru, grad=False)
    function = cellc.torch.function(gru.cell)
    seen = weakref.ref(function)
    torch.compile(lambda g: function(g).h, backend=backend, fullgraph=True)(given)
    del function
    torch._dynamo.reset()
    gc.collect()
    ((graph, inputs),) = graphs
    assert seen() is not None  # the graph knows its number
    torch.testing.assert_close(graph(*map(torch.zeros_like, inputs))[0], torch.zeros_like(given["xz"]))


def test_modules():
    torch.manual_seed(0)
    rnn = Recurrence(EXAMPLES / "01_para_gru.cell", 6, d=4, num_layers=2, bidirectional=True, options={"cache": False})
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 7, 6)
    y, finals = compiled(x)
    expected, last = rnn(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(finals[1].h, last[1].h)
    for start in (last, torch.stack([final.h for final in last])):
        torch.testing.assert_close(compiled(x, start)[0], rnn(x, last)[0])


def test_autocast():
    torch.manual_seed(0)
    rnn = Recurrence(EXAMPLES / "01_para_gru.cell", 6, d=4, options={"cache": False})
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(rnn, backend=counter, fullgraph=True)
    for length in (7, 9, 12):
        x = torch.randn(3, length, 6)
        with torch.autocast("cpu", torch.bfloat16):
            (y, _), (expected, _) = compiled(x), rnn(x)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y, expected)
    assert counter.frame_count <= 2


def test_gradients_that_nobody_watches():
    """An operator's run says nothing of convergence; where nothing is repaired, graphs leave such calls to eager runs."""
    text = "cell c[d] { state h[d]\n input x[d]\n h' = 4*h*(1 - h) + 0*x }"
    f = cellc.torch.function(text, solver="newton", max_iterations=2, repair=False, cache=False)
    x = torch.zeros(2, 300, 2, dtype=torch.float64, requires_grad=True)
    start = torch.full((2, 2), 0.3, dtype=x.dtype)
    compiled = torch.compile(lambda x: f(x=x, h=start).h.sum(), backend="aot_eager")
    with pytest.warns(cellc.ConvergenceWarning):
        loss = compiled(x)
    with pytest.raises(cellc.ConvergenceError):
        loss.backward()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda x: f(x=x, h=start).h.sum(), backend="aot_eager", fullgraph=True)(x)
    with pytest.warns(cellc.ConvergenceWarning):
        torch.compile(lambda x: f(x=x, h=start).h.sum(), backend="aot_eager", fullgraph=True)(x.detach())


LAGS = {
    "of a state": EXAMPLES / "34_narx3.cell",
    "of inputs": EXAMPLES / "x16_biquad1.cell",
    "of a length": "cell far[d, n] { state h[d]\n input x[d]\n param k[n] in (0, 0.3)\n"
    " h' = 0.5*h + sum[n](k*lag[n](x)) }",
}


@pytest.fixture(scope="module", params=list(LAGS))
def lagging(request):
    return cellc.torch.function(LAGS[request.param], cache=False)


def test_lags(lagging):
    """Histories are results and arguments, with gradients, of graphs that know no length."""

    def run(given, more):
        y, final = lagging(given, return_final=True)
        again, last = lagging({**more, **final._asdict()}, return_final=True)
        return again[0].sin().sum() + sum(f.cos().sum() for f in last), last

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=True)
    frames = []
    for batch, length in ((2, 5), (3, 8), (5, 2)):
        given = tensors_for(lagging, batch, length)
        more = {n: t.detach().flip(1).requires_grad_() if n in lagging.cell.inputs else t for n, t in given.items()}
        leaves = [*given.values(), *(more[name] for name in lagging.cell.inputs)]
        (found, last), (expected, finals) = compiled(given, more), run(given, more)
        torch.testing.assert_close(found, expected)
        assert last._fields == finals._fields
        frames.append(counter.frame_count)
        for a, b in zip(last, finals):
            assert a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves)):
            torch.testing.assert_close(a, b)
    assert len(set(frames)) == 1  # all of them at the first call, which torch makes twice where numbers are tensors


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_opcheck_of_lags(lagging, dtype):
    given = {name: t.detach().to(dtype) for name, t in tensors_for(lagging).items()}
    for grad in (False, True):
        given = {n: t.detach().requires_grad_(grad and dtype == torch.float64) for n, t in given.items()}
        torch.library.opcheck(
            torch.ops.cellc.forward.default,
            (list(given.values()), lagging.number, ",".join(given), True, False, None, None),
        )


def test_a_module_that_lags():
    torch.manual_seed(0)
    rnn = Recurrence(LAGS["of a state"], 6, d=4, num_layers=2, options={"cache": False})
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 7, 6)
    (y, finals), (expected, last) = compiled(x), rnn(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(finals[1].y_lag, last[1].y_lag)
    torch.testing.assert_close(compiled(x, finals)[0], rnn(x, last)[0])


def test_a_batch_that_is_told():
    free = cellc.torch.function("cell free[d] {\n state h[d] = 1\n param k[d]\n h' = k*h\n}", cache=False)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    run = lambda k, batch: free(k=k, length=4, batch=batch, return_final=True)  # noqa: E731
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=True)
    k = torch.tensor([0.5, 2.0], requires_grad=True)
    for batch in (2, 3, 5):
        (y, final), (expected, last) = compiled(k, batch), run(k, batch)
        assert y.h.shape == (batch, 4, 2) and torch.equal(y.h, expected.h) and torch.equal(final.h, last.h)
        pair = [torch.autograd.grad(h.sum(), k)[0] for h in (y.h, expected.h)]
        torch.testing.assert_close(*pair)
    assert counter.frame_count == 1
