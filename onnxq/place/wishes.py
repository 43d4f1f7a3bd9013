"""What the user wants of the quantizers that were asked for: shared ones, formats, observers, and who said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.place.asked import Request
from onnxq.place.override_resolver import OverrideResolver, Picks
from onnxq.place.requests import Requests
from onnxq.types import Backend, PerChannel, PerTensor, QuantSpec
from onnxq.types.backend import per_tensor
from onnxq.types.fake_quantizers import Kind, read_fake_quantizer
from onnxq.types.overrides import FORMAT_FIELDS, IN_BACKENDS


class Wishes(Requests):
    """Requests with the wishes of the configuration in them."""

    def __init__(self, graph: Graph, backend: Backend, choices: OverrideResolver) -> None:
        super().__init__(graph, backend, choices)
        self._without_channels: dict[str, None] = {}
        self._kinds: dict[str, Kind] = {}

    def share(self) -> None:
        """Tie tensors whose quantizers the user gave one name."""
        groups: dict[str, list[str]] = {}
        said: dict[str, dict[str, None]] = {}
        for name, request in self.requests.items():
            constant = self.graph.is_constant(name)
            picks = request.picks if constant else self.activation_picks([name])
            if "share" in picks:
                groups.setdefault(str(picks["share"].value), []).append(name)
                said.setdefault(str(picks["share"].value), {})[picks["share"].source] = None
        for share, members in groups.items():
            where = ", ".join(said[share])
            kinds = {self.graph.is_constant(name) for name in members}
            if len(kinds) > 1 or any(self.requests[name].derive is not None for name in members):
                listed = ", ".join(f"'{name}'" for name in members)
                raise ConfigError(
                    f"share '{share}' joins {listed}: constants and computed tensors, or biases whose scale is "
                    f"derived, cannot share a quantizer. Give them different names ({where})"
                )
            if kinds == {True}:
                self._check_shared_constants(share, members, where)
            for name in members[1:]:
                self.ties.join(members[0], name)

    def _check_shared_constants(self, share: str, members: Sequence[str], where: str) -> None:
        found = {self.requests[name].spec for name in members}
        if len(found) > 1 or not isinstance(next(iter(found)).granularity, PerTensor):
            listed = "; ".join(f"'{name}': {self.requests[name].spec}" for name in members)
            raise ConfigError(
                f"share '{share}' needs one format with one scale for all ({listed}): set per_channel = false and the "
                f"same format for them ({where})"
            )

    def choose(self, groups: dict[str, list[str]]) -> None:
        """What the user wants of each computed tensor, or group of tensors with one scale."""
        alone = [[name] for name in self.requests if self.ties.leader(name) == name and name not in groups]
        for members in (*groups.values(), *alone):
            asked = [name for name in members if name in self.requests]
            if not asked or self.graph.is_constant(asked[0]):
                continue
            picks = self.activation_picks(asked)
            for name in asked:
                request = self.requests[name]
                request.picks = picks
                request.spec = self._with_channels(name, self.wanted(name, request.spec, picks), picks)
                if "observer" in picks:
                    request.observer = str(picks["observer"].value)
        if self._without_channels:
            listed = ", ".join(f"'{name}'" for name in list(self._without_channels)[:5])
            more = ", ..." if len(self._without_channels) > 5 else ""
            self.remarks.append(f"one scale instead of one per channel, whose number is not known: {listed}{more}")
        self._note_axes_without_channels()

    def _note_axes_without_channels(self) -> None:
        """An axis says where channels are; for a quantizer with one scale it says nothing."""
        found: dict[str, list[str]] = {}
        for name, request in self.requests.items():
            pick = request.picks.get("channel_axis")
            said = self.choices.format_source(request.role, "channel_axis") if pick is None else pick.source
            alone = isinstance(request.spec.granularity, PerTensor) and name not in self._without_channels
            if said is not None and alone and request.derive is None:
                found.setdefault(said, []).append(name)
            wanted = request.picks.get("per_channel")
            if wanted is not None and wanted.value and alone and pick is None:
                self.remarks.append(
                    f"no effect: per_channel of '{name}', which has no axis of output channels; channel_axis can name "
                    f"one if it has two axes or more ({wanted.source})"
                )
        for said, names in found.items():
            listed = ", ".join(f"'{name}'" for name in names[:5]) + (", ..." if len(names) > 5 else "")
            self.remarks.append(
                f"no effect: channel_axis where there is one scale; set per_channel = true for {listed} ({said})"
            )

    def _with_channels(self, tensor: str, spec: QuantSpec, picks: Picks) -> QuantSpec:
        """Channels of activations are on axis 1; a tensor without a second axis of known size has one scale."""
        if not isinstance(spec.granularity, PerChannel):
            return spec
        axis = spec.granularity.axis if "channel_axis" in picks else (spec.granularity.axis or 1)
        shape = self.graph.shape(tensor)
        rank = 0 if shape is None else len(shape)
        if "channel_axis" in picks and shape is not None and not -rank <= axis < rank:
            raise ConfigError(
                f"channel_axis {axis}: tensor '{tensor}' has {rank} axes ({picks['channel_axis'].source})"
            )
        if shape is None or rank < 2 or not -rank <= axis < rank or not isinstance(shape[axis], int):
            self._without_channels[tensor] = None
            return per_tensor(spec)
        return spec.replace(granularity=PerChannel(axis % rank))

    def fake_quantizer(self, request: Request) -> str:
        of_constant = request.role in ("weight", "bias")
        name = self.backend.weight_fake_quantizer if of_constant else self.backend.activation_fake_quantizer
        said = self.choices.format_source(request.role, "fake_quantizer")
        if "fake_quantizer" in request.picks:
            name, said = str(request.picks["fake_quantizer"].value), request.picks["fake_quantizer"].source
        kind = self._kinds.get(name) or self._kinds.setdefault(name, read_fake_quantizer(name).kind)
        if said is None and kind.implied.get("dtype", request.spec.dtype) != request.spec.dtype:
            return "fixed"  # the target's own one is for the target's own format
        if "fake_quantizer" not in request.picks and not _meets(request.spec, kind):
            return "fixed"  # such as a constant that is added, which has the format of activations
        if request.role not in kind.roles and request.role != "bias":
            raise ConfigError(
                f"fake-quantizer '{kind.name}' is for {' or '.join(kind.roles)}, but {said} puts it on {request.why}, "
                f"which is a{'n' if request.role == 'activation' else ''} {request.role}"
            )
        return name if request.role in kind.roles else "fixed"

    def set_by(self, request: Request) -> Iterator[tuple[str, str]]:
        """Every field that somebody has set, and where: what is said for the whole model counts where it holds."""
        for key in (*FORMAT_FIELDS, *IN_BACKENDS) if self.choices.overrides.where else ():
            said = self.choices.format_source(request.role, key)
            if said is not None and key not in request.picks and self._holds(request, key):
                yield key, said
        for key, pick in request.picks.items():
            channels = not isinstance(request.spec.granularity, PerTensor)
            if channels or not (key == "channel_axis" or (key == "per_channel" and pick.value)):
                yield key, pick.source

    def _holds(self, request: Request, key: str) -> bool:
        wish = self.choices.overrides.everywhere.get(request.role)
        wanted = None if wish is None else getattr(wish, key)
        if key == "observer":
            given = self.backend.weight_observer if request.role == "weight" else self.backend.activation_observer
            return request.observer == given
        if key == "bits":
            return request.spec.bits == wanted
        if key == "per_channel":
            return isinstance(request.spec.granularity, PerChannel) == wanted
        if key == "channel_axis":
            return not isinstance(request.spec.granularity, PerTensor)
        return key == "fake_quantizer" or getattr(request.spec, key) == wanted


def _meets(spec: QuantSpec, kind: Kind) -> bool:
    """Whether a format is what a fake-quantizer for the whole model demands of the formats that it was made for."""
    demands = {key: value for key, value in kind.implied.items() if key in ("symmetric", "power_of_two")}
    return not spec.has_scale or all(getattr(spec, key) == value for key, value in demands.items())
