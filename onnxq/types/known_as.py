"""KnownAs: a target under the name that MQBench has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class KnownAs:
    """What MQBench calls a target, and what it uses there where a configuration says nothing.

    name         MQBench's name
    w_observer, a_observer, fakequantize   MQBench's classes for arguments that name none
    formats      "target": those of the target, unless a configuration says otherwise; "given": the target has none of
                 its own; "fixed": it has one, and MQBench reads nothing but the names of observers
    weight_bits  why bits that a configuration gives to weights change nothing; empty where they count
    options      options of the target that make it the same
    """

    name: str
    w_observer: str = "MinMaxObserver"
    a_observer: str = "EMAMinMaxObserver"
    fakequantize: str = "LearnableFakeQuantize"
    formats: Literal["target", "given", "fixed"] = "target"
    weight_bits: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
