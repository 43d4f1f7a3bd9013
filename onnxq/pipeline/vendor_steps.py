"""The steps in a vendor's tools that follow a run, with the names of its files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnxq.emit import EMITTERS
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.types import Backend
from onnxq.types.vendor_step import MODEL, NAME, SHAPES, VendorStep

UNKNOWN_SIZE = "N"
"""In the place of a size that a model leaves free."""


def vendor_steps(
    backend: Backend, name: str, written: Collection[str] | None = None, shapes: str = "[[...]]"
) -> list[JsonObject]:
    """What to do, and the line for it; steps for files that this run has not written (`written`) are left out."""
    files = _files(backend, name)
    if written is not None:
        files = {emitter: file for emitter, file in files.items() if file in written}
    words = {**files, NAME: name, SHAPES: shapes}
    return [_filled(step, words) for step in backend.vendor_steps if step.words <= words.keys()]


def _files(backend: Backend, name: str) -> dict[str, str]:
    found = {one: names[0] for one in backend.emitters if (names := EMITTERS.get(one).file_names(name))}
    return {MODEL: found[backend.emitters[0]], **found} if backend.emitters[0] in found else found


def _filled(step: VendorStep, words: dict[str, str]) -> JsonObject:
    return {"what": step.what, "line": step.filled(words)}


def shapes_text(graph: Graph) -> str:
    """The shapes of a model's inputs as tools take them: [[1,3,224,224]]."""
    shapes: Sequence[Sequence[object]] = [graph.shape(name) or () for name in graph.input_names]
    sizes = [",".join(str(size) if isinstance(size, int) else UNKNOWN_SIZE for size in shape) for shape in shapes]
    return "[" + ",".join(f"[{one}]" for one in sizes) + "]"
