"""What a pass is: a function from a graph to the report of what it changed and what it declined, and why.

A pass edits the graph in place and leaves its float outputs equal. Running it twice changes nothing the second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onnxq.errors import ConfigError
from onnxq.graph import Graph, collector_paused
from onnxq.registry import Registry


@dataclass
class PassResult:
    """`changed` and `declined` hold one line each: the node, and what was done or why nothing was."""

    changed: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PassReport:
    """One pass in a run; `removed` are the nodes that left without a successor."""

    name: str
    changed: tuple[str, ...]
    declined: tuple[str, ...]
    seconds: float
    removed: tuple[str, ...] = ()


Pass = Callable[[Graph], PassResult | None]
"""Changes the graph that it is given, and says what it changed and what it declined; None is nothing of both."""

PASSES: Registry[Pass] = Registry("pass", "onnxq.passes")
"""All passes by name; `@PASSES.register("name")` adds one."""


def run_passes(graph: Graph, passes: Sequence[str | Pass]) -> list[PassReport]:
    """Run passes in order, by registered name or as functions; a function may return None if it has nothing to say."""
    reports = []
    for item in passes:
        step, name = (PASSES.get(item), item) if isinstance(item, str) else (item, getattr(item, "__name__", "pass"))
        start, gone = time.perf_counter(), len(graph.origins.removed)
        with collector_paused():
            result = step(graph) or PassResult()
        if not isinstance(result, PassResult):
            raise ConfigError(f"pass '{name}' returned {type(result).__name__}; a pass returns a PassResult or None")
        seconds = time.perf_counter() - start
        removed = tuple(graph.origins.removed)[gone:]
        reports.append(PassReport(name, tuple(result.changed), tuple(result.declined), seconds, removed))
    return reports
