"""Files for onnxruntime give the same numbers in its fused kernels as node by node, whatever the processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.emit import Emitted
from onnxq.graph import Graph
from onnxq.pipeline.saturating_kernels import WAYS_OUT, Attempt, without_saturation
from onnxq.types import QParamsTable, QuantPlan
from onnxq.verify import OutputCheck, VerifyReport, sums_are_exact

RANDOM = np.random.default_rng(3)


def model(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], weights: dict[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])],
        outputs,
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# All positive and large: sums of two uint8 * int8 products leave 16 bits nearly everywhere.
HEAVY = RANDOM.uniform(0.7, 1.0, (64, 16))
FEEDS = [{"x": RANDOM.uniform(0.5, 1.0, (32, 64)).astype(np.float32)} for _ in range(4)]


def run(path: Path | bytes, level: ort.GraphOptimizationLevel) -> list[list[np.ndarray]]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    session = ort.InferenceSession(path if isinstance(path, bytes) else str(path), options)
    return [session.run(None, feed) for feed in FEEDS]


def agreement(first: list[list[np.ndarray]], second: list[list[np.ndarray]], output: int) -> float:
    return float(np.mean([np.mean(a[output] == b[output]) for a, b in zip(first, second, strict=True)]))


@pytest.mark.parametrize("portable", [False, True])
def test_an_integer_output_does_not_suffer_from_saturating_kernels(tmp_path: Path, portable: bool) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["l"]),
        helper.make_node("ArgMax", ["l"], ["y"], axis=1, keepdims=0),
    ]
    made = model(nodes, [helper.make_tensor_value_info("y", TensorProto.INT64, [32])], {"w": HEAVY})
    result = onnxq.quantize(
        made, backend="onnxruntime", data=FEEDS, out=tmp_path, config={"portable": portable, "effort": 0}
    )
    literal = run(result.model, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    fused = run(result.model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    assert agreement(literal, fused, 0) > 0.99


def test_an_accurate_output_is_protected_beside_an_inaccurate_one(tmp_path: Path) -> None:
    outlier = np.concatenate([RANDOM.normal(0, 0.2, (63, 8)), np.full((1, 8), 300.0)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Sub", ["x", "middle"], ["centred"]),
        helper.make_node("MatMul", ["centred", "v"], ["q"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, None]) for name in ("y", "q")]
    made = model(nodes, outputs, {"w": HEAVY, "v": outlier, "middle": np.array(0.75)})
    result = onnxq.quantize(
        made,
        backend="onnxruntime",
        data=FEEDS,
        out=tmp_path,
        config={"minimum_sqnr_db": 0.0, "weight": {"per_channel": False}, "effort": 0},
    )
    exact = run(made.SerializeToString(), ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    fused = run(result.model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    noise = sum(float(np.sum((a[0] - b[0]) ** 2)) for a, b in zip(exact, fused, strict=True))
    signal = sum(float(np.sum(a[0] ** 2)) for a in exact)
    assert 10 * np.log10(signal / noise) > 40


def test_portable_weights_are_unsigned_and_stand_for_the_same_numbers(tmp_path: Path) -> None:
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 16])],
        {"w": RANDOM.normal(0, 0.1, (64, 16))},
    )
    signed, unsigned = (
        onnxq.quantize(
            made,
            backend="onnxruntime",
            data=FEEDS,
            out=tmp_path / str(portable),
            config={"portable": portable, "effort": 0},
        )
        for portable in (False, True)
    )
    assert unsigned.qparams["w"].spec.dtype == "uint8"
    np.testing.assert_array_equal(unsigned.qparams["w"].scale, signed.qparams["w"].scale)
    for one, other in zip(
        run(signed.model, ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        run(unsigned.model, ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        strict=True,
    ):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize(("exact", "written"), [(True, 1), (False, 3)])
def test_other_weights_are_tried_only_where_kernels_saturate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool, written: int
) -> None:
    """Kernels whose sums are exact round otherwise than the file says, whatever the weights are."""
    from onnxq.pipeline import saturating_kernels
    from onnxq.pipeline import written as writing

    checked = []
    real = writing.verify
    monkeypatch.setattr(saturating_kernels, "KERNEL_MARGIN_DB", 1000.0)
    monkeypatch.setattr(saturating_kernels, "sums_are_exact", lambda: exact)
    monkeypatch.setattr(writing, "verify", lambda *args, **options: checked.append(args) or real(*args, **options))
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 16])],
        {"w": RANDOM.normal(0, 0.1, (64, 16))},
    )
    result = onnxq.quantize(made, backend="onnxruntime", data=FEEDS, out=tmp_path, config={"effort": 0})

    assert len(checked) == written
    if exact or sums_are_exact():  # where this processor does saturate, another way may be better indeed
        assert result.qparams["w"].spec.dtype == "int8"


@pytest.mark.parametrize(
    ("kernels", "fitting", "unsigned", "taken"),
    [
        (35.7, (30.3, 36.5), (32.5, 36.8), None),  # roundings on the way, with any weights
        (25.0, (30.3, 36.5), (32.5, 36.8), 1),
        (25.0, (31.9, 38.5), (32.5, 38.5), 0),
        (20.0, (30.3, 36.5), (32.5, 33.0), 1),
    ],
)
def test_slower_weights_are_for_kernels_that_lose_much(
    kernels: float, fitting: tuple[float, float], unsigned: tuple[float, float], taken: int | None
) -> None:
    def checks(sqnr_db: float, kernel_db: float) -> VerifyReport:
        return VerifyReport(4, 0.0, (OutputCheck("y", sqnr_db, kernel_db=kernel_db),))

    def changed(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
        return plan, qparams

    graph = Graph.from_model(model([helper.make_node("Relu", ["x"], ["y"])], [], {}))
    nothing = Emitted(())
    first = Attempt(QuantPlan("onnxruntime"), QParamsTable(), nothing, checks(32.5, kernels))
    ways = [(remark, lambda *given: changed(*given)) for remark, _ in WAYS_OUT]
    tried = iter([checks(*fitting), checks(*unsigned)])
    found, remarks = without_saturation(graph, first, ways, lambda *_: nothing, lambda *_: next(tried))
    assert remarks == ([] if taken is None else [WAYS_OUT[taken][0]])
    assert (found is first) == (taken is None)
