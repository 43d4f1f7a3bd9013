"""An operator with its inputs as a value, for tests that are tables of such cases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxq.torchnet import TorchNet
from tests.torchnet import one_node


@dataclass(frozen=True)
class NodeCase:
    """An operator with its inputs (None: left out), as one opset defines it."""

    op: str
    opset: int
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        described = ",".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op}-{self.opset}({described})".replace(" ", "")

    def model(self, constant_ports: Collection[int] = ()) -> onnx.ModelProto:
        """The model; inputs at `constant_ports` are initializers."""
        return one_node.one_node(
            self.op,
            self.inputs,
            opset=self.opset,
            outputs=self.outputs,
            constants=tuple(constant_ports),
            **self.attributes,
        )


def settings_of(case: NodeCase) -> set[int]:
    """The ports behind the first: shapes, axes, indices and the like."""
    return set(range(1, len(case.inputs)))


def net_of(case: NodeCase, constant_ports: Collection[int] = ()) -> TorchNet:
    return one_node.net_of(case.model(constant_ports))


def torch_outputs(case: NodeCase, constant_ports: Collection[int] = ()) -> list[np.ndarray]:
    return one_node.in_torch(case.model(constant_ports), case.inputs)


def onnxruntime_outputs(case: NodeCase) -> list[np.ndarray]:
    return one_node.in_onnxruntime(case.model(), case.inputs)


def assert_same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float = 1e-5) -> None:
    """Values, shapes and element types; the tolerance is for sums taken in another order."""
    for value, expected in zip(found, wanted, strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


def assert_gradients(case: NodeCase) -> None:
    """Gradients of all floating-point inputs against differences, in float64."""
    wide = [v.astype(np.float64) if v is not None and v.dtype.kind == "f" else v for v in case.inputs]
    one_node.assert_gradients(case.op, wide, opset=case.opset, outputs=case.outputs, **case.attributes)
