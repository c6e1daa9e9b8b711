"""What wheels for older glibc are made with (cmake/oldest_glibc): functions over what it has; a look at versions."""

import ctypes
import platform
import shutil
import subprocess

import pytest

from conftest import ROOT

FOLDER = ROOT / "cmake" / "oldest_glibc"
SOURCE = """
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
static void* thread(void* x) { *(double*)x = exp(*(double*)x); return x; }
double f(const char* file, double x) {
  struct stat found;
  pthread_t other;
  if (stat(file, &found) || pthread_create(&other, 0, &thread, &x) || pthread_join(other, 0)) return -1;
  return dlsym(dlopen(0, RTLD_NOW), "getpid") ? x + pow(found.st_size, 0) : -2;
}
"""


@pytest.fixture
def compiler():
    found = shutil.which("cc")
    if platform.machine() != "x86_64" or not found or not shutil.which("cmake") or not shutil.which("readelf"):
        pytest.skip("wheels for older glibc are built on x86-64, by cc, cmake and readelf")
    return found


def look(file):
    command = ["cmake", "-D", f"FILE={file}", "-D", "OLDEST=2.28", "-D", "READELF=readelf"]
    return subprocess.run([*command, "-P", str(FOLDER / "check_versions.cmake")], capture_output=True, text=True)


def test_what_2_28_has_not(compiler, tmp_path):
    (tmp_path / "f.c").write_text(SOURCE)

    def build(name, *sources):
        command = [compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", "-Wall", "-Werror", "-o", name, "f.c", *sources]
        subprocess.run([*command, "-lm", "-ldl", "-pthread"], cwd=tmp_path, check=True)
        call = ctypes.CDLL(str(tmp_path / name)).f
        call.argtypes, call.restype = [ctypes.c_char_p, ctypes.c_double], ctypes.c_double
        assert call(str(tmp_path / "f.c").encode(), 1.0) == pytest.approx(3.718281828459045, abs=1e-15)
        assert call(str(tmp_path / "none").encode(), 1.0) == -1
        return look(tmp_path / name)

    refused = build("plain.so")
    assert refused.returncode != 0 and "exp@GLIBC_2.29" in refused.stderr
    accepted = build("shimmed.so", str(FOLDER / "glibc_2_28.c"))
    assert accepted.returncode == 0, accepted.stderr
