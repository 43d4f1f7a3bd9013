"""Statistics on disk: every kind comes back, equal contents have equal bytes, and damage is never taken for data."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from onnxq.calibrate import sealed_npz
from onnxq.calibrate.statistics_file import VERSION, StatisticsFile, check_same, read_statistics, write_statistics
from onnxq.errors import DataError, SpecError
from onnxq.observers.statistics import STATISTICS, RangeStatistic, StatisticKind
from tests.calibrate.statistics_files import MODEL, moving_average, run_file, samples, statistic_of

REMEDY = "delete it and calibrate again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "statistics.npz"


def same_statistic(one: RangeStatistic, other: RangeStatistic) -> bool:
    first, second = one.to_arrays(), other.to_arrays()
    return type(one) is type(other) and all(
        first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name])
        for name in first.keys() | second.keys()
    )


def seal(path: Path) -> None:
    """Make the content of a changed npz valid again: its comment is the hash of the file without comment."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        data = data[: len(data) - len(archive.comment)]
    data = data[:-2] + b"\0\0"
    path.write_bytes(data[:-2] + (64).to_bytes(2, "little") + hashlib.sha256(data).hexdigest().encode())


def rewrite(path: Path, **changes: object) -> None:
    """Replace members of a file, or remove them (None), and seal it as another writer would."""
    with np.load(path, allow_pickle=False) as members:
        arrays = {name: members[name] for name in members.files}
    for name, change in changes.items():
        name = name.replace("_of_", "/")
        if change is None:
            del arrays[name]
        else:
            arrays[name] = np.asarray(change)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    seal(path)


@pytest.mark.parametrize("kind", list(STATISTICS))
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("seen", [0, 7])
def test_every_kind_of_statistic_comes_back(path: Path, kind: StatisticKind, axis: int | None, seen: int) -> None:
    statistic = statistic_of(kind, axis, list(enumerate(samples()[:seen])))
    write_statistics(path, run_file(statistics={"x": {"key": statistic}}))
    back = read_statistics(path).statistics["x"]["key"]
    assert same_statistic(back, statistic)
    back.update(samples()[0], 7)  # a restored statistic can go on
    statistic.update(samples()[0], 7)
    assert same_statistic(back, statistic)


def test_everything_else_comes_back(path: Path) -> None:
    file = run_file(2, 3, complete=False)
    write_statistics(path, file)
    back = read_statistics(path)
    assert (back.model, back.samples, back.sample_count) == (MODEL, file.samples, 2)
    assert (back.complete, back.shard, back.ordered, back.path) == (False, (2, 3), (), path)
    assert back.facts == file.facts
    assert {tensor: set(kinds) for tensor, kinds in back.statistics.items()} == {
        "square of x": {"histogram"},
        "x": {"range", "histogram axis 1"},
    }


def test_order_dependent_statistics_are_listed_in_the_file(path: Path) -> None:
    write_statistics(path, run_file(statistics={"x": {"ema_minmax:decay=0.75": moving_average(*samples()[:2])}}))
    assert read_statistics(path).ordered == ("ema_minmax:decay=0.75",)
    with np.load(path, allow_pickle=False) as members:
        assert json.loads(members["header"].item())["ordered"] == ["ema_minmax:decay=0.75"]


def test_numpy_alone_can_read_the_file(path: Path) -> None:
    write_statistics(path, run_file())
    with np.load(path, allow_pickle=False) as members:
        header = json.loads(members["header"].item())
        number = sorted(header["tensors"]).index("x")
        key = header["tensors"]["x"].index("range")
        finite = np.concatenate([array[np.isfinite(array)] for array in samples()])
        assert members[f"{number}/{key}/minimum"] == finite.min()
        assert members[f"{number}/{key}/maximum"] == finite.max()
    assert zipfile.ZipFile(path).testzip() is None


def test_equal_contents_have_equal_bytes_whatever_the_time_and_the_order_of_keys(path: Path, tmp_path: Path) -> None:
    file = run_file()
    other = tmp_path / "other.npz"
    write_statistics(path, file)
    backwards = {
        tensor: dict(reversed(list(kinds.items()))) for tensor, kinds in reversed(list(file.statistics.items()))
    }
    facts = replace(file.facts, runtime=dict(reversed(list(file.facts.runtime.items()))))
    write_statistics(other, run_file(statistics=backwards, facts=facts))
    assert path.read_bytes() == other.read_bytes()
    write_statistics(other, read_statistics(path))
    assert path.read_bytes() == other.read_bytes()
    assert {member.date_time for member in zipfile.ZipFile(path).infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    write_statistics(path, run_file())
    before = path.read_bytes()

    class Broken(RangeStatistic):
        def to_arrays(self) -> dict[str, np.ndarray]:
            return {"kind": np.array(self.kind), "object": np.array([object()])}

    with pytest.raises(ValueError, match="allow_pickle"):
        write_statistics(path, run_file(statistics={"x": {"range": Broken()}}))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_no_flipped_bit_is_overlooked(path: Path) -> None:
    write_statistics(path, run_file(statistics={"x": {"range": RangeStatistic()}}))
    whole = path.read_bytes()
    ends = {*range(50), *range(len(whole) - 90, len(whole))}  # where the zip, not the content, would be damaged
    for position in sorted(ends.union(range(0, len(whole), 23))):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :])
        with pytest.raises(DataError, match=r"calibrate again") as caught:
            read_statistics(path)
        assert str(path) in str(caught.value)


def test_no_truncated_file_is_taken_for_whole(path: Path) -> None:
    write_statistics(path, run_file(statistics={"x": {"range": RangeStatistic()}}))
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 23), *range(len(whole) - 100, len(whole))}:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="calibrate again"):
            read_statistics(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DataError, match=f"damaged or was cut off; {REMEDY}"):
        read_statistics(path)


def test_a_missing_member_is_an_error(path: Path) -> None:
    write_statistics(path, run_file())
    rewrite(path, **{"1_of_1_of_maximum": None})
    with pytest.raises(DataError, match=f"maximum.*{REMEDY}"):
        read_statistics(path)


def test_another_version_is_named(path: Path) -> None:
    write_statistics(path, run_file())
    with np.load(path) as members:
        header = json.loads(members["header"].item())
    rewrite(path, header=json.dumps(header | {"version": VERSION + 1}).encode())
    with pytest.raises(DataError, match=f"has version {VERSION + 1}, and this onnxq reads version {VERSION}; {REMEDY}"):
        read_statistics(path)
    rewrite(path, header=json.dumps(header | {"format": "other"}).encode())
    with pytest.raises(DataError, match="holds 'other' instead of 'onnxq-statistics'"):
        read_statistics(path)
    rewrite(path, header=json.dumps(header).encode())
    assert read_statistics(path).model == MODEL


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b"no JSON", b'{"format": "onnxq-statistics"}', np.float32(1.0), np.zeros(3)]
)
def test_a_header_that_onnxq_did_not_write_is_an_error(path: Path, header: object) -> None:
    write_statistics(path, run_file())
    rewrite(path, header=header)
    with pytest.raises(DataError, match=REMEDY):
        read_statistics(path)


def test_an_unknown_kind_of_statistic_is_an_error(path: Path) -> None:
    write_statistics(path, run_file())
    rewrite(path, **{"0_of_0_of_kind": "moments"})
    with pytest.raises(DataError, match=f"unknown statistic 'moments'.*{REMEDY}"):
        read_statistics(path)


def test_calibration_data_is_not_taken_for_statistics_and_need_not_be_deleted(path: Path) -> None:
    np.savez(path, image=np.zeros((2, 3)))
    with pytest.raises(DataError, match="does not begin like a statistics file") as caught:
        read_statistics(path)
    assert "delete" not in str(caught.value)
    for content in (b"", b"text", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="does not begin like a statistics file"):
            read_statistics(path)


def test_a_missing_file_and_a_folder_are_errors(path: Path) -> None:
    for place in (path, path.parent):
        with pytest.raises(DataError, match="no statistics file at"):
            read_statistics(place)


# ---- what it belongs to ----------------------------------------------------------------------------------------------


def test_a_file_of_another_model_or_of_other_data_is_refused_and_says_which(path: Path) -> None:
    write_statistics(path, run_file())
    file = read_statistics(path)
    check_same(file, model=MODEL)
    check_same(file, model=MODEL, samples=file.samples)
    with pytest.raises(DataError, match=r"another model: .*--fresh") as caught:
        check_same(file, model="cd" * 32, samples="0" * 64)
    assert str(path) in str(caught.value)
    with pytest.raises(DataError, match=r"other data: .*--fresh"):
        check_same(file, model=MODEL, samples="0" * 64)


@pytest.mark.parametrize("shard", [(0, 1), (2, 1), (1, 0)])
def test_shards_are_counted_from_one(shard: tuple[int, int]) -> None:
    with pytest.raises(SpecError, match=f"no shard {shard[0]} of {shard[1]}"):
        StatisticsFile(MODEL, "0" * 64, 0, {}, shard=shard)


def test_a_file_that_is_replaced_while_it_is_read_does_not_mix_with_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "statistics.npz", tmp_path / "other.npz"
    write_statistics(path, run_file())
    whole = path.read_bytes()
    other.write_bytes(bytes(reversed(whole)) * 2)
    check = sealed_npz._check_seal

    def replaced_behind(stream: BinaryIO, where: Path) -> None:
        check(stream, where)
        other.replace(path)

    monkeypatch.setattr(sealed_npz, "_check_seal", replaced_behind)
    found = read_statistics(path)
    monkeypatch.undo()
    write_statistics(path, found)
    assert path.read_bytes() == whole
