"""The page docs/python.md: its blocks run as they stand, one after another."""

import re
import sys

import pytest

from conftest import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_some():
    assert len(BLOCKS) >= 6 and any("import torch" in block for block in BLOCKS)


def test_the_page(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {"__name__": "page"}
    with_torch = next(i for i, block in enumerate(BLOCKS) if "import torch" in block)

    def run(blocks):
        for block in blocks:
            exec(compile(block, "docs/python.md", "exec"), names)

    with monkeypatch.context() as plain:
        plain.setitem(sys.modules, "sympy", None)  # `pip install .` brings NumPy alone
        run(BLOCKS[:with_torch])
    pytest.importorskip("torch")
    run(BLOCKS[with_torch:])
    assert "^" in capsys.readouterr().out
