"""A process that is killed, or fails, at any moment of a delivery leaves the old files or the new ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onnxq.errors import ConfigError
from tests.deliveries import deliver, hidden, state

posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


PROGRAM = """
import os, shutil, sys
from pathlib import Path
from tests.deliveries import deliver, fill, hidden, state
from onnxq.output_folder import settle

OLD = {"a": "old", "c": "old", "notes": "mine"}
NEW = {"a": "new", "b": "new", "c": "new", "notes": "mine"}
EVENTS = {"open", "os.rename", "os.link", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.scandir", "os.listdir"}


def after(number, end):
    left = [number]

    def hook(event, arguments):
        if event in EVENTS:
            if left[0] == 0:
                left[0] = -1
                end()
            left[0] -= 1

    sys.addaudithook(hook)


def in_child(work, number, end):
    # True if `work` came to its end before the file system was used `number` times.
    child = os.fork()
    if not child:
        after(number, end)
        try:
            work()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed():
    os._exit(9)


def full():
    raise OSError(28, "No space left on device")


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    fill(folder, **OLD)
"""


def run(program: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(folder)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@posix
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_files(tmp_path: Path) -> None:
    run(
        """
folder, seen, number = Path(sys.argv[1]) / "out", [], 0
while True:
    fresh(folder)
    code = in_child(lambda: deliver(folder, a="new", b="new", c="new"), number, killed)
    settle(folder)
    found = {name: text for name, text in state(folder).items() if name != ".onnxq.lock"}
    assert found in (OLD, NEW), (number, found)
    seen.append(found == NEW)
    deliver(folder, z="next")
    assert not hidden(folder), (number, hidden(folder))
    assert state(folder) == {**found, "z": "next"}
    if code == 0:
        break
    assert code == 9
    number += 1
assert number > 20, number
assert seen == sorted(seen), seen  # at one moment the old files stop to count
assert 5 < seen.index(True) < number - 5
""",
        tmp_path,
    )


@posix
def test_a_fault_at_any_moment_leaves_the_old_or_the_new_files(tmp_path: Path) -> None:
    run(
        """
folder, number = Path(sys.argv[1]) / "out", 0
while True:
    fresh(folder)
    code = in_child(lambda: deliver(folder, a="new", b="new", c="new"), number, full)
    found = {name: text for name, text in state(folder).items() if name != ".onnxq.lock"}
    assert found in (OLD, NEW), (number, found)  # without any other command
    deliver(folder, z="next")
    assert not hidden(folder), (number, hidden(folder))
    if code == 0 and number > 60:
        break
    number += 1
""",
        tmp_path,
    )


@posix
@pytest.mark.slow
def test_a_kill_while_what_was_killed_is_finished(tmp_path: Path) -> None:
    run(
        """
folder, first = Path(sys.argv[1]) / "out", 0
ended = False
while not ended:
    second = 0
    while True:
        fresh(folder)
        ended = in_child(lambda: deliver(folder, a="new", b="new", c="new"), first, killed) == 0
        code = in_child(lambda: settle(folder), second, killed)
        settle(folder)
        found = {name: text for name, text in state(folder).items() if name != ".onnxq.lock"}
        assert found in (OLD, NEW), (first, second, found)
        deliver(folder, z="next")
        assert not hidden(folder)
        if code == 0:
            break
        second += 1
    first += 1
""",
        tmp_path,
    )


@posix
def test_a_killed_writer_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from onnxq.output_folder import claim, staging\n"
        "with claim(Path(sys.argv[1])) as output, staging(output) as stage:\n"
        "    (stage / 'a').write_text('first')\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    process = start()
    with pytest.raises(ConfigError, match=rf"another onnxq \(process {process.pid}\) is writing"):
        deliver(tmp_path, a="second")
    process.communicate("")  # the first one goes on, and its files are whole
    assert process.returncode == 0
    assert state(tmp_path) == {"a": "first"}

    process = start()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert sorted(name[:7] for name in hidden(tmp_path)) == [".onnxq-", ".onnxq."]
    deliver(tmp_path, b="third")
    assert state(tmp_path) == {"a": "first", "b": "third"}
    assert not hidden(tmp_path)
