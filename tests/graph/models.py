"""Small models and comparisons that the tests of onnxq.graph share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph

FLOAT = TensorProto.FLOAT


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node whose tensors are given as words; "_" stands for an omitted one."""
    words = [["" if word == "_" else word for word in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *words, **attributes)


def value(name: str, shape: Sequence[int | str | None] | None = (2, 3), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def body(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    constants: Mapping[str, np.ndarray] | None = None,
    name: str = "body",
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(array, key) for key, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), tensors)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 10,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = body(nodes, outputs or [value("y")], inputs or [value("x")], constants, "main")
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*item) for item in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=list(functions))


def chain(*ops: str) -> onnx.ModelProto:
    """x -> ops[0] -> t1 -> ops[1] -> ... -> y, all of shape (2, 3)."""
    names = ["x", *(f"t{i}" for i in range(1, len(ops))), "y"]
    return model([node(op, names[i], names[i + 1], name=f"{op}{i}") for i, op in enumerate(ops)])


def run(source: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs that onnxruntime computes, without optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    content = str(source) if isinstance(source, Path) else source.SerializeToString()
    return list(
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))
    )


def sample(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same_results(
    before: onnx.ModelProto | Path, after: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray]
) -> None:
    for one, other in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


def round_trip(source: onnx.ModelProto) -> onnx.ModelProto:
    return Graph.from_model(source).to_model()


def external_tensor(name: str, dtype: int, shape: Sequence[int], **entries: Any) -> TensorProto:
    """A tensor that announces external data: location=, offset=, length=."""
    tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def write(path: Path, source: onnx.ModelProto) -> Path:
    path.write_bytes(source.SerializeToString())
    return path


def checked(graph: Graph) -> onnx.ModelProto:
    written = graph.to_model()
    onnx.checker.check_model(written, full_check=True)
    return written


def if_model() -> onnx.ModelProto:
    then = body(
        [node("Mul", "r w", "a", name="inner"), node("Neg", "a", "o")],
        [value("o")],
        constants={"w": sample(2, 3, seed=7)},
        name="then",
    )
    other = body([node("Add", "r x", "p")], [value("p")], name="else")
    return model(
        [node("Relu", "x", "r"), node("If", "k", "y", then_branch=then, else_branch=other, name="choose")],
        [value("x"), value("k", (), TensorProto.BOOL)],
    )
