"""Graph: an ONNX model in memory, with names as keys and edits that keep everything they do not touch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.collector import collector_paused
from onnxq.glance import MOST_NAMED, counted, notebook_html, quoted, short_name, short_repr, tally
from onnxq.graph import opset as opsets
from onnxq.graph.duplicate import duplicate
from onnxq.graph.functions import newer_functions_opset, without_functions
from onnxq.graph.load import check_model, open_model, read_model
from onnxq.graph.names import Names, Origins
from onnxq.graph.nodes import Scope
from onnxq.graph.rewrite import Rewriting
from onnxq.graph.save import PROTOBUF_LIMIT, inline_model, model_with_weights_apart, save_model
from onnxq.graph.shapes import infer_shapes
from onnxq.graph.sort import sort_nodes
from onnxq.graph.units import Units
from onnxq.graph.utf8 import check_text
from onnxq.graph.validate import check_complete
from onnxq.graph.values import ExternalValues
from onnxq.graph.write import weight_bytes


class Graph(Rewriting):
    """A model. Tensor and node names are unique over the main graph and all bodies of If, Loop and Scan.

    `gs` is the underlying graphsurgeon graph of the main scope; after editing it directly, call `refresh()`.
    `origins` records what became of the names in the file; `units` groups nodes that belong together.
    `header` is the model without its graph: producer, opsets, metadata. `remarks` are notes for the user on what the
    file says and is not taken at its word; `is_settled` says that its shapes were looked at (`settle_declarations`).
    """

    def __init__(self, header: onnx.ModelProto, main: Scope, names: Names, path: Path | None) -> None:
        self.gs = main
        self.path = path
        self.header = header
        self.origins = Origins()
        self.units = Units()
        self._names = names
        self._given_names: dict[str, str] = {}
        self._external = False
        self.remarks: list[str] = []
        self.is_settled = False
        self.refresh()

    def __repr__(self) -> str:
        named = "in memory" if self.path is None else short_name(self.path.name)
        ends = f"from {_named(self.input_names)} to {_named(self.output_names)}"
        return short_repr("Graph", named, *self._facts().values(), ends)

    def _repr_html_(self) -> str:
        """What a notebook shows: counts, and the inputs and outputs with their types and shapes."""
        title = "Graph in memory" if self.path is None else f"Graph {self.path.name}"
        ends = [("input", name) for name in self.input_names] + [("output", name) for name in self.output_names]
        rows = [(kind, short_name(name), self._type_text(name)) for kind, name in ends]
        return notebook_html(title, self._facts().items(), ("", "name", "type"), rows)

    def _facts(self) -> dict[str, str]:
        nodes = self.nodes()
        operators = f" ({tally(node.op for node in nodes)})" if nodes else ""
        return {
            "nodes": f"{counted(len(nodes), 'node')}{operators}",
            "weights": f"{counted(len(self.constants()), 'stored tensor')}, {weight_bytes(self.gs):,} bytes",
            "opset": f"opset {self.opset}",
        }

    def _type_text(self, tensor: str) -> str:
        dtype, shape = self.dtype(tensor), self.shape(tensor)
        sizes = "[...]" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
        return f"{'?' if dtype is None else dtype.name} {sizes}"

    # ---- reading and writing -------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a model file; weights in external files are mapped when they are needed."""
        path = Path(path)
        return cls._from_text(open_model(path), path.absolute())

    @classmethod
    def from_model(cls, model: onnx.ModelProto, path: Path | None = None) -> Graph:
        """Take a ModelProto, whose weights are shared, not copied: leave it alone afterwards.

        `path` is the file it came from; its folder holds the external data.
        """
        check_text(model, f"{path}" if path else "the model")
        return cls._from_text(model, path)

    @classmethod
    def _from_text(cls, model: onnx.ModelProto, path: Path | None) -> Graph:
        """`from_model` for a model whose names are known to be text."""
        external = False
        newer = newer_functions_opset(model)
        if newer is not None:
            model, external = cls._raised(model, path, newer)
        with collector_paused():
            parts = read_model(model, path)
            graph = cls(parts.header, parts.main, parts.names, path)
        graph._given_names = parts.given_names
        graph._external = external or parts.external
        graph.remarks = parts.remarks
        return graph

    @classmethod
    def _raised(cls, model: onnx.ModelProto, path: Path | None, opset: int) -> tuple[onnx.ModelProto, bool]:
        """The model raised to the opset of its newest function, and whether its weights were in files.

        The functions stay as they are: converting one backwards is not always possible, and not always exact.
        """
        functions = list(model.functions)
        where = check_model(model, path)
        around = cls._from_text(without_functions(model, where), path)
        around.raise_opset(opset)
        raised = around.to_model()
        raised.functions.extend(functions)
        return raised, around._external

    def to_model(self, *, given_names: bool = False) -> onnx.ModelProto:
        """The model as one protobuf; refused when the weights exceed what protobuf can hold (use `save`)."""
        with collector_paused():
            self._settle()
            return inline_model(self._header(), self.gs, str if given_names else self._written_name)

    def to_model_and_weights(self, *, given_names: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The model as a protobuf without its large weights, and these: for onnxruntime, which takes both."""
        with collector_paused():
            self._settle()
            return model_with_weights_apart(self._header(), self.gs, str if given_names else self._written_name)

    def save(self, path: str | Path, *, external: bool | None = None, given_names: bool = False) -> list[Path]:
        """Write the model and return the files written.

        `external` puts the weights into `<path>.data`; by default that is done when the model came that way or is
        too large for one protobuf. Names that onnxq gave to nameless and twin nodes are written only with
        `given_names` (onnxruntime refuses twins) or after `keep_given_names`.
        """
        with collector_paused():
            self._settle()
            if external is None:
                external = self._external or weight_bytes(self.gs) > PROTOBUF_LIMIT
            return save_model(self._header(), self.gs, Path(path), external, str if given_names else self._written_name)

    def _settle(self) -> None:
        check_complete(self.gs)
        self.sort()

    def copy(self) -> Graph:
        """An independent graph with the same names; constant values are shared, not copied."""
        header = onnx.ModelProto()
        header.CopyFrom(self.header)
        with collector_paused():
            twin = Graph(header, duplicate(self.gs), self._names.copy(), self.path)
        twin.origins = self.origins.copy()
        twin.units = self.units.copy()
        twin._given_names = dict(self._given_names)
        twin._external = self._external
        twin.remarks, twin.is_settled = list(self.remarks), self.is_settled
        return twin

    def _header(self) -> onnx.ModelProto:
        """The header with every domain that a node uses (unheard-of ones at version 1)."""
        header = onnx.ModelProto()
        header.CopyFrom(self.header)
        known = {entry.domain for entry in header.opset_import}
        used = {node.domain or "" for node in self.nodes()}
        for domain in sorted(used - known):
            header.opset_import.add(domain=domain, version=1)
        if self.gs.initializers and not self.gs.overridable:
            header.ir_version = max(header.ir_version, 4)  # before, every initializer was listed as an input
        return header

    def _written_name(self, name: str) -> str:
        return self._given_names.get(name, name)

    def files(self) -> list[Path]:
        """The files that the model is read from: its own, and those that hold weights which are not loaded yet."""
        weights = (constant._values for constant in self.constants())
        data = dict.fromkeys(values.file.path for values in weights if isinstance(values, ExternalValues))
        return [*([] if self.path is None else [self.path]), *data]

    def keep_given_names(self) -> None:
        """Write the names that onnxq gave to nameless and twin nodes, so that reports and file agree."""
        self._given_names.clear()

    # ---- the whole model -----------------------------------------------------------------------------------------

    def sort(self) -> None:
        """Bring all nodes into topological order; nodes already in order stay where they are."""
        sort_nodes(self.gs)

    def shapes_known(self) -> bool:
        """Whether every tensor that a node makes has an element type and a shape without unknown sizes."""
        return all(is_known(tensor) for node in self.nodes() for tensor in node.outputs if tensor.name)

    def infer_shapes(self) -> None:
        """Fill in unknown dtypes and shapes; large weights are not read."""
        self.sort()
        with collector_paused():
            infer_shapes(self._header(), self.gs)

    @property
    def opset(self) -> int:
        """Version of the default ONNX domain."""
        return next(int(entry.version) for entry in self.header.opset_import if entry.domain == "")

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
            if entry.domain == "":
                entry.version = version
        for graph in self.scopes():
            graph.opset = version
        self._raise_ir_version(opsets.ir_version_for(version))
        return notes

    def _raise_ir_version(self, version: int) -> None:
        if self.header.ir_version < 4 <= version:
            # Before version 4 every initializer had to be listed as an input. From then on that means "may be
            # overridden", and runtimes stop treating such weights as constants.
            for scope in self.scopes():
                scope.overridable.clear()
        self.header.ir_version = max(self.header.ir_version, version)


def is_known(tensor: gs.Tensor) -> bool:
    """Whether a tensor has an element type and a shape without unknown sizes."""
    return tensor.dtype is not None and tensor.shape is not None and None not in tensor.shape


def _named(names: Sequence[str]) -> str:
    """The first names of a list in quotes."""
    rest = len(names) - MOST_NAMED
    return ", ".join(map(quoted, names[:MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")


def load(path: str | Path) -> Graph:
    """Read a model file into a Graph."""
    return Graph.load(path)
