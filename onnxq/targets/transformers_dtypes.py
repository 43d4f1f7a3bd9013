"""The files that transformers.js chooses by `dtype`, and the target that each is quantized for.

Behind the name of the float model stands what transformers.js looks for (`model_q4.onnx`); Optimum calls the file of q8
by the same name, model_quantized.onnx.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxq.json_file import JsonMapping


@dataclass(frozen=True)
class TransformersDtype:
    """`target` quantizes activations too, which takes data; `without_data` is the target where there is none."""

    suffix: str
    target: str | None
    without_data: str | None = None
    settings: JsonMapping = field(default_factory=dict)


DTYPES = {
    "q8": TransformersDtype("_quantized", "onnxruntime", "weight_only:bits=8,form=nbits"),
    "uint8": TransformersDtype("_uint8", "onnxruntime", settings={"portable": True}),
    "q4": TransformersDtype(
        "_q4", "weight_only:bits=4,form=nbits,ops=linear", "weight_only:bits=4,form=nbits,ops=linear"
    ),
    "q2": TransformersDtype(
        "_q2", "weight_only:bits=2,form=nbits,ops=linear", "weight_only:bits=2,form=nbits,ops=linear"
    ),
}

OTHER_SUFFIXES = ("_int8", "_fp16", "_q4f16", "_q2f16", "_q1", "_q1f16", "_bnb4")
"""Of files that others have made: they are kept, and are no float models to begin with."""
