"""What the switches of the pipelines work on, and what a switch is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onnxq.compat.translation import Translator
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.targets.amd.dialect.builtin import Strategy
from onnxq.targets.amd.vitis import ALL_SIMULATIONS, USUAL_SIMULATIONS
from onnxq.types.translation import Outcome


@dataclass
class Run:
    """What the switches work on: the settings so far, the strategy, the model and options of the backend.

    `not_dpu` says why nothing of the DPU applies: its rules on positions, its files, its ways to compute operators.
    `switches` are the values of all switches that were given, whichever comes first.
    """

    translator: Translator
    strategy: Strategy
    graph: Graph
    not_dpu: str = ""
    approximations: str = "usual"
    formats: str = "dpu"
    datatype: tuple[str, str] | None = None
    """The type that everything is converted to, and the key that says so; nothing else is set then."""
    switches: JsonMapping = field(default_factory=dict)

    @property
    def simulations(self) -> tuple[str, ...]:
        """What `simulate` computes as the DPU does, with the approximations so far."""
        return ALL_SIMULATIONS if self.approximations == "all" else USUAL_SIMULATIONS


Apply = Callable[[Run, str, Any], str | Outcome]
"""Make a switch take effect; the key that asked for it, its value -> what became of it."""


@dataclass(frozen=True)
class Switch:
    """A key of a pipeline: how its value is read, what it does, and what a built-in strategy sets it to."""

    read: Callable[[Any, str], Any]
    apply: Apply
    default: Callable[[Strategy], Any] | None = None
