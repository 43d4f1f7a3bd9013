"""What is computed between quantizers: float32, or half precision (float16, bfloat16) where that loses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxq.errors import SpecError
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types.reason import Reason

_KEYS = ("dtype", "scales", "half", "float32")


@dataclass(frozen=True)
class HalfRest:
    """A target's wish: layers that are not quantized compute in `dtype`.

    dtype   "float16" or "bfloat16", as numpy and ONNX call them
    scales  the type of a scale is the type of what is computed with it, as in strongly typed networks: quantized layers
            give half precision too, and no Cast stands beside a quantizer. Otherwise quantizers, and the layers between
            them, stay as they are, with Casts where half precision begins and ends
    """

    dtype: str
    scales: bool = False


@dataclass(frozen=True)
class RestPlan(HalfRest):
    """Which nodes compute in half precision, and why the others that compute floats do not."""

    half: tuple[str, ...] = ()
    float32: Mapping[str, Reason] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {
            "dtype": self.dtype,
            "scales": self.scales,
            "half": list(self.half),
            "float32": {node: str(why) for node, why in self.float32.items()},
        }

    @classmethod
    def from_json(cls, data: JsonMapping) -> RestPlan:
        for key in data:
            if key not in _KEYS:
                raise SpecError(f"unknown key '{key}' in \"rest\"; known: {', '.join(_KEYS)}")
        return cls(
            dtype=str(data["dtype"]),
            scales=bool(data["scales"]),
            half=tuple(str(node) for node in data.get("half", ())),
            float32={str(node): Reason("from_plan", str(why)) for node, why in data.get("float32", {}).items()},
        )
