"""One command in a process of its own, which may do anything: raise, crash, hang, fill memory and disk.

The driver has imported onnxq, but not onnxruntime or torch, and has a single thread: so a fork of it is a fresh
process that is ready at once. A process gets limits on processor time, memory and size of files. Its time is counted in
seconds of the processor, so that nothing depends on what else the machine does; a process that stands still is found
by not using any.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import os
import pkgutil
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.fuzz.cases import OUTPUTS, TEMPORARY, Case, write_case
from tools.fuzz.commands import Invocation
from tools.fuzz.corpus import Corpus
from tools.fuzz.hostile import CODE_MARK
from tools.fuzz.outcomes import Ended

WITHOUT = ("onnxq.torchnet", "onnxq.qat", "onnxq.reconstruct", "onnxq.__main__")
"""Modules that load torch, or run something: left to the process that needs them."""

STANDSTILL_SECONDS = 120.0
"""Without using the processor; many times what a busy machine makes a process wait."""

OF_LIBRARIES = frozenset({f"{TEMPORARY}/.ses"})
"""What onnxruntime itself leaves in TMPDIR when it is imported, whoever imports it."""

GIBIBYTE = 2**30


@dataclass(frozen=True)
class Limits:
    cpu_seconds: int = 20
    memory_bytes: int = 5 * GIBIBYTE
    file_bytes: int = GIBIBYTE
    standstill_seconds: float = STANDSTILL_SECONDS


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


def run_isolated(action: Callable[[], int], folder: Path, said: Path, limits: Limits) -> Ended:
    """Run `action` in a fork, in `folder`, with its words written into files of the folder `said`.

    It returns an exit code or raises; `Ended` says what became of it, but for what only the caller knows.
    """
    said.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(action, folder, said, limits)
    status, used, out_of_time = _wait(child, limits)
    code = os.waitstatus_to_exitcode(status)
    return Ended(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=_text(said / "stdout"),
        stderr=_text(said / "stderr"),
        out_of_time=out_of_time,
        cpu_seconds=used,
    )


def _become(action: Callable[[], int], folder: Path, said: Path, limits: Limits) -> None:
    """The life of the forked process; it never returns."""
    code = 70
    try:
        os.setsid()
        _redirect(said)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 3))
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["TMPDIR"] = str(folder / TEMPORARY)
        tempfile.tempdir = None
        faulthandler.enable()
        faulthandler.register(signal.SIGXCPU, all_threads=True, chain=False)  # says where it hangs; the driver ends it
        code = _exit_code(action)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # the fork must not go on with the life of its parent, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def _exit_code(action: Callable[[], int]) -> int:
    """What the interpreter makes of the end of a program, its last rites included."""
    try:
        code = action()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    return code


def _redirect(said: Path) -> None:
    """File descriptors, not only Python's streams: libraries write there too."""
    for number, (path, flags) in enumerate(
        (
            ("/dev/null", os.O_RDONLY),
            (str(said / "stdout"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (str(said / "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        )
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115, for the life of the process
    sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115


def _wait(child: int, limits: Limits) -> tuple[int, float, bool]:
    """Status, seconds of processor time, and whether it had to be ended. Its whole session is ended with it."""
    handle = os.pidfd_open(child)
    out_of_time = False
    moved, used = time.monotonic(), 0.0
    try:
        while not select.select([handle], [], [], 0.1)[0]:
            now = _cpu_seconds(child)
            if now > used + 0.02:
                moved, used = time.monotonic(), now
            if used > limits.cpu_seconds + 0.1 or time.monotonic() - moved > limits.standstill_seconds:
                out_of_time = True
                os.kill(child, signal.SIGXCPU)  # faulthandler writes where it is
                select.select([handle], [], [], 0.5)
                _end_session(child)
        # Not yet reaped, so that the number of the session still belongs to it.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        _end_session(child)
        _, status, usage = os.wait4(child, 0)
    finally:
        os.close(handle)
    spent = usage.ru_utime + usage.ru_stime
    return status, spent, out_of_time or spent >= limits.cpu_seconds


def _end_session(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def run_onnxq(arguments: Sequence[str]) -> int:
    """The command line, in this process."""
    from onnxq.cli import main

    sys.argv = ["onnxq", *arguments]
    main()
    return 0


def make_runner(folder: Path, *, cpu_seconds: int = 300) -> Callable[[Sequence[str]], int]:
    """Runs onnxq in a fork for its files alone, and shows what it said if it failed."""

    def run(arguments: Sequence[str]) -> int:
        (folder / TEMPORARY).mkdir(parents=True, exist_ok=True)
        limits = Limits(cpu_seconds=cpu_seconds, memory_bytes=16 * GIBIBYTE)
        ended = run_isolated(lambda: run_onnxq(arguments), folder, folder / "said", limits)
        if ended.code != 0:
            print(ended.stdout, ended.stderr, sep="\n", file=sys.stderr)
        return ended.code if ended.code is not None else 70

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
    own = limits or (TORCH_LIMITS if invocation.torch else Limits())
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
    code = _exit_code(lambda: run_onnxq(invocation.arguments))
    if code == 0 and invocation.model is not None and invocation.model.exists():
        (said / "loads").write_text("onnxruntime ended the process")
        (said / "loads").write_text(_loading_error(invocation.model))
    return code


def _loading_error(model: Path) -> str:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
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
    unloadable = _text(said / "loads")
    return replace(ended, leftovers=tuple(left), does_not_load=unloadable)


def _listing(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
