"""Do the ONNX operators of a plugin's number format compute its numbers? Asked before a file is written with them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from onnxq.emit.arithmetic import write_operators
from onnxq.errors import SpecError
from onnxq.graph import Graph
from onnxq.runtime.session import make_session
from onnxq.types import PerChannel, PerTensor, Placement, QParams, QuantPlan, QuantSpec
from onnxq.types.number_format import edge_values, is_own, power_of_two_scale


def check_own_formats(plan: QuantPlan) -> None:
    """Run the operators of each format that a plugin has added on numbers, on ties and beside them; SpecError if wrong.

    A model seldom has a value just between two numbers, so that its own check finds such a mistake by chance alone.
    """
    tried: set[QuantSpec] = set()
    for placement in plan.active:
        spec = placement.spec
        if is_own(spec.format) or spec.format.in_onnx or not spec.format.in_operators:
            continue
        if isinstance(spec.granularity, PerTensor | PerChannel):
            spec = spec.replace(granularity=PerTensor())
            if spec not in tried:
                tried.add(spec)
                _check(spec)


def _check(spec: QuantSpec) -> None:
    scale, zero = power_of_two_scale(spec), np.zeros((), np.int32)
    values = edge_values(spec) * scale
    wanted = spec.format.fake(values, scale, zero, spec)
    found = _computed(values, QParams(spec, scale, zero))
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        first = wrong[0]
        raise SpecError(
            f"number format '{spec.dtype}': with a scale of {scale:g} its ONNX operators make {found[first]:g} of "
            f"{values[first]:.9g}, and encode and decode make {wanted[first]:g} ({wrong.size} of {values.size} values "
            "at and beside the middles between its numbers differ). Let `operators` of its class compute the same bits"
        )


def _computed(values: np.ndarray, parameters: QParams) -> np.ndarray:
    known = [helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape) for name in ("x", "z")]
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    body = helper.make_graph(nodes, "numbers", known[:1], known[1:])
    opset = max(17, parameters.spec.format.opset)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    graph = Graph.from_model(model)
    graph.tensor("y").shape, graph.tensor("y").dtype = list(values.shape), np.dtype(np.float32)
    write_operators(graph, Placement("y", parameters.spec, "activation", "numbers"), parameters)
    session = make_session(graph.to_model().SerializeToString(), threads=1, optimize="none", what="a number format")
    found: np.ndarray = session.run(None, {"x": values})[0]
    return found
