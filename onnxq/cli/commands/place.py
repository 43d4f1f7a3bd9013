"""`onnxq place`: the plan for a model, node by node and tensor by tensor, without any data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table, print_warning, say

if TYPE_CHECKING:
    from onnxq.graph import Graph, Node
    from onnxq.types import QuantPlan


class State(Enum):
    """What becomes of a node."""

    QUANTIZED = "quantized"
    FUSED = "fused"
    FLOAT = "float"


@options.with_settings("target out config foreign code place")
def place(
    model: options.ModelArgument,
    given: options.Given,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan into this file.")] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes",
            help="Show these nodes alone, and the tensors around them: name, glob, re:REGEX, op:OPERATOR. Repeatable.",
            metavar="PATTERN",
        ),
    ] = None,
    show: Annotated[
        State | None, typer.Option("--show", help="Show nodes of this state alone: quantized, fused or float.")
    ] = None,
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
        _print_plan(plan, prepared.graph, _wanted(plan, prepared.graph, nodes or (), show))
    if settings.translation is not None and not as_json and not quiet:
        print_translation(settings.translation)
    for note in plan.notes:
        print_warning(note)
    if not as_json:
        for removed in folded(dead_notes(prepared)):
            say(f"note: {removed}", quiet=quiet)
    if target is not None:
        say(f"plan of {len(plan)} tensors written to {target}", quiet=quiet)


def _print_plan(plan: QuantPlan, graph: Graph, wanted: Collection[str]) -> None:
    """The summary, why nodes stay float, then the nodes that are wanted and the tensors that they read and write."""
    from onnxq.page.work import macs_json, work_json
    from onnxq.pipeline.coverage import Coverage
    from onnxq.pipeline.summary import grouped, nodes_line, work_lines

    counted = Coverage.of(plan).to_json()
    print_pairs(
        f"plan for {plan.backend}",
        [
            *(("layers", line) for line in work_lines(work_json(graph, plan, macs_json(graph, None, {}, assumed=1)))),
            ("nodes", nodes_line(counted)),
            ("tensors", ", ".join(f"{count} {role}" for role, count in counted["tensors"].items()) or "none"),
        ],
    )
    reasons = grouped(plan.left_float.values())
    if reasons:
        print_table("why nodes stay float", (">nodes", "reason"), [(str(count), reason) for reason, count in reasons])
    nodes = [node for node in graph.nodes() if node.name in wanted]
    shown = "nodes" if len(wanted) == counted["nodes"] else f"{len(nodes)} of {counted['nodes']} nodes"
    print_table(shown, ("node", "operator", "state", "why"), [_node_row(plan, node) for node in nodes])
    around = None if len(wanted) == counted["nodes"] else _tensors_around(nodes)
    rows = list(_tensor_rows(plan, around))
    if rows:
        print_table("tensors", ("tensor", "role", "format", "quantized for", "why"), rows)


def _wanted(plan: QuantPlan, graph: Graph, patterns: Sequence[str], show: State | None) -> Collection[str]:
    """The nodes to show; a pattern that names none is an error."""
    from onnxq.match import resolve

    operators = {node.name: node.op for node in graph.nodes()}
    found: Collection[str] = resolve(patterns, operators, "node") if patterns else operators
    states: dict[State, Collection[str]] = {
        State.QUANTIZED: plan.quantized,
        State.FUSED: plan.fused,
        State.FLOAT: plan.left_float,
    }
    return found if show is None else {name for name in found if name in states[show]}


def _node_row(plan: QuantPlan, node: Node) -> tuple[str, str, str, str]:
    name = node.name
    if name in plan.quantized:
        return name, node.op, State.QUANTIZED.value, plan.quantized[name]
    if name in plan.fused:
        return name, node.op, State.FUSED.value, f"runs inside '{plan.fused[name]}'"
    return name, node.op, State.FLOAT.value, plan.left_float[name]


def _tensors_around(nodes: Iterable[Node]) -> set[str]:
    return {str(tensor.name) for node in nodes for tensor in (*node.inputs, *node.outputs)}


def _tensor_rows(plan: QuantPlan, around: set[str] | None) -> Iterator[tuple[str, str, str, str, str]]:
    for placement in plan:
        if around is not None and placement.tensor not in around:
            continue
        readers = "every reader" if placement.edges is None else ", ".join(f"{n}:{port}" for n, port in placement.edges)
        tie = "" if placement.tie is None else f"; scale of '{placement.tie}'"
        yield placement.tensor, placement.role, str(placement.spec), readers, placement.why + tie
