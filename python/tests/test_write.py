"""``write=``: which results are made, in eager calls and in graphs of torch.compile."""

import pytest

torch = pytest.importorskip("torch")

import torch._dynamo.testing  # noqa: E402

import cellc.torch  # noqa: E402
from test_torch import tensors_for  # noqa: E402

STORE = """
cell store[v, k] {
  state S[v,k], n[k]
  input q[k], x[v]
  param a[k] in (0, 1)
  S' = a*S + x*q
  n' = a*n + q
  out y = S'@q
  out z = n'*q
}
"""


@pytest.fixture(scope="module")
def store():
    return cellc.torch.function(STORE, cache=False)


@pytest.mark.parametrize("length", [5, 700])
def test_what_is_not_wanted_is_not_made(store, length, monkeypatch):
    given = tensors_for(store, length=length, grad=False)
    expected, made = store(given), []
    empty = cellc.tensors.TensorMaker.empty
    monkeypatch.setattr(
        cellc.tensors.TensorMaker, "empty", lambda maker, shape, dtype: made.append(shape) or empty(maker, shape, dtype)
    )
    for again in range(3):  # what is like an earlier call is made in another way
        made.clear()
        y, last = store(given, return_final=True, write=["y"])
        assert y._fields == ("y",) and last._fields == ("S", "n")
        assert torch.equal(y.y, expected.y) and torch.equal(last.S, expected.S[:, -1])
        assert again or made == [(2, length, 3), (2, 3, 3), (2, 3)]
        some = store(given, write=("z", "S"))
        assert some._fields == ("S", "z") and torch.equal(some.S, expected.S) and torch.equal(some.z, expected.z)
        assert torch.equal(store(given).n, expected.n)


def test_gradients_of_what_is_wanted(store):
    given = tensors_for(store)

    def gradients(name, **write):
        y, last = store(given, return_final=True, **write)
        return torch.autograd.grad(y[name].sin().sum() + last.S.sum(), list(given.values()))

    for _ in range(3):  # the same number of cotangents, of other results
        for name in ("y", "z", "n"):
            for found, expected in zip(gradients(name, write=name), gradients(name)):
                torch.testing.assert_close(found, expected)
    few = lambda q: store({**given, "q": q}, write="z").z  # noqa: E731
    torch.autograd.gradcheck(few, given["q"], check_forward_ad=True)
    torch.autograd.gradgradcheck(few, given["q"])


def test_wrong_names_of_results(store):
    with pytest.raises(cellc.ArgumentError, match="write: there is no state or out 'g'"):
        store(tensors_for(store, grad=False), write=["g"])


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("write", ["y", ["z", "y"], ["S"], ["n", "z"], []])
def test_graphs(store, write, dynamic):
    """As eager calls, with finals, and compiled once or twice for all lengths and batches."""

    def run(given):
        y, last = store(given, return_final=True, write=write)
        return (sum(r.sin().sum() for r in y) + last.S.square().sum()), y

    torch._dynamo.reset()  # each backend counts as a recompilation of the same code
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=dynamic)
    for batch, length in ((2, 5), (3, 8), (5, 13), (5, 21)):
        given = tensors_for(store, batch, length)
        leaves = list(given.values())
        (found, y), (expected, rows) = compiled(given), run(given)
        assert y._fields == rows._fields
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(loss, leaves) for loss in (found, expected)]
        for a, b in zip(*gradients):
            torch.testing.assert_close(a, b)
    assert counter.frame_count <= (1 if dynamic else 2)


@pytest.mark.parametrize("grad", [False, True])
def test_graphs_make_no_more(store, grad):
    """Without gradients; with them states, but no outs that nobody wants."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    from torch._dynamo.backends.common import aot_autograd

    given = tensors_for(store, grad=grad)
    compiled = torch.compile(
        lambda g: store(g, write="y").y * 2, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True
    )
    y = compiled(given)
    torch.testing.assert_close(y, store(given).y * 2)
    (call,) = [node for node in graphs[0].graph.nodes if "cellc.plain_forward" in str(node.target)]
    assert call.args[-1] == ("S,n,y" if grad else "y")
    assert len(call.meta["val"]) == (3 if grad else 1)


@pytest.mark.parametrize("write", ["y", "S,z", "n", "", None])
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(store, write, grad):
    given = tensors_for(store, grad=grad)
    told = store.number, ",".join(given), True, False, None, None, None, write
    torch.library.opcheck(torch.ops.cellc.forward.default, (list(given.values()), *told))
    tensors = [t.detach() for t in given.values()]
    states = [r.detach() for r in store(given)[:2]]
    results = torch.ops.cellc.plain_forward(tensors, *told)
    cotangents = [torch.randn_like(r) for r in results]
    needed = [name != "x" for name in given]
    torch.library.opcheck(torch.ops.cellc.backward.default, (tensors, states, cotangents, needed, *told))


def test_operators_repeat(store):
    """A call of some results is like no call of others, whoever makes it."""
    given = tensors_for(store, grad=False)
    tensors, names, expected = list(given.values()), ",".join(given), store(given)
    states = list(expected[:2])
    ones = torch.ones_like(expected.y)

    def gradients(write, cotangents):
        told = store.number, names, False, False, None, None, None, write
        return torch.ops.cellc.backward(tensors, states, cotangents, [True] * len(tensors), *told)

    whole = gradients(None, [None, None, ones, None])
    for _ in range(3):
        for write in ("y", "z", "n", "S,y", None, "", "S"):
            told = store.number, names, False, False, None, None, None, write
            made = torch.ops.cellc.plain_forward(tensors, *told)
            wanted = expected._fields if write is None else write.split(",") if write else ()
            for result, name in zip(made, wanted, strict=True):
                assert torch.equal(result, expected[name])
        for found in (gradients("y", [ones]), gradients("y,z", [ones, None]), gradients("S,y", [None, ones])):
            for a, b in zip(found, whole, strict=True):
                torch.testing.assert_close(a, b)
    with pytest.raises((RuntimeError, cellc.ArgumentError), match="write: there is no state or out 'g'"):
        torch.ops.cellc.forward(tensors, store.number, names, False, False, None, None, None, "g")


def test_gradients_of_operators(store):
    given = tensors_for(store, 1, 3)
    told = store.number, ",".join(given), False, False, None, None, None, "z"
    run = lambda *tensors: torch.ops.cellc.forward(tensors, *told)[0]  # noqa: E731
    assert torch.autograd.gradcheck(run, tuple(given.values()))
    assert torch.autograd.gradgradcheck(run, tuple(given.values()))
