"""The page of a run, drawn before its files are delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from onnxq.calibrate import Gathered
from onnxq.config import Config
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.json_file import JsonObject
from onnxq.page.content import Measured, Run, run_page
from onnxq.page.document import write_page
from onnxq.page.inputs import inputs_json
from onnxq.page.layers import SAMPLES_OF_A_RUN, measure_layers
from onnxq.page.model import model_json
from onnxq.page.observed import observed_json
from onnxq.pipeline.artifacts import PAGE, DrawPage, Finished
from onnxq.pipeline.forecast import LAYERS_ROUNDS, fits
from onnxq.progress.time_limit import Part
from onnxq.ptq.search.sample_split import verification_samples
from onnxq.ptq.search.stage import LARGE
from onnxq.types import QuantPlan

MANY_NODES = 2000
"""With every tensor an output, sessions of more nodes than this take longer to make than a page is worth."""

FLOAT, FLOAT_AS_CHANGED = "the float model", "the float model with the weights as methods have changed them"


def page_of(config: Config, reference: Graph | None = None) -> DrawPage | None:
    """Draws the page that the settings ask for; None where they want none.

    `reference` is the float graph behind the passes that layers are compared with; None takes the one that was
    written, with its constants as methods have changed them.
    """
    if config.report == "no":
        return None

    def draw(stage: Path, done: Finished) -> None:
        session, graph = done.ready.session, done.ready.state.graph
        run = Run(done.report, done.config, done.written.plan, done.written.qparams, stage)
        small = weight_bytes(graph.gs) <= LARGE
        compared = reference or graph
        measured = Measured(observed=observed_of(done.ready.gathered, run.plan))
        if session.dataset is not None:
            measured = replace(measured, inputs=inputs_json(session.dataset))
            if small and wants_layers(config, graph) and fits(session, Part.LAYERS, "page", LAYERS_ROUNDS):
                samples = verification_samples(session.dataset, config.verify_samples)
                numbers = samples.numbers[:SAMPLES_OF_A_RUN]
                feeds = list(islice(samples, len(numbers)))
                found = measure_layers(compared, Graph.load(done.written.emitted.files[0]), run.qparams, feeds, numbers)
                against = FLOAT if reference is not None else FLOAT_AS_CHANGED
                measured = replace(measured, layers=found.to_json(against))
        measured = replace(measured, macs=done.report.get("work", {}).get("layer_macs"))
        measured = replace(measured, float_file=file_bytes(session.original.files()))
        model = model_json(graph, run.plan, run.qparams, weights=small)
        data = run_page(run, session.prepared.backend, model, measured.to_json())
        write_page(stage / PAGE, data, title_of(run))

    return draw


def wants_layers(config: Config, graph: Graph) -> bool:
    """Whether the run pays for the noise of layers; one that only calibrates, or has many nodes, if it is told to."""
    if config.report is not None:
        return config.report == "full"
    return (config.effort > 0 or config.improvements is not None) and len(graph.nodes()) <= MANY_NODES


def observed_of(gathered: Gathered | None, plan: QuantPlan) -> JsonObject:
    """What was seen of the tensors of a plan."""
    wanted = dict.fromkeys([*plan.observed(), *(one.tensor for one in plan)])
    return {} if gathered is None else observed_json(gathered.statistics, wanted)


def title_of(run: Run) -> str:
    model = run.report.get("model")
    return f"{Path(model).name if model else run.config.get('name', 'model')} for {run.plan.backend}"


def file_bytes(paths: Iterable[Path]) -> int | None:
    """Bytes of the files of a model; None where it came from memory."""
    return sum(path.stat().st_size for path in paths if path.is_file()) or None
