"""Attributes of nodes as they are given; `onnxq.graph.attributes` holds those of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AttributeValues = Mapping[str, Any]
"""Attribute -> a number, text, tensor, type, graph or a list of these; which, the operator says."""
