"""extra_fuse_dict: chains of layers that run as one, and layers whose weights get a quantizer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxq.compat.mqbench.targets import Target
from onnxq.compat.structure import Structure
from onnxq.compat.torch_names import chain_of, nodes_of_type, torch_name
from onnxq.compat.translation import Translator, check_keys, counted, shown
from onnxq.errors import ConfigError
from onnxq.graph import Node
from onnxq.types.translation import Outcome, joined, no_effect

CHAIN_KEYS = ("additional_fuser_method_mapping", "additional_fusion_pattern")
MAPPING_KEYS = ("additional_qat_module_mapping", "additional_qat_module_mappings")
FUSE_KEYS = (*CHAIN_KEYS, *MAPPING_KEYS)

Chain = tuple[str, ...]
_NORM = ("BatchNormalization",)
_AFFINE = (("Mul",), ("Add",))
_FOLDED_BY = {"BatchNormalization": "fold_batchnorm", "Mul": "fuse_conv_scale", "Add": "fuse_conv_bias"}
"""What may stand behind a layer -> the pass that makes it a part of the layer."""


def translate_fusing(
    translator: Translator, given: Any, structure: Structure, target: Target, where: str = "extra_fuse_dict"
) -> None:
    """Put chains into `fuse`, as far as the target does not fuse them by itself, and mapped types into `force`."""
    check_keys(given, FUSE_KEYS, where)
    for key, value in given.items():
        full = f"{where}.{key}"
        if not isinstance(value, Mapping):
            raise ConfigError(f"{full} must hold types and what they become, it holds {shown(value)}")
        if not value:
            translator.row(full, value, no_effect("it is empty"))
        for pattern, method in value.items():
            if key in CHAIN_KEYS:
                types = _types(pattern, full, backwards=key == "additional_fusion_pattern")
                became = _fuse(translator, types, structure, target, full)
                if method is not None:
                    became = became.adding(f"({shown(method)} is code for torch, onnxq fuses by itself)", " ")
            else:
                became = _quantize(translator, pattern, structure, full)
            translator.row(full, {pattern: method}, became)


def _fuse(translator: Translator, types: Sequence[Any], structure: Structure, target: Target, key: str) -> Outcome:
    """What a chain of torch types becomes: nothing where the model has no such chain, or the target fuses it anyway."""
    wanted = [operators for kind in types for operators in chain_of(kind, key)]
    found = list(_chains(structure, wanted))
    if any(torch_name(kind).endswith(".FrozenBatchNorm2d") for kind in types):  # also exported as x * scale + shift
        affine = [link for operators in wanted for link in (_AFFINE if operators == _NORM else (operators,))]
        found += list(_chains(structure, affine))
    if not found:
        return no_effect(f"the model has no {' -> '.join('|'.join(operators) for operators in wanted)}")
    skipped = set(translator.config.get("skip", ()))
    present = sorted({tuple(node.op for node in nodes) for nodes in found if not any(n.name in skipped for n in nodes)})
    if not present:
        return no_effect(f"{counted([nodes[0].name for nodes in found])} excluded, and that wins")
    said = []
    for chain in present:
        rest = _after_folding(chain, target)
        shorter = "" if rest == chain else f" ({target.family} folds the BatchNormalization into its layer)"
        if len(rest) < 2:
            said.append(no_effect(f"{target.family} folds {' -> '.join(chain)} anyway"))
        elif all(op in target.backend.fused_activations for op in rest[1:]) and target.backend.rules_for(rest[0]):
            said.append(no_effect(f"{target.family} runs {' -> '.join(rest)} as one anyway{shorter}"))
        else:
            translator.append("fuse", [list(rest)], key)
            said.append(Outcome(f"fuse: {' -> '.join(rest)}{shorter}"))
    return joined(said)


def _after_folding(chain: Chain, target: Target) -> Chain:
    """The chain as it is after the target's passes: a BatchNormalization, or a scale and a shift, is gone."""
    gone = {op for op, folding in _FOLDED_BY.items() if folding in target.backend.passes}
    return (chain[0], *(op for op in chain[1:] if op not in gone))


def _chains(structure: Structure, wanted: Sequence[Sequence[str]]) -> Iterator[list[Node]]:
    """The chains of nodes in a graph that fit; what stands inside one is read by its next node alone."""
    graph = structure.graph
    for node in graph.nodes():
        chain = [node]
        for operators in itertools.islice(wanted, 1, None):
            last = chain[-1].outputs[0] if chain[-1].outputs else None
            uses = graph.consumers(last) if last is not None and not graph.is_output(last) else []
            readers = [use for use in uses if use.node.name not in structure.dead]
            if len(readers) != 1 or readers[0].node.op not in operators:
                break
            chain.append(readers[0].node)
        if node.op in wanted[0] and len(chain) == len(wanted):
            yield chain


def _quantize(translator: Translator, kind: Any, structure: Structure, key: str) -> Outcome:
    nodes = [name for name in nodes_of_type(structure, kind, key) if name not in structure.dead]
    if not nodes:
        return no_effect(f"the model has no node of {shown(kind)}")
    translator.append("force", nodes, key)
    return Outcome(f"force, so that their weights get quantizers: {counted(nodes)}")


def _types(pattern: Any, where: str, *, backwards: bool) -> list[Any]:
    """The types of a chain in the order in which they run; fusion patterns have the last one first, and nest."""
    parts = _parse(pattern, where) if isinstance(pattern, str) else pattern
    if not isinstance(parts, list | tuple):
        raise ConfigError(f"{where}: a chain is a tuple of two types or more, got {shown(pattern)}")
    types = list(_backwards(parts, where)) if backwards else list(parts)
    if any(isinstance(kind, list | tuple) for kind in types):
        raise ConfigError(
            f"{where}: a chain is a flat tuple of types in the order in which they run, got {shown(pattern)}"
        )
    if len(types) < 2:
        raise ConfigError(f"{where}: a chain has two types or more, got {shown(pattern)}")
    return types


def _backwards(parts: Sequence[Any], where: str) -> Iterator[Any]:
    if sum(isinstance(part, list | tuple) for part in parts) > 1:
        raise ConfigError(
            f"{where}: {shown(parts)} has two branches; onnxq fuses chains, in which each layer reads one"
        )
    for part in reversed(parts):
        if isinstance(part, list | tuple):
            yield from _backwards(part, where)
        else:
            yield part


def _parse(text: str, where: str) -> Any:
    """A tuple written as text, as keys of JSON and YAML files are: "(torch.nn.ReLU, (torch.nn.BatchNorm2d, ...))"."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()\[\]]|[^()\[\],\s]+", text):
        if token in "([":
            stack.append([])
        elif token in ")]":
            if len(stack) == 1:
                raise ConfigError(f"{where}: '{text}' has a bracket too many")
            closed = stack.pop()
            stack[-1].append(closed)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise ConfigError(f"{where}: '{text}' lacks a closing bracket")
    (parts,) = stack
    return parts[0] if len(parts) == 1 and isinstance(parts[0], list) else parts
