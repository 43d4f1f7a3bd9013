"""TorchNet: an ONNX graph as a torch module, made without tracing, whose parameters have the initializers' names."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.errors import DataError, ModelError, did_you_mean
from onnxq.graph import Graph
from onnxq.torchnet.call import Mode
from onnxq.torchnet.dotted import DottedNames
from onnxq.torchnet.feeds import wrong_input
from onnxq.torchnet.program import Key, Quantizer, compile_graph
from onnxq.torchnet.recompute import run_in_segments
from onnxq.torchnet.trainable import Trainable, is_trainable
from onnxq.torchnet.values import Value, from_numpy, to_numpy

_TOO_COARSE = (torch.float16, torch.bfloat16)
"""Types in which the steps of an optimizer are lost or end in NaN: parameters are float32, rounded at each use."""


class TorchNet(DottedNames):
    """A module that runs the nodes of a graph.

    Parameters are the constants that can be trained (`onnxq.torchnet.trainable`), buffers all others; both have the
    names of the initializers, dots included. Those of float16 and bfloat16 are trained in float32. Inputs are given in
    the order of the graph, or by name with `run`.
    The graph itself stays as it was: `to_graph` gives one with the present values.

    `mode.live_statistics` lets batch norms learn their statistics. `checkpoint_segments` above 1 cuts the net into that
    many parts whose values are computed again for the gradients, which saves memory and costs time.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        quantizers: Mapping[str, Quantizer] | None = None,
        trainable: Trainable = None,
        keep: Sequence[str] = (),
        outputs: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        graph.sort()
        self.graph = graph
        self.mode = Mode(training=True)
        self.checkpoint_segments = 1
        self._keep = tuple(keep)
        self._trainable = trainable
        self._outputs = None if outputs is None else tuple(outputs)
        self._program, read_as = compile_graph(graph, self.mode, quantizers or {}, keep, outputs, _typed(graph))
        self._loose: dict[str, Value] = {}
        self._rounded: dict[str, torch.dtype] = {}
        for name in self._program.constants:
            self._take(name, read_as.get(name, {True}))
        self._constants = list(self._program.constants.items())

    def _take(self, name: str, read_as: set[bool]) -> None:
        """Make a constant a parameter or a buffer.

        They are entered into torch's own tables, because `register_parameter` refuses names with dots and names of
        attributes, and initializers have both. A single number that is also a setting, such as the limit of a Clip, is
        not trained: the operator that read it when the net was made would not follow.
        """
        value = from_numpy(self.graph.values(name))
        if not isinstance(value, Tensor):
            self._loose[name] = value  # strings and packed types, which no module can hold
        elif _is_data(value, read_as) and is_trainable(self._trainable, name, value):
            if value.dtype in _TOO_COARSE:
                self._rounded[name] = value.dtype
                value = value.float()
            self._parameters[name] = nn.Parameter(value)
        else:
            self._buffers[name] = value

    def keep_fixed(self, name: str) -> None:
        """Make a parameter a buffer; other constants stay what they are."""
        if name in self._parameters:
            value = self.value(name)
            del self._parameters[name]
            self._rounded.pop(name, None)
            self._buffers[name] = value.detach()

    # ---- running -------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Value) -> Any:
        """The output of the graph, or a tuple if it has several."""
        names = self.graph.input_names
        if len(inputs) != len(names):
            raise DataError(f"the model has {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
        try:
            outputs = self._execute(inputs)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:  # what does not fit
            wrong = wrong_input(self.graph, inputs)
            if wrong is None:
                raise
            raise DataError("; ".join([wrong, *getattr(error, "__notes__", ())])) from error
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        """Outputs by name from inputs by name; numpy arrays and tensors of other devices are taken too."""
        names = self.graph.input_names
        for name in feeds:
            if name not in names:
                raise DataError(f"the model has no input '{name}'.{did_you_mean(name, names)} It has {names}")
        missing = [name for name in names if name not in feeds]
        if missing:
            raise DataError(f"input '{missing[0]}' is missing; the model has {names}")
        held = next(itertools.chain(self.parameters(), self.buffers()), None)
        device = None if held is None else held.device
        given = [
            _moved(from_numpy(v) if isinstance(v, np.ndarray) else v, device) for v in map(feeds.__getitem__, names)
        ]
        outputs = self(*given)
        return dict(zip(self.output_names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))

    def _execute(self, inputs: Sequence[Value]) -> list[Value]:
        program = self._program
        slots = self._filled_slots()
        for slot, value in zip(program.inputs, inputs, strict=True):
            slots[slot] = value
        if self.checkpoint_segments > 1 and self.training and torch.is_grad_enabled():
            run_in_segments(program, slots, self.checkpoint_segments, self.recomputing)
        else:
            program.run(slots)
        self.kept = {name: slots[program.names[Key(name, False)]] for name in self._keep}
        return [slots[slot] for slot in program.outputs]

    def _filled_slots(self) -> list[Value]:
        """Slots for a run, with the present constants in them."""
        slots: list[Value] = [None] * self._program.size
        parameters, buffers = self._parameters, self._buffers
        for name, slot in self._constants:
            if name in self._rounded:
                slots[slot] = self.get_parameter(name).to(self._rounded[name])
            elif name in parameters:
                slots[slot] = parameters[name]
            else:
                slots[slot] = buffers[name] if name in buffers else self._loose[name]
        return slots

    def recomputing(self, on: bool) -> None:
        """Told by gradient checkpointing that parts of the net run a second time; nothing may be learnt from it."""
        self.mode.recomputing = on

    def train(self, mode: bool = True) -> TorchNet:
        super().train(mode)
        self.mode.training = mode
        self.mode.of_nodes = {}
        return self

    @property
    def output_names(self) -> list[str]:
        """The tensors that the net computes: the outputs of the graph, or those that were asked for."""
        return self.graph.output_names if self._outputs is None else list(self._outputs)

    # ---- names ---------------------------------------------------------------------------------------------------

    def get_parameter(self, target: str) -> nn.Parameter:
        """A parameter by its name, which may have dots of its own."""
        found = self._parameters.get(target)
        return super().get_parameter(target) if found is None else found

    def get_buffer(self, target: str) -> Tensor:
        found = self._buffers.get(target)
        return super().get_buffer(target) if found is None else found

    def value(self, name: str) -> Value:
        """The present value of a constant of the graph, in its type."""
        if name in self._rounded:
            return self.get_parameter(name).detach().to(self._rounded[name])
        for table in (self._parameters, self._buffers, self._loose):
            if name in table:
                return table[name]
        raise ModelError(f"the net has no constant '{name}'.{did_you_mean(name, self._program.constants)}")

    def is_rounded(self, name: str) -> bool:
        """Whether a constant is held in a wider type than it is used in."""
        return name in self._rounded

    def constant_names(self) -> list[str]:
        """The constants of the graph that the net reads."""
        return list(self._program.constants)

    def constant_values(self, tensors: Sequence[str]) -> dict[str, Value]:
        """The present values of tensors that nodes compute from constants alone, before any quantizer."""
        if not tensors:
            return {}
        graph = self.graph
        needed: set[str] = set()
        pending = [graph.tensor(name) for name in tensors]
        while pending:
            maker = graph.producer(pending.pop())
            if maker is not None and maker.name not in needed:
                needed.add(maker.name)
                pending.extend(maker.inputs)
        slots = self._filled_slots()
        wanted = {name: self._program.names[Key(name, False)] for name in tensors}
        found: dict[str, Value] = {}
        for step in self._program.steps:
            if step.node in needed:
                result = step.kernel(*[slots[i] for i in step.inputs])
                for slot, value in zip(step.outputs, result if type(result) is tuple else (result,), strict=False):
                    slots[slot] = value
        for name, slot in wanted.items():
            found[name] = slots[slot]
        return found

    # ---- back to ONNX --------------------------------------------------------------------------------------------

    def to_graph(self) -> Graph:
        """The graph with the present parameters and buffers; names, types and everything else as they were."""
        graph = self.graph.copy()
        for table in (self._parameters, self._buffers):
            for name, value in table.items():
                if value is not None and name in self._program.constants:
                    held = graph.values(name).dtype
                    # A copy: the graph must not follow what is learnt afterwards. A net in another precision goes back.
                    graph.set_values(name, np.array(to_numpy(value), dtype=held))
        return graph

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchNet:
        twin = self._remade(memo)
        memo[id(self)] = twin
        copy_tensors(self, twin, memo)
        twin._rounded = dict(self._rounded)
        twin.train(self.training)
        twin.mode.live_statistics = self.mode.live_statistics
        twin.checkpoint_segments = self.checkpoint_segments
        return twin

    def __getstate__(self) -> NoReturn:
        """Refused with advice: the code of the nodes cannot be pickled, and would not fit the next version of onnxq."""
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: save its `state_dict()`, and load that into a net that was "
            "made in the same way"
        )

    def _remade(self, memo: dict[int, Any]) -> TorchNet:
        """A net of the same graph; compiled anew, since the code of a node belongs to one net."""
        return TorchNet(self.graph, trainable=self._trainable, keep=self._keep, outputs=self._outputs)


def copy_tensors(source: nn.Module, twin: nn.Module, memo: dict[int, Any]) -> None:
    """Give a module copies of another's parameters and buffers, children left out: device, type, what is trained."""
    tables: list[tuple[Any, Any]] = [(source._parameters, twin._parameters), (source._buffers, twin._buffers)]
    for mine, its in tables:
        its.clear()  # which constants are parameters may have been changed
        its.update(copy.deepcopy(dict(mine), memo))


def _moved(value: Value, device: torch.device | None) -> Value:
    return value.to(device) if isinstance(value, Tensor) else value


def _is_data(value: Tensor, read_as: set[bool]) -> bool:
    """Whether operators compute with a constant, from how it is read: as a setting (True), as data (False)."""
    return False in read_as and (value.numel() > 1 or True not in read_as)


def _typed(graph: Graph) -> Graph:
    """The graph, or a copy that knows the types of more tensors: with them operators need not look at run time."""
    known = all(tensor.dtype is not None for node in graph.nodes() for tensor in node.outputs if tensor.name)
    if known:
        return graph
    typed = graph.copy()
    typed.infer_shapes()
    return typed


def to_torch(
    graph: Graph, *, trainable: Trainable = None, keep: Sequence[str] = (), outputs: Sequence[str] | None = None
) -> TorchNet:
    """A torch module that computes what a graph computes.

    trainable  which constants are parameters: None decides by itself, otherwise patterns of names
    keep       tensors whose values are in `net.kept` after each forward
    outputs    tensors to compute in the place of the graph's outputs: what they do not depend on, such as an operator
               that torch has not, is left out of the net and stays in the graph as it is
    """
    return TorchNet(graph.copy(), trainable=trainable, keep=keep, outputs=outputs)
