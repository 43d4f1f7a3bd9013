"""Two processes of torchrun calibrate together: the results of one process, one set of files, one voice, no waiting."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.distributed import torchrun_ranks
from onnxq.errors import ConfigError

pytest.importorskip("torch")

SESSION = """
import json, os
import torch.distributed as distributed
from typer.testing import CliRunner
from onnxq.cli.app import app
distributed.init_process_group("gloo")
results = []
for command in json.load(open("commands.json")):
    arguments = command.replace("RANK", os.environ["RANK"]).split()
    result = CliRunner().invoke(app, arguments, prog_name="onnxq")
    known = result.exception is None or isinstance(result.exception, SystemExit)
    results.append([result.exit_code, result.stderr if known else repr(result.exception)])
    distributed.barrier()
with open(f"results-{os.environ['RANK']}.json", "w") as stream:
    json.dump(results, stream)
distributed.destroy_process_group()  # left to the end of the process, its threads abort it now and then
"""
"""Commands in processes that were started once: importing torch takes longer than all of them."""

CALIBRATE = "calibrate model.onnx -b onnxruntime -d data.npz"

COMMANDS = {
    "calibrate": f"{CALIBRATE} -o two/qparams.json",
    "quantize": "quantize model.onnx -b onnxruntime -d data.npz -o quantized --stats stats.npz",
    "statistics": f"{CALIBRATE} -o kept.npz",
    "another observer": f"{CALIBRATE} -o kl/qparams.json --stats stats.npz --observer kl",
    "stored": "calibrate model.onnx -b onnxruntime -o stored/qparams.json --stats stats.npz",
    "other data": "calibrate model.onnx -b onnxruntime -d other.npz -o failed/q.json --stats stats.npz",
    "wrong shape": "calibrate model.onnx -b onnxruntime -d bad -o failed/q.json",
    "wrong shape, quantize": "quantize model.onnx -b onnxruntime -d bad -o failed",
    "wrong shape in one process": "calibrate model.onnx -b onnxruntime -d half-RANK -o failed/q.json",
    "no file in one process": "quantize model.onnx -b onnxruntime -d only-RANK.npz -o failed",
    "one sample": f"{CALIBRATE} -o failed/q.json --samples 1",
    "order": f"{CALIBRATE} -o failed/q.json --observer ema_minmax",
    "shard": f"{CALIBRATE} -o failed.npz --shard 1/2",
    "misspelled": "quantize model.onnx -b onnxruntime -d data.npz -o failed --skip stem.cnv",
    "strict": "calibrate model.onnx -b onnxruntime --random 4 -o random/q.json --strict",
}


@dataclass(frozen=True)
class Ended:
    """What a command gave in both processes."""

    codes: list[int]
    said: list[str]


def torchrun(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    process = subprocess.Popen(
        [sys.executable, *launcher, *program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"the processes wait for each other: {process.communicate()}") from None
    return subprocess.CompletedProcess(program, process.returncode, output, errors)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun")
    shutil.copy(model_path(), folder / "model.onnx")
    images = load_data().calibration
    np.savez(folder / "data.npz", image=images[:21])
    np.savez(folder / "only-0.npz", image=images[:21])
    np.savez(folder / "other.npz", image=images[21:42])
    for name in ("half-0", "half-1", "bad"):
        (folder / name).mkdir()
        for number in range(8):
            wrong = number == 5 and name in ("half-1", "bad")
            image = np.zeros((1, 1, 9, 9), np.float32) if wrong else images[number : number + 1]
            np.savez(folder / name / f"{number:02}.npz", image=image)
    return folder


@pytest.fixture(scope="module")
def ended(here: Path) -> dict[str, Ended]:
    (here / "commands.json").write_text(json.dumps(list(COMMANDS.values())))
    (here / "session.py").write_text(SESSION)
    process = torchrun(here, "session.py")
    assert process.returncode == 0, process.stderr
    results = [json.loads((here / f"results-{rank}.json").read_text()) for rank in (0, 1)]
    return {
        name: Ended([code for code, _ in both], [said for _, said in both])
        for name, both in zip(COMMANDS, zip(*results, strict=True), strict=True)
    }


@pytest.fixture(scope="module")
def alone(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process writes."""
    folder = tmp_path_factory.mktemp("alone")
    for command in (
        f"{CALIBRATE} -o two/qparams.json",
        f"{CALIBRATE} -o kl/qparams.json --observer kl",
        f"{CALIBRATE} -o stored/qparams.json",
        f"{CALIBRATE} -o kept.npz",
        "quantize model.onnx -b onnxruntime -d data.npz -o quantized --stats stats.npz",
    ):
        words = [str(here / w) if w in ("model.onnx", "data.npz") else w for w in command.split()]
        words = [str(folder / w) if w.endswith(("json", "stats.npz", "kept.npz", "quantized")) else w for w in words]
        result = CliRunner().invoke(app, words, prog_name="onnxq")
        assert result.exit_code == 0, result.stderr
    return folder


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("calibrate", ["two/qparams.json", "two/plan.json"]),
        ("quantize", ["quantized/model.onnx", "quantized/plan.json", "quantized/qparams.json", "stats.npz"]),
        ("statistics", ["kept.npz"]),
        ("another observer", ["kl/qparams.json", "kl/plan.json"]),
        ("stored", ["stored/qparams.json"]),
    ],
)
def test_two_processes_write_what_one_writes(
    here: Path, alone: Path, ended: dict[str, Ended], command: str, files: list[str]
) -> None:
    assert ended[command].codes == [0, 0], ended[command].said
    assert ended[command].said[1] == ""
    for name in files:
        assert (here / name).read_bytes() == (alone / name).read_bytes(), name


def test_only_results_are_left(here: Path, ended: dict[str, Ended]) -> None:
    assert ended["quantize"].codes == [0, 0]
    assert sorted(path.name for path in (here / "quantized").iterdir()) == [
        "config.json",
        "model.onnx",
        "model_float.onnx",
        "plan.json",
        "qparams.json",
        "report.html",
        "report.json",
    ]
    assert json.loads((here / "quantized" / "report.json").read_text())["calibration_samples"] == 21
    # The processes' own files are gone.
    assert sorted(path.name for path in here.glob("*.npz*")) == [
        "data.npz",
        "kept.npz",
        "only-0.npz",
        "other.npz",
        "stats.npz",
    ]
    assert not [path for path in here.iterdir() if path.name.startswith(("failed", "."))]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("other data", "stats.npz was collected from other data"),
        ("wrong shape", "error: input 'image' of sample 5"),
        ("wrong shape, quantize", "error: input 'image' of sample 5"),
        ("wrong shape in one process", "error: input 'image' of sample 5 ('half-1"),
        ("no file in one process", "error: process 2 of 2: "),
        ("one sample", "none for shard 2/2: give at least 2 samples"),
        ("order", "'ema_minmax' of tensor 'image' depends on the order of the samples"),
        ("shard", "the processes divide the samples themselves"),
        ("misspelled", "stem.cnv"),
    ],
)
def test_an_error_ends_both_processes_and_is_told_once(ended: dict[str, Ended], command: str, words: str) -> None:
    assert ended[command].codes == [2, 2], ended[command].said
    first, second = ended[command].said
    assert words in first
    assert first.count("error:") == 1
    assert second == ""


def test_warnings_are_told_once_and_strict_makes_the_first_process_fail(ended: dict[str, Ended]) -> None:
    assert ended["strict"].codes == [1, 0]
    assert ended["strict"].said[0].count("warning:") == 1
    assert ended["strict"].said[1] == ""


@pytest.mark.slow
def test_the_command_under_torchrun_itself_ends_with_its_exit_code(here: Path) -> None:
    process = torchrun(here, "-m", "onnxq", *COMMANDS["wrong shape"].split())
    assert process.returncode != 0
    assert process.stderr.count("error: ") == 1
    # torchrun may send SIGTERM (15) to the process that ends a moment later than the other.
    codes = re.findall(r"exitcode  : (-?\d+)", process.stderr)
    assert len(codes) == 2
    assert "2" in codes
    assert set(codes) <= {"2", "-15"}


def test_variables_of_a_job_scheduler_do_not_make_a_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with torchrun_ranks() as ranks:
        assert ranks is None


def test_a_torchrun_without_its_numbers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "")
    with pytest.raises(ConfigError, match="start onnxq with torchrun"), torchrun_ranks():
        pass
