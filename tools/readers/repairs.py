"""Steps that make an installed reader work on a current system."""

from __future__ import annotations

import platform
from pathlib import Path

BUNDLED = ("libc.so*", "libm.so*", "libpthread.so*", "libstdc++.so*", "libgcc_s.so*")
NEWER_THAN_BUNDLED = (2, 36)


def remove_bundled_c_library(environment: Path) -> None:
    """Remove the C and C++ libraries that tpu_mlir brings: with the loader of glibc 2.36 or newer they do not work."""
    if glibc_version() < NEWER_THAN_BUNDLED:
        return
    for folder in environment.glob("lib/python*/site-packages/tpu_mlir/lib/third_party"):
        for pattern in BUNDLED:
            for library in folder.glob(pattern):
                library.unlink()


def glibc_version() -> tuple[int, ...]:
    """The version of the C library, or () where it is another one."""
    library, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if library == "glibc" else ()
