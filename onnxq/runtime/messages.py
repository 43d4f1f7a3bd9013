"""What the messages of onnxruntime say: the only place that reads them, since they are not ours and may change."""

from __future__ import annotations

import re

from onnxq.errors import ModelError, UnsupportedError

_NO_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
_NODE = re.compile(r"[Nn]ame: ?'([^']+)'|[Nn]ode ?\(([^)]+)\)|with name '([^']+)'")
_NO_OPERATOR = (
    r"(?P<domain>[\w.]*):(?P<op>\w+)\(-?\d+\) is not a registered function/op",
    r"No Op registered for (?P<op>\w+) with domain_version",
    r"Could not find an implementation for (?P<op>\w+)\(-?\d+\) node with name '(?P<node>[^']*)'",
)


def sentence(error: Exception) -> str:
    """The message without its error number."""
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)).strip()


def lacks_memory(error: Exception) -> bool:
    """Whether the machine has no more memory, which cannot be asked for afterwards."""
    return any(words in str(error) for words in _NO_MEMORY)


def named_nodes(message: str) -> list[str]:
    """The nodes that a message names."""
    return [name for found in _NODE.finditer(message) for name in found.groups() if name]


def load_error(error: Exception, what: str) -> ModelError | UnsupportedError:
    """The error for a model that onnxruntime does not load."""
    text = sentence(error)
    for pattern in _NO_OPERATOR:
        found = re.search(pattern, text)
        if found is not None:
            parts = found.groupdict()
            domain = parts.get("domain") or "ai.onnx"
            node = f", node '{parts['node']}'" if parts.get("node") else ""
            return UnsupportedError(
                f"onnxruntime has no implementation of operator '{parts['op']}' (domain '{domain}'{node}), so {what} "
                "cannot be run. Replace the operator, or cut the model in front of it"
            )
    return ModelError(f"onnxruntime cannot load {what}: {text}")
