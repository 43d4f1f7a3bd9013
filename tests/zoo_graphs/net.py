"""Net: writes a small ONNX model line by line, with seeded weights of realistic size."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

METADATA = {"author": "zoo", "labels": "zero,one,two", "unicode": "größe → 大小"}
OPSET = 17

Shape = Sequence[int | str | None]


class Net:
    """One graph under construction; `branch` gives a body for If, Loop and Scan that sees the outer names."""

    def __init__(
        self, name: str, *, opset: int = OPSET, dtype: Any = np.float32, ir_version: int | None = None
    ) -> None:
        self.name = name
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.domains: dict[str, int] = {"": opset}
        self._ir_version = ir_version
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = [0]

    def branch(self, name: str) -> Net:
        """A graph whose names do not collide with this one's."""
        inner = Net(name, opset=self.opset, dtype=self.dtype)
        inner.rng, inner._count = self.rng, self._count
        return inner

    # ---- tensors -------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape, dtype: Any = None) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, element_type(dtype or self.dtype), shape))
        return name

    def output(self, name: str, shape: Shape | None = None, dtype: Any = None) -> str:
        """Declare an output; without a shape its type is inferred."""
        if shape is None and dtype is None:
            self._outputs.append(onnx.ValueInfoProto(name=name))
        else:
            self._outputs.append(helper.make_tensor_value_info(name, element_type(dtype or self.dtype), shape))
        return name

    def constant(self, values: Any, name: str | None = None) -> str:
        """An initializer that holds exactly these values."""
        name = name or self._fresh("constant")
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def floats(self, values: Any, name: str | None = None) -> str:
        """An initializer in the precision of the net."""
        return self.constant(np.asarray(values, dtype=self.dtype), name)

    def ints(self, *values: int) -> str:
        return self.constant(np.asarray(values, dtype=np.int64))

    def weight(self, *shape: int, fan_in: int | None = None, gain: float = 2.0, name: str | None = None) -> str:
        """He-initialised: variance gain / fan_in; the fan-in of a convolution by default."""
        fan_in = fan_in or int(np.prod(shape[1:]))
        return self.floats(self.rng.normal(0, np.sqrt(gain / fan_in), shape), name or self._fresh("weight"))

    def bias(self, size: int, name: str | None = None) -> str:
        return self.floats(self.rng.normal(0, 0.1, size), name or self._fresh("bias"))

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def node(
        self,
        op: str,
        *inputs: str,
        output: str | None = None,
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node with one output and return that output's name."""
        output = output or self._fresh(op.lower())
        return self.many(op, inputs, (output,), name=name, domain=domain, **attributes)[0]

    def many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Add a node with the outputs named; an empty name leaves an optional output out."""
        name = self._fresh(f"node_{op}") if name is None else name
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return tuple(outputs)

    def _fresh(self, hint: str) -> str:
        self._count[0] += 1
        return f"{hint}_{self._count[0]}"

    # ---- layers --------------------------------------------------------------------------------------------------

    def conv(
        self, x: str, channels_in: int, channels_out: int, kernel: int = 3, *, bias: bool = True, **attributes: Any
    ) -> str:
        """A 2-D convolution that keeps height and width unless told otherwise."""
        group = attributes.get("group", 1)
        inputs = [x, self.weight(channels_out, channels_in // group, kernel, kernel)]
        if bias:
            inputs.append(self.bias(channels_out))
        if "pads" not in attributes and "auto_pad" not in attributes:
            attributes["pads"] = [kernel // 2] * 4
        return self.node("Conv", *inputs, **attributes)

    def batch_norm(self, x: str, channels: int) -> str:
        scale = self.floats(self.rng.uniform(0.6, 1.4, channels))
        shift = self.floats(self.rng.normal(0, 0.2, channels))
        mean = self.floats(self.rng.normal(0, 0.2, channels))
        variance = self.floats(self.rng.uniform(1.0, 3.0, channels))
        return self.node("BatchNormalization", x, scale, shift, mean, variance)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def conv_relu(self, x: str, channels_in: int, channels_out: int, kernel: int = 3, **attributes: Any) -> str:
        return self.relu(self.conv(x, channels_in, channels_out, kernel, **attributes))

    def gemm(self, x: str, size_in: int, size_out: int) -> str:
        weight = self.weight(size_out, size_in, gain=1.0)
        return self.node("Gemm", x, weight, self.bias(size_out), transB=1)

    def linear(self, x: str, size_in: int, size_out: int) -> str:
        """MatMul and Add, as transformers are exported."""
        product = self.node("MatMul", x, self.weight(size_in, size_out, fan_in=size_in, gain=1.0))
        return self.node("Add", product, self.bias(size_out))

    def classifier(self, x: str, channels: int, classes: int = 10) -> str:
        """Global pooling, Flatten and a fully connected layer."""
        return self.gemm(self.node("Flatten", self.node("GlobalAveragePool", x)), channels, classes)

    # ---- samples -------------------------------------------------------------------------------------------------

    def normal(self, *shape: int, spread: float = 1.0, mean: float = 0.0) -> np.ndarray:
        return self.rng.normal(mean, spread, shape).astype(self.dtype)

    def image(self, *shape: int) -> np.ndarray:
        """Values like a normalised photograph: smooth areas, edges and a little noise, inside [-2.2, 2.2]."""
        coarse = self.rng.normal(0, 1, shape[:2] + tuple(-(-size // 4) for size in shape[2:]))
        for axis in range(2, len(shape)):
            coarse = coarse.repeat(4, axis=axis).take(range(shape[axis]), axis=axis)
        return np.clip(coarse + self.rng.normal(0, 0.2, shape), -2.2, 2.2).astype(self.dtype)

    # ---- the model -----------------------------------------------------------------------------------------------

    def graph(self) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, self.name, self._inputs, self._outputs, self.initializers)

    def model(self) -> onnx.ModelProto:
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.domains.items()]
        ir_version = self._ir_version or helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        graph = self.graph()
        if ir_version < 4:  # such old files list every initializer as an input
            graph.input.extend(
                helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in self.initializers
            )
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            functions=self.functions,
            ir_version=max(ir_version, 8 if self.functions else 3),
        )
        model.producer_name, model.producer_version, model.doc_string = "zoo", "1", f"zoo case {self.name}"
        helper.set_model_props(model, METADATA)
        _infer_output_types(model)
        return model


def element_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _infer_output_types(model: onnx.ModelProto) -> None:
    if all(output.HasField("type") for output in model.graph.output):
        return
    inferred = {output.name: output for output in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output}
    for output in model.graph.output:
        if not output.HasField("type"):
            output.CopyFrom(inferred[output.name])
        if not output.type.tensor_type.HasField("shape"):
            raise ValueError(f"give the shape of output '{output.name}' of '{model.graph.name}': it cannot be inferred")
