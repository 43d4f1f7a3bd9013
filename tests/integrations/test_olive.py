"""Without Olive its pass says what to install."""

import sys

import pytest

from onnxq.errors import ConfigError


def test_the_pass_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "olive", None)
    monkeypatch.delitem(sys.modules, "onnxq.integrations.olive", raising=False)
    with pytest.raises(ConfigError, match="pip install olive-ai"):
        import onnxq.integrations.olive  # noqa: F401
