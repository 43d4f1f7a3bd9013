"""Verification passes a faithful file, and names what is wrong with any other; kernels and layers are measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import DataError, ModelError
from onnxq.graph import Graph
from onnxq.runtime.session import make_session
from onnxq.types import Backend, Limits, Placement, QuantPlan, QuantSpec, Scheme
from onnxq.verify.check_samples import CheckSamples
from onnxq.verify.checks import verify
from onnxq.verify.compare import compare_layers
from onnxq.verify.kernels import integer_kernels
from onnxq.verify.report import FailureKind
from onnxq.verify.roots import load_session

BACKEND = Backend("chip", "a chip", Scheme(QuantSpec("int8"), QuantSpec("int8")), (), Limits(("int8", "uint8")))
PLAN = QuantPlan("chip", {"x": Placement("x", QuantSpec("int8"), "activation", "", observe=("x",))})


def info(name: str, shape: list[int | str | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def save(path: Path, nodes, outputs, constants, *, metadata=None, inputs=None) -> Path:  # type: ignore[no-untyped-def]
    graph = helper.make_graph(
        nodes,
        "test",
        inputs or [info("x", ["N", 8])],
        outputs,
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    helper.set_model_props(model, {"author": "me"} if metadata is None else metadata)
    path.write_bytes(model.SerializeToString())
    return path


def pair(tensor: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [tensor, scale, zero], [f"{tensor}_q"], name=f"{tensor}_quantize"),
        helper.make_node(
            "DequantizeLinear", [f"{tensor}_q", scale, zero], [f"{tensor}_d"], name=f"{tensor}_dequantize"
        ),
    ]


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "w1": generator.normal(size=(8, 16)).astype(np.float32),
        "w2": generator.normal(size=(16, 4)).astype(np.float32),
    }


OUTPUTS = [info("y", ["N", 4]), info("best", ["N"], TensorProto.INT64)]


def float_model(folder: Path) -> Path:
    """x -> MatMul -> Relu -> MatMul -> y, and best = argmax(y)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
        helper.make_node("ArgMax", ["y"], ["best"], name="argmax", axis=1, keepdims=0),
    ]
    return save(folder / "float.onnx", nodes, OUTPUTS, weights())


def quantized_model(folder: Path, *, scale: float = 0.03, outputs=None, metadata=None, tail=()) -> Path:  # type: ignore[no-untyped-def]
    constants: dict[str, object] = {
        "xs": np.float32(scale),
        "xz": np.int8(0),
        "rs": np.float32(0.08),
        "rz": np.int8(-128),
    }
    nodes = pair("x", "xs", "xz")
    for name, values in weights().items():
        step = np.float32(np.abs(values).max() / 127)
        constants |= {f"{name}_i": np.round(values / step).astype(np.int8), f"{name}_s": step, f"{name}_z": np.int8(0)}
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}_i", f"{name}_s", f"{name}_z"], [f"{name}_f"], name=name)
        )
    nodes += [
        helper.make_node("MatMul", ["x_d", "w1_f"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        *pair("r", "rs", "rz"),
        helper.make_node("MatMul", ["r_d", "w2_f"], ["y"], name="second"),
        helper.make_node("ArgMax", ["y"], ["best"], name="argmax", axis=1, keepdims=0),
        *tail,
    ]
    return save(folder / "quantized.onnx", nodes, outputs or OUTPUTS, constants, metadata=metadata)


def data(count: int = 4) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(1)
    return [{"x": generator.normal(size=(16, 8)).astype(np.float32)} for _ in range(count)]


def test_a_faithful_file_passes_with_its_measures(tmp_path: Path) -> None:
    report = verify(float_model(tmp_path), quantized_model(tmp_path), PLAN, BACKEND, data(), minimum_db=25)
    assert report.failures == ()
    assert report.passed
    assert report.samples == 4
    y, best = report.outputs
    assert y.name == "y"
    assert y.sqnr_db is not None
    assert 25 < y.sqnr_db < 50
    assert y.sqnr_db == report.worst_db
    assert best.agreement is not None
    assert best.agreement > 0.9
    assert best.sqnr_db is None
    json.dumps(report.to_json(), allow_nan=False)


def test_identical_models_have_no_error(tmp_path: Path) -> None:
    path = float_model(tmp_path)
    report = verify(Graph.load(path), path, QuantPlan("chip"), BACKEND, data())
    assert report.worst_db == math.inf
    assert report.outputs[1].agreement == 1.0
    json.dumps(report.to_json(), allow_nan=False)


def test_only_the_first_samples_are_compared(tmp_path: Path) -> None:
    report = verify(float_model(tmp_path), quantized_model(tmp_path), PLAN, BACKEND, CheckSamples(data(9), 3))
    assert report.samples == 3
    assert report.outputs[0].compared == 3 * 16 * 4


def test_a_low_sqnr_fails_only_where_a_minimum_is_set(tmp_path: Path) -> None:
    rough = quantized_model(tmp_path, scale=2.0)
    assert verify(float_model(tmp_path), rough, PLAN, BACKEND, data()).passed
    (failure,) = verify(float_model(tmp_path), rough, PLAN, BACKEND, data(), minimum_db=25).failures
    assert failure.kind == FailureKind.LOW
    assert failure.result == "y"
    assert failure.sqnr_db is not None
    assert failure.sqnr_db < 25
    assert str(failure).startswith("output 'y': SQNR ")
    assert "below the required 25 dB" in str(failure)


def test_findings_of_the_lint_are_failures(tmp_path: Path) -> None:
    strict = BACKEND.replace(limits=Limits(("int8",), zero_point_zero=True))
    report = verify(float_model(tmp_path), quantized_model(tmp_path), PLAN, strict, data())
    assert [finding.rule for finding in report.findings] == ["zero-point-zero"] * 2
    assert not report.passed
    assert "Use a symmetric format" in str(report.failures[0])


def test_changed_borders_and_metadata_are_named(tmp_path: Path) -> None:
    changed = quantized_model(tmp_path, outputs=[info("y", [16, 4])], metadata={"author": "you", "extra": "fine"})
    failures = "\n".join(map(str, verify(float_model(tmp_path), changed, PLAN, BACKEND, data()).failures))
    assert "output 'best' is missing in the file" in failures
    assert "output 'y' is float32 [16, 4] in the file, float32 [N, 4] in the float model" in failures
    assert "metadata 'author' is 'you' in the file, 'me' in the float model" in failures
    assert "extra" not in failures


def test_nan_in_the_quantized_outputs_fails(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Sqrt", ["a"], ["s"], name="root"),
        helper.make_node("MatMul", ["s", "w2"], ["y"], name="second"),
        helper.make_node("ArgMax", ["y"], ["best"], name="argmax", axis=1, keepdims=0),
    ]
    broken = save(tmp_path / "broken.onnx", nodes, OUTPUTS, weights())
    report = verify(float_model(tmp_path), broken, QuantPlan("chip"), BACKEND, data())
    assert any("NaN/inf values in sample 0 where the float model has numbers" in str(f) for f in report.failures)
    assert report.worst_db == -math.inf


def test_a_file_without_quantizers_does_not_fulfil_a_plan(tmp_path: Path) -> None:
    path = float_model(tmp_path)
    assert any("no QuantizeLinear" in str(f) for f in verify(path, path, PLAN, BACKEND, data()).failures)


def test_a_file_that_cannot_be_loaded_is_a_failure_with_the_operator(tmp_path: Path) -> None:
    foreign = [helper.make_node("Magic", ["y"], ["z"], name="magic", domain="my.ops")]
    path = quantized_model(tmp_path, tail=foreign)
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("my.ops", 1))
    path.write_bytes(model.SerializeToString())
    (failure,) = verify(float_model(tmp_path), path, PLAN, BACKEND, data()).failures
    assert "no implementation of operator 'Magic' (domain 'my.ops')" in str(failure)


def test_a_missing_or_invalid_file_is_a_failure(tmp_path: Path) -> None:
    missing = verify(float_model(tmp_path), tmp_path / "no.onnx", PLAN, BACKEND, data())
    assert "no model file" in str(missing.failures[0])
    nodes = [helper.make_node("MatMul", ["x"], ["y"], name="short")]
    invalid = save(tmp_path / "invalid.onnx", nodes, [info("y", ["N", 4])], {})
    report = verify(float_model(tmp_path), invalid, PLAN, BACKEND, data())
    assert str(report.failures[0]).startswith("the ONNX checker refuses the file")


def test_integer_kernels_are_counted(tmp_path: Path) -> None:
    counted = integer_kernels(quantized_model(tmp_path))
    assert sum(counted.integer.values()) == 2
    assert counted.floating == {}
    plain = integer_kernels(float_model(tmp_path))
    assert plain.integer == {}
    assert plain.floating == {"MatMul": 2}
    assert plain.quantizers == {}
    assert counted.to_json()["float"] == {}


def test_kernels_that_cannot_saturate_are_exact_on_any_machine(tmp_path: Path) -> None:
    # Integer kernels and their exact form may round the float32 result differently, nothing more.
    report = verify(float_model(tmp_path), quantized_model(tmp_path), PLAN, BACKEND, data(2))
    assert report.kernel_margin_db > 6
    assert all(check.kernel_db is not None and check.kernel_db > 100 for check in report.outputs if check.sqnr_db)
    assert report.kernels == integer_kernels(quantized_model(tmp_path))


def test_the_measured_sqnr_does_not_depend_on_the_processor(tmp_path: Path) -> None:
    # Large uint8 * int8 products: x86 processors without VNNI saturate in their fastest kernels.
    generator = np.random.default_rng(0)
    weight = generator.integers(100, 128, (8, 4)).astype(np.float32)
    plain = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    reference = save(tmp_path / "f.onnx", plain, [info("y", ["N", 4])], {"w": weight})
    nodes = [
        *pair("x", "one", "zero"),
        helper.make_node("DequantizeLinear", ["w", "one", "none"], ["w_d"], name="weight"),
        helper.make_node("MatMul", ["x_d", "w_d"], ["y"], name="product"),
    ]
    constants = {"w": weight.astype(np.int8), "one": np.float32(1), "zero": np.uint8(0), "none": np.int8(0)}
    path = save(tmp_path / "q.onnx", nodes, [info("y", ["N", 4])], constants)
    feeds = [{"x": generator.integers(150, 256, (16, 8)).astype(np.float32)}]
    assert sum(integer_kernels(path).integer.values()) == 1
    report = verify(reference, path, PLAN, BACKEND, feeds)
    assert report.worst_db is not None
    assert report.worst_db > 100


@pytest.mark.parametrize("portion", [1, 250])
def test_weights_computed_in_portions_give_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    path, (feed,) = quantized_model(tmp_path), data(1)
    whole = load_session(path, optimize="none").run(None, feed)
    monkeypatch.setattr("onnxq.verify.roots.MANY_ROOTS", 1)
    monkeypatch.setattr("onnxq.verify.roots._PORTION", portion)
    monkeypatch.setattr("onnxq.verify.roots.make_session", recorded := RecordedSessions())
    portions = load_session(path, optimize="none").run(None, feed)
    assert recorded.count == (3 if portion == 1 else 2)
    for one, other in zip(whole, portions, strict=True):
        np.testing.assert_array_equal(one, other)


class RecordedSessions:
    """make_session that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.count += 1
        return make_session(*args, **options)


def test_layers_are_compared_by_name_worst_first(tmp_path: Path) -> None:
    layers = compare_layers(float_model(tmp_path), quantized_model(tmp_path), data())
    assert {layer.tensor for layer in layers} == {"a", "r", "y"}
    assert [layer.sqnr_db for layer in layers] == sorted(layer.sqnr_db for layer in layers)
    by_name = {layer.tensor: layer for layer in layers}
    assert (by_name["r"].node, by_name["r"].op) == ("relu", "Relu")
    assert 20 < by_name["a"].sqnr_db < 60
    assert 0.99 < by_name["a"].cosine < 1
    assert by_name["a"].max_abs > 0


def test_layers_do_not_depend_on_the_memory_limit(tmp_path: Path) -> None:
    paths = float_model(tmp_path), quantized_model(tmp_path)
    # Only the number of outputs of a session differs; sums are the same numbers in the same order.
    assert compare_layers(*paths, data(), memory_limit_bytes=1) == compare_layers(*paths, data())


def test_the_output_of_compare_and_verify_agree(tmp_path: Path) -> None:
    paths = float_model(tmp_path), quantized_model(tmp_path)
    layer = next(layer for layer in compare_layers(*paths, data()) if layer.tensor == "y")
    checked = verify(*paths, PLAN, BACKEND, data()).outputs[0]
    assert checked.sqnr_db == pytest.approx(layer.sqnr_db, abs=0.1)


def test_layers_are_compared_on_data_in_any_form(tmp_path: Path) -> None:
    paths = float_model(tmp_path), quantized_model(tmp_path)
    feeds = data()
    wanted = compare_layers(*paths, data=feeds)
    (name,) = feeds[0]
    np.savez(tmp_path / "data.npz", **{name: np.concatenate([feed[name] for feed in feeds])})
    assert {layer.tensor for layer in compare_layers(*paths, data=tmp_path / "data.npz")} == {"a", "r", "y"}
    with pytest.warns(DeprecationWarning, match=r"compare_layers\(dataset=...\) is now compare_layers\(data=...\)"):
        assert compare_layers(float_path=paths[0], quantized_path=paths[1], dataset=feeds) == wanted  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="data twice"):
        compare_layers(*paths, data=feeds, dataset=feeds)  # type: ignore[call-arg]


def test_models_without_common_tensors_and_empty_data_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["other"], name="relu")]
    other = save(tmp_path / "other.onnx", nodes, [info("other", ["N", 8])], {})
    with pytest.raises(ModelError, match="no computed float tensor of the same name"):
        compare_layers(float_model(tmp_path), other, data())
    with pytest.raises(DataError, match="no samples"):
        compare_layers(float_model(tmp_path), quantized_model(tmp_path), [])


def joined_model(path: Path, fault: float) -> Path:
    """Boxes of hundreds and scores below 1 as one output; `fault` is added to the scores."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "large"], ["boxes"], name="boxes"),
        helper.make_node("Sigmoid", ["a"], ["s"], name="sigmoid"),
        helper.make_node("Add", ["s", "fault"], ["scores"], name="add"),
        helper.make_node("Concat", ["boxes", "scores"], ["y"], name="join", axis=1),
    ]
    constants = {"w1": weights()["w1"], "large": np.float32(300.0), "fault": np.float32(fault)}
    width = 2 * weights()["w1"].shape[1]
    return save(path, nodes, [info("y", ["N", width])], constants)


def test_scores_beside_boxes_are_measured_by_themselves(tmp_path: Path) -> None:
    given, wrong = joined_model(tmp_path / "float.onnx", 0.0), joined_model(tmp_path / "wrong.onnx", 0.3)
    report = verify(given, wrong, QuantPlan("chip"), BACKEND, data())
    (check,) = report.outputs
    width = weights()["w1"].shape[1]
    assert check.sqnr_db is not None
    assert check.sqnr_db > 40
    assert check.parts_db[f"y[:, 0:{width}]"] == math.inf
    assert check.parts_db[f"y[:, {width}:{2 * width}]"] < 10
    assert report.parts_db == check.parts_db
    assert report.to_json()["outputs"][0]["parts_db"][f"y[:, 0:{width}]"] == "inf"
    json.dumps(report.to_json(), allow_nan=False)


def test_other_outputs_have_no_parts(tmp_path: Path) -> None:
    path = float_model(tmp_path)
    report = verify(Graph.load(path), path, QuantPlan("chip"), BACKEND, data())
    assert report.parts_db == {}
    assert "parts_db" not in report.to_json()["outputs"][0]
