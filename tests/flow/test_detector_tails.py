"""Boxes and scores that a Concat joins: no target quantizes them with one scale that loses the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.numerics import sqnr_db
from onnxq.place.explanation import Decisions
from onnxq.targets import BACKENDS
from onnxq.types import QuantPlan
from tests.zoo_graphs.net import Net

SIZE, CHANNELS, CLASSES = 8, 6, 3
INTEGERS_ONLY = ("stpu", "tengine_u8")
NOT_QUANTIZED_HERE = ("academic_nlp", "tensorrt_nlp", "weight_only")
"""Targets for transformers and for weights alone, which leave this network or its activations float."""


def detector(*, pixels: float = 640.0, behind: bool = False) -> onnx.ModelProto:
    """Boxes of up to `pixels` and scores of up to 1 in one output; `behind` has a Transpose after the Concat."""
    net = Net("detector")
    features = net.conv_relu(net.input("image", [1, 3, SIZE, SIZE]), 3, CHANNELS)
    boxes = net.node("Sigmoid", net.conv(features, CHANNELS, 4, name="box_head"), name="box_sigmoid")
    boxes = net.node("Mul", boxes, net.floats(pixels), output="boxes", name="to_pixels")
    scores = net.node("Sigmoid", net.conv(features, CHANNELS, CLASSES, name="score_head"), output="scores", name="sig")
    joined = net.node("Concat", boxes, scores, axis=1, name="join")
    if behind:
        joined = net.node("Transpose", joined, perm=[0, 2, 3, 1], name="channels_last")
    net.output(joined)
    return net.model()


def inner_join() -> onnx.ModelProto:
    """The same parts, joined in front of a layer."""
    net = Net("inner_join")
    features = net.conv_relu(net.input("image", [1, 3, SIZE, SIZE]), 3, CHANNELS)
    large = net.node("Mul", net.conv(features, CHANNELS, 4), net.floats(500.0), name="scaled")
    small = net.node("Sigmoid", net.conv(features, CHANNELS, 3), name="sig")
    joined = net.node("Concat", large, small, axis=1, name="join")
    net.output(net.conv(joined, 7, 5, name="head"))
    return net.model()


def images(count: int = 8, seed: int = 3) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [{"image": random.uniform(-1, 1, (1, 3, SIZE, SIZE)).astype(np.float32)} for _ in range(count)]


def parts(model: bytes | str, feeds: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options)
    found = np.concatenate([session.run(None, feed)[0] for feed in feeds])
    return found[:, :4], found[:, 4:]


def quantized(model: onnx.ModelProto, target: str, out: Path, **config: object) -> onnxq.Result:
    return onnxq.quantize(model, backend=target, data=images(), config={"effort": 0, **config}, out=out)


ALL_THAT_KEEP_TAILS = sorted({*BACKENDS.names()} - {*INTEGERS_ONLY, *NOT_QUANTIZED_HERE})


def check_scores_are_alive(model: onnx.ModelProto, target: str, out: Path, *, boxes_db: float) -> None:
    result = quantized(model, target, out)
    feeds = images(seed=4)
    boxes, scores = parts(model.SerializeToString(), feeds)
    found_boxes, found_scores = parts(str(result.model), feeds)
    assert sqnr_db(boxes, found_boxes) > boxes_db
    assert sqnr_db(scores, found_scores) > 20


@pytest.mark.parametrize("target", ALL_THAT_KEEP_TAILS)
def test_scores_beside_boxes_are_alive_on_every_target(target: str, tmp_path: Path) -> None:
    check_scores_are_alive(detector(), target, tmp_path, boxes_db=25)


@pytest.mark.parametrize("target", INTEGERS_ONLY)
def test_a_target_without_float_layers_refuses_and_names_the_cut(target: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as error:
        quantized(detector(), target, tmp_path / "out")
    assert "end with 'boxes', 'scores'" in str(error.value)
    assert "--skip 'join'" in str(error.value)
    assert not (tmp_path / "out" / "model.onnx").exists()
    quantized(detector(), target, tmp_path / "skipped", skip=["join"])


def test_what_follows_the_join_stays_float_and_the_plan_says_why(tmp_path: Path) -> None:
    plan = quantized(detector(behind=True), "qnn", tmp_path).plan
    (join,) = plan.unlike
    assert join.tail == ("join", "channels_last")
    assert [member.tensor for member in join.members] == ["boxes", "scores"]
    assert [member.tensor for member in join.lost] == ["scores"]
    assert plan.left_float["join"] == str(join)
    assert "'join'" in plan.left_float["channels_last"]
    assert plan["boxes"].tie is plan["scores"].tie is None
    assert join.result not in plan


def test_parts_of_one_size_share_their_scale_as_before(tmp_path: Path) -> None:
    plan = quantized(detector(pixels=2.0), "sophgo_bm1684x", tmp_path).plan
    assert not plan.unlike
    assert "join" in plan.quantized


def test_a_join_in_front_of_a_layer_is_left_as_it_is(tmp_path: Path) -> None:
    plan = quantized(inner_join(), "qnn", tmp_path, minimum_sqnr_db=-100).plan
    assert not plan.unlike
    assert "join" in plan.quantized


def test_wide_formats_hold_both_parts(tmp_path: Path) -> None:
    assert not quantized(detector(), "qnn:activation=uint16", tmp_path).plan.unlike


def test_the_report_has_the_reason_and_the_plan_survives_json(tmp_path: Path) -> None:
    result = quantized(detector(), "qnn", tmp_path)
    (join,) = result.plan.unlike
    assert any(str(join) in note for note in result.report["notes"])
    assert QuantPlan.from_json(result.plan.to_json()) == result.plan


def test_explain_shows_the_ranges_of_the_members(tmp_path: Path) -> None:
    plan = quantized(detector(), "qnn", tmp_path).plan
    (answer,) = Decisions(plan).about("join")
    joins = [value for label, value in answer.facts if label == "joins"]
    assert [line.partition(":")[0] for line in joins] == ["'boxes'", "'scores'"]
    assert all(line.endswith("steps") for line in joins)


def test_a_tail_that_the_user_forces_is_quantized(tmp_path: Path) -> None:
    config = {"node": {"join": {"force": True}}, "minimum_sqnr_db": -100}
    plan = quantized(detector(), "qnn", tmp_path, **config).plan
    assert "join" in plan.quantized


def split_head() -> onnx.ModelProto:
    """As in YOLOv5: one head behind a Sigmoid, split to places, sizes and scores, decoded, and joined again."""
    net = Net("split_head")
    head = net.conv(net.conv_relu(net.input("image", [1, 3, SIZE, SIZE]), 3, CHANNELS), CHANNELS, 4 + CLASSES)
    sizes = net.ints(2, 2, CLASSES)
    places, lengths, scores = net.many(
        "Split", [net.node("Sigmoid", head, name="sig"), sizes], ("places", "lengths", "scores"), axis=1, name="split"
    )
    places = net.node("Mul", places, net.floats(640.0), output="pixels", name="to_pixels")
    lengths = net.node("Mul", lengths, net.floats(200.0), output="extents", name="to_extents")
    net.output(net.node("Concat", places, lengths, scores, axis=1, name="join"))
    return net.model()


def nested() -> onnx.ModelProto:
    """Scores of two heads joined first, then with the boxes."""
    net = Net("nested")
    features = net.conv_relu(net.input("image", [1, 3, SIZE, SIZE]), 3, CHANNELS)
    boxes = net.node("Sigmoid", net.conv(features, CHANNELS, 4), name="box_sigmoid")
    boxes = net.node("Mul", boxes, net.floats(640.0), output="boxes", name="to_pixels")
    first, second = (
        net.node("Sigmoid", net.conv(features, CHANNELS, 2), output=name, name=f"{name}_sigmoid")
        for name in ("s1", "s2")
    )
    inner = net.node("Concat", first, second, axis=1, name="inner")
    net.output(net.node("Concat", boxes, inner, axis=1, name="outer"))
    return net.model()


@pytest.mark.parametrize("target", ALL_THAT_KEEP_TAILS)
def test_a_head_that_was_split_and_decoded_keeps_its_scores(target: str, tmp_path: Path) -> None:
    check_scores_are_alive(split_head(), target, tmp_path, boxes_db=20)


@pytest.mark.parametrize("target", ["qnn", "sophgo_bm1684x", "espdl", "rknn"])
def test_the_join_that_joins_unlike_tensors_is_the_one_that_stays_float(target: str, tmp_path: Path) -> None:
    plan = quantized(nested(), target, tmp_path).plan
    assert [join.node for join in plan.unlike] == ["outer"]
    assert "inner" in plan.quantized


def test_the_cut_of_nested_joins_has_all_inputs_of_the_outer_one(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="end with 'boxes'"):
        quantized(nested(), "stpu", tmp_path)


@pytest.mark.parametrize("target", INTEGERS_ONLY)
def test_an_input_with_a_few_steps_left_is_for_the_limit_to_check(target: str, tmp_path: Path) -> None:
    plan = quantized(detector(pixels=14.0), target, tmp_path).plan
    assert "join" in plan.quantized


@pytest.mark.parametrize("target", ["qnn", "stpu"])
def test_of_a_forced_join_nothing_says_that_it_is_float(target: str, tmp_path: Path) -> None:
    config = {"node": {"join": {"force": True}}, "minimum_sqnr_db": -100}
    result = quantized(detector(), target, tmp_path, **config)
    assert not result.plan.unlike
    assert not any("joins" in note for note in result.report["notes"])
