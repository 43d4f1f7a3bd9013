"""Calibration that is killed or interrupted goes on where it ended, and ends with the bytes of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import read_statistics
from onnxq.calibrate.resume import partial_path

SAMPLES = 40

PROGRAM = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from onnxq.calibrate import resume
from onnxq.cli import main
from onnxq.runtime.buffers import BufferedTap
from onnxq.runtime.workers import SampleQueue
most, log = int(sys.argv.pop(1)), open(sys.argv.pop(1), "a", buffering=1)
resume.gather_into.__kwdefaults__["save_seconds"] = 0.02
resume.SAVING_SHARE = float("inf")
run, write, close, closed = BufferedTap.run, resume.write_statistics, SampleQueue.close, threading.Event()
def logged_run(*arguments):
    if run_number() > most:
        closed.wait()
    time.sleep(0.02)  # so that every run is late, and saved
    return run(*arguments)
def run_number(lock=threading.Lock(), numbers=iter(range(1, 1000))):
    with lock:
        print("run", file=log)
        return next(numbers)
def logged_write(path, file):
    print("saved", file.sample_count, file=log)
    write(path, file)
def logged_close(line):
    close(line)
    closed.set()
BufferedTap.run, resume.write_statistics, SampleQueue.close = logged_run, logged_write, logged_close
main()
"""
"""The command line, which saves after every run; runs behind the number in the first argument wait to be stopped.

What it does is written into the file in the second argument, a line for each run and each file that is saved.
"""

ALL = 1000


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, data, and the statistics of an undisturbed run."""
    folder = tmp_path_factory.mktemp("interrupted")
    random = np.random.default_rng(1)
    weights = {"w": (8, 3, 3, 3), "v": (4, 8, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], name="conv1", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 32, 32])],
        [numpy_helper.from_array(random.normal(0, 0.2, s).astype(np.float32), name) for name, s in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    np.savez(folder / "data.npz", x=random.normal(size=(SAMPLES, 3, 32, 32)).astype(np.float32))
    ended = start(folder, "whole.npz")
    assert ended.wait() == 0, ended.communicate()
    return folder


def start(folder: Path, out: str, *, most: int = ALL, workers: int = 1) -> subprocess.Popen[str]:
    arguments = f"calibrate m.onnx -b onnxruntime -d data.npz -o {out} --workers {workers}".split()
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(most), f"{out}.log", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def logged(path: Path, what: str) -> list[str]:
    """The lines about `what` that the processes have written into the log of this result."""
    lines = path.with_name(f"{path.name}.log").read_text().splitlines()
    return [line.removeprefix(what).strip() for line in lines if line.startswith(what)]


def wait_for_samples(process: subprocess.Popen[str], partial: Path, count: int) -> None:
    """Return when the process has saved at least `count` samples."""
    while process.poll() is None:
        if partial.exists() and read_statistics(partial).sample_count >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} samples were saved: {process.communicate()}")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("sent", "workers"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_a_stopped_run_goes_on_to_the_bytes_of_an_undisturbed_one(
    here: Path, sent: signal.Signals, workers: int
) -> None:
    path = here / f"stats-{sent.name}-{workers}.npz"
    partial = partial_path(path)
    process = start(here, path.name, most=SAMPLES // 4 + workers, workers=workers)
    wait_for_samples(process, partial, SAMPLES // 4)
    process.send_signal(sent)
    _, said = process.communicate()
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert said.strip().splitlines()[-1] == "error: interrupted"
        assert "Traceback" not in said
    else:
        assert process.returncode == -signal.SIGKILL
    assert not path.exists()
    held = read_statistics(partial)
    assert not held.complete
    assert SAMPLES // 4 <= held.sample_count < SAMPLES
    samples = {statistic.samples for kinds in held.statistics.values() for statistic in kinds.values()}
    assert samples == {held.sample_count}

    path.with_name(f"{path.name}.log").unlink()
    again = start(here, path.name)
    assert again.wait() == 0, again.communicate()
    saved = [int(count) for count in logged(path, "saved")]
    assert len(logged(path, "run")) == SAMPLES - held.sample_count
    assert min(saved) > held.sample_count
    assert len(saved) > 1
    assert path.read_bytes() == (here / "whole.npz").read_bytes()
    path.with_name(f"{path.name}.log").unlink()
    left = [name.name for name in here.iterdir() if name.name.startswith((path.name, f".{path.name}"))]
    # A process that is killed while it writes leaves the temporary file, under a name that nothing reads.
    assert [name for name in left if not name.startswith(".")] == [path.name]
    if sent == signal.SIGINT:
        assert left == [path.name]


def test_a_write_that_fails_at_the_last_step_leaves_the_result_before_it(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxq.calibrate import activation_leaders, gather_into
    from onnxq.session.prepare import make_plan, prepare

    prepared = prepare(here / "m.onnx", "onnxruntime")
    leaders = activation_leaders(make_plan(prepared))
    data = [{"x": image[None]} for image in np.load(here / "data.npz")["x"]]
    path = tmp_path / "stats.npz"
    gather_into(path, prepared.graph, leaders, data[:4])
    before = path.read_bytes()

    def fail(source: str, target: object) -> None:
        assert Path(source).stat().st_size > 0
        raise OSError(5, "Input/output error", str(target))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="Input/output error"):
        gather_into(path, prepared.graph, leaders, data[:8])
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before
    monkeypatch.undo()
    gather_into(path, prepared.graph, leaders, data)
    assert path.read_bytes() == (here / "whole.npz").read_bytes()
