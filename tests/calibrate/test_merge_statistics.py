"""Merging shards: the result is the file of an unsharded run, and whatever cannot give it is refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxq.calibrate.merge import merge_statistics
from onnxq.calibrate.statistics_file import Facts, StatisticsFile, read_statistics, write_statistics
from onnxq.errors import DataError
from onnxq.observers.statistics import STATISTICS, HistogramStatistic, RangeStatistic, StatisticKind
from tests.calibrate.statistics_files import moving_average, run_file, samples, statistic_of


def file_bytes(folder: Path, file: StatisticsFile) -> bytes:
    write_statistics(folder / "written.npz", file)
    return (folder / "written.npz").read_bytes()


def refused(files: Sequence[StatisticsFile], message: str) -> None:
    with pytest.raises(DataError, match=message):
        merge_statistics(files)


@pytest.mark.parametrize("of", [1, 2, 3, 7, 9])
def test_merged_shards_are_the_bytes_of_the_whole_run(tmp_path: Path, of: int) -> None:
    paths = [tmp_path / f"{number}.npz" for number in range(1, of + 1)]
    for number, path in enumerate(paths, 1):
        write_statistics(path, run_file(number, of))  # of 9 shards two are empty
    merged = merge_statistics(read_statistics(path) for path in paths)
    assert (merged.shard, merged.sample_count, merged.path) == ((1, 1), 7, None)
    assert file_bytes(tmp_path, merged) == file_bytes(tmp_path, run_file())


@pytest.mark.parametrize("kind", [kind for kind, statistic in STATISTICS.items() if not statistic.ordered])
@pytest.mark.parametrize("axis", [None, 1])
def test_every_kind_that_does_not_depend_on_the_order_merges_to_the_bytes_of_the_whole(
    tmp_path: Path, kind: StatisticKind, axis: int | None
) -> None:
    numbered = list(enumerate(samples()))
    files = [
        run_file(number, 3, statistics={"x": {"key": statistic_of(kind, axis, numbered[number - 1 :: 3])}})
        for number in (1, 2, 3)
    ]
    whole = run_file(statistics={"x": {"key": statistic_of(kind, axis, numbered)}})
    assert file_bytes(tmp_path, merge_statistics(files)) == file_bytes(tmp_path, whole)


def test_the_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    whole = file_bytes(tmp_path, run_file())
    for order in itertools.permutations((1, 2, 3)):
        assert file_bytes(tmp_path, merge_statistics(run_file(number, 3) for number in order)) == whole


def test_the_files_given_stay_as_they_are(tmp_path: Path) -> None:
    files = [run_file(number, 2) for number in (1, 2)]
    before = [file_bytes(tmp_path, file) for file in files]
    merge_statistics(files)
    assert [file_bytes(tmp_path, file) for file in files] == before


def test_missing_shards_are_listed() -> None:
    refused(
        [run_file(2, 5), run_file(4, 5)], r"of the 5 shards that shard 2 of 5 belongs to, numbers 1, 3, 5 are missing"
    )
    refused([run_file(1, 2, path=Path("one.npz"))], r"that one\.npz belongs to, number 2 is missing")
    refused([], "nothing to merge")


def test_a_shard_given_twice_names_both_files() -> None:
    files = [run_file(1, 2, path=Path("a.npz")), run_file(2, 2), run_file(1, 2, path=Path("b.npz"))]
    refused(files, r"b\.npz is shard 1 of 2, and so is a\.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "cd" * 32}, "was collected from another model than shard 1 of 2"),
        ({"complete": False}, "is not complete, its run ended after 3 samples: finish it"),
        ({"shard": (2, 3)}, "shard 2 of 3, while shard 1 of 2 is one of 2"),
        ({"facts": Facts({"inner": "another reason"}, pinned=("body.x",))}, "disagree about unreachable of inner"),
        ({"facts": Facts(runtime={"provider": "CUDA"}, pinned=("body.x",))}, "disagree about runtime of provider"),
        ({"facts": Facts(pinned=("body.y",))}, "disagree about pinned of tensors"),
        (
            {"statistics": {"x": {"range": RangeStatistic()}}},
            "'histogram' of tensor 'square of x' differs: odd.npz has none and shard 1 of 2 has histogram",
        ),
    ],
)
def test_a_file_that_is_no_shard_of_the_same_run_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        merge_statistics([run_file(1, 2), run_file(2, 2, path=Path("odd.npz"), **changes)])
    assert "odd.npz" in str(caught.value)


def test_a_statistic_of_another_kind_or_axis_under_the_same_key_is_refused() -> None:
    first = run_file(1, 2, statistics={"x": {"histogram": HistogramStatistic()}})
    kind = run_file(2, 2, statistics={"x": {"histogram": RangeStatistic()}})
    refused([first, kind], "shard 2 of 2 has range and shard 1 of 2 has histogram")
    axis = run_file(2, 2, statistics={"x": {"histogram": HistogramStatistic(1)}})
    refused([first, axis], "shard 2 of 2 does not go with shard 1 of 2 in tensor 'x': .*axis 1")


def test_statistics_that_depend_on_the_order_are_refused() -> None:
    averages = {"x": {"ema_minmax": moving_average(*samples()[:2])}}
    message = re.escape("holds 'ema_minmax', which depends on the order of the samples and cannot be merged")
    refused([run_file(1, 2, statistics=averages), run_file(2, 2, statistics=averages)], message)
    assert merge_statistics([run_file(statistics=averages)]).ordered == ("ema_minmax",)


def test_what_only_some_shards_found_out_is_kept() -> None:
    facts = [Facts({"s": "other"}, {"provider": "CPU"}, ("y",)), Facts({"t": "why"}, pinned=("y",))]
    merged = merge_statistics(run_file(number, 2, facts=facts[number - 1]) for number in (2, 1))
    assert merged.facts == Facts({"s": "other", "t": "why"}, {"provider": "CPU"}, ("y",))
