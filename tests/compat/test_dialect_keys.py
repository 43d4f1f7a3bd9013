"""docs/dialect-keys.md against the readers and the tests: nothing is missing on the page, and nothing is made up."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from onnxq.compat.mqbench import BackendType
from onnxq.compat.mqbench.fusing import FUSE_KEYS
from onnxq.compat.mqbench.qconfig import QCONFIG_KEYS
from onnxq.compat.mqbench.quantizer import NAME_KEYS, QUANTIZER_KEYS, TYPE_KEYS
from onnxq.compat.mqbench.schemes import BASE_ARGUMENTS, SCHEME_KEYS
from onnxq.compat.mqbench.translate import EXTRA_KEYS
from onnxq.compat.read import read_dictionary
from onnxq.compat.torch_names import chain_of
from onnxq.errors import ConfigError
from onnxq.numerics import fake_quantize
from onnxq.observers.aliases import ALIASES as OBSERVERS
from onnxq.targets.amd.dialect import patterns, pipelines, quantizers, registry, strategy, targets
from onnxq.targets.amd.dialect.builtin import STRATEGIES
from onnxq.targets.sophgo.dialect import entries, quantizer, target
from onnxq.targets.sophgo.dialect.translate import KNOWN as SOPHGO_KEYS
from onnxq.targets.sophgo.dialect.translate import QCONFIG_KNOWN
from onnxq.types import PerChannel, PerTensor, Placement, QParams, QuantSpec
from onnxq.types.fake_quantizers import ALIASES as FAKE_QUANTIZERS
from tests.compat.printed_keys import PAGES, VITIS_QUANTIZERS

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "dialect-keys.md"
KINDS = ("key", "value", "class", "function", "step")
SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Item:
    """A row of the page: `tool` is the first word of its section."""

    tool: str
    name: str
    kind: str
    became: str
    tests: tuple[str, ...]


@cache
def page() -> tuple[Item, ...]:
    found, tool = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            tool = line[3:].partition(":")[0]
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            names, kind, became, tests = cells
            found += [Item(tool, name, kind, became, tuple(SPAN.findall(tests))) for name in SPAN.findall(names)]
    return tuple(found)


def names(tool: str, *kinds: str) -> set[str]:
    return {item.name for item in page() if item.tool == tool and item.kind in (kinds or KINDS)}


def under(table: str, keys: object) -> set[str]:
    return {f"{table}.{key}" for key in keys}  # type: ignore[attr-defined]


def known_to_mqbench() -> set[str]:
    schemes = [key for letter in "wa" for key in under(f"{letter}_qscheme", (*SCHEME_KEYS, *BASE_ARGUMENTS))]
    return {
        *EXTRA_KEYS,
        *under("extra_qconfig_dict", QCONFIG_KEYS),
        *schemes,
        *under("extra_quantizer_dict", QUANTIZER_KEYS),
        *under("extra_fuse_dict", FUSE_KEYS),
        *(name for name in OBSERVERS.names() if name.endswith("Observer")),
        *(member.name for member in BackendType),
        *(name for name in FAKE_QUANTIZERS if name.endswith("FakeQuantize") and name not in OF_SOPHGO),
    }


OF_SOPHGO = {"E4M3FakeQuantize", "E5M2FakeQuantize", "Fp16FakeQuantize", "BF16FakeQuantize"}


def known_to_sophgo() -> set[str]:
    lists = (quantizer.OBSERVED, *NAME_KEYS, *TYPE_KEYS)
    return {
        *SOPHGO_KEYS,
        *under("quant_dict", target._KNOWN),
        *(f"chip: {chip}" for chip in target.CHIPS),
        *(f"quantmode: {mode}" for mode in target.MODES),
        *(f"strategy: {name}" for name in target.STRATEGIES),
        *under("extra_qconfig_dict", QCONFIG_KNOWN),
        *under("entry", entries._KNOWN),
        *(f"mode: {mode}" for mode in entries.MODES),
        *under("extra_quantizer_dict", lists),
        *OF_SOPHGO,
    }


def known_to_vitis() -> set[str]:
    sections = {f"{section}.{name}" for section, switches in pipelines.SECTIONS.items() for name in switches}
    params = {f"{kind}.{name}" for kind, reads in quantizers.KINDS.items() for name in reads}
    return {
        *strategy.BASE_KEYS,
        strategy.EFFORT,
        *STRATEGIES,
        *pipelines.SECTIONS,
        *sections,
        strategy.REGISTRY,
        *strategy.REGISTRY_KEYS,
        *registry.USER_KEYS,
        *quantizers.KINDS,
        *params,
        *under("entry", patterns.KEYS),
        *under("target", ("target_name", "target_type", "shared_quantizer", "quantizer_config")),
        *(f"target_type: {name}" for name in targets.TARGET_TYPES),
        *(f"method: {name}" for name in quantizers.METHODS),
        *(f"round_mode: {name}" for name in quantizers.ROUNDINGS),
        *(f"data_format: {name}" for name in quantizers.FORMATS),
    }


KNOWN = {"MQBench": known_to_mqbench, "Sophgo-mq": known_to_sophgo, "Vitis AI": known_to_vitis}
OTHER_SPELLINGS = {
    "MQBench": {"preserve_attr['']", "preserve_attr['backbone']"},
    "Sophgo-mq": {*under("w_qscheme", SCHEME_KEYS), *under("a_qscheme", SCHEME_KEYS)},
    "Vitis AI": {
        *under("quantizer", ("name", "type", "params", "quantizer_type", "quantizer_params")),
        *under("input_quantize_config", ("input_layers", "input_quantizer")),
        *("entry.pattern", "FSQuantizer.use_framework_quantizer"),
    },
}
"""Keys that readers take and no table of theirs lists: nested ones, and the document's spelling of others."""


@pytest.mark.parametrize("tool", KNOWN)
def test_every_key_that_a_reader_knows_is_on_the_page(tool: str) -> None:
    assert KNOWN[tool]() - names(tool) == set()


@pytest.mark.parametrize("tool", KNOWN)
def test_every_key_on_the_page_is_one_that_a_reader_knows(tool: str) -> None:
    assert names(tool, "key") - KNOWN[tool]() - OTHER_SPELLINGS[tool] == set()


def test_every_class_and_value_of_torch_on_the_page_is_known() -> None:
    known = {name for find in KNOWN.values() for name in find()} | {*OBSERVERS.names(), *FAKE_QUANTIZERS}
    for item in page():
        if item.kind == "class" and item.name not in known:
            assert chain_of(item.name, "the page")


@pytest.mark.parametrize(("tool", "printed"), list(zip(KNOWN, PAGES.values(), strict=True)))
def test_every_word_that_a_document_prints_is_on_the_page(tool: str, printed: tuple[str, ...]) -> None:
    words = {word for name in names(tool) for word in re.findall(r"\w+", name)}
    assert set(printed) - words == set()


def test_every_parameter_of_every_quantizer_of_the_document_has_a_row() -> None:
    wanted = {f"{kind}.{param}" for kind, params in VITIS_QUANTIZERS.items() for param in params}
    assert wanted - names("Vitis AI", "key") == set()


def test_rows_are_whole_and_stand_once_in_a_section() -> None:
    items = page()
    assert len(items) > 380
    for item in items:
        assert item.tool in KNOWN
        assert item.kind in KINDS, item
        assert item.became, item
        assert item.tests, f"{item.name} has no test"
    for tool in KNOWN:
        keys = [item.name for item in items if item.tool == tool and item.kind in ("key", "value", "class")]
        assert [name for name in set(keys) if keys.count(name) > 1] == []


@cache
def functions_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_on_the_page_exists() -> None:
    for item in page():
        for named in item.tests:
            file, _, function = named.partition("::")
            assert (TESTS / f"{file}.py").is_file(), f"{item.name}: no file tests/{file}.py"
            assert function in functions_in(file), f"{item.name}: no test {named}"


def test_the_page_says_of_nothing_that_it_is_ignored_without_a_reason() -> None:
    for item in page():
        if item.became.startswith("no effect"):
            assert re.match(r"no effect(: .{8,}|, with the reason)", item.became), item


# ---- items that no other test shows ------------------------------------------------------------------------------


def test_a_key_that_stands_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.py"
    file.write_text(
        "prepare_custom_config_dict = {\n"
        "    'quant_dict': {'chip': 'SG2260', 'quantmode': 'weight_activation', 'strategy': 'CNN'},\n"
        "    'extra_qconfig_dict': {'w_observer': 'MinMaxObserver'},\n"
        "    'extra_qconfig_dict': {'exclude_module_name': ['layer3.conv3']},\n"
        "}\n"
    )
    with pytest.raises(ConfigError, match=r"config\.py:4: the key 'extra_qconfig_dict' stands twice"):
        read_dictionary(file, ("prepare_custom_config_dict",), "Sophgo-mq")


def test_a_fake_quantizer_prints_what_the_notes_list() -> None:
    pytest.importorskip("torch")
    from onnxq.torchnet.fake_quantize import make_fake_quantizer

    spec = QuantSpec("uint8", symmetric=False)
    placement = Placement("x", spec, role="activation", fake_quantizer="lsq_plus", observe=("x",), why="")
    module = make_fake_quantizer(placement, QParams(spec, np.float32(0.25), np.int32(7)))
    shown = repr(module)
    for word in (
        "uint8",
        "asymmetric",
        "fake_quant_enabled=True",
        "observer_enabled=False",
        "scale=0.25",
        "zero_point=7",
    ):
        assert word in shown
    spec = QuantSpec("int8", granularity=PerChannel(0))
    held = QParams(spec, np.float32([0.5, 2.0]), np.int32([0, 0]))
    weights = make_fake_quantizer(Placement("w", spec, role="weight", why=""), held)
    assert "2 scales from 0.5 to 2" in repr(weights)
    assert "axis 0" in repr(weights)


@pytest.mark.parametrize("channels", [False, True])
def test_numbers_are_those_of_torch_except_between_two_steps(*, channels: bool) -> None:
    torch = pytest.importorskip("torch")
    spec = QuantSpec("uint8", symmetric=False, granularity=PerChannel(0) if channels else PerTensor())
    scales = np.float32([0.1, 0.37]) if channels else np.float32(0.1)
    held = QParams(spec, scales, np.full_like(scales, 20, np.int32))
    x = np.random.default_rng(3).normal(5, 9, (2, 4000)).astype(np.float32)
    values = torch.from_numpy(x)
    if channels:
        zeros = torch.from_numpy(held.zero_point.copy())
        theirs = torch.fake_quantize_per_channel_affine(values, torch.from_numpy(scales.copy()), zeros, 0, 0, 255)
    else:
        theirs = torch.fake_quantize_per_tensor_affine(values, 0.1, 20, 0, 255)
    ours = fake_quantize(x, held)
    step = scales.reshape(-1, 1) if channels else scales
    between = np.abs((x / step) % 1 - 0.5) < 1e-3
    np.testing.assert_allclose(ours[~between], theirs.numpy()[~between], rtol=1e-6)
    assert np.abs((ours - theirs.numpy()) / step).max() < 1.001
