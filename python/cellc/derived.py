"""What was derived of a cell: structure, Jacobian and reasons, as text, as equations, as data."""

from __future__ import annotations

from typing import Any, Iterator


class Text(str):
    """A text that a prompt and a notebook show as it is."""

    def __repr__(self) -> str:
        return str(self)


class Stage:
    """States that are solved together. Attributes: as the keys of ``stages`` in docs/inspect-json.md; ``kind`` is
    its class: diagonal, block-diagonal, low-rank, …"""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.states: list[str] = data["states"]
        self.kind: str = data["class"]
        self.block: int | str = data["block"]
        self.linear: bool = data["linear"]
        self.time_invariant: bool = data["time_invariant"]
        self.scannable: str | None = data["scannable"]
        self.lanes: list[str] = data["channel_axes"]
        self.mask: list[str] = data["mask"]

    def __repr__(self) -> str:
        parts = [f"{{{', '.join(self.states)}}} {self.kind}", f"N = {self.block}"]
        parts.append("linear" if self.linear else "nonlinear")
        if self.scannable and not self.linear:
            parts.append(f"scannable as {self.scannable}")
        parts.append(f"lanes {', '.join(self.lanes) or 'none'}")
        return ", ".join(parts)


class Structure:
    """The structure of a cell: ``kind`` and ``block`` of its widest stage, and every stage in order."""

    def __init__(self, data: dict[str, Any]):
        widest = data["structure"] or {}
        self.kind: str | None = widest.get("class")
        self.block: int | str | None = widest.get("block")
        self.lanes: list[str] = widest.get("channel_axes", [])
        self.linear: bool = data["linear"]
        self.hoisted: list[str] = data["hoisted"]
        self.stages = [Stage(stage) for stage in data["stages"]]

    def __repr__(self) -> str:
        if not self.stages:
            return "no states"
        lines = [f"stage {i} {stage!r}" for i, stage in enumerate(self.stages, 1)]
        if self.hoisted:
            lines.append(f"computed before: {', '.join(self.hoisted)}")
        return "\n".join(lines)


class Block:
    """∂row'/∂col: ``text`` in the cell language, ``latex``, ``axes``."""

    def __init__(self, data: dict[str, Any]):
        self.row: str = data["row"]
        self.col: str = data["col"]
        self.text: str = data["text"]
        self.latex: str = data["latex"]
        self.axes: list[str] = data["axes"]

    def sympy(self) -> Any:
        """The formula as an expression of SymPy: names are symbols, a state its value before the step."""
        from .formulas import to_sympy

        return to_sympy(self.text)

    def __repr__(self) -> str:
        return f"∂{self.row}'/∂{self.col} = {self.text}"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {_derivative(self)} = {self.latex}$"


class Jacobian:
    """Blocks by pair of states, ``jacobian["h", "c"]`` for ∂h'/∂c; a pair that is not there is proved zero."""

    def __init__(self, data: dict[str, Any]):
        self.blocks = [Block(block) for block in data["jacobian"]]
        self._by_pair = {(block.row, block.col): block for block in self.blocks}
        self._definitions = data["definitions"]
        self._latex_definitions = data["latex_definitions"]
        self.states: list[str] = data["states"]

    def __getitem__(self, pair: tuple[str, str]) -> Block:
        if pair in self._by_pair:
            return self._by_pair[pair]
        raise KeyError(f"{pair}: that block is zero, or there is no such state")

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def text(self) -> str:
        lines = [f"{d['name']} = {d['text']}" for d in self._definitions]
        return "\n".join(lines + [repr(block) for block in self.blocks])

    @property
    def latex(self) -> str:
        lines = [f"{_symbol(d['name'])} &= {d['latex']}" for d in self._latex_definitions]
        lines += [f"{_derivative(block)} &= {block.latex}" for block in self.blocks]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def sympy(self) -> Any:
        """A matrix of SymPy over the states, in order. For cells whose blocks work entry by entry."""
        import sympy

        index = {name: i for i, name in enumerate(self.states)}
        matrix = sympy.zeros(len(self.states), len(self.states))
        for block in self.blocks:
            if block.row in index and block.col in index:
                matrix[index[block.row], index[block.col]] = block.sympy()
        return matrix

    def __repr__(self) -> str:
        return self.text or "zero"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex}$"


def _symbol(name: str) -> str:
    head = name.rstrip("0123456789")
    return f"{head}_{{{name[len(head):]}}}^{{(t)}}" if head != name else f"\\mathrm{{{name}}}^{{(t)}}"


def _derivative(block: Block) -> str:
    def value(name: str, time: str) -> str:
        quoted = name if len(name) == 1 else "\\mathrm{" + name.replace("_", "\\_") + "}"
        return f"{quoted}^{{({time})}}"

    return f"\\frac{{\\partial {value(block.row, 't')}}}{{\\partial {value(block.col, 't-1')}}}"


def explained(data: dict[str, Any], source: str) -> Text:
    """Why the structure is what it is: each reason with its line and a caret."""
    lines = [f"{data['cell']}: {_summary(data)}"]
    text = source.splitlines()
    for reason in data["why"]:
        lines.append(f"line {reason['line']}: {reason['text']}")
        if 0 < reason["line"] <= len(text):
            row = text[reason["line"] - 1]
            margin = len(row) - len(row.lstrip())
            lines += [f"    {row.lstrip()}", "    " + " " * max(reason["column"] - 1 - margin, 0) + "^"]
    lines.append(f"work: {data['flops_per_step']} operations a step and sequence")
    return Text("\n".join(lines))


def _summary(data: dict[str, Any]) -> str:
    return "; ".join(repr(stage) for stage in Structure(data).stages) or "no states"
