"""Formulas of the cell language as expressions of SymPy, and lengths that depend on those of axes."""

from __future__ import annotations

import ast
import re
from functools import reduce
from typing import Any, Callable, Mapping


def length_of(formula: int | str, axes: Mapping[str, Any], larger: Callable[[Any, Any], Any] = max) -> Any:
    """The number that ``Cell.lags`` stands for: 3, "d", "d - 1", "max(3, d + 1)". axes: their lengths, which may be symbols
    of which ``larger`` knows the larger one."""

    def one(part: str) -> Any:
        first, *rest = part.split()  # a number; or an axis, whatever Python has under that name
        length = int(first) if first.isdigit() else axes[first]
        return length + int("".join(rest)) if rest else length

    return reduce(larger, map(one, str(formula).removeprefix("max(").removesuffix(")").split(", ")))


def to_sympy(text: str) -> Any:
    """Names are symbols, ``h'`` is the symbol "h'"; ``W[i,j]`` is an Indexed; ``W@x`` the function dot(W, x)."""
    # A name may be a word of Python (lambda), and has a prime after the step.
    named = re.sub(r"(?<![\w.])[A-Za-z_]\w*'?", lambda m: "n_" + m[0].replace("'", "__after"), text)
    python = named.replace("^", "**")
    return _convert(ast.parse(python, mode="eval").body)


def _name(node: ast.Name) -> str:
    return node.id.removeprefix("n_").replace("__after", "'")


def _is_truth(value: Any) -> bool:
    from sympy.core.relational import Relational
    from sympy.logic.boolalg import BooleanAtom

    return isinstance(value, (Relational, BooleanAtom))


def _number(value: Any) -> Any:
    """A comparison as the language has it: 1 or 0."""
    import sympy as sp

    return sp.Piecewise((1, value), (0, True)) if _is_truth(value) else value


def _condition(value: Any) -> Any:
    import sympy as sp

    return value if _is_truth(value) else sp.Ne(value, 0)


def _functions() -> dict[str, Any]:
    import sympy as sp

    def relu(x: Any) -> Any:
        return sp.Piecewise((x, x > 0), (0, True))

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + sp.exp(-x))

    return {
        "exp": sp.exp, "log": sp.log, "sqrt": sp.sqrt, "rsqrt": lambda x: 1 / sp.sqrt(x),
        "sin": sp.sin, "cos": sp.cos, "tanh": sp.tanh, "sigmoid": sigmoid, "relu": relu,
        "silu": lambda x: x * sigmoid(x), "gelu": lambda x: x * (1 + sp.erf(x / sp.sqrt(2))) / 2,
        "softplus": lambda x: sp.log(1 + sp.exp(x)), "erf": sp.erf, "abs": sp.Abs, "sign": sp.sign,
        "min": sp.Min, "max": sp.Max, "clip": lambda x, low, high: sp.Min(sp.Max(x, low), high),
        "pow": lambda x, y: x**y, "square": lambda x: x**2,
        "where": lambda c, a, b: sp.Piecewise((_number(a), _condition(c)), (_number(b), True)),
    }  # fmt: skip


def _convert(node: ast.expr) -> Any:
    import sympy as sp

    if isinstance(node, ast.Constant):
        value = node.value
        return sp.Integer(value) if isinstance(value, int) else sp.Float(value)
    if isinstance(node, ast.Name):
        return sp.Symbol(_name(node), real=True)
    if isinstance(node, ast.UnaryOp):
        operand = _number(_convert(node.operand))
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp):
        return _binary(node.op, _number(_convert(node.left)), _number(_convert(node.right)))
    if isinstance(node, ast.Compare):
        return _compared(node.ops[0], _number(_convert(node.left)), _number(_convert(node.comparators[0])))
    if isinstance(node, ast.Subscript):
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        entries = [sp.Symbol(_name(i), integer=True) if isinstance(i, ast.Name) else _convert(i) for i in indices]
        if not isinstance(node.value, ast.Name):
            return sp.Function("entry")(_convert(node.value), *entries)
        return sp.IndexedBase(_name(node.value))[tuple(entries)]
    if isinstance(node, ast.Call):
        return _called(node)
    raise ValueError(f"no expression of SymPy for '{ast.unparse(node)}'")


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    import sympy as sp

    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    if isinstance(op, ast.Div):
        return left / right
    if isinstance(op, ast.Pow):
        return left**right
    if isinstance(op, ast.MatMult):
        return sp.Function("dot")(left, right)
    raise ValueError(f"no expression of SymPy for the operator {type(op).__name__}")


def _compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    import sympy as sp

    relation = {ast.Gt: sp.Gt, ast.Lt: sp.Lt, ast.GtE: sp.Ge, ast.LtE: sp.Le, ast.Eq: sp.Eq, ast.NotEq: sp.Ne}
    return relation[type(op)](left, right)


def _called(node: ast.Call) -> Any:
    import sympy as sp

    arguments = [_convert(argument) for argument in node.args]
    if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
        axes = node.func.slice.elts if isinstance(node.func.slice, ast.Tuple) else [node.func.slice]  # of a reduction
        names = [_name(node.func.value), *(_name(axis) for axis in axes if isinstance(axis, ast.Name))]
        return sp.Function("_".join(names))(*map(_number, arguments))
    name = _name(node.func) if isinstance(node.func, ast.Name) else ""
    if name == "where":
        return _functions()[name](*arguments)
    return _functions().get(name, sp.Function(name))(*map(_number, arguments))
