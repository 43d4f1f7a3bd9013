"""Float8 has the scales that tpu-mlir computes with, whoever has chosen others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import onnxq
from onnxq import demo
from onnxq.graph import Graph
from onnxq.refine import refine
from onnxq.session.session import open_session
from onnxq.types import PerChannel, QParams

DATA = demo.load_data().train_images[:16]


def test_float8_without_scales_has_scale_one(tmp_path: Path) -> None:
    result = onnxq.quantize(
        demo.model_path(), backend="sophgo_bm1690:precision=F8E5M2", data=DATA, out=tmp_path, config={"effort": 0}
    )
    assert {float(scale) for item in result.plan for scale in result.qparams[item.tensor].scale.reshape(-1)} == {1.0}
    (table,) = tmp_path.glob("*_cali_table_*")
    rows = [line.split() for line in table.read_text().splitlines() if line and not line.startswith("#")]
    assert {float(row[1]) for row in rows if "_weight" not in row[0]} == {57344.0}


def test_scales_of_weights_are_never_above_those_of_the_largest_value() -> None:
    session = open_session(demo.model_path(), backend="sophgo_bm1690:precision=F8E4M3", data=DATA, config={"effort": 0})
    session.open_data()
    found = session.calibrated()
    graph, plan, qparams = found.state.graph, found.state.plan, found.state.qparams
    weights = [item.tensor for item in plan if item.role == "weight"]
    assert len(weights) > 4
    wide = qparams.copy()
    for number, name in enumerate(weights):
        held = qparams[name]
        factor = np.float32(1.15 if number % 2 == 0 else 0.9)  # a range that is too wide, and one that clips
        wide.put(name, QParams(held.spec, held.scale * factor, held.zero_point), "search")
    refined = refine(graph, plan, wide, session.backend)
    for number, name in enumerate(weights):
        scale = qparams[name].scale * (1 if number % 2 == 0 else np.float32(0.9))
        np.testing.assert_allclose(refined.qparams[name].scale, scale, rtol=1e-6)
    assert len(refined.notes) == len(weights[::2])


def test_a_search_for_scales_keeps_to_them(tmp_path: Path) -> None:
    backend = "sophgo_bm1690:precision=F8E4M3"
    result = onnxq.quantize(
        demo.model_path(), backend=backend, data=DATA, out=tmp_path, config={"improvements": ["weight_scale_search"]}
    )
    graph = Graph.load(tmp_path / "model_deploy_model.onnx")
    clipped = 0
    for item in result.plan:
        if item.role == "weight" and isinstance(item.spec.granularity, PerChannel):
            scale = result.qparams[item.tensor].scale
            largest = np.abs(graph.values(item.tensor)).reshape(scale.size, -1).max(axis=1)
            np.testing.assert_allclose(scale * 448, largest, rtol=1e-5)
            clipped += 1
    assert clipped > 4
