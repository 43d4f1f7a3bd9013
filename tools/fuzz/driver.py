"""A case run by onnxq in a fork of this process, and what it leaves behind.

The driver has imported onnxq, but not onnxruntime or torch, and has a single thread: so a fork of it is a fresh
process that is ready at once.
"""

from __future__ import annotations

import gc
import getpass
import importlib
import json
import os
import pkgutil
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tools.fuzz.cases import OUTPUTS, TEMPORARY, Case, write_case
from tools.fuzz.commands import Invocation
from tools.fuzz.corpus import Corpus
from tools.fuzz.hostile import CODE_MARK
from tools.fuzz.isolation import GIBIBYTE, Limits, exit_code, run_isolated, text_of
from tools.fuzz.outcomes import Ended

WITHOUT = ("onnxq.torchnet", "onnxq.qat", "onnxq.ptq.reconstruction", "onnxq.__main__")
"""Modules that load torch, or run something: left to the process that needs them."""

OF_LIBRARIES = frozenset({f"{TEMPORARY}/.ses", f"{TEMPORARY}/torchinductor_{getpass.getuser()}"})
"""What onnxruntime and torch themselves leave in TMPDIR when they are imported, whoever imports them."""

CRASH_FILES = "onnxq-crash-*.txt"
"""Where onnxq writes the traceback of a bug, which its message names."""

TORCH_LIMITS = Limits(cpu_seconds=90, memory_bytes=16 * GIBIBYTE)


def warm_up() -> None:
    """Import what every command imports. onnxruntime is left out, because it starts a thread when it is imported."""
    import onnxq

    _import_all(onnxq.__name__, list(onnxq.__path__))
    for name in ("PIL.Image", "rich.progress", "ml_dtypes", "onnx.shape_inference", "onnx.version_converter"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("the driver has more than one thread: a fork of it would be no fresh process")


def _import_all(package: str, folders: list[str]) -> None:
    for module in pkgutil.iter_modules(folders, f"{package}."):
        if not module.name.startswith(WITHOUT):
            imported = importlib.import_module(module.name)
            if module.ispkg:
                _import_all(module.name, list(imported.__path__))


def run_onnxq(arguments: Sequence[str]) -> int:
    """The command line, in this process: a native crash is to be seen, not turned into an error by its parent."""
    from onnxq.cli import run_here

    sys.argv = ["onnxq", *arguments]
    run_here()
    return 0


def make_runner(folder: Path, *, cpu_seconds: int = 300) -> Callable[[Sequence[str]], int]:
    """Runs onnxq in a fork for its files alone, and shows what it said if it failed."""

    def run(arguments: Sequence[str]) -> int:
        (folder / TEMPORARY).mkdir(parents=True, exist_ok=True)
        limits = Limits(cpu_seconds=cpu_seconds, memory_bytes=16 * GIBIBYTE)
        ended = run_isolated(lambda: run_onnxq(arguments), folder, folder / "said", limits)
        if ended.code != 0:
            print(ended.stdout, ended.stderr, sep="\n", file=sys.stderr)
        return ended.code if ended.code is not None else 3

    return run


def run_case(case: Case, corpus: Corpus, folder: Path, *, limits: Limits | None = None) -> Ended:
    """Write a case into a new folder and run it there. The folder stays until the caller removes it."""
    shutil.rmtree(folder, ignore_errors=True)
    place, said = folder / "case", folder / "said"
    place.mkdir(parents=True)
    said.mkdir()
    try:
        invocation = write_case(case, corpus, place)
    except Exception:  # a fault of the fuzzer, which has to be seen in its counts
        return Ended(code=None, fuzzer_error=traceback.format_exc())
    (said / "command").write_text("\0".join(invocation.arguments))
    before = _listing(place)
    own = TORCH_LIMITS if invocation.torch else limits or Limits()
    ended = run_isolated(lambda: _command_and_load(invocation, said, case.number), place, said, own)
    mark = place / CODE_MARK
    ran_code = mark.exists()
    mark.unlink(missing_ok=True)
    ended = _with_files(ended, invocation, place, said, before)
    return replace(ended, ran_code=ran_code and not case.kind.may_name_code)


def _command_and_load(invocation: Invocation, said: Path, number: int) -> int:
    """The command, and where it ended well, its model in onnxruntime as users load it."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # small models gain nothing from threads, which spin
    code = exit_code(lambda: run_onnxq(invocation.arguments))
    if code == 0 and invocation.model is not None and invocation.model.exists():
        (said / "loads").write_text("onnxruntime ended the process")
        (said / "loads").write_text(_loading_error(invocation.model))
    return code


def _loading_error(model: Path) -> str:
    """Why onnxruntime does not load a model, or nothing; without optimizations if the report says so."""
    report = model.parent / "report.json"
    said = report.exists() and "optimizer_refuses" in json.loads(report.read_text(encoding="utf-8"))["kinds"]
    return _session_error(model, optimize=True) and _session_error(model, optimize=not said)


def _session_error(model: Path, *, optimize: bool) -> str:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no base class of its own
        return str(error) or type(error).__name__
    return ""


def _with_files(ended: Ended, invocation: Invocation, place: Path, said: Path, before: set[str]) -> Ended:
    """What the process left behind; an output folder counts only where the command failed."""
    allowed = [path.relative_to(place).as_posix() for path in invocation.kept if path.is_relative_to(place)]
    if ended.code == 0:
        allowed.append(OUTPUTS)
    left = sorted(
        name
        for name in _listing(place) - before - OF_LIBRARIES
        if not any(name == start or name.startswith(f"{start}/") or start.startswith(f"{name}/") for start in allowed)
    )
    if ended.code is None:  # a process that was killed cannot clean up behind itself
        left = []
    tracebacks = "\n".join(text_of(path) for path in sorted((place / TEMPORARY).glob(CRASH_FILES)))
    said_in_all = f"{ended.stderr}\n{tracebacks}" if tracebacks else ended.stderr
    unloadable = text_of(said / "loads")
    return replace(ended, stderr=said_in_all, leftovers=tuple(left), does_not_load=unloadable)


def _listing(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
