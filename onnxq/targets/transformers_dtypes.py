"""The files that transformers.js chooses by `dtype`, and the target that each is quantized for.

Behind the name of the float model stands what transformers.js looks for (`model_q4.onnx`); Optimum calls the file of q8
by the same name, model_quantized.onnx. w8a16, w4a16 and w4a8 are for language models: one table for embeddings and
head, and with w4a8 activations that onnxruntime rounds to 8 bits inside of MatMulNBits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from onnxq.json_file import JsonMapping


@dataclass(frozen=True)
class TransformersDtype:
    """`target` quantizes activations too, which takes data; `without_data` is the target where there is none."""

    suffix: str
    target: str | None
    without_data: str | None = None
    settings: JsonMapping = field(default_factory=dict)

    def with_options(self, options: Mapping[str, str]) -> TransformersDtype:
        """The same with other options of its targets."""
        return replace(
            self, target=_with_options(self.target, options), without_data=_with_options(self.without_data, options)
        )


_OF_LANGUAGE_MODELS = {
    "w8a16": "weight_only:bits=8,form=nbits",
    "w4a16": "weight_only:bits=4,form=nbits",
    "w4a8": "weight_only:bits=4,form=nbits,accuracy_level=4",
}
_BNB4 = "weight_only:format=nf4,form=nbits,ops=linear"
DTYPES = {
    "q8": TransformersDtype("_quantized", "onnxruntime", "weight_only:bits=8,form=nbits"),
    "uint8": TransformersDtype("_uint8", "onnxruntime", settings={"portable": True}),
    "int8": TransformersDtype("_int8", "onnxruntime", settings={"weight": {"dtype": "int8"}}),
    "q4": TransformersDtype(
        "_q4", "weight_only:bits=4,form=nbits,ops=linear", "weight_only:bits=4,form=nbits,ops=linear"
    ),
    "q2": TransformersDtype(
        "_q2", "weight_only:bits=2,form=nbits,ops=linear", "weight_only:bits=2,form=nbits,ops=linear"
    ),
    "bnb4": TransformersDtype("_bnb4", _BNB4, _BNB4),
    **{name: TransformersDtype(f"_{name}", target, target) for name, target in _OF_LANGUAGE_MODELS.items()},
}

OTHER_SUFFIXES = ("_fp16", "_q4f16", "_q2f16", "_q1", "_q1f16")
"""Of files that others have made: they are kept, and are no float models to begin with."""


def _with_options(target: str | None, options: Mapping[str, str]) -> str | None:
    if target is None or not options:
        return target
    name, _, own = target.partition(":")
    given = dict(part.split("=", 1) for part in own.split(",") if part)
    return f"{name}:{','.join(f'{key}={value}' for key, value in {**given, **options}.items())}"
