"""Names that other tools give to these methods, so that their configurations can be carried over.

The method is the one of the same meaning, not a copy of the other tool's code: docs/observers.md lists where results
differ and why. Names of a vendor's tool are registered in the vendor's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxq.registry import Registry


@dataclass(frozen=True)
class Alias:
    """An observer under another name; `renamed` maps the other tool's parameters to those of the observer.

    `fixed` holds parameters that the observer does not have because it knows one value for them only, `defaults` values
    that the other tool has where the observer's own default is another.
    """

    observer: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)


_DECAY = {"ema_ratio": "decay"}
_SQUARED = {"p": 2.0}
_POSITIONS = {"max_position": 12}


class Aliases(Registry[Alias]):
    """Names of other tools, in the order in which they were registered, so that those of a tool stand together."""

    def names(self) -> list[str]:
        self._load()
        return list(self._items)

    def items(self) -> list[tuple[str, Alias]]:
        return [(name, self._items[name]) for name in self.names()]


ALIASES = Aliases("observer of another tool", "onnxq.targets")
"""Observers of other tools: their name -> the observer here, with parameters."""

for _name, _alias in {
    # MQBench
    "MinMaxObserver": Alias("minmax"),
    "EMAMinMaxObserver": Alias("ema_minmax", _DECAY),
    "MinMaxFloorObserver": Alias("minmax_floor", defaults=_POSITIONS),
    "EMAMinMaxFloorObserver": Alias("ema_minmax_floor", _DECAY, defaults=_POSITIONS),
    "PoTModeObserver": Alias("pot_mode", defaults=_POSITIONS),
    "EMAQuantileObserver": Alias("ema_quantile", _DECAY),
    "ClipStdObserver": Alias("clip_std", {"std_scale": "sigmas"}),
    "LSQObserver": Alias("lsq"),
    "LSQPlusObserver": Alias("lsq_plus"),
    "MSEObserver": Alias("mse", fixed=_SQUARED),
    "EMAMSEObserver": Alias("ema_mse", _DECAY, _SQUARED),
    "KLDObserver": Alias("kl"),
}.items():
    ALIASES.add(_name, _alias)
