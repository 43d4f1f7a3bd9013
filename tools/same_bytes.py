"""Fingerprints of everything that onnxq writes, to show that a change of the code has changed no byte of it.

    python -m tools.same_bytes write before.json [--models FOLDER ...] [--efforts 0 1] [--targets NAME ...]
    python -m tools.same_bytes compare before.json after.json [--except FILE ...]

The networks of `tests/golden_graphs.py` are quantized for every target, and so is each FOLDER that holds a model.onnx
with samples in `calibration`. A report's clock and paths are left out; a refused run is its error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

import onnxq
from onnxq.errors import OnnxqError
from tests.golden_graphs import GOLDEN

OWN = ("report.json", "plan.json", "qparams.json")
VOLATILE = ("seconds", "clock", "time", "version", "command", "peak_memory")
"""Keys of onnxq's own JSON files whose values are not the same in two runs."""
ADDED = ("float_codes",)
"""Keys that older versions do not write."""


def cases(folders: Sequence[Path]) -> Iterator[tuple[str, Any, Any]]:
    """Name, model and data of everything that is quantized."""
    for name, build in GOLDEN.items():
        graph = build()
        yield f"golden/{name}", graph.model, graph.samples
    for folder in folders:
        yield f"zoo/{folder.name}", folder / "model.onnx", folder / "calibration"


def fingerprints(model: Any, data: Any, target: str, effort: int) -> dict[str, str]:
    """File -> hash of what is in it; one entry "refused" where nothing was written."""
    with tempfile.TemporaryDirectory(prefix="onnxq-bytes-") as scratch:
        folder = Path(scratch) / "out"
        given = onnx.ModelProto.FromString(model.SerializeToString()) if isinstance(model, onnx.ModelProto) else model
        try:
            onnxq.quantize(
                given,
                backend=target,
                data=data,
                config={"effort": effort, "samples": 16, "diagnose": False},
                out=folder,
            )
        except OnnxqError as error:
            return {"refused": str(error).replace(scratch, "")}
        return {
            path.relative_to(folder).as_posix(): _hash(path, scratch)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


def _hash(path: Path, scratch: str) -> str:
    content = path.read_bytes()
    if path.name in OWN:
        content = json.dumps(_steady(json.loads(content)), sort_keys=True).replace(scratch, "").encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        steady = {key: held for key, held in value.items() if not any(word in key for word in VOLATILE)}
        return {key: _steady(held) for key, held in steady.items() if key not in ADDED}
    if isinstance(value, list):
        return [_steady(held) for held in value]
    return re.sub(r"\b\d+(\.\d+)? (s|MiB|GiB)\b", "", value) if isinstance(value, str) else value


def write(path: Path, folders: Sequence[Path], efforts: Sequence[int], targets: Sequence[str]) -> None:
    found: dict[str, dict[str, str]] = {}
    for name, model, data in cases(folders):
        for effort in efforts:
            for target in targets:
                found[f"{name} {target} effort {effort}"] = fingerprints(model, data, target, effort)
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{name}: {len(found)} runs", flush=True)


def compare(before: Path, after: Path, left_out: Sequence[str] = ()) -> int:
    """Print what differs, run by run, and a summary by file; return the number of differing files."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    differing: Counter[str] = Counter()
    equal = 0
    for run in [*old, *(run for run in new if run not in old)]:
        if run not in old or run not in new:
            print(f"{run}: only {'after' if run in new else 'before'}")
            continue
        for file in sorted({*old[run], *new[run]} - set(left_out)):
            if old[run].get(file) == new[run].get(file):
                equal += 1
                continue
            differing[file] += 1
            print(f"{run}: {file}: {old[run].get(file, 'absent')[:300]} -> {new[run].get(file, 'absent')[:300]}")
    print(f"{equal} files of {len(old)} runs are the same, {differing.total()} differ: {dict(differing)}")
    return differing.total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("path", type=Path)
    writing.add_argument("--models", type=Path, nargs="*", default=[])
    writing.add_argument("--efforts", type=int, nargs="*", default=[0])
    writing.add_argument("--targets", nargs="*", default=None)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--except", dest="left_out", nargs="*", default=[], help="files that may differ")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return 1 if compare(arguments.before, arguments.after, arguments.left_out) else 0
    write(arguments.path, arguments.models, arguments.efforts, arguments.targets or onnxq.BACKENDS.names())
    return 0


if __name__ == "__main__":
    sys.exit(main())
