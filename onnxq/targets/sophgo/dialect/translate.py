"""Sophgo-mq's `prepare_custom_config_dict` as a whole: a target, settings of onnxq, and a row for every key."""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.compat.modules import Exported
from onnxq.compat.mqbench.arguments import translate_arguments
from onnxq.compat.mqbench.attributes import translate_attributes
from onnxq.compat.mqbench.fusing import translate_fusing
from onnxq.compat.mqbench.qconfig import QCONFIG_KEYS
from onnxq.compat.mqbench.targets import find_target
from onnxq.compat.structure import living
from onnxq.compat.translation import EFFORT, Translator, check_keys, table_at
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.entries import translate_entries
from onnxq.targets.sophgo.dialect.everywhere import KEY as QCONFIG
from onnxq.targets.sophgo.dialect.everywhere import translate_everywhere
from onnxq.targets.sophgo.dialect.mixed import translate_mixed
from onnxq.targets.sophgo.dialect.nodes import Model
from onnxq.targets.sophgo.dialect.operators import OPERATOR_LISTS, translate_operators
from onnxq.targets.sophgo.dialect.quantizer import KEY as QUANTIZER
from onnxq.targets.sophgo.dialect.quantizer import translate_quantizer
from onnxq.targets.sophgo.dialect.target import KEY as QUANT_DICT
from onnxq.targets.sophgo.dialect.target import Target, read_target
from onnxq.types.translation import Translation, no_effect

TOOL = "Sophgo-mq"
KNOWN = (QUANT_DICT, QCONFIG, QUANTIZER, "preserve_attr", "concrete_args", "extra_fuse_dict", "leaf_module", EFFORT)
QCONFIG_KNOWN = (*QCONFIG_KEYS, "object_type", "module_name", *OPERATOR_LISTS)


def translate(prepare_custom_config_dict: JsonMapping, graph: Graph) -> Translation:
    """Settings of onnxq for a configuration of Sophgo-mq; `graph` is the float model as the user has it.

    The chip stands in `quant_dict`, so the translation has the backend with its options. Types, functions and classes
    may be given as such or by their names, so that files can hold a configuration.
    """
    given = check_keys(prepare_custom_config_dict, KNOWN, "prepare_custom_config_dict")
    out = Translator(TOOL)
    target = read_target(given.get(QUANT_DICT), out)
    qconfig = check_keys(table_at(given, QCONFIG), QCONFIG_KNOWN, QCONFIG)
    options = translate_everywhere(qconfig, target, out)
    exported = Exported(graph)
    alive = Exported(living(graph)) if exported.dead else exported
    model = Model(alive, target, options["precision"])
    translate_entries(qconfig, model, out, QCONFIG)
    options |= translate_operators(qconfig, model, out, QCONFIG)
    if target.mixed:
        options |= translate_mixed(exported, _checked(target, options), out)
    elif "bf16_mix_prec" in given[QUANT_DICT]:
        out.row(f"{QUANT_DICT}.bf16_mix_prec", False, no_effect("it is off anyway"))
    backend = _checked(target, options)
    translate_quantizer(table_at(given, QUANTIZER), exported, target, out)
    _translate_rest(given, exported, target, out)
    return out.done(backend, given.get(EFFORT))


def _checked(target: Target, options: Mapping[str, str]) -> str:
    """The backend with its options, which it may refuse."""
    backend = target.written(**options)
    try:
        get_backend(backend)
    except ConfigError as error:
        raise ConfigError(f"{QUANT_DICT} and {QCONFIG} do not fit together. {error}") from None
    return backend


def _translate_rest(given: JsonMapping, model: Exported, target: Target, out: Translator) -> None:
    if given.get("preserve_attr") is not None:
        translate_attributes(out, given["preserve_attr"], model)
    translate_fusing(out, table_at(given, "extra_fuse_dict"), model, find_target(target.backend))
    if "concrete_args" in given:
        translate_arguments(out, given["concrete_args"], model.graph, "concrete_args")
    if "leaf_module" in given:
        out.row(
            "leaf_module", given["leaf_module"], no_effect("an ONNX file is traced already, whatever its modules were")
        )
    for key in (QCONFIG, QUANTIZER, "extra_fuse_dict", "preserve_attr"):
        if key in given and not given[key]:
            out.row(key, given[key], no_effect("it is empty"))
