"""`onnxq lint`: does a model, made by whatever tool, keep to the limits of a target?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, print_warning, say

if TYPE_CHECKING:
    from onnxq.lint import Finding


def lint(
    model: options.ModelArgument,
    backend: options.RequiredBackendOption,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Check MODEL against the limits of a target: types, zero points, scales, granularity and the target's own rules.

    The exit code is 1 when there is a finding. A float model is checked by the rules that concern its operators.
    """
    from onnxq.cli.settings import load_plugins
    from onnxq.graph import Graph
    from onnxq.lint.limits import lint as find
    from onnxq.lint.quantizers import has_quantizers
    from onnxq.targets import get_backend

    load_plugins(plugin)
    target = get_backend(backend)
    graph = Graph.load(model)
    graph.infer_shapes()
    findings = find(graph, target)
    if as_json:
        print_json([vars(finding) for finding in findings])
    elif findings:
        print_table(f"{model} for {target.name}", ("rule", "what", "remedy"), _rows(findings))
    if not has_quantizers(graph):
        say(f"{model} has no QuantizeLinear or DequantizeLinear: only its operators were looked at", quiet=quiet)
    if findings:
        count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        print_warning(f"{count}: {target.name} would not take the model as it is")
        raise typer.Exit(1)
    say(f"nothing that {target.name} would not take was found", quiet=quiet)


def _rows(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.message, finding.remedy) for finding in findings]
