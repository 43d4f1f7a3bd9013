"""What examples/07-control-every-layer says about its settings is what the plan holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onnxq.demo import model_path
from onnxq.graph import Graph
from onnxq.place.explanation import Decisions
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan
from tests.examples.runnable import ROOT

EXAMPLE = ROOT / "examples" / "07-control-every-layer"
SETTINGS = EXAMPLE / "settings.toml"


@pytest.fixture(scope="module")
def plan() -> QuantPlan:
    return make_plan(prepare(Graph.load(model_path()), None, SETTINGS))


def test_the_first_and_the_last_layer_have_8_bits_and_those_between_4(plan: QuantPlan) -> None:
    bits = {placement.tensor: placement.spec.bits for placement in plan if placement.role == "weight"}
    assert {name for name, count in bits.items() if count == 8} == {"stem.conv.weight", "classifier.weight"}
    assert set(bits.values()) == {4, 8}
    assert "depthwise.conv" in plan.left_float


def test_every_operator_has_its_observer(plan: QuantPlan) -> None:
    observers = {placement.tensor: placement.observer for placement in plan if placement.role == "activation"}
    assert observers["residual1.relu.out"] == "percentile:percentile=99.99"
    assert observers["flatten.out"] == "percentile:percentile=99.9"
    assert observers["stem.relu.out"] == "minmax"
    assert observers["image"] == "fixed"


@pytest.mark.parametrize(
    ("tensor", "lines"),
    [
        ("stem.conv.weight", {"bits": "bits = 8", "observer": 'observer = "mse"'}),
        ("residual1.conv.weight", {"bits": "bits = 4", "observer": 'observer = "mse"'}),
        ("stem.relu.out", {"observer": 'observer = "minmax"'}),
    ],
)
def test_explain_names_the_lines_that_say_so(plan: QuantPlan, tensor: str, lines: Mapping[str, str]) -> None:
    text = SETTINGS.read_text(encoding="utf-8").splitlines()
    (answer,) = Decisions(plan).about(tensor)
    decided = [value for label, value in answer.facts if label == "decided by"]
    for field, line in lines.items():
        (said,) = [value for value in decided if value.endswith(f": {field}")]
        number = int(said.removesuffix(f": {field}").rpartition(":")[2])
        assert text[number - 1] == line


def test_the_readme_names_the_lines_of_today() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    text = SETTINGS.read_text(encoding="utf-8").splitlines()
    for field, line in (("bits", "bits = 8"), ("observer", 'observer = "mse"')):
        assert f"settings.toml:{text.index(line) + 1}: {field}" in readme
