#!/usr/bin/env python3
"""What a step of one sequence of a narrow cell costs in shipped code, for batches that lie side by side in vectors and
for the same call one sequence after another (which is what it does with a workspace that has no room for lanes).

    bench/shipped_batches.py build/cellc [--backward] [--cpu NAME] [--dtype f32|f64] [--cells NAME …]

With --backward: the gradients of all inputs, starts and params, for cotangents of all rows.
Nanoseconds a step of a sequence: the least of many calls of 1,000 steps, processor time. `steps last`: rows lie as [sequence, step], as
they do by default; `steps first`: as [step, sequence]. Then the bytes of code and data of the library.
"""

import argparse
import ctypes
import json
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CELLS = ["40_logistic", "42_pid", "37_biquad2t", "x16_biquad1", "01_para_gru"]
STEPS, BATCHES = 1000, [8, 64, 1024]


class Shipped:
    def __init__(self, program, cell, cpu, dtype, folder, backward):
        library = pathlib.Path(folder) / f"lib{cell}.so"
        command = [program, "build", ROOT / "dsl-examples" / f"{cell}.cell", "--target", "cpu-shared", "-o", library]
        command += ["--backward"] * backward
        self.direction = "backward" if backward else "forward"
        said = subprocess.run([*command, "--cpu", cpu, "--dtype", dtype, "--json"], check=True, capture_output=True)
        self.facts = json.loads(said.stdout)
        self.number = ctypes.c_double if dtype == "f64" else ctypes.c_float
        self.bytes = subprocess.run(["size", library], check=True, capture_output=True, text=True).stdout.split()[9]
        loaded = ctypes.CDLL(str(library))
        first = 4 if backward else 0
        self.workspace, self.forward = (getattr(loaded, name) for name in self.facts["functions"][first : first + 2])
        self.random = random.Random(1)

    def lengths(self, batch):
        values = {"sequences": batch, "steps": STEPS, "offsets": 0, "reverse": 0}
        members = self.facts["lengths"]
        return (ctypes.c_int64 * len(members))(*(values.get(name, 1) for name in members))

    def room(self, batch):
        size = ctypes.c_int64()
        assert self.workspace(self.lengths(batch), ctypes.byref(size)) == 0
        return size.value

    def arrays(self, batch, steps_first):
        """The struct's words, and the memory that they point to: all rows, what must be given, and gradients."""
        words, held = [], []
        for array in self.facts["arrays"][self.direction]:
            here = 0
            if array["strides"] or array["required"] or (self.direction == "backward" and array["written"]):
                count = batch * (STEPS if array["strides"] else 16)  # histories are less deep
                numbers = [self.random.uniform(0.1, 0.5) for _ in range(1 if array["written"] else count)]
                held.append((self.number * count)(*numbers))
                here = ctypes.addressof(held[-1])
            words += [here, 1, batch] if array["strides"] and steps_first else [here] + [0, 0] * array["strides"]
        return (ctypes.c_int64 * len(words))(*words), held

    def nanoseconds(self, batch, room, steps_first):
        lengths, (arrays, held) = self.lengths(batch), self.arrays(batch, steps_first)
        size = self.room(room)
        workspace = ctypes.create_string_buffer(size)
        best, until = float("inf"), time.perf_counter() + 0.5
        while time.perf_counter() < until:
            begin = time.thread_time()
            result = self.forward(lengths, arrays, workspace, ctypes.c_int64(size), None)
            best = min(best, time.thread_time() - begin)
            assert result == 0, result
        del held
        return best * 1e9 / (batch * STEPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--cpu", default="x86-64-v3")
    parser.add_argument("--dtype", default="f32", choices=["f32", "f64"])
    parser.add_argument("--cells", nargs="*", default=CELLS)
    options = parser.parse_args()
    print(f"{options.dtype}, {options.cpu}" + " " * 20 + "one by one   side by side: steps last   steps first")
    with tempfile.TemporaryDirectory() as folder:
        for cell in options.cells:
            shipped = Shipped(options.program, cell, options.cpu, options.dtype, folder, options.backward)
            for batch in BATCHES:
                plain, last, first = (shipped.nanoseconds(batch, room, order)
                                      for room, order in ((1, False), (batch, False), (batch, True)))
                print(f"{cell:16} {batch:5} sequences {plain:12.2f} {last:24.2f} {first:13.2f}")
            print(f"{cell:16} {shipped.bytes} bytes")


if __name__ == "__main__":
    main()
