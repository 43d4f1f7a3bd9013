"""The parent of a command: what it says when native code ends the child, and that it is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.cli.crash import INTERNAL_ERROR, native_crash
from onnxq.cli.supervise import output_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")

PROGRAM = """
import contextlib, ctypes, os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)  # whatever the tests were started with
signal.signal(signal.SIGINT, signal.default_int_handler)
from onnxq.cli import main
from onnxq.cli.app import TyperGroup
class Cleaning:
    def __enter__(self): pass
    def __exit__(self, *error): print("cleaned")
def command(*arguments):
    with {around}:
        print("ready", os.getpid(), flush=True)
        {body}
TyperGroup.invoke = command
sys.argv = ["onnxq", "quantize", "model.onnx", "-o", "out"]
main()
"""
"""The command line with a body instead of the commands."""

WAITS = "sys.stdin.read()"


def start(
    body: str, folder: Path, *, around: str = "contextlib.nullcontext()", **options: object
) -> subprocess.Popen[str]:
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", PROGRAM.replace("{body}", body).replace("{around}", around)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def child_of(process: subprocess.Popen[str]) -> int:
    """The process that runs the command, once it does."""
    assert process.stdout is not None
    word, number = process.stdout.readline().split()
    assert word == "ready"
    assert int(number) != process.pid
    return int(number)


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_segmentation_fault_is_an_error_that_says_where(tmp_path: Path) -> None:
    process = start("ctypes.string_at(0)", tmp_path)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.startswith("error: the process was ended by signal 11 (segmentation fault)")
    assert "Traceback" not in said
    (kept,) = tmp_path.glob("onnxq-crash-*.txt")
    assert str(kept) in said
    assert "string_at" in kept.read_text()


def test_what_a_crashed_child_was_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    writes = (
        "from pathlib import Path; from onnxq.output_folder import claim, staging; "
        "from onnxq.temporary import OwnedFolder; "
        "held, output = OwnedFolder(), claim(Path('out')); stage = staging(output.__enter__()); "
        "(stage.__enter__() / 'model.onnx').write_text('half'); print(held.path.is_dir(), flush=True); "
        "ctypes.string_at(0)"
    )
    said, _ = start(writes, tmp_path).communicate()
    assert said.endswith("True\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    assert list(tmp_path.glob("onnxq-tmp-*")) == []


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["quantize", "m.onnx", "-o", "out"], "out"),
        (["quantize", "--out", "out", "m.onnx"], "out"),
        (["quantize", "--out=out", "m.onnx"], "out"),
        (["quantize", "-oout", "m.onnx"], "out"),
        (["simulate", "m.onnx", "-o", "out/simulated.onnx"], "out"),
        (["simulate", "m.onnx", "-o", "gone/simulated.onnx"], None),
        (["inspect", "m.onnx"], None),
        (["quantize", "-o"], None),
    ],
)
def test_the_folder_of_a_command_is_found_however_it_is_written(
    words: list[str], folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    assert output_folder(words) == (None if folder is None else Path(folder))


def test_a_crash_is_told_though_an_old_delivery_cannot_be_finished(tmp_path: Path) -> None:
    stage = tmp_path / "out" / ".onnxq-stage-abcd1234"
    stage.mkdir(parents=True)
    (stage / "commit.json").write_text("no journal")
    process = start("ctypes.string_at(0)", tmp_path)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.startswith("error: the process was ended by signal 11")
    assert "Traceback" not in said


def test_the_message_names_the_library_and_what_it_was_working_for() -> None:

    inside = Path(onnxq.__file__).parent / "runtime" / "session.py"
    trace = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/x/site-packages/onnxruntime/capi/session.py", line 5 in __init__\n'
        f'  File "{inside}", line 70 in make_session\n'
    )
    message = native_crash(signal.SIGSEGV, trace)
    assert "while onnxruntime was working for onnxq.runtime.session.make_session" in message


def test_a_killed_child_is_most_often_out_of_memory(tmp_path: Path) -> None:
    process = start("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 137
    assert "most often memory ran out" in said


def test_exit_code_and_streams_pass_through(tmp_path: Path) -> None:
    process = start("print(sys.stdin.read(), file=sys.stderr); raise SystemExit(1)", tmp_path)
    child_of(process)
    assert process.communicate("a line", timeout=60) == ("", "a line\n")
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "error: interrupted\n"),
        (signal.SIGTERM, 143, "error: terminated\n"),
        (signal.SIGHUP, -signal.SIGHUP, ""),
    ],
)
def test_signals_reach_the_child(number: int, code: int, said: str, tmp_path: Path) -> None:
    process = start(WAITS, tmp_path)
    child_of(process)
    process.send_signal(number)
    assert process.wait(60) == code
    assert process.communicate()[1] == said


def test_an_interrupt_of_the_whole_group_is_one_interrupt(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path, around="Cleaning()", start_new_session=True)
    child_of(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    output, said = process.communicate()
    assert (output, said) == ("cleaned\n", "error: interrupted\n")


def test_the_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path)
    child_of(process)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.read() == ""  # ends when nobody has the pipe open any more


def test_a_stopped_child_is_a_stopped_job(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path, process_group=0)
    child = child_of(process)
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert (state(process.pid), state(child)) == ("T", "T")
    process.send_signal(signal.SIGCONT)
    process.communicate("", timeout=60)
    assert process.returncode == 0


def test_no_child_under_torchrun_and_for_help(tmp_path: Path) -> None:
    program = "import os, sys; import onnxq.cli.supervise as s; sys.argv = {argv}; s.supervise(); print(os.getpid())"
    for argv, more in ((["onnxq", "list"], {"TORCHELASTIC_RUN_ID": "1"}), (["onnxq", "--help"], {})):
        process = subprocess.Popen(
            [sys.executable, "-c", program.replace("{argv}", repr(argv))],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.communicate(timeout=60)[0] == f"{process.pid}\n"


def test_a_bug_is_one_line_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = broken(KeyError("the weight"), tmp_path, monkeypatch)
    assert code == INTERNAL_ERROR
    assert said.startswith("error: internal error in onnxq: KeyError: 'the weight'. This is a bug.")
    assert said.count("\n") == 1
    (kept,) = tmp_path.glob("onnxq-crash-*.txt")
    assert "Traceback" in kept.read_text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 1.00 TiB"), "there is not enough memory: Unable to allocate 1.00 TiB"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    ],
)
def test_memory_and_recursion_have_errors_of_their_own(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = broken(error, tmp_path, monkeypatch)
    assert (code, text.startswith("error: "), said in text) == (2, True, True)
    assert not list(tmp_path.iterdir())


def broken(error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and stderr of a command that ends with an exception."""

    def command(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("onnxq.cli.app.TyperGroup.invoke", command)
    result = CliRunner().invoke(app, ["inspect", "model.onnx"], prog_name="onnxq")
    return result.exit_code, result.stderr
