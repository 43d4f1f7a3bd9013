"""How training treats each quantizer, and who has set which of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.errors import ConfigError
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.requests import Request
from onnxq.types import Backend, PerChannel, PerTensor, QuantSpec
from onnxq.types.fake_quantizers import Kind, read_fake_quantizer
from onnxq.types.overrides import FORMAT_FIELDS, IN_BACKENDS


def fake_quantizer(request: Request, backend: Backend, resolver: OverrideResolver) -> str:
    """The fake-quantizer that was asked for, or the target's own where it is made for the format."""
    of_constant = request.role in ("weight", "bias")
    name = backend.weight_fake_quantizer if of_constant else backend.activation_fake_quantizer
    said = resolver.format_source(request.role, "fake_quantizer")
    if "fake_quantizer" in request.picks:
        name, said = str(request.picks["fake_quantizer"].value), request.picks["fake_quantizer"].source
    if name == "fixed":
        return name
    kind = read_fake_quantizer(name).kind
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


def _meets(spec: QuantSpec, kind: Kind) -> bool:
    """Whether a format is what a fake-quantizer for the whole model demands of the formats that it was made for."""
    demands = {key: value for key, value in kind.implied.items() if key in ("symmetric", "power_of_two")}
    return not spec.has_scale or all(getattr(spec, key) == value for key, value in demands.items())


def set_by(request: Request, backend: Backend, resolver: OverrideResolver) -> Iterator[tuple[str, str]]:
    """Every field that somebody has set, and where: what is said for the whole model counts where it holds."""
    for key in (*FORMAT_FIELDS, *IN_BACKENDS) if resolver.overrides.where else ():
        said = resolver.format_source(request.role, key)
        if said is not None and key not in request.picks and _holds(request, key, backend, resolver):
            yield key, said
    for key, pick in request.picks.items():
        channels = not isinstance(request.spec.granularity, PerTensor)
        if channels or not (key == "channel_axis" or (key == "per_channel" and pick.value)):
            yield key, pick.source


def _holds(request: Request, key: str, backend: Backend, resolver: OverrideResolver) -> bool:
    override = resolver.overrides.everywhere.get(request.role)
    wanted = None if override is None else getattr(override, key)
    if key == "observer":
        given = backend.weight_observer if request.role == "weight" else backend.activation_observer
        return request.observer == given
    if key == "bits":
        return request.spec.bits == wanted
    if key == "per_channel":
        return isinstance(request.spec.granularity, PerChannel) == wanted
    if key == "channel_axis":
        return not isinstance(request.spec.granularity, PerTensor)
    return key == "fake_quantizer" or bool(getattr(request.spec, key) == wanted)
