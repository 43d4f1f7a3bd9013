"""Does a plan keep to the limits of its target? Asked before any calibration, so that a wrong choice costs no time."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.types import Backend, PerTensor, Placement, QuantPlan


def check_plan(plan: QuantPlan, backend: Backend) -> None:
    """Raise UnsupportedError for the first placements that the target cannot take, with the rule and the remedy."""
    found = list(violations(plan, backend))
    if found:
        more = f"\n  ... and {len(found) - 5} more" if len(found) > 5 else ""
        raise UnsupportedError(f"{backend.name} cannot take this plan:\n  " + "\n  ".join(found[:5]) + more)


def violations(plan: QuantPlan, backend: Backend) -> Iterator[str]:
    """One line for each limit that a placement breaks."""
    for placement in plan.active:
        for rule, message, remedy in _broken(placement, backend):
            said = ", ".join(dict.fromkeys(where for _, where in placement.set_by))
            asked = f" (asked for by {said})" if said else ""
            yield f"[{rule}] tensor '{placement.tensor}' ({placement.why}): {message}{asked}. {remedy}"


def check_opset(graph: Graph, backend: Backend) -> None:
    """Raise UnsupportedError for a model that is newer than the target takes; older ones are raised when written."""
    highest = backend.limits.max_opset
    if highest is not None and graph.opset > highest:
        raise UnsupportedError(
            f"the model has opset {graph.opset}, {backend.name} takes at most {highest}; export it with a lower opset"
        )


def check_every_operator_has_a_rule(graph: Graph, plan: QuantPlan, backend: Backend) -> None:
    """Raise UnsupportedError for the first nodes that stay float only because the target does not know them."""
    float_nodes = (node for node in graph.nodes() if node.name in plan.left_float)
    unknown = [node for node in float_nodes if plan.left_float[node.name].code == "no_rule"]
    if not unknown:
        return
    lines = [
        f"[no-rule] tensor '{node.outputs[0].name}' (node '{node.name}'): {plan.left_float[node.name]}"
        for node in unknown[:5]
    ]
    more = f"\n  ... and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    kinds = ", ".join(f"--skip op:{op}" for op in dict.fromkeys(node.op for node in unknown))
    raise UnsupportedError(
        f"{len(unknown)} nodes would stay float because {backend.name} does not know their operators, and --strict was "
        f"given:\n  " + "\n  ".join(lines) + f"{more}\nSay that they may stay float ({kinds}), or leave --strict out"
    )


def _broken(placement: Placement, backend: Backend) -> Iterator[tuple[str, str, str]]:
    spec, limits, target = placement.spec, backend.limits, backend.name
    activation = placement.role in ("activation", "output")
    table = "[activation]" if activation else f"[{placement.role}]"
    kind = spec.format.stored_as
    if placement.role == "bias" and not limits.bias_quantized:
        yield "float-bias", f"its bias is quantized, {target} takes float biases", "Set skip = true under [bias]"
    elif kind not in limits.dtypes:
        yield (
            "dtype",
            f"{spec.dtype} is stored as {kind}, {target} takes {', '.join(limits.dtypes)}",
            _one_of(table),
        )
    elif spec.format.bias_only and placement.role != "bias":
        yield "dtype", f"{spec.dtype} is for biases", _one_of(table)
    elif placement.role == "bias" and not spec.format.bias_only and backend.integer_operators:
        yield "dtype", f"{spec.dtype} is no type for the bias of a QLinearConv, which is int32", _one_of(table)
    yield from _other_numbers(placement, backend)
    yield from _unwritable_rounding(placement, backend)
    if activation and kind in limits.weight_only_dtypes:
        yield "dtype", f"{target} takes {kind} for weights only", "Give activations one of the other formats"
    # A constant that is added or multiplied has the format of activations.
    is_weight = placement.role == "weight" and spec != backend.scheme.activation
    if (limits.zero_point_zero or (limits.weights_symmetric and is_weight)) and not spec.symmetric:
        yield (
            "zero-point-zero",
            f"the format is asymmetric, {target} takes zero point 0 only",
            f"Set symmetric = true under {table}",
        )
    several = not isinstance(spec.scale_granularity, PerTensor)  # scales of the run, and exponents, are none
    if activation and limits.activations_per_tensor and several:
        yield (
            "activation-per-tensor",
            f"the format is {spec.granularity}, {target} takes one scale for an activation",
            "Set per_channel = false under [activation]; channels are for weights",
        )
    if not activation and limits.weights_per_tensor and several:
        yield (
            "weight-per-tensor",
            f"the format is {spec.granularity}, {target} takes one scale for a {placement.role}",
            f"Set per_channel = false under {'[weight]' if placement.derive is not None else table}",
        )
    if spec.signed_scale and (activation or not limits.signed_scales):
        yield "positive-scale", f"its scales may be negative, {target} takes positive ones", _one_of(table)
    if limits.power_of_two and spec.evenly_spaced and not spec.power_of_two and placement.derive is None:
        yield (
            "power-of-two",
            f"its scale can be any number, {target} scales by shifting bits",
            f"Set power_of_two = true under {table}",
        )


def _other_numbers(placement: Placement, backend: Backend) -> Iterator[tuple[str, str, str]]:
    """Integers or roundings that a target with a fixed arithmetic does not have."""
    spec, limits, target = placement.spec, backend.limits, backend.name
    if placement.role == "bias" or not spec.evenly_spaced:
        return
    where = f"[{'activation' if placement.role != 'weight' else 'weight'}]"
    is_weight = placement.role == "weight" and spec != backend.scheme.activation
    steps = limits.weight_steps if is_weight and limits.weight_steps else limits.steps
    if steps and (spec.qmin, spec.qmax) not in steps:
        known = ", ".join(f"{low} .. {high}" for low, high in steps)
        yield (
            "steps",
            f"its integers are {spec.qmin} .. {spec.qmax}, {target} computes with {known}",
            f"Leave dtype and narrow_range under {where} as the target has them",
        )
    if limits.roundings and spec.rounding not in limits.roundings:
        yield (
            "rounding",
            f"it is rounded {spec.rounding}, {target} rounds {' or '.join(limits.roundings)}",
            f"Leave rounding under {where} as the target has it",
        )


def _unwritable_rounding(placement: Placement, backend: Backend) -> Iterator[tuple[str, str, str]]:
    """Roundings that QuantizeLinear does not have, where no integers are stored and the chip rounds half to even."""
    spec = placement.spec
    stored = placement.role == "bias" or (placement.role == "weight" and backend.weight_storage == "integer")
    written = backend.emitters[:1] == ("qdq",) and backend.rounding_in_files == "exact"
    if written and not stored and spec.rounding != "half_even":
        yield (
            "rounding",
            f"it is rounded {spec.rounding}, but QuantizeLinear rounds half_even",
            "Weights can keep their rounding as stored integers (weight_storage = integer); use half_even elsewhere",
        )


def _one_of(table: str) -> str:
    return f"Choose one of these formats: dtype under {table}"
