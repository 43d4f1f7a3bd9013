"""Which precision of a chip the fake-quantizers and bit widths ask for.

An operator of tpu-mlir has one mode, so the formats of its weight and of the tensors around it belong together: INT8,
W4INT8, INT4, a float8 format, or a float format.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.target import CHIPS, Target
from onnxq.types.fake_quantizers import FakeQuantizer

_WORDS = {"fp8_e4m3": "F8E4M3", "fp8_e5m2": "F8E5M2", "fp16": "F16", "bf16": "BF16"}
_INTEGERS = {(8, 8): "INT8", (4, 8): "W4INT8", (4, 4): "INT4"}
"""Bits of weights and of activations -> precision."""


@dataclass(frozen=True)
class Side:
    """What is asked for weights, or for activations; None where nothing is said."""

    fake: FakeQuantizer | None = None
    bits: int | None = None

    @property
    def word(self) -> str | None:
        """The precision of a float format, None for integers."""
        return None if self.fake is None else float_word(self.fake)


def float_word(fake: FakeQuantizer) -> str | None:
    """F8E4M3 for E4M3FakeQuantize and so on, None for those that round to integers."""
    return _WORDS.get(str(fake.implied.get("dtype")))


def is_float8(precision: str) -> bool:
    return precision.startswith("F8")


def is_integer(precision: str) -> bool:
    return "INT" in precision


def choose_precision(target: Target, weight: Side, activation: Side) -> str:
    """The precision of the backend, checked against what the chip has."""
    _refuse_nnie(weight, "w_fakequantize")
    _refuse_nnie(activation, "a_fakequantize")
    chosen = _weight_only(weight) if target.weight_only else _of_both(target, weight, activation)
    known = target.option("precision")
    if chosen not in known:
        raise ConfigError(
            f"{target.chip} has no {_described(chosen)}. It has {', '.join(known)}. Chips with {chosen}: "
            f"{', '.join(_chips_with(chosen))}"
        )
    return chosen


def _weight_only(weight: Side) -> str:
    if weight.word is not None:
        raise ConfigError(
            f"w_fakequantize: quantmode 'weight_only' stores weights as integers of 8 or 4 bits, {weight.word} is "
            "neither. Use FixedFakeQuantize, or quantmode 'weight_activation'"
        )
    bits = 8 if weight.bits is None else weight.bits
    if bits not in (4, 8):
        raise ConfigError(f"w_qscheme.bit cannot be {bits}: weights have 8 or 4 bits")
    return f"INT{bits}"


def _of_both(target: Target, weight: Side, activation: Side) -> str:
    weight, activation = _with_defaults(target, weight, activation)
    if weight.word != activation.word:
        raise ConfigError(
            f"w_fakequantize asks for {weight.word or 'integers'} and a_fakequantize for "
            f"{activation.word or 'integers'}{_if_left_out(target)}: an operator of tpu-mlir has one format for both. "
            "Give the same fake-quantizer in both places"
        )
    if weight.word is not None:
        _check_float_bits(weight, "w_qscheme")
        _check_float_bits(activation, "a_qscheme")
        return weight.word
    bits = (8 if weight.bits is None else weight.bits, 8 if activation.bits is None else activation.bits)
    if bits not in _INTEGERS:
        raise ConfigError(
            f"w_qscheme.bit {bits[0]} with a_qscheme.bit {bits[1]}: Sophgo's chips have no operator for that. Bits of "
            f"weights and activations go together as {', '.join(f'{w} and {a}' for w, a in _INTEGERS)}"
        )
    return _INTEGERS[bits]


def _with_defaults(target: Target, weight: Side, activation: Side) -> tuple[Side, Side]:
    """No chip in particular: what is left out is like the other one, and float8 where both are."""
    if target.chip != "Academic":
        return weight, activation
    default = weight.fake or activation.fake or FakeQuantizer("e4m3" if weight.bits in (None, 8) else "lsq_plus")
    return Side(weight.fake or default, weight.bits), Side(activation.fake or default, activation.bits)


def _if_left_out(target: Target) -> str:
    return "" if target.chip == "Academic" else " (LearnableFakeQuantize, so integers, where one is left out)"


def _check_float_bits(side: Side, where: str) -> None:
    allowed = (8,) if is_float8(side.word or "") else (8, 16)
    if side.bits is not None and side.bits not in allowed:
        raise ConfigError(f"{where}.bit is {side.bits}, but {side.word} has {allowed[-1]} bits. Leave bit out")


def _refuse_nnie(side: Side, key: str) -> None:
    if side.fake is not None and side.fake.name == "nnie":
        raise ConfigError(
            f"{key}: NNIEFakeQuantize is the number format of another vendor's chips. Use LearnableFakeQuantize or "
            "FixedFakeQuantize"
        )


def _described(precision: str) -> str:
    if precision == "W4INT8":
        return "operators with weights of 4 bits and activations of 8 (W4INT8)"
    return f"precision {precision}"


def _chips_with(precision: str) -> list[str]:
    found = []
    for chip, backend in CHIPS.items():
        options = get_backend(backend).options
        if any(option.name == "precision" and precision in option.values for option in options):
            found.append(chip)
    return found
