"""Backends by MQBench's names, and typing errors at every level of a configuration."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest

from onnxq.compat.mqbench import BackendType
from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from tests.compat.mqbench_plans import SCHEMES, became, planned, qconfig, translated

TARGETS = {
    "Academic": "academic",
    "Tensorrt": "tensorrt",
    "SNPE": "snpe",
    "PPLW8A16": "pplw8a16",
    "NNIE": "nnie",
    "Vitis": "vitis",
    "ONNX_QNN": "onnx_qnn",
    "PPLCUDA": "pplcuda",
    "OPENVINO": "openvino",
    "Tengine_u8": "tengine_u8",
    "Tensorrt_NLP": "tensorrt_nlp",
    "Academic_NLP": "academic_nlp",
    "STPU": "stpu",
    "QDQ": "tensorrt:tables=no",
}


class Theirs(enum.Enum):
    """Stands for the enum of an installed MQBench, whose values are names or numbers."""

    SNPE = 3


@pytest.mark.parametrize("member", BackendType)
def test_every_backend_of_mqbench_is_a_target(member: BackendType) -> None:
    extra = qconfig(**SCHEMES) if "Academic" in member.name else None
    for given in (member, member.value, member.value.lower(), member.value.upper(), f"BackendType.{member.name}"):
        assert translated(extra, given).backend == TARGETS[member.name]


def test_an_enum_of_somebody_else_is_taken_by_its_name() -> None:
    translation = translated(None, Theirs.SNPE)
    assert translation.backend == "snpe"
    assert became(translation, "backend") == "backend = snpe"


def test_targets_of_onnxq_are_taken_with_their_options() -> None:
    assert translated(None, "onnxruntime").backend == "onnxruntime"
    assert translated(None, "vitis:strategy=fs").backend == "vitis:strategy=fs"
    assert translated(None, "Vitis:strategy=fs").backend == "vitis:strategy=fs"


def test_the_target_decides_where_quantizers_stand() -> None:
    assert len(planned(None, "SNPE")) != len(planned(None, "Tensorrt"))


def test_the_names_are_those_that_targets_say_they_have() -> None:
    known = [known.name for _, backend in BACKENDS.items() for known in backend.known_as]
    assert sorted(known) == sorted(member.value for member in BackendType)
    assert {name.partition(":")[0] for name in TARGETS.values()} <= set(BACKENDS.names())


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("Tensort", "Did you mean 'Tensorrt'"),
        ("onnxruntim", "Did you mean 'onnxruntime'"),
        ("Sophgo_TPU", r"use onnxq\.targets\.sophgo\.dialect"),
        ("vitis:strategi=fs", "Did you mean 'strategy'"),
        (None, "a backend is a name or a BackendType"),
    ],
)
def test_a_wrong_backend_is_an_error_with_the_nearest(backend: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(None, backend)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"extra_qconfig": {}}, "Did you mean 'extra_qconfig_dict'"),
        (qconfig(w_observr="MSEObserver"), "Did you mean 'w_observer'"),
        (qconfig(w_observer="MSEObservr"), "Did you mean 'MSEObserver'"),
        (qconfig(a_observer="EMAMinMaxObserver", a_observer_extra_args={"ema_rato": 0.9}), "ema_rati|decay"),
        (qconfig(a_observer="MSEObserver", a_observer_extra_args={"p": 2.4}), "always 2"),
        (qconfig(a_fakequantize="PACTFakeQuantise"), "Did you mean 'PACTFakeQuantize'"),
        (qconfig(a_fakequantize="PACTFakeQuantize", a_fakeq_params={"alfa": 4}), "Did you mean 'alpha'"),
        (qconfig(w_qscheme={"bits": 8}), "Did you mean 'bit'"),
        (qconfig(w_qscheme={"simmetry": True}), "Did you mean 'symmetry'"),
        (qconfig(a_fakeq_params=[1]), "must hold arguments and values"),
        (qconfig(w_observer=5), "a name or a class is expected"),
        ({"extra_qconfig_dict": [1]}, "extra_qconfig_dict must hold keys and values"),
        ({"extra_quantizer_dict": "x"}, "extra_quantizer_dict must hold keys and values"),
        ([1], "extra_config must hold keys and values"),
    ],
)
def test_typing_errors_are_errors_with_the_nearest(extra: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(extra)


def test_the_error_says_where() -> None:
    with pytest.raises(ConfigError, match=r"^extra_qconfig_dict\.a_observer: "):
        translated(qconfig(a_observer="Histogram"))


def test_leaf_modules_are_named_as_without_effect() -> None:
    assert became(translated({"leaf_module": ["torch.nn.LSTM"]}), "leaf_module").startswith("no effect")


def test_empty_parts_get_a_row() -> None:
    keys = ("extra_qconfig_dict", "extra_quantizer_dict", "preserve_attr", "extra_fuse_dict")
    translation = translated({key: {} for key in keys})
    assert translation.config == {"effort": 0}
    for key in keys:
        assert became(translation, key) == "no effect: it is empty"


def test_the_command_line_ends_with_code_2_and_the_nearest_name(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from onnxq.cli.app import app
    from tests.networks.exported import exported

    (tmp_path / "extra.json").write_text('{"extra_qconfig_dict": {"w_observer": "MSEObservr"}}')
    arguments = ["translate", str(exported("resnet_torchscript")), "-b", "Tensorrt", "--mqbench"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "extra.json")])
    assert result.exit_code == 2
    assert "Did you mean 'MSEObserver'" in result.stderr
