"""Reconstruction of models whose samples are unlike: single numbers, missing values, rows of constants, no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.ptq.reconstruction.small_models import Case, case

Feed = dict[str, np.ndarray]
RANDOM = np.random.default_rng(11)
FIRST = RANDOM.normal(size=(8, 12)).astype(np.float32)
SECOND = RANDOM.normal(size=(12, 6)).astype(np.float32)
THREE_BITS = {"node": {"re:.*": {"weight": {"bits": 3}}}}
"""Also for the first and the last layer, which have 8 otherwise."""


def model(text: str, kind: type = np.float32, **constants: np.ndarray) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    for name, values in {"w": FIRST.astype(kind), "w2": SECOND.astype(kind), **constants}.items():
        if any(name in node.input for node in made.graph.node):
            made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made


def rows(count: int, *shape: int, seed: int = 5) -> list[np.ndarray]:
    """Values with much in common: for others the nearest number is the best one."""
    random = np.random.default_rng(seed)
    return [(1 + random.normal(0, 0.3, shape)).astype(np.float32) for _ in range(count)]


def fitted(made: onnx.ModelProto, feeds: Sequence[Feed], folder: Path | None = None) -> Case:
    return case(made, list(feeds), folder=folder, config=THREE_BITS)


def losses(case: Case, method: str) -> list[float]:
    return [block["before"] for block in case.run(method).details["blocks"]]


def test_a_layer_that_knows_its_positions_does_not_stop_the_others() -> None:
    text = "(float[1,5,8] x) => (float[1,5,6] y) { c = MatMul(x, w) a = Add(c, place) r = Relu(a) y = MatMul(r, w2) }"
    made = model(text, place=RANDOM.normal(size=(1, 5, 12)).astype(np.float32))
    found = fitted(made, [{"x": x} for x in rows(12, 1, 5, 8)]).run("adaround:iterations=100")
    assert len(found.details["blocks"]) == 2
    assert found.changed


def test_a_bias_with_a_row_for_each_position_is_fitted_to_whole_samples() -> None:
    text = "(float[64,8] x) => (float[64,6] y) { c = Gemm(x, w, b) r = Relu(c) y = Gemm(r, w2) }"
    made = model(text, b=np.tile(RANDOM.normal(size=(1, 12)), (64, 1)).astype(np.float32))
    for method in ("adaround:iterations=20", "adaquant:iterations=20"):
        assert len(fitted(made, [{"x": x} for x in rows(8, 64, 8)]).run(method).details["blocks"]) == 2


def test_results_without_values_in_some_samples_are_no_reason_to_stop() -> None:
    text = """(float[3,8] x, float[3,12] r, int64[1] n) => (float[3,12] y, float[a,b] z)
    { c = MatMul(x, w) z = Slice(c, zero, n, zero) y = Add(c, r) }"""
    made = model(text, zero=np.zeros(1, np.int64))
    feeds = [
        {"x": x, "r": r, "n": np.array([0 if number in (2, 5) else 3])}
        for number, (x, r) in enumerate(zip(rows(12, 3, 8), rows(12, 3, 12, seed=6), strict=True))
    ]
    for method in ("adaround:iterations=10", "brecq:iterations=10"):
        assert fitted(made, feeds).run(method).details["blocks"]


@pytest.mark.parametrize("method", ["adaround:iterations=2", "brecq:iterations=2"])
def test_each_sample_is_computed_with_its_own_single_number(method: str) -> None:
    text = "(float[3,8] x, float n) => (float[3,6] y) { c = MatMul(x, w) m = Mul(c, n) r = Relu(m) y = MatMul(r, w2) }"
    numbers = [1.0, 9.0, 50.0, 9.0, 50.0, 9.0, 9.0, 50.0, 1.0, 9.0, 50.0, 1.0]
    feeds = [{"x": x, "n": np.float32(n)} for x, n in zip(rows(12, 3, 8), numbers, strict=True)]
    assert max(losses(fitted(model(text), feeds), method)) < 0.2  # with the numbers of another sample it is near 1


def test_integers_that_differ_from_sample_to_sample_are_stacked_or_nothing_is() -> None:
    text = """(float[1,3,8] x, int64[1] n) => (float[1,3,6] y)
    { c = MatMul(x, w) f = Cast<to = 1>(n) m = Mul(c, f) r = Relu(m) y = MatMul(r, w2) }"""
    feeds = [{"x": x, "n": np.array([1 + number % 3])} for number, x in enumerate(rows(13, 1, 3, 8))]
    for method in ("brecq:iterations=5", "qdrop:iterations=5", "adaround:iterations=5"):
        assert max(losses(fitted(model(text), feeds), method)) < 0.2


def test_powers_that_differ_in_one_sample_are_not_taken_from_another() -> None:
    text = "(float[4,8] x, int64 n) => (float[4,12] y) { c = MatMul(x, w) y = Pow(c, n) }"
    feeds = [{"x": x, "n": np.array(3 if number == 7 else 1)} for number, x in enumerate(rows(40, 4, 8))]
    assert max(losses(fitted(model(text), feeds), "adaround:iterations=2")) < 0.2


@pytest.mark.parametrize("spoilt", [0, 3])
def test_samples_that_are_no_numbers_are_left_out(spoilt: int) -> None:
    text = "(float[1,16,8] x) => (float[1,16,12] y) { c = MatMul(x, w) y = Relu(c) }"
    values = rows(24, 1, 16, 8)
    clean = fitted(model(text), [{"x": x} for x in values]).run("adaround:iterations=200").details["blocks"][0]
    values[spoilt][0, 0, 0] = np.nan
    found = fitted(model(text), [{"x": x} for x in values]).run("adaround:iterations=200").details["blocks"][0]
    assert clean["kept"]
    assert found["kept"]
    assert found["after"] == pytest.approx(clean["after"], rel=0.5)


def test_large_numbers_in_float16_are_fitted_too() -> None:
    text = "(float16[1,16,8] x) => (float16[1,16,12] y) { y = MatMul(x, w) }"
    made = model(text, np.float16)
    feeds = [{"x": (300 * x).astype(np.float16)} for x in rows(16, 1, 16, 8)]
    block = fitted(made, feeds).run("adaround:iterations=200").details["blocks"][0]
    assert block["kept"]
    assert block["after"] < block["before"]


def test_an_unfinished_run_of_another_model_is_not_gone_on_with(tmp_path: Path) -> None:
    def run(slope: str) -> list[bool]:
        nodes = f"c = MatMul(x, w) r = LeakyRelu<alpha = {slope}>(c) y = MatMul(r, w2)"
        text = f"(float[4,8] x) => (float[4,6] y) {{ {nodes} }}"
        found = fitted(model(text), [{"x": x - 1} for x in rows(12, 4, 8)], tmp_path).run("adaround:iterations=20")
        return [block["resumed"] for block in found.details["blocks"]]

    assert run("0.01") == [False, False]
    assert run("0.01") == [True, True]
    assert run("0.9") == [False, False]


@pytest.mark.parametrize("method", ["brecq:iterations=2", "qdrop:iterations=2"])
def test_recurrent_layers_whose_states_do_not_stack_with_their_rows_run_one_by_one(method: str) -> None:
    """Two samples laid together have two rows, and the state of the first alone: Gather takes it from the front."""
    text = """(float[n,8] x, float[2,m,64] s) => (float[n,6] y)
    { p = MatMul(x, w) r = Relu(p) t = Unsqueeze(r, zero) h = Gather(s, zero) c = Gather(s, one)
      all = LSTM <hidden_size=64> (t, gates, back, bias, , h, c) z = Squeeze(all, axes) y = MatMul(z, last) }"""
    made = model(
        text,
        gates=RANDOM.normal(size=(1, 256, 12)).astype(np.float32),
        back=RANDOM.normal(size=(1, 256, 64)).astype(np.float32),
        bias=RANDOM.normal(size=(1, 512)).astype(np.float32),
        last=RANDOM.normal(size=(64, 6)).astype(np.float32),
        axes=np.array([0, 1]),
        zero=np.array([0]),
        one=np.array([1]),
    )
    feeds = [{"x": x, "s": s} for x, s in zip(rows(12, 1, 8), rows(12, 2, 1, 64, seed=6), strict=True)]
    assert fitted(made, feeds).run(method).details["blocks"]
