"""How much memory is left, so that calibration can decide how much to look at in one pass."""

from __future__ import annotations

from pathlib import Path

_FALLBACK = 4 * 2**30


def available_memory() -> int:
    """Bytes that can still be taken: what the system reports, or what is left of a container's limit if that is less.

    4 GB where neither can be read (systems other than Linux).
    """
    known = [size for size in (_system(), _container()) if size is not None]
    return min(known, default=_FALLBACK)


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
    return max(0, int(limit) - int(used))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None
