"""The page of a finished run, drawn again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.cli.console import print_warning
from onnxq.cli.progress import run_bar
from onnxq.json_file import JsonMapping, JsonObject

if TYPE_CHECKING:
    from onnxq.page.again import Reference
    from onnxq.page.content import Run
    from onnxq.types import Backend


def draw_again(
    run: Run,
    *,
    data: str | None = None,
    preprocess: str | None = None,
    samples: int | None = None,
    float_model: Path | None = None,
    further: JsonMapping | None = None,
    quiet: bool = False,
) -> JsonObject:
    """The data of the page of a run; `further` was measured now, beside what data says."""
    from functools import partial

    from onnxq.cli.data import open_data
    from onnxq.page.again import earlier_page, page_again
    from onnxq.pipeline.delivered import model_in
    from onnxq.runtime.sources import holds_images

    backend, written, earlier = _backend(run), model_in(run.folder), earlier_page(run)
    wanted = data is not None or float_model is not None or earlier is None
    reference = _reference(run, written, float_model) if wanted else None
    dataset = None
    if data is not None and reference is not None:
        planned = run.plan.config.get("preprocess") if holds_images(Path(data)) else None
        dataset = open_data(reference.graph, data, None, samples, preprocess or planned)
    with run_bar("report", quiet=quiet) as progress:
        return page_again(run, backend, earlier, reference, written, dataset, partial(progress, "calibrate"), further)


def _backend(run: Run) -> Backend | None:
    """The target of a run; None where it is in a file of the user's, or of a plugin that is not given."""
    from onnxq.errors import ConfigError
    from onnxq.targets import registered_backend

    try:
        return registered_backend(run.plan.backend)
    except ConfigError:
        return None


def _reference(run: Run, written: Path, given: Path | None) -> Reference:
    """The float graph that the plan was made on: given, named by the report, or made of the written one."""
    from onnxq.cli.planned import check_fits, planned_session
    from onnxq.config import read_config
    from onnxq.errors import OnnxqError
    from onnxq.page.again import Reference, written_reference
    from onnxq.page.write import FLOAT, FLOAT_AS_CHANGED
    from onnxq.pipeline.artifacts import FLOAT_MODEL

    beside = run.folder / f"{written.stem}{FLOAT_MODEL}"
    named = run.report.get("model")
    # Where methods have moved factors between layers, only the model beside has the tensors that were quantized.
    choices = [(given, FLOAT), (None if named is None else Path(named), FLOAT)]
    choices = [(beside, FLOAT_AS_CHANGED), *choices] if _rescaled(run) else [*choices, (beside, FLOAT_AS_CHANGED)]
    for path, called in choices:
        if path is None or (path != given and not path.is_file()):
            continue
        try:
            session = planned_session(path, run.plan, None, read_config(None), None)
            check_fits(session, run.plan)
        except OnnxqError as error:
            if path == given:
                raise
            print_warning(f"{path} is not taken for the float model of the run: {error}")
            continue
        return Reference(session.prepared.graph, called, path)
    return written_reference(written)


def _rescaled(run: Run) -> bool:
    from onnxq.errors import ConfigError
    from onnxq.ptq.method import read_improvement

    for step in (run.report.get("improvements") or {}).get("steps", ()):
        try:
            if step["applied"] and read_improvement(step["name"]).method.rescales:
                return True
        except ConfigError:  # of a plugin that is not given
            continue
    return False
