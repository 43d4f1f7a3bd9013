"""The flow that users of Sophgo-mq know: prepare, calibrate, quantize, deploy; on an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.compat.mqbench import flow
from onnxq.compat.mqbench.prepared import PreparedModel
from onnxq.compat.translation import shown
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.pipeline.artifacts import Result
from onnxq.session.prepare import load_model
from onnxq.targets import split_name
from onnxq.targets.sophgo.dialect.target import CHIPS, STRATEGIES, known_word
from onnxq.targets.sophgo.dialect.translate import translate
from onnxq.types.translation import Row, no_effect

_MODEL_NAME = "sophgo_mq_qmodel"
_FOR_TPU_MLIR = (
    *("mlir_deploy", "chip", "bf16_mix_prec", "val_loader", "batch_size", "not_gen_bmodel"),
    "mlir_deploy_debug_onlytransform",
)
"""Arguments of convert_deploy about the compiler that Sophgo-mq starts behind it."""


def prepare_by_platform(
    model: str | Path | onnx.ModelProto | Graph,
    prepare_custom_config_dict: JsonMapping,
    custom_tracer: object = None,
    *,
    input_shape_dict: Sequence[Sequence[int]] | None = None,
    cuda: int | None = None,
) -> PreparedModel:
    """Read Sophgo-mq's configuration for a model; nothing is run yet.

    The last three parameters are about tracing in torch: given, they get a row that says so.
    """
    flow.refuse_torch(model)
    graph = load_model(model)
    translation = translate(prepare_custom_config_dict, graph)
    rows = [
        Row(key, shown(value), no_effect(why))
        for key, value, why in (
            ("custom_tracer", custom_tracer, "an ONNX file is traced already"),
            ("input_shape_dict", input_shape_dict, "an ONNX file has shapes; convert_deploy fixes those that are open"),
            ("cuda", cuda, "it is about torch; `provider` in onnxq's own configuration chooses where calibration runs"),
        )
        if value is not None
    ]
    return PreparedModel(graph, replace(translation, rows=(*translation.rows, *rows)))


def convert_deploy(
    model: PreparedModel,
    net_type: str | None = None,
    input_shape_dict: Mapping[str, Sequence[int]] | None = None,
    dummy_input: Any = None,
    output_path: str | Path = "./",
    model_name: str | None = None,
    deploy_to_qlinear: bool = False,
    **extra_kwargs: Any,
) -> Result:
    """Write the model and the tables for tpu-mlir into `output_path`, checked as every run of onnxq.

    `net_type` is the strategy that the model was prepared with. `model_name` is that of `quant_dict` unless it is given
    here.
    """
    model = flow.prepared_model(model)
    backend = model.translation.backend
    _check_same(backend, net_type, extra_kwargs.get("chip"))
    further = {key: value for key, value in extra_kwargs.items() if key not in _FOR_TPU_MLIR}
    rows = [
        Row(
            f"convert_deploy.{key}", shown(value), no_effect("tpu-mlir is not started; docs/targets/sophgo.md says how")
        )
        for key, value in extra_kwargs.items()
        if key in _FOR_TPU_MLIR
    ]
    deployed = copy(model)
    deployed.translation = replace(model.translation, rows=(*model.translation.rows, *rows))
    name = model_name or str(model.translation.config.get("name", _MODEL_NAME))
    return flow.convert_deploy(
        deployed, backend, input_shape_dict, dummy_input, output_path, name, deploy_to_qlinear, **further
    )


def _check_same(backend: str, net_type: Any, chip: Any) -> None:
    """Refuse a strategy or a chip that is not the one that the model was prepared for."""
    family, options = split_name(backend)
    remedy = f"but the model was prepared for {backend}. Call prepare_by_platform with that"
    if net_type is not None:
        strategy = known_word(net_type, STRATEGIES, "convert_deploy: net_type")
        if options.get("strategy") != strategy:
            raise ConfigError(f"convert_deploy: net_type is '{net_type}', {remedy} strategy, or leave net_type out")
    if chip is not None and CHIPS[known_word(chip, tuple(CHIPS), "convert_deploy: chip")] != family:
        raise ConfigError(f"convert_deploy: chip is '{chip}', {remedy} chip, or leave chip out")
