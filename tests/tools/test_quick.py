"""`make quick` finds the tests of a touched file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.quick import ROOT, nearest_tests

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("touched", "near", "folder"),
    [
        ("onnxq/numerics/rounding.py", "tests/numerics/test_rounding.py", "tests/numerics"),
        ("onnxq/runtime/workers.py", "tests/runtime/test_workers.py", "tests/runtime"),
        ("onnxq/torchnet/fake_quantize/lsq.py", None, "tests/torchnet/fake_quantize"),
        ("onnxq/runtime/collect.py", "tests/calibrate/test_resume.py", "tests/runtime"),
        ("tools/quick.py", "tests/tools/test_quick.py", "tests/tools"),
        ("tests/runtime/small_graphs.py", "tests/runtime/test_collect.py", None),
        ("tests/runtime/test_workers.py", "tests/runtime/test_workers.py", None),
        ("docs/cli.md", "tests/examples/test_documents.py", None),
    ],
)
def test_a_touched_file_has_its_tests(touched: str, near: str | None, folder: str | None) -> None:
    found = nearest_tests([touched])
    assert near is None or near in found
    assert folder is None or folder in found
    assert all((ROOT / path).exists() for path in found)


def test_what_is_nearest_comes_first() -> None:
    found = nearest_tests(["onnxq/numerics/rounding.py"])
    assert (
        found.index("tests/numerics/test_rounding.py")
        < found.index("tests/numerics")
        < found.index("tests/test_layers.py")
    )


def test_a_file_without_tests_has_none() -> None:
    assert nearest_tests(["LICENSE", "onnxq/demo/digits.onnx"]) == []


def test_what_has_not_begun_in_time_is_skipped_and_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import time
        def test_first(): time.sleep(0.02)
        def test_second(): raise AssertionError
        """
    )
    pytester.makeconftest((Path(__file__).parents[1] / "time_limit.py").read_text())
    result = pytester.runpytest_inprocess("-rs", "--most-seconds=0.01", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["*not begun within 0 seconds*"])
    assert result.parseoutcomes().get("failed", 0) == 0
