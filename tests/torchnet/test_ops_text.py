"""Strings, labels and trees against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import Inputs, in_onnxruntime, in_torch, net_of, one_node


def texts(*words: str) -> np.ndarray:
    return np.array(words, dtype=object)


DAYS = texts("Monday", "tuesday", "Wednesday", "thursday", "müßig Café")
PAIRS = texts("one two  three", "seven", " four,five ", "six").reshape(2, 2)
COUNTS: dict[str, Any] = {
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 1,
    "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2, 4],
    "pool_int64s": [2, 3, 5, 4, 2, 3],
    "weights": [0.5, 2.0, 3.0, 4.0],
}
NUMBERS = np.array([[2, 3, 5, 2], [5, 4, 2, 3]], np.int64)


def assert_same(op: str, inputs: Inputs, **how: Any) -> None:
    model = one_node(op, inputs, **how)
    for ours, theirs in zip(in_torch(model, inputs), in_onnxruntime(model, inputs), strict=True):
        assert ours.shape == theirs.shape
        if theirs.dtype == object:
            assert ours.tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
            assert ours.dtype == theirs.dtype


@pytest.mark.parametrize(
    ("op", "inputs", "how"),
    [
        ("StringConcat", [PAIRS, texts("x", "y")], {"kind": TensorProto.STRING}),
        ("StringSplit", [PAIRS], {"outputs": 2, "kind": TensorProto.STRING}),
        ("StringSplit", [PAIRS], {"outputs": 2, "kind": TensorProto.STRING, "delimiter": ",", "maxsplit": 1}),
        ("StringSplit", [PAIRS], {"outputs": 2, "kind": TensorProto.STRING, "delimiter": " "}),
        ("RegexFullMatch", [PAIRS], {"kind": TensorProto.BOOL, "pattern": r"s?i?x?|.*two.*"}),
    ],
)
def test_strings_are_treated_as_in_onnxruntime(op: str, inputs: Inputs, how: dict[str, Any]) -> None:
    assert_same(op, inputs, opset=20, **how)


@pytest.mark.parametrize(
    ("action", "sensitive", "stops", "kept"),
    [
        ("NONE", 1, ["monday", "Wednesday"], ["Monday", "tuesday", "thursday", "mußig Cafe"]),
        ("UPPER", 1, ["Monday"], ["TUESDAY", "WEDNESDAY", "THURSDAY", "MUSSIG CAFE"]),
        ("LOWER", 0, ["MONDAY", "wednesday"], ["tuesday", "thursday", "mußig cafe"]),
        ("LOWER", 0, [], ["monday", "tuesday", "wednesday", "thursday", "mußig cafe"]),
        ("NONE", 1, [*DAYS[:4], "mußig", "Cafe"], [""]),
    ],
)
@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_words_are_normalized(action: str, sensitive: int, stops: list[str], kept: list[str], shape: Any) -> None:
    """onnxruntime needs the locale of the file on the machine, so the results are written down here."""
    how = {"case_change_action": action, "is_case_sensitive": sensitive, **({"stopwords": stops} if stops else {})}
    days = DAYS.reshape(shape)
    (found,) = in_torch(one_node("StringNormalizer", [days], opset=10, kind=TensorProto.STRING, **how), [days])
    assert found.tolist() == (kept if len(shape) == 1 else [kept])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("numbers", [NUMBERS, NUMBERS[0]])
def test_sequences_are_counted_as_in_onnxruntime(numbers: np.ndarray, mode: str) -> None:
    assert_same("TfIdfVectorizer", [numbers], opset=9, mode=mode, **COUNTS)


def test_sequences_of_words_are_counted() -> None:
    words = {**COUNTS, "pool_strings": ["b", "c", "e", "d", "b", "c"]}
    del words["pool_int64s"]
    assert_same("TfIdfVectorizer", [texts("b", "c", "e", "b")], opset=9, mode="TF", **words)


@pytest.mark.parametrize("inputs", [[texts("b", "zero", "a")], [np.array([[1, 0, 9]], np.int64)]])
def test_labels_of_the_first_version_go_both_ways(inputs: Inputs) -> None:
    kind = TensorProto.INT64 if inputs[0].dtype == object else TensorProto.STRING  # type: ignore[union-attr]
    how = {"classes_strings": ["a", "b"], "default_int64": 7, "default_string": "none"}
    assert_same("LabelEncoder", inputs, opset=11, domain="ai.onnx.ml", kind=kind, **how)


def of_version(version: int, op: str, inputs: Inputs, **how: Any) -> Any:
    model = one_node(op, inputs, opset=20, domain="ai.onnx.ml", **how)
    next(entry for entry in model.opset_import if entry.domain == "ai.onnx.ml").version = version
    return model


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (texts("a", "q", "b"), {"keys_strings": ["a", "b"], "values_int64s": [5, 6], "kind": TensorProto.INT64}),
        (np.array([3, 1, 2]), {"keys_int64s": [1, 2], "values_strings": ["x", "y"], "kind": TensorProto.STRING}),
        (np.array([0.1, 7], np.float32), {"keys_floats": [0.1], "values_floats": [5.0], "default_float": -3.0}),
    ],
)
def test_labels_are_looked_up_as_in_onnxruntime(value: np.ndarray, how: dict[str, Any]) -> None:
    model = of_version(2, "LabelEncoder", [value], **how)
    np.testing.assert_array_equal(in_torch(model, [value])[0], in_onnxruntime(model, [value])[0])


def test_the_last_of_equal_keys_counts_and_nan_equals_nan() -> None:
    """So says ONNX; onnxruntime does neither in version 2."""
    names = texts("a", "b")
    how: dict[str, Any] = {"keys_strings": ["a", "b", "a"], "values_int64s": [5, 6, 8], "kind": TensorProto.INT64}
    assert in_torch(of_version(4, "LabelEncoder", [names], **how), [names])[0].tolist() == [8, 6]
    numbers = np.array([np.nan, 1], np.float32)
    how = {"keys_floats": [float("nan")], "values_floats": [6.0]}
    assert in_torch(of_version(4, "LabelEncoder", [numbers], **how), [numbers])[0].tolist() == [6, 0]


ROWS = np.random.default_rng(35).normal(0, 1, (20, 3)).astype(np.float32)


def trees(**changed: Any) -> dict[str, Any]:
    """Two trees over three features: nodes 0 and 1, and node 2."""
    return {
        "n_targets": 2,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 2],
        "nodes_splits": helper.make_tensor("", TensorProto.FLOAT, [3], [0.1, -0.2, 0.3]),
        "nodes_modes": helper.make_tensor("", TensorProto.UINT8, [3], [0, 3, 1]),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 1],
        "leaf_weights": helper.make_tensor("", TensorProto.FLOAT, [5], [1.0, 2.0, 4.0, 8.0, 16.0]),
        **changed,
    }


@pytest.mark.parametrize("aggregate", [0, 1])
def test_rows_reach_the_leaves_that_they_reach_in_onnxruntime(aggregate: int) -> None:
    model = of_version(5, "TreeEnsemble", [ROWS], **trees(aggregate_function=aggregate))
    np.testing.assert_allclose(in_torch(model, [ROWS])[0], in_onnxruntime(model, [ROWS])[0], rtol=1e-6)


@pytest.mark.parametrize(("aggregate", "extreme"), [(2, np.minimum), (3, np.maximum)])
def test_the_smallest_or_largest_leaf_counts(aggregate: int, extreme: Any) -> None:
    one_target = {"n_targets": 1, "leaf_targetids": [0] * 5}
    found = in_torch(of_version(5, "TreeEnsemble", [ROWS], **trees(aggregate_function=aggregate, **one_target)), [ROWS])
    first = np.where(ROWS[:, 0] <= np.float32(0.1), np.where(ROWS[:, 1] > np.float32(-0.2), 1, 2), 4)
    second = np.where(ROWS[:, 2] < np.float32(0.3), 8, 16)
    np.testing.assert_array_equal(found[0][:, 0], extreme(first, second))


def test_a_transform_behind_the_trees_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="post_transform"):
        net_of(of_version(5, "TreeEnsemble", [ROWS], **trees(post_transform=1)))
