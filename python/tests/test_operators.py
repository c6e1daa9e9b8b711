"""The operators by themselves: as eager calls are, and repeated without Python where the library of operators does it.

These tests and those of test_compile and test_write run for both registrations, by the library and from Python.
"""

import os
import pathlib
import resource
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import cellc.torch  # noqa: E402
from cellc import operator_library, operators  # noqa: E402
from conftest import EXAMPLES  # noqa: E402
from test_torch import tensors_for  # noqa: E402

ops = torch.ops.cellc


def told(function, names, finals=False, reverse=False, offsets=None, length=None):
    return function.number, ",".join(names), finals, reverse, offsets, length


@pytest.fixture(scope="module")
def gru():
    return cellc.torch.function(EXAMPLES / "01_para_gru.cell", cache=False)


@pytest.fixture
def python_calls(monkeypatch):
    """How often the operators came to Python, as far as it can be told."""
    calls = []
    call = operators._call

    def counted(*arguments):
        calls.append(arguments)
        return call(*arguments)

    monkeypatch.setattr(operators, "_call", counted)
    return calls


def strided(given, inputs):
    """As a projection is split: rows with gaps between them."""
    whole = torch.cat([given[name] for name in inputs], -1)
    return {**given, **dict(zip(inputs, whole.split([given[name].shape[-1] for name in inputs], -1)))}


def test_gradients_of_other_tensors_were_wanted_before(gru):
    """Of as many, by an eager call, whose arguments begin before the tensors."""
    given = tensors_for(gru, 2, 5, grad=False)
    tensors, names = list(given.values()), list(given)

    def eager(wanted):
        leaves = {name: t.detach().clone().requires_grad_(name in wanted) for name, t in given.items()}
        rows = gru(leaves).h
        return torch.autograd.grad(rows, [leaves[name] for name in wanted], torch.ones_like(rows))

    expected = eager(names[1:])
    states = ops.forward(tensors, *told(gru, names))[:1]
    for _ in range(2):
        eager(names[:-1])
        found = ops.backward(tensors, states, [torch.ones_like(states[0])], [n != "xz" for n in names], *told(gru, names))
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("how", ["dense", "strided", "steps first"])
@pytest.mark.parametrize("finals, reverse", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_repeated_calls(gru, python_calls, how, finals, reverse, dtype):
    first = None
    for seed in range(3):
        given = tensors_for(gru, 2, 7, grad=False, seed=seed)
        for name in given:  # params of 16 bits are converted, which Python does
            given[name] = given[name].to(torch.float32 if dtype == torch.bfloat16 and given[name].dim() == 1 else dtype)
        if how == "strided":
            given = strided(given, gru.cell.inputs)
        elif how == "steps first":
            given.update({n: given[n].transpose(0, 1).contiguous().transpose(0, 1) for n in gru.cell.inputs})
        leaves = {name: t.detach().clone().requires_grad_() for name, t in given.items()}
        rows, *last = (lambda r: (r[0], *r[1]) if finals else (r,))(
            gru(leaves, return_final=finals, reverse=reverse)
        )
        results = [*rows, *last]
        cotangents = [torch.randn_like(r) for r in results]
        expected = torch.autograd.grad(results, list(leaves.values()), cotangents)
        tensors = list(given.values())
        made = ops.forward(tensors, *told(gru, given, finals, reverse))
        needed = [name != "xr" for name in given]
        gradients = ops.backward(tensors, made[:1], cotangents, needed, *told(gru, given, finals, reverse))
        for a, b in zip(made, results, strict=True):
            assert torch.equal(a, b) and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        for a, b in zip(gradients, [g for g, need in zip(expected, needed) if need], strict=True):
            torch.testing.assert_close(a, b)
        without = [None, *cotangents[1:]]  # which is another call
        ops.backward(tensors, made[:1], without, needed, *told(gru, given, finals, reverse))
        first = len(python_calls) if first is None else first
        again = 3 if not operator_library.LOADED else 2 if dtype == torch.bfloat16 else 0  # whose gradients are rounded
        assert len(python_calls) == first + again * seed


def test_strides_tell_calls_apart(gru):
    """Of the same shapes: each layout has its own call, and remembers none of another."""
    given = tensors_for(gru, 4, 4, d=4, grad=False)
    (expected,) = ops.forward(list(given.values()), *told(gru, given))
    turned = {name: t.transpose(0, 1) if t.dim() == 3 else t for name, t in given.items()}
    for tensors in (given, turned, given, turned):
        (h,) = ops.forward(list(tensors.values()), *told(gru, given))
        dense = [t.contiguous() for t in tensors.values()]
        assert torch.equal(h, ops.forward(dense, *told(gru, given))[0])
    assert not torch.equal(h, expected)


def test_dtypes_and_lengths_tell_calls_apart(gru):
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float64):
        for length in (3, 4):
            given = {name: t.to(dtype) for name, t in tensors_for(gru, 2, length, grad=False).items()}
            (h,) = ops.forward(list(given.values()), *told(gru, given))
            assert h.dtype == dtype and h.shape == (2, length, 3)
            assert torch.equal(h, gru(given).h)


def test_lengths_that_are_told(python_calls):
    free = cellc.torch.function("cell free[d] {\n state h[d] = 1\n param k[d]\n h' = k*h\n}", cache=False)
    k = torch.tensor([0.5, 2.0])
    for _ in range(2):
        for length in (2, 3):
            (h,) = ops.forward([k], *told(free, ["k"], length=length))
            assert torch.equal(h, k ** torch.arange(1, length + 1)[:, None])
    assert len(python_calls) == (2 if operator_library.LOADED else 4)
    for _ in range(2):
        for batch in (3, 4):
            (h,) = ops.forward([k], *told(free, ["k"], length=2), batch)
            assert torch.equal(h, (k ** torch.arange(1, 3)[:, None]).expand(batch, 2, 2))
    assert len(python_calls) == (4 if operator_library.LOADED else 8)


@pytest.mark.parametrize("tensors", ["no rows", "no steps"])
def test_empty_tensors(gru, tensors):
    given = tensors_for(gru, *((0, 5) if tensors == "no rows" else (2, 0)), grad=False)
    for _ in range(2):
        (h,) = ops.forward(list(given.values()), *told(gru, given))
        assert h.shape == given["xz"].shape
        gradients = ops.backward(list(given.values()), [h], [h], [True] * 6, *told(gru, given))
        assert [g.shape for g in gradients] == [t.shape for t in given.values()]
        assert not gradients[-1].any()


def test_gradients(gru):
    given = tensors_for(gru, 1, 3, d=2)
    for reverse in (False, True):
        leaves = tuple(given.values())
        assert torch.autograd.gradcheck(lambda *t: tuple(ops.forward(t, *told(gru, given, True, reverse))), leaves)
    assert torch.autograd.gradgradcheck(lambda *t: ops.forward(t, *told(gru, given))[0], leaves)
    (h,) = ops.plain_forward([t.detach() for t in given.values()], *told(gru, given))
    assert torch.equal(h, gru(given).h)
    with torch.inference_mode():
        assert torch.equal(ops.forward(list(given.values()), *told(gru, given))[0], h)


def test_errors_name_the_argument(gru):
    """As RuntimeErrors where they pass through torch's stable ABI."""
    given = tensors_for(gru, grad=False)
    (h,) = ops.forward(list(given.values()), *told(gru, given))
    of_shape, of_dtype, of_call = (
        (RuntimeError,) * 3 if operator_library.LOADED else (cellc.ShapeError, cellc.DTypeError, cellc.ArgumentError)
    )
    wrong = {**given, "ar": torch.ones(4, dtype=torch.float64)}
    for _ in range(2):
        with pytest.raises(of_shape, match="argument 'ar' has shape"):
            ops.forward(list(wrong.values()), *told(gru, given))
        with pytest.raises(of_shape, match="argument 'ar' has shape"):
            ops.backward(list(wrong.values()), [h], [h], [True] * 6, *told(gru, given))
    with pytest.raises(of_dtype, match="argument 'az' is float32; expected float64"):
        ops.forward([t.float() if n == "az" else t for n, t in given.items()], *told(gru, given))
    with pytest.raises(of_dtype, match="argument 'xz' is torch.int64"):
        ops.forward([t.long() for t in given.values()], *told(gru, given))
    with pytest.raises(of_call, match="missing: 'ac'"):
        ops.forward(list(given.values())[:-1], *told(gru, list(given)[:-1]))
    (again,) = ops.forward(list(given.values()), *told(gru, given))  # and nothing remains of an error
    assert torch.equal(again, h)


def test_in_threads(gru):
    made = [tensors_for(gru, 2, 5, grad=False, seed=seed) for seed in range(4)]
    expected = [gru(given).h for given in made]
    wrong = []

    def call(given, h):
        for _ in range(300):
            (again,) = ops.forward(list(given.values()), *told(gru, given))
            if not torch.equal(again, h):
                wrong.append(again)

    threads = [threading.Thread(target=call, args=pair) for pair in zip(made, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_leaks(gru):
    given = tensors_for(gru, 1, 1, grad=False)
    tensors, names = list(given.values()), told(gru, given)
    offsets, (h,) = torch.tensor([0, 1]), ops.forward(tensors, *told(gru, given))
    packed = [t[0] if t.dim() == 3 else t for t in tensors]
    wrong = [*tensors[:-1], torch.ones(7, dtype=torch.float64)]

    def calls(count):
        for _ in range(count):
            ops.forward(tensors, *names)
            ops.backward(tensors, [h], [h], [True] * 6, *names)
            ops.backward(tensors, [h], [None], [True] * 6, *names)
        for _ in range(count // 20):  # these are made in Python
            ops.forward(packed, *told(gru, given, offsets=offsets))
            with pytest.raises((RuntimeError, cellc.ShapeError)):
                ops.forward(wrong, *names)

    calls(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(20_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1500  # of KB: 75 bytes of each


def test_exported_programs(gru):
    class Module(torch.nn.Module):
        def forward(self, given):
            return gru(given).h * 2

    given = {name: t.detach() for name, t in tensors_for(gru).items()}
    program = torch.export.export(Module(), (given,))
    lowered = program.run_decompositions()
    assert "cellc.plain_forward" in lowered.graph_module.code
    for run in (program.module(), lowered.module()):
        torch.testing.assert_close(run(given), gru(given).h * 2)


def test_gradients_are_not_derived_again_in_graphs(gru):
    """In what autograd has seen there is no operator that asks for gradients."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph.code)
        return graph.forward

    from torch._dynamo.backends.common import aot_autograd

    given = tensors_for(gru)
    compiled = torch.compile(
        lambda g: gru(g).h.sum(), backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True
    )
    compiled(given).backward()
    forward, backward = graphs
    assert "cellc.plain_forward" in forward and "cellc.backward" in backward
    assert "cellc.forward." not in forward + backward


def test_the_library_is_there():
    """Where ./dev built the package: torch is there, so that operators are to be in the library."""
    if not operator_library._FILE.exists():
        pytest.skip("the package was built without the library of operators")
    if os.environ.get("CELLC_TORCH_OPERATORS") == "python":
        assert not operator_library.LOADED
    elif tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10):
        assert operator_library.LOADED


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", ["test_compile.py", "test_operators.py", "test_write.py"])
def test_the_other_registration(file):
    """All tests of operators and graphs, which an import decides about, in a process of their own."""
    if "CELLC_TORCH_OPERATORS" in os.environ:
        pytest.skip("CELLC_TORCH_OPERATORS says which")
    if not operator_library.LOADED:
        pytest.skip("the package was built without the library of operators, or torch is older than 2.10")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-k", "not wanted"]
        + [str(pathlib.Path(__file__).parent / file)],
        env={**os.environ, "CELLC_TORCH_OPERATORS": "python"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_what_the_environment_says():
    """Without torch in the process, as if it were too old."""

    def run(**environment):
        code = "from cellc.operator_library import LOADED; print(LOADED)"
        kept = {name: value for name, value in os.environ.items() if name != "CELLC_TORCH_OPERATORS"}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True
        )
        return (done.stdout + done.stderr).splitlines()[-1]

    assert run() == run(CELLC_TORCH_OPERATORS="python") == "False"
    assert run(CELLC_TORCH_OPERATORS="library").startswith("ImportError: the library of operators: ")
    assert run(CELLC_TORCH_OPERATORS="rust") == "ImportError: CELLC_TORCH_OPERATORS is 'rust'; expected python or library"
