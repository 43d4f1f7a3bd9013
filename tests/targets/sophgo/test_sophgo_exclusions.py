"""What is excluded reads float values: no quantizer in front, and what computes these values runs in float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.types import Edge
from tests.targets.sophgo.sophgo_plans import THIRD, became, config, modes, planned, quantized, translated

IN_FRONT_OF_THIRD = "/layer3/relu_1/Relu_output_0"
IN_FRONT_OF_SIGMOID = "/gate/Conv_output_0"


def excluding(**lists: Any) -> dict[str, Any]:
    return config(quantizer=lists)


@pytest.mark.parametrize(
    ("key", "item", "tensor"),
    [
        ("exclude_module_name", "layer3.conv3", IN_FRONT_OF_THIRD),
        ("exclude_function_type", "torch.nn.functional.sigmoid", IN_FRONT_OF_SIGMOID),
        ("exclude_node_name", "sigmoid", IN_FRONT_OF_SIGMOID),
    ],
)
def test_the_quantizer_in_front_of_the_only_reader_is_gone(key: str, item: str, tensor: str) -> None:
    assert tensor in planned(config())
    given = excluding(**{key: [item]})
    assert tensor not in planned(given)
    assert "no quantizer in front of" in became(translated(given), f"extra_quantizer_dict.{key}")


def test_other_readers_keep_their_quantizer() -> None:
    plan = planned(excluding(exclude_node_name=["add"]))
    shared = [p for p in plan if p.edges is not None and p.role == "activation"]
    assert "/layer1/layer1.0/Add" in plan.left_float
    assert shared
    for placement in shared:
        assert "/layer1/layer1.0/Add" not in {edge.node for edge in placement.edges or ()}


def test_the_layer_in_front_runs_in_float_with_the_weights_of_the_plan(tmp_path: Path) -> None:
    result = quantized(excluding(exclude_module_name=["layer3.conv3"]), tmp_path)
    written = modes(result)
    assert written[f"{IN_FRONT_OF_THIRD}_Relu"] == written["/layer3/conv3/Conv_output_0_Conv"] == "F32"
    assert written["/layer3/relu/Relu_output_0_Relu"] == "INT8"
    assert "/layer3/conv2/Conv" in result.plan.quantized
    deployed = onnxq.load(result.model.with_name(f"{result.model.stem}_deploy_model.onnx"))
    steps = deployed.values("layer3.conv2.weight") / result.qparams["layer3.conv2.weight"].scale.reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)


def test_a_plan_without_exclusions_reads_everything_quantized() -> None:
    plan = planned(config())
    placed = plan[IN_FRONT_OF_THIRD]
    assert placed.edges is None or Edge(THIRD, 0) in placed.edges
