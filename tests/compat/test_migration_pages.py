"""The migration pages and the table of a run name every key of the documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.errors import ConfigError
from tests.compat import mqbench_plans as mqbench
from tests.compat.printed_keys import CASES, SCHEME_KEYS
from tests.networks.exported import exported, samples
from tests.targets.amd import vitis_runs as vitis
from tests.targets.amd.vitis_runs import one_quantizer

DOCS = Path(__file__).resolve().parents[2] / "docs"


def words_in_tables(page: str) -> set[str]:
    """What stands in the tables of a page as code, word by word."""
    text = (DOCS / f"migrating-from-{page}.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {word for row in rows for span in re.findall(r"`([^`]+)`", row) for word in re.findall(r"\w+", span)}


@pytest.mark.parametrize("page", sorted({page for page, _ in CASES}))
def test_a_table_of_the_page_has_every_key(page: str) -> None:
    assert {key for named, key in CASES if named == page} <= words_in_tables(page)


@pytest.mark.parametrize("letter", ["w", "a"])
@pytest.mark.parametrize("key", SCHEME_KEYS)
def test_the_page_on_sophgo_says_what_a_key_means_for_weights_and_for_activations(letter: str, key: str) -> None:
    text = (DOCS / "migrating-from-sophgo.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("|") and f"`{letter}_qscheme.{key}`" in line]


# ---- the table ---------------------------------------------------------------------------------------------------

FOREIGN: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "mqbench": (
        ("-b", "Tensorrt"),
        {
            "extra_qconfig_dict": {"w_observer": "MSEObserver", "a_qscheme": {"bit": 8, "symmetry": True}},
            "extra_quantizer_dict": {"exclude_module_name": ["layer3.conv3"]},
            "preserve_attr": {"": ["layer1"]},
            "extra_fuse_dict": {"additional_fuser_method_mapping": {"(torch.nn.Conv2d, torch.nn.ReLU)": "fuse"}},
            "concrete_args": {"image": {"shape": [1, 3, 32, 32]}},
        },
        "layer3.conv1.weight",
        "MQBench: extra_qconfig_dict.w_observer",
    ),
    "sophgo": (
        (),
        {
            "quant_dict": {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN"},
            "extra_qconfig_dict": {
                "w_observer": "MinMaxObserver",
                "w_qscheme": {"bit": 8, "symmetry": True, "per_channel": True, "pot_scale": False},
                "object_type": {"torch.nn.Conv2d": {"mode": "weight", "bit": "8", "wobserver": "MSEObserver"}},
                "module_name": {"layer1.conv1": {"mode": "activation", "aobserver": "EMAMinMaxObserver"}},
            },
            "extra_quantizer_dict": {
                "module_only_enable_observer": ["features.0.0.weight_fake_quant"],
                "exclude_module_name": ["layer3.conv3"],
                "exclude_function_type": ["torch.nn.functional.sigmoid"],
            },
        },
        "/layer1/relu/Relu_output_0",
        "module_name['layer1.conv1'].aobserver",
    ),
    "vitis": (
        (),
        {
            "strategy": "pof2s",
            "optimize_pipeline_config": {"fold_conv_bn": True, "include_cle": False},
            "quantize_pipeline_config": {"convert_leaky_relu_to_dpu_version": False},
            "refine_pipeline_config": {"adjust_dpu_shift_cut": False},
            "quantize_registry_config": {
                "user_defined_quantize_config": {"activation_method": "No_OF"},
                "input_quantize_config": {"input_layers": ["image"], "input_quantizer": {"type": "Pof2SQuantizer"}},
                "layer_quantize_config": one_quantizer("Pof2SQuantizer", "weight")["layer_quantize_config"],
            },
        },
        "layer1.conv1.weight",
        "vitis: quantize_registry_config.layer_quantize_config[0].quant_config[0]",
    ),
}


def leaves(given: Any) -> list[str]:
    """The keys of a configuration that hold no dictionary with keys of its own."""
    found: list[str] = []
    for key, value in given.items():
        inner = leaves(value) if isinstance(value, dict) else []
        found += inner or [str(key)]
    return found


@pytest.mark.parametrize("tool", FOREIGN)
def test_the_terminal_and_the_report_say_what_each_key_became(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, given, tensor, source = FOREIGN[tool]
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **samples(mqbench.RESNET, 4))  # type: ignore[arg-type]
    Path("given.json").write_text(json.dumps(given))
    command = ["quantize", str(exported(mqbench.RESNET)), *target, f"--{tool}", "given.json", "-d", "data.npz"]
    done = CliRunner().invoke(app, [*command, "-o", "out", "--min-sqnr", "-100"], prog_name="onnxq")
    assert done.exit_code == 0, done.output
    rows = json.loads(Path("out/report.json").read_text())["translated"]["keys"]
    assert all(row["key"] and row["became"] for row in rows)
    printed = "".join(done.stdout.split())
    told = " ".join(f"{row['key']} {row['value']}" for row in rows)
    for row in rows:
        assert row["key"].split("[")[0].replace(" ", "") in printed
    for key in leaves(given):
        assert key in told, f"{key} has no row"
    answer = CliRunner().invoke(app, ["explain", "out", tensor, "--json"], prog_name="onnxq")
    assert source in answer.stdout


def test_an_unknown_key_among_many_is_answered_in_a_sentence_that_can_be_read() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'weight_bit'") as caught:
        vitis.translated({"weigth_bit": 4})
    assert "more" in str(caught.value)
    assert len(str(caught.value)) < 900
