"""Packages that are installed beside onnxq and name a module under the entry point group `onnxq.plugins`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PLUGIN = """
from onnxq.targets import BACKENDS
from onnxq.torchnet import op
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import Kind, add_kind

add_kind(Kind("quiet", "no noise", "the same numbers as fixed"))
BACKENDS.add("abacus", BACKENDS.get("onnxruntime").replace(name="abacus"))


@FAKE_QUANTIZERS.register("quiet")
class Quiet(FakeQuantize):
    pass


@op("Twice", domain="abacus.ops")
def twice(call):
    return lambda x: 2 * x
"""

USES = {
    "a configuration": """
        from onnxq.config import read_config
        assert read_config({"weight": {"fake_quantizer": "quiet"}}).weight.fake_quantizer == "quiet"
    """,
    "a backend": """
        from onnxq.targets import BACKENDS
        assert BACKENDS.get("abacus").name == "abacus"
    """,
    "an operator and a module to train with": """
        from onnxq.torchnet import OPERATORS
        from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS
        assert OPERATORS.find("abacus.ops", "Twice", 1) is not None
        assert "quiet" in FAKE_QUANTIZERS
    """,
    "the list of fake-quantizers": """
        from onnxq.cli.catalogue import fake_quantizers
        assert "quiet" in [row["name"] for row in fake_quantizers()]
    """,
}


def _install(folder: Path, code: str) -> None:
    (folder / "abacus_plugin.py").write_text(code)
    info = folder / "abacus-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[onnxq.plugins]\nabacus = abacus_plugin\n")


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.getcwd()])}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("use", sorted(USES))
def test_whoever_asks_first_finds_what_a_package_registers(use: str, tmp_path: Path) -> None:
    _install(tmp_path, PLUGIN)
    done = _run(tmp_path, USES[use])
    assert done.returncode == 0, done.stderr


def test_a_broken_package_is_named_every_time(tmp_path: Path) -> None:
    _install(tmp_path, "1 / 0")
    done = _run(
        tmp_path,
        """
        from onnxq.targets import BACKENDS
        from onnxq.errors import ConfigError
        said = []
        for _ in range(2):
            try:
                BACKENDS.get("nobody")
            except ConfigError as error:
                said.append(str(error))
        assert all("plugin 'abacus' of package abacus" in text and "ZeroDivisionError" in text for text in said), said
        """,
    )
    assert done.returncode == 0, done.stderr
