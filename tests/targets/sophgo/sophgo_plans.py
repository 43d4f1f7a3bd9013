"""What a configuration of Sophgo-mq does to a real exported network, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import onnxq
from onnxq.compat import Translation
from onnxq.config import read_config
from onnxq.pipeline.artifacts import Result
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets.sophgo.dialect import translate
from onnxq.types import Placement, QuantPlan
from tests.networks.exported import exported, samples

RESNET, RESNET_DYNAMO, TRANSFORMER = "resnet_torchscript", "resnet_dynamo", "transformer_torchscript"
FIRST, SECOND, THIRD = "/layer1/conv1/Conv", "/layer2/conv2/Conv", "/layer3/conv3/Conv"
FIRST_RESULT = "/layer1/relu/Relu_output_0"
"""The result of layer1.conv1, with the Relu that runs inside it."""

FILES = Path(__file__).resolve().parent / "dialect"
"""Configuration files."""


def config(
    chip: str = "BM1688",
    *,
    quant: Mapping[str, Any] | None = None,
    quantizer: Mapping[str, Any] | None = None,
    **qconfig: Any,
) -> dict[str, Any]:
    """A prepare_custom_config_dict; keyword arguments are those of extra_qconfig_dict."""
    found: dict[str, Any] = {"quant_dict": {"chip": chip, **(quant or {})}}
    if qconfig:
        found["extra_qconfig_dict"] = qconfig
    if quantizer is not None:
        found["extra_quantizer_dict"] = quantizer
    return found


def translated(given: Mapping[str, Any], network: str = RESNET) -> Translation:
    return translate(given, onnxq.load(exported(network)))


def planned(given: Mapping[str, Any], network: str = RESNET) -> QuantPlan:
    translation = translated(given, network)
    return make_plan(prepare(exported(network), translation.backend, translation))


def quantized(given: Mapping[str, Any], folder: Path, network: str = RESNET, **settings: Any) -> Result:
    """The files; `settings` are onnxq's own."""
    translation = translated(given, network)
    data = folder / "calibration.npz"
    folder.mkdir(exist_ok=True)
    np.savez(data, **samples(network))  # type: ignore[arg-type]
    own = read_config(translation, **{"effort": 0, **settings})  # what the configuration says, and nothing else
    return onnxq.quantize(exported(network), backend=translation.backend, data=data, config=own, out=folder / "out")


def modes(result: Result) -> dict[str, str]:
    """Operator -> mode, from the table that was written."""
    text = table(result, "q_table")
    return dict(line.split() for line in text.splitlines() if not line.startswith("#"))


def table(result: Result, kind: str) -> str:
    """The text of the q_table or of the cali_table that was written."""
    return next(result.model.parent.glob(f"*_{kind}_from_*")).read_text()


def became(translation: Translation, key: str) -> str:
    """The text of all rows of a key."""
    found = [row.became for row in translation.rows if row.key == key]
    assert found, f"no row for {key}; there are {[row.key for row in translation.rows]}"
    return "; ".join(found)


def activations(plan: QuantPlan) -> list[Placement]:
    return [placement for placement in plan if placement.role in ("activation", "output")]


def weights(plan: QuantPlan) -> list[Placement]:
    return [placement for placement in plan if placement.role == "weight"]


def weight_of(plan: QuantPlan, node: str) -> Placement:
    """The weight of a layer, by the layer's name in the user's file."""
    return next(placement for placement in weights(plan) if any(edge.node == node for edge in placement.edges or ()))
