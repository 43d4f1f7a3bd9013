"""A graph as a list of steps over numbered slots: compiled once, run at every forward.

Quantizers are steps of their own, between a tensor and the readers that see it quantized. What a body of If, Loop or
Scan reads from outside is fetched into slots of its own before its node runs; constants and their quantizers always
belong to the main graph, so that the weight of a loop is quantized once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onnxq.errors import ModelError
from onnxq.graph import Graph, Node
from onnxq.graph.nodes import Scope
from onnxq.graph.sort import captured
from onnxq.torchnet.call import Call, Mode
from onnxq.torchnet.registry import OPERATORS, Kernel
from onnxq.torchnet.values import Value
from onnxq.types.plan import Edge

NOTHING = 0
"""The slot that is always None: what an input that was left out reads."""


class Quantizer(NamedTuple):
    """A function for the values of a tensor, and the uses that see its result; None means all of them."""

    function: Callable[[Any], Any]
    edges: frozenset[Edge] | None


class Key(NamedTuple):
    """A tensor, before or after its quantizer."""

    tensor: str
    quantized: bool


@dataclass
class Step:
    """One call: slots in, slots out, the node behind it (\"\" for a quantizer), slots that nobody reads afterwards."""

    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    where: str
    node: str = ""
    bodies: tuple[tuple[CompiledBody, tuple[int, ...]], ...] = ()
    done: tuple[int, ...] = ()


@dataclass
class Program:
    """Steps with the slots of everything that comes in and goes out."""

    steps: list[Step] = field(default_factory=list)
    size: int = 1
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)
    captures: list[Key] = field(default_factory=list)
    capture_slots: list[int] = field(default_factory=list)
    names: dict[Key, int] = field(default_factory=dict)

    def run(self, slots: list[Value], first: int = 0, last: int | None = None) -> None:
        """Run the steps `first` .. `last` on `slots`, which become None as soon as nobody needs them any more."""
        step = None
        try:
            for step in self.steps[first:last]:
                for body, fetched in step.bodies:
                    body.capture([slots[i] for i in fetched])
                result = step.kernel(*[slots[i] for i in step.inputs])
                for body, _ in step.bodies:
                    body.capture([])  # they would keep all gradients of this run alive until the next
                if type(result) is tuple:
                    for slot, value in zip(step.outputs, result, strict=False):
                        slots[slot] = value
                else:
                    slots[step.outputs[0]] = result
                for slot in step.done:
                    slots[slot] = None
        except BaseException as error:
            if step is not None:
                for body, _ in step.bodies:
                    body.capture([])
                error.add_note(f"in {step.where}")
            raise
        slots[NOTHING] = None


class CompiledBody:
    """A body of If, Loop or Scan: called with its inputs, it returns its outputs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._here = threading.local()  # a net may run in several threads at once
        self.input_count = len(program.inputs)
        self.output_count = len(program.outputs)

    def capture(self, values: list[Value]) -> None:
        """Take what the body reads from outside, for the calls that follow in this thread."""
        self._here.captured = values

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        program = self.program
        slots: list[Value] = [None] * program.size
        for slot, value in zip(program.capture_slots, self._here.captured, strict=True):
            slots[slot] = value
        for slot, value in zip(program.inputs, inputs, strict=True):
            slots[slot] = value
        program.run(slots)
        return [slots[slot] for slot in program.outputs]


def compile_graph(
    graph: Graph,
    mode: Mode,
    quantizers: Mapping[str, Quantizer],
    keep: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    types: Graph | None = None,
) -> tuple[Program, dict[str, set[bool]]]:
    """The program of a graph, and for each constant how it is read: as a setting (True), as data (False).

    `keep` names tensors of the main graph whose values stay after a run. `outputs` names tensors of it that are
    computed in the place of its outputs; nodes that they do not need are left out, whatever they are. `types` is a
    graph with the same tensors that knows more of their types and shapes.
    """
    compiler = _Compiler(graph, mode, quantizers, types or graph)
    if outputs is not None:
        compiler.needed = _needed(graph, [*outputs, *keep])
    program = compiler.scope(graph.gs, None, keep, outputs)
    return program, compiler.read_as


def _needed(graph: Graph, tensors: Sequence[str]) -> set[str]:
    """The nodes of the main graph that tensors depend on."""
    found: set[str] = set()
    pending = [graph.tensor(name) for name in tensors]
    while pending:
        maker = graph.producer(pending.pop())
        if maker is not None and maker.name not in found:
            found.add(maker.name)
            pending.extend([*maker.inputs, *captured(maker)])
    return found


class _Compiler:
    """What all scopes share: the quantizers, the opsets, how each constant is read."""

    def __init__(self, graph: Graph, mode: Mode, quantizers: Mapping[str, Quantizer], types: Graph) -> None:
        self.graph = graph
        self.types = types
        self.mode = mode
        self.quantizers = quantizers
        self.read_as: dict[str, set[bool]] = {}
        self.needed: set[str] | None = None
        self.versions = {entry.domain: int(entry.version) for entry in graph.header.opset_import}

    def scope(
        self, scope: Scope, parent: _Frame | None, keep: Sequence[str] = (), outputs: Sequence[str] | None = None
    ) -> Program:
        frame = _Frame(self, parent)
        frame.program.inputs = [frame.define(tensor.name) for tensor in scope.inputs]
        for node in scope.nodes:
            left_out = parent is None and self.needed is not None and node.name not in self.needed
            if not left_out and not (node.op == "Constant" and not node.domain):
                self._node(node, frame)
        # An input of the model that leaves it again does so as it came.
        given = {tensor.name for tensor in scope.inputs} if parent is None else set()
        wanted = [tensor.name for tensor in scope.outputs] if outputs is None else outputs
        frame.program.outputs = [
            frame.slot(Key(name, False)) if name in given else frame.read(name, None) for name in wanted
        ]
        kept = [frame.slot(Key(name, False)) for name in keep]
        frame.finish(kept)
        return frame.program

    def _node(self, node: Node, frame: _Frame) -> None:
        domain = node.domain or ""
        version = self.versions.get(domain, 1)
        bodies: list[CompiledBody] = []

        def compile_body(body: Scope) -> CompiledBody:
            bodies.append(CompiledBody(self.scope(body, frame)))
            return bodies[-1]

        definition = OPERATORS.get(domain, node.op, version, node.name)
        call = Call(self.graph, self.types, node, version, self.mode, compile_body, self._is_setting)
        kernel = definition.builder(call)
        inputs = [frame.read(tensor.name, Edge(node.name, port)) for port, tensor in enumerate(node.inputs)]
        while inputs and inputs[-1] == NOTHING:
            inputs.pop()
        for port, tensor in enumerate(node.inputs):
            if tensor.name and self.graph.is_constant(tensor):
                self.read_as.setdefault(tensor.name, set()).add(port in call.settings)
        fetched = tuple((body, tuple(frame.slot(key) for key in body.program.captures)) for body in bodies)
        outputs = tuple(frame.define(tensor.name) for tensor in node.outputs)
        frame.program.steps.append(Step(kernel, tuple(inputs), outputs, str(call), node.name, fetched))

    def _is_setting(self, tensor: str) -> bool:
        return self.graph.is_constant(tensor) and tensor not in self.quantizers


class _Frame:
    """The slots of one scope while it is compiled."""

    def __init__(self, compiler: _Compiler, parent: _Frame | None) -> None:
        self.compiler = compiler
        self.parent = parent
        self.program = Program()
        self.local: set[str] = set()

    def define(self, tensor: str) -> int:
        """A slot for a tensor that is made here; one without a name gets a slot that nobody reads."""
        slot = self._new_slot()
        if tensor:
            self.local.add(tensor)
            self.program.names[Key(tensor, False)] = slot
        return slot

    def read(self, tensor: str, edge: Edge | None) -> int:
        """The slot that a use of a tensor reads: quantized or not. `edge` is None for an output of the scope."""
        if not tensor:
            return NOTHING
        quantizer = self.compiler.quantizers.get(tensor)
        quantized = quantizer is not None and (quantizer.edges is None or edge in quantizer.edges)
        return self.slot(Key(tensor, quantized))

    def slot(self, key: Key) -> int:
        known = self.program.names.get(key)
        if known is not None:
            return known
        if key.quantized and (key.tensor in self.local or self.parent is None):
            return self._quantized(key)
        if self.parent is not None:
            self.program.captures.append(key)
            slot = self._new_slot()
            self.program.capture_slots.append(slot)
        elif self.compiler.graph.has_tensor(key.tensor) and self.compiler.graph.is_constant(key.tensor):
            slot = self._new_slot()
            self.program.constants[key.tensor] = slot
        else:
            raise ModelError(f"tensor '{key.tensor}' is read before anything makes it")
        self.program.names[key] = slot
        return slot

    def _quantized(self, key: Key) -> int:
        source = self.slot(Key(key.tensor, False))
        made = self._new_slot()
        function = self.compiler.quantizers[key.tensor].function
        self.program.steps.append(Step(function, (source,), (made,), f"the quantizer of '{key.tensor}'"))
        self.program.names[key] = made
        return made

    def _new_slot(self) -> int:
        self.program.size += 1
        return self.program.size - 1

    def finish(self, kept: Sequence[int]) -> None:
        """Note behind each step which slots were read for the last time."""
        needed = {NOTHING, *self.program.outputs, *kept}
        for step in reversed(self.program.steps):
            used = {*step.inputs, *step.outputs}
            for _, fetched in step.bodies:
                used.update(fetched)
            step.done = tuple(sorted(used - needed))
            needed |= used
