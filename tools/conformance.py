"""Runs ONNX's own node tests on torch, prints what passes for each operator, and writes docs/torch-operators.md.

Usage: python -m tools.conformance [--check]
With --check nothing is written. The exit code is 1 if a case fails that tests/torchnet/left_out.json does not list, if
a listed one passes, or if the page is out of date.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase

import onnxq.torchnet.ops
from onnxq.torchnet.registry import OPERATORS, Definition, shown
from tests.torchnet.conformance import is_rounding, left_out, node_cases, problem_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "torch-operators.md"

COMPOSED = "compositions of several operators"
"""Where the cases with several nodes are counted, most of them an operator written as a function of others."""

TEXT = """\
# Operators of torchnet

`onnxq.torchnet` runs an ONNX graph on torch. This page lists the operators it has, and how many of ONNX's own node
tests ({version}) it reproduces: values, shapes and element types, within ONNX's own tolerances.

**{passed} of {count} cases pass.** An operator that is missing here can be added in one file: `qat.md`, "Your own
operators". The page is written by `python -m tools.conformance`.

## Operators of ONNX

"Versions" are the opset versions at which ONNX changed the definition of the operator, as far as they run.

{operators}
## Operators of onnxruntime and of onnxq

{others}
## Cases that are left

{left}
## Operators of ONNX without an implementation

{missing}
"""


def operator_of(case: TestCase) -> str:
    """The operator that a case is about."""
    nodes = case.model.graph.node
    return shown(nodes[0].domain, nodes[0].op_type) if len(nodes) == 1 else COMPOSED


def counts(failing: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Operator -> cases that pass, all cases."""
    failed = set(failing)
    tallies: dict[str, list[bool]] = defaultdict(list)
    for name, case in node_cases().items():
        tallies[operator_of(case)].append(name not in failed)
    return {operator: (sum(results), len(results)) for operator, results in sorted(tallies.items())}


def versions() -> dict[str, tuple[list[int], list[int]]]:
    """Operator of ONNX -> versions at which it was defined that run, and those that do not."""
    known = defaultdict(list)
    for item in definitions():
        known[item.domain, item.name].append(item)
    found: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda item: item.since_version):
        operator = shown(schema.domain, schema.name)
        has_ended = schema.deprecated and operator in found
        if not has_ended and schema.name != "Constant":  # constants are values of the graph, not nodes
            runs = any(item.covers(schema.since_version) for item in known[schema.domain, schema.name])
            found[operator][0 if runs else 1].append(schema.since_version)
    return dict(sorted(found.items()))


def definitions() -> list[Definition]:
    """What onnxq itself brings; a file of the user may have added more."""
    home = onnxq.torchnet.ops.__name__
    return [item for item in OPERATORS.definitions() if item.builder.__module__.startswith(home)]


def page(reasons: Mapping[str, str]) -> str:
    """The text of docs/torch-operators.md, where `reasons` are the cases that fail."""
    tallies, defined = counts(reasons), versions()
    rows = []
    for operator, (running, lacking) in defined.items():
        if running:
            passed, count = tallies.get(operator, (0, 0))
            listed = ", ".join(map(str, running)) + (f" (not {', '.join(map(str, lacking))})" if lacking else "")
            rows.append([f"`{operator}`", listed, f"{passed} / {count}" if count else "no case"])
    rows.append([COMPOSED, "", " / ".join(map(str, tallies[COMPOSED]))])
    left = defaultdict(list)
    for name, reason in reasons.items():
        left[reason].append(f"`{name.removeprefix('test_')}`")
    ours = sorted({shown(item.domain, item.name) for item in definitions()} - set(defined))
    return TEXT.format(
        version=f"onnx {'.'.join(onnx.__version__.split('.')[:2])}",
        passed=len(node_cases()) - len(reasons),
        count=len(node_cases()),
        operators=_table(["operator", "versions", "cases"], rows),
        others=_list(f"`{name}`" for name in ours),
        left=_table(["cases", "why"], [[", ".join(names), reason] for reason, names in left.items()]),
        missing=_list(f"`{operator}`" for operator, (running, _) in defined.items() if not running).rstrip(),
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) + "\n"


def failures() -> dict[str, str]:
    """The cases that fail, with what went wrong."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        problems = {name: problem_of(case) for name, case in node_cases().items()}
    return {name: problem for name, problem in problems.items() if problem is not None}


def main(arguments: list[str]) -> int:
    failing, listed = failures(), left_out()
    for operator, (passed, count) in counts(failing).items():
        print(f"{passed:4d} / {count:4d}  {operator}")
    for name, problem in failing.items():
        print(f"left: {name}: {listed.get(name, f'NOT LISTED: {problem}')}")
    stale = [name for name, reason in listed.items() if name not in failing and not is_rounding(reason)]
    for name in stale:
        print(f"passes, but is listed: {name}")
    print(f"{len(node_cases()) - len(failing)} of {len(node_cases())} cases pass")
    if stale or set(failing) - set(listed):
        return 1
    text = page(listed)
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is out of date: run python -m tools.conformance")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
