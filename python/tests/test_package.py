"""The package by itself: what importing it takes, and what it leaves alone."""

import os
import subprocess
import sys

import pytest


def run(code, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, env={**kept, **environment}, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CELL = "cell c { state h\\n input x\\n h' = 0.5*h + x }"


def test_import_is_light():
    out = run("import sys, cellc; print([m for m in ('torch', 'sympy', 'jax') if m in sys.modules])")
    assert out == "[]\n"


@pytest.mark.parametrize("first", ["import cellc", ""])
@pytest.mark.parametrize("name", ["torch", "nn"])
def test_without_torch(name, first):
    """Everything else works, and one line says what is missing."""
    code = f"""
import sys
sys.modules["torch"] = None  # as if it were not installed
import cellc, numpy as np
assert cellc.compile('''{CELL}''', cache=False)(x=np.ones(2, 'f4')).h[1] == 1.5
try:
    {f"cellc.{name}" if first else f"import cellc.{name}"}
except ImportError as error:
    print(error)
"""
    assert run(code) == "cellc.torch and cellc.nn need torch: pip install 'cellc[torch]'\n"


def test_version():
    assert run("import cellc, importlib.metadata as m; print(cellc.__version__ == m.version('cellc'))") == "True\n"


def test_without_a_home():
    code = f"import cellc, numpy as np; print(cellc.compile('''{CELL}''')(x=np.ones(2, 'f4')).h)"
    assert run(code) == "[1.  1.5]\n"
    assert run(code, HOME="/proc") == "[1.  1.5]\n"
    assert run(code, HOME="/nonexistent") == "[1.  1.5]\n"


def test_no_effect_on_the_process():
    code = f"""
import locale, os, signal, threading
def state():
    signals = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGFPE)]
    return locale.setlocale(locale.LC_ALL), signals, dict(os.environ), os.getcwd(), threading.active_count()
before = state()
import cellc, numpy as np
cellc.compile('''{CELL}''', cache=False)(x=np.ones((4, 3000), 'f4'))
smallest = np.float32(1e-45)
assert smallest * np.float32(1) == smallest > 0  # subnormals are still there
assert state() == before
"""
    run(code)


def test_fork():
    code = f"""
import os, cellc, numpy as np
c = cellc.compile('''{CELL}''', cache=False)
x = np.ones((4, 3000), 'f4')
y = c(x=x).h
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(c(x=x).h, y) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    run(code)


def test_doctest():
    import doctest

    import cellc

    assert doctest.testmod(cellc).failed == 0
    assert doctest.testmod(cellc).attempted > 0
