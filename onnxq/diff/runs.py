"""RunDiff: all that differs between two delivered folders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from onnxq.diff.changes import Compared, compared, flattened
from onnxq.diff.outcomes import (
    FileDiff,
    ResultDiff,
    diff_methods,
    file_diffs,
    result_diffs,
    speed_of,
    versions_of,
)
from onnxq.diff.parameters import ParameterDiff, diff_parameters
from onnxq.diff.plans import PlanDiff, diff_plans
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.page.content import Run
from onnxq.types import QuantPlan

SAME_NODES = 0.5
"""The share of nodes that two runs of one model have in common at least: passes differ between targets."""


class Models(StrEnum):
    """Whether two runs are of one float model; plans know it by a hash."""

    SAME = "same"
    OTHER_CONSTANTS = "other_constants"
    """The same nodes: methods have changed constants, or the model was trained further."""
    OTHER = "other"
    UNKNOWN = "unknown"
    """The same nodes, and one plan is too old to have a hash."""


@dataclass(frozen=True)
class RunDiff:
    """What differs; `common_nodes` are the names that both plans have."""

    folders: tuple[str, str]
    backends: tuple[str, str]
    models: Models
    common_nodes: int
    settings: Compared
    plan: PlanDiff
    parameters: ParameterDiff
    accuracy: tuple[ResultDiff, ...]
    samples: tuple[int | None, int | None]
    methods: Compared
    files: tuple[FileDiff, ...]
    speed: Compared
    versions: Compared

    def to_json(self) -> JsonObject:
        return {
            "folders": list(self.folders),
            "backends": list(self.backends),
            "models": self.models.value,
            "settings": self.settings.to_json(),
            "plan": self.plan.to_json(),
            "parameters": self.parameters.to_json(),
            "accuracy": [one.to_json() for one in self.accuracy],
            "samples": list(self.samples),
            "methods": self.methods.to_json(),
            "files": [one.to_json() for one in self.files],
            "speed": self.speed.to_json(),
            "versions": self.versions.to_json(),
        }


def diff_runs(before: Run, after: Run) -> RunDiff:
    """Everything that the documents of two runs say differently."""
    nodes = [_nodes(run.plan) for run in (before, after)]
    common = len(nodes[0] & nodes[1])
    return RunDiff(
        folders=(str(before.folder), str(after.folder)),
        backends=(before.plan.backend, after.plan.backend),
        models=_models(before.plan, after.plan, common >= SAME_NODES * max(map(len, nodes))),
        common_nodes=common,
        settings=compared(dict(flattened(before.config)), dict(flattened(after.config))),
        plan=diff_plans(before.plan, after.plan, (_codes(before.report), _codes(after.report))),
        parameters=diff_parameters(before.qparams, after.qparams, (before.plan, after.plan)),
        accuracy=tuple(result_diffs(before, after)),
        samples=(before.report["checks"].get("samples"), after.report["checks"].get("samples")),
        methods=diff_methods(before, after),
        files=tuple(file_diffs(before, after)),
        speed=compared(speed_of(before), speed_of(after)),
        versions=compared(versions_of(before), versions_of(after)),
    )


def _nodes(plan: QuantPlan) -> set[str]:
    return {*plan.quantized, *plan.fused, *plan.left_float}


def _models(before: QuantPlan, after: QuantPlan, alike: bool) -> Models:
    if before.model and before.model == after.model:
        return Models.SAME
    if not alike:
        return Models.OTHER
    return Models.OTHER_CONSTANTS if before.model and after.model else Models.UNKNOWN


def _codes(report: JsonMapping) -> JsonMapping:
    codes: JsonMapping = report["coverage"].get("float_codes") or {}
    return codes
