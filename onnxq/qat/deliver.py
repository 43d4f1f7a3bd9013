"""A trained net as files that have passed every check, that of equality with the net included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from onnxq.config import Config
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.output_folder import OutputFolder
from onnxq.pipeline.artifacts import Result, emit_plan
from onnxq.progress import Progress, tracked
from onnxq.ptq.method import State
from onnxq.qat.agreement import Agreement, agreement, disagreements
from onnxq.qat.convert import Converted, convert
from onnxq.qat.net import QatNet
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.session.model_io import apply_io_settings
from onnxq.temporary import temporary_folder
from onnxq.verify import sums_are_exact


def deliver(
    net: QatNet,
    folder: str | Path | OutputFolder,
    *,
    dataset: Dataset | None = None,
    data: object = None,
    settings: Config | None = None,
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    progress: Progress | None = None,
    more: Callable[[Path], JsonMapping] | None = None,
) -> Result:
    """Write what `onnxq.quantize` writes, from a trained net.

    The float model that the checks compare with is the trained one. `dataset` gives their samples; without one, those
    of calibration are taken. `more` writes further files and returns further entries of the report.

    `settings` differ from those of the session in what is decided at the end: the name of the files, shapes of inputs,
    the least SQNR; `data` is then where samples for these shapes come from.
    """
    from onnxq.page.work import work_of  # here, because they are needed once, at the end
    from onnxq.page.write import page_of

    ready = net.calibrated
    found = convert(net)
    samples = dataset or net.session.dataset
    session, original = net.session, net.original
    if settings is not None:
        if any(wanted.shape is not None for wanted in settings.inputs.values()):
            original = original.copy()
            for graph in (found.graph, original):
                apply_io_settings(graph, settings)
        if data is not None:
            samples = open_dataset(data, input_infos(original), limit=settings.samples)
        prepared = replace(session.prepared, config=settings)
        session = replace(session, settings=settings, _prepared=prepared)
    session = replace(session, original=_as_declared(found.graph, original), dataset=samples)
    trained = replace(
        ready,
        session=session if progress is None else replace(session, progress=progress, tracker=tracked(progress)),
        state=State(*found),
        warnings=(*ready.warnings, *warnings),
        notes=(*ready.notes, *net.notes, *notes),
    )
    agreed: list[Agreement] = []

    def same_as_net(model: Path) -> Sequence[str]:
        if samples is None:  # a target that needs no data, and none was given
            return ()
        feeds = itertools.islice(iter(samples), session.settings.verify_samples)
        with temporary_folder() as scratch:
            agreed[:] = agreement(net, as_trained(net, found, model, scratch), feeds, found.qparams)
        return disagreements(agreed)

    def further(stage: Path) -> JsonMapping:
        against = [one.to_json() for one in agreed]
        work = work_of(found.graph, found.plan, samples)
        return {"file_against_net": against, **work, **(more(stage) if more is not None else {})}

    output = Path(folder) if isinstance(folder, str) else folder
    return emit_plan(trained, output, own_check=same_as_net, more=further, draw=page_of(session.settings))


def _as_declared(trained: Graph, original: Graph) -> Graph:
    """The trained graph with inputs and outputs of the shapes that the user's file declares, not the inferred ones."""
    graph = trained.copy()
    for name in (*graph.input_names, *graph.output_names):
        shape = original.shape(name)
        if not graph.is_constant(name):
            graph.tensor(name).shape = None if shape is None else list(shape)
    return graph


def as_trained(net: QatNet, found: Converted, model: Path, scratch: Path) -> Path:
    """The file that computes as the net was trained: a simulation where the written one does not, for no fault of it.

    That is where QuantizeLinear cannot round as the chip does, and where this machine's kernels of integer operators
    saturate.
    """
    backend = net.prepared.backend
    other_rounding = any(placement.spec.rounding != "half_even" for placement in found.plan)
    rounds_otherwise = backend.rounding_in_files == "half_even" and other_rounding
    if not rounds_otherwise and not _kernels_saturate(net):
        return model
    graph, _ = simulate(found.graph, found.plan, found.qparams, backend.replace(simulations=()))
    path = scratch / "simulated.onnx"
    graph.save(path)
    return path


def _kernels_saturate(net: QatNet) -> bool:
    """Whether the file has integer operators with signed weights, whose sums this processor cannot hold."""
    if not net.prepared.backend.integer_operators:
        return False
    signed = any(placement.role == "weight" and placement.spec.signed for placement in net.carried_out)
    return signed and not sums_are_exact()
