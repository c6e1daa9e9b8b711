#!/usr/bin/env python3
"""Every program of bench/ with arguments of figures that the docs quote: `./dev bench [NAME…]`.

With names, those programs whose names have one of them in it. A program that needs a card is left out with a line where
there is none. One that fails stops no other; the exit status is then 1, and 2 where a name is nobody's.
Programs take other arguments (each file of bench/ says which), and compare with other libraries in bench/against_*.py.
"""

import argparse
import os
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(ROOT, "dsl-examples")
ON_CPU, ON_CARD = False, True


def example(name):
    return os.path.join(EXAMPLES, name + ".cell")


def all_examples():
    return sorted(os.path.join(EXAMPLES, name) for name in os.listdir(EXAMPLES) if name.endswith(".cell"))


# Name, where it runs, and the arguments of each of its runs.
PROGRAMS = [
    ("cellc_bench_sequential", ON_CPU, [[]]),
    ("cellc_bench_strategies", ON_CPU, [[]]),
    # A fortieth of the rows: all of them take hours.
    ("cellc_bench_planner", ON_CPU, [["--sample", "40", "--limit", "1", "--memory", "200", *all_examples()]]),
    ("cellc_bench_capi", ON_CPU, [["1024", "256"]]),
    ("cellc_bench_filters", ON_CPU, [["5"]]),
    ("cellc_bench_windows", ON_CPU, [["1024", "1"], ["1024", "3"]]),
    ("cellc_bench_gradients", ON_CPU, [[example(cell), "1", "4096", "d=1024"] for cell in ("01_para_gru", "02_para_lstm")]),
    ("math_bench", ON_CPU, [[]]),
    ("cellc_bench_cuda", ON_CARD, [[example("01_para_gru")]]),
    ("cellc_bench_cuda_gradients", ON_CARD, [[example("01_para_gru"), "7", "5"], [example("02_para_lstm"), "8", "5"]]),
    ("cellc_bench_cuda_products", ON_CARD, [[]]),
    ("cellc_bench_cuda_dense", ON_CARD, [["all", "7"]]),
    ("cellc_bench_cases", ON_CARD, [[]]),
    ("cellc_bench_compile", ON_CARD, [[example("01_para_gru")]]),
    ("cellc_bench_call", ON_CARD, [[example("01_para_gru")]]),
]


def heading(text):
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text, flush=True)


def without_card(build):
    """Why nothing runs on a card; empty where something does."""
    run = ["run", example("01_para_gru"), "--random", "1", "--length", "8", "--dim", "d=2", "--device", "cuda"]
    done = subprocess.run([os.path.join(build, "cellc"), *run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"cellc run gives {done.returncode}"])[0]


def run(build, program, runs):
    """The runs that failed, in words."""
    failed = []
    for arguments in runs:
        shown = shlex.join([program, *(os.path.relpath(a, ROOT) if a.startswith(EXAMPLES) else a for a in arguments)])
        heading(shown if len(shown) < 150 else shown[:150] + " …")
        status = subprocess.run([os.path.join(build, program), *arguments]).returncode
        if status != 0:
            failed.append(f"{program}: exit status {status}")
            print(failed[-1], file=sys.stderr, flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(prog="dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="where the programs are")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of programs; all without")
    options = parser.parse_args()
    for name in options.names:
        if not any(name in program for program, _, _ in PROGRAMS):
            parser.error(f"no program has '{name}' in its name: {', '.join(program for program, _, _ in PROGRAMS)}")
    failed, reason = [], None
    for program, where, runs in PROGRAMS:
        if options.names and not any(name in program for name in options.names):
            continue
        if not os.path.exists(os.path.join(options.build, program)):
            heading(f"{program}: skipped: it is not built")
            continue
        if where == ON_CARD:
            reason = without_card(options.build) if reason is None else reason
            if reason:
                heading(f"{program}: skipped: {reason}")
                continue
        failed += run(options.build, program, runs)
    for line in failed:
        print(f"dev: bench: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
