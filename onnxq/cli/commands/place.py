"""`onnxq place`: the plan for a model, node by node and tensor by tensor, without any data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table, print_warning, say

if TYPE_CHECKING:
    from onnxq.graph import Graph
    from onnxq.types import QuantPlan


@options.with_settings("target out config foreign code place")
def place(
    model: options.ModelArgument,
    given: options.Given,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan into this file.")] = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Show which nodes of MODEL would be quantized for a target, how, and why the others would not."""
    from onnxq.calibrate.identity import model_identity
    from onnxq.cli.artifacts import PLAN_NAME, output_file, write_output
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.summary import print_translation
    from onnxq.graph import Graph
    from onnxq.session.prepare import dead_notes, make_plan
    from onnxq.session.session import open_session
    from onnxq.types.note import folded

    load_plugins(plugin)
    graph = Graph.load(model)
    settings = read_settings(given, graph)
    target = None if out is None else output_file(out, PLAN_NAME, model)
    wanted = None if settings.translation else given["backend"]
    prepared = open_session(graph, backend=wanted, config=settings, passes=passes or ()).prepared
    plan = replace(make_plan(prepared), model=model_identity(prepared.graph))
    if target is not None:
        write_output(target, plan.to_json())
    if as_json:
        print_json(plan.to_json())
    elif not quiet:
        _print_plan(plan, prepared.graph)
    if settings.translation is not None and not as_json and not quiet:
        print_translation(settings.translation)
    for note in plan.notes:
        print_warning(note)
    if not as_json:
        for removed in folded(dead_notes(prepared)):
            say(f"note: {removed}", quiet=quiet)
    if target is not None:
        say(f"plan of {len(plan)} tensors written to {target}", quiet=quiet)


def _print_plan(plan: QuantPlan, graph: Graph) -> None:
    from onnxq.cli.summary import nodes_line
    from onnxq.pipeline.report import coverage

    print_table("nodes", ("node", "operator", "state", "why"), _node_rows(plan, graph))
    print_table("tensors", ("tensor", "role", "format", "quantized for", "why"), _tensor_rows(plan))
    print_pairs(f"plan for {plan.backend}", [("nodes", nodes_line(coverage(plan)))])


def _node_rows(plan: QuantPlan, graph: Graph) -> Iterator[tuple[str, str, str, str]]:
    for node in graph.nodes():
        name = node.name
        if name in plan.quantized:
            yield name, node.op, "quantized", plan.quantized[name]
        elif name in plan.fused:
            yield name, node.op, "fused", f"runs inside '{plan.fused[name]}'"
        else:
            yield name, node.op, "float", plan.left_float[name]


def _tensor_rows(plan: QuantPlan) -> Iterator[tuple[str, str, str, str, str]]:
    for placement in plan:
        readers = "every reader" if placement.edges is None else ", ".join(f"{n}:{port}" for n, port in placement.edges)
        tie = "" if placement.tie is None else f"; scale of '{placement.tie}'"
        yield placement.tensor, placement.role, str(placement.spec), readers, placement.why + tie
