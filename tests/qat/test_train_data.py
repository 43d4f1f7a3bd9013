"""Data to train on: every form gives the same batches, seed and epoch decide their order, mistakes are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from onnxq.errors import DataError, OnnxqError
from onnxq.qat.batches import Batch, TrainingData
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from tests.qat.toy_net import toy_data, toy_graph

INPUTS = input_infos(toy_graph())


def opened(source: Any, **given: Any) -> TrainingData:
    return open_training_data(source, INPUTS, **given)


def rows_of(batches: Iterator[Batch]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(batch.inputs["x"].numpy(), batch.labels) for batch in batches]
    labels = [np.asarray(found) for _, found in pairs if found is not None]
    return np.concatenate([x for x, _ in pairs]), np.concatenate(labels) if labels else np.empty(0)


class Samples(Dataset):
    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data["x"])

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.data["x"][index], int(self.data["labels"][index])


class Stream(IterableDataset):
    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        yield from zip(self.data["x"], self.data["labels"].tolist(), strict=True)


ARRAYS = ["file", "dict", "tuple", "nested", "function"]
STREAMS = ["loader", "stream", "batches", "iterator", "generator"]
FORMS = [*ARRAYS, "dataset", "tensors", *STREAMS]


def forms(data: dict[str, np.ndarray], folder: Path) -> dict[str, Any]:
    x, y = data["x"], data["labels"]
    np.savez(folder / "data.npz", **data)
    tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    batches = [(x[i : i + 10], y[i : i + 10]) for i in range(0, len(x), 10)]
    return {
        "file": str(folder / "data.npz"),
        "dict": {"x": x, "y": y},
        "tuple": (x, y),
        "nested": ({"x": x}, y),
        "dataset": Samples(data),
        "tensors": tensors,
        "loader": DataLoader(tensors, batch_size=10),
        "stream": Stream(data),
        "batches": batches,
        "iterator": iter(batches),
        "function": lambda: (x, y),
        "generator": lambda: iter(batches),
    }


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_every_sample_once(name: str, tmp_path: Path) -> None:
    data = toy_data(40)
    found = opened(forms(data, tmp_path)[name])
    assert found.labelled
    assert found.steps(10) == 4
    x, labels = rows_of(found.ordered(10))
    np.testing.assert_array_equal(x, data["x"])
    np.testing.assert_array_equal(labels, data["labels"])
    for epoch in (0, 1):
        x, labels = rows_of(found.epoch(0, epoch, 10))
        order = np.lexsort(x.T)
        np.testing.assert_array_equal(x[order], data["x"][np.lexsort(data["x"].T)])
        np.testing.assert_array_equal(labels[order], data["labels"][np.lexsort(data["x"].T)])


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else() -> None:
    first, second = opened(toy_data(40)), opened(toy_data(40))
    list(first.epoch(7, 0, 8))
    np.testing.assert_array_equal(rows_of(first.epoch(7, 3, 8))[0], rows_of(second.epoch(7, 3, 8))[0])
    assert not np.array_equal(rows_of(first.epoch(7, 3, 8))[0], rows_of(first.epoch(7, 4, 8))[0])
    assert not np.array_equal(rows_of(first.epoch(7, 3, 8))[0], rows_of(first.epoch(8, 3, 8))[0])


@pytest.mark.parametrize("with_generator", [False, True])
def test_a_loader_that_shuffles_gives_the_same_epoch_again(with_generator: bool) -> None:
    data = toy_data(40)
    tensors = TensorDataset(torch.from_numpy(data["x"]), torch.from_numpy(data["labels"]))
    generator = torch.Generator() if with_generator else None
    found = opened(DataLoader(tensors, batch_size=8, shuffle=True, generator=generator))
    whole = rows_of(found.epoch(0, 2, 8))[0]
    rows_of(found.epoch(0, 3, 8))
    torch.rand(5)
    np.testing.assert_array_equal(rows_of(found.epoch(0, 2, 8, skip=2))[0], whole[16:])
    assert not np.array_equal(rows_of(found.epoch(0, 3, 8))[0], whole)


def test_held_out_samples_are_in_neither_or_both_parts_never() -> None:
    found = opened(toy_data(40))
    rest, held = found.split(0.25, seed=0)  # type: ignore[attr-defined]
    assert (len(rest), len(held)) == (30, 10)
    joined = np.concatenate([rows_of(rest.ordered(64))[0], rows_of(held.ordered(64))[0]])
    np.testing.assert_array_equal(np.unique(joined, axis=0), np.unique(toy_data(40)["x"], axis=0))


def test_without_labels_there_are_none() -> None:
    assert not opened({"x": toy_data()["x"]}).labelled
    assert not opened([toy_data()["x"]]).labelled


def test_calibration_takes_samples_from_everywhere() -> None:
    data = toy_data(100)
    np.testing.assert_array_equal(opened(data).calibration(2)["x"], data["x"][[0, 99]])
    assert len(opened([(data["x"], data["labels"])]).calibration(30)["x"]) == 30


def test_a_function_is_found_in_a_file_and_in_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import numpy as np\ndef samples():\n    return np.zeros((4, 6), np.float32), np.zeros(4, np.int64)\n"
    Path("training_samples_here.py").write_text(text)
    for name in ("training_samples_here:samples", "training_samples_here.py:samples"):
        assert len(opened(name)) == 4  # type: ignore[arg-type]
    with pytest.raises(OnnxqError, match="Did you mean 'samples'"):
        opened("training_samples_here:sample")


def test_a_folder_is_its_files_one_behind_the_other(tmp_path: Path) -> None:
    data = toy_data(10)
    for number, rows in enumerate((slice(0, 4), slice(4, 5), slice(5, 10))):
        np.savez(tmp_path / f"{number}.npz", x=data["x"][rows], labels=data["labels"][rows])
    found = opened(str(tmp_path))
    batch = next(iter(found.ordered(10)))
    assert batch.labels is not None
    np.testing.assert_array_equal(batch.inputs["x"].numpy(), data["x"])
    np.testing.assert_array_equal(batch.labels.numpy(), data["labels"])
    np.savez(tmp_path / "3.npz", x=data["x"])
    with pytest.raises(DataError, match=r"3\.npz' has no labels, but other files"):
        opened(str(tmp_path))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"holds no \.npz file"):
        opened(str(tmp_path / "none"))


def wrong() -> dict[str, tuple[Any, str]]:
    data = toy_data(10)
    broken = data["x"].copy()
    broken[3, 1] = np.nan

    def fails() -> None:
        raise ValueError("no disk")

    return {
        "nothing": (None, "there is no training data"),
        "name": ({"X": data["x"]}, "Did you mean 'x'"),
        "shape": ({"x": data["x"][:, :5]}, "dimension 1 is 5 instead of 6"),
        "type": ({"x": np.zeros((4, 6), np.uint8)}, "Convert the data yourself"),
        "count": ({"x": data["x"], "labels": data["labels"][:9]}, "one for each of the 10 samples"),
        "NaN": ({"x": broken}, "first in row 3"),
        "labels of text": ((data["x"], np.array(["a"] * 10)), "whole numbers"),
        "empty": (data["x"][:0], "holds no samples"),
        "no batches": ([], "holds no batches"),
        "too many": ((data["x"], data["labels"], data["labels"]), "has 3 elements"),
        "kind": (3.0, "float is not known"),
        "file": ("missing.npz", "does not exist"),
        "returns nothing": (lambda: None, "returned nothing"),
        "fails": (fails, "no disk"),
    }


@pytest.mark.parametrize("name", list(wrong()))
def test_wrong_data_is_an_error_that_says_what_is_wrong(name: str) -> None:
    source, said = wrong()[name]
    with pytest.raises(DataError, match=said):
        opened(source)


def test_labels_are_found_by_the_name_that_was_given() -> None:
    data = toy_data(10)
    assert opened({"x": data["x"], "digit": data["labels"]}, labels="digit").labelled
    with pytest.raises(DataError, match=r"no labels under 'digits'\. Did you mean 'digit'"):
        opened({"x": data["x"], "digit": data["labels"]}, labels="digits")
