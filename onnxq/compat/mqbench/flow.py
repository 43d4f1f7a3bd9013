"""The flow that MQBench's users know: prepare, calibrate, quantize, deploy; on an ONNX file."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from onnxq.compat.mqbench.attributes import split_objects
from onnxq.compat.mqbench.prepared import BatchNorms, PreparedModel
from onnxq.compat.mqbench.targets import find_target
from onnxq.compat.mqbench.translate import translate
from onnxq.compat.translation import shown
from onnxq.errors import ConfigError, ModelError, did_you_mean
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.pipeline.artifacts import Result
from onnxq.runtime.feeds import GivenArrays
from onnxq.runtime.pieces import as_array
from onnxq.session.prepare import load_model
from onnxq.types.translation import Outcome, Row, no_effect

QUANTIZER_TYPES = ("fake_quant", "act_fake_quant", "weight_fake_quant")
"""Parts of names by which MQBench picks quantizers: all of them, those of activations, those of weights."""

Shape = tuple[int | str, ...]

_TRAINED: Mapping[BatchNorms, Outcome] = {
    "folded": Outcome("torch() trains folded weights"),
    "frozen": Outcome("torch() trains batch norms with fixed statistics"),
    "live": Outcome("torch() trains batch norms with the statistics of the batches"),
}

_FURTHER = ("input_names", "output_names", "dynamic_axes", "minimum_sqnr_db", "effort")


def prepare_by_platform(
    model: str | Path | onnx.ModelProto | Graph,
    deploy_backend: object,
    prepare_custom_config_dict: JsonMapping | None = None,
    custom_tracer: object = None,
    is_qat: bool = True,
    freeze_bn: bool = True,
) -> PreparedModel:
    """Read MQBench's configuration for a model and a backend; nothing is run yet.

    `is_qat` and `freeze_bn` are for a training: batch norms are apart from their layers, with fixed statistics or with
    those of the batches (`freeze_bn=False`), and folded for good with `is_qat=False`. A tracer has nothing to do here.
    """
    refuse_torch(model)
    graph = load_model(model)
    objects, config = split_objects(prepare_custom_config_dict)
    translation = translate(config, graph, deploy_backend)
    batch_norms: BatchNorms = "folded" if not is_qat else "frozen" if freeze_bn else "live"
    rows = [
        Row(key, shown(value), became)
        for key, value, default, became in (
            ("custom_tracer", custom_tracer, None, no_effect("an ONNX file is traced already")),
            ("is_qat", is_qat, True, _TRAINED[batch_norms]),
            ("freeze_bn", freeze_bn, True, _TRAINED[batch_norms]),
        )
        if value != default
    ]
    rows += [
        Row(f"preserve_attr[{path!r}]", name, Outcome(f"attribute of torch(), at module '{path}'; not part of a file"))
        for path, attributes in objects.items()
        for name in attributes
    ]
    return PreparedModel(graph, replace(translation, rows=(*translation.rows, *rows)), batch_norms, objects)


def enable_calibration(model: PreparedModel) -> None:
    """Calls give float results and are remembered as samples."""
    prepared_model(model).mode = "calibrate"


def enable_calibration_woquantization(model: PreparedModel, quantizer_type: str = "fake_quant") -> None:
    """The same for one kind of quantizers: calls matter to those of activations, ranges of weights need no samples."""
    _check_type(quantizer_type)
    prepared_model(model).mode = "float" if quantizer_type == "weight_fake_quant" else "calibrate"


def enable_calibration_quantization(model: PreparedModel, quantizer_type: str = "fake_quant") -> None:
    """Calls are remembered, and give what the model gives that is quantized on all samples so far."""
    _check_type(quantizer_type)
    if quantizer_type != "fake_quant":
        raise ConfigError(
            f"enable_calibration_quantization: quantizer_type '{quantizer_type}' would quantize weights or activations "
            "alone. onnxq quantizes both: leave quantizer_type out"
        )
    prepared_model(model).mode = "calibrate_quantized"


def enable_quantization(model: PreparedModel) -> None:
    """Calls give what the quantized model gives, which is made at the first call from the samples so far."""
    prepared_model(model).mode = "quantize"


def disable_all(model: PreparedModel) -> None:
    """Calls give float results and are not remembered; files that are written now are quantized, with a warning."""
    prepared_model(model).mode = "disabled"


def convert_deploy(
    model: PreparedModel,
    backend_type: object,
    input_shape_dict: Mapping[str, Sequence[int]] | None = None,
    dummy_input: Any = None,
    output_path: str | Path = "./",
    model_name: str = "mqbench_qmodel",
    deploy_to_qlinear: bool = False,
    **extra_kwargs: Any,
) -> Result:
    """Write the quantized model and its tables into `output_path`, checked as every run of onnxq.

    `input_shape_dict`, or the shapes of `dummy_input`, fix the shapes of inputs; dimensions in `dynamic_axes` stay
    open. `input_names` and `output_names` must be those of the ONNX file, which keeps its names. A model with an
    output below `minimum_sqnr_db` (5 unless given) is not written. `effort` is what is tried for accuracy, 0 (nothing,
    unless the configuration says so) to 3.
    """
    model = prepared_model(model)
    prepared_for = find_target(model.translation.backend)
    if not prepared_for.serves(find_target(backend_type)):
        raise ConfigError(
            f"the model was prepared for {prepared_for.name}, so it cannot be deployed for {shown(backend_type)}: call "
            "prepare_by_platform with that backend"
        )
    if not isinstance(model_name, str) or not model_name or Path(model_name).name != model_name:
        raise ConfigError(
            f"convert_deploy: model_name is a name without folders, got {shown(model_name)}; output_path is the folder"
        )
    for key in extra_kwargs:
        if key not in _FURTHER:
            near = did_you_mean(key, _FURTHER)
            raise ConfigError(f"convert_deploy: unknown argument '{key}'.{near} Known: {', '.join(_FURTHER)}")
    names = _input_names(model, extra_kwargs)
    shapes = _shapes(input_shape_dict, dummy_input, names)
    axes = _open_axes(extra_kwargs.get("dynamic_axes"), model.graph)
    rows = [_open(shapes, name, opened) for name, opened in axes.items()]
    rows += [
        Row(f"convert_deploy.{key}", shown(shape), Outcome(f"inputs.{key}.shape")) for key, shape in shapes.items()
    ]
    if deploy_to_qlinear:
        became = no_effect("the model has QuantizeLinear and DequantizeLinear, or what the target reads, either way")
        rows.append(Row("convert_deploy.deploy_to_qlinear", "True", became))
    minimum = extra_kwargs.get("minimum_sqnr_db")
    effort = extra_kwargs.get("effort")
    if effort is not None:
        rows.append(Row("convert_deploy.effort", shown(effort), Outcome(f"effort = {effort}")))
    return model.deploy(output_path, model_name, shapes=shapes, rows=rows, minimum_sqnr_db=minimum, effort=effort)


def refuse_torch(model: object) -> None:
    """A torch module cannot be quantized here: say how to export it."""
    if any(kind.__module__.startswith("torch.") and kind.__name__ == "Module" for kind in type(model).__mro__):
        raise ModelError(
            f"{type(model).__name__} is a torch module; onnxq takes an ONNX file. Export it first: "
            "torch.onnx.export(model, (example,), 'model.onnx', input_names=['input']), then give 'model.onnx'"
        )


def prepared_model(model: object) -> PreparedModel:
    """The prepared model that was given, or that a module of it (also within DistributedDataParallel) belongs to."""
    while not isinstance(model, PreparedModel):
        # Asked for first: the network may have a module that is called `module` itself.
        tree = getattr(model, "__dict__", {}).get("_onnxq")
        inside = getattr(model, "module", None) if tree is None else tree.prepared
        if inside is None:
            break
        model = inside
    if not isinstance(model, PreparedModel):
        raise ConfigError(f"a model from prepare_by_platform is expected, not a {type(model).__name__}")
    return model


def _check_type(quantizer_type: str) -> None:
    if quantizer_type not in QUANTIZER_TYPES:
        near = did_you_mean(quantizer_type, QUANTIZER_TYPES)
        raise ConfigError(f"unknown quantizer_type '{quantizer_type}'.{near} Known: {', '.join(QUANTIZER_TYPES)}")


def _input_names(model: PreparedModel, given: JsonMapping) -> list[str]:
    """The names of the inputs in order; the file keeps its names, so other ones are an error."""
    for key, known in (("input_names", model.graph.input_names), ("output_names", model.graph.output_names)):
        wanted = given.get(key) or ()
        if not isinstance(wanted, list | tuple):
            raise ConfigError(f"convert_deploy: {key} is a list of names, got {shown(wanted)}")
        for name in wanted:
            if name not in known:
                near = did_you_mean(name, known)
                raise ConfigError(
                    f"convert_deploy: {key} has '{name}', but an ONNX file keeps its names.{near} It has: "
                    f"{', '.join(known)}"
                )
    return list(given.get("input_names") or model.graph.input_names)


def _shapes(
    input_shape_dict: Mapping[str, Sequence[int]] | None, dummy_input: Any, names: Sequence[str]
) -> dict[str, Shape]:
    """The shape of every input that one is given for."""
    if input_shape_dict is not None and dummy_input is not None:
        raise ConfigError("convert_deploy: input_shape_dict and dummy_input both say shapes: give one of them")
    if dummy_input is not None:
        return {name: as_array(value, "dummy_input").shape for name, value in _by_name(dummy_input, names).items()}
    if not isinstance(input_shape_dict, Mapping | None):
        raise ConfigError(
            f"convert_deploy: input_shape_dict holds names of inputs and shapes, got {shown(input_shape_dict)}"
        )
    return {name: _sizes(name, shape) for name, shape in (input_shape_dict or {}).items()}


def _sizes(name: str, shape: Any) -> Shape:
    try:
        return tuple(operator.index(size) for size in shape)
    except TypeError:
        raise ConfigError(
            f"convert_deploy: input_shape_dict['{name}'] is a list of sizes, such as [1, 3, 224, 224]; got "
            f"{shown(shape)}"
        ) from None


def _open_axes(dynamic_axes: Any, graph: Graph) -> dict[str, dict[int, str]]:
    """`dynamic_axes` with a name for each axis: {"input": {0: "batch"}}, also given as {"input": [0]}."""
    known = (*graph.input_names, *graph.output_names)
    if not isinstance(dynamic_axes, Mapping | None):
        raise ConfigError(f"convert_deploy: dynamic_axes holds names and axes, got {shown(dynamic_axes)}")
    found = {}
    for name, axes in (dynamic_axes or {}).items():
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ConfigError(f"convert_deploy: dynamic_axes has {shown(name)}.{near} The file has: {', '.join(known)}")
        if not isinstance(axes, Mapping | list | tuple) or not all(type(axis) is int and axis >= 0 for axis in axes):
            raise ConfigError(f"convert_deploy: dynamic_axes['{name}'] holds axes from 0 on, got {shown(axes)}")
        found[str(name)] = dict(axes) if isinstance(axes, Mapping) else {axis: f"{name}_{axis}" for axis in axes}
    return found


def _open(shapes: dict[str, Shape], name: str, axes: Mapping[int, str]) -> Row:
    """Leave dimensions of a shape open that is about to be fixed; the row says what became of it."""
    key = f"convert_deploy.dynamic_axes.{name}"
    if name not in shapes:
        return Row(key, shown(axes), no_effect("no shape is given for it, so its dimensions stay as the file has them"))
    rank = len(shapes[name])
    if any(axis >= rank for axis in axes):
        raise ConfigError(f"convert_deploy: dynamic_axes['{name}'] has {shown(axes)}, but it has {rank} dimensions")
    shapes[name] = tuple(axes.get(axis, size) for axis, size in enumerate(shapes[name]))
    return Row(key, shown(axes), Outcome(f"dimensions that stay open in inputs.{name}.shape"))


def _by_name(dummy_input: Any, names: Sequence[str]) -> GivenArrays:
    if isinstance(dummy_input, Mapping):
        return dummy_input
    arrays = dummy_input if isinstance(dummy_input, list | tuple) else [dummy_input]
    if len(arrays) > len(names):
        raise ConfigError(f"convert_deploy: dummy_input has {len(arrays)} arrays, the model has {', '.join(names)}")
    return dict(zip(names, arrays, strict=False))
