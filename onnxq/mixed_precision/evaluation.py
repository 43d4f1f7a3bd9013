"""What models are evaluated on: feeds with or without labels, from files, arrays or a user's function; no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import DataError, MachineError
from onnxq.graph import Graph
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.archive import read_arrays
from onnxq.runtime.feeds import Feed, GivenArrays, InputInfo, fit_feed
from onnxq.runtime.labels import key_of_labels
from onnxq.runtime.pieces import as_array
from onnxq.runtime.session import float_session, run_session
from onnxq.user_code import current_folder_importable, find_function, users_errors

CALIBRATION_SAMPLES = 32
"""Samples of the calibration data to evaluate on, where no others are given."""

ROWS = 16
"""Samples that are run together where the model takes any number of them and treats each by itself."""

FORMS = (
    "a .npz file with an array for each input and 'labels', module:function that returns (inputs, labels), or what "
    "calibration takes, which has no labels"
)


@dataclass(frozen=True)
class EvaluationSet:
    """Feeds and one label for each of their rows; `notes` say what was assumed or left out.

    `alike` says that each row is a sample, which the model can also be run on alone.
    """

    feeds: tuple[Feed, ...]
    labels: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    alike: bool = False

    def first(self) -> Feed:
        """The first sample, or the first feed where the model takes several samples at a time."""
        return {name: array[:1] if self.alike else array for name, array in self.feeds[0].items()}


def open_evaluation(
    source: Any,
    graph: Graph,
    calibration: Dataset | None,
    *,
    labels: str | None = None,
    limit: int | None = None,
    preprocess: Any = None,
) -> EvaluationSet:
    """Samples from what the user gave; None takes the first ones of the calibration data.

    labels   the name of the labels among the arrays; else one of `onnxq.runtime.labels.LABEL_NAMES`
    limit    at most this many samples
    """
    if limit is not None and limit < 1:
        raise DataError(f"at least 1 sample is needed to evaluate a model, got {limit}")
    if source is None:
        if labels is not None:
            raise DataError("labels are given with --eval: calibration data has none")
        if calibration is None:
            raise DataError(f"there is no data to evaluate on: give {FORMS}")
        return EvaluationSet(tuple(islice(calibration, limit or CALIBRATION_SAMPLES)))
    inputs = input_infos(graph)
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if Path(text).suffix == ".npz":
            return _from_arrays(_stored(Path(text)), f"'{text}'", graph, inputs, labels, limit)
        if ":" in text and not Path(text).exists():
            source = find_function(text, "evaluation data", DataError)
    if callable(source):
        what = f"function '{getattr(source, '__name__', type(source).__name__)}'"
        source = _called(source, what)
    else:
        what = "the given evaluation data"
    if isinstance(source, np.ndarray | Mapping | tuple) or callable(getattr(source, "detach", None)):
        return _from_arrays(source, what, graph, inputs, labels, limit)
    if labels is not None:
        raise DataError(f"{what} has no array of labels. Give {FORMS}")
    return EvaluationSet(tuple(open_dataset(source, inputs, limit=limit, preprocess=preprocess)))


def _stored(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise DataError(f"evaluation data '{path}' does not exist. Give {FORMS}")
    return read_arrays(path)


def _called(function: Callable[[], Any], what: str) -> Any:
    with current_folder_importable(), users_errors(what, DataError):
        result = function()
    if result is None:
        raise DataError(f"{what} returned nothing: return (inputs, labels), or a dict of arrays")
    return result


def _from_arrays(
    source: Any, where: str, graph: Graph, inputs: Sequence[InputInfo], name: str | None, limit: int | None
) -> EvaluationSet:
    given, found = _apart(source, [info.name for info in inputs], name, where)
    arrays = {key: as_array(value, f"'{key}' of {where}") for key, value in given.items()}
    notes: dict[str, None] = {}
    free = [replace(info, shape=(None, *info.shape[1:])) for info in inputs]
    arrays = fit_feed(arrays, free, where, lambda text: notes.setdefault(text, None))
    counts = {key: len(array) for key, array in arrays.items()}
    labels = None if found is None else as_array(found, f"labels of {where}")
    if labels is not None:
        if labels.ndim == 0:
            raise DataError(f"labels of {where} are a single number: give one for each sample")
        counts["labels"] = len(labels)
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{count} of '{key}'" for key, count in counts.items())
        raise DataError(f"{where}: the arrays do not have the same number of samples: {text}")
    total = next(iter(counts.values()))
    samples = total if limit is None else min(total, limit)
    rows = _rows(graph, inputs, arrays, samples)
    fixed = next((info.shape[0] for info in inputs if isinstance(info.shape[0], int)), None)
    if fixed is not None and samples % fixed:
        samples -= samples % fixed
        notes[f"{where}: the model takes {fixed} samples at a time, so that the first {samples} are used"] = None
    if samples < 1:
        raise DataError(f"{where} has {total} samples, the model takes {fixed or 1} at a time: give more")
    feeds = tuple(
        {key: np.ascontiguousarray(array[start : min(start + rows, samples)]) for key, array in arrays.items()}
        for start in range(0, samples, rows)
    )
    return EvaluationSet(feeds, None if labels is None else labels[:samples], tuple(notes), alike=fixed is None)


def _apart(source: Any, names: Sequence[str], label_name: str | None, where: str) -> tuple[GivenArrays, Any]:
    """Inputs by name, and labels if there are any."""
    if isinstance(source, Mapping):
        named = {str(key): value for key, value in source.items()}
        key = key_of_labels(list(named), names, label_name, where)
        labels = None if key is None else named.pop(key)
        if len(names) == 1 and len(named) == 1 and labels is not None:
            return {names[0]: next(iter(named.values()))}, labels
        return named, labels
    if isinstance(source, tuple):
        if len(source) == 2 and isinstance(source[0], Mapping | tuple | list):
            return _apart(source[0], names, None, where)[0], source[1]
        if len(source) in (len(names), len(names) + 1):
            return dict(zip(names, source, strict=False)), source[-1] if len(source) > len(names) else None
        raise DataError(
            f"{where} has {len(source)} elements, but the model has the inputs {', '.join(names)}; labels may follow"
        )
    if isinstance(source, list) and len(source) == len(names):
        return dict(zip(names, source, strict=True)), None
    if len(names) == 1:
        return {names[0]: source}, None
    raise DataError(f"{where} is one array, but the model has the inputs {', '.join(names)}: give a dict of arrays")


def _rows(graph: Graph, inputs: Sequence[InputInfo], arrays: Feed, samples: int) -> int:
    """Samples of a run: what the model is made for; ROWS where it takes any number and the others change nothing."""
    fixed = next((info.shape[0] for info in inputs if info.shape and isinstance(info.shape[0], int)), None)
    if fixed is not None or samples < 2:
        return fixed or 1
    session = float_session(graph)
    names = graph.output_names
    try:
        both = run_session(session, names, {key: array[:2] for key, array in arrays.items()}, "two samples")
    except (DataError, MachineError):  # exported with one sample somewhere inside, whatever its input says
        return 1
    each = [
        run_session(session, names, {key: array[row : row + 1] for key, array in arrays.items()}, f"sample {row}")
        for row in range(2)
    ]
    for number, together in enumerate(both):
        apart = [single[number] for single in each]
        if not all(isinstance(value, np.ndarray) and value.ndim for value in (together, *apart)):
            return 1
        joined = np.concatenate(apart)
        if joined.shape != together.shape or not np.allclose(joined, together, rtol=1e-3, atol=1e-5):
            return 1
    return ROWS
