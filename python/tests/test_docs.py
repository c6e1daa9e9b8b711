"""The page docs/python.md: its blocks run as they stand, one after another."""

import re

import pytest

from conftest import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_some():
    assert len(BLOCKS) >= 6 and any("import torch" in block for block in BLOCKS)


def test_the_page(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {"__name__": "page"}
    for block in BLOCKS:
        if "import torch" in block:
            pytest.importorskip("torch")
        exec(compile(block, "docs/python.md", "exec"), names)
    assert "^" in capsys.readouterr().out
