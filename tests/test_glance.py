"""Values in one line and as small tables of a notebook; names of models are text in both."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import fields
from html.parser import HTMLParser
from typing import Any, get_type_hints

import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.diagnose.run import BRIEF
from onnxq.glance import MOST_ROWS, counted, decibels, notebook_html, short_name, tally
from onnxq.mixed_precision.subject import About
from tests.hostile_names import HOSTILE, hostile_model, hostile_samples

LONGEST_LINE = 400


class Seen(HTMLParser):
    """Elements and text of a piece of markup."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def is_text(markup: str) -> Seen:
    """Nothing of the markup but its own elements; whatever a name holds is text."""
    seen = Seen(markup)
    assert seen.tags <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}, seen.tags
    assert seen.attributes <= {"class", "style"}
    assert "\x1b" not in seen.text
    assert "\u202e" not in seen.text
    return seen


def is_line(value: object) -> str:
    line = repr(value)
    assert len(line) < LONGEST_LINE, line
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line
    return line


def quickly(function: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onnxq.OnnxqWarning)
        return function(hostile_model(), backend="onnxruntime", data=hostile_samples(), progress=False, **more)


def test_names_are_cut_in_the_middle_and_lists_are_counted() -> None:
    assert short_name("layer") == "layer"
    long = short_name("backbone/" + "x" * 300 + "/conv7")
    assert len(long) == 39
    assert long.startswith("backbone/")
    assert long.endswith("/conv7")
    assert counted(1, "warning") == "1 warning"
    assert counted(1200, "remedy", "remedies") == "1,200 remedies"
    assert tally("aaabbcd") == "3 a, 2 b, 1 c, 1 others"
    assert decibels("inf") == "equal to float"
    assert decibels(31.26) == "31.3 dB"


def test_a_table_says_how_many_rows_it_leaves_out() -> None:
    rows = [(str(number), HOSTILE) for number in range(MOST_ROWS + 5)]
    seen = is_text(notebook_html(HOSTILE, [(HOSTILE, HOSTILE)], ("a", "b"), rows))
    assert "and 5 more" in seen.text
    assert "<script>alert(1)</script>&amp;[red]\\x1b[31m\\u202e" in seen.text


def test_a_graph_in_a_line_and_in_a_notebook() -> None:
    graph = onnxq.load(model_path())
    assert is_line(graph).startswith("<Graph digits.onnx: 23 nodes (6 Conv, ")
    assert "from 'image' to 'logits'" in is_line(graph)
    assert "float32 [batch, 1, 8, 8]" in is_text(graph._repr_html_()).text
    hostile = onnxq.Graph.from_model(hostile_model())
    assert is_line(hostile).startswith("<Graph in memory: 3 nodes (2 MatMul, 1 Tanh)")
    assert "<script>" in is_text(hostile._repr_html_()).text


def test_a_plan_and_its_parameters_in_a_line() -> None:
    prepared = onnxq.prepare(onnxq.Graph.from_model(hostile_model()), backend="onnxruntime")
    assert is_line(prepared).startswith("<Prepared for onnxruntime: ")
    assert is_line(prepared.backend).startswith("<Backend onnxruntime: ")
    assert is_line(onnxq.Config()) == "Config()"
    assert is_line(onnxq.Config(effort=2, activation={"bits": 4})).endswith("(bits=4), effort=2)")
    plan = onnxq.place(prepared.graph, prepared.backend)
    (name,) = prepared.graph.input_names
    found = onnxq.calibrate(prepared.graph, plan, [{name: sample[None]} for sample in hostile_samples()])
    assert "4 quantizers (2 activation, 2 weight), 3 nodes (2 quantized, 0 fused, 1 float)" in is_line(plan)
    assert is_line(found.qparams) == "<QParamsTable: 4 tensors (2 uint8, 2 int8)>"
    shown = is_text(plan._repr_html_()).text
    assert "stays float" in shown
    assert "<script>" in shown


def test_studies_take_a_model_and_give_a_line() -> None:
    found = quickly(onnxq.sensitivity)
    assert is_line(found).startswith("<Sensitivity of 2 layers, alone: ")
    assert is_line(found.effects[0]).startswith("<Effect of '")
    assert "share of the noise" in is_text(found._repr_html_()).text
    searched = quickly(onnxq.search, budget="75%", evaluations=2)
    assert "bits in the mean" in is_line(searched)
    assert "bytes of weights" in is_line(searched.chosen)
    assert "chosen" in is_text(searched._repr_html_()).text
    held = quickly(onnxq.restore_layers, reach=5.0)
    assert "0 of 2 layers restored to float" in is_line(held)


def test_a_diagnosis_in_a_line_and_in_a_notebook() -> None:
    found = quickly(onnxq.diagnose, budget=BRIEF)
    assert is_line(found).startswith("<Diagnosis for onnxruntime: worst result ")
    assert "Diagnosis for onnxruntime" in is_text(found._repr_html_()).text


def test_studies_say_which_arguments_they_take() -> None:
    """`About` is what type checkers see, the signature what help() and editors show; both are the fields of Subject."""
    names = [field.name for field in fields(onnxq.Subject) if field.name != "model"]
    assert list(get_type_hints(About)) == names
    for function in (onnxq.sensitivity, onnxq.search, onnxq.restore_layers, onnxq.diagnose):
        shown = list(inspect.signature(function).parameters)
        assert shown[: len(names) + 1] == ["model", *names], function
        assert "about" not in shown
    assert inspect.signature(onnxq.sensitivity).parameters["by"].default == "layer"


def test_a_subject_has_its_arguments_already() -> None:
    subject = onnxq.Subject(hostile_model(), backend="onnxruntime", data=hostile_samples())
    with pytest.raises(TypeError, match=r"sensitivity\(\) has got a Subject: data belong into it"):
        onnxq.sensitivity(subject, data=hostile_samples())
    with pytest.raises(TypeError, match="dta"):
        onnxq.sensitivity(hostile_model(), dta=hostile_samples())  # type: ignore[call-arg]


def test_notes_of_a_study_are_warnings_at_the_line_that_called_it() -> None:
    data = load_data()
    with pytest.warns(onnxq.OnnxqWarning, match="time") as said:
        onnxq.sensitivity(
            model_path(),
            backend="onnxruntime",
            data=data.calibration[:2],
            config={"time_limit": 60},
            samples=2,
            progress=False,
        )
    assert said[0].filename == __file__
