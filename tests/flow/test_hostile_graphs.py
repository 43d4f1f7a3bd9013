"""Every model of the zoo through the whole flow: quantized well and accounted for, or refused in clear words.

Nothing here relies on onnxq's own numbers: onnxruntime runs both files, and the SQNR is computed below.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import onnxq
from onnxq.errors import OnnxqError
from onnxq.graph import Graph
from tests.zoo import ZOO, Case, runnable
from tests.zoo_graphs.net import Net

BACKENDS = ("tensorrt", "onnxruntime")
REPORT_KEYS = ("coverage", "sqnr_db", "warnings", "files", "seconds")


IMPROVED = sorted(ZOO)[::16]
"""Models that go through the default effort in every run of the tests; the slow ones take all of them through it."""


def efforts() -> list[Any]:
    """(model, effort): every model with calibration alone, and with the default effort."""
    slow = pytest.mark.slow
    improved = [pytest.param(name, 1, marks=() if name in IMPROVED else slow) for name in sorted(ZOO)]
    return [*((name, 0) for name in sorted(ZOO)), *improved]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "effort"), efforts())
def test_quantized_well_or_refused_clearly(name: str, effort: int, backend: str, tmp_path: Path) -> None:
    case = ZOO[name]()
    source = tmp_path / "float.onnx"
    source.write_bytes(case.model.SerializeToString())
    before = source.read_bytes()
    out = tmp_path / "out"
    outcome = quantize_or_refusal(source, backend, case, effort, out)
    if isinstance(outcome, OnnxqError):
        assert case.expect != "quantized", f"refused: {outcome}"
        assert_refusal_is_clear(case, str(outcome), out)
    else:
        assert case.expect != "refused", "quantized a model that has to be refused"
        quantized = onnx.load(outcome.model)
        onnx.checker.check_model(quantized, full_check=True)
        assert_interface_is_unchanged(case.model, quantized)
        assert_every_node_is_accounted_for(case, outcome)
        assert_report_is_complete(outcome)
        assert_outputs_agree(case, Path(outcome.model), backend)
    assert source.read_bytes() == before, "the input file was modified"


def test_a_model_in_memory_is_not_modified(tmp_path: Path) -> None:
    case = ZOO["conv_bn_relu_residual"]()
    before = case.model.SerializeToString(deterministic=True)
    feeds = [{name: values.copy() for name, values in feed.items()} for feed in case.feeds]
    onnxq.quantize(case.model, backend="onnxruntime", data=case.feeds, out=tmp_path, config={"effort": 0})
    assert case.model.SerializeToString(deterministic=True) == before
    for feed, kept in zip(case.feeds, feeds, strict=True):
        assert all(np.array_equal(feed[name], kept[name]) for name in kept)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_call_writes_the_same_bytes(backend: str, tmp_path: Path) -> None:
    case = ZOO["conv_bn_relu_residual"]()
    files = [
        Path(
            onnxq.quantize(case.model, backend=backend, data=case.feeds, out=tmp_path / run, config={"effort": 0}).model
        )
        for run in ("a", "b")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def quantize_or_refusal(source: Path, backend: str, case: Case, effort: int, out: Path) -> Any:
    """The result, or the error that onnxq raised on purpose; any other exception is a bug and passes through."""
    try:
        return onnxq.quantize(source, backend=backend, data=case.feeds, out=out, config={"effort": effort})
    except OnnxqError as refusal:
        return refusal


def assert_refusal_is_clear(case: Case, message: str, out: Path) -> None:
    assert message.strip(), "an error without words"
    if case.error_mentions:
        assert any(word.lower() in message.lower() for word in case.error_mentions), message
    assert not list(out.glob("**/*.onnx")), "a refused model left a file that looks finished"


def assert_interface_is_unchanged(source: onnx.ModelProto, quantized: onnx.ModelProto) -> None:
    assert interface(quantized.graph.output) == interface(source.graph.output)
    assert interface(real_inputs(quantized)) == interface(real_inputs(source))
    assert quantized.doc_string == source.doc_string
    kept = {entry.key: entry.value for entry in quantized.metadata_props}
    for entry in source.metadata_props:
        assert kept.get(entry.key) == entry.value, f"metadata '{entry.key}' was lost"


def real_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initializers = {tensor.name for tensor in model.graph.initializer}
    listed_weights = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    return [value for value in model.graph.input if value.name not in initializers | listed_weights]


def interface(values: Any) -> list[tuple[str, int, tuple[int | str, ...]]]:
    """Name, element type and dimensions, fixed or symbolic, of inputs or outputs."""
    described = []
    for value in values:
        tensor_type = value.type.tensor_type
        dims = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor_type.shape.dim)
        described.append((value.name, tensor_type.elem_type, dims))
    return described


def assert_every_node_is_accounted_for(case: Case, result: Any) -> None:
    plan = result.plan
    for reasons in (plan.quantized, plan.fused, plan.left_float):
        for node, reason in reasons.items():
            assert reason.strip(), f"node '{node}' has no reason"
    # Passes fold and remove nodes before the plan is made; their record says what became of each name of the file.
    origins = onnxq.prepare(case.model, plan.backend).graph.origins
    planned = {*plan.quantized, *plan.fused, *plan.left_float}
    for node in Graph.from_model(case.model).nodes():
        # Constant nodes compute nothing: they are values, like initializers.
        known = origins.current_node(node.name) in planned or origins.removed.get(node.name)
        assert known or node.op == "Constant", f"nobody says what became of node '{node.name}' ({node.op})"
    assert len(plan.quantized) >= case.min_quantized, f"left float: {plan.left_float}"
    if not plan.quantized:
        assert result.report["warnings"], "nothing was quantized, and nobody says so"


def assert_report_is_complete(result: Any) -> None:
    for key in REPORT_KEYS:
        assert key in result.report, f"the report lacks '{key}'"
    files = [Path(file) for file in result.report["files"]]
    assert Path(result.model) in files
    assert all(file.is_file() for file in files)


def assert_outputs_agree(case: Case, quantized: Path, backend: str) -> None:
    """Right in the file's own arithmetic; loadable with default options; right with them too where they are the target.

    Files for other targets are not held to onnxruntime's fused kernels: those quantize a float bias on their own, and
    overflow where weights are tiny.
    """
    names = [output.name for output in case.model.graph.output]
    expected = float_outputs(case, names)
    literal = session(str(quantized), optimize=False)
    assert_close(case, names, expected, [literal.run(names, feed) for feed in case.feeds])
    fused = session(str(quantized))
    results = [fused.run(names, feed) for feed in case.feeds]
    if backend == "onnxruntime" and (integer_sums_are_exact() or not has_quantizers(case.model)):
        assert_close(case, names, expected, results)


def float_outputs(case: Case, names: list[str]) -> list[Any]:
    if case.runs_in_onnxruntime:
        reference = session(runnable(case.model).SerializeToString())
    else:  # onnx's own evaluator has the float kernels that onnxruntime lacks (bfloat16)
        reference = ReferenceEvaluator(case.model)
    return [reference.run(names, feed) for feed in case.feeds]


def assert_close(case: Case, names: list[str], expected: list[Any], actual: list[Any]) -> None:
    for position, name in enumerate(names):
        wanted, got = [run[position] for run in expected], [run[position] for run in actual]
        assert [values.dtype for values in got] == [values.dtype for values in wanted], name
        if name in case.exact_outputs:
            assert all(np.array_equal(a, b) for a, b in zip(wanted, got, strict=True)), f"'{name}' changed"
        elif wanted[0].dtype.kind == "f":
            decibels = signal_to_noise(wanted, got)
            assert decibels >= case.minimum_db, f"'{name}' has {decibels:.1f} dB, {case.minimum_db} dB are needed"


def session(model: bytes | str, *, optimize: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # This fusion puts zeros in front of a MaxPool into the pool, where padding counts as minus infinity: that is wrong.
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"]
    )


def has_quantizers(model: onnx.ModelProto) -> bool:
    """Whether the model came with int8 weights of its own, which onnxq leaves as they are."""
    return any(node.op_type == "DequantizeLinear" for node in model.graph.node)


@cache
def integer_sums_are_exact() -> bool:
    """False on processors with AVX2 and no VNNI, where onnxruntime's sums of uint8 * int8 saturate at 16 bits."""
    net = Net("saturation_probe")
    x = net.input("x", [1, 64], np.uint8)
    net.output(net.node("MatMulInteger", x, net.constant(np.full((64, 16), 127, np.int8))))
    (product,) = session(net.model().SerializeToString()).run(None, {"x": np.full((1, 64), 255, np.uint8)})
    return bool(np.all(product == 64 * 255 * 127))


def signal_to_noise(expected: list[np.ndarray], actual: list[np.ndarray]) -> float:
    """Power of the signal over power of the error in dB, over all samples and all finite values of the reference.

    Where the reference is infinite a quantizer saturates, which is right; the reverse never is.
    """
    signal = noise = 0.0
    for wanted, got in zip(expected, actual, strict=True):
        assert wanted.shape == got.shape
        finite = np.isfinite(wanted)
        assert np.all(np.isfinite(got[finite])), "finite values became infinite or NaN"
        exact = wanted[finite].astype(np.float64)
        signal += float(np.sum(exact**2))
        noise += float(np.sum((exact - got[finite].astype(np.float64)) ** 2))
    if noise == 0.0:
        return float("inf")
    return 10 * float(np.log10(max(signal, np.finfo(np.float64).tiny) / noise))
