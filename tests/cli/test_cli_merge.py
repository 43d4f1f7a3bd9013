"""`onnxq merge`: shards in, the file of the whole run out, and nothing at all when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.calibrate.statistics_file import write_statistics
from tests.calibrate.statistics_files import run_file


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"stats-{number}.npz" for number in (1, 2, 3)]
    for number, path in enumerate(paths, 1):
        write_statistics(path, run_file(number, 3))
    return paths


def test_the_merged_file_is_that_of_the_whole_run(run, shards: list[Path], tmp_path: Path) -> None:
    out, whole = tmp_path / "new" / "stats.npz", tmp_path / "whole.npz"
    result = run("merge", *reversed(shards), "-o", out)
    assert result.exit_code == 0, result.stderr
    assert "statistics of 2 tensors from 7 samples in 3 shards written to" in " ".join(result.stderr.split())
    assert result.stdout == ""
    write_statistics(whole, run_file())
    assert out.read_bytes() == whole.read_bytes()


def test_quiet_says_nothing_and_a_folder_gets_the_usual_name(run, shards: list[Path], tmp_path: Path) -> None:
    result = run("merge", *shards, "-o", tmp_path, "--quiet")
    assert (result.exit_code, result.stderr, result.stdout) == (0, "", "")
    assert (tmp_path / "statistics.npz").is_file()


def test_an_error_names_the_file_and_leaves_nothing(run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "stats.npz"
    missing = run("merge", *shards[:2], "-o", out)
    assert missing.exit_code == 2
    assert "number 3 is missing" in missing.stderr
    shards[1].write_bytes(shards[1].read_bytes()[:-9])
    damaged = run("merge", *shards, "-o", out)
    assert damaged.exit_code == 2
    assert f"{shards[1]} is damaged" in damaged.stderr
    assert run("merge", tmp_path / "nothing.npz", "-o", out).exit_code == 2
    assert sorted(tmp_path.iterdir()) == shards


def test_a_failed_merge_keeps_the_file_that_was_there(run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "stats.npz"
    out.write_bytes(b"before")
    assert run("merge", shards[0], "-o", out).exit_code == 2
    assert out.read_bytes() == b"before"


def test_an_input_is_never_overwritten(run, shards: list[Path]) -> None:
    before = shards[1].read_bytes()
    result = run("merge", *shards, "-o", shards[1])
    assert result.exit_code == 2
    assert "would overwrite the input" in result.stderr
    assert shards[1].read_bytes() == before
