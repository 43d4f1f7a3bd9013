"""MQBench's extra_config as a whole: what it says becomes settings of onnxq, with a row for every key."""

from __future__ import annotations

from onnxq.compat.modules import Exported
from onnxq.compat.mqbench.arguments import translate_arguments
from onnxq.compat.mqbench.attributes import translate_attributes
from onnxq.compat.mqbench.fusing import translate_fusing
from onnxq.compat.mqbench.qconfig import translate_qconfig
from onnxq.compat.mqbench.quantizer import translate_quantizer
from onnxq.compat.mqbench.targets import find_target
from onnxq.compat.translation import EFFORT, Translator, check_keys, table_at
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.types.translation import Translation, no_effect

TOOL = "MQBench"
ARGUMENT_KEYS = ("concrete_args", "concrect_args")
"""The key, and the spelling of MQBench's document."""
EXTRA_KEYS = (
    "extra_qconfig_dict",
    "extra_quantizer_dict",
    "preserve_attr",
    "extra_fuse_dict",
    *ARGUMENT_KEYS,
    "leaf_module",
    EFFORT,
)


def translate(extra_config: JsonMapping | None, graph: Graph, backend: object) -> Translation:
    """Settings of onnxq for an `extra_config` of MQBench; `graph` is the float model as the user has it.

    Types, functions and classes may be given as such or by their names, so that files can hold a configuration.
    """
    given = check_keys({} if extra_config is None else extra_config, EXTRA_KEYS, "extra_config")
    both = [key for key in ARGUMENT_KEYS if key in given]
    if len(both) > 1:
        raise ConfigError(f"{' and '.join(both)} are two spellings of one key: give one of them")
    translator, model = Translator(TOOL), Exported(graph)
    target = find_target(backend)
    given_name = backend if isinstance(backend, str) else getattr(backend, "name", backend)
    translator.row("backend", given_name, f"backend = {target.name}")
    translate_qconfig(translator, table_at(given, "extra_qconfig_dict"), target)
    target = translate_quantizer(translator, table_at(given, "extra_quantizer_dict"), model, target)
    if given.get("preserve_attr") is not None:
        translate_attributes(translator, given["preserve_attr"], model)
    translate_fusing(translator, table_at(given, "extra_fuse_dict"), model, target)
    for key in both:
        translate_arguments(translator, given[key], graph, key)
    if "leaf_module" in given:
        became = no_effect("an ONNX file is traced already, whatever its modules were")
        translator.row("leaf_module", given["leaf_module"], became)
    for key in ("extra_qconfig_dict", "extra_quantizer_dict", "preserve_attr", "extra_fuse_dict"):
        if key in given and not given[key]:
            translator.row(key, given[key], no_effect("it is empty"))
    return translator.done(target.name, given.get(EFFORT))
