"""A fake-quantizer from a file of the user's own: its kind, its module, its place in lists and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from onnxq.cli import catalogue
from onnxq.errors import ConfigError
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.plugins import run_file
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize, make_fake_quantizer
from onnxq.types import Placement, QParams, QuantSpec
from onnxq.types.fake_quantizers import Argument, Kind, add_kind, forget_kind, read_fake_quantizer

PLUGIN = '''
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import Argument, Kind, add_kind

add_kind(Kind("damped", "gradients are multiplied by a factor", "the same numbers as fixed",
              arguments=(Argument("factor", 0.5),)))


@FAKE_QUANTIZERS.register("damped")
class Damped(FakeQuantize):
    """Smaller gradients."""

    def quantize(self, x, scale, zero_point, layout):
        y = super().quantize(x, scale, zero_point, layout)
        y.register_hook(lambda gradient: gradient * self.settings.argument("factor"))
        return y
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "damped.py"
    path.write_text(PLUGIN)
    yield path
    forget_kind("damped")
    FAKE_QUANTIZERS.forget("damped")


def test_one_file_adds_a_kind_and_its_module(plugin: Path) -> None:
    run_file(plugin, "plugin")
    run_file(plugin, "plugin")  # a second time changes nothing
    spec = QuantSpec("int4")
    qparams = qparams_from_range(-1.0, 1.0, spec)
    placement = Placement("w", spec, "weight", "test", fake_quantizer="damped:factor=0.25")
    quantizer = make_fake_quantizer(placement, qparams)
    x = torch.linspace(-0.9, 0.9, 7).requires_grad_()
    y = quantizer(x)
    np.testing.assert_array_equal(y.detach().numpy(), fake_quantize(x.detach().numpy(), qparams))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.25] * 7
    assert "damped" in [entry["name"] for entry in catalogue.fake_quantizers()]


def test_a_name_that_is_taken_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "clash.py"
    path.write_text(PLUGIN.replace('"damped"', '"lsq"'))
    with pytest.raises(ConfigError, match=r"clash\.py.*'lsq' exists already"):
        run_file(path, "plugin")


def test_a_kind_without_a_module_says_how_to_register_one() -> None:
    add_kind(Kind("bare", "nothing yet", "the same numbers as fixed", arguments=(Argument("n", 1.0),)))
    try:
        placement = Placement("w", QuantSpec(), "weight", "test", fake_quantizer="bare")
        with pytest.raises(ConfigError, match=r"'bare' of 'w' has no module.*FAKE_QUANTIZERS\.register"):
            make_fake_quantizer(placement, qparams_from_range(-1.0, 1.0, QuantSpec()))
    finally:
        forget_kind("bare")


def test_methods_with_their_old_names_go_on_working() -> None:
    with pytest.warns(DeprecationWarning, match="Doubled.numbers is now called qparams"):

        class Doubled(FakeQuantize):
            def numbers(self) -> tuple[torch.Tensor, torch.Tensor]:
                scale, zero_point = super().numbers()  # type: ignore[misc]
                return scale * 2, zero_point

    spec = QuantSpec("int4")
    made = Doubled(
        Placement("w", spec, "weight", "test"), qparams_from_range(-1.0, 1.0, spec), read_fake_quantizer("fixed")
    )
    with pytest.warns(DeprecationWarning, match="FakeQuantize.numbers is now called qparams"):
        scale, _ = made.qparams()
    assert float(scale) == 2 * float(made.scale)


def test_an_old_name_behind_super_is_the_method_of_the_class_above() -> None:
    with pytest.warns(DeprecationWarning, match="Mine.hold is now called init_qparams"):

        class Mine(FAKE_QUANTIZERS.get("lsq")):  # type: ignore[misc]
            def hold(self, qparams: QParams) -> None:
                super().hold(qparams=qparams)

    spec = QuantSpec("int4")
    with pytest.warns(DeprecationWarning, match="hold is now called init_qparams"):
        made = Mine(
            Placement("w", spec, "weight", "test"), qparams_from_range(-1.0, 1.0, spec), read_fake_quantizer("lsq")
        )
    assert [name for name, _ in made.named_parameters()] == ["scale"]
    assert made.speeds == made.lr_multipliers
