"""A quantizer type of the user's own in a strategy: a fake-quantizer by the name of a plugin, by class, by its class's
name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.compat import mqbench
from onnxq.config import read_config
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.qat.prepare import prepare
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import Argument, Kind, add_kind, forget_class, forget_kind
from tests.targets.amd.vitis_runs import CONV, RESNET, became, exported, graph_of, samples, translated

PLUGIN = """
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import Argument, Kind, add_kind

add_kind(Kind("soft_edges", "gradients outside of the range", "as fixed", arguments=(Argument("slope", 0.1),)))


@FAKE_QUANTIZERS.register("soft_edges")
class SoftEdgesQuantizer(FakeQuantize):
    pass
"""


class LeakyQuantizer(FakeQuantize):
    """A gradient outside of the range, too."""

    def quantize(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return super().quantize(x, *rest) + self.settings.argument("slope") * (x - x.detach())


@pytest.fixture(autouse=True)
def leaky() -> Iterator[None]:
    add_kind(Kind("leaky_test", "a small gradient outside", "as fixed", arguments=(Argument("slope", 0.1),)))
    add_kind(Kind("powers_test", "", "as fixed", implied={"power_of_two": True, "symmetric": True}))
    add_kind(Kind("weights_test", "", "as fixed", roles=("weight",)))
    FAKE_QUANTIZERS.add("leaky_test", LeakyQuantizer)
    yield
    FAKE_QUANTIZERS.forget("leaky_test")
    forget_class(LeakyQuantizer)
    for name in ("leaky_test", "powers_test", "weights_test"):
        forget_kind(name)


def entry(kind: Any, target: str = "weight", base: str = "pof2s", **params: Any) -> dict[str, Any]:
    quantizer = {"type": kind, "params": params}
    targets = [{"target_type": target, "target_name": "", "quantizer_config": quantizer}]
    layer = {"layer_type": "Conv2D", "layer_name": "layer1.conv1", "quant_config": targets}
    return {"strategy": base, "layer_quantize_config": [layer]}


def settings(strategy: dict[str, Any], part: str = "weight") -> dict[str, Any]:
    return dict(translated(strategy).config["node"][CONV][part])


@pytest.mark.parametrize("kind", ["leaky_test", LeakyQuantizer, "LeakyQuantizer"])
@pytest.mark.parametrize("base", ["pof2s", "tqt", "fs"])
def test_a_quantizer_of_ones_own_has_the_scales_of_the_strategy(kind: Any, base: str) -> None:
    made = settings(entry(kind, base=base, slope=0.25, bit_width=6, method="No_OF"))
    assert made["fake_quantizer"] == "leaky_test:slope=0.25"
    assert made["bits" if "bits" in made else "dtype"] in (6, "int6")
    assert made["power_of_two"] is (base != "fs")
    assert made["observer"].startswith("minmax" if base == "fs" else "no_overflow")
    row = became(translated(entry(kind, base=base)), "layer_quantize_config[0].quant_config[0]")
    assert "fake_quantizer leaky_test" in row
    assert "without training: as fixed" in row


def test_its_module_is_the_one_that_is_trained() -> None:
    data = {name: values[:4] for name, values in samples(RESNET).items()}
    net = prepare(exported(RESNET), data=data, config=translated(entry(LeakyQuantizer, slope=0.25)))
    module = net.fake_quantizer("layer1.conv1.weight")
    assert type(module) is LeakyQuantizer
    assert module.settings.argument("slope") == 0.25
    assert type(net.fake_quantizer("layer3.conv1.weight")) is not LeakyQuantizer


def test_inputs_can_have_one() -> None:
    made = translated({"input_quantize_config": {"input_quantizer": {"type": "leaky_test", "params": {}}}})
    assert made.config["input"]["fake_quantizer"] == "leaky_test"
    read_config(made)


def test_it_has_the_scales_that_it_demands() -> None:
    assert settings(entry("powers_test", base="fs"))["power_of_two"] is True


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (entry("leaky_test", slop=1), "Did you mean 'slope'"),
        (entry("leaky_test", slope=-1), "must be a number, above 0"),
        (entry("leaky_test", bit_width=99), "must be a whole number of 1 to 16"),
        (entry("leaky_test", base="fs", max_quantize_pos=3), "has no max_quantize_pos"),
        (entry("weights_test", "output"), "weights_test is for weight, not for activation"),
        (entry("LeakyQuantiser"), "unknown quantizer 'LeakyQuantiser'.*--plugin"),
        (entry("Pof2sQuantizer"), "Did you mean 'Pof2SQuantizer'"),
        (entry(dict), "the class dict is no fake-quantizer of onnxq"),
        (entry(3), "must be a text"),
    ],
)
def test_mistakes_are_named_with_their_place(strategy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        translated(strategy)
    assert str(caught.value).startswith("layer_quantize_config[0].quant_config[0]")


def test_mqbench_takes_the_class_as_well() -> None:
    extra = {"extra_qconfig_dict": {"w_fakequantize": LeakyQuantizer, "w_fakeq_params": {"slope": 0.25}}}
    made = mqbench.translate(extra, graph_of(RESNET), "Tensorrt")
    assert made.config["weight"]["fake_quantizer"] == "leaky_test:slope=0.25"


def test_the_command_line_takes_the_name_of_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(PLUGIN)
    (tmp_path / "strategy.json").write_text(json.dumps(entry("soft_edges", slope=0.2)))
    np.savez(tmp_path / "data.npz", **{name: values[:4] for name, values in samples(RESNET).items()})
    given = ["quantize", exported(RESNET), "--vitis", str(tmp_path / "strategy.json"), "-d", str(tmp_path / "data.npz")]
    ended = CliRunner().invoke(
        app, [*map(str, given), "--plugin", str(tmp_path / "soft.py"), "-o", str(tmp_path / "o")]
    )
    forget_kind("soft_edges")
    FAKE_QUANTIZERS.forget("soft_edges")
    assert ended.exit_code == 0, ended.output
    plan = json.loads((tmp_path / "o" / "plan.json").read_text())
    assert "soft_edges:slope=0.2" in json.dumps(plan)
    assert Graph.load(tmp_path / "o" / "model.onnx").nodes("QuantizeLinear")
