"""Commands of documents and examples that run in the process of the tests leave nothing behind in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxq import BACKENDS, PASSES
from onnxq.emit import EMITTERS
from onnxq.observers import OBSERVERS
from onnxq.torchnet import OPERATORS
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS
from onnxq.types.fake_quantizers import KINDS, forget_kind


@pytest.fixture
def plugins_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What plugins register during a test is not there after it."""
    for registry in (BACKENDS, EMITTERS, OBSERVERS, PASSES, FAKE_QUANTIZERS):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))
    OPERATORS.definitions()  # loads all of them
    monkeypatch.setattr(OPERATORS, "_definitions", {key: list(known) for key, known in OPERATORS._definitions.items()})
    kinds = set(KINDS)
    yield
    for name in set(KINDS) - kinds:
        forget_kind(name)
