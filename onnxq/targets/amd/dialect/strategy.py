"""A whole strategy: a built-in one by its name, a file or a dict, which may override values of a built-in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxq.compat.structure import living
from onnxq.compat.translation import EFFORT, Translator, check_keys, shown
from onnxq.config.documents import read_document
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.targets.amd.dialect.builtin import ALIASES, STRATEGIES, Strategy, strategy_name
from onnxq.targets.amd.dialect.dpu import beyond_dpu
from onnxq.targets.amd.dialect.entries import Entries
from onnxq.targets.amd.dialect.inputs import apply_inputs
from onnxq.targets.amd.dialect.patterns import read_patterns
from onnxq.targets.amd.dialect.pipelines import SECTIONS, apply_pipelines
from onnxq.targets.amd.dialect.quantizers import OLD_NAMES
from onnxq.targets.amd.dialect.reading import one_of, text, texts
from onnxq.targets.amd.dialect.registry import USER_KEYS, Registry
from onnxq.targets.amd.dialect.run import Run
from onnxq.types.translation import Outcome, Row, Translation

BASE_KEYS = ("strategy", "base")
REGISTRY = "quantize_registry_config"
USER_SPELLINGS = ("user_quantize_config", "user_defined_quantize_config")
REGISTRY_KEYS = (*USER_SPELLINGS, "input_quantize_config", "layer_quantize_config", "custom_layer_type")

Placed = dict[str, tuple[str, Any]]
"""Key -> where it stands, value."""


def translate(strategy: str | Path | JsonMapping, graph: Graph) -> Translation:
    """What a strategy becomes on a model: a backend, settings of onnxq, and a row for every key.

    `graph` is the model as its file has it, before any pass; it is not changed.
    """
    given = _read(strategy)
    parts = _Parts(given)
    model = living(graph)
    model.infer_shapes()
    base, why = _base(given)
    not_dpu = "" if base.positions else f"strategy {base.name} has float scales"
    run = _translated(parts, base, model, not_dpu)
    if not not_dpu:
        beyond, has_positions = beyond_dpu(run.translator.config)
        if beyond and has_positions:
            run.formats = "any"
            why += f"; {beyond}: it has a position in the files, and the rules on positions leave it alone"
        elif beyond:
            run = _translated(parts, base, model, beyond)
            why += f"; {beyond}, so the scales stay powers of two, and neither its rules nor its files apply"
    backend = _backend(run)
    key = one_of(given, BASE_KEYS, "the strategy") or "strategy"
    head = Row(key, shown(given.get(key, base.name)), Outcome(f"backend {backend}{why}"))
    run.translator.rows.insert(0, head)
    return run.translator.done(backend, given.get(EFFORT))


def _translated(parts: _Parts, base: Strategy, model: Graph, not_dpu: str) -> Run:
    """All settings and rows of a strategy; `not_dpu` says why those that are about the DPU have no effect."""
    translator = Translator("vitis")
    run = Run(translator, base, model, not_dpu)
    apply_pipelines(run, parts.pipelines)
    registry = Registry(translator, base, model, is_dpu=not not_dpu)
    registry.read_user(parts.user)
    key, inputs = parts.registry.get("input_quantize_config", ("input_quantize_config", None))
    if inputs is not None:
        apply_inputs(registry, inputs, key)
    if run.datatype is not None:
        registry.convert_all(*run.datatype)
    registry.apply_user(parts.user, converted=run.datatype is not None)
    folds = "fold_batchnorm" not in translator.config.get("skip_passes", [])
    _apply_entries(registry, parts, folds_batchnorm=folds)
    return run


def _read(strategy: str | Path | JsonMapping) -> JsonMapping:
    if isinstance(strategy, Mapping):
        return strategy
    path = Path(strategy)
    is_name = isinstance(strategy, str) and strategy in (*STRATEGIES, *ALIASES)
    if not is_name and (path.is_file() or path.suffix):
        return read_document(path)[0]
    return {"strategy": strategy_name(str(strategy), "strategy")}


class _Parts:
    """The keys of a strategy in their sections, whether they are given there or flat, as the tool's functions take."""

    def __init__(self, given: JsonMapping) -> None:
        self.pipelines: dict[str, Placed] = {section: {} for section in SECTIONS}
        self.user: Placed = {}
        self.registry: Placed = {}
        flat = [name for switches in SECTIONS.values() for name in switches]
        known = [*BASE_KEYS, EFFORT, *SECTIONS, REGISTRY, *REGISTRY_KEYS, *flat, *USER_KEYS]
        for key, value in check_keys(given, known, "the strategy").items():
            if key in SECTIONS:
                for name, item in check_keys(value, SECTIONS[key], key).items():
                    _put(self.pipelines[key], name, f"{key}.{name}", item)
            elif key == REGISTRY:
                one_of(value, USER_SPELLINGS, key)
                for name, item in check_keys(value, REGISTRY_KEYS, key).items():
                    self._registry_key(name, f"{key}.{name}", item)
            elif key in REGISTRY_KEYS:
                self._registry_key(key, key, value)
            elif key in USER_KEYS:
                _put(self.user, key, key, value)
            elif key not in (*BASE_KEYS, EFFORT):
                section = next(section for section, switches in SECTIONS.items() if key in switches)
                _put(self.pipelines[section], key, key, value)

    def _registry_key(self, name: str, key: str, value: Any) -> None:
        if name in USER_SPELLINGS:
            for inner, item in check_keys(value, USER_KEYS, key).items():
                _put(self.user, inner, f"{key}.{inner}", item)
        else:
            _put(self.registry, name, key, value)


def _put(into: Placed, name: str, key: str, value: Any) -> None:
    if name in into:
        raise ConfigError(f"'{key}' is given twice, the other time as '{into[name][0]}': keep one")
    into[name] = (key, value)


def _base(given: JsonMapping) -> tuple[Strategy, str]:
    """The strategy to start from: the one that is named, or the one that the quantizers speak of, or pof2s."""
    key = one_of(given, BASE_KEYS, "the strategy")
    if key is not None:
        return STRATEGIES[strategy_name(text(given[key], key), key)], ""
    kinds = {OLD_NAMES.get(kind, kind) for kind in _kinds(given)}
    formats = {value for value in _values(given, "data_format") if value in ("BFP16", "FP16")}
    if kinds & {"FSQuantizer", "MAFSQuantizer"} or formats:
        what = ", ".join(sorted(kinds & {"FSQuantizer", "MAFSQuantizer"} or formats))
        return STRATEGIES["fs"], f"; no strategy is named, and {what} needs fs"
    if kinds == {"TQTQuantizer"}:
        return STRATEGIES["tqt"], "; no strategy is named, and all quantizers are TQTQuantizer"
    return STRATEGIES["pof2s"], "" if not given else "; no strategy is named"


def _kinds(value: Any) -> Iterator[str]:
    for key in ("type", "quantizer_type"):
        yield from (found for found in _values(value, key) if found.endswith("Quantizer"))


def _values(value: Any, key: str) -> Iterator[str]:
    """Every text under a key, however deep."""
    if isinstance(value, Mapping):
        if isinstance(value.get(key), str):
            yield value[key]
        for inner in value.values():
            yield from _values(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _values(inner, key)


def _apply_entries(registry: Registry, parts: _Parts, *, folds_batchnorm: bool) -> None:
    key, listed = parts.registry.get("custom_layer_type", ("custom_layer_type", None))
    custom = [] if listed is None else texts(listed, key)
    if listed is not None:
        here = {str(node.op) for node in registry.graph.nodes()}
        absent = [name for name in custom if name not in here]
        became = "names of operators that patterns may use" if custom else "not set"
        registry.translator.row(key, listed, became + (f"; not in the model: {', '.join(absent)}" if absent else ""))
    where, entries = parts.registry.get("layer_quantize_config", ("layer_quantize_config", None))
    if entries is not None:
        patterns = read_patterns(entries, registry.graph, custom, where)
        Entries(registry, patterns, folds_batchnorm=folds_batchnorm).apply()


def _backend(run: Run) -> str:
    options = []
    name = "fs" if run.not_dpu else run.strategy.name
    if name != "pof2s":
        options.append(f"strategy={name}")
    if run.approximations != "usual":
        options.append(f"approximations={run.approximations}")
    if run.formats != "dpu":
        options.append(f"formats={run.formats}")
    return "vitis:" + ",".join(options) if options else "vitis"
