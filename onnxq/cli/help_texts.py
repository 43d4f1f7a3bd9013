"""How --help is laid out: options in groups by what they are about, and examples to copy behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

FEW = 9
"""Options that need no groups."""

WIDTH = 80
"""Columns of a terminal that nobody has widened."""

CONFIGURATION = "Configuration"

PANELS = {
    "Data": "data preprocess samples random batch shape stats fresh shard train evaluate labels holdout eval_samples",
    "Which quantizers": "observer weight_observer fake_quantizer weight_fake_quantizer bits skip batch_norms",
    "Accuracy": "effort improvements time_limit minimum_sqnr_db diagnose metric best_by hold max_drop reach",
    CONFIGURATION: "config assigned allow_code passes plugin strict",
    "Machine and time": "engine threads rounds warm_up seconds wall workers memory_limit provider cache checkpoint"
    " checkpoint_every resume",
    "Output": "rows everything html report as_json quiet verbose log_file",
    "Training": "epochs steps batch_size accumulate lr scale_lr optimizer momentum weight_decay schedule warmup"
    " step_size gamma clip_gradient observer_freeze batch_norm_freeze batch_norm_steps quantize_from distill"
    " distill_loss temperature label_loss label_output recompute seed evaluate_every patience last",
}
"""Title of a group -> parameters of commands; all others are about the command itself and come first."""

COMMANDS = {
    "Quantize": "quantize qat huggingface init",
    "Find causes and bits": "diagnose sensitivity search",
    "Look at models and runs": "inspect explain report diff compare evaluate bench",
    "Step by step": "place calibrate merge emit simulate lint",
    "Other": "strip translate schema list demo",
}
"""Title of a group of `onnxq --help` -> its commands."""

EXAMPLES = {
    "quantize": (
        "onnxq quantize model.onnx -b onnxruntime -d images/ --preprocess imagenet -o out/",
        "onnxq quantize model.onnx -b onnxruntime -d calib.npz --effort 2 --time-limit 10m -o out/",
        "onnxq quantize model.onnx -c config.toml --skip 'op:Softmax' --set activation.observer=kl -o out/",
        "onnxq quantize model.onnx -b onnxruntime -d calib.npz --metric accuracy --eval test.npz --max-drop 0.01"
        " -o out/",
        "onnxq quantize model.onnx -b onnxruntime --random 8 -o out/",
    ),
    "qat": (
        "onnxq qat model.onnx -b onnxruntime --train train.npz --labels label --epochs 3 -o out/",
        "onnxq qat model.onnx -b onnxruntime --train train.npz --eval test.npz --bits w4a8 --resume -o out/",
    ),
    "diagnose": (
        "onnxq diagnose out/ -d calib.npz",
        "onnxq diagnose model.onnx -b onnxruntime -d calib.npz --apply remedy.toml",
    ),
    "sensitivity": (
        "onnxq sensitivity model.onnx -b onnxruntime -d calib.npz --worst 10",
        "onnxq sensitivity model.onnx -b onnxruntime -d calib.npz --by quantizer --only activations",
    ),
    "search": (
        "onnxq search model.onnx -b onnxruntime -d calib.npz --bits 8,4 --budget 60% -o searched/",
        "onnxq search model.onnx -b onnxruntime -d calib.npz --fallback 16 --max-drop 0.5 -o searched/",
    ),
    "inspect": (
        "onnxq inspect model.onnx",
        "onnxq inspect model.onnx --shape image=1,3,320,320",
        "onnxq inspect model.onnx --json",
    ),
    "init": ("onnxq init model.onnx -b onnxruntime",),
    "place": (
        "onnxq place model.onnx -b onnxruntime",
        "onnxq place model.onnx -b onnxruntime --show float",
        "onnxq place model.onnx -b onnxruntime --nodes 'op:Conv' -o plan.json",
    ),
    "calibrate": (
        "onnxq calibrate model.onnx -b onnxruntime -d calib.npz -o qparams.json",
        "onnxq calibrate model.onnx -b onnxruntime -d calib.npz --shard 1/4 -o part1.npz",
    ),
    "emit": ("onnxq emit model.onnx --plan plan.json --qparams qparams.json -d calib.npz -o out/",),
    "compare": ("onnxq compare model.onnx out/model.onnx -d calib.npz --worst 10",),
    "huggingface": (
        "onnxq huggingface MiniLM/ --dtype q8,q4 -d sentences.txt -o MiniLM-onnxq/",
        "onnxq huggingface MiniLM/ --dtype q4 -o MiniLM-onnxq/",
    ),
    "evaluate": (
        "onnxq evaluate model.onnx out/ -d test.npz --metric accuracy",
        "onnxq evaluate model.onnx out/ other.onnx -d test.npz --metric my_metrics:top5 --metric sqnr_db",
    ),
    "bench": (
        "onnxq bench model.onnx out/ -d calib.npz",
        "onnxq bench model.onnx out/ out4/ --threads 2 --batch 8 --html bench.html",
    ),
    "explain": ("onnxq explain out/plan.json conv1 --model model.onnx",),
    "report": ("onnxq report out/ -d calib.npz",),
    "diff": ("onnxq diff out/ out4/", "onnxq diff out/ out4/ --all"),
    "simulate": ("onnxq simulate model.onnx --plan out/plan.json -o simulated.onnx -d calib.npz",),
    "lint": ("onnxq lint out/model.onnx -b onnxruntime",),
    "strip": ("onnxq strip quantized.onnx -o float.onnx -d calib.npz",),
    "merge": ("onnxq merge part1.npz part2.npz -o statistics.npz",),
    "schema": ("onnxq schema -o schema.json",),
    "list": ("onnxq list backends", "onnxq list improvements gptq"),
    "demo": ("onnxq demo", "onnxq demo -b onnxruntime -o out/"),
}
"""Command -> lines to copy; the tests parse each of them. Those of `translate` follow from the tools that it reads."""

VALUES = {
    **dict.fromkeys(("plugin", "config", "plan", "qparams"), "FILE"),
    **dict.fromkeys(("data", "train", "evaluate"), "DATA"),
    **dict.fromkeys(("observer", "weight_observer", "optimizer", "schedule", "provider", "fallback"), "NAME"),
    **dict.fromkeys(("metric", "best_by"), "METRIC"),
    **dict.fromkeys(("lr", "scale_lr", "momentum", "weight_decay", "gamma", "temperature", "distill"), "X"),
    **dict.fromkeys(("warmup", "step_size", "clip_gradient", "quantize_from"), "X"),
    **dict.fromkeys(("preprocess", "observer_freeze", "batch_norm_freeze"), "HOW"),
    **dict.fromkeys(("label_output", "distill_loss", "label_loss", "batch_norms", "by"), "NAME"),
    **dict.fromkeys(("optimize_for", "what", "only"), "WHAT"),
    **{
        "backend": "TARGET",
        "out": "PATH",
        "model": "MODEL",
        "budget": "SIZE",
        "dtype": "NAMES",
        "report": "no|quick|full",
    },
}
"""Parameter -> what its value is called where the option itself says nothing."""

GROUP_OF = {name: title for title, names in COMMANDS.items() for name in names.split()}
_PANEL_OF = {name: title for title, names in PANELS.items() for name in names.split()}


def put_into_panels(parameters: Iterable[Any]) -> None:
    """Give the options of a command, as typer has made them, the group that they are shown in."""
    from onnxq.types.dialect import DIALECTS  # the list of commands is to be quick

    options = [one for one in parameters if one.param_type_name == "option"]
    if len(options) <= FEW:
        return
    for option in options:
        # Configurations of other tools have an option each.
        option.rich_help_panel = CONFIGURATION if option.name in DIALECTS else _PANEL_OF.get(option.name)


def example_lines(command: str) -> tuple[str, ...]:
    """The examples of a command, one line each."""
    if command != "translate":
        return EXAMPLES.get(command, ())
    from onnxq.types.dialect import DIALECTS  # the list of commands is to be quick

    made = ((name, DIALECTS.get(name).example) for name in DIALECTS.names())
    return tuple(f"onnxq translate model.onnx --{name} {rest} -o settings.json" for name, rest in made if rest)


def name_values(parameters: Iterable[Any]) -> None:
    """Give options a word for their values, where releases of typer show a type of Python; a flag has none."""
    for option in parameters:
        if option.param_type_name == "option" and option.metavar is None:
            option.metavar = "" if option.is_flag else VALUES.get(option.name)


def examples(command: str) -> str:
    """What stands behind the options of a command; nothing where there is nothing."""
    lines = example_lines(command)
    if not lines:
        return ""
    return "\n".join(["", " Examples:" if len(lines) > 1 else " Example:", *map(_folded, lines), ""])


def _folded(line: str) -> str:
    """A line to copy in the width of a terminal: a shell takes it as it stands."""
    folded = ""
    for part in re.split(r" (?=-)", line):
        start = f"{folded} {part}" if folded else f"   {part}"
        if len(start) - start.rfind("\n") > WIDTH - 2:
            start = f"{folded} \\\n      {part}"
        folded = start
    return folded
