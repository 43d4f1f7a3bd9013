"""Constants that a Loop or Scan hands from one iteration to the next unchanged are read where they are.

Exporters of TensorFlow and Paddle write the cell of a recurrent layer so: the kernels are states of the loop, which
every iteration returns as it got them. Inside the body they then look like activations; read from outside they are
weights.
"""

from __future__ import annotations

from typing import NamedTuple

from onnxq.graph import Constant, Graph, Node, Variable, bodies
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import node_line


class State(NamedTuple):
    """Where a loop-carried value is: its input of the node and of the body, its output of the body and of the node."""

    given: int
    taken: int
    returned: int
    result: int


@PASSES.register("propagate_loop_constants")
def propagate_loop_constants(graph: Graph) -> PassResult:
    """Loop or Scan with a constant state that its body returns unchanged -> the body reads the constant itself.

    The state goes where nobody reads its last value. An initializer that callers may override stays a state.
    """
    result = PassResult()
    dropped = False
    for node in graph.nodes():
        # From the last on: the numbers of those that follow change with each that goes.
        for state in reversed(_states(graph, node)):
            source, passing = node.inputs[state.given], _passing_nodes(node, state)
            if passing is None or not _is_fixed(graph, source):
                continue
            if _read_from_outside(graph, node, state, passing):
                result.changed.append(node_line(node, f"its body reads the constant '{source.name}' itself"))
            if _last_value_unread(graph, node, state):
                _drop(graph, node, state, passing)
                dropped = True
                result.changed.append(node_line(node, f"'{source.name}' is no state any more"))
    if dropped:
        graph.refresh()
    return result


def _states(graph: Graph, node: Node) -> list[State]:
    if node.domain or node.op not in ("Loop", "Scan"):
        return []
    if node.op == "Loop":  # number of iterations and condition come first; the body returns the condition only
        return [State(number, number, number - 1, number - 2) for number in range(2, len(node.inputs))]
    if graph.opset < 9:  # a batch, and lengths in front
        return []
    return [State(number, number, number, number) for number in range(len(node.inputs) - node.attrs["num_scan_inputs"])]


def _passing_nodes(node: Node, state: State) -> list[Node] | None:
    """The Identity nodes between a state and what the body returns for it; None where it is changed, or not there."""
    body = bodies(node)[0]
    if state.taken >= len(body.inputs) or state.returned >= len(body.outputs):
        return None  # a damaged model, which others refuse
    taken, tensor = body.inputs[state.taken], body.outputs[state.returned]
    passing: list[Node] = []
    while tensor is not taken:
        maker = tensor.inputs[0] if tensor.inputs else None
        if maker is None or maker.op != "Identity" or maker.domain or not any(maker is own for own in body.nodes):
            return None
        passing.append(maker)
        tensor = maker.inputs[0]
    return passing


def _is_fixed(graph: Graph, tensor: Variable | Constant) -> bool:
    return bool(tensor.name) and graph.is_constant(tensor) and tensor.name not in graph.gs.overridable


def _read_from_outside(graph: Graph, node: Node, state: State, passing: list[Node]) -> bool:
    """Let readers in the body read what the node is given; False where there are none."""
    tensors = [bodies(node)[0].inputs[state.taken], *(item.outputs[0] for item in passing)]
    found = False
    for tensor in tensors:
        uses = [use for use in graph.consumers(tensor) if not any(use.node is item for item in passing)]
        graph.redirect(tensor, node.inputs[state.given], uses=uses)
        found |= bool(uses)
    return found


def _last_value_unread(graph: Graph, node: Node, state: State) -> bool:
    if len(node.outputs) < 2:  # a node has to make something
        return False
    last = node.outputs[state.result]
    return not graph.consumers(last) and not graph.is_output(last)


def _drop(graph: Graph, node: Node, state: State, passing: list[Node]) -> None:
    body, why = bodies(node)[0], "it returned a constant state of the loop"
    source, taken = node.inputs[state.given], body.inputs[state.taken]
    for tensor in (taken, *(item.outputs[0] for item in passing)):
        graph.origins.tensor_became(tensor.name, source.name)
    for item in passing:
        graph.origins.node_removed(item.name, why)
    del body.outputs[state.returned]
    graph.remove(passing)
    del body.inputs[state.taken]
    del node.inputs[state.given]
    del node.outputs[state.result]
