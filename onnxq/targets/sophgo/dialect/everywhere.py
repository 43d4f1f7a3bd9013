"""The part of `extra_qconfig_dict` that is about the whole model: observers, fake-quantizers and schemes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onnxq.compat.mqbench.qconfig import QCONFIG_KEYS, TABLES, translate_qconfig
from onnxq.compat.mqbench.targets import find_target
from onnxq.compat.translation import Translator
from onnxq.errors import ConfigError
from onnxq.json_file import JsonMapping
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.precision import Side, choose_precision
from onnxq.targets.sophgo.dialect.target import Target
from onnxq.types.fake_quantizers import read_fake_quantizer
from onnxq.types.translation import Outcome, Row, Setting, joined, no_effect

KEY = "extra_qconfig_dict"
_ONLY_WEIGHTS = no_effect("quantmode weight_only has no quantizers on activations")


def translate_everywhere(given: JsonMapping, target: Target, out: Translator) -> dict[str, str]:
    """Settings of [weight] and [activation]; what comes back are options of the backend.

    Schemes and fake-quantizers are MQBench's. How many bits there are and whether there is a zero point is not set in
    a table here: a chip has whole precisions, which its backend takes as options.
    """
    read = Translator(out.tool)
    own = {key: value for key, value in given.items() if key in QCONFIG_KEYS}
    translate_qconfig(read, own, find_target(target.backend), KEY)
    sides = {
        letter: _side(read.config.get(table, {}), given.get(f"{letter}_qscheme")) for letter, table in TABLES.items()
    }
    precision = choose_precision(target, sides["w"], sides["a"])
    options = {"precision": precision}
    if _has_zero_point(read, "activation") and not target.weight_only:
        options["asymmetric"] = "yes"
    _check_formats(read, given, target)
    for path in read.sources:
        if path[1] in ("dtype", "symmetric") or (target.weight_only and path[0] == "activation"):
            continue
        if path[1] == "narrow_range" and not _names(given, path[0], "symmetric_range", "quant_min"):
            continue  # a scheme that does not speak of it leaves the chip's own range
        out.adopt(path, read)
    for row in read.rows:
        out.rows.append(_about(row, target, options))
    _note_empty_schemes(given, out)
    return options


def _side(fields: JsonMapping, scheme: Any) -> Side:
    fake = fields.get("fake_quantizer")
    found = re.fullmatch(r"u?int(\d+)", str(fields.get("dtype", "")))
    bits = int(found[1]) if found else None
    if bits is None and isinstance(scheme, Mapping) and "bit" in scheme:
        bits = int(scheme["bit"])  # the fake-quantizer's float format stands in its place
    return Side(None if fake is None else read_fake_quantizer(fake), bits)


def _has_zero_point(read: Translator, table: str) -> bool:
    return read.config.get(table, {}).get("symmetric") is False


def _check_formats(read: Translator, given: JsonMapping, target: Target) -> None:
    """Refuse what no chip has, by the key that asks for it."""
    if _has_zero_point(read, "weight"):
        raise ConfigError(f"{KEY}.w_qscheme: weights have zero point 0 on Sophgo's chips. Set symmetry to True")
    if read.config.get("activation", {}).get("per_channel") and not target.weight_only:
        raise ConfigError(f"{KEY}.a_qscheme: activations have one scale on Sophgo's chips. Set per_channel to False")
    weight = get_backend(target.backend).scheme.weight
    asked = _names(given, "weight", "symmetric_range", "quant_min")
    if weight is not None and weight.narrow_range and asked and not read.config["weight"].get("narrow_range", True):
        raise ConfigError(
            f"{KEY}.w_qscheme.symmetric_range: {target.chip} has weights in [-127, 127] only. Leave it out, or set it "
            "to True"
        )
    if _names(given, "activation", "symmetric_range") and read.config["activation"].get("narrow_range"):
        raise ConfigError(
            f"{KEY}.a_qscheme.symmetric_range: chips use the whole range [-128, 127] of activations. Leave it out"
        )


def _names(given: JsonMapping, table: str, *keys: str) -> bool:
    """Whether the scheme or the arguments of the observer of [weight] or [activation] have one of the keys."""
    letter = next(letter for letter, name in TABLES.items() if name == table)
    tables = (given.get(f"{letter}_{kind}") for kind in ("qscheme", "observer_extra_args"))
    return any(key in held for held in tables if isinstance(held, Mapping) for key in keys)


def _note_empty_schemes(given: JsonMapping, out: Translator) -> None:
    """A scheme that says nothing gets its row too."""
    for key in (f"{letter}_qscheme" for letter in TABLES):
        if key in given and given[key] is None and all(row.key != f"{KEY}.{key}" for row in out.rows):
            out.row(f"{KEY}.{key}", None, no_effect("it says nothing, so the chip's choice stays"))


def _about(row: Row, target: Target, options: Mapping[str, str]) -> Row:
    """A row of MQBench's reader, where a part of the value became an option of the backend instead."""
    if target.weight_only and row.key.startswith(f"{KEY}.a_"):
        return Row(row.key, row.value, _ONLY_WEIGHTS)
    weight = row.key.startswith(f"{KEY}.w_")
    idle = not weight and "asymmetric" not in options
    parts = [_as_option(setting, options, weight=weight, idle=idle) for setting in row.outcome.settings]
    effect = joined(parts).effect if parts else row.effect
    return Row(row.key, row.value, Outcome(", ".join([*map(str, parts), *filter(None, [row.outcome.text])]), effect))


def _as_option(setting: Setting, options: Mapping[str, str], *, weight: bool, idle: bool) -> Outcome:
    """`dtype = int8` and `symmetric = true` in the words of a target that has whole precisions."""
    if setting.field == "dtype":
        return Outcome(f"option precision={options['precision']} of the backend")
    if setting.field != "symmetric":
        return Outcome(setting.text)
    if weight:
        return Outcome("zero point 0, which weights have on every chip")
    if idle and setting.value is False:
        return no_effect(f"{options['precision']} has no zero point")
    return Outcome(f"option asymmetric={options.get('asymmetric', 'no')} of the backend")
