"""What two plans do differently: nodes quantized or float, formats, placements and ties of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from onnxq.diff.changes import Change
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types import QuantPlan
from onnxq.types.overrides import Treatment
from onnxq.types.plan import Placement
from onnxq.types.reason import MEANING

State = Literal["quantized", "fused", "float", "absent"]


@dataclass(frozen=True)
class NodeState:
    """What a plan does with a node; `why` says it for this node, `kind` for all that are float for the same cause.

    `kind` is "" where that is not known: a plan has the sentences alone, and those of two targets differ.
    """

    state: State
    why: str = ""
    kind: str = ""

    def differs(self, other: NodeState) -> bool:
        """Whether another state is another treatment; a sentence about the same treatment is none."""
        return self.state != other.state or bool(self.kind and other.kind and self.kind != other.kind)


ABSENT = NodeState("absent")


@dataclass(frozen=True)
class NodeChange:
    node: str
    before: NodeState
    after: NodeState

    def to_json(self) -> JsonObject:
        return {
            "node": self.node,
            "before": {"state": self.before.state, "why": self.before.why},
            "after": {"state": self.after.state, "why": self.after.why},
        }


@dataclass(frozen=True)
class TensorChange:
    """A tensor and the fields of its quantizer that differ; the only field is "quantizer" where one plan has none."""

    tensor: str
    fields: tuple[Change, ...]

    def to_json(self) -> JsonObject:
        return {"tensor": self.tensor, "fields": [change.to_json() for change in self.fields]}


@dataclass(frozen=True)
class PlanDiff:
    nodes: tuple[NodeChange, ...]
    equal_nodes: int
    tensors: tuple[TensorChange, ...]
    equal_tensors: int

    def to_json(self) -> JsonObject:
        return {
            "nodes": {"changed": [one.to_json() for one in self.nodes], "equal": self.equal_nodes},
            "tensors": {"changed": [one.to_json() for one in self.tensors], "equal": self.equal_tensors},
        }


def diff_plans(before: QuantPlan, after: QuantPlan, codes: tuple[JsonMapping, JsonMapping]) -> PlanDiff:
    """`codes` are those of the reasons of both plans, as report.json has them: code -> nodes."""
    first, second = node_states(before, codes[0]), node_states(after, codes[1])
    names = list(dict.fromkeys([*first, *second]))
    nodes = tuple(
        NodeChange(name, mine, theirs)
        for name in names
        if (mine := first.get(name, ABSENT)).differs(theirs := second.get(name, ABSENT))
    )
    tensors = list(dict.fromkeys([*before.placements, *after.placements]))
    changes = tuple(
        TensorChange(name, changed)
        for name in tensors
        if (changed := tuple(_changed_fields(before.placements.get(name), after.placements.get(name))))
    )
    return PlanDiff(nodes, len(names) - len(nodes), changes, len(tensors) - len(changes))


def node_states(plan: QuantPlan, codes: JsonMapping) -> dict[str, NodeState]:
    """Node -> what the plan does with it."""
    meanings = {str(code): meaning for code, meaning in MEANING.items()}  # a report may have codes of another version
    kinds = {node: meanings.get(code, "") for code, nodes in codes.items() for node in nodes}
    found = {node: NodeState("quantized", rule) for node, rule in plan.quantized.items()}
    found |= {node: NodeState("fused", f"inside '{leader}'") for node, leader in plan.fused.items()}
    found |= {node: NodeState("float", str(why), kinds.get(node, "")) for node, why in plan.left_float.items()}
    return found


def _changed_fields(before: Placement | None, after: Placement | None) -> Iterator[Change]:
    mine, theirs = _fields(before), _fields(after)
    if before is None or after is None:
        yield Change("quantizer", mine.get("format"), theirs.get("format"))
        return
    for name, value in mine.items():
        if value != theirs[name]:
            yield Change(name, value, theirs[name])


def _fields(placement: Placement | None) -> dict[str, object]:
    """What a quantizer does, field by field; why it is there, and who said so, is no difference."""
    if placement is None:
        return {}
    edges = placement.edges
    return {
        "format": str(placement.spec),
        "role": placement.role,
        "tie": placement.tie,
        "derived from": None if placement.derive is None else list(placement.derive),
        "read by": None if edges is None else [f"input {port} of '{node}'" for node, port in sorted(edges)],
        "range from": sorted(placement.observe),
        **{item.name.replace("_", " "): getattr(placement, item.name) for item in fields(Treatment)},
    }
