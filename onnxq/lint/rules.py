"""Rules of single targets for files, beyond what `Limits` can say; backends name the ones that hold for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from onnxq.graph import Graph
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import Quantizer
from onnxq.registry import Registry
from onnxq.types import Backend


class LintRule(Protocol):
    """Yields a Finding for everything the target would not take; `found` are all Q and DQ nodes of the graph."""

    def __call__(self, graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]: ...


LINTS: Registry[LintRule] = Registry("lint rule", "onnxq.targets")
"""Rules of targets for files, by the names that backends have in their lists."""
