"""What the user wants of quantizers, put into the requests: formats, observers, channels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.place.override_resolver import OverrideResolver, Picks, with_overrides
from onnxq.place.requests import Requests
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import PerChannel, PerTensor, QuantSpec
from onnxq.types.backend import per_tensor


def apply_overrides(
    graph: Graph,
    resolver: OverrideResolver,
    overrides: TensorOverrides,
    groups: Mapping[str, Sequence[str]],
    requests: Requests,
) -> None:
    """What the user wants of each computed tensor, or group of tensors with one scale; constants have theirs."""
    without_channels: dict[str, None] = {}
    alone = [[name] for name in requests if requests.ties.leader(name) == name and name not in groups]
    for members in (*groups.values(), *alone):
        asked = [name for name in members if name in requests]
        if not asked or graph.is_constant(asked[0]):
            continue
        picks = overrides.of_activation(asked)
        for name in asked:
            request = requests[name]
            request.picks = picks
            spec = with_overrides(name, request.spec, picks)
            request.spec = _with_channels(graph, name, spec, picks)
            if isinstance(spec.granularity, PerChannel) and isinstance(request.spec.granularity, PerTensor):
                without_channels[name] = None
            if "observer" in picks:
                request.observer = str(picks["observer"].value)
    if without_channels:
        requests.remarks.append(
            f"one scale instead of one per channel, whose number is not known: {_listed(without_channels)}"
        )
    _note_axes_without_channels(resolver, requests, without_channels)


def _with_channels(graph: Graph, tensor: str, spec: QuantSpec, picks: Picks) -> QuantSpec:
    """Channels of activations are on axis 1; a tensor without a second axis of known size has one scale."""
    if not isinstance(spec.granularity, PerChannel):
        return spec
    axis = spec.granularity.axis if "channel_axis" in picks else (spec.granularity.axis or 1)
    shape = graph.shape(tensor)
    rank = 0 if shape is None else len(shape)
    if "channel_axis" in picks and shape is not None and not -rank <= axis < rank:
        raise ConfigError(f"channel_axis {axis}: tensor '{tensor}' has {rank} axes ({picks['channel_axis'].source})")
    if shape is None or rank < 2 or not -rank <= axis < rank or not isinstance(shape[axis], int):
        return per_tensor(spec)
    return spec.replace(granularity=PerChannel(axis % rank))


def _note_axes_without_channels(
    resolver: OverrideResolver, requests: Requests, without_channels: Collection[str]
) -> None:
    """An axis says where channels are; for a quantizer with one scale it says nothing."""
    found: dict[str, list[str]] = {}
    for name, request in requests.items():
        pick = request.picks.get("channel_axis")
        said = resolver.format_source(request.role, "channel_axis") if pick is None else pick.source
        alone = isinstance(request.spec.granularity, PerTensor) and name not in without_channels
        if said is not None and alone and request.derive is None:
            found.setdefault(said, []).append(name)
        wanted = request.picks.get("per_channel")
        if wanted is not None and wanted.value and alone and pick is None:
            requests.remarks.append(
                f"no effect: per_channel of '{name}', which has no axis of output channels; channel_axis can name "
                f"one if it has two axes or more ({wanted.source})"
            )
    for said, names in found.items():
        requests.remarks.append(
            f"no effect: channel_axis where there is one scale; set per_channel = true for {_listed(names)} ({said})"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in list(names)[:5]) + (", ..." if len(names) > 5 else "")
