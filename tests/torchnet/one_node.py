"""Models of one node, and what torch and onnxruntime make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch
from onnxq.torchnet.values import Value, from_numpy, to_numpy

Inputs = Sequence[np.ndarray | None]
"""None is an input that is left out."""


def one_node(
    op: str,
    inputs: Inputs,
    *,
    opset: int,
    domain: str = "",
    outputs: int = 1,
    kind: int = TensorProto.FLOAT,
    constants: Sequence[int] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; inputs i0, i1 ..., those in `constants` as initializers; outputs o0, o1 ... of any shape."""
    names = ["" if value is None else f"i{number}" for number, value in enumerate(inputs)]
    values = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    held = {f"i{number}" for number in constants}
    node = helper.make_node(op, names, [f"o{number}" for number in range(outputs)], name="n", domain=domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(name, _kind_of(value), [f"{name}_{axis}" for axis in range(value.ndim)])
            for name, value in values.items()
            if name not in held
        ],
        [helper.make_tensor_value_info(f"o{number}", kind, None) for number in range(outputs)],
        [numpy_helper.from_array(value, name) for name, value in values.items() if name in held],
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = min(model.ir_version, 10 if opset < 22 else 13)
    return model


def net_of(model: onnx.ModelProto) -> TorchNet:
    return to_torch(Graph.from_model(model)).eval()


def in_torch(model: onnx.ModelProto, inputs: Inputs) -> list[np.ndarray]:
    """What torch makes of a model whose inputs are those of `inputs` that it does not hold itself."""
    outputs: Value = net_of(model)(*[from_numpy(value) for value in _fed(model, inputs).values()])
    return [to_numpy(value) for value in (outputs if isinstance(outputs, tuple) else (outputs,))]


def in_onnxruntime(model: onnx.ModelProto, inputs: Inputs) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for output in model.graph.output:  # onnxruntime finds the types out by itself
        output.ClearField("type")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, _fed(model, inputs))]


def assert_like_onnxruntime(op: str, inputs: Inputs, *, tolerance: float = 1e-6, **how: Any) -> None:
    """Torch gives the values, types and shapes that onnxruntime gives, within a part and an amount of `tolerance`."""
    model = one_node(op, inputs, **how)
    found, wanted = in_torch(model, inputs), in_onnxruntime(model, inputs)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_gradients(op: str, inputs: Inputs, **how: Any) -> None:
    """The gradients of an operator are those of its differences, in float64."""
    model = one_node(op, inputs, kind=TensorProto.DOUBLE, **how)
    net = net_of(model)
    given = [torch.tensor(value, requires_grad=value.dtype == np.float64) for value in _fed(model, inputs).values()]
    assert torch.autograd.gradcheck(lambda *tensors: net(*tensors), given)


def _fed(model: onnx.ModelProto, inputs: Inputs) -> dict[str, np.ndarray]:
    named = {f"i{number}": value for number, value in enumerate(inputs) if value is not None}
    return {item.name: named[item.name] for item in model.graph.input}


def _kind_of(value: np.ndarray) -> int:
    return TensorProto.STRING if value.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(value.dtype)
