"""`onnxq report`: report.html for a run whose files are there already, or for a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_warning, say
from onnxq.cli.progress import run_bar

if TYPE_CHECKING:
    from onnxq.page.again import Reference
    from onnxq.page.content import Run
    from onnxq.types import Backend


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="The folder of a run of quantize, qat or search.",
            show_default=False,
            callback=options.settled,
        ),
    ],
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Use at most N samples.", metavar="N", min=1)] = None,
    float_model: Annotated[
        Path | None,
        typer.Option(
            "--float",
            help="The float model of the run; else the one that report.json names, where it is there.",
            metavar="MODEL",
            callback=options.settled,
        ),
    ] = None,
    plugin: options.PluginOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Draw report.html for the run in FOLDER, of whichever version of onnxq.

    What an earlier page of the run holds is kept. With data (-d), histograms and the noise of layers are measured anew.
    """
    from onnxq.cli.runs import read_run, refuse_no_run
    from onnxq.cli.settings import load_plugins
    from onnxq.output_folder import claim, staging
    from onnxq.page.content import FRONT, search_page
    from onnxq.page.document import write_page
    from onnxq.page.write import title_of
    from onnxq.pipeline.artifacts import PAGE, REPORT

    load_plugins(plugin)
    refuse_no_run(folder, search=True)
    with claim(folder) as output:
        if not (folder / REPORT).is_file() and (folder / FRONT).is_file():
            found, title = search_page(folder), f"search in {folder.name}"
        else:
            run = read_run(folder)
            found, title = _drawn(run, data, preprocess, samples, float_model, quiet=quiet), title_of(run)
        with staging(output) as stage:
            write_page(stage / PAGE, found, title)
    say(f"written: {folder / PAGE}", quiet=quiet)


def _drawn(
    run: Run,
    data: str | None,
    preprocess: str | None,
    samples: int | None,
    float_model: Path | None,
    *,
    quiet: bool,
) -> dict[str, object]:
    from functools import partial

    from onnxq.cli.artifacts import model_in
    from onnxq.cli.data import open_data
    from onnxq.page.again import earlier_page, page_again
    from onnxq.runtime.sources import holds_images

    backend, written, earlier = _backend(run), model_in(run.folder), earlier_page(run)
    wanted = data is not None or float_model is not None or earlier is None
    reference = _reference(run, written, float_model) if wanted else None
    dataset = None
    if data is not None and reference is not None:
        planned = run.plan.config.get("preprocess") if holds_images(Path(data)) else None
        dataset = open_data(reference.graph, data, None, samples, preprocess or planned)
    with run_bar("report", quiet=quiet) as progress:
        return page_again(run, backend, earlier, reference, written, dataset, partial(progress, "calibrate"))


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
