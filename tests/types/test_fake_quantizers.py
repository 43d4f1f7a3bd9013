"""Fake-quantizers: what a user may write, what it becomes, and what each demands of the number format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import ConfigError
from onnxq.types import QuantSpec
from onnxq.types.fake_quantizers import (
    ALIASES,
    KINDS,
    Argument,
    FakeQuantizer,
    Kind,
    add_kind,
    forget_kind,
    read_fake_quantizer,
)


@pytest.mark.parametrize(
    ("given_as", "text"),
    [
        ("pact", "pact"),
        ("pact:6", "pact"),
        ("pact:4", "pact:alpha=4"),
        (" pact : alpha = 4 ", "pact:alpha=4"),
        ({"name": "pact", "alpha": 4}, "pact:alpha=4"),
        ({"name": "PACTFakeQuantize", "alpha": 0.1}, "pact:alpha=0.1"),
        ({"name": "pact"}, "pact"),
        ("dsq:0.4", "dsq"),
        ("qdrop:p=0.5", "qdrop:p=0.5"),
        ("qdrop:0", "qdrop:p=0"),
        ("fixed", "fixed"),
        ("fixed:", "fixed"),
    ],
)
def test_what_is_written_and_the_shortest_text_for_it(given_as: object, text: str) -> None:
    found = read_fake_quantizer(given_as)  # type: ignore[arg-type]
    assert str(found) == text
    assert read_fake_quantizer(text) == found
    assert read_fake_quantizer(found) is found


@given(st.floats(0, exclude_min=True, allow_infinity=False))
def test_any_argument_reads_back_to_the_same_number(alpha: float) -> None:
    found = read_fake_quantizer({"name": "pact", "alpha": alpha})
    assert read_fake_quantizer(str(found)).argument("alpha") == alpha


@pytest.mark.parametrize("name", list(KINDS))
def test_each_kind_explains_itself_and_demands_a_legal_format(name: str) -> None:
    kind = KINDS[name]
    found = read_fake_quantizer(name)
    assert found == FakeQuantizer(name, tuple((item.name, item.default) for item in kind.arguments))
    assert str(found) == name
    assert all((kind.summary, kind.untrained, kind.roles))
    spec = QuantSpec(**{key: value for key, value in found.implied.items() if key != "per_channel"})
    assert found.implied.get("per_channel", False) is False
    assert all(getattr(spec, key) == value for key, value in found.implied.items() if key != "per_channel")


@pytest.mark.parametrize(("name", "own"), list(ALIASES.items()))
def test_names_of_other_tools_mean_the_same(name: str, own: str) -> None:
    assert read_fake_quantizer(name) == read_fake_quantizer(own)


def test_what_the_kinds_demand_of_the_format() -> None:
    implied = {name: dict(kind.implied) for name, kind in KINDS.items() if kind.implied}
    assert implied == {
        "nnie": {"dtype": "nnie8"},
        "pact": {"per_channel": False},
        "tqt": {"power_of_two": True, "symmetric": True},
        "e4m3": {"dtype": "fp8_e4m3"},
        "e5m2": {"dtype": "fp8_e5m2"},
        "fp16": {"dtype": "fp16"},
        "bf16": {"dtype": "bf16"},
    }


def test_some_kinds_are_for_weights_or_activations_only() -> None:
    assert {name for name, kind in KINDS.items() if "activation" not in kind.roles} == {"dorefa", "adaround"}
    assert {name for name, kind in KINDS.items() if "weight" not in kind.roles} == {"pact", "qdrop"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("pacct", "unknown fake-quantizer 'pacct'. Did you mean 'pact'?"),
        ("LearnableFakeQuantise", "Did you mean 'LearnableFakeQuantize'"),
        ("PACT", "Did you mean 'pact'?"),
        ({"name": "pact", "alpa": 3}, "has no argument 'alpa'. Did you mean 'alpha'? Its arguments: alpha"),
        ("pact:alpa=3", "has no argument 'alpa'"),
        ("fixed:3", "'fixed' has no argument for '3'; its arguments: none"),
        ("pact:3,alpha=4", "'alpha' of fake-quantizer 'pact' is given twice"),
        ("pact:0", "must be a number, above 0; got '0'"),
        ("pact:inf", "must be a number, above 0; got 'inf'"),
        ("pact:six", "must be a number, above 0; got 'six'"),
        ({"name": "pact", "alpha": True}, "got True"),
        ({"name": "pact", "alpha": None}, "got None"),
        ("dsq:1", "0 .. 1, the ends left out; got '1'"),
        ("qdrop:1.5", "0 .. 1; got '1.5'"),
        ({"alpha": 3}, 'needs a "name", one of fixed, lsq'),
        (3, 'such as "lsq", or a table with a "name"; got 3'),
    ],
)
def test_errors_name_the_nearest_and_what_is_allowed(wrong: object, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_fake_quantizer(wrong)  # type: ignore[arg-type]
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["FP4FakeQuantize", "FPXGROUPFakeQuantize", "GPTQFakeQuantize", "GPTQFP4FakeQuantize"])
def test_known_names_without_a_counterpart_say_what_to_use(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"onnxq has no fake-quantizer '{name}': .* Use '"):
        read_fake_quantizer(name)


def test_a_kind_from_outside_is_read_listed_and_named_in_errors() -> None:
    kind = Kind("stairs", "rounds in flights", "the same numbers as fixed", arguments=(Argument("height", 2.0),))
    try:
        assert add_kind(kind) is kind
        add_kind(Kind("stairs", "rounds in flights", "the same numbers as fixed", arguments=kind.arguments))
        assert list(KINDS)[-1] == "stairs"
        assert read_fake_quantizer("stairs:3").argument("height") == 3
        assert str(read_fake_quantizer("stairs:3")) == "stairs:height=3"
        with pytest.raises(ConfigError, match="Did you mean 'stairs'"):
            read_fake_quantizer("stair")
        with pytest.raises(ConfigError, match="'stairs' exists already"):
            add_kind(Kind("stairs", "something else", "nothing"))
    finally:
        forget_kind("stairs")
    assert "stairs" not in KINDS


@pytest.mark.parametrize("name", ["lsq", "TQTQuantizer", "FP4FakeQuantize"])
def test_names_that_mean_something_already_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' exists already; choose another name"):
        add_kind(Kind(name, "mine", "mine"))


@pytest.mark.parametrize("name", ["", "a:b", "a,b", "1st", "two words"])
def test_names_that_could_not_be_written_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits and underscores"):
        add_kind(Kind(name, "mine", "mine"))


def test_kinds_of_onnxq_itself_stay() -> None:
    forget_kind("lsq")
    assert "lsq" in KINDS
