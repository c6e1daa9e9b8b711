"""The header for cffi: Python reads it as it is and runs a cell by it. Arguments: the header, the library, cellc.h."""

import re
import sys

import cffi

header, library, original = sys.argv[1:]
ffi = cffi.FFI()
ffi.cdef(open(header).read())
lib = ffi.dlopen(library)
names = re.findall(r"^CELLC_API [^;]*?\b(cellc_\w+)\(", open(original).read(), re.MULTILINE)
assert len(names) > 40 and all(hasattr(lib, name) for name in names)
assert (lib.CELLC_API_VERSION, lib.CELLC_F64, lib.CELLC_BACKWARD) == (1, 1, 1)
assert lib.cellc_api_require(lib.CELLC_API_VERSION, lib.CELLC_API_MINOR) == lib.CELLC_OK


def need(status):
    assert status == lib.CELLC_OK, ffi.string(lib.cellc_last_error())


def new(kind, **fields):
    return ffi.new(kind + "*", {"size": ffi.sizeof(kind), **fields})


text = b"cell decay[d] {\n  state h[d]\n  input x[d]\n  param a\n  h' = a*h + x\n}\n"
place = ffi.new("cellc_kernel**")
need(lib.cellc_compile_text(text, len(text), new("cellc_options", dtype=lib.CELLC_F64), place))
kernel = place[0]
x, a, h = ffi.new("double[]", [1, 10, 2, 20]), ffi.new("double[]", [0.5]), ffi.new("double[4]")
views = ffi.new("cellc_view[]", lib.cellc_call_array_count(kernel, lib.CELLC_FORWARD))
info = new("cellc_call_array_info")
for number, view in enumerate(views):
    need(lib.cellc_call_array_describe(kernel, lib.CELLC_FORWARD, number, info))
    data = {b"x": x, b"a": a, b"h": h}.get(ffi.string(info.name))
    if data is not None:
        view.data, view.dtype = data, lib.CELLC_F64
lengths = ffi.new("int64_t[]", [2])
shape = new("cellc_shape", lengths=lengths, sequences=1, steps=2)
need(lib.cellc_apply(kernel, new("cellc_request", direction=lib.CELLC_FORWARD, shape=shape, arrays=views,
                                 count=len(views))))
assert list(h) == [1, 10, 2.5, 25], list(h)
lib.cellc_kernel_free(kernel)
print("done")
