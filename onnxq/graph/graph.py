"""Graph: an ONNX model in memory, with names as keys and edits that keep everything they do not touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import inliner

from onnxq.errors import ModelError, did_you_mean
from onnxq.graph import opset as opsets
from onnxq.graph.external import ExternalFiles
from onnxq.graph.names import Names, Origins
from onnxq.graph.nodes import Constant, Node, Use, Variable, bodies
from onnxq.graph.pattern import Match, Pattern, find_pattern, parse_pattern
from onnxq.graph.read import GraphReader
from onnxq.graph.shapes import infer_shapes
from onnxq.graph.sort import captured, sort_nodes
from onnxq.graph.units import Units
from onnxq.graph.values import ExternalValues, LazyValues
from onnxq.graph.write import PROTOBUF_LIMIT, inline_model, save_model, weight_bytes

Tensor = gs.Tensor


class Graph:
    """A model. Tensor and node names are unique over the main graph and all bodies of If, Loop and Scan.

    `gs` is the underlying graphsurgeon graph of the main scope; after editing it directly, call `refresh()`.
    `origins` records what became of the names in the file; `units` groups nodes that belong together.
    """

    def __init__(self, header: onnx.ModelProto, main: gs.Graph, names: Names, path: Path | None) -> None:
        self.gs = main
        self.path = path
        self.header = header
        self.origins = Origins()
        self.units = Units()
        self._names = names
        self._given_names: dict[str, str] = {}
        self._external = False
        self.refresh()

    # ---- reading and writing -------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a model file; weights in external files are mapped when they are needed."""
        path = Path(path)
        if not path.is_file():
            raise ModelError(f"no model file at {path}")
        try:
            model = onnx.load(str(path), load_external_data=False)
        except Exception as error:  # protobuf raises different classes in its different implementations
            raise ModelError(f"{path} is not a readable ONNX model: {error}") from error
        return cls.from_model(model, path=path.resolve())

    @classmethod
    def from_model(cls, model: onnx.ModelProto, path: Path | None = None) -> Graph:
        """Take a ModelProto (it is not modified). `path` says where its external data lies."""
        where = f"{path}" if path else "the model"
        if not model.HasField("graph") or not model.opset_import:
            raise ModelError(f"{where} has no graph or no opset: it is not a complete ONNX model")
        header = onnx.ModelProto()
        if model.functions:
            model = inliner.inline_local_functions(model, convert_version=True)
        for field, _ in model.ListFields():
            if field.name not in ("graph", "functions"):
                _copy_field(header, model, field.name)
        reader = GraphReader(ExternalFiles(path.parent if path else None), Names(_names_in(model.graph)), _opset(header))
        graph = cls(header, reader.graph(model.graph), reader._names, path)
        for kind, old, new in reader.renamed:
            if kind == "node":
                graph._given_names[new] = old
        graph._external = any(isinstance(c._values, ExternalValues) for c in graph.constants())
        return graph

    def to_model(self) -> onnx.ModelProto:
        """The model as one protobuf; refused when the weights exceed what protobuf can hold (use `save`)."""
        self.sort()
        return inline_model(self._header(), self.gs, self._written_name)

    def save(self, path: str | Path, *, external: bool | None = None) -> list[Path]:
        """Write the model and return the files written.

        `external` puts the weights into `<path>.data`; by default that is done when the model came that way or is
        too large for one protobuf.
        """
        self.sort()
        if external is None:
            external = self._external or weight_bytes(self.gs) > PROTOBUF_LIMIT
        return save_model(self._header(), self.gs, Path(path), external, self._written_name)

    def copy(self) -> Graph:
        """An independent graph with the same names; constant values are shared, not copied."""
        twin_main = _copy_graph(self.gs, {})
        header = onnx.ModelProto()
        header.CopyFrom(self.header)
        twin = Graph(header, twin_main, self._names.copy(), self.path)
        twin.origins = self.origins.copy()
        twin.units = self.units.copy()
        twin._given_names = dict(self._given_names)
        twin._external = self._external
        return twin

    def _header(self) -> onnx.ModelProto:
        header = onnx.ModelProto()
        header.CopyFrom(self.header)
        used = {node.domain or "" for node in self.nodes()}
        known = {entry.domain if entry.domain != "ai.onnx" else "" for entry in header.opset_import}
        for domain in sorted(used - known):
            header.opset_import.add(domain=domain, version=1)
        return header

    def _written_name(self, name: str) -> str:
        return self._given_names.get(name, name)

    def keep_given_names(self) -> None:
        """Write the names that onnxq gave to nameless and twin nodes, so that reports and file agree."""
        self._given_names.clear()

    # ---- looking -------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Rebuild the name index after direct edits of `gs`."""
        self._node_index: dict[str, tuple[gs.Node, gs.Graph]] = {}
        self._tensor_index: dict[str, gs.Tensor] = {}
        self._scopes = self._find_scopes()
        for graph in self._scopes:
            for tensor in [*graph.inputs, *graph.outputs, *getattr(graph, "initializers", {}).values()]:
                self._note_tensor(tensor)
            for node in graph.nodes:
                if not node.name or self._node_index.get(node.name, (node,))[0] is not node:
                    node.name = self._names.fresh_node(node.name or node.op)
                self._node_index[node.name] = (node, graph)
                for tensor in [*node.inputs, *node.outputs]:
                    self._note_tensor(tensor)

    def _note_tensor(self, tensor: gs.Tensor) -> None:
        if tensor.name:
            known = self._tensor_index.setdefault(tensor.name, tensor)
            if known is not tensor:
                raise ModelError(f"two different tensors are called '{tensor.name}'; give one of them a fresh name")

    def scopes(self) -> list[gs.Graph]:
        """The main graph, then every body, outer before inner."""
        return list(self._scopes)

    def _find_scopes(self) -> list[gs.Graph]:
        found: list[gs.Graph] = []
        pending = [self.gs]
        while pending:
            graph = pending.pop()
            found.append(graph)
            inner = [body for node in graph.nodes for body in bodies(node)]
            pending.extend(reversed(inner))
        return found

    def nodes(self, op: str | None = None) -> list[gs.Node]:
        """Every node, those of bodies directly after the node that owns them; optionally of one operator only."""
        found: list[gs.Node] = []
        stack = [iter(self.gs.nodes)]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            if op is None or node.op == op:
                found.append(node)
            for body in reversed(bodies(node)):
                stack.append(iter(body.nodes))
        return found

    def node(self, name: str) -> gs.Node:
        """The node called `name`, in whatever scope."""
        try:
            return self._node_index[name][0]
        except KeyError:
            raise ModelError(f"no node called '{name}'.{did_you_mean(name, self._node_index)}") from None

    def tensor(self, name: str) -> gs.Tensor:
        """The tensor called `name`, in whatever scope."""
        try:
            return self._tensor_index[name]
        except KeyError:
            raise ModelError(f"no tensor called '{name}'.{did_you_mean(name, self._tensor_index)}") from None

    def has_node(self, name: str) -> bool:
        return name in self._node_index

    def has_tensor(self, name: str) -> bool:
        return name in self._tensor_index

    def tensor_names(self) -> list[str]:
        return list(self._tensor_index)

    def scope_of(self, node: gs.Node) -> gs.Graph:
        """The graph (main or body) that holds `node`."""
        return self._node_index[node.name][1]

    @property
    def input_names(self) -> list[str]:
        return [tensor.name for tensor in self.gs.inputs]

    @property
    def output_names(self) -> list[str]:
        return [tensor.name for tensor in self.gs.outputs]

    def producer(self, tensor: str | gs.Tensor) -> gs.Node | None:
        """The node that makes a tensor; None for inputs, constants and inputs of a body."""
        tensor = self._resolve(tensor)
        return tensor.inputs[0] if tensor.inputs else None

    def consumers(self, tensor: str | gs.Tensor) -> list[Use]:
        """Every (node, port) that reads a tensor, inside bodies too. Outputs of a graph are not listed (see `is_output`)."""
        tensor = self._resolve(tensor)
        found = []
        for node in dict.fromkeys(tensor.outputs) if all(isinstance(n, Node) for n in tensor.outputs) else _distinct(tensor.outputs):
            found.extend(Use(node, port) for port, read in enumerate(node.inputs) if read is tensor)
        return found

    def is_output(self, tensor: str | gs.Tensor) -> bool:
        """Whether a tensor is an output of the model or of a body."""
        tensor = self._resolve(tensor)
        return any(tensor is output for graph in self._scopes for output in graph.outputs)

    def is_constant(self, tensor: str | gs.Tensor) -> bool:
        """Whether the values are known: an initializer or the output of a Constant node."""
        tensor = self._resolve(tensor)
        if isinstance(tensor, gs.Constant):
            return True
        return bool(tensor.inputs) and tensor.inputs[0].op == "Constant" and "value" in tensor.inputs[0].attrs

    def values(self, tensor: str | gs.Tensor) -> np.ndarray:
        """The values of a constant, read afresh (keep the array if you need it twice); possibly read-only."""
        tensor = self._resolve(tensor)
        if not isinstance(tensor, gs.Constant):
            if not self.is_constant(tensor):
                raise ModelError(f"tensor '{tensor.name}' is not a constant")
            tensor = tensor.inputs[0].attrs["value"]
        held = tensor._values if isinstance(tensor, gs.Constant) else tensor
        return held.load() if isinstance(held, LazyValues) else np.asarray(held)

    def constants(self) -> list[gs.Constant]:
        """Every initializer, bodies included."""
        return [tensor for tensor in self._tensor_index.values() if isinstance(tensor, gs.Constant)]

    def shape(self, tensor: str | gs.Tensor) -> tuple[int | str | None, ...] | None:
        """Shape with names for symbolic and None for unknown dimensions; None when even the rank is unknown."""
        tensor = self._resolve(tensor)
        return None if tensor.shape is None else tuple(tensor.shape)

    def dtype(self, tensor: str | gs.Tensor) -> np.dtype[Any] | None:
        """numpy (or ml_dtypes) element type, None when unknown or not a plain tensor."""
        tensor = self._resolve(tensor)
        return None if tensor.dtype is None else np.dtype(tensor.dtype)

    def _resolve(self, tensor: str | gs.Tensor) -> gs.Tensor:
        return self.tensor(tensor) if isinstance(tensor, str) else tensor

    def find(self, pattern: str | Pattern) -> list[Match]:
        """Every place where a pattern fits, without overlaps.

        A string names a chain of operators: "Conv -> BatchNormalization -> Relu" (`|` separates alternatives). For
        anything wider see `onnxq.graph.pattern`.
        """
        return find_pattern(self, parse_pattern(pattern) if isinstance(pattern, str) else pattern)

    # ---- editing -------------------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A new tensor name that starts with `hint`."""
        return self._names.fresh(hint)

    def add_constant(self, hint: str, values: np.ndarray | LazyValues, *, scope: gs.Graph | None = None) -> Constant:
        """A new initializer; in the main graph unless `scope` names a body."""
        constant = Constant(self.fresh(hint), values, scope=scope or self.gs)
        constant.scope.initializers[constant.name] = constant
        self._tensor_index[constant.name] = constant
        return constant

    def add_variable(self, hint: str, dtype: Any = None, shape: Sequence[int | str | None] | None = None) -> Variable:
        """A new tensor that some node is going to produce."""
        variable = Variable(self.fresh(hint), dtype, None if shape is None else list(shape))
        self._tensor_index[variable.name] = variable
        return variable

    def add_node(
        self,
        op: str,
        inputs: Sequence[str | gs.Tensor],
        outputs: Sequence[str | gs.Tensor] | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        name: str | None = None,
        domain: str = "",
        scope: gs.Graph | None = None,
    ) -> Node:
        """Add a node; without `outputs` it makes one new tensor. Order does not matter: `sort` runs before saving."""
        node_name = self._names.fresh_node(name or op)
        made = [self.add_variable(f"{node_name}_output")] if outputs is None else [self._resolve(o) for o in outputs]
        node = Node(op, node_name, attrs, [self._resolve(i) for i in inputs], made, domain)
        scope = scope or self.gs
        scope.nodes.append(node)
        self._node_index[node_name] = (node, scope)
        if bodies(node):
            self._scopes = self._find_scopes()
        return node

    def remove(self, nodes: gs.Node | Iterable[gs.Node]) -> None:
        """Take nodes out of the graph; their outputs must have no readers left (see `redirect`)."""
        doomed = [nodes] if isinstance(nodes, gs.Node) else list(nodes)
        doomed_ids = {id(node) for node in doomed}
        touched: dict[int, gs.Graph] = {}
        for node in doomed:
            scope = self.scope_of(node)
            touched[id(scope)] = scope
        for node in doomed:
            for inner in _all_inner(node):
                inner.inputs.clear()
                self._node_index.pop(inner.name, None)
            node.inputs.clear()
            for tensor in list(node.outputs):
                if tensor.name and not tensor.outputs and self._tensor_index.get(tensor.name) is tensor:
                    self._forget_if_unused(tensor)
            node.outputs.clear()
            del self._node_index[node.name]
            self.units.forget(node.name)
        for scope in touched.values():
            scope.nodes = [node for node in scope.nodes if id(node) not in doomed_ids]
        if any(bodies(node) for node in doomed):
            self._scopes = self._find_scopes()

    def _forget_if_unused(self, tensor: gs.Tensor) -> None:
        if not any(tensor is output for output in self.gs.outputs):
            self._tensor_index.pop(tensor.name, None)

    def redirect(self, old: str | gs.Tensor, new: str | gs.Tensor, *, uses: Iterable[Use] | None = None) -> None:
        """Let readers of `old` read `new` instead: the given uses, or all of them with graph outputs.

        A graph output keeps its name: `new` takes it over, and `old` gets a fresh one.
        """
        old, new = self._resolve(old), self._resolve(new)
        for node, port in self.consumers(old) if uses is None else list(uses):
            node.inputs[port] = new
        if uses is None:
            self._take_over_outputs(old, new)

    def _take_over_outputs(self, old: gs.Tensor, new: gs.Tensor) -> None:
        for graph in self._scopes:
            for position, output in enumerate(graph.outputs):
                if output is not old:
                    continue
                if graph is not self.gs:
                    graph.outputs[position] = new
                elif isinstance(new, gs.Constant) or any(new is t for t in [*self.gs.inputs, *self.gs.outputs]):
                    kept = self._rename_away(old)
                    self.add_node("Identity", [new], [kept], name=f"{kept.name}_identity")
                    graph.outputs[position] = kept
                else:
                    kept_name = old.name
                    self.rename(old, f"{kept_name}_before")
                    self.rename(new, kept_name, claim=False)
                    new.dtype = old.dtype if new.dtype is None else new.dtype
                    new.shape = old.shape if new.shape is None else new.shape
                    if getattr(old, "info", None) is not None:
                        new.info, old.info = old.info, None
                    graph.outputs[position] = new

    def _rename_away(self, old: gs.Tensor) -> Variable:
        """Free the name of `old` and return a new variable that carries it."""
        name, info = old.name, getattr(old, "info", None)
        self.rename(old, f"{name}_before")
        variable = Variable(name, old.dtype, old.shape, info)
        self._tensor_index[name] = variable
        return variable

    def rename(self, tensor: str | gs.Tensor, name: str, *, claim: bool = True) -> str:
        """Give a tensor the name `name`, or a variation when it is taken; returns the name it got."""
        tensor = self._resolve(tensor)
        old = tensor.name
        new = self._names.fresh(name) if claim else name
        tensor.name = new
        if self._tensor_index.get(old) is tensor:
            del self._tensor_index[old]
        self._tensor_index[new] = tensor
        scope = getattr(tensor, "scope", None)
        if isinstance(tensor, gs.Constant) and scope is not None and scope.initializers.pop(old, None) is not None:
            scope.initializers[new] = tensor
        return new

    def insert_after(
        self,
        tensor: str | gs.Tensor,
        op: str,
        *,
        attrs: Mapping[str, Any] | None = None,
        extra_inputs: Sequence[str | gs.Tensor] = (),
        uses: Iterable[Use] | None = None,
        name: str | None = None,
        domain: str = "",
    ) -> Node:
        """Put a node behind a tensor; `uses` (default: all readers and outputs) read the node's output from then on."""
        tensor = self._resolve(tensor)
        producer = self.producer(tensor)
        scope = self.scope_of(producer) if producer is not None else getattr(tensor, "scope", None)
        chosen = None if uses is None else list(uses)
        before = self.consumers(tensor) if chosen is None else chosen
        output = self.add_variable(f"{tensor.name}_{op}", tensor.dtype, tensor.shape)
        if scope is None and before:
            scope = self._home_for(tensor, before)
        node = self.add_node(
            op, [tensor, *extra_inputs], [output], attrs=attrs, name=name or f"{tensor.name}_{op}", domain=domain, scope=scope
        )
        self.redirect(tensor, output, uses=before)
        if chosen is None:
            self._take_over_outputs(tensor, output)
        return node

    def _home_for(self, tensor: gs.Tensor, uses: Sequence[Use]) -> gs.Graph:
        """The graph in which a new reader of a producer-less tensor belongs: the one that declares it as an input."""
        for graph in self.scopes():
            if any(tensor is declared for declared in graph.inputs):
                return graph
        return self.gs if isinstance(tensor, gs.Constant) else self.scope_of(uses[0].node)

    def replace(
        self,
        nodes: Match | gs.Node | Sequence[gs.Node],
        op: str,
        inputs: Sequence[str | gs.Tensor],
        *,
        attrs: Mapping[str, Any] | None = None,
        domain: str = "",
        name: str | None = None,
        output: str | gs.Tensor | None = None,
    ) -> Node:
        """Exchange nodes for one new node that makes the same output tensor.

        `output` defaults to the only tensor that leaves the group. The new node takes the name of the last old one,
        and `origins` records that it stands for all of them.
        """
        group = list(nodes.nodes) if isinstance(nodes, Match) else [nodes] if isinstance(nodes, gs.Node) else list(nodes)
        made = self._resolve(output) if output is not None else self._leaving(group)
        inside = {id(node) for node in group}
        producer = next(node for node in group if any(made is t for t in node.outputs))
        for node in group:
            for tensor in node.outputs:
                if tensor is not made and any(id(reader) not in inside for reader in tensor.outputs):
                    raise ModelError(
                        f"cannot replace node '{node.name}': its output '{tensor.name}' is also read by "
                        f"'{next(r.name for r in tensor.outputs if id(r) not in inside)}' outside the group"
                    )
        new_inputs = [self._resolve(i) for i in inputs]
        scope = self.scope_of(producer)
        kept = [output if output is not made else made for output in producer.outputs]
        old_names = [node.name for node in group]
        producer.outputs.clear()
        new = self.add_node(op, new_inputs, [kept[0] if len(kept) == 1 else made], attrs=attrs, domain=domain, name=name or producer.name, scope=scope)
        self.remove(group)
        for old in old_names:
            self.origins.node_became(old, new.name)
        return new

    def _leaving(self, group: Sequence[gs.Node]) -> gs.Tensor:
        inside = {id(node) for node in group}
        leaving = [
            tensor
            for node in group
            for tensor in node.outputs
            if self.is_output(tensor) or any(id(reader) not in inside for reader in tensor.outputs)
        ]
        if len(leaving) != 1:
            names = ", ".join(f"'{tensor.name}'" for tensor in leaving) or "none"
            raise ModelError(f"the group must have exactly one tensor that is read outside, it has {names}; say which with output=")
        return leaving[0]

    def sort(self) -> None:
        """Bring all nodes into topological order; nodes already in order stay where they are."""
        sort_nodes(self.gs)

    def remove_dead(self) -> list[str]:
        """Remove nodes whose outputs nobody reads and initializers without readers; returns the names of the nodes."""
        removed: list[str] = []
        outputs = {id(t) for graph in self.scopes() for t in graph.outputs}
        for graph in reversed(list(self.scopes())):
            alive: set[int] = set()
            needed = [t for t in graph.outputs]
            kept_nodes: set[int] = set()
            owner = {id(t): node for node in graph.nodes for t in node.outputs}
            needed += [t for node in graph.nodes for t in node.outputs if _read_elsewhere(t, graph, owner, outputs)]
            while needed:
                tensor = needed.pop()
                if id(tensor) in alive:
                    continue
                alive.add(id(tensor))
                node = owner.get(id(tensor))
                if node is not None and id(node) not in kept_nodes:
                    kept_nodes.add(id(node))
                    needed.extend(node.inputs)
                    needed.extend(captured(node))
            doomed = [node for node in graph.nodes if id(node) not in kept_nodes]
            if doomed:
                removed.extend(node.name for node in doomed)
                self.remove(doomed)
        self.remove_unused_constants()
        return removed

    def remove_unused_constants(self) -> list[str]:
        """Remove initializers that nobody reads; returns their names."""
        removed = []
        outputs = {id(t) for graph in self.scopes() for t in graph.outputs}
        for graph in self.scopes():
            for name, constant in list(getattr(graph, "initializers", {}).items()):
                if not constant.outputs and id(constant) not in outputs:
                    del graph.initializers[name]
                    self._tensor_index.pop(name, None)
                    removed.append(name)
        return removed

    def infer_shapes(self) -> None:
        """Fill in unknown dtypes and shapes."""
        self.sort()
        infer_shapes(self._header(), self.gs)

    # ---- opset ---------------------------------------------------------------------------------------------------

    @property
    def opset(self) -> int:
        """Version of the default ONNX domain."""
        return _opset(self.header)

    @property
    def metadata(self) -> dict[str, str]:
        """The model's metadata_props (a copy)."""
        return {entry.key: entry.value for entry in self.header.metadata_props}

    def raise_opset(self, version: int) -> list[str]:
        """Raise the default domain to at least `version`, rewriting nodes whose definition changed.

        Returns a line for each rewritten node; a node that cannot be carried over is an error that names it.
        """
        if version <= self.opset:
            return []
        notes = opsets.raise_opset(self, self.opset, version)
        for entry in self.header.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = version
        for graph in self.scopes():
            graph.opset = version
        self.header.ir_version = max(self.header.ir_version, opsets.ir_version_for(version))
        return notes


def load(path: str | Path) -> Graph:
    """Read a model file into a Graph."""
    return Graph.load(path)


def _distinct(nodes: Iterable[gs.Node]) -> list[gs.Node]:
    return list({id(node): node for node in nodes}.values())


def _read_elsewhere(tensor: gs.Tensor, graph: gs.Graph, owner: dict[int, gs.Node], outputs: set[int]) -> bool:
    return id(tensor) in outputs and not any(tensor is t for t in graph.outputs)


def _all_inner(node: gs.Node) -> list[gs.Node]:
    found = []
    pending = bodies(node)
    while pending:
        body = pending.pop()
        for inner in body.nodes:
            found.append(inner)
            pending.extend(bodies(inner))
    return found


def _opset(header: onnx.ModelProto) -> int:
    versions = [entry.version for entry in header.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise ModelError("the model does not import the default ONNX operator set (domain '')")
    return max(versions)


def _names_in(proto: onnx.GraphProto) -> set[str]:
    names: set[str] = set()
    pending = [proto]
    while pending:
        graph = pending.pop()
        names.update(t.name for t in graph.initializer)
        names.update(i.name for i in graph.input)
        for node in graph.node:
            names.add(node.name)
            names.update(node.output)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    pending.append(attribute.g)
                elif attribute.type == onnx.AttributeProto.GRAPHS:
                    pending.extend(attribute.graphs)
    return names


def _copy_field(target: onnx.ModelProto, source: onnx.ModelProto, name: str) -> None:
    value = getattr(source, name)
    if hasattr(value, "MergeFrom"):
        getattr(target, name).MergeFrom(value)
    elif isinstance(value, str | int | bytes | float):
        setattr(target, name, value)
    else:
        getattr(target, name).extend(value)


def _copy_graph(graph: gs.Graph, made: dict[int, gs.Tensor]) -> gs.Graph:
    """Copy nodes and tensors; `made` maps the tensors of outer scopes to their copies."""
    twin = gs.Graph(name=graph.name, doc_string=graph.doc_string, opset=graph.opset)
    twin.metadata = dict(getattr(graph, "metadata", {}))
    twin.quantization_annotation = list(getattr(graph, "quantization_annotation", ()))
    twin.overridable = dict(getattr(graph, "overridable", {}))
    twin.initializers = {}

    def tensor(original: gs.Tensor) -> gs.Tensor:
        known = made.get(id(original))
        if known is not None:
            return known
        if isinstance(original, gs.Constant):
            scope = getattr(original, "scope", None)
            known = Constant(original.name, original._values, scope=twin if scope is graph else scope)
        else:
            shape = None if original.shape is None else list(original.shape)
            known = Variable(original.name, original.dtype, shape, getattr(original, "info", None))
            known.type = original.type
        if original.name:
            made[id(original)] = known
        return known

    for name, constant in getattr(graph, "initializers", {}).items():
        twin.initializers[name] = tensor(constant)
    twin.inputs = [tensor(t) for t in graph.inputs]
    for node in graph.nodes:  # bodies may read tensors whose producers come later in an unsorted list
        for output in node.outputs:
            tensor(output)
    for node in graph.nodes:
        copied = Node(node.op, node.name, None, [tensor(t) for t in node.inputs], [tensor(t) for t in node.outputs], node.domain)
        for key in ("doc_string", "overload"):
            setattr(copied, key, getattr(node, key, ""))
        copied.metadata = dict(getattr(node, "metadata", {}))
        copied.attr_types = dict(getattr(node, "attr_types", {}))
        copied.device_configurations = list(getattr(node, "device_configurations", ()))
        for key, value in node.attrs.items():
            if isinstance(value, gs.Graph):
                value = _copy_graph(value, made)
            elif isinstance(value, list):
                value = [_copy_graph(v, made) if isinstance(v, gs.Graph) else v for v in value]
            copied.attrs[key] = value
        twin.nodes.append(copied)
    twin.outputs = [tensor(t) for t in graph.outputs]
    return twin
