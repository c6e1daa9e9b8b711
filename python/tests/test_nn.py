"""Modules: against torch.nn, against calls by hand, and that they train."""

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence  # noqa: E402

import cellc  # noqa: E402
from cellc.nn import Recurrence  # noqa: E402
from conftest import EXAMPLES  # noqa: E402

GRU = EXAMPLES / "01_para_gru.cell"


def module(source=GRU, *args, **options):
    torch.manual_seed(0)
    return Recurrence(source, *args, options={"cache": False}, **options)


def projected_lstm(*args, **options):
    return nn.LSTM(*args, proj_size=3, **options)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, projected_lstm])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first, bias", [(True, True), (False, False)])
def test_as_in_torch(kind, bidirectional, batch_first, bias):
    torch.manual_seed(1)
    theirs = kind(5, 4, num_layers=2, bidirectional=bidirectional, batch_first=batch_first, bias=bias)
    mine = Recurrence.from_torch(theirs, options={"cache": False})
    x = torch.randn(3, 7, 5, requires_grad=True)
    again = x.detach().clone().requires_grad_()
    (y, finals), (expected, last) = mine(x), theirs(again)
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)
    last = (last,) if kind is nn.GRU else last
    for name, tensor in zip("hc", last):
        torch.testing.assert_close(torch.stack([final[name] for final in finals]), tensor, rtol=1e-6, atol=1e-6)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, again.grad, rtol=1e-5, atol=2e-6)
    first = mine.layers[0].params["Wr" if kind is nn.GRU else "Wi"].grad
    torch.testing.assert_close(first, theirs.weight_ih_l0.grad[:4], rtol=1e-5, atol=5e-6)


def params_of_torch(theirs, layer, gates, names):
    """Weights of a layer of torch by our names: names of what multiplies inputs and states, and of their biases."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parts = [getattr(theirs, f"{kind}_l{layer}").detach().chunk(len(gates)) for kind in kinds]
    return {name + gate: part for name, found in zip(names, parts) for gate, part in zip(gates, found)}


def test_example_of_torchs_lstm():
    torch.manual_seed(6)
    theirs = nn.LSTM(5, 4, num_layers=2, proj_size=3, batch_first=True).double()
    mine = cellc.compile(EXAMPLES / "x18_torch_lstm.cell", cache=False, dtype="float64")
    params = {}
    for layer in (0, 1):
        found = params_of_torch(theirs, layer, "ifgo", ("W", "U", "b", "e"))
        params |= {f"{name}{layer + 1}": part.numpy() for name, part in found.items()}
        params[f"P{layer + 1}"] = getattr(theirs, f"weight_hr_l{layer}").detach().numpy()
    x = torch.randn(3, 7, 5).double()
    expected = theirs(x)[0].detach().numpy()
    np.testing.assert_allclose(mine({"x": x.numpy()} | params).h2, expected, rtol=1e-10, atol=1e-12)


def test_example_of_torchs_gru():
    torch.manual_seed(7)
    theirs = nn.GRU(5, 4, batch_first=True).double()
    mine = cellc.compile(EXAMPLES / "x03_gru_after.cell", cache=False, dtype="float64")
    found = params_of_torch(theirs, 0, "rzc", ("W", "U", "b", "e"))
    found |= {"br": found["br"] + found.pop("er"), "bz": found["bz"] + found.pop("ez"), "bu": found.pop("ec")}
    x = torch.randn(3, 7, 5).double()
    arrays = {"x": x.numpy()} | {name: part.numpy() for name, part in found.items()}
    np.testing.assert_allclose(mine(arrays).h, theirs(x)[0].detach().numpy(), rtol=1e-10, atol=1e-12)


def test_starts_as_in_torch():
    torch.manual_seed(3)
    theirs = nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True).double()
    mine = Recurrence.from_torch(theirs, options={"cache": False})
    x, h, c = (torch.randn(*shape).double().requires_grad_() for shape in ((3, 7, 5), (4, 3, 4), (4, 3, 4)))
    y, finals = mine(x, [{"h": h[i], "c": c[i]} for i in range(4)])
    expected, (h_end, _) = theirs(x, (h, c))
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.stack([final.h for final in finals]), h_end, rtol=1e-9, atol=1e-9)
    for m, o in zip(torch.autograd.grad(y.sum(), (h, c)), torch.autograd.grad(expected.sum(), (h, c))):
        torch.testing.assert_close(m, o, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind, layers, bidirectional", [(nn.LSTM, 2, True), (nn.GRU, 1, False), (projected_lstm, 1, True)])
def test_starts_of_torchs_kind(kind, layers, bidirectional):
    torch.manual_seed(8)
    theirs = kind(5, 4, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    mine = Recurrence.from_torch(theirs, options={"cache": False})
    count, h_size = layers * (2 if bidirectional else 1), 3 if kind is projected_lstm else 4
    x, h, c = torch.randn(3, 7, 5), torch.randn(count, 3, h_size), torch.randn(count, 3, 4)
    packed = pack_sequence([torch.randn(n, 5) for n in (3, 7, 4)], enforce_sorted=False)
    states = {"h": h} if kind is nn.GRU else {"h": h, "c": c}
    whole = h if kind is nn.GRU else (h, c)
    first = {name: state[:, 0] for name, state in states.items()}
    for form, of_one in ((whole, first["h"] if kind is nn.GRU else tuple(first.values())), (states, first)):
        torch.testing.assert_close(mine(x, form)[0], theirs(x, whole)[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(mine(packed, form)[0].data, theirs(packed, whole)[0].data, rtol=1e-6, atol=1e-6)
        if count > 1 or form is not states:
            torch.testing.assert_close(mine(x[0], of_one)[0], theirs(x, whole)[0][0], rtol=1e-6, atol=1e-6)
    if count == 1:
        y, (final,) = mine(x)
        for form in (final, {"h": final.h}, final.h[None], [final._asdict()]):
            assert torch.equal(mine(x, form)[0], mine(x, [final])[0])
        assert torch.equal(mine(x, {"h": 0.0})[0], y)


@pytest.mark.parametrize(
    "start, kind, text",
    [
        ((torch.zeros(4, 3, 4),), cellc.ArgumentError, "a tensor for each of h, c, not 1"),
        ((torch.zeros(4, 3, 4),) * 3, cellc.ArgumentError, "a tensor for each of h, c, not 3"),
        (torch.zeros(4, 3, 4), cellc.ArgumentError, "a tensor for each of h, c, not 1"),
        ((torch.zeros(4, 3, 4), torch.zeros(3, 3, 4)), cellc.ShapeError, r"'c' has shape \(3, 3, 4\); expected \[4, B, d\]"),
        ({"h": torch.zeros(3, 4)}, cellc.ShapeError, r"'h' has shape \(3, 4\); expected \[4, B, d\]"),
        ({"g": torch.zeros(4, 3, 4)}, cellc.ArgumentError, "the cell has no state 'g'; it has h, c"),
        ([{}] * 3, cellc.ArgumentError, "expected states by name, 4 times: .* got dict, dict, dict$"),
        ([{}] * 5, cellc.ArgumentError, "expected states by name, 4 times"),
        ([], cellc.ArgumentError, "expected states by name, 4 times: .* got none"),
        ([torch.zeros(3, 4), None, None, None], cellc.ArgumentError, "got Tensor, NoneType, NoneType, NoneType"),
        (3, cellc.ArgumentError, "expected what a call gave as finals, or a tensor for each of h, c, not int"),
    ],
)
def test_wrong_starts(start, kind, text):
    rnn = module(cellc.nn.LSTM, num_layers=2, bidirectional=True, d=4, m=8, input_size=None)
    with pytest.raises(kind, match="^start: .*" + text) as caught:
        rnn(torch.zeros(3, 7, 8), start)
    assert caught.value.argument == "start"


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, projected_lstm])
def test_no_biases_where_torch_has_none(kind):
    theirs = kind(5, 4, bias=False)
    mine = Recurrence.from_torch(theirs, options={"cache": False})
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_what_from_torch_refuses():
    for theirs in (nn.RNN(5, 4), nn.Linear(5, 4)):
        with pytest.raises(cellc.ArgumentError, match="expected torch.nn.LSTM or torch.nn.GRU") as caught:
            Recurrence.from_torch(theirs)
        assert caught.value.argument == "module"


@pytest.mark.parametrize("lengths, is_sorted", [((3, 7, 1, 4), False), ((7, 4, 4, 1), True)])
def test_packed_as_in_torch(lengths, is_sorted):
    torch.manual_seed(2)
    theirs = nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True)
    mine = Recurrence.from_torch(theirs, options={"cache": False})
    packed = pack_sequence([torch.randn(n, 5) for n in lengths], enforce_sorted=is_sorted)
    (y, finals), (expected, (h, _)) = mine(packed), theirs(packed)
    mine_padded, lengths = pad_packed_sequence(y, batch_first=True)
    padded, same = pad_packed_sequence(expected, batch_first=True)
    assert torch.equal(lengths, same)
    torch.testing.assert_close(mine_padded, padded, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.stack([final.h for final in finals]), h, rtol=1e-6, atol=1e-6)


def test_projection_and_layers():
    rnn = module(GRU, 6, num_layers=3, d=4, dropout=0.5)
    assert rnn.width == 4
    x = torch.randn(2, 9, 6)
    rnn.eval()
    y, finals = rnn(x)
    assert y.shape == (2, 9, 4) and len(finals) == 3
    function, expected = rnn.function, x
    for layer in rnn.layers:
        xz, xr, xc = layer.projection(expected).chunk(3, -1)
        expected = function(xz=xz, xr=xr, xc=xc, **layer.params).h
    torch.testing.assert_close(y, expected)
    rnn.train()
    torch.manual_seed(5)
    dropped, _ = rnn(x)
    torch.manual_seed(5)
    expected = x
    for at, layer in enumerate(rnn.layers):  # between the layers, and not behind the last
        xz, xr, xc = layer.projection(expected).chunk(3, -1)
        expected = function(xz=xz, xr=xr, xc=xc, **layer.params).h
        if at < 2:
            expected = nn.functional.dropout(expected, 0.5)
    torch.testing.assert_close(dropped, expected)
    assert not torch.equal(dropped, y)


def test_steps_of_a_bidirectional_module_are_refused():
    with pytest.raises(cellc.OptionError, match="bidirectional"):
        module(GRU, 6, d=4, bidirectional=True).step(torch.randn(2, 6))


def test_goes_on_and_steps():
    rnn = module(GRU, 6, num_layers=2, d=4)
    x = torch.randn(2, 9, 6)
    whole, _ = rnn(x)
    first, finals = rnn(x[:, :4])
    second, _ = rnn(x[:, 4:], finals)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for given, expected in [(x, whole), (x[0], whole[0])]:
        steps, finals = [], None
        for t in range(9):
            y, finals = rnn.step(given.select(-2, t), finals)
            steps.append(y)
        torch.testing.assert_close(torch.stack(steps, -2), expected)


def test_inputs_by_name():
    rnn = module(GRU, d=4)
    inputs = {name: torch.randn(2, 5, 4) for name in ("xz", "xr", "xc")}
    y, _ = rnn(**inputs)
    torch.testing.assert_close(y, rnn.function(**inputs, **rnn.layers[0].params).h)
    with pytest.raises(cellc.ArgumentError, match="by name, or give input_size"):
        rnn(torch.randn(2, 5, 4))
    with pytest.raises(cellc.ArgumentError, match="no input 'xx'"):
        rnn(**inputs, xx=inputs["xz"])


def test_states_with_several_axes():
    rnn = module(EXAMPLES / "18_delta_net.cell", 6, v=3, k=2)
    y, finals = rnn(torch.randn(2, 5, 6))
    assert y.shape == (2, 5, rnn.width) and finals[0].S.shape == (2, 3, 2)


def test_state_dict():
    rnn, other = module(GRU, 6, d=4), Recurrence(GRU, 6, d=4)
    assert sorted(rnn.state_dict()) == [
        "layers.0.params.ac",
        "layers.0.params.ar",
        "layers.0.params.az",
        "layers.0.projection.bias",
        "layers.0.projection.weight",
    ]
    other.load_state_dict(rnn.state_dict())
    x = torch.randn(1, 3, 6)
    assert torch.equal(rnn(x)[0], other(x)[0])
    assert repr(rnn).startswith("Recurrence(\n  para_gru, d=4, output=h\n")
    assert rnn.double()(x.double())[0].dtype == torch.float64


def test_copies():
    rnn = module(GRU, 6, d=4)
    x = torch.randn(1, 3, 6)
    buffer = io.BytesIO()
    torch.save(rnn, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(rnn), torch.load(buffer, weights_only=False)):
        assert torch.equal(rnn(x)[0], other(x)[0])
        with torch.no_grad():
            other.layers[0].params["az"].add_(1)
        assert not torch.equal(rnn(x)[0], other(x)[0])


def test_autocast():
    rnn = module(GRU, 6, d=4)
    x = torch.randn(2, 5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        y, finals = rnn(x)
    assert y.dtype == torch.bfloat16 and finals[0].h.dtype == torch.float32
    torch.testing.assert_close(y.float(), rnn(x)[0], rtol=0.05, atol=0.02)
    y.float().sum().backward()
    assert rnn.layers[0].params["az"].grad.dtype == torch.float32


TEXT = """
cell c[d] {
  state h[d]
  input x[d]
  param U[d,d], a[d] in (0, 1), b[d] = 0.25, low[d] in (2, inf)
  h' = a*tanh(U@h + x) + b + 0*low
}
"""


def test_initialisers():
    text = TEXT if _accepts(TEXT) else TEXT.replace("in (2, inf)", "in (2, 3)")
    params = module(text, d=16).layers[0].params
    assert params["a"].min() > 0 and params["a"].max() < 1 and params["low"].min() > 2
    assert torch.equal(params["b"], torch.full((16,), 0.25))
    assert params["U"].abs().max() <= 0.25 and params["U"].std() > 0.1
    params = module(text, d=16, init={"U": "orthogonal", "a": lambda t: t.fill_(0.9)}).layers[0].params
    torch.testing.assert_close(params["U"] @ params["U"].T, torch.eye(16), rtol=0, atol=1e-5)
    assert torch.equal(params["a"], torch.full((16,), 0.9))
    with pytest.raises(cellc.OptionError, match="init 'magic'"):
        module(text, d=4, init="magic")
    with pytest.raises(cellc.ArgumentError, match="no param 'q'"):
        module(text, d=4, init={"q": "zeros"})


def _accepts(text):
    try:
        cellc.compile(text, cache=False)
    except cellc.CellError:
        return False
    return True


def test_options_that_cannot_be_meant():
    for options, text in [
        ({}, "length of axis d is missing"),
        ({"d": 3, "e": 4}, "no axis 'e'"),
        ({"d": 3, "output": "q"}, "no state or out 'q'"),
        ({"d": 3, "dropout": 2}, "dropout 2"),
        ({"d": 3, "num_layers": 0}, "num_layers 0"),
        ({"d": 3, "num_layers": 2}, "need input_size"),
    ]:
        with pytest.raises(cellc.Error, match=text):
            module(GRU, **options)


@pytest.mark.parametrize("batch_first", [True, False])
def test_it_learns(batch_first):
    """The parity of the bits so far: nonlinear, and not to be had without memory."""
    torch.manual_seed(0)
    rnn = Recurrence(GRU, 2, d=16, batch_first=batch_first, num_layers=2, options={"cache": False})
    head = nn.Linear(16, 2)
    optimiser = torch.optim.Adam([*rnn.parameters(), *head.parameters()], 2e-2)
    losses = []
    for _ in range(150):
        bits = torch.randint(0, 2, (64, 6))
        parity = bits.cumsum(1) % 2
        x = nn.functional.one_hot(bits, 2).float()
        y, _ = rnn(x if batch_first else x.transpose(0, 1))
        logits = head(y if batch_first else y.transpose(0, 1))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), parity.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 0.6 and sum(losses[-10:]) / 10 < 0.25


def test_states_that_nobody_reads_are_not_made(monkeypatch):
    rnn = module("cell c[d] { state s[d]\n input x[d]\n s' = 0.5*s + x\n out y = 2*s'\n out z = s' }", d=3, output="y")
    made, x = [], torch.randn(2, 7, 3)
    empty = cellc.tensors.TensorMaker.empty
    monkeypatch.setattr(
        cellc.tensors.TensorMaker, "empty", lambda maker, shape, dtype: made.append(shape) or empty(maker, shape, dtype)
    )
    with torch.no_grad():
        y, (final,) = rnn(x)
    assert made == [(2, 7, 3), (2, 3)]
    torch.testing.assert_close(final.s, y[:, -1] / 2)
    made.clear()
    rnn(x.requires_grad_())[0].sum().backward()
    assert made[:3] == [(2, 7, 3), (2, 7, 3), (2, 3)]  # states, for gradients, but not z
    torch.testing.assert_close(x.grad[0, -1], torch.full((3,), 2.0))
