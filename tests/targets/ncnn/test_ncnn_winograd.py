"""Six bits for Winograd: no integer beyond 31, whatever the observer of the weights does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.numerics import quantize as to_integers
from onnxq.refine import refine
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import PerTensor, QParams, QParamsTable
from tests.targets.ncnn.test_ncnn_table import convolution, samples


@pytest.mark.parametrize("observer", ["minmax", "percentile:90", "clip_std:1", "mse", "octav"])
def test_clipped_weights_stay_within_six_bits_too(observer: str, tmp_path: Path) -> None:
    config = {"weight_observer": observer}
    result = onnxq.quantize(convolution(), backend="ncnn", data=samples(), out=tmp_path / "out", config=config)
    # ncnn2int8 reads the float weights of the deploy model, multiplies them by the scales and rounds.
    model = onnx.load(tmp_path / "out" / "model_deploy_model.onnx")
    weight = numpy_helper.to_array(model.graph.initializer[0])
    steps = np.rint(weight / result.qparams["w"].scale[:, None, None, None])
    assert np.abs(steps).max() == 31


@pytest.mark.parametrize("per_tensor", [False, True])
def test_a_clipped_scale_is_widened_for_each_scale_of_the_weight(*, per_tensor: bool) -> None:
    prepared = prepare(convolution(), "ncnn")
    plan = make_plan(prepared)
    graph, spec = prepared.graph, plan["w"].spec
    if per_tensor:
        spec = spec.replace(granularity=PerTensor())
    table = QParamsTable()
    table.put("w", QParams(spec, np.full(() if per_tensor else 8, 1e-3, np.float32), np.int32(0)), "clipped")
    table.integer_weights["w"] = np.ones(graph.values("w").shape, np.int8)
    refined = refine(graph, plan, table, prepared.backend)
    largest = np.abs(graph.values("w")).max(axis=None if per_tensor else (1, 2, 3))
    np.testing.assert_allclose(refined.qparams["w"].scale, largest / 31, rtol=1e-6)
    assert np.abs(to_integers(graph.values("w"), refined.qparams["w"]).astype(int)).max() == 31
    assert "w" not in refined.qparams.integer_weights  # they were made for another scale
    assert "w" in table.integer_weights
    assert any("6 bits" in note for note in refined.notes)
