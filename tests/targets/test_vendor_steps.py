"""Which file goes to which tool of a vendor: every file that is named is written, and every step can be filled."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import onnxq
from onnxq.emit import EMITTERS
from onnxq.page.document import read_page
from onnxq.pipeline.summary import vendor_lines
from onnxq.pipeline.vendor_steps import vendor_steps
from onnxq.targets import BACKENDS, get_backend
from onnxq.types.vendor_step import MODEL, NAME, SHAPES, VendorStep
from tests.golden_graphs import GOLDEN

WITHOUT = {"academic", "academic_nlp", "pplw8a16", "stpu", "sophgo_academic"}
"""Targets that no tool belongs to which anybody could run."""


@pytest.mark.parametrize("name", BACKENDS.names())
def test_every_word_of_a_step_is_a_file_of_the_target(name: str) -> None:
    backend = BACKENDS.get(name)
    words = {*backend.emitters, MODEL, NAME, SHAPES}
    assert all(step.words <= words for step in backend.vendor_steps)
    assert bool(backend.vendor_steps) is (name not in WITHOUT)
    files = {file for one in backend.emitters for file in EMITTERS.get(one).file_names("net")}
    for step in vendor_steps(backend, "net"):
        assert not re.search(r"\{[\w.]+\}", step["line"])
        named = set(re.findall(r"net[\w.]*\.(?:onnx|json|cache|table|scale)\b", step["line"]))
        assert named <= files, f"{name} names a file that nobody writes"


def test_steps_of_files_that_are_not_written_are_left_out() -> None:
    whole = [step["line"] for step in vendor_steps(get_backend("tensorrt"), "net")]
    plain = [step["line"] for step in vendor_steps(get_backend("tensorrt:tables=no"), "net")]
    assert [line for line in whole if "--calib=" in line]
    assert plain == [line for line in whole if "--calib=" not in line]
    assert vendor_steps(get_backend("tensorrt"), "net", written={"net.onnx"}) == vendor_steps(
        get_backend("tensorrt:tables=no"), "net"
    )


def test_options_of_a_target_are_in_its_commands() -> None:
    def compiled(target: str) -> str:
        return str(vendor_steps(get_backend(target), "net")[1]["line"])

    assert "--asymmetric" in shlex.split(compiled("sophgo_bm1684x:asymmetric=yes"))
    assert "--tolerance" in shlex.split(compiled("sophgo_bm1688:precision=INT4"))
    weights = shlex.split(compiled("sophgo_bm1688:mode=weight_only,strategy=Transformer"))
    assert weights[weights.index("--quantize") + 1] == "W8F16"
    assert 'target="esp32s3"' in vendor_steps(get_backend("espdl:chip=esp32s3"), "net")[0]["line"]


@pytest.mark.parametrize("target", ["ncnn", "qnn", "sophgo_bm1688", "tensorrt"])
def test_a_run_says_them_with_its_own_files(target: str, tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    config = {"effort": 0, "minimum_sqnr_db": -100.0, "name": "net"}
    result = onnxq.quantize(golden.model, backend=target, data=golden.samples, out=tmp_path, config=config)
    steps = result.report["vendor_steps"]
    assert steps
    named = [word for step in steps for word in re.findall(r"net_\w+\.(?:onnx|json)|net_\w*table\w*", step["line"])]
    assert all((tmp_path / word).is_file() for word in named)
    assert read_page(tmp_path / "report.html")["next"] == steps
    assert vendor_lines(steps)[0].split()[0] in result.summary()
    if target == "sophgo_bm1688":
        assert "--input_shapes '[[1," in steps[0]["line"]


def test_a_summary_names_two_and_counts_the_rest() -> None:
    several = [{"what": f"tool {n}", "line": f"run {n}" if n else "first\nsecond"} for n in range(4)]
    assert vendor_lines(several) == ["tool 0", "run 1", "and 2 more ways, in report.html (Files)"]
    assert VendorStep("", "a {deploy} {encodings_1.0.0} {x: 1}").words == {"deploy", "encodings_1.0.0"}
