"""`onnxq simulate`: a model that runs in onnxruntime and computes what the target computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, print_warning, say
from onnxq.glance import decibels
from onnxq.pipeline.figures import decision_line, sample_line

if TYPE_CHECKING:
    from onnxq.verify.report import OutputCheck

SIMULATED_NAME = "simulated.onnx"


@options.with_settings("qparams target data images config code samples random shape")
def simulate(
    model: options.ModelArgument,
    plan: Annotated[
        Path,
        typer.Option(
            "--plan", help="Plan, or the folder of a run with plan.json and qparams.json.", callback=options.settled
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the simulated model, or a folder.")],
    given: options.Given,
    qparams: Annotated[
        Path | None,
        typer.Option("--qparams", help="Parameters; those beside the plan when left out.", callback=options.settled),
    ] = None,
    backend: options.PlanBackendOption = None,
    random: options.RandomOption = None,
    shape: options.SampleShapeOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    other_model: options.OtherModelOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write a model that computes in onnxruntime what the target computes from MODEL with a plan and its parameters.

    The chip's own grids, roundings and operators are in it as float operators. With -d its outputs are compared with
    those of the float model.
    """
    from onnxq.cli.artifacts import folder_of, output_file, read_plan, read_qparams
    from onnxq.cli.consistency import check_parameters
    from onnxq.cli.data import chosen_preprocess, open_data
    from onnxq.cli.float_model import session_for
    from onnxq.cli.planned import planned_session, refuse_placing
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.shapes import read_shapes
    from onnxq.emit.simulate import simulate as build
    from onnxq.output_folder import claim, read_together, staging
    from onnxq.pipeline.delivered import model_in
    from onnxq.pipeline.written import check_simulated, limit_is_ours
    from onnxq.ptq.search.sample_split import verification_samples
    from onnxq.types.note import folded
    from onnxq.verify import below_limit

    load_plugins(plugin, backend)
    folder = folder_of(plan)
    wanted, table, beside = read_together(
        folder, lambda: (read_plan(plan), read_qparams(folder if qparams is None else qparams), model_in(folder))
    )
    refuse_placing(given)
    settings = read_settings(given, backend=wanted.backend)
    data = given["data"]
    target = output_file(out, SIMULATED_NAME, model, beside)
    session = planned_session(model, wanted, backend, settings, passes)
    original, dataset = session.original, None
    shapes = read_shapes(shape, original)
    if data is not None or random is not None or shapes:
        steps = chosen_preprocess(settings, wanted, data)
        dataset = open_data(original, data, random, settings.samples, steps, shapes)
        session.use_dataset(dataset)
    prepared = session_for(model, session, wanted, folder, other=other_model, quiet=quiet).prepared
    check_parameters(prepared.graph, wanted, table)
    graph, notes = build(prepared.graph, wanted, table, prepared.backend)
    notes = [*notes, *(() if dataset is None else dataset.notes)]
    # Several may be made in one folder at a time.
    with claim(target.parent, target.name) as output, staging(output, original.files()) as stage:
        compared = None if dataset is None else verification_samples(dataset, settings.verify_samples)
        outputs = check_simulated(graph, original, stage / target.name, compared)
        files = [target.parent / path.name for path in sorted(stage.iterdir())]
    results = [result for check in outputs for result in check.results]
    for failure in below_limit(results, settings.minimum_sqnr_db, " as simulated", surely=limit_is_ours(settings)):
        print_warning(str(failure))
    if as_json:
        checks = [check.to_json() for check in outputs]
        print_json({"files": [str(path) for path in files], "notes": notes, "outputs": checks})
        return
    for note in folded(notes):
        say(f"note: {note}", quiet=quiet)
    if outputs and not quiet:
        print_table(
            f"simulated for {prepared.backend.name}, against float", ("output", ">SQNR", ">cosine"), _rows(outputs)
        )
        for remark in _remarks(outputs):
            say(remark)
    say(f"simulated model written to {target}", quiet=quiet)


def _rows(outputs: tuple[OutputCheck, ...]) -> list[tuple[str, str, str]]:
    """A line for each output and each of its parts."""
    rows = []
    for check in outputs:
        if check.sqnr_db is None:
            rows.append((check.name, f"{100 * (check.agreement or 0.0):.2f} % equal", ""))
        for result in check.results:
            said = decibels(result.sqnr_db) + (" (silent)" if result.silent else "")
            rows.append((result.name, said, "" if result.is_part else f"{check.cosine:.6f}"))
    return rows


def _remarks(outputs: tuple[OutputCheck, ...]) -> list[str]:
    """What else is known of outputs and their parts: single samples, decisions."""
    found = [(result.title, result.to_json()) for check in outputs for result in check.results]
    lines = [(title, line(result)) for title, result in found for line in (sample_line, decision_line)]
    return [f"{title}: {line}" for title, line in lines if line is not None]
