"""Strategies of Vitis AI on the exported networks: translated, placed, and run to the end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import onnxq
from onnxq.compat.translation import Translation
from onnxq.config import read_config
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets.amd.dialect import translate
from onnxq.types import QuantPlan
from tests.networks.exported import exported, samples

RESNET, TRANSFORMER = "resnet_torchscript", "transformer_torchscript"
CONV = "/layer1/conv1/Conv"
USUAL = {"bit_width": 4, "method": "No_OF"}
FLOAT_SCALES = ("FSQuantizer", "MAFSQuantizer")


@cache
def graph_of(name: str) -> Graph:
    return Graph.load(exported(name))


def translated(strategy: str | Path | Mapping[str, Any], name: str = RESNET) -> Translation:
    return translate(strategy, graph_of(name))


def planned(strategy: str | Path | Mapping[str, Any], name: str = RESNET) -> QuantPlan:
    """The plan that a strategy leads to."""
    return make_plan(prepare(exported(name), config=translated(strategy, name)))


def quantized(strategy: str | Path | Mapping[str, Any], folder: Path, name: str = RESNET) -> onnxq.Result:
    data = samples(name)
    feeds = [{key: value[i : i + 1] for key, value in data.items()} for i in range(len(next(iter(data.values()))))]
    config = read_config(translated(strategy, name), effort=0)  # what the strategy says, and nothing else
    return onnxq.quantize(exported(name), data=feeds, config=config, out=folder / "out")


def became(translation: Translation, key: str) -> str:
    """What the row of a key says; a key without a row fails the test."""
    found = [row.became for row in translation.rows if row.key == key]
    assert len(found) == 1, [row.key for row in translation.rows]
    return found[0]


def specs(plan: QuantPlan, role: str) -> set[str]:
    return {str(placement.spec) for placement in plan if placement.role == role}


def weight_of(plan: QuantPlan, module: str) -> Any:
    return plan[f"{module}.weight"]


def one_quantizer(kind: str, target: str, **params: Any) -> dict[str, Any]:
    """A strategy with one quantizer of its own, on the first convolution of the ResNet's first layer."""
    quantizer = {"type": kind, "params": {**USUAL, **params}}
    name = "kernel" if target == "weight" else ""
    targets = [{"target_name": name, "target_type": target, "quantizer_config": quantizer}]
    entry = {"layer_type": "Conv2D", "layer_name": "layer1.conv1", "quant_config": targets}
    return {"strategy": "fs" if kind in FLOAT_SCALES else "pof2s", "layer_quantize_config": [entry]}
