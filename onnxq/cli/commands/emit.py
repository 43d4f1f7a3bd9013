"""`onnxq emit`: the files for a plan and its parameters, checked; data is only needed to measure accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options


@options.with_settings("target data images config code samples")
def emit(
    model: options.ModelArgument,
    plan: Annotated[
        Path, typer.Option("--plan", help="Plan from 'onnxq place', perhaps edited.", callback=options.settled)
    ],
    qparams: Annotated[
        Path, typer.Option("--qparams", help="Parameters from 'onnxq calibrate'.", callback=options.settled)
    ],
    out: options.FolderOption,
    given: options.Given,
    backend: options.PlanBackendOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    other_model: options.OtherModelOption = False,
    strict: options.StrictOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write the quantized MODEL for a plan and its parameters, and check what was written.

    With -d the outputs are compared with those of the float model too.
    """
    from onnxq.cli.artifacts import check_writable, folder_of, read_plan, read_qparams
    from onnxq.cli.consistency import check_parameters
    from onnxq.cli.data import chosen_preprocess, open_data
    from onnxq.cli.float_model import session_for
    from onnxq.cli.planned import planned_session, refuse_placing
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.output_folder import read_together
    from onnxq.pipeline.artifacts import emit_plan
    from onnxq.ptq.method import State
    from onnxq.session.session import Calibrated

    load_plugins(plugin, backend)
    wanted, table = read_together(folder_of(plan), lambda: (read_plan(plan), read_qparams(qparams)))
    refuse_placing(given)
    settings = read_settings(given, backend=wanted.backend)
    data = given["data"]
    check_writable(out)
    session = planned_session(model, wanted, backend, settings, passes)
    if data is not None:
        steps = chosen_preprocess(settings, wanted, data)
        session.use_dataset(open_data(session.original, data, None, settings.samples, steps))
    session = session_for(model, session, wanted, folder_of(plan), other=other_model, quiet=quiet, strict=strict)
    graph = session.prepared.graph
    check_parameters(graph, wanted, table)
    result = emit_plan(Calibrated(session, State(graph, wanted, table)), out, effort_tried=False)
    show_report(result.report, model, result.model, as_json=as_json, quiet=quiet)
    fail_on_warnings(result.report, out, strict=strict)
