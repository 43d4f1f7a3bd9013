"""What a benchmark leaves behind: tables of rows, the machine they were measured on, and the command that made them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.avx2.environment import hidden_here

Row = dict[str, Any]
Tables = dict[str, list[Row]]

INSTRUCTIONS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
"""What decides how fast integer kernels are."""
PACKAGES = ("onnxq", "onnx", "onnxruntime", "numpy")
NOTHING = "(nothing measured)"
"""What stands in the place of a table without rows."""


class ReportError(ValueError):
    """A page cannot be made of these files."""


@dataclass(frozen=True)
class Result:
    """`tables` maps a title to its rows; `machine` maps a fact to its text; `command` may be several, one in a line."""

    benchmark: str
    command: str
    machine: Mapping[str, str]
    tables: Tables

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def markdown(self) -> str:
        titles = {title: f"### {title}\n\n" if title else "" for title in self.tables}
        return "\n".join(titles[title] + markdown_table(rows) for title, rows in self.tables.items())


def read_result(path: Path) -> Result:
    return Result(**json.loads(path.read_text(encoding="utf-8")))


def markdown_table(rows: Sequence[Row]) -> str:
    """A table with the columns of all rows; a column in which nothing stands is left out."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    keys = [key for key in keys if any(row.get(key, "") != "" for row in rows)]
    keys.sort(key=lambda key: key == "note")  # sorting is stable: only the notes move, to the end
    if not keys:
        return f"{NOTHING}\n"
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(_cell(row.get(key, "")) for key in keys) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")


def machine_facts() -> dict[str, str]:
    """Processor, cores, memory and versions: what times depend on."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = set(re.findall(r"\w+", "".join(re.findall(r"^(?:flags|Features)\s*:(.+)$", text, re.MULTILINE)[:1])))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": (model[1] if model else platform.machine()).strip(),
        "instructions": _instructions(flags),
        "cores": str(cores),
        "memory": f"{gigabytes:.0f} GiB",
        "system": platform.system(),
        "Python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        **({"torch": _version("torch")} if find_spec("torch") else {}),
    }


def _instructions(flags: Collection[str]) -> str:
    """Those that decide how fast integer kernels are; those of the processor that are hidden from onnxruntime apart."""
    found = [name for name in INSTRUCTIONS if name in flags]
    hidden = [name for name in found if name != "avx2"] if hidden_here() else []
    seen = ", ".join(name for name in found if name not in hidden) or "unknown"
    return f"{seen} ({', '.join(hidden)} hidden from onnxruntime by tools.avx2)" if hidden else seen


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from its folder"
