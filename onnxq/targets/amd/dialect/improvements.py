"""Steps of the pipelines that change weights: true asks for an improvement with its parameters, false rules it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxq.targets.amd.dialect.run import Apply, Run
from onnxq.types.translation import Outcome, no_effect

BALANCE_METHODS = {"max": "max", "avg": "mean"}
"""What stands for the size of a channel of a weight: the tool's word -> that of `cross_layer_equalization`."""

UNTIL_EVEN = -1
"""As cle_steps: as many as it takes."""


def equalize_layers(run: Run, key: str, value: Any) -> str | Outcome:
    return _asked(run, key, value, "cross_layer_equalization", times="cle_steps")


def fine_tune(run: Run, key: str, value: Any) -> str | Outcome:
    return _asked(run, key, value, "adaquant", times="fast_ft_epochs")


def correct_biases(run: Run, key: str, value: Any) -> str | Outcome:
    return _asked(run, key, value, "bias_correction")


def parameter_of(step: str) -> Apply:
    """A key that counts where its step is asked for."""

    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if not run.switches.get(step):
            return no_effect(f"{step} is not true, so the step is not asked for")
        return _PARAMETERS[key.rpartition(".")[2]](value) or "as many steps as it takes"

    return apply


def _asked(run: Run, key: str, value: Any, method: str, times: str = "") -> str | Outcome:
    """`times` is the parameter that says how often it is done; 0 is not at all."""
    never = run.switches.get(times) == 0
    if not value or never:
        run.translator.append("skip_improvements", [method], key)
        return f'skip_improvements = ["{method}"]' + (f", because {times} is 0" if value else "")
    parameters = [_PARAMETERS[name](run.switches[name]) for name in _OF[method] if name in run.switches]
    written = ",".join(parameter for parameter in parameters if parameter)
    chosen = f"{method}:{written}" if written else method
    run.translator.append("improvements", [chosen], key)
    return f'improvements = ["{chosen}"], kept where it helps on samples that it was not fitted to'


_PARAMETERS: dict[str, Callable[[Any], str]] = {
    "cle_to_relu6": lambda value: f"relu6={'data' if value else 'exact'}",
    "cle_steps": lambda value: f"steps={value}" if value != UNTIL_EVEN else "",
    "cle_balance_method": lambda value: f"balance={value}",
    "cle_weight_threshold": lambda value: f"threshold={value:g}",
    "fast_ft_epochs": lambda value: f"epochs={value}",
}
_OF = {
    "cross_layer_equalization": ("cle_to_relu6", "cle_steps", "cle_balance_method", "cle_weight_threshold"),
    "adaquant": ("fast_ft_epochs",),
    "bias_correction": (),
}
"""Method -> the keys that are its parameters."""
