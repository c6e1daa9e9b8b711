#!/usr/bin/env python3
"""What cellc takes to compile cells of growing size: processor time, one thread, nothing cached.

    compile_growth.py build/cellc [--only ring] [--largest N] [--auto | --gpu sm_90]

Each family is run on the CPU over two steps by the sequential solver; --auto lets cellc look at 20,000 steps of data
instead. With --gpu kernels are compiled to PTX as a run of 20,000 steps would have them (no card is needed), and a
column more is the bytes of their source. Time that grows by more than the size did is a fault: the last column is its
exponent between two sizes.
"""
import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile


def chain(n, step):
    lines = "".join("  " + step.format(i=i, j=i - 1, c=0.001 * i) + "\n" for i in range(1, n))
    return f"cell chain {{\n  state h\n  input x\n  a0 = h + x\n{lines}  h' = 0.001*a{n - 1}\n}}\n"


def functions(n):
    calls = chain(n // 50, "a{i} = g(a{j})")
    return "fn f(x) = tanh(x*1.5 + 0.1)*0.5 + x\nfn g(x) = f(f(f(f(f(f(f(f(f(f(x))))))))))\n" + calls


def states(n, step):
    names = ", ".join(f"s{i} = {0.1 + 0.001 * i:g}" for i in range(n))
    lines = "".join("  " + step.format(i=i, a=(i + 1) % n, b=(i - 2) % n, c=max(i - 1, 0)) + "\n" for i in range(n))
    return f"cell states {{\n  state {names}\n  input x\n{lines}}}\n"


FAMILIES = {
    "cubes": (lambda n: chain(n, "a{i} = a{j} + ({c:g}*h + x)^3"), (500, 1000, 2000, 8000)),
    "sigmoids": (lambda n: chain(n, "a{i} = sigmoid(a{j} + x)"), (1500, 3000, 6000, 24000)),
    "functions": (functions, (10000, 30000, 90000)),
    "ring": (lambda n: states(n, "s{i}' = s{i} + 0.01*((s{a} - s{b})*s{c} - s{i} + x)"), (8, 40, 64, 1000, 4000)),
    "apart": (lambda n: states(n, "s{i}' = tanh(0.5*s{i} + x)"), (500, 1000, 4000)),
}
ON_GPU = {
    "ring": (FAMILIES["ring"][0], (8, 40)),
    "alike": (FAMILIES["apart"][0], (1, 8, 40)),
    "unlike": (lambda n: states(n, "s{i}' = tanh((0.1 + {i}/1000)*s{i} + x)"), (1, 8)),
}


def run(command):
    """Seconds of the processor, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, CELLC_CACHE_DIR=""))
    if done.returncode:
        sys.exit(f"compile_growth: {' '.join(command)}: {done.stderr[:500]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cellc")
    parser.add_argument("--only", choices=sorted({*FAMILIES, *ON_GPU}))
    parser.add_argument("--largest", type=int, default=100000)
    parser.add_argument("--auto", action="store_true")
    parser.add_argument("--gpu", metavar="ARCH")
    options = parser.parse_args()
    how = ["--length", "20000"] if options.auto else ["--length", "2", "--solver", "sequential"]
    print(f"{'family':<12}{'size':>8}{'seconds':>10}{'exponent':>10}{'source':>12}")
    for name, (text, sizes) in (ON_GPU if options.gpu else FAMILIES).items():
        if options.only not in (None, name):
            continue
        last = None
        for n in (n for n in sizes if n <= options.largest):
            with tempfile.NamedTemporaryFile("w", suffix=".cell") as file:
                file.write(text(n))
                file.flush()
                if options.gpu:
                    units = [options.cellc, "inspect", file.name, "--length", "20000", "--arch", options.gpu, "--stage"]
                    source = f"{len(run([*units, 'cuda', '--whole'])[1]):>12}"
                    took = run([*units, "ptx"])[0]
                else:
                    source = ""
                    took = run([options.cellc, "run", file.name, "--random", "1", "--batch", "1", "--threads", "1", *how])[0]
            growth = f"{math.log(took / last[1]) / math.log(n / last[0]):>10.2f}" if last else f"{'':>10}"
            print(f"{name:<12}{n:>8}{took:>10.2f}{growth}{source}", flush=True)
            last = (n, took)


if __name__ == "__main__":
    main()
