"""cellc by ctypes alone: any cell, by the names of its arrays, forward and backward, on NumPy arrays with any strides.

    follow = Cell(open("follower.cell").read(), dtype=np.float64)
    results = follow.forward({"x": x, "up": 0.5, "down": 0.125})     # {"h": …, "h.final": …}
    gradients = follow.backward({"x": x, "up": 0.5, "down": 0.125, **results}, {"h": np.ones_like(results["h"])})

Names are those of cellc_call_array_describe: "x", "h", "h.start", "h.final", "x.lag". Arrays of steps are [sequences,
steps, axes…], starts and finals [sequences, axes…], params [axes…]. On the CPU, in f32, f64 and f16.
"""

import ctypes as c
import os

import numpy as np

FORWARD, BACKWARD = 0, 1
VALUE, COTANGENT = 0, 1
DTYPES = {0: np.dtype("f4"), 1: np.dtype("f8"), 2: np.dtype("f2")}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
LEADING = {0: 2, 1: 1, 2: 2, 3: 0}  # of a layout: axes before those of the cell
i64, text, pointer = c.c_int64, c.c_char_p, c.c_void_p


class Struct(c.Structure):
    """A struct of cellc.h; one that begins with its size says so."""

    def __init__(self, **fields):
        super().__init__(**fields)
        if self._fields_[0][0] == "size":
            self.size = c.sizeof(self)


def struct(name, /, **fields):
    return type(name, (Struct,), {"_fields_": list(fields.items())})


Options = struct("Options", size=c.c_size_t, cell=text, dtype=c.c_int, device=text, cpu=text, solver=text,
                 threads=c.c_int, cache_dir=text, tolerance=c.c_double, max_iterations=c.c_int, no_repair=c.c_int,
                 trust_scans=c.c_int)
Axis = struct("Axis", size=c.c_size_t, name=text, length=i64)
Shape = struct("Shape", size=c.c_size_t, lengths=c.POINTER(i64), sequences=i64, steps=i64, offsets=c.POINTER(i64),
               reverse=c.c_int)
Info = struct("Info", size=c.c_size_t, name=text, owner=text, role=c.c_int, quantity=c.c_int, layout=c.c_int,
              dtype=c.c_int, written=c.c_int, null=c.c_int, required=c.c_int, axis_count=c.c_int,
              axes=c.POINTER(c.c_int), low=c.c_double, high=c.c_double, declared=text)
View = struct("View", data=pointer, dtype=c.c_int, rank=c.c_int, lengths=c.POINTER(i64), strides=c.POINTER(i64))
Request = struct("Request", size=c.c_size_t, direction=c.c_int, shape=c.POINTER(Shape), arrays=c.POINTER(View),
                 count=c.c_int, forward_status=pointer, report=pointer, on_stream=c.c_int, stream=pointer,
                 status=pointer)

library = c.CDLL(os.environ.get("CELLC_LIBRARY", "libcellc.so"))
library.cellc_last_error.restype = text


class CellcError(Exception):
    """What cellc_last_error says; `kind` is cellc_last_error_kind."""


def call(function, *arguments):
    if getattr(library, function)(*arguments) != 0:
        error = CellcError(library.cellc_last_error().decode())
        error.kind = library.cellc_last_error_kind()
        raise error


def ints(values):
    return (i64 * max(len(values), 1))(*values)


class Cell:
    def __init__(self, source, cell=None, dtype=np.float32, solver=None, threads=0):
        options = Options(cell=cell and cell.encode(), dtype=NUMBERS[np.dtype(dtype)], threads=threads,
                          solver=solver and solver.encode())
        self.handle, source = pointer(), source.encode()
        call("cellc_compile_text", source, c.c_size_t(len(source)), c.byref(options), c.byref(self.handle))
        self.axes = []
        for number in range(library.cellc_axis_count(self.handle)):
            call("cellc_axis_describe", self.handle, number, c.byref(axis := Axis()))
            self.axes.append((axis.name.decode(), axis.length))
        self.arrays = {direction: self.describe(direction) for direction in (FORWARD, BACKWARD)}

    def __del__(self):
        library.cellc_kernel_free(self.handle)

    def describe(self, direction):
        infos = [Info() for _ in range(library.cellc_call_array_count(self.handle, direction))]
        for number, info in enumerate(infos):
            call("cellc_call_array_describe", self.handle, direction, number, c.byref(info))
        return infos

    def shape(self, infos, given, sequences, steps, lengths, reverse):
        """The lengths of a call, from those of its arrays; cellc compares all of them."""
        found = {number: length for number, (_, length) in enumerate(self.axes) if length >= 0}
        found |= {number: lengths[name] for number, (name, _) in enumerate(self.axes) if name in lengths}
        for info in infos:
            if (array := given.get(info.name.decode())) is None:
                continue
            for place, axis in enumerate(info.axes[: info.axis_count]):
                found.setdefault(axis, np.shape(array)[np.ndim(array) - info.axis_count + place])
            sequences = np.shape(array)[0] if LEADING[info.layout] > 0 and sequences is None else sequences
            steps = np.shape(array)[1] if info.layout == 0 and steps is None else steps
        return Shape(lengths=ints([found[axis] for axis in range(len(self.axes))]), reverse=reverse,
                     sequences=1 if sequences is None else sequences, steps=1 if steps is None else steps)

    def run(self, direction, given, out, sequences=None, steps=None, lengths={}, reverse=False):
        infos = self.arrays[direction]
        shape = self.shape(infos, given, sequences, steps, lengths, reverse)
        views, results, kept, later = (View * len(infos))(), {}, [], []
        names = {info.name.decode(): info.written for info in infos}
        for name in [*(name for name in given if names.get(name, 1)), *(name for name in out if not names.get(name))]:
            raise CellcError(f"there is no array {name} to be {'read' if name in given else 'written'}")
        for number, info in enumerate(infos):
            name, dtype = info.name.decode(), DTYPES[info.dtype]
            if info.written:
                own, rank = (i64 * 16)(), c.c_int()
                call("cellc_call_array_shape", self.handle, direction, c.byref(shape), number, own, 16, c.byref(rank))
                results[name] = array = out[name] if name in out else np.empty(own[: rank.value], dtype)
            elif given.get(name) is None:
                continue
            else:
                array = np.asarray(given[name], dtype)
            if info.written and not array.flags.writeable:
                raise CellcError(f"array {name} is read-only")
            if any(stride % dtype.itemsize for stride in array.strides) or array.dtype != dtype:  # not in entries
                array = np.array(array, dtype, order="C")
                later += [(results[name], array)] if info.written else []
            strides = [stride // dtype.itemsize for stride in array.strides]
            views[number] = View(data=array.ctypes.data, dtype=info.dtype, rank=array.ndim, lengths=ints(array.shape),
                                 strides=ints(strides))
            kept.append(array)
        request = Request(direction=direction, shape=c.pointer(shape), arrays=views, count=len(infos))
        call("cellc_apply", self.handle, c.byref(request))
        for to, source in later:
            to[...] = source
        return results

    def forward(self, arrays, out={}, **sizes):
        """All that the cell writes, by name; in the arrays of `out` where it has them. `sizes`: sequences, steps and
        lengths={axis: length} that no array tells, and reverse."""
        return self.run(FORWARD, arrays, out, **sizes)

    def backward(self, arrays, cotangents, out={}, **sizes):
        """Gradients of what the forward run read, by its names. `arrays`: what it read and wrote; `cotangents`: dL/dh
        and so on, by the names of what it wrote."""
        values = {info.name.decode() for info in self.arrays[BACKWARD] if info.quantity == VALUE}
        others = {info.name.decode() for info in self.arrays[FORWARD]} - values  # that gradients do not read
        given = {name: array for name, array in arrays.items() if name not in others}
        given |= {"cotangent." + name: array for name, array in cotangents.items()}
        out = {"gradient." + name: array for name, array in out.items()}
        return {name[len("gradient."):]: array for name, array in self.run(BACKWARD, given, out, **sizes).items()}
