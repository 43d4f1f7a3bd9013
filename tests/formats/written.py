"""A model quantized into a folder, with everything that a read-back of its tables asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxq import quantize
from onnxq.emit import read_back
from onnxq.graph import Graph
from onnxq.session.prepare import prepare
from onnxq.types import Backend, QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN


@dataclass(frozen=True)
class Written:
    """What was written, and what it was written from."""

    folder: Path
    graph: Graph
    plan: QuantPlan
    qparams: QParamsTable
    backend: Backend
    notes: list[str]
    warnings: list[str]

    def problems(self) -> list[str]:
        """What the read-back of the target finds in the folder as it is now."""
        return read_back(self.graph, self.plan, self.qparams, self.backend, self.folder, "model")

    def change(self, file: str, old: str, new: str) -> None:
        """Replace text in a file; the text must be there."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")


def write_golden(name: str, backend: str, folder: Path) -> Written:
    """One of the golden graphs, quantized for a target."""
    golden = GOLDEN[name]()
    return write_model(golden.model, golden.samples, backend, folder)


def write_model(model: onnx.ModelProto, samples: object, backend: str, folder: Path) -> Written:
    result = quantize(model, backend=backend, data=samples, out=folder, config={"effort": 0})
    prepared = prepare(model, backend)
    notes, warnings = list(result.report["notes"]), list(result.report["warnings"])
    return Written(folder, prepared.graph, result.plan, result.qparams, prepared.backend, notes, warnings)
