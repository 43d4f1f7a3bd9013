"""SIGTERM while weights are fitted: nothing temporary stays, what is done stays, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxq.demo import load_data, model_path
from onnxq.ptq.search.stage import BLOCK_FILE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

PROGRAM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the tests were started with
from onnxq.cli import main
from onnxq.ptq.reconstruction.fitting import run
save = run.save_outcome
def save_and_wait(*arguments):
    save(*arguments)
    signal.pause()
run.save_outcome = save_and_wait
main()
"""
"""The command line, which waits for the signal behind the first block that it has fitted."""


def start(program: str, *arguments: object, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    while process.poll() is None:
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"it did not come so far: {process.communicate()}")


def blocks(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.npz") if BLOCK_FILE.fullmatch(path.name)}


def test_a_fit_ends_cleanly_and_goes_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:16])
    improving = tmp_path / "out" / "improving"
    command = ("quantize", model_path(), "-b", "academic:w_bits=4,a_bits=4", "-d", "calib.npz", "-o", "out",
               "--improve", "adaround:iterations=20")  # fmt: skip
    process = start(PROGRAM, *command, cwd=tmp_path)
    wait_until(process, lambda: len(blocks(improving)) >= 1)
    assert any(improving.glob("activations-*"))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # as `timeout` does
    _, said = process.communicate()
    assert process.returncode == 143
    assert said.strip().splitlines()[-1] == "error: terminated"
    assert "Traceback" not in said
    done = blocks(improving)
    assert done
    assert {path.name for path in improving.iterdir()} == done
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"improving"}
    kept = {name: (improving / name).stat().st_mtime_ns for name in done}

    again = start(PROGRAM, *command, cwd=tmp_path)
    wait_until(again, lambda: len(blocks(improving)) > len(done))
    assert {name: (improving / name).stat().st_mtime_ns for name in done} == kept
    again.terminate()
    assert again.communicate()[1].strip().splitlines()[-1] == "error: terminated"


def test_a_process_that_ignores_the_signal_goes_on_doing_so(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from onnxq.cli.termination import end_cleanly_when_terminated\n"
        "end_cleanly_when_terminated()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still here')\n"
    )
    process = start(program, cwd=tmp_path)
    assert process.communicate()[0] == "still here\n"


def test_a_fork_ends_at_once_without_a_traceback(tmp_path: Path) -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "from onnxq.cli.termination import end_cleanly_when_terminated\n"
        "end_cleanly_when_terminated()\n"
        "reading, writing = os.pipe()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.write(writing, b'.')\n"
        "    time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.read(reading, 1)\n"  # Python forgets signals that come while it forks
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    process = start(program, cwd=tmp_path)
    output, said = process.communicate()
    assert (output, said) == (f"{-signal.SIGTERM}\n", "")
