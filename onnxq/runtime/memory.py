"""How much memory is left, so that calibration can decide how much to look at in one pass."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from onnxq.errors import ConfigError

_FALLBACK = 4 * 2**30

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def read_size(text: str | int) -> int:
    """Bytes from 2000000000, "500MB", "2 GB", "1.5g"; units are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(text).lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise ConfigError(f"a memory size is a number with a unit, such as 500MB or 2GB, got '{text}'")
    return size


def available_memory() -> int:
    """Bytes that can still be taken: what the system reports, or what is left of a container's limit if that is less.

    4 GB where neither can be read (systems other than Linux).
    """
    known = [size for size in (_system(), _container()) if size is not None]
    return min(known, default=_FALLBACK)


def peak_memory() -> int:
    """The most bytes that this process has held so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(held) * (1 if sys.platform == "darwin" else 1024)


def _system(path: Path = Path("/proc/meminfo")) -> int | None:
    text = _read(path)
    for line in (text or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
    if limit is None or used is None or not limit.strip().isdigit():
        return None
    # Files that were read count as used, but are given back as soon as somebody needs the memory.
    given_back = re.search(r"^inactive_file (\d+)$", _read(folder / "memory.stat") or "", re.MULTILINE)
    return max(0, int(limit) - int(used) + (int(given_back[1]) if given_back else 0))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None
