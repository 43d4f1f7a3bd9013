"""`quant_dict`: which chip, what is quantized, and in which way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxq.compat.translation import Translator, check_keys, shown, yes_or_no
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.targets import get_backend
from onnxq.types.translation import no_effect

KEY = "quant_dict"

CHIPS: Mapping[str, str] = {
    "BM1688": "sophgo_bm1688",
    "BM1684X": "sophgo_bm1684x",
    "SG2260": "sophgo_sg2260",
    "BM1690": "sophgo_bm1690",
    "MARS3": "sophgo_mars3",
    "CV180X": "sophgo_cv18x",
    "CV181X": "sophgo_cv18x",
    "CV182X": "sophgo_cv18x",
    "CV183X": "sophgo_cv18x",
    "CV186X": "sophgo_cv18x",
    "Academic": "sophgo_academic",
}
"""Sophgo-mq's names of the chips -> the backend of onnxq."""

MODES = ("weight_activation", "weight_only")
STRATEGIES = ("CNN", "Transformer")
_KNOWN = (
    *("chip", "quantmode", "strategy", "bf16_mix_prec", "model_name"),
    *("use_tpu_mlir_fwd", "not_dynamic_update_param"),
)


@dataclass(frozen=True)
class Target:
    """A chip with what `quant_dict` says about it; `mixed` runs in BF16 what is not a layer."""

    chip: str
    backend: str
    mode: str
    strategy: str
    mixed: bool

    @property
    def weight_only(self) -> bool:
        return self.mode == "weight_only"

    def option(self, name: str) -> tuple[str, ...]:
        """What the chip's backend knows for one of its options."""
        return next(option.values for option in get_backend(self.backend).options if option.name == name)

    def written(self, **options: str) -> str:
        """The backend with its options, as -b has it."""
        given = {"mode": self.mode, "strategy": self.strategy, **options}
        return f"{self.backend}:{','.join(f'{key}={value}' for key, value in given.items())}"


def read_target(given: Any, out: Translator) -> Target:
    """The target that `quant_dict` names, with a row for each of its keys."""
    if given is None:
        raise ConfigError(f"{KEY} is missing: it says for which chip the model is, such as {{'chip': 'BM1688'}}")
    values = check_keys(given, _KNOWN, KEY)
    if "chip" not in values:
        raise ConfigError(f"{KEY}.chip is missing. Known: {', '.join(CHIPS)}")
    chip = known_word(values["chip"], tuple(CHIPS), f"{KEY}.chip")
    mode = known_word(values.get("quantmode", MODES[0]), MODES, f"{KEY}.quantmode")
    strategy = known_word(values.get("strategy", STRATEGIES[0]), STRATEGIES, f"{KEY}.strategy")
    mixed = yes_or_no(values.get("bf16_mix_prec", False), f"{KEY}.bf16_mix_prec")
    target = Target(chip, CHIPS[chip], mode, strategy, mixed)
    out.row(f"{KEY}.chip", values["chip"], f"backend {target.backend}")
    if "quantmode" in values:
        out.row(f"{KEY}.quantmode", values["quantmode"], f"option mode={mode} of the backend")
    if "strategy" in values:
        out.row(f"{KEY}.strategy", values["strategy"], f"option strategy={strategy} of the backend")
    _say_the_rest(values, out)
    if target.weight_only and strategy == "CNN":
        raise ConfigError(
            f"{KEY}: quantmode 'weight_only' does not exist for strategy 'CNN'. Use strategy 'Transformer', or "
            "quantmode 'weight_activation'"
        )
    if target.weight_only and mixed:
        raise ConfigError(
            f"{KEY}.bf16_mix_prec: quantmode 'weight_only' computes in float already. Leave bf16_mix_prec out"
        )
    return target


def _say_the_rest(values: JsonMapping, out: Translator) -> None:
    if "model_name" in values:
        name = values["model_name"]
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{KEY}.model_name must be a text, it is {shown(name)}")
        out.set(("name",), name, f"{KEY}.model_name")
        out.row(f"{KEY}.model_name", name, f"name = {name}: what the files are called")
    for key in ("use_tpu_mlir_fwd", "not_dynamic_update_param"):
        if key in values:
            yes_or_no(values[key], f"{KEY}.{key}")
            out.row(f"{KEY}.{key}", values[key], no_effect("it is about training with tpu-mlir's arithmetic"))


def known_word(value: Any, known: tuple[str, ...], where: str) -> str:
    """One of the known words, in any case."""
    spelled = {word.lower(): word for word in known}
    if isinstance(value, str) and value.lower() in spelled:
        return spelled[value.lower()]
    near = did_you_mean(str(value), known)
    raise ConfigError(f"{where} cannot be {shown(value)}.{near} Known: {', '.join(known)}")
