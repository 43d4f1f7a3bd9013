"""Names that other tools give to these methods, so that their configurations can be carried over.

The method is the one of the same meaning, not a copy of the other tool's code: docs/observers.md lists where results
differ and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Alias:
    """An observer under another name; `renamed` maps the other tool's parameters to those of the observer.

    `fixed` holds parameters that the observer does not have because it knows one value for them only, `defaults` values
    that the other tool has where the observer's own default is another.
    """

    observer: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_DECAY = {"ema_ratio": "decay"}
_SQUARED = {"p": 2.0}
_DPU = {"max_position": 12}

ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        # MQBench
        "MinMaxObserver": Alias("minmax"),
        "EMAMinMaxObserver": Alias("ema_minmax", _DECAY),
        "MinMaxFloorObserver": Alias("minmax_floor", defaults=_DPU),
        "EMAMinMaxFloorObserver": Alias("ema_minmax_floor", _DECAY, defaults=_DPU),
        "PoTModeObserver": Alias("pot_mode", defaults=_DPU),
        "EMAQuantileObserver": Alias("ema_quantile", _DECAY),
        "ClipStdObserver": Alias("clip_std", {"std_scale": "sigmas"}),
        "LSQObserver": Alias("lsq"),
        "LSQPlusObserver": Alias("lsq_plus"),
        "MSEObserver": Alias("mse", fixed=_SQUARED),
        "EMAMSEObserver": Alias("ema_mse", _DECAY, _SQUARED),
        "KLDObserver": Alias("kl"),
        # Vitis AI
        "No_OF": Alias("no_overflow"),
        "Min_MSE": Alias("min_mse"),
        "Min_KL": Alias("min_kl"),
        "Percentile": Alias("percentile"),
        # HiSilicon NNIE: the largest of -min and max; its grid of 2^(k/16) is the number format's business.
        "nnie_max": Alias("absmax"),
        # TensorRT, onnxruntime
        "entropy": Alias("kl"),
    }
)
