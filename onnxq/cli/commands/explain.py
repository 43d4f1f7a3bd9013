"""`onnxq explain`: what was decided for a node or tensor, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs


@options.with_settings("model backend config code")
def explain(
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", help="plan.json, or the folder that holds it.", show_default=False, callback=options.settled
        ),
    ],
    name: Annotated[
        str, typer.Argument(help="Node or tensor: name, glob, re:REGEX or op:OPERATOR.", show_default=False)
    ],
    given: options.Given,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", help="The float model, to find names of it that passes merged.", callback=options.settled
        ),
    ] = None,
    backend: options.PlanBackendOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what a plan does with a node or tensor: how it is quantized or why not, for whom, with which scale."""
    from onnxq.cli.artifacts import PLAN_NAME, QPARAMS_NAME, read_plan, read_qparams
    from onnxq.cli.planned import check_fits, planned_session
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.graph import Graph
    from onnxq.output_folder import read_together
    from onnxq.place.explanation import Decisions

    load_plugins(plugin, backend)
    path = plan / PLAN_NAME if plan.is_dir() else plan
    beside = path.with_name(QPARAMS_NAME)
    decided, qparams = read_together(
        path.parent, lambda: (read_plan(path), read_qparams(beside) if beside.is_file() else None)
    )
    decisions = Decisions(decided, qparams)
    if model is not None:
        graph = Graph.load(model)
        operators = {node.name: node.op for node in graph.nodes()}
        tensors = graph.tensor_names()
        settings = read_settings(given, backend=decided.backend)
        session = planned_session(graph, decided, backend, settings, passes)
        check_fits(session, decided)
        decisions = Decisions(decided, qparams, session.prepared.graph, operators, tensors)
    answers = decisions.about(name)
    if as_json:
        print_json([{"kind": answer.kind, "name": answer.name, "facts": _merged(answer.facts)} for answer in answers])
    else:
        for answer in answers:
            print_pairs(f"{answer.kind} {answer.name}", answer.facts)


def _merged(facts: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Label -> every value that stands under it."""
    merged: dict[str, list[str]] = {}
    for label, value in facts:
        merged.setdefault(label, []).append(value)
    return merged
