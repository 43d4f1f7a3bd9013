"""Options behind a backend's name: checked with the nearest names, recorded in the plan, taken up again from it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS, get_backend
from onnxq.types import Backend, Option, QuantSpec, Scheme


def configure(values: Mapping[str, str]) -> Backend:
    if values["bits"] == "4" and values["mode"] == "fast":
        raise ConfigError("bits=4 has no fast mode: use mode=exact")
    spec = QuantSpec(f"int{values['bits']}")
    return get_backend("tensorrt").replace(
        name="chip_with_options", scheme=Scheme(spec, spec), options=OPTIONS, configure=configure
    )


OPTIONS = (
    Option("bits", ("8", "4"), "8", "width of everything"),
    Option("mode", ("fast", "exact"), "exact", "how sums are rounded"),
)


@pytest.fixture(autouse=True)
def registered():
    BACKENDS.add("chip_with_options", configure({"bits": "8", "mode": "exact"}))
    yield
    BACKENDS.forget("chip_with_options")


def test_options_change_the_backend_and_its_name() -> None:
    backend = get_backend("chip_with_options:bits=4")
    assert backend.scheme.weight == QuantSpec("int4")
    assert backend.name == "chip_with_options:bits=4"
    assert backend.chosen == {"bits": "4"}
    assert (backend.option("bits"), backend.option("mode")) == ("4", "exact")
    assert get_backend(backend.name).scheme == backend.scheme


def test_defaults_are_not_part_of_the_name_and_the_order_does_not_matter() -> None:
    assert get_backend("chip_with_options:bits=8").name == "chip_with_options"
    one, other = (get_backend(f"chip_with_options:{text}") for text in ("mode=FAST,bits=8", "bits=8, mode=fast"))
    assert one.name == other.name == "chip_with_options:mode=fast"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bit=4", "has no option 'bit'. Did you mean 'bits'?"),
        ("bits=5", "cannot be '5'. Known: 8, 4"),
        ("mode=exat", "Did you mean 'exact'?"),
        ("bits", "needs a value: bits=8"),
        ("bits=4,bits=8", "given twice"),
        ("bits=4,mode=fast", "use mode=exact"),
        ("", "has no option ''"),
    ],
)
def test_a_wrong_option_is_an_error_that_says_what_there_is(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        get_backend(f"chip_with_options:{text}")
    assert message in str(error.value)


def test_a_backend_without_options_says_so() -> None:
    with pytest.raises(ConfigError, match="'pplw8a16' has no options"):
        get_backend("pplw8a16:bits=4")


@pytest.mark.parametrize("name", BACKENDS.names())
def test_every_option_value_of_every_backend_makes_a_backend_or_a_clear_error(name: str) -> None:
    for option in BACKENDS.get(name).options:
        assert option.default in option.values
        assert option.summary
        for value in option.values:
            text = f"{name}:{option.name}={value}"
            try:
                made = get_backend(text)
            except ConfigError:
                with pytest.raises(ConfigError, match=value):  # the error names what was asked for
                    get_backend(text)
            else:
                assert made.options == BACKENDS.get(name).options
                assert get_backend(made.name).scheme == made.scheme
