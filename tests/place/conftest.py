"""Targets that only tests of overrides need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxq.types import QuantSpec


@pytest.fixture(autouse=True)
def _target_that_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target with quantized results that refuses no format, under the name academic_any."""
    from onnxq.targets import BACKENDS, get_backend
    from onnxq.types import Limits

    dtypes = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "float8e4m3fn")
    qnn = get_backend("qnn")
    limits = Limits(dtypes=dtypes, activations_per_tensor=False)
    tensorrt = get_backend("tensorrt")
    with_biases = tensorrt.replace(
        name="tensorrt_bias",
        scheme=replace(tensorrt.scheme, bias=QuantSpec("int8")),
        rules=tuple(replace(rule, bias=2) if rule.weight is not None else rule for rule in tensorrt.rules),
        limits=replace(tensorrt.limits, bias_quantized=True),
        configure=None,
        options=(),
    )
    monkeypatch.setitem(BACKENDS._items, "tensorrt_bias", with_biases)
    monkeypatch.setitem(
        BACKENDS._items,
        "academic_any",
        qnn.replace(
            name="academic_any",
            limits=limits,
            options=(),
            configure=None,
            refinements=(),
            lints=(),
            rounding_in_files="half_even",
        ),
    )
