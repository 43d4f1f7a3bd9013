"""Which samples are fitted to, which are evaluated, and that every effort is checked on the same ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.graph import Graph
from onnxq.pipeline import written
from onnxq.ptq.search.sample_split import split_samples, verification_samples
from onnxq.runtime import Dataset, input_infos, open_dataset


def dataset(count: int) -> Dataset:
    values = np.arange(count, dtype=np.float32)[:, None, None, None] + load_data().calibration[:1]
    return open_dataset({"image": values.astype(np.float32)}, input_infos(Graph.load(model_path())))


@pytest.mark.parametrize(
    ("count", "most", "numbers"),
    [
        (3, 8, (0, 1, 2)),
        (3, 2, (0, 1)),
        (8, 8, tuple(range(8))),
        (8, 4, (1, 3, 5, 7)),
        (64, 8, (3, 7, 11, 15, 19, 23, 27, 31)),
        (16, 8, (0, 1, 2, 3, 4, 7, 11, 15)),
        (16, 16, tuple(range(16))),
        (32, 16, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 19, 23, 27, 31)),
        (64, 16, tuple(range(3, 64, 4))),
    ],
)
def test_what_evaluates_is_checked_on_first(count: int, most: int, numbers: tuple[int, ...]) -> None:
    samples = verification_samples(dataset(count), most)
    assert samples.numbers == numbers
    assert len(list(samples)) == len(numbers)


def test_most_samples_are_evaluated_or_are_fitted_to_and_none_both() -> None:
    split = split_samples(dataset(20))
    assert split is not None
    assert split.held_out.numbers == (3, 7, 11, 15, 19)
    assert sorted((*split.held_out.numbers, *split.fitted.numbers)) == list(range(20))


def test_every_effort_is_checked_on_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    verify = written.verify

    def looked_at(*arguments: Any, **named: Any) -> Any:
        seen.append(tuple(arguments[4].numbers))
        return verify(*arguments, **named)

    monkeypatch.setattr(written, "verify", looked_at)
    given = load_data().calibration[:32]
    for name, config in (("plain", {"effort": 0}), ("improved", {"improvements": ["bias_correction"]})):
        onnxq.quantize(
            model_path(),
            backend="tensorrt",
            data={"image": given},
            out=tmp_path / name,
            config={**config, "verify_samples": 8},
        )
    assert set(seen) == {(3, 7, 11, 15, 19, 23, 27, 31)}


@pytest.mark.parametrize("count", [4, 5, 7, 8, 9, 64, 700])
def test_evaluation_samples_are_not_those_that_fit(count: int) -> None:
    from onnxq.graph import Graph

    image = np.zeros((count, 1, 8, 8), np.float32)
    image[:, 0, 0, 0] = np.arange(count)
    split = split_samples(open_dataset({"image": image}, input_infos(Graph.load(model_path()))))
    assert split is not None
    fitted = [float(feed["image"][0, 0, 0, 0]) for feed in split.fitted]
    held = [float(feed["image"][0, 0, 0, 0]) for feed in split.held_out]
    assert fitted == list(split.fitted.numbers)
    assert held == list(split.held_out.numbers)
    assert not set(fitted) & set(held)
    assert len(fitted) == len(split.fitted) <= 512
    assert 1 <= len(held) <= 32
