"""What a configuration of MQBench does to a real exported network, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import onnxq
from onnxq.compat import Translation
from onnxq.compat.mqbench import translate
from onnxq.config import read_config
from onnxq.pipeline.artifacts import Result
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan
from tests.networks.exported import exported, samples

RESNET, RESNET_DYNAMO, TRANSFORMER = "resnet_torchscript", "resnet_dynamo", "transformer_torchscript"
SCHEME = {"bit": 8, "symmetry": True, "per_channel": True, "pot_scale": False}
ACTIVATION_SCHEME = {**SCHEME, "per_channel": False}
SCHEMES = {"w_qscheme": SCHEME, "a_qscheme": ACTIVATION_SCHEME}
"""What the research backends cannot do without."""


def translated(extra: Mapping[str, Any] | None, backend: object = "Tensorrt", network: str = RESNET) -> Translation:
    return translate(extra, onnxq.load(exported(network)), backend)


def planned(extra: Mapping[str, Any] | None, backend: object = "Tensorrt", network: str = RESNET) -> QuantPlan:
    translation = translated(extra, backend, network)
    return make_plan(prepare(exported(network), translation.backend, translation))


def quantized(
    extra: Mapping[str, Any] | None, folder: Path, backend: object = "Tensorrt", network: str = RESNET, **settings: Any
) -> Result:
    """The files; `settings` are onnxq's own."""
    translation = translated(extra, backend, network)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "calibration.npz"
    np.savez(data, **samples(network))  # type: ignore[arg-type]
    config = read_config(translation, effort=0, **settings)  # what the configuration says, and nothing else
    return onnxq.quantize(exported(network), backend=translation.backend, data=data, config=config, out=folder / "out")


def became(translation: Translation, key: str) -> str:
    """The text of the only row, or of all rows, of a key."""
    found = [row.became for row in translation.rows if row.key == key]
    assert found, f"no row for {key}; there are {[row.key for row in translation.rows]}"
    return "; ".join(found)


def qconfig(**values: Any) -> dict[str, Any]:
    return {"extra_qconfig_dict": values}


def weight_of(plan: QuantPlan, name: str = "layer3.conv1.weight") -> Any:
    return plan[name]


def activations(plan: QuantPlan) -> list[Any]:
    return [placement for placement in plan if placement.role in ("activation", "output")]
