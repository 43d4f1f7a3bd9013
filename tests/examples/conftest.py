"""Commands of documents and examples that run in the process of the tests leave nothing behind in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxq import BACKENDS, PASSES
from onnxq.emit import EMITTERS, READ_BACKS
from onnxq.emit.simulations import SIMULATIONS
from onnxq.lint import LINTS
from onnxq.observers import OBSERVERS
from onnxq.refine import REFINEMENTS
from onnxq.torchnet import OPERATORS
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS
from onnxq.types.fake_quantizers import KINDS, forget_kind
from onnxq.types.number_format import forget_format, number_formats


@pytest.fixture
def plugins_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What plugins register during a test, and modules that it imports from its folder, are not there after it."""
    stages = (EMITTERS, READ_BACKS, REFINEMENTS, SIMULATIONS, LINTS)
    for registry in (BACKENDS, OBSERVERS, PASSES, FAKE_QUANTIZERS, *stages):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))
    OPERATORS.definitions()  # loads all of them
    monkeypatch.setattr(OPERATORS, "_definitions", {key: list(known) for key, known in OPERATORS._definitions.items()})
    kinds, formats = set(KINDS), set(number_formats())
    yield
    for name in set(number_formats()) - formats:
        forget_format(name)
    for name in set(KINDS) - kinds:
        forget_kind(name)
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
