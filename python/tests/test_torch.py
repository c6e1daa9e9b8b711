"""Cells on tensors: values, gradients of both modes, dtypes, views, errors."""

import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cellc  # noqa: E402
import cellc.nn  # noqa: E402
import cellc.torch  # noqa: E402
from conftest import EXAMPLES, arrays_for, cells_of_examples, para_gru_loop, ranges_of  # noqa: E402

# Steps that jump or have kinks where the data are: differences say nothing of them, nor of slopes that are declared.
NOT_SMOOTH = ("42_pid", "43_peak_hold", "44_automaton_counter", "26_ind_rnn")


def smooth_examples():
    def is_smooth(path):
        text = path.read_text()
        return path.stem not in NOT_SMOOTH and "derivative 1" not in text and "stop_gradient" not in text

    return [(path, name) for path, name in cells_of_examples() if is_smooth(path)]


@pytest.fixture(scope="module")
def gru():
    return cellc.torch.function(EXAMPLES / "01_para_gru.cell", cache=False)


def tensors_for(function, batch=2, length=5, d=3, dtype=np.float64, grad=True, **more):
    arrays, _ = arrays_for(function.cell, batch, length, {"d": d}, dtype, **more)
    return {name: torch.tensor(array, requires_grad=grad) for name, array in arrays.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_values(gru, dtype):
    given = {name: t.to(dtype) for name, t in tensors_for(gru, grad=False).items()}
    y = gru(given)
    assert y.h.dtype == dtype and y.h.shape == (2, 5, 3)
    expected = para_gru_loop(**{name: t.double() for name, t in given.items()})
    np.testing.assert_allclose(y.h.double(), expected, atol=4 * torch.finfo(dtype).eps)


def trial_of(function, path):
    """Tensors that a cell reads, and its run from them, without names."""
    cell = function.cell
    lengths = {} if cell.inputs else {"length": 3}
    arrays, sizes = arrays_for(cell, 2, 3, {"d": 2, "m": 2, "k": 2, "v": 2}, np.float64, ranges_of(path))
    for state, axes in cell.starts.items():
        arrays.setdefault(state, np.full((2, *(sizes[a] for a in axes)), 0.3))
    given = {key: torch.tensor(array, requires_grad=True) for key, array in arrays.items()}

    def run(*tensors):
        named = dict(zip(given, tensors))
        if cell.histories:  # which have no tangents
            return function(named, sizes=sizes, **lengths)
        rows, final = function(named, return_final=True, sizes=sizes, **lengths)
        return rows + final

    return given, run


@pytest.mark.one_in(8)
@pytest.mark.parametrize("path, name", smooth_examples(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_gradcheck_of_every_smooth_example(path, name):
    function = cellc.torch.function(path, cell=name, cache=False)
    given, run = trial_of(function, path)
    assert torch.autograd.gradcheck(run, tuple(given.values()), check_forward_ad=True, fast_mode=True)


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"offsets": [0, 2, 2, 5]}])
def test_gradcheck_of_options(gru, options):
    given = tensors_for(gru, 1 if options.get("offsets") else 2)
    if options.get("offsets"):
        given = {n: (t[0] if n in gru.cell.inputs else t).detach().requires_grad_() for n, t in given.items()}
    given["h"] = torch.full((3 if "offsets" in options else 2, 3), 0.2, dtype=torch.float64, requires_grad=True)

    def run(*tensors):
        rows, final = gru(dict(zip(given, tensors)), return_final=True, **options)
        return rows.h, final.h

    assert torch.autograd.gradcheck(run, tuple(given.values()), check_forward_ad=True)


def loop_in_torch(xz, xr, xc, az, ar, ac, h=None, reverse=False):
    """All states of ParaGRU, step by step."""
    h = torch.zeros_like(xz[..., 0, :]) if h is None else h
    states = [h] * xz.shape[-2]
    for t in range(len(states))[:: -1 if reverse else 1]:
        z = torch.sigmoid(az * h + xz[..., t, :])
        r = torch.sigmoid(ar * h + xr[..., t, :])
        h = states[t] = (1 - z) * h + z * torch.tanh(ac * (r * h) + xc[..., t, :])
    return torch.stack(states, -2)


def test_gradients_against_a_loop(gru):
    given = tensors_for(gru, 3, 40, 6)
    weight = torch.randn(3, 40, 6, dtype=torch.float64)
    (gru(given).h * weight).sum().backward()
    mine = {name: t.grad for name, t in given.items()}
    again = {name: t.detach().requires_grad_() for name, t in given.items()}
    (loop_in_torch(**again) * weight).sum().backward()
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, again[name].grad, rtol=1e-11, atol=1e-12)


def moved_by_a_byte(tensor):
    """The same values at an address that is none of numbers of eight bytes."""
    bytes_ = torch.empty(tensor.numel() * 8 + 8, dtype=torch.uint8)
    shifted = torch.frombuffer(bytes_.numpy(), dtype=tensor.dtype, offset=1, count=tensor.numel()).view_as(tensor)
    return shifted.copy_(tensor.detach()).requires_grad_()


CHANGES = {
    "none": lambda given: given,
    "spread": lambda given: {n: t.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() for n, t in given.items()},
    "odd address": lambda given: {**given, "xz": moved_by_a_byte(given["xz"])},
    "no batch": lambda given: {n: (t[0] if t.dim() == 3 else t).detach().requires_grad_() for n, t in given.items()},
    "start": lambda given: {**given, "h": torch.full((2, *given["az"].shape), 0.3).double().requires_grad_()},
    "another order": lambda given: dict(reversed(given.items())),
    "fewer gradients": lambda given: {**given, "ar": given["ar"].detach(), "xr": given["xr"].detach()},
    "parameter": lambda given: {**given, "az": torch.nn.Parameter(given["az"].detach())},
    "subclass": lambda given: {**given, "az": given["az"].detach().as_subclass(Marked).requires_grad_()},
}


class Marked(torch.Tensor):
    pass


@pytest.mark.parametrize("length, d", [(5, 3), (60, 60)])  # prepared calls, and those of the solver
def test_calls_like_earlier_ones(gru, length, d):
    """Of which everything is known but addresses: each kind again and again, between the others."""
    for turn in range(3):
        for number, (name, change) in enumerate(CHANGES.items()):
            given = change(tensors_for(gru, 2, length, d, seed=10 * turn + number))
            if turn == 2 and name == "none":
                given = {n: t.detach().clone().requires_grad_() for n, t in given.items()}
            for reverse in (False, True):
                rows = gru(given, reverse=reverse).h
                expected = loop_in_torch(**given, reverse=reverse)
                torch.testing.assert_close(rows, expected.as_subclass(torch.Tensor), rtol=1e-9, atol=1e-9)
                wanted = [t for t in given.values() if t.requires_grad]
                weight = torch.randn_like(rows)
                mine = torch.autograd.grad(rows, wanted, weight)
                others = torch.autograd.grad(expected, wanted, weight)
                for m, o in zip(mine, others):
                    torch.testing.assert_close(m.as_subclass(torch.Tensor), o.as_subclass(torch.Tensor), rtol=1e-8, atol=1e-8)


def test_lengths_that_are_told_again(gru):
    given, sizes = tensors_for(gru), {"d": 3}
    expected = gru(given).h
    for _ in range(3):
        torch.testing.assert_close(gru(given, sizes=sizes, length=5, batch=2).h, expected, rtol=0, atol=0)
    sizes["d"] = 4  # of the same mapping
    with pytest.raises(cellc.ShapeError, match="sizes has d = 4"):
        gru(given, sizes=sizes, length=5, batch=2)
    with pytest.raises(cellc.DTypeError, match="'sizes': expected a whole number"):
        gru(given, sizes={"d": [3]})
    with pytest.raises(cellc.ShapeError, match="length has T = 6"):
        gru(given, sizes={"d": 3}, length=6, batch=2)
    for offsets in (np.array([0, 2, 5]), [0, 5, 5], torch.tensor([0, 2, 5])):
        flat = {n: t[0] if n in gru.cell.inputs else t for n, t in given.items()}
        ends = offsets if isinstance(offsets, list) else offsets.tolist()
        parts = [gru({n: t[a:b] if n in gru.cell.inputs else t for n, t in flat.items()}).h for a, b in zip(ends, ends[1:])]
        torch.testing.assert_close(gru(flat, offsets=offsets).h, torch.cat(parts), rtol=1e-12, atol=1e-12)


def test_cotangents_that_are_missing_or_repeated():
    function = cellc.torch.function(
        "cell pair[d] { state h[d] = 0.5 \n input x[d] \n param a[d] = 0.3 \n h' = a*h + x \n out y = h'^2 }", cache=False
    )
    x, a = torch.randn(2, 4, 3).double().requires_grad_(), torch.rand(3).double().requires_grad_()

    def loop():
        h, states = torch.full((2, 3), 0.5).double(), []
        for t in range(4):
            h = a * h + x[:, t]
            states.append(h)
        h = torch.stack(states, 1)
        return h, h**2

    weights = torch.randn(2, 4, 3).double(), torch.ones(()).double().expand(2, 4, 3)
    for _ in range(2):  # the start's default, 0.5, is not given either
        for pick in ([0], [1], [0, 1], [1]):
            of = lambda results: ([results[i] for i in pick], [x, a], [weights[i] for i in pick])  # noqa: E731
            for m, o in zip(torch.autograd.grad(*of(function(x=x, a=a))), torch.autograd.grad(*of(loop()))):
                torch.testing.assert_close(m, o, rtol=1e-12, atol=1e-12)


def test_what_stands_for_several(gru):
    given = tensors_for(gru)
    few = {**given, "xr": given["xr"][0].detach().requires_grad_(), "az": torch.tensor(0.5).double().requires_grad_()}
    assert torch.autograd.gradcheck(lambda *t: gru(dict(zip(few, t))).h, tuple(few.values()))


def test_views_are_read_where_they_are(gru):
    wide = torch.randn(2, 5, 3, 3, requires_grad=True)
    params = {name: torch.randn(3) for name in gru.cell.params}
    xz, xr, xc = wide.unbind(2)
    y = gru(xz=xz, xr=xr, xc=xc, **params).h
    copies = gru(xz=xz.contiguous(), xr=xr.contiguous(), xc=xc.contiguous(), **params).h
    torch.testing.assert_close(y, copies, rtol=0, atol=0)
    y.sum().backward()  # the cotangent is one number, repeated
    assert wide.grad.shape == wide.shape and wide.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_gradients(gru, dtype):
    given = {name: t.detach().to(dtype).requires_grad_() for name, t in tensors_for(gru).items()}
    given["az"] = given["az"].detach().float().requires_grad_()  # params may be f32, as under autocast
    gru(given).h.float().sum().backward()
    exact = {name: t.detach().double().requires_grad_() for name, t in given.items()}
    gru(exact).h.sum().backward()
    for name, tensor in given.items():
        assert tensor.grad.dtype == tensor.dtype
        torch.testing.assert_close(tensor.grad.double(), exact[name].grad, rtol=0.1, atol=0.1)


def test_autocast_brings_inputs_together(gru):
    given = {name: t.detach().float().requires_grad_() for name, t in tensors_for(gru).items()}
    mixed = {**given, "xz": given["xz"].bfloat16(), "ac": given["ac"].half()}
    with pytest.raises(cellc.DTypeError, match="'x[rc]'"):
        gru(mixed)
    with torch.autocast("cpu", torch.bfloat16):
        y = gru(mixed).h
        narrow = gru({name: t.bfloat16() for name, t in given.items()}).h
    assert y.dtype == torch.float32 and narrow.dtype == torch.bfloat16
    torch.testing.assert_close(y, gru({name: t.float() for name, t in mixed.items()}).h, rtol=0, atol=0)
    y.sum().backward()
    assert all(t.grad is not None and t.grad.dtype == torch.float32 for t in given.values())


def test_deterministic_algorithms(gru):
    """The same bits again, with memory that torch fills with NaN before we write it."""
    given = tensors_for(gru, 3, 700, 33, dtype=np.float32)
    found = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            rows, final = gru(given, return_final=True)
            gradients = torch.autograd.grad((rows.h**2).sum() + final.h.sum(), list(given.values()))
            found.append([rows.h, final.h, *gradients])
    finally:
        torch.use_deterministic_algorithms(False)
    for again in found[1:]:
        assert all(torch.equal(a, b) and not a.isnan().any() for a, b in zip(found[0], again))


@pytest.mark.parametrize("asked, mode, expected", [(False, False, False), (False, True, True), (True, False, True)])
def test_what_a_gpu_is_asked_for(monkeypatch, asked, mode, expected):
    """There need be none: what its kernel would be compiled with."""
    function = cellc.torch.function(EXAMPLES / "01_para_gru.cell", cache=False, deterministic=asked)

    class Compiled(Exception):
        pass

    def compiled(*_, device, deterministic, **others):
        raise Compiled(device, deterministic)

    with torch._subclasses.FakeTensorMode():
        on_gpu = {name: torch.empty(t.shape, device="cuda:0") for name, t in tensors_for(function).items()}
    monkeypatch.setattr(cellc.cell._core, "Kernel", compiled)
    torch.use_deterministic_algorithms(mode)
    try:
        for offsets in (None, [0, 5]):
            given = on_gpu if offsets is None else {n: t[0] if t.dim() == 3 else t for n, t in on_gpu.items()}
            with pytest.raises(Compiled) as asked_for:
                function(given, offsets=offsets)
            assert asked_for.value.args == ("cuda:0", expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_modes_have_kernels_of_their_own(monkeypatch):
    cell = cellc.compile(EXAMPLES / "01_para_gru.cell", cache=False)
    monkeypatch.setattr(cellc.cell._core, "Kernel", lambda *_, **options: (options["device"], options["deterministic"]))
    for _ in range(2):
        assert cell._kernel(0, "cuda:0", True) == ("cuda:0", True)
        assert cell._kernel(0, "cuda:0") == ("cuda:0", False)
    assert cell._kernel(0, "cpu", True) is cell._first


def test_only_what_requires_it(gru):
    given = tensors_for(gru, grad=False)
    assert not gru(given).h.requires_grad
    given["az"].requires_grad_()
    y = gru(given).h
    assert y.requires_grad
    y.sum().backward()
    assert given["az"].grad is not None and given["xz"].grad is None
    with torch.no_grad():
        assert not gru(given).h.requires_grad


def test_forward_mode(gru):
    given = tensors_for(gru, grad=False)
    tangent = torch.randn_like(given["xz"])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(given["xz"], tangent)
        y, moved = torch.autograd.forward_ad.unpack_dual(gru({**given, "xz": dual}).h)
    step = 1e-6
    difference = (gru({**given, "xz": given["xz"] + step * tangent}).h - gru(given).h) / step
    torch.testing.assert_close(moved, difference, rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("path, name", smooth_examples(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_gradgradcheck_of_every_smooth_example(path, name):
    function = cellc.torch.function(path, cell=name, cache=False)
    given, run = trial_of(function, path)
    assert torch.autograd.gradgradcheck(run, tuple(given.values()), fast_mode=True)


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"offsets": [0, 2, 2, 5]}])
def test_gradgradcheck_of_options(gru, options):
    given = tensors_for(gru, 1 if options.get("offsets") else 2)
    if options.get("offsets"):
        given = {n: (t[0] if n in gru.cell.inputs else t).detach().requires_grad_() for n, t in given.items()}
    given["ac"].requires_grad_(False)  # what has no gradient moves nothing
    moving = {name: t for name, t in given.items() if t.requires_grad}

    def run(*tensors):
        rows, final = gru({**given, **dict(zip(moving, tensors))}, return_final=True, **options)
        return rows.h, final.h

    assert torch.autograd.gradgradcheck(run, tuple(moving.values()), fast_mode=True)


def test_gradients_of_gradients_of_what_stands_for_several(gru):
    given = tensors_for(gru)
    few = {**given, "xr": given["xr"][0].detach().requires_grad_(), "az": torch.tensor(0.5).double().requires_grad_()}
    run = lambda *t: gru(dict(zip(few, t))).h  # noqa: E731
    assert torch.autograd.gradgradcheck(run, tuple(few.values()), fast_mode=True)


def test_a_gradient_penalty(gru):
    """As it is trained with: the gradient of a gradient's length, against differences."""
    given = tensors_for(gru, 2, 20)

    def penalty(az):
        y = gru({**given, "az": az}).h
        (gradient,) = torch.autograd.grad((y**2).sum(), given["xz"], create_graph=True)
        return (gradient**2).sum()

    (found,) = torch.autograd.grad(penalty(given["az"]), given["az"])
    step = 1e-6 * torch.ones(3, dtype=torch.float64)
    difference = (penalty(given["az"] + step) - penalty(given["az"] - step)) / 2
    torch.testing.assert_close((found * step).sum(), difference.detach(), rtol=1e-6, atol=0)


def test_third_derivatives_are_refused(gru):
    given = tensors_for(gru)
    (first,) = torch.autograd.grad(gru(given).h.sum(), given["az"], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), given["az"], create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        second.sum().backward()


def refused(*_):
    raise AssertionError("a run in Python")


def test_runs_that_are_made_again(gru, monkeypatch):
    """They meet no function in Python; only what is new, differentiated or wrong does."""
    function, names = cellc.torch.function(gru.cell), list(tensors_for(gru))
    for seed in range(2):  # the second has the functions made, and remembers the call
        rows = function(tensors_for(gru, seed=seed)).h
        rows.backward(torch.ones_like(rows))
    given = tensors_for(gru, seed=7)
    expected = loop_in_torch(**given)
    weights = [torch.randn_like(expected) for _ in range(2)]
    with monkeypatch.context() as patched:
        for name in ("_forward", "_backward"):
            patched.setattr(cellc.torch, name, refused)
        rows = function(given).h
        for weight in weights:
            mine = torch.autograd.grad(rows, list(given.values()), weight, retain_graph=True)
            others = torch.autograd.grad(expected, list(given.values()), weight, retain_graph=True)
            for name, m, o in zip(names, mine, others, strict=True):
                torch.testing.assert_close(m, o, rtol=1e-9, atol=1e-9, msg=name)
        with pytest.raises(AssertionError, match="a run in Python"):
            function(tensors_for(gru, length=6))
    (first,) = torch.autograd.grad(rows, given["az"], weights[0], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), given["ar"], retain_graph=True)
    (of_loop,) = torch.autograd.grad(expected, given["az"], weights[0], create_graph=True)
    torch.testing.assert_close(second, others_of(of_loop.sum(), given["ar"]), rtol=1e-9, atol=1e-9)
    rows.backward(weights[0])
    with pytest.raises(RuntimeError, match="second time"):
        rows.backward(weights[0])
    changed = function(given).h
    product = (changed * changed).sum()
    changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with pytest.raises(cellc.ShapeError, match="'az'"):
        function({**given, "az": torch.zeros(4).double().requires_grad_()})
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True).copy(), torch.from_numpy):
        rows = function(given).h  # what comes back lies elsewhere
    again = torch.autograd.grad(rows, list(given.values()), weights[1])
    for a, m in zip(again, torch.autograd.grad(expected, list(given.values()), weights[1], retain_graph=True)):
        torch.testing.assert_close(a, m, rtol=1e-9, atol=1e-9)


def test_what_was_saved_is_asked_for_once(gru):
    """A checkpoint gives it once, also to runs that are made again with other gradients."""
    function, given = cellc.torch.function(gru.cell), tensors_for(gru)
    for _ in range(2):
        function(given).h.sum().backward()
    few = {name: t if name == "az" else t.detach() for name, t in given.items()}
    for _ in range(2):
        rows = torch.utils.checkpoint.checkpoint(lambda az: function({**few, "az": az}).h, few["az"], use_reentrant=False)
        (az,) = torch.autograd.grad(rows, few["az"], torch.ones_like(rows))
        torch.testing.assert_close(az, others_of(loop_in_torch(**few).sum(), few["az"]), rtol=1e-9, atol=1e-9)


def others_of(result, leaf, *cotangents):
    return torch.autograd.grad(result, leaf, *cotangents, retain_graph=True)[0]


def test_functions_of_runs_are_given_back(gru):
    function = cellc.torch.function(gru.cell)
    for seed in range(3):
        function(tensors_for(gru, seed=seed)).h.sum().backward()
    (call,) = function._calls.values()
    seen = weakref.ref(call.run.__self__)
    assert seen() is not None
    del call
    function._calls.clear()
    function._alike.clear()
    gc.collect()
    assert seen() is None


def test_functions_go_with_their_names():
    """And with them their kernels. A trial of many sizes makes a module for each."""
    module = cellc.nn.Recurrence(EXAMPLES / "01_para_gru.cell", 2, d=3, num_layers=2)
    for _ in range(3):  # of calls like an earlier one there is more to keep
        module(torch.randn(2, 4, 2))[0].sum().backward()
    seen = [weakref.ref(module.function), weakref.ref(module.cell)]
    del module
    gc.collect()
    assert [see() for see in seen] == [None, None]


def test_memory_is_given_back(gru):
    given = tensors_for(gru)
    y = gru(given).h
    seen = weakref.ref(y)
    y.sum().backward()
    del y
    gc.collect()
    assert seen() is None


def test_changed_results_are_refused(gru):
    given = tensors_for(gru)
    y = gru(given).h
    loss = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_does_not_converge_has_no_derivatives():
    text = "cell c[d] { state h[d]\n input x[d]\n h' = 4*h*(1 - h) + 0*x }"
    f = cellc.torch.function(text, solver="newton", max_iterations=2, repair=False, cache=False)
    x = torch.zeros(2, 300, 2, dtype=torch.float64, requires_grad=True)
    chaos, fixed = torch.full((2, 2), 0.3, dtype=x.dtype), torch.zeros(2, 2, dtype=x.dtype)
    why = "the run did not converge, so there are no {}: 2 sequences .* residual .* leave out repair=False"
    with pytest.warns(cellc.ConvergenceWarning, match="2 sequences have not converged") as told:
        f(x=x.detach(), h=chaos)
        f(x=x, h=chaos)
    assert [warning.filename for warning in told] == [__file__] * 2
    for start in (chaos, fixed, chaos, fixed):  # also of calls that are like an earlier one
        if start is fixed:
            assert torch.autograd.grad(f(x=x, h=start).h.sum(), x)[0].isfinite().all()
            continue
        with pytest.warns(cellc.ConvergenceWarning):
            y = f(x=x, h=start).h
        with pytest.raises(cellc.ConvergenceError, match=why.format("gradients")):
            y.sum().backward()
        with pytest.warns(cellc.ConvergenceWarning), pytest.raises(cellc.ConvergenceError, match=why.format("tangents")):
            with torch.autograd.forward_ad.dual_level():
                f(x=torch.autograd.forward_ad.make_dual(x.detach(), x.detach()), h=start)


@pytest.mark.parametrize(
    "change, kind, argument",
    [
        ({"az": torch.zeros(4).double()}, cellc.ShapeError, "az"),
        ({"az": torch.zeros(3)}, cellc.DTypeError, "az"),
        ({"az": torch.zeros(3, dtype=torch.int64)}, cellc.DTypeError, "az"),
        ({"az": torch.zeros(3, device="meta").double()}, cellc.DeviceMismatchError, "az"),
        ({"xz": torch.zeros(2, 5, 3, device="meta").double()}, cellc.DeviceMismatchError, "xz"),
        ({"xz": torch.zeros(2, 5, 3, dtype=torch.int32)}, cellc.DTypeError, "xz"),
        ({"ax": torch.zeros(3)}, cellc.ArgumentError, "ax"),
        ({"az": torch.ones(3).double().to_sparse()}, cellc.DTypeError, "az"),
        ({"xz": torch.ones(2, 5, 3).double().to_sparse()}, cellc.DTypeError, "xz"),
        ({"xz": torch.nested.nested_tensor([torch.ones(5, 3).double()], layout=torch.jagged)}, cellc.DTypeError, "xz"),
    ],
)
def test_errors(gru, change, kind, argument):
    with pytest.raises(kind) as caught:
        gru({**tensors_for(gru, grad=False), **change})
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "change, kind",
    [
        ({"length": np.zeros(3)}, cellc.DTypeError),
        ({"length": 5.0}, cellc.DTypeError),
        ({"batch": "2"}, cellc.DTypeError),
        ({"reverse": "no"}, cellc.DTypeError),
        ({"sizes": [("d", 3)]}, cellc.DTypeError),
        ({"sizes": {"d": 3.0}}, cellc.DTypeError),
    ],
)
def test_errors_of_options(gru, change, kind):
    (argument,) = change
    given = tensors_for(gru, grad=False)
    gru(given, **({"length": 5} if argument == "length" else {}))  # an equal number is no whole one
    with pytest.raises(kind, match=f"argument '{argument}': expected") as caught:
        gru(given, **change)
    assert caught.value.argument == argument


def test_tensors_without_names(gru):
    with pytest.raises(cellc.ArgumentError, match="arrays are given by name"):
        gru(torch.zeros(2, 5, 3))


def test_sparse_cotangents(gru):
    y = gru(tensors_for(gru)).h
    with pytest.raises(cellc.DTypeError, match="cotangent 'h' is of layout torch.sparse_coo; expected a dense tensor"):
        y.backward(torch.ones_like(y).to_sparse())


def test_transforms_of_torch_are_refused(gru):
    given = tensors_for(gru, grad=False)
    with pytest.raises(cellc.DTypeError, match="'xz' is without memory, as those that torch.func maps; expected a dense"):
        torch.func.vmap(lambda x: gru({**given, "xz": x}).h)(torch.zeros(4, 2, 5, 3).double())
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: gru({**given, "xz": x}).h.sum())(given["xz"])


def test_gradients_that_arrays_would_lose(gru):
    given = tensors_for(gru, grad=False, dtype=np.float32)
    assert isinstance(gru.cell(given).h, np.ndarray)
    with pytest.raises(cellc.DTypeError, match="'az' is a tensor that requires a gradient.* cellc.torch.function"):
        gru.cell({**given, "az": given["az"].requires_grad_()})


def test_a_device_of_torch():
    cell = cellc.compile(EXAMPLES / "01_para_gru.cell", device=torch.device("cpu"), cache=False)
    given = tensors_for(cellc.torch.function(cell), grad=False, dtype=np.float32)
    assert cell(given).h.shape == (2, 5, 3)


def test_a_wrong_cotangent_is_no_crash(gru):
    y = gru(tensors_for(gru)).h
    with pytest.raises(RuntimeError):
        y.backward(torch.ones(2, 2, dtype=torch.float64))
