"""The commands, one file each: `NAME.py` holds the command `onnxq NAME` as the function NAME, or NAME_command."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

SUMMARIES = {
    "quantize": "Quantize MODEL for a target and write the checked files into a folder.",
    "qat": "Train MODEL with its quantizers for a target and write the checked files into a folder.",
    "huggingface": "Quantize the models in a folder of Hugging Face into a new folder with all of its files.",
    "diagnose": "Find the quantizers that cost most, why they do, and what fixes it.",
    "sensitivity": "Measure what each layer or quantizer costs, the worst first.",
    "search": "Find bits for each layer of MODEL under a budget, or the layers to restore until a metric holds.",
    "inspect": "Show opsets, inputs, outputs, operators, parameters and obstacles of MODEL.",
    "init": "Write a commented configuration for MODEL and a target: each setting, its meaning and default.",
    "place": "Show which nodes of MODEL would be quantized for a target, how, and why the others would not.",
    "calibrate": "Find scale and zero point of every tensor in a plan by running MODEL on data.",
    "merge": "Put the STATISTICS of all shards of a calibration together.",
    "emit": "Write the quantized MODEL for a plan and its parameters, and check what was written.",
    "compare": "Compare the tensors that two models have in common, the worst layer first.",
    "evaluate": "Measure metrics of a float model and of quantized ones on the same data.",
    "bench": "Measure how long FLOAT and quantized models take, in turns, what each layer takes, and which stayed "
    "float.",
    "explain": "Say what a plan does with a node or tensor: how it is quantized or why not, for whom, with which "
    "scale.",
    "report": "Draw report.html for the run in FOLDER, of whichever version of onnxq.",
    "diff": "Show what changed from the run in BEFORE to the one in AFTER: settings, plan, parameters, accuracy, size, "
    "speed.",
    "simulate": "Write a model that computes in onnxruntime what the target computes from MODEL with a plan and its "
    "parameters.",
    "lint": "Check MODEL against the limits of a target: types, zero points, scales, granularity and the target's own "
    "rules.",
    "strip": "Take Q/DQ pairs, quantized operators and dynamic quantization out of MODEL.",
    "translate": "Read a configuration of MQBench or of a vendor's tool and show what each key becomes for MODEL.",
    "schema": "Print the JSON schema of the configuration file, every key with its meaning.",
    "list": "List backends, passes, observers, formats, fake-quantizers or improvements; with NAME, show all about "
    "one.",
    "demo": "Quantize a digit classifier that comes with onnxq; show accuracy, size and speed before and after.",
}
"""The first line of each command, in the order of --help, which then needs none of their modules. Commands that are not
here follow by the alphabet."""


def names() -> list[str]:
    """All commands, as --help shows them."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [*SUMMARIES, *(name for name in found if name not in SUMMARIES)]


def function_of(name: str) -> Callable[..., None]:
    """What a command runs."""
    module = import_module(f"{__name__}.{name}")
    function: Callable[..., None] = getattr(module, name, None) or getattr(module, f"{name}_command")
    return function
