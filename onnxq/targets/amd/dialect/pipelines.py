"""The switches of the optimize, quantize, refine and finalize pipelines: what each one does to a run of onnxq."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from onnxq.errors import ConfigError
from onnxq.targets.amd.dialect.activations import between_layer_and_activation
from onnxq.targets.amd.dialect.improvements import (
    BALANCE_METHODS,
    correct_biases,
    equalize_layers,
    fine_tune,
    parameter_of,
)
from onnxq.targets.amd.dialect.reading import boolean, choice, number, text, whole
from onnxq.targets.amd.dialect.run import Apply, Run, Switch
from onnxq.targets.amd.dialect.training import freeze_batch_norms, train_batch_norms
from onnxq.types.translation import Outcome, no_effect, not_supported

POSITION_FILES = ("vitis_clip_ranges", "vitis_quant_info", "fix_neuron")
_FLOAT_TYPES = {"float16": "fp16", "bfloat16": "bf16"}


def _nothing(reason: str) -> Apply:
    return lambda run, key, value: no_effect(reason)


def _backends_pass(name: str) -> Apply:
    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if value:
            return f"pass {name}, which the backend runs"
        run.translator.append("skip_passes", [name], key)
        return f'skip_passes = ["{name}"]'

    return apply


def _fold(run: Run, key: str, value: Any) -> str | Outcome:
    if not value and run.switches.get("train_with_bn"):
        return no_effect("train_with_bn keeps batch norms apart in training alone, the files have them folded")
    return _backends_pass("fold_batchnorm")(run, key, value)


def _own_pass(name: str) -> Apply:
    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if not value:
            return f"pass {name} is not run"
        run.translator.append("passes", [name], key)
        return f'passes = ["{name}"]'

    return apply


def _simulation(*names: str) -> Apply:
    """Operators that the simulated model computes as the DPU does, or as ONNX has them."""

    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if run.not_dpu:
            return no_effect(f"{run.not_dpu}, so operators are computed as ONNX has them")
        held = [name for name in names if name in run.simulations]
        if value:
            return f"`onnxq simulate` runs {', '.join(held)}"
        run.translator.append("skip_simulations", held, key)
        return f"skip_simulations = {', '.join(held)}: `onnxq simulate` computes it as ONNX has it"

    return apply


def _sigmoid(run: Run, key: str, value: Any) -> str | Outcome:
    if run.not_dpu:
        return no_effect(f"{run.not_dpu}, so Sigmoid is computed as ONNX has it")
    if not value:
        return "backend option approximations=usual: Sigmoid stays float"
    run.approximations = "all"
    run.translator.append("skip_simulations", ["dpu_clip"], key)  # the option's other half, which no strategy asks for
    return "backend option approximations=all: Sigmoid is quantized, and simulated as HardSigmoid"


def _rule(name: str, tied: tuple[str, ...] = ()) -> Apply:
    """A rule of the refinement, and operators that have one scale on both sides because of it."""

    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if run.not_dpu:
            return no_effect(f"{run.not_dpu}, so positions are not moved")
        if value:
            return f"refinement dpu_positions, its rule {name}"
        run.translator.append("skip_refinements", [f"dpu_positions.{name}"], key)
        if tied:
            run.translator.append("skip_ties", tied, key)
        untied = f", skip_ties = {list(tied)}" if tied else ""
        return f'skip_refinements = ["dpu_positions.{name}"]{untied}'

    return apply


def _fuse(*chains: str) -> Apply:
    """Chains without a quantizer inside; those that a graph does not have need no setting."""

    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        settings = run.translator.config
        if "fold_batchnorm" not in settings.get("skip_passes", ()) or "batchnorm_to_conv" in settings.get("passes", ()):
            return no_effect("there is no such chain, batch normalization is folded or becomes a convolution")
        present = [chain.split(" -> ") for chain in chains if run.graph.find(chain)]
        if not present:
            return no_effect("there is no such chain in the model")
        if not value:
            return "no fuse: the layer has a quantizer of its own, and batch normalization behind it stays float"
        run.translator.append("fuse", present, key)
        return "fuse = " + ", ".join(" -> ".join(chain) for chain in present)

    return apply


def _convert_datatype(run: Run, key: str, value: Any) -> str | Outcome:
    name = str(value).lower()
    if not name:
        return "no conversion"
    if name not in _FLOAT_TYPES:
        raise ConfigError(f"{key}: cannot convert to '{value}'. Known: {', '.join(_FLOAT_TYPES)}, or \"\" for none")
    if run.strategy.positions:
        raise ConfigError(f'{key}: {value} has no positions, so it needs the strategy fs: add "strategy": "fs"')
    run.datatype = (_FLOAT_TYPES[name], key)
    return f"dtype {_FLOAT_TYPES[name]} for inputs, weights, biases and activations"


def _without_position_files(wanted: bool) -> Apply:
    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if run.not_dpu:
            return no_effect(f"{run.not_dpu}, so there are no files with positions")
        if value is not wanted:
            return "files with positions are written"
        run.translator.append("skip_emitters", POSITION_FILES, key)
        return "plain scales in model.onnx alone: skip_emitters = " + ", ".join(POSITION_FILES)

    return apply


def _xcompiler(run: Run, key: str, value: Any) -> str | Outcome:
    if value:
        return not_supported("ask a compiler which operators run quantized")
    return "as in onnxq: the backend's rules say which operators run quantized"


def _output_format(run: Run, key: str, value: Any) -> str | Outcome:
    if value in ("h5", "tf"):
        raise ConfigError(f'{key}: onnxq writes ONNX, not {value}. Use "onnx", or leave it out')
    return "ONNX, which onnxq always writes"


def _opset(run: Run, key: str, value: Any) -> str | Outcome:
    return no_effect(f"the file keeps the model's opset {run.graph.opset}, raised only where a format needs it")


_FORMATS = {name: name for name in ("", "onnx", "h5", "tf")}


def _whole(low: int, high: int) -> Callable[[Any, str], Any]:
    return lambda value, where: whole(value, low, high, where)


_POOLS = ("AveragePool", "GlobalAveragePool")
"""Operators that the backend gives one position on both sides, for which align_pool cares in the tool."""

_MANY = 1_000_000

SECTIONS: Mapping[str, Mapping[str, Switch]] = MappingProxyType(
    {
        "optimize_pipeline_config": {
            "remove_dropout": Switch(boolean, _backends_pass("remove_dropout")),
            "separate_conv_act": Switch(boolean, _nothing("activations are operators of their own in ONNX")),
            "fold_conv_bn": Switch(boolean, _fold, lambda held: held.fold_conv_bn),
            "convert_bn_to_dwconv": Switch(
                boolean, _own_pass("batchnorm_to_conv"), lambda held: held.convert_bn_to_dwconv
            ),
            "convert_relu6_to_relu": Switch(boolean, _own_pass("relu6_to_relu")),
            "convert_tf_op_to_keras": Switch(boolean, _nothing("an ONNX file holds no TensorFlow operations")),
            "include_cle": Switch(boolean, equalize_layers),
            "cle_to_relu6": Switch(boolean, parameter_of("include_cle")),
            "cle_steps": Switch(_whole(-1, _MANY), parameter_of("include_cle")),
            "cle_balance_method": Switch(
                lambda value, where: choice(value, BALANCE_METHODS, {}, where), parameter_of("include_cle")
            ),
            "cle_weight_threshold": Switch(
                lambda value, where: number(value, 0, 1e9, where), parameter_of("include_cle")
            ),
            "train_with_bn": Switch(boolean, train_batch_norms),
            "separable_conv": Switch(boolean, _nothing("a separable convolution is two Conv nodes in ONNX")),
        },
        "quantize_pipeline_config": {
            "convert_datatype": Switch(text, _convert_datatype),
            "convert_sigmoid_to_hard_sigmoid": Switch(boolean, _sigmoid, lambda held: held.positions),
            "convert_hard_sigmoid_to_dpu_version": Switch(
                boolean, _simulation("dpu_hard_sigmoid", "dpu_hard_swish", "dpu_sigmoid")
            ),
            "convert_average_pooling2d_to_dpu_version": Switch(boolean, _simulation("dpu_average_pool")),
            "convert_leaky_relu_to_dpu_version": Switch(boolean, _simulation("dpu_leaky_relu")),
            "no_quant_in_conv_bn_act": Switch(
                boolean,
                _fuse("Conv -> BatchNormalization -> Relu", "Conv -> BatchNormalization"),
                lambda held: not held.fold_conv_bn,
            ),
            "no_quant_in_conv_act": Switch(boolean, between_layer_and_activation("Conv", "ConvTranspose", "Gemm")),
            "no_quant_in_add_act": Switch(boolean, between_layer_and_activation("Add")),
            "freeze_bn_delay": Switch(_whole(-1, _MANY), freeze_batch_norms),
            "quantize_with_xcompiler": Switch(boolean, _xcompiler),
        },
        "refine_pipeline_config": {
            "adjust_dpu_sigmoid": Switch(boolean, _rule("hard_sigmoid")),
            "adjust_dpu_shift_cut": Switch(boolean, _rule("shift_cut")),
            "adjust_dpu_shift_bias": Switch(boolean, _rule("shift_bias")),
            "adjust_dpu_shift_bias_leakyrelu": Switch(boolean, _rule("shift_bias_leaky")),
            "adjust_dpu_shift_read": Switch(boolean, _rule("shift_read")),
            "adjust_dpu_shift_write": Switch(boolean, _rule("shift_write")),
            "adjust_dpu_shift_swish": Switch(boolean, _rule("shift_swish")),
            "align_concat": Switch(boolean, _rule("align_concat")),
            "align_pool": Switch(boolean, _rule("align_pool", _POOLS)),
            "include_fast_ft": Switch(boolean, fine_tune),
            "fast_ft_epochs": Switch(_whole(0, _MANY), parameter_of("include_fast_ft")),
            "include_bias_corr": Switch(boolean, correct_biases),
            "convert_to_fs_quantize_strategy": Switch(boolean, _without_position_files(True)),
            "convert_to_pof2s_quantize_strategy": Switch(boolean, _without_position_files(False)),
        },
        "finalize_pipeline_config": {
            "output_format": Switch(lambda value, where: choice(value, _FORMATS, {}, where), _output_format),
            "onnx_opset_version": Switch(_whole(1, 100), _opset),
            "output_dir": Switch(text, _nothing("the option -o (out=) says where files are written")),
        },
    }
)
"""Pipeline -> its switches, in the order in which the tool runs them."""


def apply_pipelines(run: Run, given: Mapping[str, Mapping[str, tuple[str, Any]]]) -> None:
    """Let every switch take effect; `given` holds, pipeline by pipeline, where a switch stands and its value."""
    run.switches = {
        name: SECTIONS[section][name].read(value, key)
        for section, switches in given.items()
        for name, (key, value) in switches.items()
        if value is not None
    }
    for section, switches in SECTIONS.items():
        for name, switch in switches.items():
            if name in run.switches:
                key, value = given[section][name]
                run.translator.row(key, value, switch.apply(run, key, run.switches[name]))
                continue
            if name in given.get(section, {}):
                run.translator.row(given[section][name][0], None, "not set: as the built-in strategy has it")
            if switch.default is not None:  # its effect, without a row: nobody gave it
                switch.apply(run, f"built-in strategy {run.strategy.name}: {name}", switch.default(run.strategy))
