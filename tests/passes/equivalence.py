"""The referee of all passes: onnxruntime runs the model before and after, and nothing but the inside may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference

from onnxq.graph import Graph
from onnxq.passes import Pass, PassReport, run_passes

IR_VERSION_OF_OPSET = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9}


def build_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None] | None],
    outputs: Sequence[str] | Mapping[str, Sequence[int | str | None] | None],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    element_type: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A valid model whose inputs and outputs all have `element_type`; missing shapes of outputs are inferred."""
    shapes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, element_type, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, element_type, shape) for name, shape in shapes.items()],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in (constants or {}).items()],
    )
    if opset < 9:  # IR version 3 lists every initializer among the inputs
        graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = IR_VERSION_OF_OPSET.get(opset, 10)
    inferred = {info.name: info for info in shape_inference.infer_shapes(model).graph.output}
    for info in model.graph.output:
        if shapes[info.name] is None:
            info.CopyFrom(inferred[info.name])
    onnx.checker.check_model(model)
    return model


def run_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All outputs by name, computed as written: onnxruntime's own graph optimizations are off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def assert_same_outputs(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], rtol: float = 1e-5) -> None:
    """Equal within `rtol` of the largest magnitude of each output: folding changes the order of roundings."""
    assert list(before) == list(after)
    for name, expected in before.items():
        got = after[name]
        assert got.dtype == expected.dtype, name
        assert got.shape == expected.shape, name
        finite = expected.dtype.kind == "f" and expected.size and np.isfinite(expected).any()
        largest = float(np.abs(expected[np.isfinite(expected)].astype(np.float64)).max()) if finite else 0.0
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * largest, err_msg=f"output '{name}'")


def assert_pass_keeps_outputs(
    model: onnx.ModelProto, pass_name: str | Pass, feeds: Mapping[str, np.ndarray], rtol: float = 1e-5
) -> tuple[Graph, PassReport]:
    """Run one pass and check outputs, interface, validity and idempotence; returns the graph and the pass's report."""
    graph = Graph.from_model(model)
    graph.infer_shapes()
    report = run_passes(graph, [pass_name])[0]
    after = graph.to_model()

    onnx.checker.check_model(after)
    assert_same_declarations(_fed_inputs(model), _fed_inputs(after))
    assert_same_declarations(model.graph.output, after.graph.output)
    assert_same_outputs(run_model(model, feeds), run_model(after, feeds), rtol)
    assert_names_are_findable(graph)

    again = run_passes(graph, [pass_name])[0]
    assert again.changed == ()
    assert graph.to_model() == after
    return graph, report


def _fed_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs without those that initializers give a value to (in IR version 3 every initializer is an input)."""
    given = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in given]


def assert_same_declarations(before: Sequence[onnx.ValueInfoProto], after: Sequence[onnx.ValueInfoProto]) -> None:
    """Same names in the same order with the same types; a shape may be added where the file had none."""
    assert [info.name for info in before] == [info.name for info in after]
    for old, new in zip(before, after, strict=True):
        if old.type.tensor_type.HasField("shape"):
            assert new == old
        else:
            assert new.type.tensor_type.elem_type == old.type.tensor_type.elem_type, old.name


def assert_names_are_findable(graph: Graph) -> None:
    """The name index holds every tensor and node of the graph, and none that has left it."""
    read = {t.name for node in graph.nodes() for t in [*node.inputs, *node.outputs] if t.name}
    declared = {t.name for scope in graph.scopes() for t in [*scope.inputs, *scope.outputs]}
    initializers = {constant.name for constant in graph.constants()}
    assert set(graph.tensor_names()) == read | declared | initializers
    for node in graph.nodes():
        assert graph.node(node.name) is node
        for tensor in [*node.inputs, *node.outputs]:
            assert not tensor.name or graph.tensor(tensor.name) is tensor
