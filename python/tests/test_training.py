"""The training examples run, and say what they are to say: a few steps each."""

import re
import runpy
import sys

import pytest

pytest.importorskip("torch")

from conftest import ROOT  # noqa: E402

# Which models or lengths have a line, and what is in it.
EXAMPLES = {
    "parity": (["para_gru", "min_gru"], r"model=(\w+) .*at_100=(\d+\.\d)%.*at_10000=(\d+\.\d)%"),
    "tasks": (["para_gru"] * 3, r"task=\w+  model=(\w+) .*right=(\d+\.\d)%"),
    "first_token": (["64"], r"length=(\d+) .*right=(\d+\.\d)%"),
    "text": (["para_gru", "para_lstm", "own"], r"model=(\w+) .*held_out=(\d\.\d\d) bits a byte"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_few_steps(name, tmp_path, monkeypatch, capsys):
    options = {"tasks": ["--cell", "para_gru"], "text": ["--text", str(ROOT / "LICENSE")]}.get(name, [])
    script = str(ROOT / "examples" / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [script, "--quick", "--device", "cpu", "--curves", "c.png", *options])
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr()
    models, line = EXAMPLES[name]
    lines = [re.search(line, text) for text in said.out.splitlines()]
    assert all(lines) and [found[1] for found in lines] == models
    for found in lines:
        assert all(0 <= float(figure) <= 100 for figure in found.groups()[1:])
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no matplotlib" in said.err
    else:
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def tasks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import tasks

    return tasks


class Given:
    device, quick, letters, pairs, k, length = "cpu", False, 8, 3, 2, 24


def test_recall_asks_for_what_was_told(tasks):
    inputs, answers = tasks.recall(5, Given)
    for row, right in zip(inputs.tolist(), answers.tolist()):
        told = dict(zip(row[0:6:2], row[1:6:2]))
        assert right[:6] == [tasks.NOTHING] * 6 and sorted(row[6:]) == sorted(told)
        assert [told[key] - Given.letters for key in row[6:]] == right[6:]


def test_hops_lead_where_a_walk_leads(tasks):
    inputs, answers = tasks.hops(5, Given)
    some = 0
    for row, right in zip(inputs.tolist(), answers.tolist()):
        for t, answer in enumerate(right):
            place = t
            for _ in range(Given.k):
                back = [i for i in range(place) if row[i] == row[place]] if place >= 0 else []
                place = back[-1] + 1 if back else -1
            assert answer == (row[place] if place >= 0 else tasks.NOTHING)
            some += place >= 0
    assert some > 20


def test_keep_asks_for_the_nth(tasks):
    inputs, answers = tasks.keep(5, Given)
    for row, right in zip(inputs.tolist(), answers.tolist()):
        n = row[0] - 2 * Given.letters - 1
        assert right[:-1] == [tasks.NOTHING] * (len(row) - 1) and right[-1] == row[1 + n] < Given.letters
