#!/usr/bin/env python3
"""Errors of gradients of 16-bit runs over the examples: about the rounded trajectory, and with --recompute.

    bench/narrow_gradients.py build/cellc [CELL.cell ...]

Each cell runs on random data of the type; cotangents of everything that it writes are drawn. The error is what --verify
says: over |gradient| + the largest of its array, against the f64 reference from the same arrays. Prints a row a cell and
the median and the largest of all. Needs no package.
"""
import glob
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

BATCH, LENGTH = 2, 256


def write_npy(path, shape, numbers):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % "".join("%d, " % n for n in shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack("<%df" % len(numbers), *numbers))


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.strip()}


def errors_of(program, path, cell, dtype, directory):
    base = [program, "run", path, "--cell", cell, "--device", "cpu", "--json", "--random", "1", "--dtype", dtype]
    base += ["--batch", str(BATCH), "--length", str(LENGTH)]
    with open(path) as file:
        header = re.search(r"^\s*cell\s+%s\s*\[([^\]]*)\]" % cell, file.read(), re.M)
    for axis in header.group(1).split(",") if header else []:
        if "=" not in axis:
            base += ["--dim", axis.strip() + "=4"]
    ran = run(base)
    if "arrays" not in ran:
        return None
    given, random_numbers = [], random.Random(2)
    for name, array in sorted(ran["arrays"].items()):
        if name.endswith(".lag"):
            continue
        shape = array["shape"] if isinstance(array, dict) else array
        count = 1
        for n in shape:
            count *= n
        file = os.path.join(directory, name + ".npy")
        write_npy(file, shape, [random_numbers.uniform(-1, 1) for _ in range(count)])
        given += ["--cotangent", name + "=" + file]
    found = []
    for more in [], ["--recompute"]:
        verified = run(base + given + ["--verify"] + more).get("backward", {}).get("verify", {})
        found.append(verified.get("max_error"))
    return found


def main():
    program = sys.argv[1]
    files = sys.argv[2:] or sorted(glob.glob("dsl-examples/*.cell"))
    for dtype in "f16", "bf16":
        rows = []
        with tempfile.TemporaryDirectory() as directory:
            for path in files:
                with open(path) as file:
                    names = re.findall(r"^\s*cell\s+(\w+)", file.read(), re.M)
                for cell in names:
                    errors = errors_of(program, path, cell, dtype, directory)
                    if errors and None not in errors:
                        rows.append(errors)
                    print("%-5s %-28s %s" % (dtype, cell, errors and
                                             " ".join("-" if e is None else "%.1e" % e for e in errors)), flush=True)
        for i, what in enumerate(("rounded trajectory", "--recompute")):
            column = [row[i] for row in rows]
            print("%-5s %-20s %d cells: median %.1e, nine in ten below %.1e, largest %.1e" % (
                dtype, what, len(column), statistics.median(column),
                sorted(column)[int(0.9 * (len(column) - 1))], max(column)))


if __name__ == "__main__":
    main()
