"""A range narrower than the target takes is widened, its bias follows, and everything else stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.calibrate import calibrate
from onnxq.errors import SpecError
from onnxq.refine import refine
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import get_backend
from tests.zoo_graphs.net import Net


def convolution() -> onnx.ModelProto:
    net = Net("narrow")
    net.output(net.conv(net.input("x", [1, 3, 8, 8]), 3, 4))
    return net.model()


def refined(size: float):
    feeds = [{"x": (np.random.default_rng(3).normal(size=(1, 3, 8, 8)) * size).astype(np.float32)}]
    prepared = prepare(convolution(), "snpe")
    before, plan, _ = calibrate(prepared.graph, make_plan(prepared), feeds)
    return before, plan, refine(prepared.graph, plan, before, prepared.backend)


def test_a_narrow_range_is_widened_and_the_bias_scale_follows() -> None:
    before, plan, after = refined(1e-4)
    width = float(after.qparams["x"].scale) * 255
    assert width == pytest.approx(0.01, rel=1e-6)
    assert float(before["x"].scale) * 255 < 0.01
    (bias,) = [p for p in plan if p.role == "bias"]
    weight = after.qparams[bias.derive.weight].scale
    assert after.qparams[bias.tensor].scale == np.float32(after.qparams["x"].scale * weight)
    assert any("'x'" in note and "0.01" in note for note in after.notes)


def test_ordinary_ranges_stay_as_they_are() -> None:
    before, _, after = refined(1.0)
    assert after.qparams.entries == before.entries
    assert after.notes == ()


def test_a_backend_that_names_no_width_is_told_so() -> None:
    before, plan, _ = refined(1.0)
    backend = get_backend("tensorrt").replace(refinements=("minimum_range",))
    with pytest.raises(SpecError, match="minimum_range"):
        refine(prepare(convolution(), backend).graph, plan, before, backend)
