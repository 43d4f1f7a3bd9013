"""Statistics on the command line: each option in good use, each mistake as one line, and what is said of the data."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.calibrate import read_statistics, write_statistics
from onnxq.demo import load_data
from onnxq.runtime.buffers import BufferedTap
from onnxq.runtime.collect import Engine

CALIBRATE = "calibrate MODEL -b onnxruntime -d DATA.npz"
QUANTIZE = "quantize MODEL -b onnxruntime -d DATA.npz --effort 0"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path, data: Path) -> Path:
    """A working folder with the model and 16 samples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MODEL").write_bytes(model.read_bytes())
    (tmp_path / "DATA.npz").write_bytes(data.read_bytes())
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every run of the model while collecting."""
    seen: list[str] = []
    run = BufferedTap.run

    def counted(tap: BufferedTap, feed: object, where: str) -> object:
        seen.append(where)
        return run(tap, feed, where)  # type: ignore[arg-type]

    monkeypatch.setattr(BufferedTap, "run", counted)
    return seen


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The settings of every calibration."""
    seen: list[Engine] = []
    bytes_of_a_run = Engine.bytes_of_a_run

    def noted(engine: Engine) -> int:
        seen.append(engine)
        return bytes_of_a_run(engine)

    monkeypatch.setattr(Engine, "bytes_of_a_run", noted)
    return seen


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def good(run, command: str) -> str:
    result = run(*command.split())
    assert result.exit_code == 0, result.stderr
    return " ".join((result.stdout + result.stderr).split())


def test_statistics_are_collected_used_again_and_told_about(run, here: Path, runs: list[str]) -> None:
    said = good(run, f"{CALIBRATE} -o new/stats.npz")
    assert "statistics of 9 tensors from 16 samples are in new/stats.npz" in said
    assert len(runs) == 16
    assert sorted(path.name for path in Path("new").iterdir()) == ["stats.npz"]
    runs.clear()
    good(run, f"{CALIBRATE} -o new/stats.npz --observer kl")
    good(run, f"{CALIBRATE} -o q.json --stats new/stats.npz --observer mse")
    good(run, "calibrate MODEL -b onnxruntime -o stored.json --stats new/stats.npz --observer mse")
    good(run, f"{QUANTIZE} -o out --stats new/stats.npz --observer mse")
    assert not runs
    good(run, f"{CALIBRATE} -o direct.json --observer mse")
    assert Path("q.json").read_bytes() == Path("direct.json").read_bytes() == Path("stored.json").read_bytes()


def test_quantize_keeps_statistics_where_it_is_told_to(run, here: Path, runs: list[str]) -> None:
    good(run, f"{QUANTIZE} -o out --stats new/stats.npz")
    assert len(runs) == 16
    good(run, f"{QUANTIZE} -o again --stats new/stats.npz")
    assert len(runs) == 16
    assert Path("out/model.onnx").read_bytes() == Path("again/model.onnx").read_bytes()


def test_fresh_collects_again(run, here: Path, runs: list[str]) -> None:
    good(run, f"{CALIBRATE} -o stats.npz --samples 9")
    before = Path("stats.npz").read_bytes()
    np.savez("DATA.npz", image=load_data().calibration[20:24])
    assert run(*f"{CALIBRATE} -o stats.npz".split()).exit_code == 2
    assert Path("stats.npz").read_bytes() == before
    runs.clear()
    good(run, f"{CALIBRATE} -o stats.npz --fresh")
    assert (len(runs), read_statistics(Path("stats.npz")).sample_count) == (4, 4)
    good(run, f"{CALIBRATE} -o q.json --stats stats.npz --fresh")
    assert len(runs) == 8


@pytest.mark.parametrize("command", [f"{CALIBRATE} -o q.json", f"{QUANTIZE} -o out"])
def test_workers_memory_and_provider_reach_the_engine_and_change_nothing(
    run, here: Path, engines: list[Engine], command: str
) -> None:
    good(run, command)
    name = "q.json" if command.startswith("calibrate") else "out/qparams.json"
    plain = Path(name).read_bytes()
    good(run, f"{command} --workers 3 --memory-limit 20kB --provider cpu")
    assert engines[0] == Engine()
    assert engines[1] == Engine(workers=3, memory_limit=20 * 1024, provider="cpu")
    assert Path(name).read_bytes() == plain


BAD = {
    "workers zero": (f"{CALIBRATE} -o s.npz --workers 0", "workers"),
    "workers of letters": (f"{CALIBRATE} -o s.npz --workers many", "--workers"),
    "workers zero, quantize": (f"{QUANTIZE} -o out --workers 0", "workers"),
    "memory of letters": (f"{CALIBRATE} -o s.npz --memory-limit abc", "such as 500MB or 2GB, got 'abc'"),
    "no memory": (f"{CALIBRATE} -o s.npz --memory-limit 0", "got '0'"),
    "memory of letters, quantize": (f"{QUANTIZE} -o out --memory-limit abc", "got 'abc'"),
    "unknown provider": (f"{CALIBRATE} -o s.npz --provider tpu", "'tpu' is not part of the installed onnxruntime"),
    "unknown provider, quantize": (f"{QUANTIZE} -o out --provider tpu", "CPUExecutionProvider"),
    "shard above": (f"{CALIBRATE} -o s.npz --shard 3/2", "1 <= i <= n, such as 1/2 and 2/2, got 3/2"),
    "shard zero": (f"{CALIBRATE} -o s.npz --shard 0/2", "got 0/2"),
    "shard of letters": (f"{CALIBRATE} -o s.npz --shard half", "got 'half'"),
    "parameters of a shard": (f"{CALIBRATE} -o q.json --shard 1/2", "-o FILE.npz"),
    "two files": (f"{CALIBRATE} -o a.npz --stats b.npz", "-o and --stats"),
    "statistics as text": (f"{CALIBRATE} -o q.json --stats s.json", ".npz"),
    "statistics as text, quantize": (f"{QUANTIZE} -o out --stats s.json", ".npz"),
    "fresh what": (f"{CALIBRATE} -o q.json --fresh", "--stats"),
    "fresh without data": ("calibrate MODEL -b onnxruntime -o q.json --stats good.npz --fresh", "--random"),
    "stats is a folder": (f"{CALIBRATE} -o q.json --stats folder.npz", "folder.npz is a folder"),
    "stats is a folder, no data": ("calibrate MODEL -b onnxruntime -o q.json --stats folder.npz", "is a folder"),
    "stats is a folder, quantize": (f"{QUANTIZE} -o out --stats folder.npz", "folder.npz is a folder"),
    "out is a folder": (f"{CALIBRATE} -o folder.npz --fresh", "folder.npz is a folder"),
    "no statistics and no data": (
        "calibrate MODEL -b onnxruntime -o q.json --stats none.npz",
        "no statistics at none.npz",
    ),
    "stats is the data": (f"{CALIBRATE} -o q.json --stats DATA.npz --fresh", "overwrite the input DATA.npz"),
    "out is the data": (f"{CALIBRATE} -o DATA.npz --fresh", "overwrite the input DATA.npz"),
    "stats is the data, quantize": (f"{QUANTIZE} -o out --stats DATA.npz", "overwrite the input DATA.npz"),
    "stats is the model": (
        "calibrate model.npz -b onnxruntime -d DATA.npz -o model.npz --fresh",
        "overwrite the input",
    ),
    "stats is another file": (f"{CALIBRATE} -o q.json --stats other.npz", "does not begin like a statistics file"),
    "out is another file": (f"{CALIBRATE} -o other.npz", "does not begin like a statistics file"),
    "stats is damaged": (f"{QUANTIZE} -o out --stats damaged.npz", "damaged.npz is damaged"),
    "stats is incomplete": ("calibrate MODEL -b onnxruntime -o q.json --stats partial.npz", "is not complete"),
    "out below a file": (f"{CALIBRATE} -o MODEL/s.npz", "MODEL is a file"),
    "stats below a file": (f"{QUANTIZE} -o out --stats MODEL/s.npz", "MODEL is a file"),
    "unwritable": (f"{CALIBRATE} -o /proc/onnxq/s.npz", "cannot write into /proc/onnxq"),
    "no backend": ("calibrate MODEL -d DATA.npz -o deep/s.npz", "-b BACKEND"),
    "no backend, stored": ("calibrate MODEL -o q.json --stats good.npz", "-b BACKEND"),
    "other model": ("calibrate MODEL -b tensorrt -o q.json --stats foreign.npz", "from another model"),
}


@pytest.mark.parametrize(("command", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    run, here: Path, runs: list[str], kept: Path, command: str, words: str
) -> None:
    good_bytes = kept.read_bytes()
    Path("good.npz").write_bytes(good_bytes)
    Path("damaged.npz").write_bytes(good_bytes[:-70])
    Path("folder.npz").mkdir()
    Path("model.npz").write_bytes(Path("MODEL").read_bytes())
    np.savez("other.npz", picture=np.zeros(3))
    Path("partial.npz").write_bytes(kept.with_name("partial.npz").read_bytes())
    Path("foreign.npz").write_bytes(kept.with_name("foreign.npz").read_bytes())
    before = files_in(here)
    result = run(*command.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in " ".join(result.stderr.split())
    if "Usage:" not in result.stderr:  # of options that cannot be read, click tells in a box
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    assert not runs
    assert files_in(here) == before
    assert not [name for name in ("out", "deep", "q.json") if Path(name).exists()]


@pytest.fixture(scope="session")
def kept(run, model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics of the model, with an incomplete file and one of another model beside."""
    path = tmp_path_factory.mktemp("kept") / "stats.npz"
    good(run, f"calibrate {model} -b onnxruntime -d {data} -o {path}")
    file = read_statistics(path)
    write_statistics(path.with_name("partial.npz"), replace(file, complete=False))
    write_statistics(path.with_name("foreign.npz"), replace(file, model="ab" * 32))
    return path


def test_a_file_that_may_not_be_read_is_named(run, here: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **named: Any) -> Any:  # a mode of 0 would not do: the superuser may read
        if path == kept:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    result = run(*f"calibrate MODEL -b onnxruntime -o q.json --stats {kept}".split())
    assert result.exit_code == 2
    assert f"{kept}: Permission denied" in result.stderr


def test_a_plan_without_activations_has_no_statistics(run, here: Path) -> None:
    good(run, "place MODEL -b onnxruntime -o plan.json")
    plan = json.loads(Path("plan.json").read_text())
    plan["tensors"] = {name: entry for name, entry in plan["tensors"].items() if entry["role"] == "weight"}
    Path("plan.json").write_text(json.dumps(plan))
    result = run("calibrate", "MODEL", "--plan", "plan.json", "-d", "DATA.npz", "-o", "s.npz")
    assert result.exit_code == 2
    assert "no statistics to write" in result.stderr
    assert not Path("s.npz").exists()


def calibration(count: int = 20) -> np.ndarray:
    return load_data().calibration[:count].copy()


def notes_of(run, image: np.ndarray) -> tuple[str, str]:
    """What the terminal says of the data, and what the report says."""
    np.savez("DATA.npz", image=image)
    said = good(run, f"{CALIBRATE} -o q.json")
    assert good(run, f"{CALIBRATE} -o s.npz").count("note:") == said.count("note:")
    good(run, f"{QUANTIZE} -o out")
    return said, " ".join(json.loads(Path("out/report.json").read_text())["notes"])


def test_good_data_gets_no_note(run, here: Path) -> None:
    said, reported = notes_of(run, calibration())
    assert "note:" not in said
    assert "sample" not in reported


def test_few_samples_are_noted(run, here: Path) -> None:
    for text in notes_of(run, calibration(15)):
        assert "calibrated on 15 samples: ranges may be too narrow" in text


def test_an_input_that_never_changes_is_noted(run, here: Path) -> None:
    for text in notes_of(run, np.repeat(calibration(1), 20, axis=0)):
        assert "input 'image' is the same in every sample" in text


def test_a_sample_that_sets_ranges_alone_is_named(run, here: Path) -> None:
    image = calibration()
    image[13] *= 7
    for text in notes_of(run, image):
        assert "sample 13 alone sets the range of tensor '" in text
        assert "percentile or mse" in text


def test_nan_is_a_warning_that_strict_turns_into_a_failure(run, here: Path) -> None:
    image = calibration()
    image[5, 0, 3, 3] = np.nan
    np.savez("DATA.npz", image=image)
    for out in ("q.json", "s.npz"):
        result = run(*f"{CALIBRATE} -o {out}".split())
        assert result.exit_code == 0
        assert "warning: input 'image': 1 NaN/inf value, first in sample 5, and " in result.stderr
        assert result.stderr.count("NaN/inf") == 1
        Path(out).unlink()
        assert run(*f"{CALIBRATE} -o {out} --strict".split()).exit_code == 1
        assert Path(out).is_file()
    stored = run("calibrate", "MODEL", "-b", "onnxruntime", "--stats", "s.npz", "-o", "q.json", "--strict")
    assert stored.exit_code == 1
    assert "first in sample 5" in stored.stderr
