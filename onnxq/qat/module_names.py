"""How torch's users know the constants and quantizers of a net: by the modules that they were exported from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRANSPOSED = "weight_transposed"
"""The weight of a Linear that the exporter has turned over: [in, out], where torch's own `weight` is [out, in]."""


@dataclass(frozen=True)
class ModuleNames:
    """Names with dots between modules.

    constants   constant of the net -> its name in torch, such as layer1.0.conv1.weight; those without one are left out
    quantizers  tensor -> the name of its fake-quantizer: layer1.0.conv1.weight_fake_quant, relu_post_act_fake_quantizer
    shared      further names of constants that serve several modules -> the constant
    channels    weight of a layer -> the axis of its output channels
    biases      weight of a layer -> its bias
    nodes       node that computes otherwise in training, such as a batch norm -> the path of its module
    """

    constants: Mapping[str, str]
    quantizers: Mapping[str, str]
    shared: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    biases: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    def checkpoint_key(self, constant: str) -> str:
        """The name that the constant has in a checkpoint of the network that was exported."""
        name = self.constants[constant]
        return name.removesuffix(TRANSPOSED) + "weight" if name.endswith(f".{TRANSPOSED}") else name

    def is_transposed(self, constant: str) -> bool:
        return self.constants[constant].endswith(f".{TRANSPOSED}")
