"""OpenPPL on NVIDIA GPUs, 8 bits: asymmetric data, weights per channel, inputs and outputs of every layer quantized.

ppl.nn itself reads symmetric ranges only: `scheme=symmetric` makes exactly what its engine computes.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.layer_rules import TOTAL_INTEGER, TOTAL_INTEGER_MOVES, TOTAL_INTEGER_TIED
from onnxq.types.presets import STANDARD_PASSES
from onnxq.types.vendor_step import VendorStep

OPTIONS = (
    Option(
        "scheme",
        ("asymmetric", "symmetric"),
        "asymmetric",
        "symmetric: int8 with zero point 0, as the engine of ppl.nn computes; asymmetric: uint8, as MQBench trains",
    ),
)


def configure(values: Mapping[str, str]) -> Backend:
    symmetric = values["scheme"] == "symmetric"
    dtype = "int8" if symmetric else "uint8"
    return Backend(
        name="pplcuda",
        summary="OpenPPL (ppl.nn) on NVIDIA GPUs: 8 bits, weights per channel, with MQBench's and ppl.nn's range files",
        scheme=Scheme(
            activation=QuantSpec(dtype, symmetric=symmetric),
            weight=QuantSpec(dtype, symmetric=symmetric, granularity=PerChannel(0)),
        ),
        rules=TOTAL_INTEGER,
        same_scale=TOTAL_INTEGER_MOVES,
        tied=TOTAL_INTEGER_TIED,
        unquantized_pairs=(("Add", "Mul"),),
        limits=Limits(dtypes=(dtype,), zero_point_zero=symmetric, min_opset=13, bias_quantized=False),
        passes=STANDARD_PASSES,
        known_as=(KnownAs("PPLCUDA", a_observer="MinMaxObserver"),),
        emitters=("qdq", "deploy", "ppl_cuda_ranges", "ppl_nn"),
        vendor_steps=(
            VendorStep(
                "ppl.nn runs the float model with the quantization file",
                "pplnn --use-cuda --onnx-model {deploy} --quant-file {ppl_nn}",
            ),
        ),
        options=OPTIONS,
        configure=configure,
    )


BACKENDS.add("pplcuda", configure({"scheme": "asymmetric"}))
