"""Placement and QuantPlan: which tensors are quantized, how, for whom, and why; and why the rest is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, TypeVar

from onnxq.errors import SpecError, did_you_mean
from onnxq.glance import counted, notebook_html, short_name, short_repr, tally
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types.overrides import Treatment
from onnxq.types.reason import Reason
from onnxq.types.rest import RestPlan
from onnxq.types.spec import QuantSpec
from onnxq.types.unlike import UnlikeJoin

T = TypeVar("T")

Role = Literal["activation", "weight", "bias", "output"]
PLAN_FORM = "onnxq-plan"
_PLAN_KEYS = {"backend", "model", "config", "notes", "left_out", "unlike", "rest", "tensors", "nodes"}
ROLES: tuple[Role, ...] = ("activation", "weight", "bias", "output")


class Edge(NamedTuple):
    """One use of a tensor: input number `port` of the node called `node`."""

    node: str
    port: int


class BiasOf(NamedTuple):
    """A bias quantized with scale = scale(input) * scale(weight), zero point 0."""

    input: str
    weight: str


class PlacementError(SpecError):
    """A placement is not legal; the text names its tensor."""


@dataclass(frozen=True)
class Placement(Treatment):
    """One quantizer on one tensor; the edges of one that is only observed are empty.

    edges    the uses that read the quantized value; None means every use, a graph output included
    tie      the tensor whose parameters this one shares; None means that it has its own
    observe  the tensors whose values set the range (of a leader: every member of its group that can widen it);
             empty for tied and derived placements and for constants
    derive   set on a bias whose scale follows from an input and a weight
    why      the rule that put it here, in words for the user
    set_by   (field, where) for every field that somebody has set: the line of a configuration, an option
    """

    tensor: str
    spec: QuantSpec
    role: Role
    why: str
    edges: tuple[Edge, ...] | None = None
    tie: str | None = None
    observe: tuple[str, ...] = ()
    derive: BiasOf | None = None
    set_by: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.observe_only and self.edges != ():
            raise PlacementError(
                f"'{self.tensor}' is only observed, so nobody reads it quantized: its edges must be empty"
            )
        if self.role not in ROLES:
            raise PlacementError(f"role of '{self.tensor}' must be one of {', '.join(ROLES)}, got '{self.role}'")
        if self.tie == self.tensor:
            raise PlacementError(f"'{self.tensor}' is tied to itself")
        if self.tie is not None and self.derive is not None:
            raise PlacementError(f"'{self.tensor}' cannot be both tied and derived")
        if (self.role == "bias") != (self.derive is not None) and self.spec.format.bias_only:
            raise PlacementError(f"int32 on '{self.tensor}' needs the input and weight that its scale derives from")

    def to_json(self) -> JsonObject:
        data: JsonObject = {"spec": self.spec.to_json(), "role": self.role, "why": self.why}
        if self.edges is not None:
            data["edges"] = [list(edge) for edge in self.edges]
        if self.tie is not None:
            data["tie"] = self.tie
        if self.observe:
            data["observe"] = list(self.observe)
        if self.derive is not None:
            data["derive"] = {"input": self.derive.input, "weight": self.derive.weight}
        if self.observe or self.role == "weight":
            data["observer"] = self.observer
        data |= self.changed_treatment()
        if self.set_by:
            data["set_by"] = dict(self.set_by)
        return data

    @classmethod
    def from_json(cls, tensor: str, data: JsonMapping) -> Placement:
        known = {item.name for item in fields(cls)} - {"tensor"}
        for key in data:
            if key not in known:
                raise PlacementError(f"unknown key '{key}' in the placement of '{tensor}'.{did_you_mean(key, known)}")
        edges = data.get("edges")
        derive = data.get("derive")
        return cls(
            tensor=tensor,
            spec=QuantSpec.from_json(data["spec"]),
            role=data["role"],
            why=data.get("why", ""),
            edges=None if edges is None else tuple(Edge(str(n), int(p)) for n, p in edges),
            tie=data.get("tie"),
            observe=tuple(data.get("observe", ())),
            derive=None if derive is None else BiasOf(derive["input"], derive["weight"]),
            set_by=tuple((str(field), str(where)) for field, where in data.get("set_by", {}).items()),
            **{key: type(default)(data[key]) for key, default in vars(Treatment()).items() if key in data},
        )


@dataclass
class QuantPlan:
    """Tensor -> Placement; every node either in `quantized` (with its rule) or in `left_float` (with its reason).

    `fused` names nodes that run inside a quantized unit (the Relu behind a Conv) and the node that leads the unit.
    `config` holds the settings that were given, so that later stages repeat what came before them. `notes` are remarks
    for the report, such as an override without effect; `left_out` maps tensors that stay float because the user wants
    it to the place where that was said. `unlike` are the joins whose tails stay float because of what the data showed.
    `model` is the hash of the float graph, behind the passes, that the plan was made for; "" where that is not known.
    `rest` says what computes in half precision; None: nothing does, or it has not been decided.
    """

    backend: str
    placements: dict[str, Placement] = field(default_factory=dict)
    quantized: dict[str, str] = field(default_factory=dict)
    fused: dict[str, str] = field(default_factory=dict)
    left_float: dict[str, Reason] = field(default_factory=dict)
    config: JsonObject = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unlike: tuple[UnlikeJoin, ...] = ()
    model: str = ""
    rest: RestPlan | None = None

    def __getitem__(self, tensor: str) -> Placement:
        try:
            return self.placements[tensor]
        except KeyError:
            raise SpecError(f"tensor '{tensor}' has no quantizer.{did_you_mean(tensor, self.placements)}") from None

    def __repr__(self) -> str:
        return short_repr("QuantPlan", f"for {short_name(self.backend)}", *self._facts().values())

    def _repr_html_(self) -> str:
        """What a notebook shows: the counts, and the first nodes that stay float with their reasons."""
        rows = [(short_name(node), reason) for node, reason in self.left_float.items()]
        return notebook_html(f"Plan for {self.backend}", self._facts().items(), ("stays float", "why"), rows)

    def _facts(self) -> dict[str, str]:
        roles = f" ({tally(placement.role for placement in self)})" if self.placements else ""
        nodes = f"{len(self.quantized):,} quantized, {len(self.fused):,} fused, {len(self.left_float):,} float"
        total = len(self.quantized) + len(self.fused) + len(self.left_float)
        return {
            "quantizers": f"{counted(len(self), 'quantizer')}{roles}",
            "nodes": f"{counted(total, 'node')} ({nodes})",
            "notes": counted(len(self.notes), "note") if self.notes else "",
        }

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.placements

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.placements.values())

    def __len__(self) -> int:
        return len(self.placements)

    @property
    def active(self) -> QuantPlan:
        """The plan without the quantizers that are only observed, and without biases whose scale derives from one.

        Tensors that share a scale with one that is gone keep theirs: the first of them leads the group from there on. A
        plan in which nothing is only observed is its own.
        """
        gone = {placement.tensor for placement in self if placement.observe_only}
        if not gone:
            return self
        placements: dict[str, Placement] = {}
        leaders: dict[str, str] = {}
        for placement in self:
            if placement.tensor in gone or (placement.derive is not None and not gone.isdisjoint(placement.derive)):
                continue
            if placement.tie in gone:
                lost = self[placement.tie]
                leader = leaders.setdefault(lost.tensor, placement.tensor)
                own = leader == placement.tensor
                placement = replace(placement, tie=None if own else leader, observe=lost.observe if own else ())
            placements[placement.tensor] = placement
        return replace(self, placements=placements)

    def leader(self, tensor: str) -> str:
        """The tensor whose parameters `tensor` uses: itself, or the leader it is tied to."""
        placement = self[tensor]
        return tensor if placement.tie is None else placement.tie

    def observed(self) -> list[str]:
        """Every tensor whose values calibration has to see, without repeats, in plan order."""
        return list(dict.fromkeys(name for placement in self for name in placement.observe))

    def to_json(self) -> JsonObject:
        return {
            "format": PLAN_FORM,
            "version": 1,
            "backend": self.backend,
            **({"model": self.model} if self.model else {}),
            "config": self.config,
            **({"notes": list(self.notes)} if self.notes else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            **({"unlike": [join.to_json() for join in self.unlike]} if self.unlike else {}),
            **({} if self.rest is None else {"rest": self.rest.to_json()}),
            "tensors": {name: placement.to_json() for name, placement in self.placements.items()},
            "nodes": {
                "quantized": self.quantized,
                "fused": self.fused,
                "float": self.left_float,
            },
        }

    @classmethod
    def from_json(cls, data: JsonMapping) -> QuantPlan:
        check_document(data, PLAN_FORM, "quantization plan", _PLAN_KEYS)
        nodes = data.get("nodes", {})
        return cls(
            backend=data["backend"],
            placements={name: entry_of(name, entry, Placement.from_json) for name, entry in data["tensors"].items()},
            quantized=dict(nodes.get("quantized", {})),
            fused=dict(nodes.get("fused", {})),
            left_float={node: Reason("from_plan", why) for node, why in nodes.get("float", {}).items()},
            config=dict(data.get("config", {})),
            notes=[str(line) for line in data.get("notes", ())],
            left_out=dict(data.get("left_out", {})),
            unlike=tuple(UnlikeJoin.from_json(join) for join in data.get("unlike", ())),
            model=str(data.get("model", "")),
            rest=RestPlan.from_json(data["rest"]) if "rest" in data else None,
        )

    def diff(self, other: QuantPlan) -> list[str]:
        """One line for each tensor or node that the two plans treat differently."""
        lines = []
        for name in dict.fromkeys([*self.placements, *other.placements]):
            mine, theirs = self.placements.get(name), other.placements.get(name)
            if mine != theirs:
                lines.append(f"tensor {name}: {_brief(mine)} -> {_brief(theirs)}")
        for name in dict.fromkeys([*self.left_float, *other.left_float]):
            mine_why, theirs_why = self.left_float.get(name), other.left_float.get(name)
            if mine_why != theirs_why:
                lines.append(f"node {name}: {mine_why or 'quantized'} -> {theirs_why or 'quantized'}")
        return lines


def check_document(data: JsonMapping, form: str, what: str, keys: set[str]) -> None:
    """Refuse a JSON document of another kind, of a newer version, or with keys that mean nothing."""
    if data.get("format") != form:
        raise SpecError(f'this is not a {what}: "format" is {data.get("format")!r}, not "{form}"')
    if data.get("version") != 1 or data["version"] is True:
        raise SpecError(f'"version" is {data.get("version")!r}; this onnxq reads version 1')
    for key in data:
        if key not in keys | {"format", "version"}:
            raise SpecError(f"unknown key '{key}'.{did_you_mean(key, keys)}")
    for key in ("tensors", "nodes", "integer_weights"):
        if key in data and not isinstance(data[key], Mapping):
            raise SpecError(f"'{key}' must hold names and values, it holds a {type(data[key]).__name__}")


def entry_of(name: str, entry: Any, parse: Callable[[str, Any], T]) -> T:
    """Read the entry of one tensor; whatever is wrong with it, the error names the tensor."""
    try:
        return parse(name, entry)
    except KeyError as error:
        raise SpecError(f"tensor '{name}': the key {error} is missing") from None
    except PlacementError:
        raise
    except SpecError as error:
        raise SpecError(f"tensor '{name}': {error}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SpecError(f"tensor '{name}': its entry cannot be read ({error})") from None


def _brief(placement: Placement | None) -> str:
    if placement is None:
        return "float"
    where = "" if placement.edges is None else f" on {len(placement.edges)} edge(s)"
    tie = "" if placement.tie is None else f" tied to {placement.tie}"
    return f"{placement.role} {placement.spec}{where}{tie}"
