"""Statistics files with a seal of somebody else's: whatever they hold, an error names the file and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.calibrate.sealed_npz import read_sealed, write_sealed
from onnxq.calibrate.statistics_file import Facts, StatisticsFile, read_statistics, write_statistics
from onnxq.errors import DataError
from onnxq.observers.statistics import HistogramStatistic, VotesStatistic


@pytest.fixture
def file(tmp_path: Path) -> Path:
    histogram = HistogramStatistic()
    histogram.update(np.arange(8, dtype=np.float32), 0)
    votes = VotesStatistic()
    path = tmp_path / "statistics.npz"
    facts = Facts(runtime={"provider": "CPU"})
    write_statistics(path, StatisticsFile("m", "s", 1, {"x": {"h": histogram, "v": votes}}, facts=facts))
    read_statistics(path)
    return path


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_statistics(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "the model is a list": ({"model": []}, "model: must be text"),
    "samples below zero": ({"sample_count": -1}, "sample_count: must be 0 or more"),
    "samples beyond 64 bits": ({"sample_count": 2**64}, "sample_count"),
    "complete is text": ({"complete": "yes"}, "complete: must be true or false"),
    "shard 0": ({"shard": [0, 1]}, "shard[0]: must be 1 or more"),
    "three numbers of shards": ({"shard": [1, 2, 3]}, "shard"),
    "tensors is a list": ({"tensors": ["x"]}, "tensors: must be a table"),
    "keys are a number": ({"tensors": {"x": 5}}, "tensors.x: must be a list"),
    "a tensor without arrays": ({"tensors": {"x": ["h", "v"], "y": ["h"]}}, "no statistics file"),
    "facts are text": ({"facts": "none"}, "facts: must be a table"),
    "pinned tensors are a list": ({"facts": {"pinned": ["x"]}}, "facts.pinned: must be a table"),
    "pinned tensors are numbers": ({"facts": {"pinned": {"tensors": [1]}}}, "facts.pinned.tensors[0]: must be text"),
    "reasons are numbers": ({"facts": {"unreachable": {"x": 1}}}, "facts.unreachable.x: must be text"),
    "another format": ({"format": {}}, "instead of 'onnxq-statistics'"),
    "another version": ({"version": 9}, "version 9"),
}


@pytest.mark.parametrize(("changes", "message"), HEADERS.values(), ids=HEADERS)
def test_a_header_is_held_against_its_schema(changes: dict[str, Any], message: str, file: Path) -> None:
    header, arrays = read_sealed(file)
    write_sealed(file, json.dumps({**json.loads(header), **changes}), arrays)
    assert message in refused(file)


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"a": ' + "[" * 100_000, '{"format": 1, "format": 2}'])
def test_a_header_that_is_no_object_is_refused(text: str, file: Path) -> None:
    write_sealed(file, text, {})
    refused(file)


ARRAYS: dict[str, tuple[str, np.ndarray, str]] = {
    "more maxima than minima": ("0/0/maximum", np.zeros(2, np.float32), "'maximum' is float32 of shape [2]"),
    "a count in words": ("0/0/count", np.array(["8"]), "'count' is"),
    "samples as a list": ("0/0/samples", np.zeros(3, np.int64), "'samples' is int64 of shape [3]"),
    "an axis of two": ("0/0/axis", np.zeros((1, 1), np.int64), "'axis' is int64 of shape [1, 1]"),
    "keys beyond all bins": ("0/0/keys", np.array([1, 2, 3, 4, 5, 6, 7, 2**40]), "'keys' are not the numbers of bins"),
    "keys below zero": ("0/0/keys", np.arange(-4, 4), "'keys' are not the numbers of bins"),
    "keys in disorder": ("0/0/keys", np.zeros(8, np.int64), "'keys' are not the numbers of bins"),
    "another kind": ("0/0/kind", np.array("census"), "unknown statistic 'census'"),
    "votes for nothing": ("0/1/votes", np.zeros((3, 2), np.int64), "'votes' is int64 of shape [3, 2]"),
    "a spec of brackets": ("0/1/spec", np.array("[" * 50_000), "more than 64 levels"),
    "no observer": ("0/1/inner", np.array("nobody"), "nobody"),
}


@pytest.mark.parametrize(("member", "array", "message"), ARRAYS.values(), ids=ARRAYS)
def test_an_array_of_another_type_or_shape_is_refused(member: str, array: np.ndarray, message: str, file: Path) -> None:
    header, arrays = read_sealed(file)
    assert member in arrays
    write_sealed(file, header, {**arrays, member: array})
    assert message in refused(file)
