"""Evidence: what is claimed, and what is not, for single layers with one thing about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.demo import load_data, model_path
from onnxq.diagnose import AUTOMATIC, diagnose
from onnxq.diagnose.causes import ChannelsDiffer, NormalizationInFewBits, OutlierSample, OutlierValues
from onnxq.diagnose.evidence import Case, Evidence, tensors_of
from onnxq.diagnose.evidence.channels import channels
from onnxq.diagnose.evidence.kernels import saturating_kernels, with_kernels_db
from onnxq.diagnose.evidence.masks import masks
from onnxq.diagnose.evidence.operators import operators
from onnxq.diagnose.evidence.outliers import outliers
from onnxq.diagnose.evidence.preprocessing import wrong_preprocessing
from onnxq.diagnose.images import USUAL, Transformation, alternatives
from onnxq.diagnose.look import look_at
from onnxq.diagnose.noise import costliest
from onnxq.graph import Graph
from onnxq.mixed_precision import Subject
from onnxq.mixed_precision.study import Study
from onnxq.runtime import input_infos, open_dataset
from onnxq.verify import OutputCheck, VerifyReport
from tools.illnesses import ILLNESSES

SAMPLES, ROWS, SIZE = 16, 64, 32


def _layer(scales: np.ndarray, *, norm: bool = False) -> Graph:
    """Two MatMuls with channels of these sizes between them, and perhaps a normalization."""
    random = np.random.default_rng(0)
    first = random.normal(0, 1, (SIZE, SIZE)) * scales
    constants = {
        "w1": first,
        "w2": random.normal(0, 1, (SIZE, SIZE)) / scales[:, None],
        "gamma": np.ones(SIZE),
        "beta": np.zeros(SIZE),
    }
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], "first")]
    nodes += [helper.make_node("LayerNormalization", ["h", "gamma", "beta"], ["n"], "norm")] if norm else []
    nodes += [helper.make_node("MatMul", ["n" if norm else "h", "w2"], ["y"], "second")]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, ROWS, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, ROWS, SIZE])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items() if k in used],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def _samples(change: Callable[[np.ndarray], None] = lambda x: None) -> list[dict[str, np.ndarray]]:
    x = np.random.default_rng(1).normal(0, 1, (SAMPLES, ROWS, SIZE)).astype(np.float32)
    change(x)
    return [{"x": sample[None]} for sample in x]


def _case(graph: Graph, feeds: list[dict[str, np.ndarray]], **config: Any) -> Case:
    study = Study(Subject(graph, backend="qnn", data=feeds, config=config, samples=4))
    state = study.calibrated(study.plan())
    costly = costliest(state, study.score, 100)
    dataset = open_dataset(feeds, input_infos(graph))
    return Case(state, costly, look_at(state.graph, tensors_of(state, costly), dataset, None))


def _found(evidence: Iterable[Evidence], kind: type, quantizer: str) -> Any:
    return next((e.finding for e in evidence if isinstance(e.finding, kind) and e.finding.quantizer == quantizer), None)


EVEN = np.ones(SIZE)


def test_nothing_is_claimed_about_an_ordinary_layer() -> None:
    case = _case(_layer(EVEN), _samples())

    assert [e.finding for look in (outliers, masks, channels, operators) for e in look(case)] == []


def test_a_tensor_of_another_rank_than_declared_is_seen_without_channels() -> None:
    """Nothing infers the shape behind an operator of onnxruntime, so a declaration is believed."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,4] x, float[4] b) => (float[1,1,4] y) <float[1,1,4] h> {
        h = com.microsoft.BiasGelu(x, b) y = Relu(h) }"""
    graph = Graph.from_model(onnx.parser.parse_model(text))
    feeds = [{"x": np.array([[1, 2, 3, 4]], np.float32), "b": np.zeros(4, np.float32)}]
    seen = look_at(graph, ["x", "h"], open_dataset(feeds, input_infos(graph)), None)
    assert seen["h"].channels is None
    assert seen["h"].high > 3.9
    assert seen["x"].channels is not None


def test_channels_that_differ_are_found_in_weights_and_behind_them() -> None:
    scales = EVEN.copy()
    scales[5] = 50.0
    found = list(channels(_case(_layer(scales), _samples())))

    for quantizer in ("w1", "h"):
        finding = _found(found, ChannelsDiffer, quantizer)
        assert finding is not None
        assert (finding.channel, finding.of) == (5, SIZE)
        assert finding.largest > 20 * finding.median


def test_a_few_values_of_every_sample_are_no_outlier_sample() -> None:
    def change(x: np.ndarray) -> None:
        x[:, 0, 0] = 500.0  # 1 of 2048 values

    found = list(outliers(_case(_layer(EVEN), _samples(change), observer="minmax")))

    assert _found(found, OutlierSample, "x") is None
    assert _found(found, OutlierValues, "x") is None  # more than one of 10,000 values: they are part of the data


def test_rare_values_are_outliers_and_one_sample_is_named() -> None:
    def rare(x: np.ndarray) -> None:
        x[3, 0, 0] = x[9, 0, 0] = 500.0

    def lone(x: np.ndarray) -> None:
        x[3] *= 100

    values = _found(outliers(_case(_layer(EVEN), _samples(rare))), OutlierValues, "x")
    assert values is not None
    assert values.magnitude == 500.0
    assert values.usual < 10

    sample = _found(outliers(_case(_layer(EVEN), _samples(lone))), OutlierSample, "x")
    assert sample is not None
    assert sample.sample == 3
    assert sample.of_others < 10


def test_a_range_that_the_target_has_fixed_is_set_by_no_value() -> None:
    illness = next(illness for illness in ILLNESSES if illness.code == "softmax_in_few_bits")
    patient = illness.ill(model_path().parent)
    case = _case(patient.model, patient.data[:4])

    assert "p" not in [evidence.finding.quantizer for evidence in outliers(case)]


def test_a_normalization_in_eight_bits_is_found() -> None:
    found = _found(operators(_case(_layer(EVEN, norm=True), _samples())), NormalizationInFewBits, "n")

    assert found is not None
    assert (found.node, found.op, found.bits) == ("norm", "LayerNormalization", 8)


def test_too_few_samples_are_noticed_by_evaluation_samples() -> None:
    def growing(x: np.ndarray) -> None:
        x[3::4] *= 6  # the evaluation samples

    found = diagnose(Subject(_layer(EVEN), backend="qnn", data=_samples(growing)), budget=AUTOMATIC)

    cause = next(cause for cause in found.causes if cause.code == "too_few_samples")
    assert cause.gain_db > 3
    advice = next(trial for trial in found.trials if trial.cause == "too_few_samples" and trial.remedy.by_hand)
    assert advice.untried
    assert advice not in found.paying


@pytest.mark.parametrize(("kernel_db", "claimed"), [(60.0, False), (30.0, True), (5.0, True)])
def test_kernels_that_lose_as_much_as_quantization_saturate(kernel_db: float, claimed: bool) -> None:
    report = VerifyReport(1, 0.0, outputs=(OutputCheck("y", sqnr_db=30.0, kernel_db=kernel_db),))

    assert bool(saturating_kernels(report)) == claimed
    assert with_kernels_db(report) <= min(30.0, kernel_db)


# Preprocessing

COLOR = next(illness for illness in ILLNESSES if illness.name == "BGR for RGB")


@pytest.fixture(scope="module")
def color(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The colour network with samples as it was trained."""
    return COLOR.healthy(tmp_path_factory.mktemp("color"))


def test_data_as_in_training_is_not_blamed(color: Any) -> None:
    assert wrong_preprocessing(color.model, color.test, None, images=False) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_pixel_that_is_no_number_is_no_other_preprocessing(color: Any, value: float) -> None:
    broken = [{"image": feed["image"].copy()} for feed in color.test]
    broken[0]["image"][0, 0, 0, 0] = value

    assert wrong_preprocessing(color.model, broken, None, images=False) is None


def test_samples_without_any_number_say_nothing(color: Any) -> None:
    broken = [{"image": np.full_like(feed["image"], np.nan)} for feed in color.test]

    assert wrong_preprocessing(color.model, broken, None, images=False) is None


def test_colours_in_another_order_are_seen_beside_a_pixel_that_is_no_number(color: Any) -> None:
    swapped = [{"image": feed["image"][:, ::-1].copy()} for feed in color.test]
    swapped[0]["image"][0, 0, 0, 0] = np.nan

    assert wrong_preprocessing(color.model, swapped, None, images=False) is not None


def test_arrays_get_a_line_of_numpy_that_does_what_was_tried(color: Any) -> None:
    axis = 1
    right, pixels = USUAL[1], USUAL[3]
    raw = [Transformation("image", axis, right, pixels)(feed) for feed in color.test]

    found = wrong_preprocessing(color.model, raw, None, images=False)

    assert found is not None
    assert found.transformation.wanted == right
    assert found.finding.of_wanted * 3 < found.finding.distance
    scope: dict[str, Any] = {"np": np, "x": raw[0]["image"]}
    exec(found.transformation.formula(), scope)
    np.testing.assert_allclose(scope["x"], found.transformation(raw[0])["image"], atol=1e-4)
    np.testing.assert_allclose(scope["x"], color.test[0]["image"], atol=1e-3)


@pytest.mark.parametrize("given", USUAL, ids=lambda values: values.text())
def test_every_formula_does_what_its_transformation_does(given: Any) -> None:
    x = np.random.default_rng(7).uniform(-3, 250, (2, 3, 4, 4)).astype(np.float32)
    for wanted in alternatives(given):
        change = Transformation("x", 1, given, wanted)
        scope: dict[str, Any] = {"np": np, "x": x}
        exec(change.formula(), scope)
        np.testing.assert_allclose(scope["x"], change({"x": x})["x"], rtol=1e-4, atol=1e-2)


def test_a_model_without_batch_norms_or_without_colours_has_nothing_to_say(color: Any) -> None:
    assert wrong_preprocessing(_layer(EVEN), _samples(), None, images=False) is None
    gray = [{"image": 255 * image[None]} for image in load_data().calibration[:4]]
    assert wrong_preprocessing(Graph.load(model_path()), gray, None, images=False) is None


def test_models_are_left_as_they_were(color: Any) -> None:
    before = color.model.to_model().SerializeToString()
    wrong_preprocessing(color.model, color.test, None, images=False)

    assert color.model.to_model().SerializeToString() == before
    assert onnx.load(str(model_path())).graph.node
