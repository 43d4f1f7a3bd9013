"""The page of a run drawn afterwards, from the files that it has left, and from data where it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from onnxq.calibrate import activation_leaders, gather
from onnxq.errors import OnnxqError
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.page.content import Measured, Run, run_page
from onnxq.page.document import read_page
from onnxq.page.inputs import inputs_json
from onnxq.page.layers import SAMPLES, measure_layers
from onnxq.page.model import model_json
from onnxq.page.work import macs_json
from onnxq.page.write import file_bytes, observed_of
from onnxq.pipeline.artifacts import PAGE
from onnxq.ptq.search.stage import LARGE
from onnxq.runtime import Dataset
from onnxq.runtime.collect import Progress
from onnxq.strip import strip
from onnxq.types import Backend

WRITTEN = "the written model without its quantizers, whose weights are rounded already"


@dataclass(frozen=True)
class Reference:
    """A float graph with the names of a plan, and what to call it; `file` is None for one made of the written model."""

    graph: Graph
    called: str
    file: Path | None


def written_reference(written: Path) -> Reference:
    """The written model with its quantization taken out."""
    graph = Graph.load(written)
    strip(graph)
    return Reference(graph, WRITTEN, None)


def earlier_page(run: Run) -> JsonMapping | None:
    """The data of the page that lies in the folder already, if it is of the same run."""
    try:
        data = read_page(run.folder / PAGE)
    except (OSError, OnnxqError):
        return None
    return data if data.get("run") == run.identity else None


def page_again(
    run: Run,
    backend: Backend | None,
    earlier: JsonMapping | None,
    reference: Reference | None,
    written: Path,
    dataset: Dataset | None,
    progress: Progress | None = None,
    further: JsonMapping | None = None,
) -> JsonObject:
    """The data of a page; what was measured for an earlier page of the same run is kept where nothing new is.

    `further` is what was measured elsewhere, in the form of `Measured`.
    """
    said = Measured(macs=run.report.get("work", {}).get("layer_macs")).to_json()
    measured = {**said, **({} if earlier is None else earlier["measured"]), **(further or {})}
    if reference is None:
        assert earlier is not None
        return run_page(run, backend, earlier["model"], measured)
    if dataset is not None:
        measured.update(_measured(run, reference, written, dataset, progress))
    if reference.file is not None:
        measured["float_file"] = file_bytes([reference.file])
    small = weight_bytes(reference.graph.gs) <= LARGE
    return run_page(run, backend, model_json(reference.graph, run.plan, run.qparams, weights=small), measured)


def _measured(run: Run, reference: Reference, written: Path, dataset: Dataset, progress: Progress | None) -> JsonObject:
    graph = reference.graph
    leaders = [
        replace(one, observe=seen)
        for one in activation_leaders(run.plan)
        if (seen := tuple(tensor for tensor in one.observe if graph.has_tensor(tensor)))
    ]
    gathered = gather(graph, leaders, dataset, reusable=True, progress=progress) if leaders else None
    feeds = list(islice(dataset, SAMPLES))
    found = measure_layers(graph, Graph.load(written), run.qparams, feeds, range(len(feeds)))
    return {
        "observed": observed_of(gathered, run.plan),
        "layers": found.to_json(reference.called),
        "inputs": inputs_json(dataset),
        "macs": macs_json(graph, feeds[0], found.shapes),
    }
