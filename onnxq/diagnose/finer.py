"""What a target can do more finely: types of 16 bits that its limits allow, options that make its formats finer."""

from __future__ import annotations

from onnxq.diagnose.experiment import WIDE
from onnxq.diagnose.remedy import target_with
from onnxq.errors import OnnxqError
from onnxq.targets import BACKENDS, registered_backend, split_name
from onnxq.types import Backend, Limits, PerTensor, QuantSpec


def wide_type(spec: QuantSpec, limits: Limits) -> str | None:
    """A type of 16 bits in the place of a format, if the target has one."""
    if not spec.evenly_spaced or spec.bits >= WIDE or limits.steps:
        return None
    signs = ("", "u") if spec.signed else ("u", "")
    allowed = [sign for sign in signs if f"{sign}int{WIDE}" in limits.dtypes and not (sign and limits.zero_point_zero)]
    return f"{allowed[0]}int{WIDE}" if allowed else None


def finer_options(backend: Backend, target: str | None) -> list[tuple[str, str]]:
    """Single options of a registered target with which some format is finer, and none is coarser."""
    name = target or backend.name
    if split_name(name)[0] not in BACKENDS:
        return []
    found = []
    for option in backend.options:
        for value in option.values:
            try:
                other = registered_backend(target_with(name, [(option.name, value)]))
            except OnnxqError:
                continue  # not together with the options that are set
            # One that lifts a limit of the chip is for another chip.
            if other.limits.power_of_two == backend.limits.power_of_two and _is_finer(other, backend):
                found.append((option.name, value))
    return found


def _is_finer(other: Backend, backend: Backend) -> bool:
    pairs = [
        (getattr(other.scheme, role), getattr(backend.scheme, role))
        for role in ("activation", "weight")
        if getattr(backend.scheme, role) is not None
    ]
    if any(new is None for new, _ in pairs):
        return False
    fineness = [(_fineness(new), _fineness(old)) for new, old in pairs]
    return all(all(a >= b for a, b in zip(new, old, strict=True)) for new, old in fineness) and any(
        new != old for new, old in fineness
    )


def _fineness(spec: QuantSpec) -> tuple[int, int, int]:
    return spec.bits, int(not spec.power_of_two), int(not isinstance(spec.granularity, PerTensor))
