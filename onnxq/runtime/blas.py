"""One thread for numpy's matrix products, where threads of onnxq's own work on different samples or layers.

OpenBLAS gives every product of some size to all cores, and its threads wait in loops for the next one: many small
products then cost several times the processor time that one thread takes, and on a busy machine more wall time too. One
thread also adds up in one order, however many cores there are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

_PREFIXES, _SUFFIXES = ("scipy_openblas", "openblas"), ("64_", "_64", "")
"""Names of OpenBLAS's functions: numpy's packages have their own prefix, and a suffix with 64-bit integers."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """numpy's OpenBLAS works with one thread inside; another library of matrix products stays as it is."""
    found = _thread_functions()
    if found is None:
        yield
        return
    get, put = found
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def _thread_functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """The functions of the OpenBLAS that numpy has loaded to read and to set the number of threads."""
    loaded = getattr(import_module("numpy._core._multiarray_umath"), "__file__", None)
    try:
        library = ctypes.CDLL(loaded)
    except OSError:
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if get is not None and put is not None:
                get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
                return get, put
    return None
