"""Files of other tools: a Python file that defines the dictionary as its users write it, or JSON, YAML, TOML."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxq.config import read_document
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.plugins import run_file
from onnxq.types.translation import Translation

MQBENCH_NAMES = ("extra_config", "prepare_custom_config_dict")
SOPHGO_NAMES = ("prepare_custom_config_dict", "extra_config")
VITIS_NAMES = ("quantize_strategy", "strategy")
"""The variable of a Python file that holds the dictionary, the usual name first."""


def read_mqbench(path: Path, graph: Graph, backend: str) -> Translation:
    """MQBench's `extra_config` in a file, for a model and a target."""
    from onnxq.compat import mqbench

    return mqbench.translate(read_dictionary(path, MQBENCH_NAMES, "MQBench"), graph, backend)


def read_sophgo(path: Path, graph: Graph) -> Translation:
    """Sophgo-mq's `prepare_custom_config_dict` in a file, for a model."""
    from onnxq.compat import sophgo

    return sophgo.translate(read_dictionary(path, SOPHGO_NAMES, "Sophgo"), graph)


def read_vitis(strategy: str, graph: Graph) -> Translation:
    """A quantize strategy of Vitis AI, by the name of a built-in one or in a file, for a model."""
    from onnxq.compat import vitis

    path = Path(strategy)
    if path.suffix == ".py":
        return vitis.translate(read_dictionary(path, VITIS_NAMES, "Vitis"), graph)
    return vitis.translate(strategy, graph)


def read_dictionary(path: Path, names: Sequence[str], tool: str) -> Mapping[str, Any]:
    """The dictionary in a file."""
    if path.suffix != ".py":
        return read_document(path)[0]
    module = run_file(path, f"{tool} configuration")
    _check_keys_stand_once(path)
    for name in names:
        found = getattr(module, name, None)
        if isinstance(found, Mapping):
            return found
    raise ConfigError(f"{path} defines none of {', '.join(names)} as a dictionary: give it one of these names")


def _check_keys_stand_once(path: Path) -> None:
    """Python keeps the last of two equal keys in a dictionary; what the first one said would be lost in silence."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        seen: set[str] = set()
        for key in node.keys if isinstance(node, ast.Dict) else ():
            written = "" if key is None else ast.unparse(key)
            if written in seen:
                raise ConfigError(
                    f"{path}:{getattr(key, 'lineno', 0)}: the key {written} stands twice in one dictionary, and Python "
                    "keeps the last alone: keep one of them, or give the other the name that it should have"
                )
            if written:
                seen.add(written)
