"""An environment over that of this interpreter, whose onnxruntime asks the preloaded library for the processor."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tools.avx2.patch import without_cpuid

SOURCE = Path(__file__).with_name("hide_instructions.c")
CACHE = Path.home() / ".cache" / "onnxq-avx2"
SWITCHES = {
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Libraries that can be told, and are not patched; numpy as well, see `_numpy_switch`."""


@dataclass(frozen=True)
class Avx2Environment:
    """python     the interpreter whose onnxruntime is patched
    preloaded  what answers for the processor; without it that onnxruntime does not load
    """

    python: Path
    preloaded: Path

    def variables(self) -> dict[str, str]:
        """The variables that a program needs in this environment; programs that it starts inherit them."""
        return {**os.environ, **SWITCHES, **_numpy_switch(), "LD_PRELOAD": str(self.preloaded)}


def hidden_here() -> bool:
    """Whether this process runs in such an environment."""
    maps = Path("/proc/self/maps")
    return maps.exists() and f"/{SOURCE.stem}.so" in maps.read_text(encoding="utf-8")


def made(cache: Path = CACHE) -> Avx2Environment:
    """The environment for this interpreter's packages; made where it is not there yet."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("onnxruntime is not installed here")
    package = Path(spec.origin).parent
    (library,) = package.glob("capi/onnxruntime_pybind11_state*.so")
    state = library.stat()
    key = f"{SOURCE.read_text(encoding='utf-8')} {library} {state.st_size} {state.st_mtime_ns} {sys.version}"
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f"{folder.name}.{os.getpid()}"
        try:
            _make(unfinished, package, library)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Avx2Environment(folder / "bin" / "python", folder / f"{SOURCE.stem}.so")


def build_preloaded(folder: Path) -> Path:
    """The library that answers for the processor, compiled into a folder."""
    library = folder / f"{SOURCE.stem}.so"
    options = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, str(SOURCE), "-o", str(library), "-ldl"], check=True)
    return library


def _numpy_switch() -> dict[str, str]:
    """numpy warns of a feature that the processor or its build does not have."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(name for name in found if "AVX512" in name or name == "X86_V4")}


def _make(folder: Path, package: Path, library: Path) -> None:
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    build_preloaded(folder)
    places = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    site_packages = Path(places["purelib"])
    copy = site_packages / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("libonnxruntime.so*"))
    content, count = without_cpuid(library)
    (copy / "capi" / library.name).write_bytes(content)
    print(f"{count} cpuid instructions of onnxruntime replaced", file=sys.stderr)
    others = sysconfig.get_paths()["purelib"]
    (site_packages / "others.pth").write_text(f"import site; site.addsitedir({others!r})\n", encoding="utf-8")
