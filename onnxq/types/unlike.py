"""UnlikeJoin: tensors that a Concat puts under one scale although their ranges have nothing in common."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types.reason import Reason


@dataclass(frozen=True)
class JoinMember:
    """An input of a join with its range in the calibration data; `steps` is how many steps of the scale it reaches."""

    tensor: str
    low: float
    high: float
    steps: float

    def __str__(self) -> str:
        return f"'{self.tensor}' ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class UnlikeJoin:
    """A join whose result would have one `scale`, of which its `lost` members reach fewer than `fewest` steps.

    `tail` are the nodes that stay float: the join and all that read its result, directly or not.
    """

    node: str
    result: str
    scale: float
    fewest: float
    members: tuple[JoinMember, ...]
    tail: tuple[str, ...]

    @property
    def lost(self) -> tuple[JoinMember, ...]:
        return tuple(member for member in self.members if member.steps < self.fewest)

    @property
    def largest(self) -> JoinMember:
        return max(self.members, key=lambda member: member.steps)

    def __str__(self) -> str:
        lost = self.lost[0]
        return (
            f"'{self.node}' joins {self.largest} and {lost}: with one scale of {self.scale:.3g} the latter has "
            f"{lost.steps:.2g} steps"
        )

    def why_float(self, node: str) -> Reason:
        """Why a node of the tail stays float."""
        behind = f"behind '{self.node}', which joins what one scale cannot hold"
        return Reason("unlike_join", str(self) if node == self.node else behind)

    def to_json(self) -> JsonObject:
        members = [dict(vars(member)) for member in self.members]
        return {**vars(self), "members": members, "tail": list(self.tail)}

    @classmethod
    def from_json(cls, data: JsonMapping) -> UnlikeJoin:
        members = tuple(JoinMember(**member) for member in data["members"])
        scale, fewest = float(data["scale"]), float(data["fewest"])
        return cls(data["node"], data["result"], scale, fewest, members, tuple(data["tail"]))
