#!/usr/bin/env python3
"""How the code that two programs emit differs: the helper of `./dev kernels-diff COMMIT`.

Both programs are given every cell of dsl-examples/ and tests/cells/ and asked for all that they print or ship of it: plan,
derived cells, LLVM, machine code, CUDA C++ by every strategy; in f32, and the examples in bf16 too. Texts that are equal
are forgotten at once; the others are compared line by line. Refusals are texts too: a cell that one side no longer admits
shows.

Exit status: 0 all equal, 1 something differs, 2 wrong usage or a program that does not run.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ("dsl-examples", "tests/cells")
STAGES = {"plan": True, "lanes": False, "derive": False, "llvm": True, "cuda": True}  # whether they depend on the dtype
TARGETS = ("cuda-source", "cpu-object")
STRATEGIES = ("auto", "sequential", "segmented", "shooting", "newton", "scan", "persistent")
TABLE_ROWS = 60  # that are printed
SMALL = 8  # length of an axis that a program must know
PROBE = "cell probe[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n"

# ---------------------------------------------------------------------------------------------------------------------
# Running a program


def call(program, *arguments):
    """Status and text of a call; of one that fails, what it says."""
    done = subprocess.run((program,) + arguments, capture_output=True)
    if done.returncode:
        return done.returncode, f"refused, status {done.returncode}: {done.stderr.decode(errors='replace')}"
    return 0, done.stdout.decode(errors="replace")


def inspect(program, cell, *arguments):
    return call(program, "inspect", cell[0], "--cell", cell[1], "--cache-dir", "", *arguments)[1]


def build(program, cell, target, folder, *arguments):
    """Status, what was written (bytes) and its header; of a refusal, what it says."""
    out = os.path.join(folder, "kernel.cu" if target == "cuda-source" else "kernel.o")
    status, text = call(program, "build", cell[0], "--cell", cell[1], "--cache-dir", "", "--target", target, "-o", out,
                        *arguments)
    if status:
        return status, text.encode(), ""
    with open(out, "rb") as file:
        written = file.read()
    with open(os.path.join(folder, "kernel.h"), encoding="utf-8", errors="replace") as file:
        return 0, written, file.read()


def disassembled(written, folder):
    """An object file as text: code without addresses, and constants."""
    if not written.startswith(b"\x7fELF"):
        return written.decode(errors="replace")
    if not shutil.which("objdump"):
        return "sha256 " + hashlib.sha256(written).hexdigest()
    path = os.path.join(folder, "compared.o")
    with open(path, "wb") as file:
        file.write(written)
    parts = []
    for options in (("-d", "-r", "--no-show-raw-insn", "--no-addresses"), ("-s", "-j", ".rodata"), ("-t",)):
        shown = subprocess.run(("objdump",) + options + (path,), capture_output=True).stdout.decode(errors="replace")
        parts.append("\n".join(line for line in shown.splitlines() if path not in line))
    return "\n".join(parts) + "\n"


def known_by(program, folder):
    """What a program can be asked for: stages, targets and strategies."""
    path = os.path.join(folder, "probe.cell")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PROBE)
    status, _ = call(program, "inspect", path)
    if status:
        sys.exit(f"kernels-diff: {program} does not run")
    stages = call(program, "inspect", path, "--stage", "?")[1].split("the stages are")[-1]
    targets = call(program, "build", path, "--target", "?", "-o", os.path.join(folder, "x"))[1]
    known = {f"stage {name}" for name in STAGES if re.search(rf"\b{name}\b", stages)}
    known |= {f"target {name}" for name in TARGETS if name in targets.split("expected")[-1]}
    for name in STRATEGIES:
        said = build(program, (path, "probe"), "cuda-source", folder, "--solver", name)[1]
        if b"none of that name" not in said and b"not available in this version" not in said:
            known.add(f"strategy {name}")
    return known


# ---------------------------------------------------------------------------------------------------------------------
# Making texts comparable

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//.*|[\w.]+|\S')
DIRECTIVE_END = "\f"
COMMENT_OF_LLVM = re.compile(r'("(?:\\.|[^"\\])*")|[;].*')


class Comparison:
    """Turns texts into what is compared: with names replaced on the old side, or code alone."""

    def __init__(self, renames, code_only):
        self.renames = dict(renames)
        words = sorted(self.renames, key=len, reverse=True)
        self.words = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, words)) + r")(?!\w)") if words else None
        self.code_only = code_only
        # Most lines of most texts are those of a few templates.
        self.renamed, self.code = {}, {}

    def with_new_names(self, text):
        if not self.words:
            return text
        lines = text.split("\n")
        for i, line in enumerate(lines):
            if line not in self.renamed:
                self.renamed[line] = self.words.sub(lambda word: self.renames[word[0]], line)
            lines[i] = self.renamed[line]
        return "\n".join(lines)

    def code_of(self, text, kind):
        """Without comments and `#line`, a token a line: what is left says nothing of how a text is laid out."""
        if kind == "c":
            text = text.replace("\\\n", " ")
            if "/*" in text:
                text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        lines = []
        for line in text.split("\n"):
            key = (kind, line)
            if key not in self.code:
                self.code[key] = self.tokens_of(line, kind)
            if self.code[key]:
                lines.append(self.code[key])
        # A literal that a formatter has cut in two is one again.
        return "\n".join(lines).replace('"\n"', "")

    @staticmethod
    def tokens_of(line, kind):
        if kind == "c":
            if re.match(r"\s*#\s*line\b", line):
                return ""
            tokens = [token for token in TOKEN.findall(line) if not token.startswith("//")]
            # A directive ends with its line.
            return "\n".join(tokens + [DIRECTIVE_END] if tokens[:1] == ["#"] else tokens)
        if kind == "llvm":
            line = COMMENT_OF_LLVM.sub(lambda found: found[1] or "", line)
        return " ".join(line.split())

    @staticmethod
    def statements_of(code):
        """What code_of gives of C++, a statement a line, to be read."""
        text = re.sub(r" ?([^\w\s\"#]) ?", r"\1", code.replace("\n", " "))
        return re.sub(r"([;{}]) ?", r"\1\n", text.replace(DIRECTIVE_END, "\n"))

    def differing(self, old, new, kind):
        """The two texts to be shown, or None where they are equal."""
        if old == new:
            return None
        old = self.with_new_names(old)
        if old == new:
            return None
        if not self.code_only:
            return old, new
        old, new = self.code_of(old, kind), self.code_of(new, kind)
        if old == new:
            return None
        return (self.statements_of(old), self.statements_of(new)) if kind == "c" else (old, new)


# ---------------------------------------------------------------------------------------------------------------------
# One cell


def cells():
    found = []
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if not name.endswith(".cell"):
                continue
            path = os.path.join(ROOT, folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for cell, header in re.findall(r"^cell\s+(\w+)\s*(?:\[([^\]]*)\])?", text, flags=re.M):
                axes = [axis.strip() for axis in header.split(",") if axis.strip()]
                found.append((os.path.relpath(path, ROOT), cell, [axis for axis in axes if "=" not in axis]))
    return found


def needed_lengths(program, cell, folder):
    """`--dim` for what a shipped cell must know of lengths: as the program asks for it."""
    dims = []
    for _ in range(8):
        asked = re.search(rb"add --dim (\w+)=N", build(program, cell, "cuda-source", folder, *dims)[1])
        if not asked:
            break
        dims += ["--dim", f"{asked[1].decode()}={SMALL}"]
    return dims


def questions(cell, dims, known):
    """(name of the text, kind of text, what makes it of a program and a folder)."""
    small = [word for axis in cell[2] for word in ("--dim", f"{axis}={SMALL}")]
    dtypes = ("f32", "bf16") if "/dsl-examples/" in cell[0] else ("f32",)

    def shown(*arguments):
        return lambda program, folder: inspect(program, cell, *arguments)

    def built(target, *arguments):
        return lambda program, folder: build(program, cell, target, folder, *arguments)

    for stage, typed in STAGES.items():
        if f"stage {stage}" not in known:
            continue
        kind = {"llvm": "llvm", "cuda": "c"}.get(stage, "text")
        for dtype in dtypes if typed else (None,):
            arguments = ("--dtype", dtype) if dtype else ()
            yield stage + (f" {dtype}" if dtype else ""), kind, shown("--stage", stage, *arguments)
    if "stage cuda" in known:
        yield "cuda --whole f32", "c", shown("--stage", "cuda", "--whole")
        yield (f"cuda --whole --dim {SMALL} {dtypes[-1]}", "c",
               shown("--stage", "cuda", "--whole", "--dtype", dtypes[-1], *small))
    if "target cuda-source" in known:
        for dtype in dtypes[1:]:
            yield f"cuda-source auto {dtype}", "c", built("cuda-source", "--dtype", dtype, *dims)
        for strategy in STRATEGIES:
            if f"strategy {strategy}" in known:
                yield f"cuda-source {strategy} f32", "c", built("cuda-source", "--solver", strategy, *dims)
    if "target cpu-object" in known:
        for dtype in dtypes:
            yield f"cpu-object {dtype}", "object", built("cpu-object", "--dtype", dtype)


def unified(old, new, folder):
    """The difference as `diff -u` shows it, without its heading."""
    paths = [os.path.join(folder, name) for name in ("old.txt", "new.txt")]
    for path, text in zip(paths, (old, new)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else text + "\n")
    done = subprocess.run(("diff", "-u", *paths), capture_output=True)
    return done.stdout.decode(errors="replace").split("\n", 2)[-1]


def digest(answer):
    parts = [answer] if isinstance(answer, str) else [str(answer[0]), answer[1], answer[2]]
    return hashlib.sha256(b"\0".join(p if isinstance(p, bytes) else p.encode() for p in parts)).hexdigest()


def compare_cell(cell, programs, known, remembered, renames, code_only):
    """[(name, difference)] of one cell, how many texts were compared, and what the old program said, as digests: it
    need not be asked again where the new one says the same."""
    comparison = compare_cell.state = getattr(compare_cell, "state", None) or Comparison(renames, code_only)
    differences, digests, count = [], {}, 0
    label = f"{os.path.basename(cell[0])} {cell[1]}"
    cell = (os.path.join(ROOT, cell[0]),) + tuple(cell[1:])
    with tempfile.TemporaryDirectory() as folder:

        def note(name, old, new, kind):
            shown = comparison.differing(old, new, kind)
            if shown:
                differences.append((f"{label}: {name}", unified(*shown, folder)))
            return bool(shown)

        def readable(written, kind):
            return disassembled(written, folder) if kind == "object" else written.decode(errors="replace")

        dims = needed_lengths(programs[1], cell, folder)
        for name, kind, ask in questions(cell, dims, known):
            count += 1
            new = ask(programs[1], folder)
            key = " ".join([label, name, *dims])
            if remembered.get(key) == digest(new):
                continue
            old = ask(programs[0], folder)
            digests[key] = digest(old)
            if isinstance(old, str):
                # Equal LLVM is equal machine code: it is looked at where it may differ.
                if note(name, old, new, kind) and kind == "llvm":
                    assembly = [inspect(p, cell, "--stage", "asm", "--dtype", name.split()[-1]) for p in programs]
                    note(name.replace("llvm", "asm"), *assembly, "text")
            elif old != new:
                note(name, readable(old[1], kind), readable(new[1], kind), "text" if kind == "object" else kind)
                note(name + ", header", old[2], new[2], "c")
    return differences, count, digests


# ---------------------------------------------------------------------------------------------------------------------
# What is said of it


def read_renames(path):
    renames = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2:
                sys.exit(f"kernels-diff: {path}, line {number}: expected two words, `old new`")
            renames.append(words)
    return renames


class Memory:
    """Digests of what the old program says, by file of the cell (its digest: a cell that was edited is another)."""

    def __init__(self, path, program, chosen):
        self.path, self.all = path, {}
        self.keys = {cell[0]: self.digest_of(os.path.join(ROOT, cell[0])) for cell in chosen}
        self.program = self.digest_of(program)
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            if kept.get("program") == self.program:
                self.all = kept["texts"]

    @staticmethod
    def digest_of(path):
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def of(self, cell):
        return self.all.setdefault(f"{cell[1]} {self.keys[cell[0]]}", {})

    def save(self):
        if not self.path:
            return
        with open(self.path + ".part", "w", encoding="utf-8") as file:
            json.dump({"program": self.program, "texts": self.all}, file)
        os.replace(self.path + ".part", self.path)


def changed_lines(difference):
    return sum(line.startswith(("+", "-")) for line in difference.splitlines())


def by_hunk(differences):
    """[(texts, hunk)], the most frequent first: where a template changed, hundreds of texts differ in the same way."""
    texts = {}
    for name, difference in differences:
        for hunk in re.split(r"^@@.*@@.*\n", difference, flags=re.M):
            if hunk:
                texts.setdefault(hunk, {})[name] = True
    return sorted(((list(names), hunk) for hunk, names in texts.items()), key=lambda found: -len(found[0]))


def report(differences, folder, limit):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, difference in differences:
        with open(os.path.join(folder, re.sub(r"[^\w.=-]+", "_", name) + ".diff"), "w", encoding="utf-8") as file:
            file.write(difference)
    width = max(len(name) for name, _ in differences)
    rows = [f"{'text':{width}}  lines changed"]
    rows += [f"{name:{width}}  {changed_lines(difference):13}" for name, difference in differences]
    with open(os.path.join(folder, "table.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
    print("\n".join(rows[:TABLE_ROWS]))
    if len(rows) > TABLE_ROWS:
        print(f"and {len(rows) - TABLE_ROWS} more: {folder}/table.txt")
    hunks = by_hunk(differences)
    left, shown = limit, 0
    for names, hunk in hunks:
        if left <= 0:
            break
        print(f"\n=== {names[0]}" + (f" and {len(names) - 1} other texts" if len(names) > 1 else ""))
        lines = hunk.splitlines()
        print("\n".join(lines[:left]))
        left -= len(lines)
        shown += 1
    print(f"\n{shown} of {len(hunks)} different places are shown; all texts in full: {folder}")


def main():
    parser = argparse.ArgumentParser(prog="kernels-diff", description=__doc__.split("\n")[0])
    parser.add_argument("--old", required=True, help="the program that others are compared with")
    parser.add_argument("--new", required=True, help="the program of the working tree")
    parser.add_argument("--out", required=True, help="folder for the differences in full; it is emptied")
    parser.add_argument("--rename", metavar="FILE", help="lines `old new`: words replaced in the old texts first")
    parser.add_argument("--code", action="store_true", help="compare code alone: no comments, no #line, no layout")
    parser.add_argument("--only", metavar="TEXT", default="", help="cells whose file or name contains TEXT")
    parser.add_argument("--memory", metavar="FILE", help="where digests of the old program's texts are kept between calls")
    parser.add_argument("--limit", type=int, default=200, help="lines of differences that are printed")
    options = parser.parse_args()
    programs = (os.path.abspath(options.old), os.path.abspath(options.new))
    renames = read_renames(options.rename) if options.rename else []
    with tempfile.TemporaryDirectory() as folder:
        sides = [known_by(program, folder) for program in programs]
    known = sides[0] & sides[1]
    for what in sorted(sides[0] ^ sides[1]):
        print(f"left out: {what}, which only the {'old' if what in sides[0] else 'new'} program knows")
    chosen = [cell for cell in cells() if options.only in cell[0] or options.only in cell[1]]
    memory = Memory(options.memory, programs[0], chosen)
    differences, count = [], 0
    with concurrent.futures.ProcessPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(compare_cell, cell, programs, known, memory.of(cell), renames, options.code)
                for cell in chosen]
        for cell, job in zip(chosen, jobs):
            found, compared, digests = job.result()
            differences += found
            count += compared
            memory.of(cell).update(digests)
    memory.save()
    if not count:
        sys.exit("kernels-diff: nothing to compare")
    if differences:
        report(differences, os.path.abspath(options.out), options.limit)
    print(f"{len(chosen)} cells, {count} texts, {len(differences)} of them differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
