"""Small operators in the place of one: new nodes named after it, and sizes that are known or computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.graph.attributes import AttributeValues
from onnxq.passes.base import PassResult
from onnxq.passes.edits import node_line
from onnxq.passes.rewriter import Declined, has_input

Size = int | Any
"""A length: a number where the file says it, else a tensor with that one number."""

MICROSOFT = "com.microsoft"
SMALL = 64
"""Elements of a constant that is looked for among those that are there."""

OPSET = 13
"""The axes of Unsqueeze and ReduceSum are inputs, and Softmax has one axis."""


Known = dict[tuple[Any, ...], Any]
"""What is computed already: operator, inputs and attributes -> results; names of sizes -> tensors that hold them."""


class Steps:
    """The nodes that take the place of `node`, in its own graph or body.

    `known` are results that nodes before it have computed: what is computed alike is computed once.
    """

    def __init__(self, graph: Graph, node: Node, known: Known | None = None) -> None:
        self.graph, self.node, self.scope = graph, node, graph.scope_of(node)
        self._made: list[Node] = []
        self._known: Known = {} if known is None else known
        self._news: Known = {}

    # ---- the node that is replaced ---------------------------------------------------------------------------------

    def input(self, port: int) -> Any:
        """The tensor at a port; None where the input is left out."""
        return self.node.inputs[port] if has_input(self.node, port) else None

    def output(self, port: int) -> Any:
        """The tensor that the node makes at a port; None where nobody reads it."""
        made = self.node.outputs[port] if port < len(self.node.outputs) else None
        if made is None or not made.name:
            return None
        return made if made.outputs or self.graph.is_output(made) else None

    def rank(self, tensor: Any) -> int:
        shape = self.graph.shape(tensor)
        if shape is None:
            raise Declined(f"the number of dimensions of '{tensor.name}' is not known")
        return len(shape)

    def dtype(self, tensor: Any) -> np.dtype[Any]:
        kind = self.graph.dtype(tensor)
        if kind is None:
            raise Declined(f"the element type of '{tensor.name}' is not known")
        return kind

    def replace(self, results: Sequence[Any]) -> int:
        """Let the new tensors take the places of the node's outputs, None for those that nobody reads.

        Returns how many nodes there are in the place of the one.
        """
        old = list(self.node.outputs)
        name = self.node.name
        for result, tensor in zip(results, old, strict=False):
            if result is None or not tensor.name:
                continue
            maker = self.graph.producer(result)
            if not any(maker is made for made in self._made) or self._twice(result, results):
                maker = self.graph.add_node("Identity", [result], name=f"{name}_result", scope=self.scope)
                self._made.append(maker)
                result = maker.outputs[0]
            assert maker is not None
            self._hand_over(maker, result, tensor)
        self.graph.remove(self.node)
        first = self.graph.producer(old[0]) if old[0].name else None
        stands = first if first is not None else self._made[-1]
        self.graph.origins.node_became(name, stands.name)
        return len(self._made)

    def take_back(self) -> None:
        """Remove what was made for a node that stays."""
        self.graph.remove(self._made)

    def learned(self) -> Known:
        """What was computed for this node, for those behind it."""
        return self._news

    def _twice(self, result: Any, results: Sequence[Any]) -> bool:
        return sum(result is other for other in results) > 1

    def _hand_over(self, maker: Node, result: Any, tensor: Any) -> None:
        """Let `maker` make `tensor`, an output of the old node, for all who read it or read `result`."""
        port = next(i for i, made in enumerate(self.node.outputs) if made is tensor)
        for use in list(self.graph.consumers(result)):
            use.node.inputs[use.port] = tensor
        index = next(i for i, made in enumerate(maker.outputs) if made is result)
        maker.outputs[index] = tensor
        self.node.outputs[port] = result  # leaves the graph with the node
        tensor.dtype = result.dtype if tensor.dtype is None else tensor.dtype
        for made, _ in self._news.values():
            made[:] = [tensor if item is result else item for item in made]

    # ---- new nodes -------------------------------------------------------------------------------------------------

    def op(self, op: str, *inputs: Any, role: str = "", attrs: AttributeValues | None = None) -> Any:
        """A node with one result, named after what it is for."""
        return self.ops(op, *inputs, role=role, attrs=attrs)[0]

    def ops(
        self, op: str, *inputs: Any, role: str = "", attrs: AttributeValues | None = None, count: int = 1
    ) -> list[Any]:
        """A node with several results, or the results of one that computes the same."""
        key = (id(self.scope), op, tuple(map(id, inputs)), repr(sorted((attrs or {}).items())), count)
        found = self._found(key)
        if found is not None:
            return list(found)
        name = f"{self.node.name}_{role or op.lower()}"
        made: list[Any] = [self.graph.add_variable(f"{name}_output") for _ in range(count)]
        node = self.graph.add_node(op, list(inputs), made, attrs=attrs, name=name, scope=self.scope)
        self._made.append(node)
        # The inputs are kept with the results: an address stands for a tensor as long as that is there.
        self._news[key] = (list(node.outputs), inputs)
        return list(node.outputs)

    def _found(self, key: tuple[Any, ...]) -> list[Any] | None:
        held = self._known.get(key) or self._news.get(key)
        return None if held is None else held[0]

    def constant(self, values: Any, role: str = "constant") -> Any:
        """A stored tensor; small ones that are equal are one."""
        array = np.asarray(values)
        if array.size > SMALL:
            return self.graph.add_constant(f"{self.node.name}_{role}", array)
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        found = self._found(key)
        if found is None:
            found = [self.graph.add_constant(f"{self.node.name}_{role}", array)]
            self._news[key] = (found, ())
        return found[0]

    def ints(self, *values: int) -> Any:
        return self.constant(np.asarray(values, np.int64), "sizes")

    def number(self, value: float, like: Any) -> Any:
        """A scalar of the type of a tensor."""
        return self.constant(np.asarray(value, self.dtype(like)), "number")

    def cast(self, tensor: Any, dtype: np.dtype[Any] | type) -> Any:
        from onnx import helper

        wanted = np.dtype(dtype)
        return self.op("Cast", tensor, attrs={"to": int(helper.np_dtype_to_tensor_dtype(wanted))})

    def reshape(self, tensor: Any, *sizes: int) -> Any:
        """0 keeps a size, -1 is what is left."""
        made = self.typed(self.op("Reshape", tensor, self.ints(*sizes)), tensor)
        old = tensor.shape
        if old is not None:
            made.shape = [old[axis] if size == 0 else None if size < 0 else size for axis, size in enumerate(sizes)]
        return made

    def transpose(self, tensor: Any, *order: int) -> Any:
        made = self.typed(self.op("Transpose", tensor, attrs={"perm": list(order)}), tensor)
        if tensor.shape is not None:
            made.shape = [tensor.shape[axis] for axis in order]
        return made

    def concat(self, axis: int, *tensors: Any, role: str = "concat") -> Any:
        return self.typed(self.op("Concat", *tensors, role=role, attrs={"axis": axis}), tensors[0])

    def slice(self, tensor: Any, axis: int, start: int, end: int) -> Any:
        made = self.op("Slice", tensor, self.ints(start), self.ints(end), self.ints(axis))
        return self.typed(made, tensor)

    def split(self, tensor: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
        parts = self.ops("Split", tensor, self.ints(*sizes), attrs={"axis": axis}, count=len(sizes))
        for part, size in zip(parts, sizes, strict=True):
            self.typed(part, tensor)
            if tensor.shape is not None:
                part.shape = [*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]]
        return parts

    def typed(self, made: Any, like: Any) -> Any:
        """The element type of a new tensor, for what is asked before shapes are inferred again."""
        made.dtype = self.graph.dtype(like)
        return made

    # ---- sizes -----------------------------------------------------------------------------------------------------

    def size(self, tensor: Any, axis: int) -> Size:
        """How long a tensor is along an axis: a number, or a scalar that is computed."""
        shape = self.graph.shape(tensor)
        known = None if shape is None else shape[axis]
        if isinstance(known, int):
            return known
        key = (id(self.scope), "size", known)
        found = None if known is None else self._found(key)
        if found is not None:
            return found[0]
        lengths = self.op("Shape", tensor, role="shape")
        computed = self.op("Gather", lengths, self.constant(np.asarray(axis, np.int64), "axis"), role="length")
        self._news[key] = ([computed], ())
        return computed

    def plus(self, one: Size, other: Size) -> Size:
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        return self.op("Add", self.tensor(one), self.tensor(other))

    def minus(self, one: Size, other: Size) -> Size:
        if isinstance(one, int) and isinstance(other, int):
            return one - other
        return self.op("Sub", self.tensor(one), self.tensor(other))

    def tensor(self, size: Size) -> Any:
        """A size as a tensor of one int64."""
        return self.constant(np.asarray(size, np.int64), "size") if isinstance(size, int) else size

    def counting(self, size: Size) -> Any:
        """0, 1, 2 ... up to a size: an array of numpy where it is known, else a tensor."""
        if isinstance(size, int):
            return np.arange(size)
        zero, one = (self.constant(np.asarray(number, np.int64), "step") for number in (0, 1))
        return self.op("Range", zero, size, one)


def replace_each(
    graph: Graph, ops: Sequence[tuple[str, str]], rewrite: Callable[[Steps], Sequence[Any]], *, opset: int = OPSET
) -> PassResult:
    """Put small operators in the place of every node of these (domain, operator); `rewrite` gives the new results.

    A node that `rewrite` declines stays, and what it had made is taken away. The opset is raised where a node is found.
    """
    result = PassResult()
    if not any((node.domain, node.op) in ops for node in graph.nodes()):
        return result
    if graph.opset < opset:
        graph.raise_opset(opset)
    graph.sort()
    graph.infer_shapes()
    known: Known = {}
    for node in [node for node in graph.nodes() if (node.domain, node.op) in ops]:
        steps = Steps(graph, node, known)
        try:
            results = rewrite(steps)
        except Declined as reason:
            steps.take_back()
            result.declined.append(node_line(node, str(reason)))
            continue
        count = steps.replace(results)
        known.update(steps.learned())
        result.changed.append(f"node '{node.name}' ({node.op}): is {count} nodes now")
    graph.remove_unused_constants()
    if result.changed:
        graph.infer_shapes()
    return result
