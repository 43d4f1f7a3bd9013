"""The option `rest` of targets that compute in half precision what is not quantized."""

from __future__ import annotations

from onnxq.types import Option
from onnxq.types.rest import HalfRest

_DTYPES = {"fp32": None, "fp16": "float16", "bf16": "bfloat16"}


def rest_option(*values: str) -> Option:
    """The option of a target that takes these types; float32 unless somebody asks for one of them."""
    summary = "what layers that are not quantized compute in: half precision where the data shows that nothing is lost"
    return Option("rest", ("fp32", *values), "fp32", summary)


def half_rest(value: str, *, scales: bool = False) -> HalfRest | None:
    """What a value of the option asks for."""
    dtype = _DTYPES[value]
    return None if dtype is None else HalfRest(dtype, scales)
