"""Cells as modules of torch: ``cellc.nn.Recurrence("my.cell", d=64)``, with parameters from the cell's params.

``LSTM``, ``PROJECTED_LSTM`` and ``GRU`` are cells that compute what torch.nn.LSTM (without and with proj_size) and
torch.nn.GRU do; ``Recurrence.from_torch`` takes over their weights.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any, Callable, Mapping, Sequence, Union

from .cell import Cell, compile
from .errors import ArgumentError, OptionError, ShapeError
from .torch import Function  # first: it says where torch is missing

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["GRU", "LSTM", "PROJECTED_LSTM", "Recurrence"]

LSTM = """
cell lstm[d, m] {
  state h[d], c[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d], bi[d], bf[d], bg[d], bo[d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h + bg)
  h' = sigmoid(Wo@x + Uo@h + bo)*tanh(c')
}
"""

# With proj_size: h is a projection of what the cell gives.
PROJECTED_LSTM = """
cell projected_lstm[d, m, p] {
  state h[p], c[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,p], Uf[d,p], Ug[d,p], Uo[d,p], bi[d], bf[d], bg[d], bo[d], P[p,d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h + bg)
  h' = P@(sigmoid(Wo@x + Uo@h + bo)*tanh(c'))
}
"""

# The reset gate comes after the matrix, as cuDNN and torch have it.
GRU = """
cell gru[d, m] {
  state h[d]
  input x[m]
  param Wr[d,m], Wz[d,m], Wn[d,m], Ur[d,d], Uz[d,d], Un[d,d], br[d], bz[d], bn[d], bu[d]
  r  = sigmoid(Wr@x + Ur@h + br)
  z  = sigmoid(Wz@x + Uz@h + bz)
  h' = (1 - z)*tanh(Wn@x + bn + r*(Un@h + bu)) + z*h
}
"""



def _without_biases(text: str) -> str:
    return re.sub(r", b\w\[d\]| \+ b\w\b", "", text)


Initialiser = Union[str, Callable[[torch.Tensor], Any]]


class _Layer(nn.Module):
    """One layer in one direction: its params, and the projection to its inputs."""

    def __init__(self, function: Function, width: int | None, sizes: dict[str, int], init: dict, bias: bool, kind: dict):
        super().__init__()
        cell = function.cell
        self.sizes = sizes
        self.input_shapes = {name: tuple(sizes[a] for a in axes) for name, axes in cell.inputs.items()}
        self.projection = None
        if width is not None:
            self.projection = nn.Linear(width, sum(map(math.prod, self.input_shapes.values())), bias=bias, **kind)
        declared = {d["name"]: d for d in cell.data["declarations"] if d["kind"] == "param"}
        self.params = nn.ParameterDict()
        self._init = init
        self._declared = declared
        for name, axes in cell.params.items():
            if _default(declared[name]) is None and name not in cell.required:
                continue  # computed from others, unless it is given by hand
            self.params[name] = nn.Parameter(torch.empty(tuple(sizes[a] for a in axes), **kind))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.projection is not None:
            self.projection.reset_parameters()
        for name, parameter in self.params.items():
            _initialise(parameter, self._init.get(name), self._declared[name])

    def inputs_from(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Named inputs from features in the last axis. Views: a step's inputs stay side by side in memory."""
        if self.projection is None:
            ((name, shape),) = self.input_shapes.items()
            return {name: x if len(shape) == 1 else x.unflatten(-1, shape) if shape else x.squeeze(-1)}
        parts = self.projection(x).split([math.prod(shape) for shape in self.input_shapes.values()], dim=-1)
        named = {}
        for (name, shape), part in zip(self.input_shapes.items(), parts):
            named[name] = part if len(shape) == 1 else part.unflatten(-1, shape) if shape else part.squeeze(-1)
        return named


def _has_names(arrays: Any) -> bool:
    return hasattr(arrays, "keys") or hasattr(arrays, "_asdict")


def _by_name(arrays: Any) -> dict[str, torch.Tensor]:
    return arrays._asdict() if hasattr(arrays, "_asdict") else dict(arrays)


def _default(declaration: Mapping[str, Any]) -> float | None:
    """The declared value, where it is a number."""
    try:
        return float(declaration["default"])
    except (TypeError, ValueError):
        return None


@torch.no_grad()
def _initialise(parameter: torch.Tensor, init: Initialiser | None, declaration: Mapping[str, Any]) -> None:
    default, (low, high) = _default(declaration), declaration.get("range") or (None, None)
    if callable(init):
        init(parameter)
    elif init == "orthogonal":
        nn.init.orthogonal_(parameter)
    elif init == "zeros":
        nn.init.zeros_(parameter)
    elif init == "uniform" or (init is None and default is None and low is None and high is None):
        bound = 1 / math.sqrt(max(parameter.shape[-1] if parameter.dim() else 1, 1))  # as torch.nn has it
        nn.init.uniform_(parameter, -bound, bound)
    elif init is None and default is not None:
        nn.init.constant_(parameter, default)
    elif init is None:  # well inside the declared range
        low, high = (high - 1 if low is None else low), (low + 1 if high is None else high)
        margin = (high - low) / 20
        nn.init.uniform_(parameter, low + margin, high - margin)
    else:
        raise OptionError(f"init {init!r}: expected 'uniform', 'orthogonal', 'zeros' or a function of a tensor")


class Recurrence(nn.Module):
    """Layers of a cell over sequences, as torch.nn.LSTM is layers of one cell.

    source: a Cell, or a path or text as of cellc.compile.
    input_size: width of the features. Each layer then has a linear map from them to all inputs of the cell. None: a
        cell with one input takes them as they are, and one with several takes its inputs by name.
    output: the state or out that is the result; None: the only out, the only state, or the state h.
    num_layers, batch_first, dropout, bidirectional, bias: as of torch.nn.LSTM, but that the batch comes first.
    init: how params begin: a name ("uniform", "orthogonal", "zeros") or a function for all of them, or a mapping from
        params to such. None: a declared default, uniform inside a declared range, else uniform as in torch.nn.
    options: of cellc.compile (cell, solver, tolerance, …), as a mapping.
    sizes: lengths of the axes of the cell: ``Recurrence("my.cell", d=64)``.

    ``forward`` gives (y, finals): y is [B, T, width] (or [T, B, width], or [T, width], or a PackedSequence, as the input
    is), and finals has the states after the last step for each layer, and in it each direction.
    """

    def __init__(
        self,
        source: Cell | str | os.PathLike[str],
        input_size: int | None = None,
        *,
        output: str | None = None,
        num_layers: int = 1,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        bias: bool = True,
        init: Initialiser | Mapping[str, Initialiser] | None = None,
        options: Mapping[str, Any] | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **sizes: int,
    ):
        super().__init__()
        compiled = source if isinstance(source, Cell) else compile(source, **(options or {}))
        self.function = Function(compiled, sizes if num_layers == 1 or input_size is not None else None)
        cell = self.cell
        self.input_size, self.num_layers, self.batch_first = input_size, num_layers, batch_first
        self.dropout, self.bidirectional, self.output = dropout, bidirectional, _output_of(cell, output)
        if not 0 <= dropout <= 1:
            raise OptionError(f"dropout {dropout}: expected a number from 0 to 1")
        if num_layers < 1:
            raise OptionError(f"num_layers {num_layers}: expected 1 or more")
        unknown = [axis for axis in sizes if axis not in cell.axes]
        if unknown:
            raise ArgumentError(f"the cell has no axis '{unknown[0]}'; it has {', '.join(cell.axes) or 'none'}", unknown[0])
        sizes = {**{axis: length for axis, length in cell.axes.items() if length is not None}, **sizes}
        missing = [axis for axis in cell.axes if axis not in sizes]
        if missing:
            raise ArgumentError(f"the length of axis {missing[0]} is missing: {missing[0]}=…", missing[0])
        axes = cell.states.get(self.output) or cell.outs.get(self.output) or ()
        self.width = math.prod(sizes[a] for a in axes) * (2 if bidirectional else 1)
        names = {name: init for name in cell.params} if init is None or isinstance(init, str) or callable(init) else init
        for name in names:
            if name not in cell.params:
                raise ArgumentError(f"init: the cell has no param '{name}'; it has {', '.join(cell.params)}", "init")
        kind = {"device": device, "dtype": dtype}
        self.layers = nn.ModuleList()
        for layer in range(num_layers):
            width = input_size if layer == 0 or input_size is None else self.width
            here = sizes if layer == 0 else self._sizes_above(sizes)
            for _ in range(2 if bidirectional else 1):
                self.layers.append(_Layer(self.function, width, here, dict(names), bias, kind))

    @property
    def cell(self) -> Cell:
        return self.function.cell

    def _sizes_above(self, sizes: dict[str, int]) -> dict[str, int]:
        """Of a layer that reads another one's results."""
        if self.input_size is not None:
            return sizes
        inputs = list(self.cell.inputs.values())
        if len(inputs) != 1 or len(inputs[0]) != 1:
            raise OptionError("several layers of a cell whose inputs are not one vector need input_size")
        axis = inputs[0][0]
        if self.width != sizes[axis] and any(axis in axes for axes in self.cell.states.values()):
            raise OptionError(f"a layer's {self.width} results are not the {sizes[axis]} entries that the next one reads")
        return {**sizes, axis: self.width}

    def reset_parameters(self) -> None:
        for layer in self.layers:
            layer.reset_parameters()

    def forward(
        self,
        x: torch.Tensor | PackedSequence | None = None,
        start: Any = None,
        *,
        offsets: Any = None,
        **inputs: torch.Tensor,
    ) -> tuple[Any, tuple[Any, ...]]:
        """x: features; or, for a cell with several inputs and no input_size, each input by its name, batch first.
        start: for each layer, and in it each direction, states by name: what an earlier call gave as finals. Or as in
            torch.nn: a tensor for each state of the cell, (h, c), or the only one, [layers and directions, B, axes…]; also
            by name, {"h": h}, and then of one layer in one direction without the first axis.
        offsets: of packed sequences; x is then [all steps, features]."""
        if isinstance(x, PackedSequence):
            return self._forward_packed(x, start)
        starts = self._starts(start)
        time_first = not self.batch_first and x is not None and x.dim() == 3 and offsets is None
        y = x.transpose(0, 1) if time_first else x
        directions = 2 if self.bidirectional else 1
        finals: list[Any] = []
        for index in range(self.num_layers):
            parts = []
            for direction in range(directions):
                at = index * directions + direction
                layer = self.layers[at]
                named = self._inputs(layer, y, inputs)
                results, final = self.function(
                    {**named, **dict(layer.params.items()), **starts[at]},
                    return_final=True, offsets=offsets, reverse=direction == 1, sizes=layer.sizes,
                    write=(self.output,),
                )  # fmt: skip
                rows = getattr(results, self.output)
                flat = rows.dim() - len(self.cell.states.get(self.output, self.cell.outs.get(self.output, ())))
                parts.append(rows.flatten(flat) if rows.dim() > flat else rows.unsqueeze(-1))
                finals.append(final)
            y = parts[0] if directions == 1 else torch.cat(parts, -1)
            if self.dropout and index + 1 < self.num_layers:
                y = nn.functional.dropout(y, self.dropout, self.training)
        return (y.transpose(0, 1) if time_first else y), tuple(finals)

    def _starts(self, start: Any) -> list[dict[str, Any]]:
        """For each layer, and in it each direction."""
        count, states = len(self.layers), self.cell.starts
        if start is None:
            return [{}] * count
        if isinstance(start, torch.Tensor):
            start = (start,)
        if _has_names(start):
            return self._split(_by_name(start), count == 1)
        if not isinstance(start, (list, tuple)):
            raise ArgumentError(
                f"start: expected what a call gave as finals, or a tensor for each of {', '.join(states)}, not "
                f"{type(start).__name__}",
                "start",
            )
        if start and all(isinstance(part, torch.Tensor) for part in start):
            if len(start) != len(states):
                raise ArgumentError(f"start: a tensor for each of {', '.join(states)}, not {len(start)}", "start")
            return self._split(dict(zip(states, start)), False)
        if len(start) != count or not all(_has_names(part) for part in start):
            raise ArgumentError(
                f"start: expected states by name, {count} times: for each layer, and in it each direction; got "
                f"{', '.join(type(part).__name__ for part in start) or 'none'}",
                "start",
            )
        return [_by_name(part) for part in start]

    def _split(self, named: Mapping[str, Any], may_be_whole: bool) -> list[dict[str, Any]]:
        """Of tensors whose first axis counts layers and directions. may_be_whole: of one, which may lack that axis."""
        count, cell = len(self.layers), self.cell
        parts: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, state in named.items():
            if name not in cell.starts and name not in cell.histories:
                known = ", ".join([*cell.starts, *cell.histories])
                raise ArgumentError(f"start: the cell has no state '{name}'; it has {known}", "start")
            before = [str(count), "B"] if name in cell.starts else [str(count), "B", "n"]
            axes = cell.starts[name] if name in cell.starts else cell.histories[name]
            rank = len(before) + len(axes)
            if not isinstance(state, torch.Tensor) or may_be_whole and state.dim() < rank:
                for part in parts:
                    part[name] = state
                continue
            if state.dim() not in (rank - 1, rank) or state.shape[0] != count:
                raise ShapeError(
                    f"start: '{name}' has shape {tuple(state.shape)}; expected [{', '.join([*before, *axes])}], an entry for "
                    "each layer, and in it each direction",
                    "start",
                )
            for at, part in enumerate(parts):
                part[name] = state[at]
        return parts

    def _inputs(self, layer: _Layer, x: torch.Tensor | None, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        if x is not None:
            if inputs:
                raise ArgumentError("either features or inputs by name", next(iter(inputs)))
            if layer.projection is None and len(layer.input_shapes) != 1:
                names = ", ".join(layer.input_shapes)
                raise ArgumentError(f"the cell has the inputs {names}: give them by name, or give input_size", "x")
            return layer.inputs_from(x)
        for name in inputs:
            if name not in layer.input_shapes:
                raise ArgumentError(f"the cell has no input '{name}'; it has {', '.join(layer.input_shapes)}", name)
        if layer.projection is not None or self.num_layers > 1:
            raise ArgumentError("the module takes features, not inputs by name", "x")
        return dict(inputs)

    def _forward_packed(self, x: PackedSequence, start: Any) -> tuple[PackedSequence, tuple[Any, ...]]:
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        taken = torch.arange(padded.shape[1], device=padded.device) < lengths.to(padded.device)[:, None]
        offsets = [0, *lengths.cumsum(0).tolist()]
        rows, finals = self.forward(padded[taken], start, offsets=offsets)
        result = rows.new_zeros(*taken.shape, rows.shape[-1]).masked_scatter(taken[..., None], rows)
        packed = pack_padded_sequence(result, lengths, batch_first=True, enforce_sorted=x.sorted_indices is None)
        return packed, finals

    def step(self, x: torch.Tensor, start: Any = None) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """One step, for generation: x is [B, features] or [features]; gives (y, finals) to go on from."""
        if self.bidirectional:
            raise OptionError("a bidirectional module has no single steps")
        alone = x.dim() == 1
        if alone:
            y, finals = self.forward(x[None], start)
            return y[0], finals
        y, finals = self.forward(x[:, None] if self.batch_first else x[None], start)
        return (y[:, 0] if self.batch_first else y[0]), finals

    @classmethod
    def from_torch(cls, module: nn.LSTM | nn.GRU, **options: Any) -> Recurrence:
        """The same layers with the same weights; without biases, where the module has none."""
        sizes = {"d": module.hidden_size, "m": module.input_size} if isinstance(module, (nn.LSTM, nn.GRU)) else {}
        if isinstance(module, nn.LSTM) and module.proj_size > 0:
            text, gates = PROJECTED_LSTM, "ifgo"
            sizes["p"] = module.proj_size
        elif isinstance(module, nn.LSTM):
            text, gates = LSTM, "ifgo"
        elif isinstance(module, nn.GRU):
            text, gates = GRU, "rzn"
        else:
            raise ArgumentError(f"expected torch.nn.LSTM or torch.nn.GRU, not {module}", "module")
        made = cls(
            text if module.bias else _without_biases(text), **sizes, num_layers=module.num_layers, output="h",
            batch_first=module.batch_first, dropout=module.dropout, bidirectional=module.bidirectional,
            device=module.weight_ih_l0.device, dtype=module.weight_ih_l0.dtype, **options,
        )  # fmt: skip
        made.train(module.training)
        with torch.no_grad():
            for at, layer in enumerate(made.layers):
                directions = 2 if module.bidirectional else 1
                suffix = f"_l{at // directions}" + ("_reverse" if at % directions else "")
                _take_over(layer.params, module, suffix, gates)
        return made

    def extra_repr(self) -> str:
        sizes = ", ".join(f"{axis}={length}" for axis, length in self.layers[0].sizes.items())
        text = f"{self.cell.name}, {sizes}, output={self.output}"
        if self.num_layers > 1:
            text += f", num_layers={self.num_layers}"
        return text + (", bidirectional=True" if self.bidirectional else "")


def _take_over(params: nn.ParameterDict, module: nn.Module, suffix: str, gates: str) -> None:
    def split(kind: str) -> dict[str, torch.Tensor]:
        return dict(zip(gates, getattr(module, kind + suffix).chunk(len(gates))))

    inputs, states = map(split, ("weight_ih", "weight_hh"))
    for gate in gates:
        params["W" + gate].copy_(inputs[gate])
        params["U" + gate].copy_(states[gate])
    if "P" in params:
        params["P"].copy_(getattr(module, "weight_hr" + suffix))
    if not module.bias:
        return
    b_inputs, b_states = map(split, ("bias_ih", "bias_hh"))
    for gate in gates:
        apart = gate == "n"  # of the GRU, whose reset gate multiplies one of the two
        params["b" + gate].copy_(b_inputs[gate] if apart else b_inputs[gate] + b_states[gate])
        if apart:
            params["bu"].copy_(b_states[gate])


def _output_of(cell: Cell, asked: str | None) -> str:
    known = [*cell.outs, *cell.states]
    if asked is not None:
        if asked not in known:
            raise ArgumentError(f"output: there is no state or out '{asked}'; there is {', '.join(known)}", "output")
        return asked
    if len(cell.outs) == 1:
        return next(iter(cell.outs))
    if not cell.outs and len(cell.states) == 1:
        return next(iter(cell.states))
    if not cell.outs and "h" in cell.states:
        return "h"
    raise ArgumentError(f"output: which of {', '.join(known)}?", "output")
