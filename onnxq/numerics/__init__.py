"""The arithmetic of quantization, one definition each; numpy and ml_dtypes only."""

from onnxq.numerics.affine import dequantize, fake_quantize, quantize, quantize_by_rows, storage_dtype
from onnxq.numerics.bias import BIAS_LIMIT, derived_bias_scale, widen_weight_scale_for_bias
from onnxq.numerics.by_rows import let_go, row_pieces
from onnxq.numerics.chunks import chunks
from onnxq.numerics.float_grid import float_max, float_storage, from_bits, round_to_float, to_bits
from onnxq.numerics.formats.bfp16 import block_steps, round_to_blocks
from onnxq.numerics.formats.blocks import block_axis
from onnxq.numerics.formats.nnie import nnie_bounds, nnie_clip, nnie_codes, nnie_steps, nnie_table
from onnxq.numerics.metrics import SqnrAccumulator, compare, cosine, max_abs_error, mse, sqnr_db
from onnxq.numerics.ranges import MIN_SCALE, next_power_of_two, qparams_from_range, with_float16_scale
from onnxq.numerics.rounding import quotient, round_values

__all__ = [
    "BIAS_LIMIT",
    "MIN_SCALE",
    "SqnrAccumulator",
    "block_axis",
    "block_steps",
    "chunks",
    "compare",
    "cosine",
    "dequantize",
    "derived_bias_scale",
    "fake_quantize",
    "float_max",
    "float_storage",
    "from_bits",
    "let_go",
    "max_abs_error",
    "mse",
    "next_power_of_two",
    "nnie_bounds",
    "nnie_clip",
    "nnie_codes",
    "nnie_steps",
    "nnie_table",
    "qparams_from_range",
    "quantize",
    "quantize_by_rows",
    "quotient",
    "round_to_blocks",
    "round_to_float",
    "round_values",
    "row_pieces",
    "sqnr_db",
    "storage_dtype",
    "to_bits",
    "widen_weight_scale_for_bias",
    "with_float16_scale",
]
